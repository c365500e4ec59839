#!/bin/sh
# Puts prefill, decode and a step of 16 rows beside llama.cpp's, on the same GGUF file and machine, as a Markdown table:
#   [LEVELS="amx avx512 avx2"] [REFERENCE=smollm2.json] tools/compare_llama_cpp.sh [MODEL.gguf [THREADS [ROUNDS]]]
# llama.cpp comes as PyPI's llama-cpp-python, built from its source package for this CPU into the cache folder (once, many
# minutes). The programs take turns, ROUNDS times each; medians and bests are over all their measurements. LEVELS are the CPU
# levels at which ours runs (default: the best). REFERENCE adds llama.cpp's agreement with the f32 reference. Not for CI.
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
cache=${VERBATIM_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/verbatim}
model=${1:-$cache/tests/SmolLM2-135M-Instruct.Q4_1.gguf}
threads=${2:-$(nproc)}
rounds=${3:-3}
verbatim=${VERBATIM:-$top/build/verbatim}
venv=$cache/llama-cpp
version=${LLAMA_CPP_PYTHON:-0.3.36}
[ -f "$model" ] || sh "$top/tools/fetch_smollm2.sh"
[ -f "$model" ] || { echo "compare_llama_cpp: no $model" >&2; exit 1; }
[ -x "$verbatim" ] || { echo "compare_llama_cpp: no $verbatim, expected a build" >&2; exit 1; }

# gcc 12's own intrinsics tell the compiler that a tile configuration is read 8 bytes wide and that a tile load reads no memory,
# so that it drops the stores before them: llama.cpp built by it dies in ldtilecfg. Its files get these instead.
headers() {
    mkdir -p "$venv/headers"
    cat >"$venv/headers/immintrin.h" <<'H'
#ifndef TILES_AFTER_THEIR_STORES
#define TILES_AFTER_THEIR_STORES
#pragma GCC system_header
#include_next <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__) && defined(__AMX_TILE__)
static inline __attribute__((always_inline)) void tile_config_64(const void *p) {
    __asm__ volatile("ldtilecfg %X0" : : "m"(*(const char(*)[64])p) : "memory");
}
#define _tile_loadconfig(p) tile_config_64(p)
#ifdef _tile_loadd_internal
#undef _tile_loadd_internal
#define _tile_loadd_internal(t, p, stride) \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"((const void *)(p)), "r"((long)(stride)) : "memory")
#endif
#endif
#endif
H
}
if [ "$(cat "$venv/built" 2>/dev/null)" != "$version" ]; then
    python3 -m venv "$venv"
    headers
    CMAKE_BUILD_PARALLEL_LEVEL=${JOBS:-2} CPLUS_INCLUDE_PATH="$venv/headers" \
    CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF -DLLAMA_BUILD_SERVER=OFF -DMTMD_BUILD=OFF -DLLAVA_BUILD=OFF -DLLAMA_CURL=OFF" \
        "$venv/bin/pip" install --quiet --no-cache-dir --force-reinstall --no-binary llama-cpp-python "llama-cpp-python==$version"
    echo "$version" >"$venv/built"
fi
VERBATIM=$verbatim exec "$venv/bin/python3" "$top/tools/compare_llama_cpp.py" "$model" "$threads" "$rounds" ${REFERENCE:+"$REFERENCE"}
