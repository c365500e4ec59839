/* What the AVX-512 and AMX variants of attention share: a block's softmax, and the factors of the fold.
 * Static inline only. Contract and order: ops/attention.h. */
#ifndef VB_X86_ATTENTION_AVX512_H
#define VB_X86_ATTENTION_AVX512_H
#include "backend/cpu/x86/attention_lanes.h"
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/vmath_avx512.h"

enum { ATTN_SS = 64 + 16 /* floats of a lane's scores */ };

/* ---- softmax of a block: the largest score of every lane, then p lane by lane ---- */

/* Element i: the largest dot of keys i, i+16, .. that are seen and not a NaN (max(x, m) is m when x is one). */
static inline __m512 attn_max_lane(const float *s, uint64_t seen) {
    __m512 m = _mm512_set1_ps(-__builtin_inff());
    if (seen == ~0ull) {
        for (int32_t i = 0; i < 4; i++) m = _mm512_max_ps(_mm512_load_ps(s + 16 * i), m);
        return m;
    }
    for (int32_t i = 0; i < 4; i++)
        m = _mm512_mask_max_ps(m, (__mmask16)(seen >> (16 * i)), _mm512_load_ps(s + 16 * i), m);
    return m;
}

/* Element 4i + j of the result: the largest of m[i + 4j]. */
static inline __m512 attn_max_tree(const __m512 m[16]) {
    __m512 a[8], b[4], c[2];
    for (int32_t i = 0; i < 8; i++)
        a[i] = _mm512_max_ps(_mm512_unpacklo_ps(m[i], m[i + 8]), _mm512_unpackhi_ps(m[i], m[i + 8]));
    for (int32_t i = 0; i < 4; i++)
        b[i] = _mm512_max_ps(_mm512_unpacklo_ps(a[i], a[i + 4]), _mm512_unpackhi_ps(a[i], a[i + 4]));
    for (int32_t i = 0; i < 2; i++)
        c[i] = _mm512_max_ps(_mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0x88),
                             _mm512_shuffle_f32x4(b[2 * i], b[2 * i + 1], 0xdd));
    return _mm512_max_ps(_mm512_shuffle_f32x4(c[0], c[1], 0x88), _mm512_shuffle_f32x4(c[0], c[1], 0xdd));
}

/* m_b of n lanes; sixteen together where there are that many. */
static inline void attn_maxima(const float *s, int32_t n, float scale, const uint64_t *seen, float *mb) {
    int32_t i = 0;
    for (; i + 16 <= n; i += 16, s += 16 * ATTN_SS) {
        __m512 m[16];
#pragma GCC unroll 16
        for (int32_t j = 0; j < 16; j++) {
            int32_t lane = j % 4 * 4 + j / 4;
            m[j] = attn_max_lane(s + lane * ATTN_SS, seen[i + lane]);
        }
        _mm512_store_ps(mb + i, _mm512_mul_ps(attn_max_tree(m), _mm512_set1_ps(scale)));
    }
    for (; i < n; i++, s += ATTN_SS) mb[i] = _mm512_reduce_max_ps(attn_max_lane(s, seen[i])) * scale;
}

/* One lane: p of the dots s[0..63], not yet rounded, +0 where not seen. The operations of vb__exp_avx512 less those that are
 * for x > 0; a NaN goes through the polynomial, and bits 0..8 of t, all that is added to its exponent, are 0. Step by step for
 * all four vectors: one after the other they wait for each operation in turn, and the scheduler holds little more than one. */
__attribute__((always_inline)) static inline void attn_exp_lane(const float *s, float scale, float mb, uint64_t seen,
                                                                __m512 p[4]) {
    const __m512 c = _mm512_set1_ps(scale), v = _mm512_set1_ps(mb), magic = _mm512_set1_ps(VB_EXP_MAGIC);
    __m512 x[4], t[4], n[4], r[4], q[4];
#define ATTN_FOUR _Pragma("GCC unroll 4") for (int32_t i = 0; i < 4; i++)
    ATTN_FOUR x[i] = _mm512_sub_ps(_mm512_mul_ps(_mm512_load_ps(s + 16 * i), c), v);
    ATTN_FOUR t[i] = _mm512_fmadd_ps(x[i], _mm512_set1_ps(VB_LOG2E), magic);
    __mmask16 k[4];
    if (seen == ~0ull) {
        ATTN_FOUR k[i] = _mm512_cmp_ps_mask(x[i], _mm512_set1_ps(VB_EXP_LO), _CMP_NLT_UQ);
    } else {
        ATTN_FOUR k[i] = _mm512_mask_cmp_ps_mask((__mmask16)(seen >> (16 * i)), x[i], _mm512_set1_ps(VB_EXP_LO), _CMP_NLT_UQ);
    }
    ATTN_FOUR n[i] = _mm512_sub_ps(t[i], magic);
    ATTN_FOUR r[i] = _mm512_fnmadd_ps(n[i], _mm512_set1_ps(VB_LN2_HI), x[i]);
    ATTN_FOUR r[i] = _mm512_fnmadd_ps(n[i], _mm512_set1_ps(VB_LN2_LO), r[i]);
    ATTN_FOUR q[i] = _mm512_fmadd_ps(_mm512_set1_ps(VB_EXP_C6), r[i], _mm512_set1_ps(VB_EXP_C5));
    ATTN_FOUR q[i] = _mm512_fmadd_ps(q[i], r[i], _mm512_set1_ps(VB_EXP_C4));
    ATTN_FOUR n[i] = _mm512_mul_ps(r[i], r[i]);
    ATTN_FOUR q[i] = _mm512_fmadd_ps(q[i], r[i], _mm512_set1_ps(VB_EXP_C3));
    ATTN_FOUR q[i] = _mm512_fmadd_ps(q[i], r[i], _mm512_set1_ps(VB_EXP_C2));
    ATTN_FOUR q[i] = _mm512_fmadd_ps(n[i], q[i], r[i]);
    ATTN_FOUR q[i] = _mm512_add_ps(q[i], _mm512_set1_ps(1.0f));
    ATTN_FOUR p[i] = _mm512_castsi512_ps(_mm512_maskz_add_epi32(
        k[i], _mm512_castps_si512(q[i]), _mm512_slli_epi32(_mm512_castps_si512(t[i]), 23)));
#undef ATTN_FOUR
}

/* Rounds p to bf16, in the high halves; the low ones are left as they come out. p is 0, normal and at most 1,
 * or a NaN, which the addition cannot carry out of: all NaN here are a canonical one from q or the
 * processor's own, with a mantissa of one bit. */
static inline __m512i attn_round_p(__m512 p) {
    __m512i u = _mm512_castps_si512(p);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    return _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
}

/* The fold's factors, and m and l of the partial. first: the partial's first block, m and l are set.
 * Lanes lane0 (a multiple of 16) to lanes-1. A lane that saw nothing before has m = -inf, l = 0 (and o = 0): the formula then gives alpha 0, beta 1,
 * which is the copy that the contract asks for. A lane that sees nothing in this block keeps all it has. */
static inline void attn_fold_factors(attn_lanes *s, int32_t lane0, int32_t lanes, float *m, float *l, bool first) {
    for (int32_t i = lane0; i < lanes; i += 16) {
        __mmask16 see = vb__mask16(lanes - i);
        for (int32_t j = 0; j < 16 && i + j < lanes && !s->all; j++)
            if (s->seen[i + j] == 0) see &= (__mmask16) ~(1u << j);
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
