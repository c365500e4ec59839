/* Limits of the AVX2 level: cpu/limits_measure.h. */
#include "backend/cpu/limits_measure.h"
#include <immintrin.h>

#define OPAQUE(x) __asm__ volatile("" : "+x"(x))

int64_t vb__contract_loop_avx2(int32_t iterations) {
    enum { ROWS = 4 };
    __m256i codes = _mm256_set1_epi8(3), a = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
    __m256 scale = _mm256_set1_ps(0.5f);
    OPAQUE(codes);
    OPAQUE(a);
    OPAQUE(ones);
    OPAQUE(scale);
    for (int32_t i = 0; i < iterations; i++)
        for (int h = 0; h < 2; h++) { /* 8 outputs of 4 rows each */
            __m256i wide[ROWS];
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) { /* int16 sums hold 32 products */
                __m256i sum[ROWS];
#pragma GCC unroll 8
                for (int k = 0; k < 8; k++) {
                    OPAQUE(a); /* or one product would serve all */
#pragma GCC unroll 4
                    for (int r = 0; r < ROWS; r++) {
                        __m256i t = _mm256_maddubs_epi16(codes, a);
                        OPAQUE(t);
                        sum[r] = k == 0 ? t : _mm256_add_epi16(sum[r], t);
                        OPAQUE(sum[r]);
                        OPAQUE(a);
                    }
                }
#pragma GCC unroll 4
                for (int r = 0; r < ROWS; r++) {
                    __m256i t = _mm256_madd_epi16(sum[r], ones);
                    wide[r] = half == 0 ? t : _mm256_add_epi32(wide[r], t);
                    OPAQUE(wide[r]);
                }
            }
#pragma GCC unroll 4
            for (int r = 0; r < ROWS; r++) {
                OPAQUE(scale);
                __m256 m = _mm256_mul_ps(scale, scale);
                OPAQUE(m);
                __m256 f = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide[r]), m, scale);
                f = _mm256_fmadd_ps(scale, scale, f);
                OPAQUE(f);
            }
        }
    return (int64_t)iterations * ROWS * 16 * 64;
}

uint64_t vb__read_loop_avx2(const uint8_t *p, int64_t bytes) {
    __m256i s[4];
    for (int j = 0; j < 4; j++) s[j] = _mm256_setzero_si256();
    for (int64_t i = 0; i < bytes; i += 128) {
        _mm_prefetch(p + i + 4096, _MM_HINT_T0);
        _mm_prefetch(p + i + 4160, _MM_HINT_T0);
        for (int j = 0; j < 4; j++)
            s[j] = _mm256_add_epi64(s[j], _mm256_loadu_si256((const __m256i *)(const void *)(p + i + 32 * j)));
    }
    s[0] = _mm256_add_epi64(_mm256_add_epi64(s[0], s[1]), _mm256_add_epi64(s[2], s[3]));
    uint64_t out[4];
    _mm256_storeu_si256((__m256i *)(void *)out, s[0]);
    return out[0] + out[1] + out[2] + out[3];
}
