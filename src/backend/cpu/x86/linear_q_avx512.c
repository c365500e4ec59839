/* linear_q, AVX-512 with VNNI. Contract and layout: ops/linear_q.h.
 * A zmm holds four k-values of a panel's 16 outputs and vpdpbusd adds their products with four activations that are
 * broadcast from memory. Two panels share each broadcast: the core multiplies twice a cycle from registers, but only
 * about 1.6 times when every product brings a broadcast of its own.
 *   Rows go in groups of up to 8 int8 rows: the 16 sums of a segment stay in registers, nibbles become operands in
 * registers, and the float chains lie in L1. Products and stream overlap only if the lines are asked for one by one and
 * evenly, so every few products ask for a line of the part that comes next. Fewer than 4 rows are computed as 4: the
 * stream of weights is all that matters there, and it flows best this way.
 *   Many rows read a slice of two panels that was unpacked to L1 once, with scales as f32, and the results of one block of
 * rows are written while the next block is computed: their lines come from far away. */
#include "backend/cpu/x86/linear_avx512.h"

/* Activations lie in groups of 32 or 64 a row; a segment of 16 is half of one. */
#define WIDTH(seg) ((seg) < 32 ? 32 : (seg))

enum {
    GROUP = 8, /* int8 rows at most whose sums are held together */
    SOON = 4 * 64, /* k-values of the stream between asking and use */
    CHAINS = 2 * GROUP * VB_PANEL, /* floats of one group's chains */
    TOTALS = VB_ROW_BLOCK / (GROUP / 2) * CHAINS, /* floats at which the totals start in scratch */
    MANY = 96, /* int8 rows from which a slice is unpacked first */
    SLICE_BYTES = VB_SLICE * VB_PANEL, /* of a panel's unpacked slice */
    CODES_AT = 144 << 10, /* in scratch, bytes: two unpacked slices, then their scales */
    SCALES_AT = CODES_AT + 2 * SLICE_BYTES,
    SOON_ROWS = 5 /* between asking for a row of results and storing it */
};

/* Segments begin .. end-1 of NP panels for some blocks of equally many rows. A block goes in groups that are computed
 * with the same number of rows; what the last group computes beyond the block is not kept. */
typedef struct work {
    const vb__qslice *s; /* of the first slice */
    int64_t panel;       /* bytes from the first panel to the second */
    int32_t begin, end;
    int32_t nb, groups, blocks;
    const int8_t *a; /* activations, factors and sums of the first block in segment `begin`; bytes to the next block */
    const float *dd;
    const int32_t *sums;
    int64_t a_block, dd_block, sums_block;
    /* What comes next: in segment i the groups of the first block ask for the lines of segment i + ahead, those of odd
     * number for the second panel's; a group that is alone asks for both. Behind the last of `segs` segments `then` follows.
     * With no `then`, and in the other blocks, they ask for the activations of the next block. */
    const uint8_t *panel0, *then;
    int32_t ahead, segs;
    int64_t seg_bytes;
    float *y;      /* where the first block's results of these panels will be stored */
    int64_t ys;
    float *chains; /* [group][panel][row][16] */
    float *total;  /* [panel][row][16], panels panel_total apart, rows in excess of a block's kept free */
    int64_t panel_total;
} work;

/* The sums of a segment start at what the codes' offset takes away; with two planes that is the lower one's. */
VB_INLINE void start(int NP, int Q, int planes, int32_t offset, const int32_t *sums, __m512i *dot) {
    if (__builtin_expect(offset == 0, 1)) {
#pragma GCC unroll 16
        for (int i = 0; i < NP * Q; i++) vb__zero(&dot[i]);
        return;
    }
    int32_t less[GROUP];
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)sums);
    _mm256_storeu_si256((__m256i *)(void *)less, _mm256_mullo_epi32(v, _mm256_set1_epi32(-offset)));
#pragma GCC unroll 16
    for (int i = 0; i < NP * Q; i++) {
        int q = i % Q;
        if (q % planes == planes - 1) vb__bcast4_own(&dot[i], &less[q / planes]);
        else vb__zero(&dot[i]);
    }
}

