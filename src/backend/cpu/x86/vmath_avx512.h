/* base/vmath.h, sixteen lanes. The same operations in the same order, hence the same bits. Static inline
 * only; include it from files compiled with -mavx512f -mavx512dq -mfma. */
#ifndef VB_X86_VMATH_AVX512_H
#define VB_X86_VMATH_AVX512_H
#include "base/vmath.h"
#include <immintrin.h>

static inline __m512 vb__exp_avx512(__m512 x) {
    __m512 magic = _mm512_set1_ps(VB_EXP_MAGIC);
    __m512 t = _mm512_fmadd_ps(x, _mm512_set1_ps(VB_LOG2E), magic);
    __m512 n = _mm512_sub_ps(t, magic);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(VB_LN2_HI), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(VB_LN2_LO), r);
    __m512 q = _mm512_fmadd_ps(_mm512_set1_ps(VB_EXP_C6), r, _mm512_set1_ps(VB_EXP_C5));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(VB_EXP_C4));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(VB_EXP_C3));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(VB_EXP_C2));
    __m512 p = _mm512_fmadd_ps(_mm512_mul_ps(r, r), q, r);
    p = _mm512_add_ps(p, _mm512_set1_ps(1.0f));
    __m512i y = _mm512_maskz_add_epi32(_mm512_cmp_ps_mask(x, _mm512_set1_ps(VB_EXP_LO), _CMP_GE_OQ),
                                       _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23));
    __m512 v = _mm512_mask_mov_ps(_mm512_castsi512_ps(y),
                                  _mm512_cmp_ps_mask(x, _mm512_set1_ps(VB_EXP_HI), _CMP_GT_OQ),
                                  _mm512_set1_ps(__builtin_inff()));
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), x);
}

static inline __m512 vb__log_core_avx512(__m512 f, __m512 e) {
    __m512 z = _mm512_mul_ps(f, f);
    __m512 p = _mm512_fmadd_ps(_mm512_set1_ps(VB_LOG_C7), f, _mm512_set1_ps(VB_LOG_C6));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(VB_LOG_C5));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(VB_LOG_C4));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(VB_LOG_C3));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(VB_LOG_C2));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(VB_LOG_C1));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(VB_LOG_C0));
    __m512 y = _mm512_mul_ps(p, _mm512_mul_ps(z, f));
    y = _mm512_fmadd_ps(e, _mm512_set1_ps(VB_LN2_LO), y);
    y = _mm512_fmadd_ps(_mm512_set1_ps(-0.5f), z, y);
    y = _mm512_add_ps(y, f);
    return _mm512_fmadd_ps(e, _mm512_set1_ps(VB_LN2_HI), y);
}

static inline __m512 vb__log_avx512(__m512 x) {
    __m512i u = _mm512_castps_si512(x);
    __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(u, _mm512_set1_epi32(VB_SQRT_HALF_BITS)), 23);
    __m512 m = _mm512_castsi512_ps(_mm512_sub_epi32(u, _mm512_slli_epi32(e, 23)));
    __m512 v = vb__log_core_avx512(_mm512_sub_ps(m, _mm512_set1_ps(1.0f)), _mm512_cvtepi32_ps(e));
    v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, _mm512_set1_ps(__builtin_inff()), _CMP_EQ_OQ), x);
    v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, _mm512_set1_ps(VB_F32_MIN), _CMP_LT_OQ),
                           _mm512_set1_ps(-__builtin_inff()));
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, _mm512_set1_ps(-VB_F32_MIN), _CMP_NGT_UQ),
                              _mm512_set1_ps(__builtin_nanf("")));
}

