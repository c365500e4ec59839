/* attention, AVX-512. Contract and order: ops/attention.h.
 *
 * Both products of a block are the same small matrix product: C[lane][16 columns] = A[lane][k] * B, where B
 * is as stored, words of an even and an odd k-value. One zmm of B gives the even values by a shift, the odd
 * ones by a mask; each lane's chains are two registers, and A enters as a broadcast memory operand of the
 * fma. Up to 12 lanes go together (24 chains), so that a load of B and its two operations serve 24 fmas; with
 * one to three lanes several column tiles go together, to hide the latency of the fma. */
#include "backend/cpu/x86/attention_avx512.h"

enum {
    QS = VB_ATTN_DIM + 16, /* floats of a lane's query: constant, so that broadcasts have constant offsets */
    PS = ATTN_SS,          /* floats of a lane's scores, then of its p */
    PANEL = 12
};

typedef struct scratch {
    attn_lanes lanes;
    _Alignas(64) float q[VB_ATTN_LANES * QS];
    _Alignas(64) float s[VB_ATTN_LANES * PS];
    _Alignas(64) uint8_t v_tail[32 * 64]; /* the last dim % 16 columns of V, padded with zeros */
} scratch;
_Static_assert(sizeof(scratch) <= VB_ATTN_SCRATCH, "the scratch of a tile kernel");

/* What a product does with its sums. */
typedef enum goal { SCORES, COPY, FOLD } goal;

typedef struct product {
    const float *a;   /* lane i, value k at a + i*as + k */
    const uint8_t *b; /* tile t, pair p of k-values at b + t*bt + p*bs: 16 columns */
    int64_t bs, bt;
    int32_t pairs;
    float *c; /* lane i, tile t at c + i*cs + t*16 */
    int64_t cs;
    const float *alpha, *beta; /* FOLD: c = fma(c, alpha[lane], sum * beta[lane]) */
    const uint8_t *ahead;      /* memory that is needed next, as long as B; prefetched by the first panel */
    int64_t ahead_step;        /* 64, or 0 in other panels */
} product;

/* L lanes, T tiles; both constant after inlining. */
__attribute__((always_inline)) static inline void multiply(const product *p, const int L, const int T,
                                                           const int as, const goal g) {
    __m512 acc[PANEL], even[PANEL], odd[PANEL];
    const __m512i high = _mm512_set1_epi32((int32_t)0xffff0000);
    const uint8_t *ahead = p->ahead;
#pragma GCC unroll 12
    for (int i = 0; i < L * T; i++) acc[i] = _mm512_setzero_ps();
    for (int32_t first = 0; first < p->pairs; first += 16) {
        int32_t n = p->pairs - first < 16 ? p->pairs - first : 16;
        const float *a = p->a + 2 * first;
        const uint8_t *b = p->b + first * p->bs;
#pragma GCC unroll 12
        for (int i = 0; i < L * T; i++) even[i] = odd[i] = _mm512_setzero_ps();
        for (int32_t k = 0; k < n; k++, a += 2, b += p->bs) {
#pragma GCC unroll 4
            for (int t = 0; t < T; t++) {
                if (L <= 8) _mm_prefetch((const char *)ahead, _MM_HINT_T0);
                else _mm_prefetch((const char *)ahead, _MM_HINT_T1); /* clang wants a literal */
                ahead += p->ahead_step;
                __m512i raw = _mm512_loadu_si512(b + t * p->bt);
                __m512 be = _mm512_castsi512_ps(_mm512_slli_epi32(raw, 16));
                __m512 bo = _mm512_castsi512_ps(_mm512_and_si512(raw, high));
#pragma GCC unroll 12
                for (int i = 0; i < L; i++) {
                    even[i * T + t] = _mm512_fmadd_ps(_mm512_set1_ps(a[i * as]), be, even[i * T + t]);
                    odd[i * T + t] = _mm512_fmadd_ps(_mm512_set1_ps(a[i * as + 1]), bo, odd[i * T + t]);
                }
            }
        }
#pragma GCC unroll 12
        for (int i = 0; i < L * T; i++) acc[i] = _mm512_add_ps(acc[i], _mm512_add_ps(even[i], odd[i]));
    }
#pragma GCC unroll 12
    for (int i = 0; i < L; i++)
#pragma GCC unroll 4
        for (int t = 0; t < T; t++) {
            float *c = p->c + i * p->cs + t * 16;
            __m512 x = acc[i * T + t];
            if (g == FOLD)
                x = _mm512_fmadd_ps(_mm512_load_ps(c), _mm512_set1_ps(p->alpha[i]),
                                    _mm512_mul_ps(x, _mm512_set1_ps(p->beta[i])));
            _mm512_store_ps(c, x);
        }
}

