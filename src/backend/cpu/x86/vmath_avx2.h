/* base/vmath.h, eight lanes. The same operations in the same order, hence the same bits. Static inline only;
 * include it from files compiled with -mavx2 -mfma. */
#ifndef VB_X86_VMATH_AVX2_H
#define VB_X86_VMATH_AVX2_H
#include "base/vmath.h"
#include <immintrin.h>

static inline __m256 vb__exp_avx2(__m256 x) {
    __m256 magic = _mm256_set1_ps(VB_EXP_MAGIC);
    __m256 t = _mm256_fmadd_ps(x, _mm256_set1_ps(VB_LOG2E), magic);
    __m256 n = _mm256_sub_ps(t, magic);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(VB_LN2_HI), x);
    r = _mm256_fnmadd_ps(n, _mm256_set1_ps(VB_LN2_LO), r);
    __m256 q = _mm256_fmadd_ps(_mm256_set1_ps(VB_EXP_C6), r, _mm256_set1_ps(VB_EXP_C5));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(VB_EXP_C4));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(VB_EXP_C3));
    q = _mm256_fmadd_ps(q, r, _mm256_set1_ps(VB_EXP_C2));
    __m256 p = _mm256_fmadd_ps(_mm256_mul_ps(r, r), q, r);
    p = _mm256_add_ps(p, _mm256_set1_ps(1.0f));
    __m256i y = _mm256_add_epi32(_mm256_castps_si256(p), _mm256_slli_epi32(_mm256_castps_si256(t), 23));
    __m256 v = _mm256_and_ps(_mm256_castsi256_ps(y), _mm256_cmp_ps(x, _mm256_set1_ps(VB_EXP_LO), _CMP_GE_OQ));
    v = _mm256_blendv_ps(v, _mm256_set1_ps(__builtin_inff()),
                         _mm256_cmp_ps(x, _mm256_set1_ps(VB_EXP_HI), _CMP_GT_OQ));
    return _mm256_blendv_ps(v, x, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline __m256 vb__log_core_avx2(__m256 f, __m256 e) {
    __m256 z = _mm256_mul_ps(f, f);
    __m256 p = _mm256_fmadd_ps(_mm256_set1_ps(VB_LOG_C7), f, _mm256_set1_ps(VB_LOG_C6));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(VB_LOG_C5));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(VB_LOG_C4));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(VB_LOG_C3));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(VB_LOG_C2));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(VB_LOG_C1));
    p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(VB_LOG_C0));
    __m256 y = _mm256_mul_ps(p, _mm256_mul_ps(z, f));
    y = _mm256_fmadd_ps(e, _mm256_set1_ps(VB_LN2_LO), y);
    y = _mm256_fmadd_ps(_mm256_set1_ps(-0.5f), z, y);
    y = _mm256_add_ps(y, f);
    return _mm256_fmadd_ps(e, _mm256_set1_ps(VB_LN2_HI), y);
}

static inline __m256 vb__log_avx2(__m256 x) {
    __m256i u = _mm256_castps_si256(x);
    __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(u, _mm256_set1_epi32(VB_SQRT_HALF_BITS)), 23);
    __m256 m = _mm256_castsi256_ps(_mm256_sub_epi32(u, _mm256_slli_epi32(e, 23)));
    __m256 v = vb__log_core_avx2(_mm256_sub_ps(m, _mm256_set1_ps(1.0f)), _mm256_cvtepi32_ps(e));
    __m256 inf = _mm256_set1_ps(__builtin_inff());
    v = _mm256_blendv_ps(v, x, _mm256_cmp_ps(x, inf, _CMP_EQ_OQ));
    v = _mm256_blendv_ps(v, _mm256_set1_ps(-__builtin_inff()),
                         _mm256_cmp_ps(x, _mm256_set1_ps(VB_F32_MIN), _CMP_LT_OQ));
    /* NaN where x <= -2^-126 or x is a NaN: all bits set is one */
    return _mm256_or_ps(v, _mm256_cmp_ps(x, _mm256_set1_ps(-VB_F32_MIN), _CMP_NGT_UQ));
}

