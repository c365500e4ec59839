/* linear_q, AVX-512 with VNNI. Contract and layout: ops/linear_q.h.
 * A zmm holds four k-values of a panel's 16 outputs and vpdpbusd adds their products with four activations that are
 * broadcast from memory. Two panels share each broadcast: the core multiplies twice a cycle from registers, but only
 * about 1.6 times when every product brings a broadcast of its own.
 *   Rows go in groups of up to 8 int8 rows: the 16 sums of a segment stay in registers, nibbles become operands in
 * registers, and the float chains lie in L1. Products and stream overlap only if the lines are asked for one by one and
 * evenly, so every few products ask for a line of the part that comes next. Fewer than 4 rows are computed as 4: the
 * stream of weights is all that matters there, and it flows best this way. */
#include "backend/cpu/x86/linear_avx512.h"

/* Activations lie in groups of 32 or 64 a row; a segment of 16 is half of one. */
#define WIDTH(seg) ((seg) < 32 ? 32 : (seg))

enum {
    GROUP = 8, /* int8 rows at most whose sums are held together */
    SOON = 4 * 64, /* k-values of the stream between asking and use */
    CHAINS = 2 * GROUP * VB_PANEL, /* floats of one group's chains */
    TOTALS = VB_ROW_BLOCK / (GROUP / 2) * CHAINS /* floats at which the totals start in scratch */
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
VB_INLINE void products(int NP, int Q, int planes, int seg, int bits, const uint8_t *const *codes, const int8_t *a,
                        const int8_t *a_low, const uint8_t *const *soon, __m512i *dot) {
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
            for (int j = 0; j < bits / 4; j++) vb__ask(soon[h] + k * 8 * bits / 4 + j * 64);
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
                products(NP, Q, planes, seg, bits, both, at, at + plane, ask, dot);
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

/* The results of `held` panels from p on. */
static void store(const vb__linear_q_args *g, int32_t p, int32_t held, const float *totals, int64_t panel_total) {
    const int32_t o = p * VB_PANEL, whole = held == VB_SPAN && o + VB_SPAN * VB_PANEL <= g->w->n;
    for (int32_t r = 0; r < g->x->rows; r++, totals += VB_PANEL) {
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
        float *total = totals + (p - p0) % VB_SPAN * panel_total;
        all_rows(g, np, p, total, panel_total);
        int32_t held = (p - p0) % VB_SPAN + np;
        if (held == VB_SPAN || p + np >= p1) store(g, p + np - held, held, totals, panel_total);
    }
}
