/* Limits of the AVX-512 level: cpu/limits_measure.h. */
#include "backend/cpu/limits_measure.h"
#include <immintrin.h>

/* Hides a value from the optimiser without moving it. */
#define OPAQUE(x) __asm__ volatile("" : "+v"(x))

int64_t vb__contract_loop_avx512(int32_t iterations) {
    enum { ROWS = 8 };
    __m512i codes = _mm512_set1_epi8(3), a = _mm512_set1_epi8(5);
    __m512 scale = _mm512_set1_ps(0.5f), bias = _mm512_set1_ps(0.25f), acc[ROWS];
    for (int r = 0; r < ROWS; r++) acc[r] = _mm512_setzero_ps();
    OPAQUE(codes);
    OPAQUE(a);
    OPAQUE(scale);
    OPAQUE(bias);
    for (int32_t i = 0; i < iterations; i++) {
        __m512i dot[ROWS];
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            dot[r] = _mm512_setzero_si512();
            OPAQUE(dot[r]);
        }
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
#pragma GCC unroll 8
            for (int r = 0; r < ROWS; r++) dot[r] = _mm512_dpbusd_epi32(dot[r], codes, a);
        }
#pragma GCC unroll 8
        for (int r = 0; r < ROWS; r++) {
            OPAQUE(scale); /* else the product is taken once for all */
            __m512 m = _mm512_mul_ps(scale, bias);
            acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]), m, acc[r]);
            acc[r] = _mm512_fmadd_ps(bias, scale, acc[r]);
        }
    }
    for (int r = 0; r < ROWS; r++) OPAQUE(acc[r]);
    return (int64_t)iterations * ROWS * 16 * 64;
}

uint64_t vb__read_loop_avx512(const uint8_t *p, int64_t bytes) {
    __m512i s[4];
    for (int j = 0; j < 4; j++) s[j] = _mm512_setzero_si512();
    for (int64_t i = 0; i < bytes; i += 256) {
        _mm_prefetch(p + i + 4096, _MM_HINT_T0);
        _mm_prefetch(p + i + 4160, _MM_HINT_T0);
        _mm_prefetch(p + i + 4224, _MM_HINT_T0);
        _mm_prefetch(p + i + 4288, _MM_HINT_T0);
        for (int j = 0; j < 4; j++) s[j] = _mm512_add_epi64(s[j], _mm512_loadu_si512(p + i + 64 * j));
    }
    uint64_t lane[8], sum = 0; /* unsigned: any value keeps the loads alive */
    _mm512_storeu_si512(lane, _mm512_add_epi64(_mm512_add_epi64(s[0], s[1]), _mm512_add_epi64(s[2], s[3])));
    for (int j = 0; j < 8; j++) sum += lane[j];
    return sum;
}
