/* attention, AVX2. Contract and order: ops/attention.h.
 *
 * Both products of a block are the same small matrix product: C[lane][8 columns] = A[lane][k] * B, where B is
 * as stored, words of an even and an odd k-value: a shift gives the even values, a mask the odd ones. A
 * lane's chains are two registers. Three lanes and 16 columns go together: 12 chains of the 16 registers, as
 * many as there are fmas under way, and 24 fmas to 10 loads; fewer lanes take more columns. Where a tile of B
 * serves several such groups of lanes it is taken apart once, for all of them. */
#include "backend/cpu/x86/attention_lanes.h"
#include "backend/cpu/x86/vmath_avx2.h"

enum {
    QS = VB_ATTN_DIM + 16, /* floats of a lane's query: constant, so that broadcasts have constant offsets */
    PS = 64 + 16           /* floats of a lane's scores, then of its p */
};

typedef struct scratch {
    attn_lanes lanes;
    _Alignas(64) float q[VB_ATTN_LANES * QS];
    _Alignas(64) float s[VB_ATTN_LANES * PS];
    _Alignas(64) float wide[VB_ATTN_DIM * 16]; /* a tile of B: even[16], odd[16] a pair */
    _Alignas(64) uint8_t v_tail[32 * 64]; /* the last dim % 16 columns of V, padded with zeros */
} scratch;
_Static_assert(sizeof(scratch) <= VB_ATTN_SCRATCH, "the scratch of a tile kernel");

/* What a product does with its sums. */
typedef enum goal { SCORES, COPY, FOLD } goal;

typedef struct product {
    const float *a;   /* lane i, value k at a + i*as + k */
    const uint8_t *b; /* tile t of 16 columns, pair p of k-values at b + t*bt + p*bs */
    int64_t bs, bt;
    int32_t pairs;
    float *c; /* lane i, tile t at c + i*cs + t*16 */
    int64_t cs;
    const float *alpha, *beta; /* FOLD: c = fma(c, alpha[lane], sum * beta[lane]) */
    const uint8_t *ahead;      /* memory that is needed next, as long as B; lanes ask for a part of it each */
    int64_t ahead_step;        /* bytes a pair and half tile */
    float *wide;               /* scratch for a tile of B */
} product;