static inline __m256 vb__log1p_avx2(__m256 x) {
    __m256 one = _mm256_set1_ps(1.0f);
    __m256 u = _mm256_add_ps(one, x);
    __m256 t = _mm256_sub_ps(u, one);
    __m256 lost = _mm256_add_ps(_mm256_sub_ps(one, _mm256_sub_ps(u, t)), _mm256_sub_ps(x, t));
    __m256i b = _mm256_castps_si256(u);
    __m256i e = _mm256_srai_epi32(_mm256_sub_epi32(b, _mm256_set1_epi32(VB_SQRT_HALF_BITS)), 23);
    __m256 m = _mm256_castsi256_ps(_mm256_sub_epi32(b, _mm256_slli_epi32(e, 23)));
    __m256i s = _mm256_min_epi32(e, _mm256_set1_epi32(126));
    __m256 scale = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(127), s), 23));
    __m256 f = _mm256_fmadd_ps(lost, scale, _mm256_sub_ps(m, one));
    __m256 v = vb__log_core_avx2(f, _mm256_cvtepi32_ps(e));
    __m256 inf = _mm256_set1_ps(__builtin_inff()), minus = _mm256_set1_ps(-1.0f);
    v = _mm256_blendv_ps(v, inf, _mm256_cmp_ps(x, inf, _CMP_EQ_OQ));
    v = _mm256_blendv_ps(v, _mm256_set1_ps(-__builtin_inff()), _mm256_cmp_ps(x, minus, _CMP_EQ_OQ));
    return _mm256_or_ps(v, _mm256_cmp_ps(x, minus, _CMP_NGE_UQ));
}

static inline __m256 vb__neg_avx2(__m256 x) {
    return _mm256_xor_ps(x, _mm256_set1_ps(-0.0f));
}

static inline __m256 vb__sigmoid_avx2(__m256 x) {
    __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, vb__exp_avx2(vb__neg_avx2(x))));
}

/* silu of up to four vectors in place, step by step, so that their chains of operations lie side by side. The sequence of
 * vb__siluf less what the division makes needless: below the lowest argument of exp, 1 + exp is 1 whatever a small exp is; above
 * the highest, the bits of p * 2^128 with p >= 1 are those of infinity or, as an integer, above; a NaN x divides to a NaN. So x is
 * brought within [-89, 87] and nothing is compared. -x is never formed: its sign goes into the products. */
__attribute__((always_inline)) static inline void vb__silus_avx2(__m256 *x, const int32_t vectors) {
    const __m256 magic = _mm256_set1_ps(VB_EXP_MAGIC), one = _mm256_set1_ps(1.0f);
    const __m256i inf = _mm256_set1_epi32(0x7f800000);
    __m256 c[4], t[4], n[4], r[4], q[4];
    __m256i y[4];
#define EACH _Pragma("GCC unroll 4") for (int32_t i = 0; i < vectors; i++)
    EACH c[i] = _mm256_max_ps(x[i], _mm256_set1_ps(-89.0f));
    EACH c[i] = _mm256_min_ps(c[i], _mm256_set1_ps(87.0f));
    EACH t[i] = _mm256_fnmadd_ps(c[i], _mm256_set1_ps(VB_LOG2E), magic);
    EACH n[i] = _mm256_sub_ps(t[i], magic);
    EACH r[i] = _mm256_fnmsub_ps(n[i], _mm256_set1_ps(VB_LN2_HI), c[i]);
    EACH r[i] = _mm256_fnmadd_ps(n[i], _mm256_set1_ps(VB_LN2_LO), r[i]);
    EACH q[i] = _mm256_fmadd_ps(_mm256_set1_ps(VB_EXP_C6), r[i], _mm256_set1_ps(VB_EXP_C5));
    EACH y[i] = _mm256_slli_epi32(_mm256_castps_si256(t[i]), 23);
    EACH c[i] = _mm256_mul_ps(r[i], r[i]);
    EACH q[i] = _mm256_fmadd_ps(q[i], r[i], _mm256_set1_ps(VB_EXP_C4));
    EACH q[i] = _mm256_fmadd_ps(q[i], r[i], _mm256_set1_ps(VB_EXP_C3));
    EACH q[i] = _mm256_fmadd_ps(q[i], r[i], _mm256_set1_ps(VB_EXP_C2));
    EACH q[i] = _mm256_fmadd_ps(c[i], q[i], r[i]);
    EACH q[i] = _mm256_add_ps(q[i], one);
    EACH y[i] = _mm256_min_epi32(_mm256_add_epi32(_mm256_castps_si256(q[i]), y[i]), inf);
    EACH q[i] = _mm256_add_ps(one, _mm256_castsi256_ps(y[i]));
    EACH x[i] = _mm256_div_ps(x[i], q[i]);
#undef EACH
}

static inline __m256 vb__silu_avx2(__m256 x) {
    vb__silus_avx2(&x, 1);
    return x;
}

static inline __m256 vb__softplus_avx2(__m256 x) {
    __m256 v = vb__log1p_avx2(vb__exp_avx2(x));
    return _mm256_blendv_ps(v, x, _mm256_cmp_ps(x, _mm256_set1_ps(20.0f), _CMP_GT_OQ));
}

#endif
