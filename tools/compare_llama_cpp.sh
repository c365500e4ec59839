#!/bin/sh
# Puts prefill, decode and a step of 16 rows beside llama.cpp's, on the same GGUF file and machine, as a Markdown table:
#   tools/compare_llama_cpp.sh [MODEL.gguf [THREADS [ROUNDS]]]
# llama.cpp comes as PyPI's llama-cpp-python, built from its source package for this CPU into the cache folder (once, many
# minutes). The two programs take turns, ROUNDS times each; medians and bests are over all their measurements. Not for CI.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
cache=${VERBATIM_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/verbatim}
model=${1:-$cache/tests/SmolLM2-135M-Instruct.Q4_1.gguf}
threads=${2:-$(nproc)}
rounds=${3:-3}
verbatim=${VERBATIM:-$top/build/verbatim}
venv=$cache/llama-cpp
version=${LLAMA_CPP_PYTHON:-}
[ -f "$model" ] || sh "$top/tools/fetch_smollm2.sh"
[ -x "$verbatim" ] || { echo "compare_llama_cpp: no $verbatim, expected a build" >&2; exit 1; }
if [ ! -f "$venv/built" ]; then
    python3 -m venv "$venv"
    CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-2} \
    CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DMTMD_BUILD=OFF -DLLAVA_BUILD=OFF -DLLAMA_CURL=OFF" \
        "$venv/bin/pip" install --quiet --no-binary llama-cpp-python "llama-cpp-python${version:+==$version}"
    : >"$venv/built"
fi
VERBATIM=$verbatim exec "$venv/bin/python3" "$top/tools/compare_llama_cpp.py" "$model" "$threads" "$rounds" ${REFERENCE:+"$REFERENCE"}