static inline __m256i load(const uint8_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static void widen_tile(const product *p) {
    const __m256i high = _mm256_set1_epi32((int32_t)0xffff0000);
    const uint8_t *b = p->b;
    float *to = p->wide;
    for (int32_t k = 0; k < p->pairs; k++, b += p->bs, to += 32)
        for (int32_t h = 0; h < 2; h++) {
            __m256i v = load(b + 32 * h);
            _mm256_store_si256((__m256i *)(void *)(to + 8 * h), _mm256_slli_epi32(v, 16));
            _mm256_store_si256((__m256i *)(void *)(to + 16 + 8 * h), _mm256_and_si256(v, high));
        }
}

/* L lanes, H half tiles (of 8 columns) from half `half` of tile 0, which widen_tile took apart if `wide`; L, H, wide
 * constant after inlining. */
__attribute__((always_inline)) static inline void multiply(const product *p, const int L, const int H, int32_t half,
                                                           const bool wide, const int as, const goal g) {
    __m256 acc[6], even[6], odd[6];
    const __m256i high = _mm256_set1_epi32((int32_t)0xffff0000);
    const uint8_t *ahead = p->ahead + half * p->ahead_step * p->pairs;
    const int64_t ahead_step = H * p->ahead_step;
#pragma GCC unroll 6
    for (int i = 0; i < L * H; i++) acc[i] = _mm256_setzero_ps();
    for (int32_t first = 0; first < p->pairs; first += 16) {
        int32_t n = p->pairs - first < 16 ? p->pairs - first : 16;
        const float *a = p->a + 2 * first;
        const uint8_t *b = p->b + first * p->bs + half * 32;
        const float *f = p->wide + first * 32 + half * 8;
#pragma GCC unroll 6
        for (int i = 0; i < L * H; i++) even[i] = odd[i] = _mm256_setzero_ps();
#pragma GCC unroll 2
        for (int32_t k = 0; k < n; k++, a += 2, b += p->bs, f += 32) {
            _mm_prefetch((const char *)ahead, _MM_HINT_T0);
            if (H == 4) _mm_prefetch((const char *)ahead + 64, _MM_HINT_T0);
            ahead += ahead_step;
            if (wide && g == SCORES) _mm_prefetch((const char *)(a + L * as) + 24 * (first + k), _MM_HINT_T0);
            /* A broadcast serves H columns, a column's word L lanes; B is read twice, for want of registers.
             */
            __m256 w[4];
#pragma GCC unroll 4
            for (int t = 0; t < H; t++)
                w[t] = wide ? _mm256_load_ps(f + 8 * t)
                            : _mm256_castsi256_ps(_mm256_slli_epi32(load(b + t / 2 * p->bt + t % 2 * 32), 16));
#pragma GCC unroll 6
            for (int i = 0; i < L; i++) {
                __m256 x = _mm256_broadcast_ss(a + i * as);
#pragma GCC unroll 4
                for (int t = 0; t < H; t++) even[i * H + t] = _mm256_fmadd_ps(x, w[t], even[i * H + t]);
            }
#pragma GCC unroll 4
            for (int t = 0; t < H; t++)
                w[t] = wide ? _mm256_load_ps(f + 16 + 8 * t)
                            : _mm256_castsi256_ps(_mm256_and_si256(load(b + t / 2 * p->bt + t % 2 * 32), high));
#pragma GCC unroll 6
            for (int i = 0; i < L; i++) {
                __m256 x = _mm256_broadcast_ss(a + i * as + 1);
#pragma GCC unroll 4
                for (int t = 0; t < H; t++) odd[i * H + t] = _mm256_fmadd_ps(x, w[t], odd[i * H + t]);
            }
        }
#pragma GCC unroll 6
        for (int i = 0; i < L * H; i++) acc[i] = _mm256_add_ps(acc[i], _mm256_add_ps(even[i], odd[i]));
    }
#pragma GCC unroll 6
    for (int i = 0; i < L; i++)
#pragma GCC unroll 4
        for (int t = 0; t < H; t++) {
            float *c = p->c + i * p->cs + half * 8 + t * 8;
            __m256 x = acc[i * H + t];
            if (g == FOLD)
                x = _mm256_fmadd_ps(_mm256_load_ps(c), _mm256_broadcast_ss(p->alpha + i),
                                    _mm256_mul_ps(x, _mm256_broadcast_ss(p->beta + i)));
            _mm256_store_ps(c, x);
        }
}

/* n lanes (at most 5) of one tile, or of two if both. */
__attribute__((always_inline)) static inline void multiply_lanes(const product *p, int32_t n, bool both, const bool wide,
                                                                 const int as, const goal g) {
    switch (n) {
    case 1:
        if (both) multiply(p, 1, 4, 0, false, as, g);
        else multiply(p, 1, 2, 0, wide, as, g);
        break;
    case 2: multiply(p, 2, 2, 0, wide, as, g); break;
    case 3: multiply(p, 3, 2, 0, wide, as, g); break;
    case 4:
        multiply(p, 4, 1, 0, wide, as, g);
        multiply(p, 4, 1, 1, wide, as, g);
        break;
    default:
        multiply(p, 5, 1, 0, wide, as, g);
        multiply(p, 5, 1, 1, wide, as, g);
        break;
    }
}

/* `lanes` lanes from lane 0, `tiles` tiles of 16 columns: three lanes at a time, the last four or five
 * together. */
__attribute__((always_inline)) static inline void multiply_all(const product *all, int32_t lanes,
                                                               int32_t tiles, const int as, const goal g) {
    for (int32_t t = 0, step; t < tiles; t += step) {
        step = lanes == 1 && tiles - t >= 2 ? 2 : 1;
        product p = *all;
        p.b += t * p.bt;
        p.c += t * 16;
        p.ahead += t * (int64_t)p.pairs * 64;
        if (lanes <= 5) {
            p.ahead_step = 32;
            multiply_lanes(&p, lanes, step == 2, false, as, g);
            continue;
        }
        widen_tile(&p);
        for (int32_t lane = 0, n; lane < lanes; lane += n) {
            n = lanes - lane;
            if (n > 5) n = 3;
            p.ahead_step = 32 * n / lanes + 1;
            multiply_lanes(&p, n, false, true, as, g);
            p.a += n * as;
            p.c += n * p.cs;
            p.ahead += 2 * p.ahead_step * p.pairs;
            if (g == FOLD) {
                p.alpha += n;
                p.beta += n;
            }
        }
    }
}

static void scores(const product *p, int32_t lanes, int32_t tiles) {
    multiply_all(p, lanes, tiles, QS, SCORES);
}
static void values_copy(const product *p, int32_t lanes, int32_t tiles) {
    multiply_all(p, lanes, tiles, PS, COPY);
}
static void values_fold(const product *p, int32_t lanes, int32_t tiles) {
    multiply_all(p, lanes, tiles, PS, FOLD);
}

/* All bits set in the first n of 8 words. */
static inline __m256i first_words(int32_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
/* All bits set in word j where bit j of the low byte is. */
static inline __m256i spread_bits(uint32_t bits) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    return _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32((int32_t)bits), each), each);
}

