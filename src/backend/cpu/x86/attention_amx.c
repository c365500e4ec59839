/* attention, AMX. Contract and order: ops/attention.h.
 *
 * A is 16 lanes by 32 values in bf16 (queries, then p), B is K or V as stored, C is 16 lanes by 16 keys or
 * dims. tdpbf16ps sums in the contract's order by itself. l_b is a product with a tile of ones. Lanes go in
 * groups of 16, two groups together where there are that many, so that a tile of B serves both. Softmax and
 * fold are vector code, lane by lane.
 *
 * Queries are padded with zeros to 16 lanes and 32 dims; the tile of K that stands against padded dims reads
 * on into the next keys or V, which are finite. */
#include "backend/cpu/x86/amx.h"
#include "backend/cpu/x86/attention_avx512.h"
#include <stddef.h>

enum {
    QS = VB_ATTN_DIM * 2 + 64, /* bytes of a lane's query */
    SS = ATTN_SS,              /* floats of a lane's scores */
    PS = 128,                  /* bytes of a lane's p */
    RING = 4                   /* tiles of o_b under way, for each of two groups */
};

typedef struct scratch {
    attn_lanes lanes;
    _Alignas(64) uint8_t q[VB_ATTN_LANES * QS];
    _Alignas(64) float s[VB_ATTN_LANES * SS];
    _Alignas(64) uint8_t p[VB_ATTN_LANES * PS];
    _Alignas(64) float o[RING][2][16 * 16];
    _Alignas(64) float l[16 * 16];
    _Alignas(64) uint8_t ones[16 * 64];
    _Alignas(64) uint8_t v_tail[32 * 64]; /* the last dim % 16 columns of V, padded with zeros */
    /* Memory that is needed next, asked for a few lines at a time: many at once fill the line buffers and stop the core. */
    const uint8_t *ahead;
    int32_t lines, per_step;
} scratch;
_Static_assert(sizeof(scratch) <= VB_ATTN_SCRATCH, "the scratch of a tile kernel");

static void round_queries(const vb__attn_tile *t, uint8_t *q, int32_t lanes) {
    for (int32_t i = 0; i < vb__attn_round16(lanes); i++, q += QS) {
        const float *src = i < lanes ? t->q + i / t->heads * t->qs + i % t->heads * t->qh : t->q;
        for (int32_t d = 0; d < t->dim; d += 32) {
            int32_t left = i < lanes ? t->dim - d : 0;
            __mmask16 a = vb__mask16(left);
            __mmask16 b = vb__mask16(left - 16);
            __m512 lo = _mm512_maskz_loadu_ps(a, src + d), hi = _mm512_maskz_loadu_ps(b, src + d + 16);
            _mm512_store_si512(q + d * 2, (__m512i)_mm512_cvtne2ps_pbh(hi, lo)); /* to_bf16, but for what NaN it gives */
        }
    }
}

static inline void expect(scratch *s, const uint8_t *p, int32_t bytes, int32_t steps) {
    s->ahead = p;
    s->lines = p == NULL ? 0 : bytes / 64;
    s->per_step = (s->lines + steps - 1) / steps;
}
static inline void ask(scratch *s) {
    int32_t n = s->per_step < s->lines ? s->per_step : s->lines;
    const uint8_t *p = s->ahead;
    for (int32_t i = 0; i < n; i++) _mm_prefetch((const char *)p + i * 64, _MM_HINT_T1);
    s->ahead = p + n * 64;
    s->lines -= n;
}

/* Scores of 16 lanes: four tiles of keys at once, or one, two or three where nobody sees more. */
static void scores_one(scratch *work, const uint8_t *q, const uint8_t *k, int32_t dim, float *s) {
    const int32_t tiles = (work->lanes.end + 15) / 16;
    int64_t tile = dim * 32;
    VB_TILE_ZERO(0);
    VB_TILE_ZERO(1);
    VB_TILE_ZERO(2);
    VB_TILE_ZERO(3);
    for (int32_t d = 0; d < dim; d += 32, q += 64, k += 1024) {
        VB_TILE_LOAD(4, q, QS);
        VB_TILE_LOAD(6, k, 64);
        VB_TILE_DPBF16(0, 4, 6);
        ask(work);
        if (tiles < 2) continue;
        VB_TILE_LOAD(7, k + tile, 64);
        VB_TILE_DPBF16(1, 4, 7);
        if (tiles < 3) continue;
        VB_TILE_LOAD(6, k + 2 * tile, 64);
        VB_TILE_DPBF16(2, 4, 6);
        if (tiles < 4) continue;
        VB_TILE_LOAD(7, k + 3 * tile, 64);
        VB_TILE_DPBF16(3, 4, 7);
    }
    VB_TILE_STORE(0, s, SS * 4);
    VB_TILE_STORE(1, s + 16, SS * 4);
    VB_TILE_STORE(2, s + 32, SS * 4);
    VB_TILE_STORE(3, s + 48, SS * 4);
}