static inline __m512 vb__log1p_avx512(__m512 x) {
    __m512 one = _mm512_set1_ps(1.0f);
    __m512 u = _mm512_add_ps(one, x);
    __m512 t = _mm512_sub_ps(u, one);
    __m512 lost = _mm512_add_ps(_mm512_sub_ps(one, _mm512_sub_ps(u, t)), _mm512_sub_ps(x, t));
    __m512i b = _mm512_castps_si512(u);
    __m512i e = _mm512_srai_epi32(_mm512_sub_epi32(b, _mm512_set1_epi32(VB_SQRT_HALF_BITS)), 23);
    __m512 m = _mm512_castsi512_ps(_mm512_sub_epi32(b, _mm512_slli_epi32(e, 23)));
    __m512i s = _mm512_min_epi32(e, _mm512_set1_epi32(126));
    __m512 scale = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(_mm512_set1_epi32(127), s), 23));
    __m512 f = _mm512_fmadd_ps(lost, scale, _mm512_sub_ps(m, one));
    __m512 v = vb__log_core_avx512(f, _mm512_cvtepi32_ps(e));
    __m512 inf = _mm512_set1_ps(__builtin_inff()), minus = _mm512_set1_ps(-1.0f);
    v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, inf, _CMP_EQ_OQ), inf);
    v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, minus, _CMP_EQ_OQ), _mm512_set1_ps(-__builtin_inff()));
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, minus, _CMP_NGE_UQ),
                              _mm512_set1_ps(__builtin_nanf("")));
}

static inline __m512 vb__neg_avx512(__m512 x) {
    return _mm512_xor_ps(x, _mm512_set1_ps(-0.0f));
}

static inline __m512 vb__sigmoid_avx512(__m512 x) {
    __m512 one = _mm512_set1_ps(1.0f);
    return _mm512_div_ps(one, _mm512_add_ps(one, vb__exp_avx512(vb__neg_avx512(x))));
}

/* silu of up to four vectors in place, step by step, so that their chains of operations lie side by side. The sequence of
 * vb__siluf less what the division makes needless: below the lowest argument of exp, 1 + exp is 1 whatever a small exp is; above
 * the highest, scalef overflows to the infinity asked for; a NaN x divides to a NaN. So x, brought within +-100 by one operation,
 * needs no comparison. -x is never formed: its sign goes into the products. */
__attribute__((always_inline)) static inline void vb__silus_avx512(__m512 *x, const int32_t vectors) {
    const __m512 magic = _mm512_set1_ps(VB_EXP_MAGIC), one = _mm512_set1_ps(1.0f);
    __m512 c[4], n[4], r[4], q[4];
#define EACH _Pragma("GCC unroll 4") for (int32_t i = 0; i < vectors; i++)
    EACH c[i] = _mm512_range_ps(x[i], _mm512_set1_ps(100.0f), 2); /* the smaller magnitude, the sign of x */
    EACH n[i] = _mm512_fnmadd_ps(c[i], _mm512_set1_ps(VB_LOG2E), magic);
    EACH n[i] = _mm512_sub_ps(n[i], magic);
    EACH r[i] = _mm512_fnmsub_ps(n[i], _mm512_set1_ps(VB_LN2_HI), c[i]);
    EACH r[i] = _mm512_fnmadd_ps(n[i], _mm512_set1_ps(VB_LN2_LO), r[i]);
    EACH q[i] = _mm512_fmadd_ps(_mm512_set1_ps(VB_EXP_C6), r[i], _mm512_set1_ps(VB_EXP_C5));
    EACH c[i] = _mm512_mul_ps(r[i], r[i]);
    EACH q[i] = _mm512_fmadd_ps(q[i], r[i], _mm512_set1_ps(VB_EXP_C4));
    EACH q[i] = _mm512_fmadd_ps(q[i], r[i], _mm512_set1_ps(VB_EXP_C3));
    EACH q[i] = _mm512_fmadd_ps(q[i], r[i], _mm512_set1_ps(VB_EXP_C2));
    EACH q[i] = _mm512_fmadd_ps(c[i], q[i], r[i]);
    EACH q[i] = _mm512_add_ps(q[i], one);
    EACH q[i] = _mm512_scalef_ps(q[i], n[i]);
    EACH q[i] = _mm512_add_ps(one, q[i]);
    EACH x[i] = _mm512_div_ps(x[i], q[i]);
#undef EACH
}

static inline __m512 vb__silu_avx512(__m512 x) {
    vb__silus_avx512(&x, 1);
    return x;
}

static inline __m512 vb__softplus_avx512(__m512 x) {
    __m512 v = vb__log1p_avx512(vb__exp_avx512(x));
    return _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(x, _mm512_set1_ps(20.0f), _CMP_GT_OQ), x);
}

#endif
