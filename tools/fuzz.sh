#!/bin/sh
# Builds the libFuzzer targets with clang and runs each: tools/fuzz.sh [seconds each] [target...].
# TIMEOUT (10): seconds of wall clock that one input may take; more where the machine stops the process now and then.
# New inputs go to build-fuzz/corpus/NAME; a crash leaves its input there and makes the script fail.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
[ $# -gt 0 ] && shift
[ -d build-fuzz ] || CC=clang meson setup build-fuzz -Dfuzz=true -Dbuildtype=debugoptimized -Db_lundef=false
failed=0
targets=${*:-$(cd tests/fuzz && ls fuzz_*.c | sed 's/fuzz_\(.*\)\.c/\1/')}
ninja -C build-fuzz $(for target in $targets; do echo "tests/fuzz/fuzz_$target"; done)
for target in $targets; do
    mkdir -p "build-fuzz/corpus/$target"
    echo "fuzz $target: $seconds s"
    "build-fuzz/tests/fuzz/fuzz_$target" -max_total_time="$seconds" -timeout="${TIMEOUT:-10}" -rss_limit_mb=2048 -print_final_stats=0 \
        -verbosity=0 -artifact_prefix="build-fuzz/corpus/$target-" \
        "build-fuzz/corpus/$target" "tests/fuzz/corpus/$target" || failed=1
done
exit $failed
