/* linear_q, AMX int8. Contract and layout: ops/linear_q.h.
 * Nibbles are unpacked to bytes in L1; 16 vectors of them are a B tile of 64 k-values, up to 16 rows of quantised input
 * are an A tile, and their product is the integer dot of a segment: rows x 16 outputs. The float chain takes one vector
 * a row. The tile unit answers late (about 130 cycles from load to stored product), so products run AHEAD segments
 * before their chain. Few rows are faster without tiles and go to AVX-512. */
#include "backend/cpu/x86/amx.h"
#include "backend/cpu/x86/linear_avx512.h"

enum {
    LEAST_ROWS = 4, /* int8 rows from which tiles pay */
    AHEAD = 4,      /* segments between a product and its chain */
    EARLY = 3,      /* segments between unpacking and product: a tile load waits until the stores have left the core */
    RING = 8,       /* segments of scratch; at least AHEAD + EARLY + 1 */
    TILE = 1024,    /* bytes of a tile */
    SLICE_BYTES = VB_SLICE * VB_PANEL,
    /* Parts of scratch: unpacked codes, products on their way (two tiles a segment with 16-bit activations), totals. */
    PRODUCTS_AT = SLICE_BYTES,
    TOTALS_AT = PRODUCTS_AT + RING * 2 * TILE
};

static void configure(int32_t rows, int32_t seg) {
    vb__tile_config c = {.palette = 1};
    for (int t = 0; t < 3; t++) { /* 0: product, 1: A, 2: B */
        c.rows[t] = (uint8_t)(t == 2 ? seg / 4 : rows);
        c.row_bytes[t] = (uint16_t)(t == 1 ? seg : 64);
    }
    vb__tile_load_config(&c);
}

/* One segment of nibbles to bytes. */
VB_INLINE void unpack(int seg, const uint8_t *from, uint8_t *to) {
    const __m512i low = _mm512_set1_epi8(0x0f);
#pragma GCC unroll 8
    for (int k = 0; k < seg; k += 8) {
        __m512i v = _mm512_loadu_si512(from + k * 8);
        _mm512_store_si512(to + k * 16, _mm512_and_si512(v, low));
        _mm512_store_si512(to + k * 16 + 64, _mm512_and_si512(_mm512_srli_epi16(v, 4), low));
    }
}

/* Product of one segment; tiles are renamed, so that three names are enough for many in flight. */
VB_INLINE void product(int planes, int seg, const uint8_t *codes, const int8_t *a, int64_t plane, uint8_t *to) {
    VB_TILE_LOAD(2, codes, 64);
    VB_TILE_LOAD(1, a, seg);
    VB_TILE_ZERO(0);
    VB_TILE_DPBSUD(0, 1, 2);
    VB_TILE_STORE(0, to, 64);
    if (planes == 2) {
        VB_TILE_LOAD(1, a + plane, seg);
        VB_TILE_ZERO(0);
        VB_TILE_DPBSUD(0, 1, 2);
        VB_TILE_STORE(0, to + TILE, 64);
    }
}

typedef struct scales {
    const uint8_t *at;
    vb__scale_kind kind;
    int32_t has_bias, half; /* bytes from scales to biases */
    int32_t offset;
} scales;

/* dot - offset * sum a, for formats with signed codes, in place. */
static __attribute__((noinline)) void take_offset(int32_t offset, int32_t *product, const int32_t *sums, int32_t nb) {
    for (int32_t r = 0; r < nb; r++) {
        __m512i v = _mm512_load_si512(product + 16 * r);
        v = _mm512_sub_epi32(v, _mm512_set1_epi32(offset * sums[r]));
        _mm512_store_si512(product + 16 * r, v);
    }
}

/* The float chain of one segment for R rows. The `lines` of the weight stream that a segment needs are asked for row by
 * row: many at once fill the line buffers, and what finds none free stops the core. */
VB_INLINE void chain(int R, int planes, const scales *s, uint8_t *product, const float *dd, const int32_t *sums,
                     int32_t nb, const uint8_t *ahead, int lines, __m512 *acc) {
    /* With two planes the sum belongs to 256 * hi + lo, so that taking it from lo is enough. */
    if (__builtin_expect(s->offset != 0, 0))
        take_offset(s->offset, (int32_t *)(void *)(product + (planes == 2 ? TILE : 0)), sums, nb);
    __m512 scale = vb__scales16(s->at, s->kind);
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        for (int j = r; j < lines; j += R) {
            _mm_prefetch(ahead + VB_FAR + j * 64, _MM_HINT_T1);
            _mm_prefetch(ahead + VB_NEAR + j * 64, _MM_HINT_T0);
        }
        __m512i v = _mm512_load_si512(product + 64 * r);
        if (planes == 2)
            v = _mm512_add_epi32(_mm512_slli_epi32(v, 8), _mm512_load_si512(product + TILE + 64 * r));
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_mul_ps(scale, _mm512_set1_ps(dd[r])), acc[r]);
    }
    if (!s->has_bias) return;
    __m512 bias = vb__scales16(s->at + s->half, s->kind);
    const float *ds = dd + nb;
    __asm__("" : "+r"(ds)); /* one pointer instead of R offsets from dd */
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) acc[r] = _mm512_fmadd_ps(bias, _mm512_set1_ps(ds[r]), acc[r]);
}

