/* linear_q, AMX int8. Contract and layout: ops/linear_q.h.
 * Nibbles are unpacked to bytes in L1; 16 vectors of them are a B tile of 64 k-values, up to 16 rows of quantised input
 * are an A tile, and their product is the integer dot of a segment: rows x 16 outputs. The float chain takes one vector
 * a row. The tile unit answers late (about 130 cycles from load to stored product), so products run AHEAD segments
 * before their chain. Few rows are faster without tiles and go to AVX-512.
 *
 * While tiles are in use (and for some 290 cycles after), the multiplier of port 5 is off for zmm: mul, fma, conversions
 * and shifts share port 0, 64 of them a segment of 16 rows. Only additions and logic still use both. So integers become
 * floats by two additions and high nibbles by one affine step, and a step deals out its kinds of work evenly. */
#include "backend/cpu/x86/amx.h"
#include "backend/cpu/x86/linear_avx512.h"

enum {
    LEAST_ROWS = 4, /* int8 rows from which tiles pay */
    AHEAD = 3,      /* segments between a product and its chain */
    SOON = 3,       /* segments from asking for the input of a product to it: the stream of weights pushes input out of L1 */
    EARLY = 3,      /* segments between unpacking and product: a tile load waits until the stores have left the core */
    RING = 4,       /* slots of unpacked segments, and of products; AHEAD + 1 and EARLY + 1 at least. L1 is small. */
    TILE = 1024,    /* bytes of a tile */
    SLICE_BYTES = VB_SLICE * VB_PANEL,
    L1_INPUT = 20 << 10, /* bytes of quantised input that stay in L1 beside the rest */
    /* Parts of scratch: unpacked codes, products on their way (two tiles a segment with 16-bit activations), totals. */
    PRODUCTS_AT = SLICE_BYTES,
    TOTALS_AT = PRODUCTS_AT + RING * 2 * TILE,
    PLACES_AT = TOTALS_AT + VB_SPAN * TILE, /* when there is one block of rows */
    MOST_PLACES = 8192
};

static void configure(int32_t rows, int32_t seg) {
    vb__tile_config c = {.palette = 1};
    for (int t = 0; t < 3; t++) { /* 0: product, 1: A, 2: B */
        c.rows[t] = (uint8_t)(t == 2 ? seg / 4 : rows);
        c.row_bytes[t] = (uint16_t)(t == 1 ? seg : 64);
    }
    vb__tile_load_config(&c);
}

/* Eight k-values of nibbles to bytes. The matrix moves the high half of each byte down. */
VB_INLINE void unpack8(const uint8_t *from, uint8_t *to) {
    __m512i v = _mm512_loadu_si512(from);
    _mm512_store_si512(to, _mm512_and_si512(v, _mm512_set1_epi8(0x0f)));
    _mm512_store_si512(to + 64, _mm512_gf2p8affine_epi64_epi8(v, _mm512_set1_epi64(0x1020408000000000), 0));
}
VB_INLINE void unpack(int seg, const uint8_t *from, uint8_t *to) {
#pragma GCC unroll 8
    for (int k = 0; k < seg; k += 8) unpack8(from + k * 8, to + k * 16);
}

/* Product of one segment; tiles are renamed, so that three names are enough for many in flight. */
VB_INLINE void multiply(int seg, const uint8_t *codes, const int8_t *a) {
    VB_TILE_LOAD(2, codes, 64);
    VB_TILE_LOAD(1, a, seg);
    VB_TILE_ZERO(0);
    VB_TILE_DPBSUD(0, 1, 2);
}
VB_INLINE void multiply_low(int planes, int seg, const int8_t *a, int64_t plane, uint8_t *to) {
    VB_TILE_STORE(0, to, 64);
    if (planes != 2) return;
    VB_TILE_LOAD(1, a + plane, seg);
    VB_TILE_ZERO(0);
    VB_TILE_DPBSUD(0, 1, 2);
    VB_TILE_STORE(0, to + TILE, 64);
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

/* What one step does: unpack a segment, multiply an earlier one, and add a still earlier one to the float chains. */
typedef struct step {
    const uint8_t *packed; /* nibbles to unpack, if any */
    uint8_t *unpacked;
    const uint8_t *codes; /* to multiply, NULL for none */
    const int8_t *a;
    int64_t plane;
    uint8_t *to;
    uint8_t *product; /* to add */
    const float *dd;
    const int32_t *sums;
    int32_t nb;
    const uint8_t *far, *near; /* lines to ask for into L2 and L1, if any */
    const uint8_t *input;      /* and of the input of a coming segment, which the stream of weights pushes out of L1 */
} step;

/* (float)v of 16 dots. With 8-bit activations |v| < 2^22, so 1.5 * 2^23 + v is a float whose last bits are v: two
 * additions instead of a conversion. */
VB_INLINE __m512 to_float(int planes, const uint8_t *product) {
    __m512i v = _mm512_load_si512(product);
    if (planes == 2)
        return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(v, 8), _mm512_load_si512(product + TILE)));
    v = _mm512_add_epi32(v, _mm512_set1_epi32(0x4b400000));
    return _mm512_sub_ps(_mm512_castsi512_ps(v), _mm512_set1_ps(12582912.0f));
}

