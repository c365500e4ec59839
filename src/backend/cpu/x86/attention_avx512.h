/* What the AVX-512 and AMX variants of attention share: a block's softmax, and the factors of the fold.
 * Static inline only. Contract and order: ops/attention.h. */
#ifndef VB_X86_ATTENTION_AVX512_H
#define VB_X86_ATTENTION_AVX512_H
#include "backend/cpu/x86/attention_lanes.h"
#include "backend/cpu/x86/vmath_avx512.h"

/* exp of x <= 0, or of a NaN: the operations of vb__exp_avx512 less those that are for larger x. A NaN goes
 * through the polynomial, and bits 0..8 of t, all that is added to its exponent, are 0. */
static inline __m512 attn_exp(__m512 x) {
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
    return _mm512_castsi512_ps(
        _mm512_maskz_add_epi32(_mm512_cmp_ps_mask(x, _mm512_set1_ps(VB_EXP_LO), _CMP_NLT_UQ),
                               _mm512_castps_si512(p), _mm512_slli_epi32(_mm512_castps_si512(t), 23)));
}

/* Rounds p to bf16, in the high halves; the low ones are left as they come out. p is 0, normal and at most 1,
 * or a NaN, which the addition cannot carry out of: all NaN here are a canonical one from q or the
 * processor's own, with a mantissa of one bit. */
static inline __m512i attn_round_p(__m512 p) {
    __m512i u = _mm512_castps_si512(p);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
}

/* One lane: dots s[0..63] to p (bf16 in the high halves), +0 where not seen; returns m_b. */
static inline float attn_softmax_lane(const float *s, float scale, uint64_t seen, __m512i p[4]) {
    __m512 c = _mm512_set1_ps(scale), x[4];
    __m512 m = _mm512_set1_ps(-__builtin_inff());
    for (int32_t i = 0; i < 4; i++) {
        x[i] = _mm512_mul_ps(_mm512_load_ps(s + 16 * i), c);
        /* max(x, m) is m when x is a NaN */
        m = _mm512_mask_max_ps(m, (__mmask16)(seen >> (16 * i)), x[i], m);
    }
    float mb = _mm512_reduce_max_ps(m);
    __m512 v = _mm512_set1_ps(mb);
    for (int32_t i = 0; i < 4; i++)
        p[i] = _mm512_maskz_mov_epi32((__mmask16)(seen >> (16 * i)),
                                      attn_round_p(attn_exp(_mm512_sub_ps(x[i], v))));
    return mb;
}

/* The fold's factors, and m and l of the partial. first: the partial's first block, m and l are set.
 * A lane that saw nothing before has m = -inf, l = 0 (and o = 0): the formula then gives alpha 0, beta 1,
 * which is the copy that the contract asks for. A lane that sees nothing in this block keeps all it has. */
static inline void attn_fold_factors(attn_lanes *s, int32_t lanes, float *m, float *l, bool first) {
    for (int32_t i = 0; i < lanes; i += 16) {
        __mmask16 see = 0;
        for (int32_t j = 0; j < 16 && i + j < lanes; j++) see |= (__mmask16)((s->seen[i + j] != 0) << j);
        __m512 mb = _mm512_load_ps(s->mb + i), lb = _mm512_load_ps(s->lb + i);
        if (first) {
            _mm512_store_ps(m + i, _mm512_mask_mov_ps(_mm512_set1_ps(-__builtin_inff()), see, mb));
            _mm512_store_ps(l + i, _mm512_maskz_mov_ps(see, lb));
            continue;
        }
        __m512 mo = _mm512_load_ps(m + i), lo = _mm512_load_ps(l + i);
        __m512 big = _mm512_mask_max_ps(mo, see, mb, mo);
        __m512 alpha = vb__exp_avx512(_mm512_sub_ps(mo, big)), beta = vb__exp_avx512(_mm512_sub_ps(mb, big));
        alpha = _mm512_mask_mov_ps(_mm512_set1_ps(1.0f), see, alpha);
        beta = _mm512_maskz_mov_ps(see, beta);
        _mm512_store_ps(s->alpha + i, alpha);
        _mm512_store_ps(s->beta + i, beta);
        _mm512_store_ps(m + i, big);
        _mm512_store_ps(l + i,
                        _mm512_mask_mov_ps(lo, see, _mm512_fmadd_ps(lo, alpha, _mm512_mul_ps(lb, beta))));
    }
}

/* to_bf16 of 16 values, in the high halves. */
static inline __m512i attn_to_bf16(__m512 x) {
    __m512i u = _mm512_castps_si512(x), sign = _mm512_set1_epi32((int32_t)0x80000000);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    r = _mm512_and_si512(r, _mm512_set1_epi32((int32_t)0xffff0000));
    __mmask16 tiny = _mm512_testn_epi32_mask(u, _mm512_set1_epi32(0x7f800000));
    r = _mm512_mask_and_epi32(r, tiny, u, sign);
    return _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), _mm512_set1_epi32(0x7fc00000));
}

#endif
