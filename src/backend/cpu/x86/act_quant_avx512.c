/* act_quant, AVX-512. Contract: ops/act_quant.h. */
#include "backend/ops/act_quant.h"
#include <immintrin.h>

/* One activation group of `vectors` x 16 elements. */
static inline __attribute__((always_inline)) void group(int vectors, int planes, int seg, const float *x, int8_t *a,
                                                        int64_t plane, float *dd, int32_t *sums, int32_t nb) {
    const float limit = planes == 2 ? 32512.0f : 127.0f;
    __m512 v[4];
    __m512i largest = _mm512_setzero_si512(), q[4];
    for (int i = 0; i < vectors; i++) {
        v[i] = _mm512_loadu_ps(x + 16 * i);
        largest = _mm512_max_epu32(largest,
                                   _mm512_and_si512(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff)));
    }
    uint32_t bits = _mm512_reduce_max_epu32(largest);
    float d = 0.0f;
    if (bits >= 0x7f800000u || bits < 0x1f800000u /* 2^-64 */) {
        if (bits >= 0x7f800000u) d = __builtin_nanf("");
        for (int i = 0; i < vectors; i++) q[i] = _mm512_setzero_si512();
    } else {
        float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits)));
        d = amax / limit;
        __m512 id = _mm512_set1_ps(limit / amax);
        for (int i = 0; i < vectors; i++) q[i] = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], id));
    }
    for (int i = 0; i < vectors; i++) {
        __m128i low = _mm512_cvtepi32_epi8(q[i]);
        if (planes == 1) {
            _mm_storeu_si128((__m128i *)(void *)(a + 16 * i), low);
            continue;
        }
        __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(q[i], _mm512_cvtepi8_epi32(low)), 8);
        _mm_storeu_si128((__m128i *)(void *)(a + 16 * i), _mm512_cvtepi32_epi8(high));
        _mm_storeu_si128((__m128i *)(void *)(a + plane + 16 * i), low);
    }
    int per = seg / 16;
    for (int s = 0; s < vectors; s += per) {
        __m512i t = q[s];
        for (int i = 1; i < per; i++) t = _mm512_add_epi32(t, q[s + i]);
        int32_t sum = _mm512_reduce_add_epi32(t);
        dd[0] = d;
        dd[nb] = d * (float)sum;
        *sums = sum;
        dd += 2 * nb;
        sums += nb;
    }
}

void vb__act_quant_avx512(VB_ACT_QUANT_ARGS) {
    for (int32_t r = r0; r < r1; r++) {
        int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(q->rows, base), i = r - base;
        int8_t *a = vb__qact_block(q, base) + i * q->width;
        float *dd = vb__qact_dd(q, base) + i;
        int32_t *sums = vb__qact_sums(q, base) + i;
        int64_t plane = (int64_t)nb * q->width;
        const float *row = x + r * xs;
        for (int32_t k = 0; k < q->k; k += q->width) {
            if (q->width == 64 && q->planes == 1) group(4, 1, 64, row + k, a, plane, dd, sums, nb);
            else if (q->width == 64) group(4, 2, 64, row + k, a, plane, dd, sums, nb);
            else if (q->planes == 1) group(2, 1, q->seg, row + k, a, plane, dd, sums, nb);
            else group(2, 2, q->seg, row + k, a, plane, dd, sums, nb);
            a += plane * q->planes;
            dd += q->width / q->seg * 2 * nb;
            sums += q->width / q->seg * nb;
        }
    }
}