/* Integer dots of a segment of NP panels for Q int8 rows: dot[p * Q + q]. */
VB_INLINE void products(int NP, int Q, int planes, int seg, int bits, int many, const uint8_t *const *codes,
                        const int8_t *a, const int8_t *a_low, const uint8_t *const *soon, __m512i *dot) {
    const __m512i low = _mm512_set1_epi8(0x0f);
#pragma GCC unroll 8
    for (int k = 0; k < seg; k += 8) {
        __m512i c[2][2];
#pragma GCC unroll 2
        for (int p = 0; p < NP; p++) {
            const uint8_t *at = codes[p] + k * VB_PANEL * bits / 8;
            c[p][0] = _mm512_loadu_si512(at);
            __asm__("" : "+v"(c[p][0])); /* one load, not one for each use */
            if (bits == 4) {
                c[p][1] = _mm512_and_si512(_mm512_srli_epi16(c[p][0], 4), low);
                c[p][0] = _mm512_and_si512(c[p][0], low);
            } else c[p][1] = _mm512_loadu_si512(at + 64);
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            if (many && h == 0) vb__ask(soon[0] + k * 8);
            for (int j = 0; j < bits / 4 && !many; j++) vb__ask(soon[h] + k * 8 * bits / 4 + j * 64);
#pragma GCC unroll 8
            for (int q = 0; q < Q; q++) {
                const int8_t *at = planes == 2 && q & 1 ? a_low : a;
                at += q / planes * WIDTH(seg) + k + 4 * h;
                if (NP == 2) vb__dpbusd_2(&dot[q], &dot[Q + q], c[0][h], c[1][h], at);
                else vb__dpbusd_1(&dot[q], c[0][h], at);
            }
        }
    }
}

/* The float chains of a segment. */
VB_INLINE void chains(int NP, int R, int has_bias, const uint8_t *sp, int64_t panel, int32_t bias_at, vb__scale_kind kind,
                      const float *dd, const float *ds, const __m512i *dot, float *acc) {
#pragma GCC unroll 2
    for (int p = 0; p < NP; p++) {
        __m512 scale = vb__scales16(sp + p * panel, kind), bias = _mm512_setzero_ps();
        if (has_bias) bias = vb__scales16(sp + p * panel + bias_at, kind);
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            float *chain = acc + (p * R + r) * VB_PANEL;
            __m512 v = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[p * R + r]), _mm512_mul_ps(scale, _mm512_set1_ps(dd[r])),
                                       _mm512_load_ps(chain));
            if (has_bias) v = _mm512_fmadd_ps(bias, _mm512_set1_ps(ds[r]), v);
            _mm512_store_ps(chain, v);
        }
    }
}

/* At the end of a slice: the first one's chains are the totals, others are added. */
VB_INLINE void add_slice(int NP, int R, int first, const float *chain, float *total, int64_t panel_total) {
#pragma GCC unroll 16
    for (int i = 0; i < NP * R; i++) {
        float *t = total + i / R * panel_total + i % R * VB_PANEL;
        __m512 v = _mm512_load_ps(chain + i * VB_PANEL);
        _mm512_store_ps(t, first ? v : _mm512_add_ps(_mm512_load_ps(t), v));
    }
}