/* Scores of 32 lanes: two tiles of keys at once. */
static void scores_two(scratch *work, const uint8_t *q, const uint8_t *k, int32_t dim, float *s) {
    const int32_t halves = work->lanes.end > 32 ? 2 : 1;
    int64_t tile = dim * 32;
    for (int32_t half = 0; half < halves; half++, s += 32) {
        const uint8_t *a = q, *b = k + half * 2 * tile;
        VB_TILE_ZERO(0);
        VB_TILE_ZERO(1);
        VB_TILE_ZERO(2);
        VB_TILE_ZERO(3);
        for (int32_t d = 0; d < dim; d += 32, a += 64, b += 1024) {
            VB_TILE_LOAD(4, a, QS);
            VB_TILE_LOAD(6, b, 64);
            VB_TILE_DPBF16(0, 4, 6);
            VB_TILE_LOAD(7, b + tile, 64);
            VB_TILE_DPBF16(1, 4, 7);
            VB_TILE_LOAD(5, a + 16 * QS, QS);
            VB_TILE_DPBF16(2, 5, 6);
            VB_TILE_DPBF16(3, 5, 7);
            ask(work);
        }
        VB_TILE_STORE(0, s, SS * 4);
        VB_TILE_STORE(1, s + 16, SS * 4);
        VB_TILE_STORE(2, s + 16 * SS, SS * 4);
        VB_TILE_STORE(3, s + 16 * SS + 16, SS * 4);
    }
}

static void softmax(scratch *s, float scale, int32_t lane, int32_t end) {
    scale = attn_apply_scale(s->s + lane * SS, SS, end - lane, scale);
    attn_maxima(s->s + lane * SS, end - lane, scale, s->lanes.seen + lane, s->lanes.mb + lane);
    for (int32_t i = lane; i < end; i++) {
        __m512 p[4];
        ask(s);
        attn_exp_lane(s->s + i * SS, scale, s->lanes.mb[i], s->lanes.seen[i], p);
        _mm512_store_si512(s->p + i * PS, (__m512i)_mm512_cvtne2ps_pbh(p[1], p[0]));
        _mm512_store_si512(s->p + i * PS + 64, (__m512i)_mm512_cvtne2ps_pbh(p[3], p[2]));
    }
}

/* One tile of 16 columns of o_b, lanes lane.., into the partial or onto it. */
static inline void fold_columns(const float *ob, const attn_lanes *f, int32_t lane, int32_t n, float *o,
                                int64_t os, bool copy) {
    for (int32_t i = 0; i < n; i++, ob += 16, o += os) {
        __m512 x = _mm512_load_ps(ob);
        if (!copy)
            x = _mm512_fmadd_ps(_mm512_load_ps(o), _mm512_set1_ps(f->alpha[lane + i]),
                                _mm512_mul_ps(x, _mm512_set1_ps(f->beta[lane + i])));
        _mm512_store_ps(o, x);
    }
}

/* The values' product of up to two groups of lanes from `lane`. Tiles are folded RING - 1 tiles after they
 * were computed, so that a load does not wait for the store of a tile. */
static void values(scratch *s, int32_t lane, int32_t lanes, const uint8_t *v, int64_t vs, int32_t tiles,
                   float *o, int64_t os, bool copy) {
    const uint8_t *p = s->p + lane * PS;
    const bool two = lanes > 16, whole = s->lanes.end > 32; /* the second half of the keys is seen by somebody */
    VB_TILE_LOAD(4, p, PS);
    VB_TILE_LOAD(5, p + 64, PS);
    if (two) {
        VB_TILE_LOAD(2, p + 16 * PS, PS);
        VB_TILE_LOAD(3, p + 16 * PS + 64, PS);
    }
    for (int32_t j = 0; j < tiles + RING - 1; j++) {
        if (j < tiles) {
            const uint8_t *b = v + j * 64;
            float *c = s->o[j % RING][0];
            VB_TILE_ZERO(0);
            VB_TILE_LOAD(6, b, vs);
            VB_TILE_DPBF16(0, 4, 6);
            if (whole) {
                VB_TILE_LOAD(7, b + 16 * vs, vs);
                VB_TILE_DPBF16(0, 5, 7);
            }
            if (two) {
                VB_TILE_ZERO(1);
                VB_TILE_DPBF16(1, 2, 6);
                if (whole) VB_TILE_DPBF16(1, 3, 7);
            }
            VB_TILE_STORE(0, c, 64);
            if (two) VB_TILE_STORE(1, c + 256, 64);
            ask(s);
        }
        int32_t i = j - (RING - 1);
        if (i < 0) continue;
        const float *c = s->o[i % RING][0];
        fold_columns(c, &s->lanes, lane, two ? 16 : lanes, o + i * 16, os, copy);
        if (two) fold_columns(c + 256, &s->lanes, lane + 16, lanes - 16, o + 16 * os + i * 16, os, copy);
    }
}