/* `lanes` lanes from lane 0, `tiles` tiles, in panels of nearly equal size. */
__attribute__((always_inline)) static inline void multiply_all(const product *all, int32_t lanes,
                                                               int32_t tiles, const int as, const goal g) {
    int32_t panels = (lanes + PANEL - 1) / PANEL;
    for (int32_t t = 0; t < tiles;) {
        int32_t step = 1;
        for (int32_t i = 0, lane = 0; i < panels; i++) {
            int32_t n = (lanes - lane) / (panels - i);
            product p = *all;
            p.a += lane * as;
            p.b += t * p.bt;
            p.c += lane * p.cs + t * 16;
            p.ahead += t * (int64_t)p.pairs * 64;
            p.ahead_step = lane == 0 ? 64 : 0;
            if (g == FOLD) {
                p.alpha += lane;
                p.beta += lane;
            }
            lane += n;
            switch (n) {
            case 1:
                if (tiles - t >= 4) {
                    multiply(&p, 1, 4, as, g);
                    step = 4;
                } else multiply(&p, 1, 1, as, g);
                break;
            case 2:
                if (tiles - t >= 4) {
                    multiply(&p, 2, 4, as, g);
                    step = 4;
                } else multiply(&p, 2, 1, as, g);
                break;
            case 3:
                if (tiles - t >= 2) {
                    multiply(&p, 3, 2, as, g);
                    step = 2;
                } else multiply(&p, 3, 1, as, g);
                break;
            case 4:
                if (tiles - t >= 2) {
                    multiply(&p, 4, 2, as, g);
                    step = 2;
                } else multiply(&p, 4, 1, as, g);
                break;
            case 5: multiply(&p, 5, 1, as, g); break;
            case 6: multiply(&p, 6, 1, as, g); break;
            case 7: multiply(&p, 7, 1, as, g); break;
            case 8: multiply(&p, 8, 1, as, g); break;
            case 9: multiply(&p, 9, 1, as, g); break;
            case 10: multiply(&p, 10, 1, as, g); break;
            case 11: multiply(&p, 11, 1, as, g); break;
            default: multiply(&p, 12, 1, as, g); break;
            }
        }
        t += step;
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

static void round_queries(const vb__attn_tile *t, float *q) {
    for (int32_t r = 0; r < t->rows; r++)
        for (int32_t h = 0; h < t->heads; h++, q += QS) {
            const float *src = t->q + r * t->qs + h * t->qh;
            for (int32_t d = 0; d < t->dim; d += 16) {
                __mmask16 m = vb__mask16(t->dim - d);
                _mm512_store_si512(q + d, attn_to_bf16(_mm512_maskz_loadu_ps(m, src + d)));
            }
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

static void softmax(const vb__attn_tile *t, scratch *s, int32_t lanes) {
    float scale = attn_apply_scale(s->s, PS, lanes, t->scale);
    attn_maxima(s->s, lanes, scale, s->lanes.seen, s->lanes.mb);
    for (int32_t i = 0; i < lanes; i++) {
        float *x = s->s + i * PS;
        __m512 p[4];
        attn_exp_lane(x, scale, s->lanes.mb[i], s->lanes.seen[i], p);
        for (int32_t j = 0; j < 4; j++)
            _mm512_store_si512(x + 16 * j, _mm512_and_si512(attn_round_p(p[j]), _mm512_set1_epi32((int32_t)0xffff0000)));
    }
    for (int32_t i = 0; i < lanes; i++) s->lanes.lb[i] = sum_p(s->s + i * PS);
}

static void copy_v_tail(const uint8_t *v, int32_t dim, uint8_t *tail) {
    __mmask16 m = vb__mask16(dim % 16);
    v += dim / 16 * 64;
    for (int32_t p = 0; p < 32; p++)
        _mm512_store_si512(tail + p * 64, _mm512_maskz_loadu_epi32(m, v + (int64_t)p * dim * 4));
}

static void one_block(const vb__attn_tile *t, scratch *s, int32_t b, int32_t next, float *part, bool first) {
    int32_t lanes = t->rows * t->heads, dim = t->dim;
    const uint8_t *k = t->pages[b] + t->k_off, *v = k + 128 * dim;
    product qk = {
        .a = s->q, .b = k, .bs = 64, .bt = dim * 32, .pairs = dim / 2, .c = s->s, .cs = PS, .ahead = v};
    scores(&qk, lanes, (s->lanes.end + 15) / 16);
    softmax(t, s, lanes);
    attn_fold_factors(&s->lanes, 0, lanes, part, part + vb__attn_round16(lanes), first);
    product pv = {.a = s->s,
                  .b = v,
                  .bs = dim * 4,
                  .bt = 64,
                  .pairs = (s->lanes.end + 1) / 2,
                  .c = vb__attn_part_o(part, lanes, 0, dim),
                  .cs = vb__attn_o_stride(dim),
                  .alpha = s->lanes.alpha,
                  .beta = s->lanes.beta,
                  .ahead = t->pages[next] + t->k_off};
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

void vb__attn_blocks_avx512(const vb__attn_tile *t, int32_t b0, int32_t b1, bool each, float *part) {
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

void vb__attn_fold_avx512(VB_ATTN_FOLD_ARGS) {
    int32_t lp = vb__attn_round16(lanes), os = vb__attn_o_stride(dim), n = vb__attn_round16(dim);
    for (int32_t i = lane0; i < lane1; i++) {
        float *m = a + i, *l = a + lp + i, *o = a + 2 * lp + (int64_t)i * os;
        float mb = b[i], lb = b[lp + i];
        const float *ob = b + 2 * lp + (int64_t)i * os;
        if (lb == 0.0f) continue;
        if (*l == 0.0f) {
            *m = mb;
            *l = lb;
            for (int32_t d = 0; d < n; d += 16) _mm512_store_ps(o + d, _mm512_load_ps(ob + d));
            continue;
        }
        float big = mb > *m ? mb : *m, alpha = vb__expf(*m - big), beta = vb__expf(mb - big);
        *m = big;
        *l = __builtin_fmaf(*l, alpha, lb * beta);
        __m512 va = _mm512_set1_ps(alpha), vb = _mm512_set1_ps(beta);
        for (int32_t d = 0; d < n; d += 16)
            _mm512_store_ps(
                o + d, _mm512_fmadd_ps(_mm512_load_ps(o + d), va, _mm512_mul_ps(_mm512_load_ps(ob + d), vb)));
    }
}

void vb__attn_finish_avx512(VB_ATTN_FINISH_ARGS) {
    __m512 vl = _mm512_set1_ps(l), zero = _mm512_setzero_ps();
    for (int32_t d = 0; d < dim; d += 16) {
        __mmask16 m = vb__mask16(dim - d);
        __m512 r =
            l == 0.0f ? zero : _mm512_add_ps(_mm512_div_ps(_mm512_maskz_loadu_ps(m, po + d), vl), zero);
        if (gate != NULL) r = _mm512_mul_ps(r, vb__sigmoid_avx512(_mm512_maskz_loadu_ps(m, gate + d)));
        _mm512_mask_storeu_ps(o + d, m, r);
    }
}