VB_INLINE void work_rows(int NP, int Q, int planes, int seg, int bits, const work *t) {
    const int R = Q / planes, last = VB_SLICE / seg - 1; /* segment of a slice */
    const vb__qslice *s = t->s;
    const vb__scale_kind kind = s->kind;
    const int32_t offset = s->offset, has_bias = s->has_bias, bias_at = s->scale_seg / 2, groups = t->groups, nb = t->nb;
    const int64_t plane = (int64_t)nb * WIDTH(seg), a_seg = planes * plane;
    for (int32_t b = 0; b < t->blocks; b++) {
        const int8_t *a = t->a + b * t->a_block;
        const float *dd = t->dd + b * t->dd_block;
        const int32_t *sums = t->sums + b * t->sums_block;
        float *y = t->y + b * VB_ROW_BLOCK * t->ys, *total = t->total + b * VB_ROW_BLOCK * VB_PANEL;
        int32_t row = 0;
        for (int32_t i = t->begin; i < t->end; i++) {
            const uint8_t *codes = vb__qslice_codes(s, i), *sp = vb__qslice_scales(s, i);
            const uint8_t *both[2] = {codes, codes + t->panel}, *soon = (const uint8_t *)a + t->a_block;
            int64_t odd = a_seg / 2;
            if (b == 0 && t->then != NULL) {
                soon = i + t->ahead < t->segs ? t->panel0 + (i + t->ahead) * t->seg_bytes
                                              : t->then + (i + t->ahead - t->segs) * t->seg_bytes;
                odd = t->panel;
            }
            for (int32_t g = 0; g < groups; g++) {
                float *chain = t->chains + g * CHAINS;
                const uint8_t *ask[2] = {g & 1 ? soon + odd : soon, g & 1 || groups == 1 ? soon + odd : soon};
                __m512i dot[2 * GROUP];
                if (i <= last && row < nb) {
                    vb__ask_to_write(y + row * t->ys);
                    if (NP == 2) vb__ask_to_write(y + row * t->ys + VB_PANEL);
                    row++;
                }
                if ((i & last) == 0) {
#pragma GCC unroll 16
                    for (int r = 0; r < NP * R; r++) vb__store_zero(chain + r * VB_PANEL);
                }
                start(NP, Q, planes, offset, sums + g * R, dot);
                const int8_t *at = a + g * R * WIDTH(seg);
                products(NP, Q, planes, seg, bits, 0, both, at, at + plane, ask, dot);
                vb__ask(ask[0] + seg * VB_PANEL * bits / 8);
                vb__ask(ask[1] + seg * VB_PANEL * bits / 8);
                if (planes == 2) {
#pragma GCC unroll 8
                    for (int r = 0; r < NP * R; r++)
                        dot[r] = _mm512_add_epi32(_mm512_slli_epi32(dot[2 * r], 8), dot[2 * r + 1]);
                }
                if (has_bias) chains(NP, R, 1, sp, t->panel, bias_at, kind, dd + g * R, dd + nb + g * R, dot, chain);
                else chains(NP, R, 0, sp, t->panel, bias_at, kind, dd + g * R, dd + nb + g * R, dot, chain);
                __asm__ volatile("" : : : "memory"); /* the chains stay where they are: gcc would keep some in registers */
                if ((i & last) == last || i == t->end - 1) {
                    if (i <= last) add_slice(NP, R, 1, chain, total + g * R * VB_PANEL, t->panel_total);
                    else add_slice(NP, R, 0, chain, total + g * R * VB_PANEL, t->panel_total);
                }
            }
            dd += 2 * nb;
            sums += nb;
            a += seg == WIDTH(seg) ? a_seg : i & 1 ? a_seg - seg : seg;
        }
    }
}

typedef void work_fn(const work *t);
#define WORK_FN(NP, planes, seg, bits)                                                                       \
    static __attribute__((noinline)) void work_##NP##_##planes##_##seg##_##bits##_4(const work *t) {         \
        work_rows(NP, 4, planes, seg, bits, t);                                                              \
    }                                                                                                        \
    static __attribute__((noinline)) void work_##NP##_##planes##_##seg##_##bits##_6(const work *t) {         \
        work_rows(NP, 6, planes, seg, bits, t);                                                              \
    }                                                                                                        \
    static __attribute__((noinline)) void work_##NP##_##planes##_##seg##_##bits##_8(const work *t) {         \
        work_rows(NP, 8, planes, seg, bits, t);                                                              \
    }

/* ---- entry --------------------------------------------------------------------------------------------------- */

#define EACH(NP, seg, bits) WORK_FN(NP, 1, seg, bits) WORK_FN(NP, 2, seg, bits)
EACH(1, 16, 4)
EACH(1, 16, 8)
EACH(1, 32, 4)
EACH(1, 32, 8)
EACH(1, 64, 4)
EACH(1, 64, 8)
EACH(2, 16, 4)
EACH(2, 16, 8)
EACH(2, 32, 4)
EACH(2, 32, 8)
EACH(2, 64, 4)
EACH(2, 64, 8)

/* [panels][planes][segment 16, 32, 64][bits 4, 8] */
#define BITS(what, NP, planes, seg, end) {what##_##NP##_##planes##_##seg##_4##end, what##_##NP##_##planes##_##seg##_8##end}
#define SEGS(what, NP, planes, end)                                                                          \
    {BITS(what, NP, planes, 16, end), BITS(what, NP, planes, 32, end), BITS(what, NP, planes, 64, end)}