/* l_b of 16 lanes. */
static void sums(scratch *s, int32_t lane) {
    VB_TILE_LOAD(6, s->ones, 64);
    VB_TILE_LOAD(4, s->p + lane * PS, PS);
    VB_TILE_LOAD(5, s->p + lane * PS + 64, PS);
    VB_TILE_ZERO(0);
    VB_TILE_DPBF16(0, 4, 6);
    VB_TILE_DPBF16(0, 5, 6);
    VB_TILE_STORE(0, s->l, 64);
    for (int32_t j = 0; j < 16; j++) s->lanes.lb[lane + j] = s->l[j * 16];
}

static void copy_v_tail(const uint8_t *v, int32_t dim, uint8_t *tail) {
    __mmask16 m = vb__mask16(dim % 16);
    v += dim / 16 * 64;
    for (int32_t p = 0; p < 32; p++)
        _mm512_store_si512(tail + p * 64, _mm512_maskz_loadu_epi32(m, v + (int64_t)p * dim * 4));
}

static void one_block(const vb__attn_tile *t, scratch *s, int32_t b, const uint8_t *next, float *part,
                      bool first) {
    int32_t lanes = t->rows * t->heads, dim = t->dim;
    const uint8_t *k = t->pages[b] + t->k_off, *v = k + 128 * dim;
    /* The first block asks for its own V as it goes; then K and V of the next one, which lie together, spread over all steps. */
    int32_t groups = (lanes + 31) / 32, scoring = groups * 2 * ((dim + 31) / 32), rest = lanes + groups * (dim / 16);
    if (first) expect(s, v, 128 * dim, scoring);
    else expect(s, next, 256 * dim, scoring + rest);
    int64_t os = vb__attn_o_stride(dim);
    if (dim % 16 != 0) copy_v_tail(v, dim, s->v_tail);
    /* Two groups of lanes from scores to values before the next two, and the sums of 16 lanes in the middle of the softmax:
     * tiles that lie idle for more than some 1500 cycles take 1200 to wake. */
    for (int32_t i = 0; i < lanes; i += 32) {
        int32_t n = lanes - i < 32 ? lanes - i : 32;
        if (n > 16) scores_two(s, s->q + i * QS, k, dim, s->s + i * SS);
        else scores_one(s, s->q + i * QS, k, dim, s->s + i * SS);
        if (first && i + 32 >= lanes) expect(s, next, 256 * dim, n + dim / 16);
        for (int32_t j = i; j < i + n; j += 16) {
            softmax(s, t->scale, j, j + 16 < i + n ? j + 16 : i + n);
            sums(s, j);
        }
        attn_fold_factors(&s->lanes, i, i + n, part, part + vb__attn_round16(lanes), first);
        float *o = vb__attn_part_o(part, lanes, i, dim);
        values(s, i, n, v, dim * 4, dim / 16, o, os, first);
        if (dim % 16 != 0) values(s, i, n, s->v_tail, 64, 1, o + dim / 16 * 16, os, first);
    }
}

void vb__attn_blocks_amx(const vb__attn_tile *t, int32_t b0, int32_t b1, bool each, float *part) {
    if (t->dim < 16) { /* the tile that reads past K would read past V */
        vb__attn_blocks_avx512(t, b0, b1, each, part);
        return;
    }
    static const vb__tile_config config = {.palette = 1,
                                           .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64},
                                           .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    scratch *s = t->scratch;
    int32_t lanes = t->rows * t->heads, dim = t->dim, padded = vb__attn_round16(lanes);
    vb__tile_load_config(&config);
    attn_lanes_open(t, &s->lanes);
    round_queries(t, s->q, lanes);
    for (int32_t i = lanes; i < padded; i++) {
        _mm512_store_si512(s->p + i * PS, _mm512_setzero_si512());
        _mm512_store_si512(s->p + i * PS + 64, _mm512_setzero_si512());
    }
    for (int32_t i = 0; i < 16; i++) _mm512_store_si512(s->ones + i * 64, _mm512_set1_epi32(0x3f803f80));
    bool first = true;
    for (int32_t i = 0; i < lanes; i++) part[padded + i] = 0.0f;
    for (int32_t b = b0; b < b1; b++) {
        if (each && b > b0) {
            part += vb__attn_part_floats(lanes, dim);
            for (int32_t i = 0; i < lanes; i++) part[padded + i] = 0.0f;
            first = true;
        }
        if (!attn_lanes_block(&s->lanes, lanes, b)) continue;
        one_block(t, s, b, b + 1 < b1 ? t->pages[b + 1] + t->k_off : NULL, part, first);
        first = false;
    }
    vb__tile_release();
}