VB_INLINE void add_slice(int R, int first, const __m512 *acc, float *total) {
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        float *t = total + r * VB_PANEL;
        _mm512_store_ps(t, first ? acc[r] : _mm512_add_ps(_mm512_load_ps(t), acc[r]));
    }
}

/* `held` panels from p on. */
static void store_panels(const vb__linear_q_args *g, int32_t p, int32_t held, const float *totals, int64_t panel_total) {
    for (int32_t r = 0; r < g->x->rows; r++)
        for (int32_t i = 0; i < held; i++)
            vb__panel_store(g->y + r * g->ys, (p + i) * VB_PANEL, g->w->n, g->bias,
                            g->residual == NULL ? NULL : g->residual + r * g->rs,
                            _mm512_load_ps(totals + i * panel_total + (int64_t)r * VB_PANEL));
}

/* ---- one block of rows: the weights stream ------------------------------------------------------------------ */

/* A place in the stream of segments, panel after panel. It may run past the last panel by AHEAD + EARLY segments: what is
 * read there is never used. */
typedef struct cursor {
    const uint8_t *panel, *codes;
    int32_t segment; /* of the panel */
} cursor;

VB_INLINE void advance(cursor *c, const vb__qpanels *w, int32_t segs, int32_t seg_bytes, int32_t unit_mask) {
    c->segment++;
    c->codes += seg_bytes;
    if ((c->segment & unit_mask) == 0) c->codes += w->unit_bytes - w->codes_bytes;
    if (c->segment == segs) {
        c->segment = 0;
        c->panel += w->panel_stride;
        c->codes = c->panel;
    }
}

VB_INLINE void stream(int R, int planes, int seg, int bits, const vb__linear_q_args *g, int32_t p0, int32_t p1) {
    const vb__qpanels *w = g->w;
    uint8_t *bytes = g->scratch, *products = bytes + PRODUCTS_AT;
    float *total = (float *)(void *)(bytes + TOTALS_AT);
    const int32_t nb = g->x->rows, segs = w->k / seg, unit_mask = w->unit / seg - 1;
    const int32_t seg_bytes = seg * VB_PANEL * bits / 8, per_group = w->group > seg ? 1 : 0;
    const int32_t unit_shift = unit_mask == 0 ? 0 : unit_mask == 1 ? 1 : 2;
    const int64_t plane = (int64_t)nb * seg, a_step = plane * planes;
    const int8_t *a0 = vb__qact_block(g->x, 0), *a = a0;
    const uint8_t *panel = w->data + p0 * w->panel_stride;
    cursor u = {panel, panel, 0}, q = u; /* of unpacking, of products */
    const int lines = seg * VB_PANEL * bits / 8 / 64 + 1;
    int32_t at = 0; /* position in the ring of the segment to multiply */
    scales s = {.kind = w->scale_kind, .has_bias = w->has_bias, .half = w->scale_stride / 2, .offset = w->offset};
    if (bits == 4)
        for (int i = 0; i < AHEAD + EARLY; i++) {
            unpack(seg, u.codes, bytes + i * seg * VB_PANEL);
            advance(&u, w, segs, seg_bytes, unit_mask);
        }
#define NEXT_PRODUCT()                                                                                       \
    do {                                                                                                     \
        product(planes, seg, bits == 4 ? bytes + at * (seg * VB_PANEL) : q.codes, a, plane,                  \
                products + at * (planes * TILE));                                                            \
        at = (at + 1) & (RING - 1);                                                                          \
        if (q.segment == segs - 1) a = a0;                                                                   \
        else a += a_step;                                                                                    \
        advance(&q, w, segs, seg_bytes, unit_mask);                                                          \
    } while (0)
    for (int i = 0; i < AHEAD; i++) NEXT_PRODUCT();
    int32_t done = 0; /* position in the ring of the segment to add */
    for (int32_t p = p0; p < p1; p++, panel += w->panel_stride) {
        const float *dd = vb__qact_dd(g->x, 0);
        const int32_t *sums = vb__qact_sums(g->x, 0);
        for (int32_t first = 0; first < segs; first += VB_SLICE / seg) {
            int32_t end = first + VB_SLICE / seg < segs ? first + VB_SLICE / seg : segs;
            __m512 acc[16];
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
            for (int32_t i = first; i < end; i++) {
                const uint8_t *ahead = (bits == 4 ? u.codes : q.codes);
                if (bits == 4) {
                    unpack(seg, u.codes, bytes + ((done + AHEAD + EARLY) & (RING - 1)) * (seg * VB_PANEL));
                    advance(&u, w, segs, seg_bytes, unit_mask);
                }
                NEXT_PRODUCT();
                s.at = panel + (int64_t)(i >> unit_shift) * w->unit_bytes + w->codes_bytes +
                       ((i & unit_mask) >> per_group) * w->scale_stride;
                chain(R, planes, &s, products + done * (planes * TILE), dd, sums, nb, ahead, lines, acc);
                done = (done + 1) & (RING - 1);
                dd += 2 * nb;
                sums += nb;
            }
            add_slice(R, first == 0, acc, total);
        }
        store_panels(g, p, 1, total, 0);
    }
#undef NEXT_PRODUCT
}