#define TABLE(what, end)                                                                                     \
    {{SEGS(what, 1, 1, end), SEGS(what, 1, 2, end)}, {SEGS(what, 2, 1, end), SEGS(what, 2, 2, end)}}
static work_fn *const work_of[3][2][2][3][2] = {TABLE(work, _4), TABLE(work, _6), TABLE(work, _8)};

/* NP panels for all rows: one block at once, several slice by slice, which then stays in L1. */
static void all_rows(const vb__linear_q_args *g, int np, int32_t p, float *total, int64_t panel_total) {
    const vb__qpanels *w = g->w;
    const vb__qact *x = g->x;
    const int32_t planes = x->planes, seg = x->seg, segs = w->k / seg, per_slice = VB_SLICE / seg;
    const int32_t full = x->rows / VB_ROW_BLOCK, rest = x->rows % VB_ROW_BLOCK, alone = x->rows <= VB_ROW_BLOCK;
    const uint8_t *panel = w->data + p * w->panel_stride;
    vb__qslice s = vb__qslice_of(w, panel, 0, seg);
    work t = {.s = &s, .panel = w->panel_stride, .panel0 = panel, .segs = segs, .chains = g->scratch, .ys = g->ys,
              .panel_total = panel_total, .ahead = alone ? SOON / seg : per_slice,
              .seg_bytes = w->unit_bytes * seg / w->unit};
    for (int32_t k = 0; k < segs; k = t.end) {
        t.begin = k;
        t.end = alone || k + per_slice > segs ? segs : k + per_slice;
        t.then = panel + np * w->panel_stride;
        for (int32_t r0 = 0; r0 < x->rows; r0 += t.blocks * t.nb) {
            t.blocks = r0 == 0 && full > 0 ? full : 1;
            t.nb = r0 == 0 && full > 0 ? VB_ROW_BLOCK : rest;
            t.groups = (t.nb * planes + GROUP - 1) / GROUP;
            t.a_block = (int64_t)VB_ROW_BLOCK * planes * x->k;
            t.dd_block = (int64_t)VB_ROW_BLOCK * 2 * (x->k / seg);
            t.sums_block = (int64_t)VB_ROW_BLOCK * (x->k / seg);
            t.a = vb__qact_block(x, r0) + (int64_t)k * seg * planes * t.nb;
            t.dd = vb__qact_dd(x, r0) + (int64_t)k * 2 * t.nb;
            t.sums = vb__qact_sums(x, r0) + (int64_t)k * t.nb;
            t.y = g->y + r0 * g->ys + (int64_t)p * VB_PANEL;
            t.total = total + (int64_t)r0 * VB_PANEL;
            int rows = (t.nb + t.groups - 1) / t.groups * planes, size = rows <= 4 ? 0 : rows <= 6 ? 1 : 2;
            work_of[size][np - 1][planes - 1][seg / 32][w->code_bits == 8](&t);
            t.then = NULL;
        }
    }
}

/* ---- many rows ----------------------------------------------------------------------------------------------- */

/* A row of `held` whole panels. */
VB_INLINE void store_row(int held, float *y, const float *bias, const float *residual, const float *total,
                         int64_t panel_total) {
#pragma GCC unroll 4
    for (int i = 0; i < held; i++) {
        __m512 v = _mm512_load_ps(total + i * panel_total);
        if (bias != NULL) v = _mm512_add_ps(v, _mm512_loadu_ps(bias + i * VB_PANEL));
        if (residual != NULL) v = _mm512_add_ps(v, _mm512_loadu_ps(residual + i * VB_PANEL));
        _mm512_storeu_ps(y + i * VB_PANEL, v);
    }
}

/* One slice of NP panels for blocks of equally many rows, from codes unpacked to bytes and scales as f32. */
typedef struct sweep {
    const uint8_t *codes;  /* [panel][k / 4][16][4] */
    const uint8_t *scales; /* [segment][panel][scale, bias][16] */
    int32_t segs, first; /* segments; is this the first slice of k */
    int32_t nb, groups, blocks, has_bias, offset;
    const int8_t *a; /* of the first block in this slice; bytes and so on to the next block */
    const float *dd;
    const int32_t *sums;
    int64_t a_block, dd_block, sums_block;
    /* Packed weights that come next: in each segment a group asks for `lines` lines of each panel, `soon_bytes` in all. */
    const uint8_t *soon;
    int64_t panel, soon_bytes;
    int32_t lines;
    /* Where VB_SPAN panels end with this slice: while a block is computed, the results of the one before go to y. */
    float *y; /* or NULL */
    const float *residual; /* or NULL */
    int64_t ys, rs;
    const float *span; /* totals of all the panels of the span */
    float *chains, *total;
    int64_t panel_total;
} sweep;

