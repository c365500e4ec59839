#!/bin/sh
# Runs every test of a build folder and ends with the plain line "N passed, N failed"; skipped and failed tests are named before it.
# tools/check.sh [BUILD] [--count]      --count: only the summary of the last run
set -u
build=${1:-build}
log=$build/meson-logs/testlog-full.json # meson names it after the setup
status=0
if [ "${2:-}" != --count ]; then
    rm -f "$log"
    meson test --setup full -C "$build" --no-rebuild --print-errorlogs </dev/null || status=$?
fi
python3 - "$log" <<'END'
import json, os, sys
passed = failed = 0
if not os.path.exists(sys.argv[1]):
    print('failed: there was no test run')
    failed = 1
else:
    for line in open(sys.argv[1]):
        t = json.loads(line)
        if t['result'] in ('OK', 'EXPECTEDFAIL'): passed += 1
        elif t['result'] == 'SKIP': print('skipped: %s' % t['name'])
        else:
            failed += 1
            print('failed: %s (%s)' % (t['name'], t['result']))
print('%d passed, %d failed' % (passed, failed))
END
exit $status
