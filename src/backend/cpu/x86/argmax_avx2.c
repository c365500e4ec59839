/* argmax, AVX2. Contract: ops/argmax.h. As the AVX-512 form: every lane keeps its own two largest, lanes are folded
 * at the end. */
#include "backend/ops/argmax.h"
#include "backend/cpu/x86/lanes_avx2.h"

typedef struct lanes {
    __m256 best, second, bad;
    __m256i at;
} lanes;

static inline lanes look(lanes l, __m256 v, __m256i here) {
    __m256 more = _mm256_cmp_ps(v, l.best, _CMP_GT_OQ);
    /* Of a NaN, min and max return their second operand: it becomes the minimum, and then stays out. */
    l.second = _mm256_max_ps(_mm256_min_ps(l.best, v), l.second);
    l.best = _mm256_blendv_ps(l.best, v, more);
    l.at = _mm256_blendv_epi8(l.at, here, _mm256_castps_si256(more));
    /* v - v is 0 for a finite v, else a NaN */
    __m256 d = _mm256_sub_ps(v, v);
    l.bad = _mm256_or_ps(l.bad, _mm256_cmp_ps(d, d, _CMP_UNORD_Q));
    return l;
}

void vb__argmax_avx2(VB_ARGMAX_ARGS) {
    const __m256 none = _mm256_set1_ps(-__builtin_inff());
    lanes a = {none, none, _mm256_setzero_ps(), _mm256_setzero_si256()}, b = a;
    __m256i here = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), eight = _mm256_set1_epi32(8);
    int32_t i = 0;
    for (; i <= n - 16; i += 16) {
        _mm_prefetch((const char *)(x + i + 768), _MM_HINT_T0); /* the hardware's own prefetch ends at each 4 KiB page */
        __m256i next = _mm256_add_epi32(here, eight);
        a = look(a, _mm256_loadu_ps(x + i), here);
        b = look(b, _mm256_loadu_ps(x + i + 8), next);
        here = _mm256_add_epi32(next, eight);
    }
    float value[16], second[16];
    int32_t index[16];
    _mm256_storeu_ps(value, a.best);
    _mm256_storeu_ps(value + 8, b.best);
    _mm256_storeu_ps(second, a.second);
    _mm256_storeu_ps(second + 8, b.second);
    _mm256_storeu_si256((__m256i *)(void *)index, a.at);
    _mm256_storeu_si256((__m256i *)(void *)(index + 8), b.at);
    vb__best all = VB_BEST_NONE;
    all.finite = _mm256_movemask_ps(_mm256_or_ps(a.bad, b.bad)) == 0;
    for (int32_t j = 0; j < 16; j++) vb__best_fold(&all, &(vb__best){value[j], second[j], index[j], 1}, 0);
    vb__best rest;
    if (i < n) {
        vb__argmax_ref(x + i, n - i, &rest);
        vb__best_fold(&all, &rest, i);
    }
    *best = all;
}