/* Results of row r of a span; asks for what a later row needs. r is negative before the first row. */
VB_INLINE void sweep_store(const sweep *t, int32_t r) {
    const int32_t soon = r + SOON_ROWS;
    if (soon >= 0) {
        const float *residual = t->residual == NULL ? NULL : t->residual + soon * t->rs;
#pragma GCC unroll 4
        for (int i = 0; i < VB_SPAN; i++) vb__ask_to_write(t->y + soon * t->ys + i * VB_PANEL);
        for (int i = 0; i < VB_SPAN && residual != NULL; i++) vb__ask((const uint8_t *)(residual + i * VB_PANEL));
        for (int i = 0; i < VB_SPAN / 2; i++)
            vb__ask((const uint8_t *)(t->span + soon * VB_PANEL + i * t->panel_total));
    }
    if (r < 0) return;
    const float *span = t->span + r * VB_PANEL;
    if (t->residual == NULL) store_row(VB_SPAN, t->y + r * t->ys, NULL, NULL, span, t->panel_total);
    else store_row(VB_SPAN, t->y + r * t->ys, NULL, t->residual + r * t->rs, span, t->panel_total);
}

VB_INLINE void sweep_rows(int NP, int planes, int seg, const sweep *t) {
    const int Q = GROUP, R = Q / planes;
    const int32_t groups = t->groups, nb = t->nb, segs = t->segs;
    const int64_t plane = (int64_t)nb * WIDTH(seg), a_seg = planes * plane;
    int64_t asked = 0;
    for (int32_t b = 0; b < t->blocks; b++) {
        const int8_t *a = t->a + b * t->a_block;
        const float *dd = t->dd + b * t->dd_block;
        const int32_t *sums = t->sums + b * t->sums_block;
        float *total = t->total + b * VB_ROW_BLOCK * VB_PANEL;
        /* Of the next block each step asks for its share of the activations, a line of factors and a row of totals. */
        const uint8_t *next_a = (const uint8_t *)(a + t->a_block), *next_dd = (const uint8_t *)(dd + t->dd_block);
        float *next_total = total + VB_ROW_BLOCK * VB_PANEL;
        int32_t row = 0;
        for (int32_t i = 0; i < segs; i++) {
            const uint8_t *both[2] = {t->codes + i * seg * VB_PANEL, t->codes + SLICE_BYTES + i * seg * VB_PANEL};
            const uint8_t *sp = t->scales + i * 256;
            for (int32_t g = 0; g < groups; g++) {
                float *chain = t->chains + g * CHAINS;
                __m512i dot[2 * GROUP];
                if (row < nb) {
                    vb__ask((const uint8_t *)(next_total + row * VB_PANEL));
                    if (NP == 2) vb__ask((const uint8_t *)(next_total + row * VB_PANEL + t->panel_total));
                    if (NP == 2 && t->y != NULL) sweep_store(t, (b - 1) * VB_ROW_BLOCK + row);
                    row++;
                }
                if (asked < t->soon_bytes) {
                    for (int32_t n = 0; n < t->lines; n++, asked += 64) {
                        vb__ask_far(t->soon + asked);
                        if (NP == 2) vb__ask_far(t->soon + t->panel + asked);
                    }
                }
                if (i == 0) {
#pragma GCC unroll 16
                    for (int r = 0; r < NP * R; r++) vb__store_zero(chain + r * VB_PANEL);
                }
                start(NP, Q, planes, t->offset, sums + g * R, dot);
                const int8_t *at = a + g * R * WIDTH(seg);
                products(NP, Q, planes, seg, 8, 1, both, at, at + plane, &next_a, dot);
                vb__ask(next_dd);
                next_a += GROUP * seg;
                next_dd += VB_ROW_BLOCK * 8 / (2 * planes);
                if (planes == 2) {
#pragma GCC unroll 8
                    for (int r = 0; r < NP * R; r++)
                        dot[r] = _mm512_add_epi32(_mm512_slli_epi32(dot[2 * r], 8), dot[2 * r + 1]);
                }
                if (t->has_bias) chains(NP, R, 1, sp, 128, 64, VB_SCALE_F32, dd + g * R, dd + nb + g * R, dot, chain);
                else chains(NP, R, 0, sp, 128, 64, VB_SCALE_F32, dd + g * R, dd + nb + g * R, dot, chain);
                __asm__ volatile("" : : : "memory");
                if (i == segs - 1) {
                    if (t->first) add_slice(NP, R, 1, chain, total + g * R * VB_PANEL, t->panel_total);
                    else add_slice(NP, R, 0, chain, total + g * R * VB_PANEL, t->panel_total);
                }
            }
            dd += 2 * nb;
            sums += nb;
            a += seg == WIDTH(seg) ? a_seg : i & 1 ? a_seg - seg : seg;
        }
    }
}