/* To bf16 without the cases of a NaN or a denormal. */
static inline __m256i round_up(__m256i u) {
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    u = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    return _mm256_and_si256(u, _mm256_set1_epi32((int32_t)0xffff0000));
}

static inline __m256 to_bf16(__m256 x) {
    __m256i u = _mm256_castps_si256(x), r = round_up(u), exponent = _mm256_set1_epi32(0x7f800000);
    __m256i tiny = _mm256_cmpeq_epi32(_mm256_and_si256(u, exponent), _mm256_setzero_si256());
    __m256i zero = _mm256_and_si256(u, _mm256_set1_epi32((int32_t)0x80000000));
    r = _mm256_blendv_epi8(r, zero, tiny);
    return _mm256_blendv_ps(_mm256_castsi256_ps(r), _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000)),
                            _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static void round_queries(const vb__attn_tile *t, float *q) {
    for (int32_t r = 0; r < t->rows; r++)
        for (int32_t h = 0; h < t->heads; h++, q += QS) {
            const float *src = t->q + r * t->qs + h * t->qh;
            int32_t d = 0;
            for (; d + 8 <= t->dim; d += 8) _mm256_store_ps(q + d, to_bf16(_mm256_loadu_ps(src + d)));
            if (d < t->dim)
                _mm256_store_ps(q + d, to_bf16(_mm256_maskload_ps(src + d, first_words(t->dim - d))));
        }
}