/* ---- several blocks: a slice is unpacked once for all of them ------------------------------------------------ */

VB_INLINE void blocks(int planes, int seg, int bits, const vb__linear_q_args *g, int32_t p0, int32_t p1) {
    const vb__qpanels *w = g->w;
    const vb__qact *x = g->x;
    uint8_t *bytes = g->scratch, *products = bytes + PRODUCTS_AT;
    float *totals = (float *)(void *)(bytes + TOTALS_AT);
    const int32_t n_blocks = (x->rows + VB_ROW_BLOCK - 1) / VB_ROW_BLOCK;
    const int64_t panel_total = (int64_t)n_blocks * VB_ROW_BLOCK * VB_PANEL;
    for (int32_t p = p0; p < p1; p++) {
        const uint8_t *panel = w->data + p * w->panel_stride;
        float *total = totals + (p - p0) % VB_SPAN * panel_total;
        for (int32_t k = 0; k < w->k; k += VB_SLICE) {
            vb__qslice s = vb__qslice_of(w, panel, k, seg);
            scales sc = {.kind = w->scale_kind, .has_bias = w->has_bias, .half = w->scale_stride / 2, .offset = w->offset};
            if (bits == 4) {
                for (int32_t i = 0; i < s.segs; i++)
                    unpack(seg, vb__qslice_codes(&s, i), bytes + i * seg * VB_PANEL);
                s.codes = bytes;
                s.code_seg = seg * VB_PANEL;
                s.code_unit = s.code_seg << s.shift;
            }
            /* The packed bytes of the next slice, asked for while this one is multiplied. */
            const uint8_t *next = panel + (int64_t)(k / w->unit) * w->unit_bytes;
            int32_t lines = s.segs * seg / w->unit * w->unit_bytes / 64, per_step = (lines + 2 * s.segs - 1) / (2 * s.segs);
            next += lines * 64;
            /* Products run ahead of their chains, from block to block. */
            int32_t at = 0, ahead_block = 0, ahead_seg = 0, ahead_nb = vb__row_block(x->rows, 0);
            const int8_t *a = vb__qact_block(x, 0) + (int64_t)k * planes * ahead_nb;
#define NEXT_PRODUCT()                                                                                       \
    do {                                                                                                     \
        if (ahead_block < n_blocks) {                                                                        \
            product(planes, seg, vb__qslice_codes(&s, ahead_seg), a, (int64_t)ahead_nb * seg,                \
                    products + at * (planes * TILE));                                                        \
            at = (at + 1) & (RING - 1);                                                                      \
            a += (int64_t)planes * ahead_nb * seg;                                                           \
            if (++ahead_seg == s.segs) {                                                                     \
                ahead_seg = 0;                                                                               \
                ahead_block++;                                                                               \
                if (ahead_block < n_blocks) {                                                                \
                    ahead_nb = vb__row_block(x->rows, ahead_block * VB_ROW_BLOCK);                           \
                    a = vb__qact_block(x, ahead_block * VB_ROW_BLOCK) + (int64_t)k * planes * ahead_nb;      \
                }                                                                                            \
            }                                                                                                \
        }                                                                                                    \
    } while (0)
            for (int i = 0; i < AHEAD; i++) NEXT_PRODUCT();
            int32_t done = 0;
            for (int32_t b = 0; b < n_blocks; b++) {
                int32_t r0 = b * VB_ROW_BLOCK, nb = vb__row_block(x->rows, r0);
                const float *dd = vb__qact_dd(x, r0) + (int64_t)(k / seg) * 2 * nb;
                const int32_t *sums = vb__qact_sums(x, r0) + (int64_t)(k / seg) * nb;
                /* The input lies in L2; tile loads do not wake the prefetch from there, so the next block is asked for. */
                int32_t soon_r0 = b + 1 < n_blocks ? r0 + VB_ROW_BLOCK : r0, soon_nb = vb__row_block(x->rows, soon_r0);
                const int8_t *soon = vb__qact_block(x, soon_r0) + (int64_t)k * planes * soon_nb;
                __m512 acc[16];
#pragma GCC unroll 16
                for (int r = 0; r < 16; r++) acc[r] = _mm512_setzero_ps();
                for (int32_t i = 0; i < s.segs; i++) {
                    NEXT_PRODUCT();
#pragma GCC unroll 16
                    for (int j = 0; j < 16 * planes * seg; j += 64) _mm_prefetch(soon + j, _MM_HINT_T0);
                    soon += (int64_t)soon_nb * planes * seg;
                    if (k == 0 && 2 * i < nb) vb__expect_store(g, p, r0 + 2 * i, nb - 2 * i < 2 ? nb - 2 * i : 2);
                    if (b < 2) {
                        for (int32_t j = 0; j < per_step; j++) _mm_prefetch(next + j * 64, _MM_HINT_T1);
                        next += per_step * 64;
                    }
                    sc.at = vb__qslice_scales(&s, i);
                    chain(16, planes, &sc, products + done * (planes * TILE), dd, sums, nb, NULL, 0, acc);
                    done = (done + 1) & (RING - 1);
                    dd += 2 * nb;
                    sums += nb;
                }
                add_slice(16, k == 0, acc, total + (int64_t)r0 * VB_PANEL);
            }
#undef NEXT_PRODUCT
        }
        int32_t held = (p - p0) % VB_SPAN + 1;
        if (held == VB_SPAN || p + 1 == p1) store_panels(g, p + 1 - held, held, totals, panel_total);
    }
}