/* A slice of a panel: nibbles or bytes to bytes at `codes`, scales and biases to f32 at `scales`. */
static void unpack(const vb__qpanels *w, const vb__qslice *s, int64_t panel, int32_t seg, uint8_t *codes, uint8_t *scales) {
    const __m512i low = _mm512_set1_epi8(0x0f);
    for (int32_t i = 0; i < s->segs; i++, scales += 256) {
        const uint8_t *from = vb__qslice_codes(s, i) + panel, *sp = vb__qslice_scales(s, i) + panel;
        _mm512_store_ps(scales, vb__scales16(sp, s->kind));
        if (s->has_bias) _mm512_store_ps(scales + 64, vb__scales16(sp + s->scale_seg / 2, s->kind));
        for (int32_t k = 0; k < seg; k += 8, codes += 128) {
            __m512i v = _mm512_loadu_si512(from), high;
            if (w->code_bits == 4) {
                high = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
                v = _mm512_and_si512(v, low);
                from += 64;
            } else {
                high = _mm512_loadu_si512(from + 64);
                from += 128;
            }
            _mm512_store_si512(codes, v);
            _mm512_store_si512(codes + 64, high);
        }
    }
}

typedef void sweep_fn(const sweep *t);
#define SWEEP_FN(NP, planes, seg)                                                                            \
    static __attribute__((noinline)) void sweep_##NP##_##planes##_##seg(const sweep *t) {                    \
        sweep_rows(NP, planes, seg, t);                                                                      \
    }
#define SWEEP_FNS(NP, planes) SWEEP_FN(NP, planes, 16) SWEEP_FN(NP, planes, 32) SWEEP_FN(NP, planes, 64)
SWEEP_FNS(1, 1)
SWEEP_FNS(1, 2)
SWEEP_FNS(2, 1)
SWEEP_FNS(2, 2)
#define SWEEPS(NP, planes) {sweep_##NP##_##planes##_16, sweep_##NP##_##planes##_32, sweep_##NP##_##planes##_64}
static sweep_fn *const sweep_of[2][2][3] = {{SWEEPS(1, 1), SWEEPS(1, 2)}, {SWEEPS(2, 1), SWEEPS(2, 2)}};

/* NP panels for all rows, slice by slice: the unpacked slice stays in L1. They are the last of `held`, whose totals start
 * at `span`. Returns how many rows of these are already stored. */