static inline float largest(__m256 m) {
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(m), _mm256_extractf128_ps(m, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

/* The largest dot of the keys that are seen and not a NaN (max(x, m) is m when x is one). */
static inline float largest_seen(const float *s, uint64_t seen) {
    __m256 m = _mm256_set1_ps(-__builtin_inff()), n = m;
    if (seen == ~0ull) {
        for (int32_t i = 0; i < 64; i += 16) {
            m = _mm256_max_ps(_mm256_load_ps(s + i), m);
            n = _mm256_max_ps(_mm256_load_ps(s + i + 8), n);
        }
        return largest(_mm256_max_ps(m, n));
    }
    for (int32_t i = 0; i < 64; i += 8)
        m = _mm256_blendv_ps(m, _mm256_max_ps(_mm256_load_ps(s + i), m),
                             _mm256_castsi256_ps(spread_bits((uint32_t)(seen >> i))));
    return largest(m);
}

/* One lane: dots s[0..63] to p, +0 where not seen. exp is vb__exp_avx2 less what is for x > 0; a NaN goes through the
 * polynomial, and bits 0..8 of t, all that is added to its exponent, are 0. p is 0, normal and at most 1, or a NaN, which
 * round_up cannot carry out of: all NaN here are the canonical one from q or the processor's own. Four vectors go step by step:
 * one after the other they wait for each operation in turn, and the scheduler holds little more than one. */
__attribute__((always_inline)) static inline void exp_lane(float *s, float scale, float mb, uint64_t seen) {
    const __m256 c = _mm256_set1_ps(scale), v = _mm256_set1_ps(mb), magic = _mm256_set1_ps(VB_EXP_MAGIC);
#define ATTN_FOUR _Pragma("GCC unroll 4") for (int32_t i = 0; i < 4; i++)
    for (int32_t j = 0; j < 64; j += 32) {
        __m256 x[4], t[4], r[4], q[4];
        ATTN_FOUR x[i] = _mm256_sub_ps(_mm256_mul_ps(_mm256_load_ps(s + j + 8 * i), c), v);
        ATTN_FOUR t[i] = _mm256_fmadd_ps(x[i], _mm256_set1_ps(VB_LOG2E), magic);
        ATTN_FOUR r[i] = _mm256_sub_ps(t[i], magic);
        ATTN_FOUR {
            __m256 n = r[i];
            r[i] = _mm256_fnmadd_ps(n, _mm256_set1_ps(VB_LN2_HI), x[i]);
            r[i] = _mm256_fnmadd_ps(n, _mm256_set1_ps(VB_LN2_LO), r[i]);
            /* x is needed no more, but for whether it is below the smallest exponent */
            x[i] = _mm256_cmp_ps(x[i], _mm256_set1_ps(VB_EXP_LO), _CMP_NLT_UQ);
            t[i] = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t[i]), 23));
        }
        ATTN_FOUR q[i] = _mm256_fmadd_ps(_mm256_set1_ps(VB_EXP_C6), r[i], _mm256_set1_ps(VB_EXP_C5));
        ATTN_FOUR q[i] = _mm256_fmadd_ps(q[i], r[i], _mm256_set1_ps(VB_EXP_C4));
        ATTN_FOUR q[i] = _mm256_fmadd_ps(q[i], r[i], _mm256_set1_ps(VB_EXP_C3));
        ATTN_FOUR q[i] = _mm256_fmadd_ps(q[i], r[i], _mm256_set1_ps(VB_EXP_C2));
        ATTN_FOUR q[i] = _mm256_fmadd_ps(_mm256_mul_ps(r[i], r[i]), q[i], r[i]);
        ATTN_FOUR q[i] = _mm256_add_ps(q[i], _mm256_set1_ps(1.0f));
        ATTN_FOUR {
            __m256i p = round_up(_mm256_and_si256(_mm256_add_epi32(_mm256_castps_si256(q[i]), _mm256_castps_si256(t[i])),
                                                  _mm256_castps_si256(x[i])));
            if (seen != ~0ull) p = _mm256_and_si256(p, spread_bits((uint32_t)(seen >> (j + 8 * i))));
            _mm256_store_si256((__m256i *)(void *)(s + j + 8 * i), p);
        }
    }
#undef ATTN_FOUR
}

static void softmax(float *s, int32_t lanes, float scale, const uint64_t *seen, float *mb) {
    scale = attn_apply_scale(s, PS, lanes, scale);
    for (int32_t i = 0; i < lanes; i++) mb[i] = largest_seen(s + i * PS, seen[i]) * scale;
    for (int32_t i = 0; i < lanes; i++) {
        if (seen[i] == ~0ull) exp_lane(s + i * PS, scale, mb[i], ~0ull);
        else exp_lane(s + i * PS, scale, mb[i], seen[i]);
    }
}