/* ---- entry --------------------------------------------------------------------------------------------------- */

#define STREAM(R, planes, seg, bits)                                                                         \
    static __attribute__((noinline)) void stream_##R##_##planes##_##seg##_##bits(VB_LINEAR_Q_ARGS) {         \
        stream(R, planes, seg, bits, g, p0, p1);                                                             \
    }
#define BLOCKS(planes, seg, bits)                                                                            \
    static __attribute__((noinline)) void blocks_##planes##_##seg##_##bits(VB_LINEAR_Q_ARGS) {               \
        blocks(planes, seg, bits, g, p0, p1);                                                                \
    }
#define EACH(planes, seg, bits)                                                                              \
    STREAM(4, planes, seg, bits)                                                                             \
    STREAM(8, planes, seg, bits)                                                                             \
    STREAM(12, planes, seg, bits)                                                                            \
    STREAM(16, planes, seg, bits)                                                                            \
    BLOCKS(planes, seg, bits)
EACH(1, 32, 4)
EACH(1, 32, 8)
EACH(1, 64, 4)
EACH(1, 64, 8)
EACH(2, 32, 4)
EACH(2, 32, 8)
EACH(2, 64, 4)
EACH(2, 64, 8)
#define OF(planes, seg, bits)                                                                                \
    {stream_4_##planes##_##seg##_##bits, stream_8_##planes##_##seg##_##bits, stream_12_##planes##_##seg##_##bits, \
     stream_16_##planes##_##seg##_##bits, blocks_##planes##_##seg##_##bits}

void vb__linear_q_amx(VB_LINEAR_Q_ARGS) {
    static vb__linear_q_fn *const fn[2][2][2][5] = {
        {{OF(1, 32, 4), OF(1, 32, 8)}, {OF(1, 64, 4), OF(1, 64, 8)}},
        {{OF(2, 32, 4), OF(2, 32, 8)}, {OF(2, 64, 4), OF(2, 64, 8)}},
    };
    int32_t rows = g->x->rows, seg = g->x->seg, planes = g->x->planes;
    if (rows * planes < LEAST_ROWS || seg < 32) {
        vb__linear_q_avx512(g, p0, p1);
        return;
    }
    configure(rows < VB_ROW_BLOCK ? rows : VB_ROW_BLOCK, seg);
    fn[planes - 1][seg == 64][g->w->code_bits == 8][rows > VB_ROW_BLOCK ? 4 : (rows - 1) / 4](g, p0, p1);
    vb__tile_release();
}
