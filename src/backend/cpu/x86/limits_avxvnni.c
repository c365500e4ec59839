/* Limit of the AVX2 level with AVX-VNNI: cpu/limits_measure.h. */
#include "backend/cpu/limits_measure.h"
#include <immintrin.h>

#define OPAQUE(x) __asm__ volatile("" : "+x"(x))

int64_t vb__contract_loop_avxvnni(int32_t iterations) {
    enum { ROWS = 6 };
    __m256i codes = _mm256_set1_epi8(3), a = _mm256_set1_epi8(5);
    __m256 scale = _mm256_set1_ps(0.5f);
    OPAQUE(codes);
    OPAQUE(a);
    OPAQUE(scale);
    for (int32_t i = 0; i < iterations; i++) {
        __m256i sum[2 * ROWS]; /* 16 outputs of the rows */
#pragma GCC unroll 12
        for (int r = 0; r < 2 * ROWS; r++) sum[r] = _mm256_setzero_si256();
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++)
#pragma GCC unroll 12
            for (int r = 0; r < 2 * ROWS; r++) {
                sum[r] = _mm256_dpbusd_avx_epi32(sum[r], codes, a);
                OPAQUE(sum[r]);
            }
#pragma GCC unroll 12
        for (int r = 0; r < 2 * ROWS; r++) {
            OPAQUE(scale);
            __m256 m = _mm256_mul_ps(scale, scale);
            OPAQUE(m);
            __m256 f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), m, scale);
            f = _mm256_fmadd_ps(scale, scale, f);
            OPAQUE(f);
        }
    }
    return (int64_t)iterations * ROWS * 16 * 64;
}