/* Sum of p[0..63] in linear_bf16 order: the even and odd chains of both halves side by side. */
static inline float sum_p(const float *p) {
    __m128 c = _mm_setzero_ps();
    for (int32_t j = 0; j < 32; j += 2) {
        __m128 v = _mm_castpd_ps(_mm_loadh_pd(_mm_load_sd((const double *)(const void *)(p + j)),
                                              (const double *)(const void *)(p + 32 + j)));
        c = _mm_add_ps(c, v);
    }
    __m128 s = _mm_add_ps(c, _mm_shuffle_ps(c, c, _MM_SHUFFLE(2, 3, 0, 1))); /* e0+o0, ., e1+o1, . */
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehl_ps(s, s)));
}

/* The fold's factors, and m and l of the partial. first: the partial's first block, m and l are set.
 * A lane that saw nothing before has m = -inf, l = 0 (and o = 0): the formula then gives alpha 0, beta 1,
 * which is the copy that the contract asks for. A lane that sees nothing in this block keeps all it has. */
static void fold_factors(attn_lanes *s, int32_t lanes, float *m, float *l, bool first) {
    for (int32_t i = 0; i < lanes; i += 8) {
        uint32_t bits = 0;
        for (int32_t j = 0; j < 8 && i + j < lanes; j++) bits |= (uint32_t)(s->seen[i + j] != 0) << j;
        __m256 see = _mm256_castsi256_ps(spread_bits(bits));
        __m256 mb = _mm256_load_ps(s->mb + i), lb = _mm256_load_ps(s->lb + i);
        if (first) {
            _mm256_store_ps(m + i, _mm256_blendv_ps(_mm256_set1_ps(-__builtin_inff()), mb, see));
            _mm256_store_ps(l + i, _mm256_and_ps(lb, see));
            continue;
        }
        __m256 mo = _mm256_load_ps(m + i), lo = _mm256_load_ps(l + i);
        __m256 big = _mm256_blendv_ps(mo, _mm256_max_ps(mb, mo), see);
        __m256 alpha = vb__exp_avx2(_mm256_sub_ps(mo, big)), beta = vb__exp_avx2(_mm256_sub_ps(mb, big));
        alpha = _mm256_blendv_ps(_mm256_set1_ps(1.0f), alpha, see);
        beta = _mm256_and_ps(beta, see);
        _mm256_store_ps(s->alpha + i, alpha);
        _mm256_store_ps(s->beta + i, beta);
        _mm256_store_ps(m + i, big);
        _mm256_store_ps(l + i,
                        _mm256_blendv_ps(lo, _mm256_fmadd_ps(lo, alpha, _mm256_mul_ps(lb, beta)), see));
    }
}

static void copy_v_tail(const uint8_t *v, int32_t dim, uint8_t *tail) {
    v += dim / 16 * 64;
    __m256i low = first_words(dim % 16), high = first_words(dim % 16 - 8);
    for (int32_t p = 0; p < 32; p++, v += (int64_t)dim * 4, tail += 64) {
        const int32_t *from = (const int32_t *)(const void *)v;
        _mm256_store_si256((__m256i *)(void *)tail, _mm256_maskload_epi32(from, low));
        _mm256_store_si256((__m256i *)(void *)(tail + 32), _mm256_maskload_epi32(from + 8, high));
    }
}