/* The line is asked for at this place of the code, and not with all the others at once: many fill the line buffers, and
 * what finds none free stops the core. */
#define ASK(hint, p, v) __asm__ volatile("prefetch" hint " %1" : "+v"(v) : "m"(*(const uint8_t(*)[64])(p)))
#define PIN(v) __asm__ volatile("" : "+v"(v))

VB_INLINE void run_step(int R, int planes, int seg, int has_bias, int unpacks, int far_lines, int near_lines, int input_lines,
                        const step *t, const scales *s, __m512 *acc) {
    const int parts = unpacks ? seg / 8 : 0;
    /* With two planes the sum belongs to 256 * hi + lo, so that taking it from lo is enough. */
    if (__builtin_expect(s->offset != 0, 0))
        take_offset(s->offset, (int32_t *)(void *)(t->product + (planes == 2 ? TILE : 0)), t->sums, t->nb);
    if (t->codes != NULL) multiply(seg, t->codes, t->a);
    __m512 scale = vb__scales16(s->at, s->kind), bias = scale;
    if (has_bias) bias = vb__scales16(s->at + s->half, s->kind);
    const float *ds = t->dd + t->nb;
    __asm__("" : "+r"(ds)); /* one pointer instead of R offsets from dd */
#pragma GCC unroll 16
    for (int r = 0; r < R; r++) {
        if (r == R - 1 && t->codes != NULL) multiply_low(planes, seg, t->a, t->plane, t->to);
#pragma GCC unroll 8
        for (int i = r * parts / R; i < (r + 1) * parts / R; i++) unpack8(t->packed + i * 64, t->unpacked + i * 128);
        acc[r] = _mm512_fmadd_ps(to_float(planes, t->product + 64 * r), _mm512_mul_ps(scale, _mm512_set1_ps(t->dd[r])), acc[r]);
        if (has_bias) acc[r] = _mm512_fmadd_ps(bias, _mm512_set1_ps(ds[r]), acc[r]);
        PIN(acc[r]);
#pragma GCC unroll 8
        for (int i = r * far_lines / R; i < (r + 1) * far_lines / R; i++) ASK("t1", t->far + i * 64, acc[r]);
#pragma GCC unroll 8
        for (int i = r * near_lines / R; i < (r + 1) * near_lines / R; i++) ASK("t0", t->near + i * 64, acc[r]);
#pragma GCC unroll 8
        for (int i = r * input_lines / R; i < (r + 1) * input_lines / R; i++) ASK("t0", t->input + i * 64, acc[r]);
    }
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

/* Where the parts of a segment lie. */
typedef struct place {
    int32_t codes, scales; /* bytes from the group of panels */
    int32_t a, dd;         /* bytes and floats from the first activation */
} place;

/* Segments that a stream knows in advance: those it reads, and those it asks for. */
#define FAR(bytes) (2 * VB_FAR / (bytes)) /* four places of memory at a time need more than one */
#define NEAR(bytes) (VB_NEAR / (bytes))
#define LOOK(bytes) (AHEAD + EARLY + FAR(bytes))

/* The segments of a group of panels in the order of work, slice after slice and in it panel after panel: what a slice
 * needs of the input then stays in L1. They run on into the next groups; what is read there behind the last panel, the
 * first few segments of it, is never used. */
static void make_places(const vb__linear_q_args *g, int32_t seg, int32_t group, int32_t look, place *places) {
    const vb__qpanels *w = g->w;
    const int32_t segs = w->k / seg, per_slice = VB_SLICE / seg, nb = g->x->rows, a_step = nb * seg * g->x->planes;
    const int32_t seg_bytes = seg * VB_PANEL * w->code_bits / 8, stride = (int32_t)w->panel_stride;
    const int32_t two = w->unit > seg, shared = w->group > seg; /* segments of a unit; of its scales */
    place *at = places, *end = places + group * segs + look;
    for (int32_t from = 0; at < end; from += group * stride)
        for (int32_t k0 = 0; k0 < segs; k0 += per_slice)
            for (int32_t p = 0, panel = from; p < group; p++, panel += stride)
                for (int32_t k = k0; k < segs && k < k0 + per_slice && at < end; k++, at++) {
                    int32_t unit = panel + (k >> two) * w->unit_bytes, in = k & two;
                    at->codes = unit + in * seg_bytes;
                    at->scales = unit + w->codes_bytes + (in >> shared) * w->scale_stride;
                    at->a = k * a_step;
                    at->dd = k * 2 * nb;
                }
}

/* Panels p0 .. p1-1, a multiple of `group`. */
VB_INLINE void stream(int R, int planes, int seg, int bits, const vb__linear_q_args *g, int32_t p0, int32_t p1,
                      int32_t group) {
    const int LINES = seg * VB_PANEL * bits / 8 / 64 + 1, FIRST = AHEAD + (bits == 4 ? EARLY : 0);
    const vb__qpanels *w = g->w;
    uint8_t *bytes = g->scratch, *products = bytes + PRODUCTS_AT;
    float *totals = (float *)(void *)(bytes + TOTALS_AT);
    place *places = (place *)(void *)(bytes + PLACES_AT);
    const int32_t nb = g->x->rows, segs = w->k / seg;
    const uint32_t code_slot = (uint32_t)seg * VB_PANEL, product_slot = (uint32_t)planes * TILE;
    const int8_t *a = vb__qact_block(g->x, 0);
    const float *dd = vb__qact_dd(g->x, 0);
    const int32_t *sums = vb__qact_sums(g->x, 0);
    const uint8_t *panel = w->data + p0 * w->panel_stride;
    scales s = {.kind = w->scale_kind, .has_bias = w->has_bias, .half = w->scale_stride / 2, .offset = w->offset};
    step t = {.nb = nb, .plane = (int64_t)nb * seg};
    make_places(g, seg, group, LOOK(LINES * 64), places);
    if (bits == 4)
        for (int i = 0; i < EARLY; i++) unpack(seg, panel + places[i].codes, bytes + (uint32_t)i * code_slot);
    /* The product of segment `at`, which is the n-th of all in the rings. */
#define NEXT_PRODUCT(n, at)                                                                                  \
    do {                                                                                                     \
        t.codes = bits == 4 ? bytes + ((n) & (RING - 1)) * code_slot : panel + (at)->codes;                  \
        t.a = a + (at)->a;                                                                                   \
        t.to = products + ((n) & (RING - 1)) * product_slot;                                                 \
        if (bits == 4) {                                                                                     \
            t.packed = panel + (at)[EARLY].codes;                                                            \
            t.unpacked = bytes + (((n) + EARLY) & (RING - 1)) * code_slot;                                   \
        }                                                                                                    \
    } while (0)
    for (uint32_t i = 0; i < AHEAD; i++) {
        NEXT_PRODUCT(i, places + i);
        if (bits == 4) unpack(seg, t.packed, t.unpacked);
        multiply(seg, t.codes, t.a);
        multiply_low(planes, seg, t.a, t.plane, t.to);
    }
    uint32_t done = 0; /* segments added */
    for (int32_t p = p0; p < p1; p += group, panel += group * w->panel_stride) {
        const place *at = places;
        for (int32_t first = 0; first < segs; first += VB_SLICE / seg) {
            int32_t some = VB_SLICE / seg < segs - first ? VB_SLICE / seg : segs - first;
            for (int32_t i = 0; i < group; i++) {
                __m512 acc[16];
#pragma GCC unroll 16
                for (int r = 0; r < R; r++) acc[r] = _mm512_setzero_ps();
                for (const place *end = at + some; at < end; at++, done++) {
                    NEXT_PRODUCT(done + AHEAD, at + AHEAD);
                    t.far = panel + at[FIRST + FAR(LINES * 64)].codes;
                    t.near = panel + at[FIRST + NEAR(LINES * 64)].codes;
                    t.input = (const uint8_t *)a + at[AHEAD + SOON].a;
                    t.product = products + (done & (RING - 1)) * product_slot;
                    t.dd = dd + at->dd;
                    t.sums = sums + at->dd / 2;
                    s.at = panel + at->scales;
                    if (s.has_bias) run_step(R, planes, seg, 1, bits == 4, LINES, LINES, R * planes * seg / 64, &t, &s, acc);
                    else run_step(R, planes, seg, 0, bits == 4, LINES, LINES, R * planes * seg / 64, &t, &s, acc);
                }
                add_slice(R, first == 0, acc, totals + i * (TILE / 4));
            }
        }
        store_panels(g, p, group, totals, TILE / 4);
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
            step t = {0};
#define NEXT_PRODUCT()                                                                                       \
    do {                                                                                                     \
        t.codes = NULL;                                                                                      \
        if (ahead_block < n_blocks) {                                                                        \
            t.codes = vb__qslice_codes(&s, ahead_seg);                                                       \
            t.a = a;                                                                                         \
            t.plane = (int64_t)ahead_nb * seg;                                                               \
            t.to = products + at * (planes * TILE);                                                          \
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
            for (int i = 0; i < AHEAD; i++) {
                NEXT_PRODUCT();
                if (t.codes == NULL) break; /* a short slice has fewer */
                multiply(seg, t.codes, t.a);
                multiply_low(planes, seg, t.a, t.plane, t.to);
            }
            int32_t done = 0;
            for (int32_t b = 0; b < n_blocks; b++) {
                int32_t r0 = b * VB_ROW_BLOCK, nb = vb__row_block(x->rows, r0);
                t.nb = nb;
                t.dd = vb__qact_dd(x, r0) + (int64_t)(k / seg) * 2 * nb;
                t.sums = vb__qact_sums(x, r0) + (int64_t)(k / seg) * nb;
                /* The input lies in L2; tile loads do not wake the prefetch from there, so the next block is asked for. */
                int32_t soon_r0 = b + 1 < n_blocks ? r0 + VB_ROW_BLOCK : r0, soon_nb = vb__row_block(x->rows, soon_r0);
                t.near = (const uint8_t *)vb__qact_block(x, soon_r0) + (int64_t)k * planes * soon_nb;
                __m512 acc[16];
#pragma GCC unroll 16
                for (int r = 0; r < 16; r++) acc[r] = _mm512_setzero_ps();
                for (int32_t i = 0; i < s.segs; i++) {
                    NEXT_PRODUCT();
                    if (k == 0 && 2 * i < nb) vb__expect_store(g, p, r0 + 2 * i, nb - 2 * i < 2 ? nb - 2 * i : 2);
                    if (b < 2) {
                        for (int32_t j = 0; j < per_step; j++) _mm_prefetch(next + j * 64, _MM_HINT_T1);
                        next += per_step * 64;
                    }
                    sc.at = vb__qslice_scales(&s, i);
                    t.product = products + done * (planes * TILE);
                    if (sc.has_bias) run_step(16, planes, seg, 1, 0, 0, 16 * planes * seg / 64, 0, &t, &sc, acc);
                    else run_step(16, planes, seg, 0, 0, 0, 16 * planes * seg / 64, 0, &t, &sc, acc);
                    t.near += (int64_t)soon_nb * planes * seg;
                    done = (done + 1) & (RING - 1);
                    t.dd += 2 * nb;
                    t.sums += nb;
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
        int32_t group = g->x->rows * g->w->k * planes > L1_INPUT ? VB_SPAN : 1;                               \
        int32_t whole = (p1 - p0) / group * group;                                                           \
        if (whole > 0) stream(R, planes, seg, bits, g, p0, p0 + whole, group);                               \
        if (p0 + whole < p1) stream(R, planes, seg, bits, g, p0 + whole, p1, p1 - p0 - whole);               \
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
    int32_t few = rows <= VB_ROW_BLOCK && VB_SPAN * (g->w->k / seg) + LOOK(64) <= MOST_PLACES;
    fn[planes - 1][seg == 64][g->w->code_bits == 8][few ? (rows - 1) / 4 : 4](g, p0, p1);
    vb__tile_release();
}
