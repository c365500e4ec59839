/* act_quant, AVX2. Contract: ops/act_quant.h. */
#include "backend/ops/act_quant.h"
#include <immintrin.h>

static inline uint32_t reduce_max(__m256i v) {
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}
static inline int32_t reduce_add(__m256i v) {
    __m128i m = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_add_epi32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtsi128_si32(m);
}
/* 4 x 8 int32 that fit int8, to 32 bytes in order. */
static inline void store32(int8_t *to, const __m256i *q) {
    __m256i v = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    v = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)to, v);
}

/* One activation group of `vectors` x 8 elements. */
static inline __attribute__((always_inline)) void group(int vectors, int planes, int seg, const float *x, int8_t *a,
                                                        int64_t plane, float *dd, int32_t *sums, int32_t nb) {
    const float limit = planes == 2 ? 32512.0f : 127.0f;
    __m256 v[8];
    __m256i largest = _mm256_setzero_si256(), q[8];
    for (int i = 0; i < vectors; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        largest = _mm256_max_epu32(largest,
                                   _mm256_and_si256(_mm256_castps_si256(v[i]), _mm256_set1_epi32(0x7fffffff)));
    }
    uint32_t bits = reduce_max(largest);
    float d = 0.0f;
    if (bits >= 0x7f800000u || bits < 0x1f800000u /* 2^-64 */) {
        if (bits >= 0x7f800000u) d = __builtin_nanf("");
        for (int i = 0; i < vectors; i++) q[i] = _mm256_setzero_si256();
    } else {
        float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits)));
        d = amax / limit;
        __m256 id = _mm256_set1_ps(limit / amax);
        for (int i = 0; i < vectors; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], id));
    }
    for (int i = 0; i < vectors; i += 4) {
        if (planes == 1) {
            store32(a + 8 * i, q + i);
            continue;
        }
        __m256i low[4], high[4];
        for (int j = 0; j < 4; j++) {
            low[j] = _mm256_srai_epi32(_mm256_slli_epi32(q[i + j], 24), 24);
            high[j] = _mm256_srai_epi32(_mm256_sub_epi32(q[i + j], low[j]), 8);
        }
        store32(a + 8 * i, high);
        store32(a + plane + 8 * i, low);
    }
    int per = seg / 8;
    for (int s = 0; s < vectors; s += per) {
        __m256i t = q[s];
        for (int i = 1; i < per; i++) t = _mm256_add_epi32(t, q[s + i]);
        int32_t sum = reduce_add(t);
        dd[0] = d;
        dd[nb] = d * (float)sum;
        *sums = sum;
        dd += 2 * nb;
        sums += nb;
    }
}

void vb__act_quant_avx2(VB_ACT_QUANT_ARGS) {
    for (int32_t r = r0; r < r1; r++) {
        int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(q->rows, base), i = r - base;
        int8_t *a = vb__qact_block(q, base) + i * q->width;
        float *dd = vb__qact_dd(q, base) + i;
        int32_t *sums = vb__qact_sums(q, base) + i;
        int64_t plane = (int64_t)nb * q->width;
        const float *row = x + r * xs;
        for (int32_t k = 0; k < q->k; k += q->width) {
            if (q->width == 64 && q->planes == 1) group(8, 1, 64, row + k, a, plane, dd, sums, nb);
            else if (q->width == 64) group(8, 2, 64, row + k, a, plane, dd, sums, nb);
            else if (q->planes == 1) group(4, 1, q->seg, row + k, a, plane, dd, sums, nb);
            else group(4, 2, q->seg, row + k, a, plane, dd, sums, nb);
            a += plane * q->planes;
            dd += q->width / q->seg * 2 * nb;
            sums += q->width / q->seg * nb;
        }
    }
}