static void one_block(const vb__attn_tile *t, scratch *s, int32_t b, int32_t next, float *part, bool first) {
    int32_t lanes = t->rows * t->heads, dim = t->dim;
    const uint8_t *k = t->pages[b] + t->k_off, *v = k + 128 * dim;
    product qk = {
        .a = s->q, .b = k, .bs = 64, .bt = dim * 32, .pairs = dim / 2, .c = s->s, .cs = PS, .ahead = v, .wide = s->wide};
    scores(&qk, lanes, (s->lanes.end + 15) / 16);
    softmax(s->s, lanes, t->scale, s->lanes.seen, s->lanes.mb);
    for (int32_t i = 0; i < lanes; i++) s->lanes.lb[i] = sum_p(s->s + i * PS);
    fold_factors(&s->lanes, lanes, part, part + vb__attn_round16(lanes), first);
    product pv = {.a = s->s,
                  .b = v,
                  .bs = dim * 4,
                  .bt = 64,
                  .pairs = (s->lanes.end + 1) / 2,
                  .c = vb__attn_part_o(part, lanes, 0, dim),
                  .cs = vb__attn_o_stride(dim),
                  .alpha = s->lanes.alpha,
                  .beta = s->lanes.beta,
                  .ahead = t->pages[next] + t->k_off,
                  .wide = s->wide};
    if (first) values_copy(&pv, lanes, dim / 16);
    else values_fold(&pv, lanes, dim / 16);
    if (dim % 16 == 0) return;
    copy_v_tail(v, dim, s->v_tail);
    pv.b = s->v_tail;
    pv.bs = 64;
    pv.c += dim / 16 * 16;
    if (first) values_copy(&pv, lanes, 1);
    else values_fold(&pv, lanes, 1);
}

void vb__attn_blocks_avx2(const vb__attn_tile *t, int32_t b0, int32_t b1, bool each, float *part) {
    scratch *s = t->scratch;
    int32_t lanes = t->rows * t->heads, padded = vb__attn_round16(lanes);
    attn_lanes_open(t, &s->lanes);
    round_queries(t, s->q);
    bool first = true;
    for (int32_t i = 0; i < lanes; i++) part[padded + i] = 0.0f;
    for (int32_t b = b0; b < b1; b++) {
        if (each && b > b0) {
            part += vb__attn_part_floats(lanes, t->dim);
            for (int32_t i = 0; i < lanes; i++) part[padded + i] = 0.0f;
            first = true;
        }
        if (!attn_lanes_block(&s->lanes, lanes, b)) continue;
        one_block(t, s, b, b + 1 < b1 ? b + 1 : b, part, first);
        first = false;
    }
}

void vb__attn_fold_avx2(VB_ATTN_FOLD_ARGS) {
    int32_t lp = vb__attn_round16(lanes), os = vb__attn_o_stride(dim), n = vb__attn_round16(dim);
    for (int32_t i = lane0; i < lane1; i++) {
        float *m = a + i, *l = a + lp + i, *o = a + 2 * lp + (int64_t)i * os;
        float mb = b[i], lb = b[lp + i];
        const float *ob = b + 2 * lp + (int64_t)i * os;
        if (lb == 0.0f) continue;
        if (*l == 0.0f) {
            *m = mb;
            *l = lb;
            for (int32_t d = 0; d < n; d += 8) _mm256_store_ps(o + d, _mm256_load_ps(ob + d));
            continue;
        }
        float big = mb > *m ? mb : *m, alpha = vb__expf(*m - big), beta = vb__expf(mb - big);
        *m = big;
        *l = __builtin_fmaf(*l, alpha, lb * beta);
        __m256 va = _mm256_set1_ps(alpha), vb = _mm256_set1_ps(beta);
        for (int32_t d = 0; d < n; d += 8)
            _mm256_store_ps(
                o + d, _mm256_fmadd_ps(_mm256_load_ps(o + d), va, _mm256_mul_ps(_mm256_load_ps(ob + d), vb)));
    }
}

void vb__attn_finish_avx2(VB_ATTN_FINISH_ARGS) {
    __m256 vl = _mm256_set1_ps(l), zero = _mm256_setzero_ps();
    for (int32_t d = 0; d < dim; d += 8) {
        __m256i mask = first_words(dim - d);
        __m256 r =
            l == 0.0f ? zero : _mm256_add_ps(_mm256_div_ps(_mm256_maskload_ps(po + d, mask), vl), zero);
        if (gate != NULL) r = _mm256_mul_ps(r, vb__sigmoid_avx2(_mm256_maskload_ps(gate + d, mask)));
        _mm256_maskstore_ps(o + d, mask, r);
    }
}
