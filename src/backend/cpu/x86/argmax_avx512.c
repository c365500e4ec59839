/* argmax, AVX-512. Contract: ops/argmax.h. Every lane keeps its own two largest and the lowest index of the first; lanes
 * are folded at the end. Two accumulators hide the latency of the blend. */
#include "backend/ops/argmax.h"
#include "backend/cpu/x86/lanes_avx512.h"

enum { NOT_FINITE = 0x01 | 0x08 | 0x10 | 0x80 }; /* fpclass: quiet NaN, +inf, -inf, signalling NaN */

void vb__argmax_avx512(VB_ARGMAX_ARGS) {
    __m512 minus_inf = _mm512_set1_ps(-__builtin_inff());
    __m512 b0 = minus_inf, b1 = minus_inf, s0 = minus_inf, s1 = minus_inf;
    __m512i at0 = _mm512_setzero_si512(), at1 = at0;
    __m512i here = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __mmask16 bad = 0;
    for (int32_t i = 0; i < n; i += 32) {
        /* Rows of logits are megabytes, and the hardware's own prefetch ends at each 4 KiB page. */
        _mm_prefetch(x + i + 768, _MM_HINT_T0);
        _mm_prefetch(x + i + 784, _MM_HINT_T0);
        __m512 v0 = _mm512_mask_loadu_ps(minus_inf, vb__mask16(n - i), x + i);
        __m512 v1 = _mm512_mask_loadu_ps(minus_inf, vb__mask16((int64_t)n - i - 16), x + i + 16);
        bad |= _mm512_mask_fpclass_ps_mask(vb__mask16(n - i), v0, NOT_FINITE);
        bad |= _mm512_mask_fpclass_ps_mask(vb__mask16((int64_t)n - i - 16), v1, NOT_FINITE);
        __mmask16 m0 = _mm512_cmp_ps_mask(v0, b0, _CMP_GT_OQ), m1 = _mm512_cmp_ps_mask(v1, b1, _CMP_GT_OQ);
        /* Of a NaN, min and max return their second operand: it becomes the minimum, and then stays out. */
        s0 = _mm512_max_ps(_mm512_min_ps(b0, v0), s0);
        s1 = _mm512_max_ps(_mm512_min_ps(b1, v1), s1);
        b0 = _mm512_mask_mov_ps(b0, m0, v0);
        b1 = _mm512_mask_mov_ps(b1, m1, v1);
        at0 = _mm512_mask_mov_epi32(at0, m0, here);
        at1 = _mm512_mask_mov_epi32(at1, m1, _mm512_add_epi32(here, _mm512_set1_epi32(16)));
        here = _mm512_add_epi32(here, _mm512_set1_epi32(32));
    }
    float value[32], second[32];
    int32_t index[32];
    _mm512_storeu_ps(value, b0);
    _mm512_storeu_ps(value + 16, b1);
    _mm512_storeu_ps(second, s0);
    _mm512_storeu_ps(second + 16, s1);
    _mm512_storeu_si512(index, at0);
    _mm512_storeu_si512(index + 16, at1);
    vb__best all = VB_BEST_NONE;
    all.finite = bad == 0;
    for (int32_t i = 0; i < 32; i++) vb__best_fold(&all, &(vb__best){value[i], second[i], index[i], 1}, 0);
    *best = all;
}