static int32_t many_rows(const vb__linear_q_args *g, int np, int32_t p, int32_t held, float *span, int64_t panel_total) {
    const vb__qpanels *w = g->w;
    const vb__qact *x = g->x;
    const int32_t planes = x->planes, seg = x->seg, all_segs = x->k / seg;
    const int32_t full = x->rows / VB_ROW_BLOCK, rest = x->rows % VB_ROW_BLOCK;
    const uint8_t *panel = w->data + p * w->panel_stride;
    uint8_t *codes = (uint8_t *)g->scratch + CODES_AT, *scales = (uint8_t *)g->scratch + SCALES_AT;
    sweep t = {.codes = codes, .scales = scales, .panel = w->panel_stride, .has_bias = w->has_bias, .offset = w->offset,
               .a_block = (int64_t)VB_ROW_BLOCK * planes * x->k, .dd_block = (int64_t)VB_ROW_BLOCK * 2 * all_segs,
               .sums_block = (int64_t)VB_ROW_BLOCK * all_segs, .ys = g->ys, .rs = g->rs, .span = span, .chains = g->scratch,
               .panel_total = panel_total};
    int32_t stored = 0;
    for (int32_t k = 0; k < w->k; k += VB_SLICE) {
        vb__qslice s = vb__qslice_of(w, panel, k, seg);
        for (int i = 0; i < np; i++)
            unpack(w, &s, i * w->panel_stride, seg, codes + i * SLICE_BYTES, scales + i * 128);
        t.segs = s.segs;
        t.first = k == 0;
        int32_t left = w->k - k - VB_SLICE, ahead = left <= 0 || left > VB_SLICE ? VB_SLICE : left;
        if (ahead > w->k) ahead = w->k;
        t.soon = left > 0 ? panel + (int64_t)(k + VB_SLICE) / w->unit * w->unit_bytes : panel + np * w->panel_stride;
        t.soon_bytes = (int64_t)ahead * w->unit_bytes / w->unit;
        t.groups = VB_ROW_BLOCK * planes / GROUP;
        t.lines = (int32_t)(t.soon_bytes / 64 / (full * t.groups * t.segs)) + 1;
        for (int32_t r0 = 0; r0 < x->rows; r0 += t.blocks * t.nb) {
            t.blocks = r0 == 0 && full > 0 ? full : 1;
            t.nb = r0 == 0 && full > 0 ? VB_ROW_BLOCK : rest;
            t.groups = (t.nb * planes + GROUP - 1) / GROUP;
            t.a = vb__qact_block(x, r0) + (int64_t)k * planes * t.nb;
            t.dd = vb__qact_dd(x, r0) + (int64_t)k / seg * 2 * t.nb;
            t.sums = vb__qact_sums(x, r0) + (int64_t)k / seg * t.nb;
            t.total = span + (held - np) * panel_total + (int64_t)r0 * VB_PANEL;
            int64_t o = (int64_t)(p + np - held) * VB_PANEL;
            t.y = NULL;
            if (r0 == 0 && left <= 0 && held == VB_SPAN && o + VB_SPAN * VB_PANEL <= w->n && g->bias == NULL &&
                t.segs * t.groups >= VB_ROW_BLOCK) {
                t.y = g->y + o;
                t.residual = g->residual == NULL ? NULL : g->residual + o;
                stored = (full - 1) * VB_ROW_BLOCK;
            }
            sweep_of[np - 1][planes - 1][seg / 32](&t);
            t.soon_bytes = 0;
        }
    }
    return stored;
}

/* The results of `held` panels from p on, from row r on. */
static void store(const vb__linear_q_args *g, int32_t p, int32_t held, int32_t r, const float *totals, int64_t panel_total) {
    const int32_t o = p * VB_PANEL, whole = held == VB_SPAN && o + VB_SPAN * VB_PANEL <= g->w->n;
    for (totals += r * VB_PANEL; r < g->x->rows; r++, totals += VB_PANEL) {
        float *y = g->y + r * g->ys;
        const float *residual = g->residual == NULL ? NULL : g->residual + r * g->rs;
        if (whole && g->bias == NULL && residual == NULL) store_row(VB_SPAN, y + o, NULL, NULL, totals, panel_total);
        else if (whole && g->bias == NULL) store_row(VB_SPAN, y + o, NULL, residual + o, totals, panel_total);
        else
            for (int32_t i = 0; i < held; i++)
                vb__panel_store(y, o + i * VB_PANEL, g->w->n, g->bias, residual, _mm512_load_ps(totals + i * panel_total));
    }
}

void vb__linear_q_avx512(VB_LINEAR_Q_ARGS) {
    const int64_t panel_total = (int64_t)(g->x->rows + GROUP) * VB_PANEL;
    float *totals = (float *)g->scratch + TOTALS;
    for (int32_t p = p0, np; p < p1; p += np) {
        np = p1 - p < 2 ? 1 : 2;
        int32_t held = (p - p0) % VB_SPAN + np, stored = 0;
        if (g->x->rows * g->x->planes >= MANY) stored = many_rows(g, np, p, held, totals, panel_total);
        else all_rows(g, np, p, totals + (held - np) * panel_total, panel_total);
        if (held == VB_SPAN || p + np >= p1) store(g, p + np - held, held, stored, totals, panel_total);
    }
}
