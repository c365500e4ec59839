/* linear_q, AVX-512 with VNNI. Contract and layout: ops/linear_q.h.
 * A zmm holds four k-values of a panel's 16 outputs and vpdpbusd adds their products with four activations that are
 * broadcast from memory. Loads are the narrow place, so two panels share each broadcast. Few rows multiply nibbles where
 * they lie: the high ones in place, 16 times too large, and shifted back as a sum. More rows first unpack a slice to
 * bytes in L1, once for all of them. */
#include "backend/cpu/x86/linear_avx512.h"

/* Rows of one block: activations of int8 row i at a + i * step, the next segment a_seg further. */
typedef struct block {
    const int8_t *a;
    const float *dd;
    const int32_t *sums;
    int64_t a_seg, plane; /* bytes to the next activation group; from the hi plane to the lo plane */
    int32_t nb;
    /* The packed bytes of the next slice, asked for bit by bit while this one is multiplied: two panels. */
    const uint8_t *next[2];
    int32_t next_lines, lines_per_step; /* 0: nothing to fetch */
} block;

/* Activations lie in groups of 32 or 64 a row; a segment of 16 is half of one. */
#define WIDTH(seg) ((seg) < 32 ? 32 : (seg))

enum { GROUP = 6, FEW = 3 }; /* int8 rows that share a pass over bytes, over nibbles */

/* Integer dots of one segment of NP panels for `rows` int8 rows: dot[p * rows + r]. */
VB_INLINE void dots(int NP, int rows, int planes, int seg, int bits, const uint8_t *codes, int64_t panel,
                    const int8_t *a, const int8_t *a_low, __m512i *dot) {
    const __m512i low = _mm512_set1_epi8(0x0f), high = _mm512_set1_epi8((char)0xf0);
    /* A base of its own for each panel: else gcc keeps the sums of base, stride and constant, one for every k, in vector
     * registers, and the moves back take the multiplier's port. */
    const uint8_t *base[2] = {codes, codes + panel};
    __asm__("" : "+r"(base[0]), "+r"(base[1]));
    __m512i odd[2 * FEW];
#pragma GCC unroll 12
    for (int i = 0; i < NP * rows; i++) {
        dot[i] = _mm512_setzero_si512();
        if (bits == 4) odd[i] = _mm512_setzero_si512();
    }
#pragma GCC unroll 16
    for (int k = 0; k < seg; k += bits == 4 ? 8 : 4) {
        __m512i c0[2], c1[2];
#pragma GCC unroll 2
        for (int p = 0; p < NP; p++) {
            c0[p] = _mm512_loadu_si512(base[p] + k * VB_PANEL * bits / 8);
            if (bits == 4) {
                c1[p] = _mm512_and_si512(c0[p], high);
                c0[p] = _mm512_and_si512(c0[p], low);
            }
        }
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const int8_t *at = planes == 2 && r & 1 ? a_low + r / 2 * WIDTH(seg) + k : a + r / planes * WIDTH(seg) + k;
            __m512i x = vb__bcast4(at);
#pragma GCC unroll 2
            for (int p = 0; p < NP; p++) dot[p * rows + r] = _mm512_dpbusd_epi32(dot[p * rows + r], c0[p], x);
            if (bits != 4) continue;
            x = vb__bcast4(at + 4);
#pragma GCC unroll 2
            for (int p = 0; p < NP; p++) odd[p * rows + r] = _mm512_dpbusd_epi32(odd[p * rows + r], c1[p], x);
        }
    }
    if (bits == 4) {
#pragma GCC unroll 12
        for (int i = 0; i < NP * rows; i++) dot[i] = _mm512_add_epi32(dot[i], _mm512_srai_epi32(odd[i], 4));
    }
}

/* Asks for what the stream of weights needs soon. */
VB_INLINE void fetch(int NP, int seg, int bits, const uint8_t *codes, int64_t panel_codes, const uint8_t *scales,
                     int64_t panel_scales) {
#pragma GCC unroll 2
    for (int p = 0; p < NP; p++) {
#pragma GCC unroll 16
        for (int i = 0; i < seg * VB_PANEL * bits / 8; i += 64)
            _mm_prefetch(codes + p * panel_codes + i + VB_AHEAD, _MM_HINT_T0);
        _mm_prefetch(scales + p * panel_scales + VB_AHEAD, _MM_HINT_T0);
    }
}

/* One slice of NP panels (the second `codes`, `scales` bytes after the first) for R rows from r0 on; the chains end in
 * total[panel][row][16], panels `rows` rows apart. */
VB_INLINE void slice_rows(int NP, int R, int planes, int seg, int bits, const vb__qslice *s, int64_t panel_codes,
                          int64_t panel_scales, block *b, int32_t r0, int first, int ahead, float *total,
                          int64_t panel_total) {
    __m512 acc[2 * GROUP];
#pragma GCC unroll 12
    for (int i = 0; i < NP * R; i++) acc[i] = _mm512_setzero_ps();
    const int8_t *a = b->a + r0 * WIDTH(seg), *a_low = a + b->plane;
    const float *dd = b->dd + r0, *ds = dd + b->nb;
    const int32_t *sums = b->sums + r0;
    for (int32_t i = 0; i < s->segs; i++) {
        __m512i dot[2 * GROUP];
        const uint8_t *sp = vb__qslice_scales(s, i);
        if (bits == 8 && b->next_lines > 0) {
            for (int32_t j = 0; j < b->lines_per_step; j++) {
                _mm_prefetch(b->next[0] + j * 64, _MM_HINT_T1);
                _mm_prefetch(b->next[1] + j * 64, _MM_HINT_T1);
            }
            b->next[0] += b->lines_per_step * 64;
            b->next[1] += b->lines_per_step * 64;
            b->next_lines -= b->lines_per_step;
        }
        if (ahead) fetch(NP, seg, bits, vb__qslice_codes(s, i), panel_codes, sp, panel_scales);
        dots(NP, R * planes, planes, seg, bits, vb__qslice_codes(s, i), panel_codes, a, a_low, dot);
        if (planes == 2) {
#pragma GCC unroll 12
            for (int r = 0; r < NP * R; r++)
                dot[r] = _mm512_add_epi32(_mm512_slli_epi32(dot[2 * r], 8), dot[2 * r + 1]);
        }
        if (__builtin_expect(s->offset != 0, 0)) {
#pragma GCC unroll 12
            for (int r = 0; r < NP * R; r++)
                dot[r] = _mm512_sub_epi32(dot[r], _mm512_set1_epi32(s->offset * sums[r % R]));
        }
#pragma GCC unroll 2
        for (int p = 0; p < NP; p++) {
            __m512 scale = vb__scales16(sp + p * panel_scales, s->kind);
#pragma GCC unroll 6
            for (int r = 0; r < R; r++)
                acc[p * R + r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[p * R + r]),
                                                 _mm512_mul_ps(scale, _mm512_set1_ps(dd[r])), acc[p * R + r]);
        }
        if (s->has_bias) {
            __m512 bias[2];
#pragma GCC unroll 2
            for (int p = 0; p < NP; p++) bias[p] = vb__scales16(sp + p * panel_scales + s->scale_seg / 2, s->kind);
#pragma GCC unroll 6
            for (int r = 0; r < R; r++) {
                __m512 d = _mm512_set1_ps(ds[r]);
#pragma GCC unroll 2
                for (int p = 0; p < NP; p++) acc[p * R + r] = _mm512_fmadd_ps(bias[p], d, acc[p * R + r]);
            }
        }
        dd += 2 * b->nb;
        ds += 2 * b->nb;
        sums += b->nb;
        int64_t step = seg == WIDTH(seg) ? b->a_seg : i & 1 ? b->a_seg - seg : seg;
        a += step;
        a_low += step;
    }
#pragma GCC unroll 12
    for (int i = 0; i < NP * R; i++) {
        float *t = total + i / R * panel_total + (int64_t)(r0 + i % R) * VB_PANEL;
        _mm512_store_ps(t, first ? acc[i] : _mm512_add_ps(_mm512_load_ps(t), acc[i]));
    }
}

/* All rows of one block in groups; the first group fetches ahead. */
typedef void block_fn(const vb__qslice *s, int64_t panel_codes, int64_t panel_scales, block *b, int first,
                      int ahead, float *total, int64_t panel_total);
#define ROWS_CASE(NP, planes, seg, bits, R)                                                                  \
    case R:                                                                                                  \
        slice_rows(NP, R, planes, seg, bits, s, panel_codes, panel_scales, b, r0, first, ahead &&r0 == 0, total, \
                   panel_total);                                                                             \
        break;
#define CASES_3(NP, planes, seg, bits)                                                                       \
    ROWS_CASE(NP, planes, seg, bits, 1) ROWS_CASE(NP, planes, seg, bits, 2) ROWS_CASE(NP, planes, seg, bits, 3)
#define CASES_6(NP, planes, seg, bits)                                                                       \
    CASES_3(NP, planes, seg, bits)                                                                           \
    ROWS_CASE(NP, planes, seg, bits, 4) ROWS_CASE(NP, planes, seg, bits, 5) ROWS_CASE(NP, planes, seg, bits, 6)
#define CASES_1(NP, planes, seg, bits) ROWS_CASE(NP, planes, seg, bits, 1)
#define BLOCK(NP, planes, seg, bits, most)                                                                   \
    static __attribute__((noinline)) void block_##NP##_##planes##_##seg##_##bits(                            \
        const vb__qslice *s, int64_t panel_codes, int64_t panel_scales, block *b, int first, int ahead, \
        float *total, int64_t panel_total) {                                                                 \
        for (int32_t r0 = 0, n; r0 < b->nb; r0 += n) {                                                       \
            int32_t left = b->nb - r0, groups = (left + (most)-1) / (most);                                  \
            n = (left + groups - 1) / groups;                                                                \
            switch (n) { CASES_##most(NP, planes, seg, bits) }                                               \
        }                                                                                                    \
    }
BLOCK(1, 1, 32, 4, 3)
BLOCK(1, 1, 64, 4, 3)
BLOCK(1, 2, 32, 4, 1)
BLOCK(1, 2, 64, 4, 1)
BLOCK(2, 1, 32, 4, 3)
BLOCK(2, 1, 64, 4, 3)
BLOCK(2, 2, 32, 4, 1)
BLOCK(2, 2, 64, 4, 1)
BLOCK(1, 1, 32, 8, 6)
BLOCK(1, 1, 64, 8, 6)
BLOCK(1, 2, 32, 8, 3)
BLOCK(1, 2, 64, 8, 3)
BLOCK(2, 1, 32, 8, 6)
BLOCK(2, 1, 64, 8, 6)
BLOCK(2, 2, 32, 8, 3)
BLOCK(2, 2, 64, 8, 3)
BLOCK(1, 1, 16, 4, 3)
BLOCK(1, 2, 16, 4, 1)
BLOCK(2, 1, 16, 4, 3)
BLOCK(2, 2, 16, 4, 1)
BLOCK(1, 1, 16, 8, 6)
BLOCK(1, 2, 16, 8, 3)
BLOCK(2, 1, 16, 8, 6)
BLOCK(2, 2, 16, 8, 3)

static block_fn *block_of(int np, int planes, int seg, int bits) {
    static block_fn *const fn[2][2][3][2] = { /* panels, planes, segment 16, 32, 64, bits 4, 8 */
        {{{block_1_1_16_4, block_1_1_16_8}, {block_1_1_32_4, block_1_1_32_8}, {block_1_1_64_4, block_1_1_64_8}},
         {{block_1_2_16_4, block_1_2_16_8}, {block_1_2_32_4, block_1_2_32_8}, {block_1_2_64_4, block_1_2_64_8}}},
        {{{block_2_1_16_4, block_2_1_16_8}, {block_2_1_32_4, block_2_1_32_8}, {block_2_1_64_4, block_2_1_64_8}},
         {{block_2_2_16_4, block_2_2_16_8}, {block_2_2_32_4, block_2_2_32_8}, {block_2_2_64_4, block_2_2_64_8}}},
    };
    return fn[np - 1][planes - 1][seg / 32][bits == 8];
}

/* A slice of nibbles to bytes, four k-values a vector, and its scales to f32. */
static void unpack(const vb__qslice *s, int32_t seg, uint8_t *codes, float *scales) {
    const __m512i low = _mm512_set1_epi8(0x0f);
    for (int32_t i = 0; i < s->segs; i++) {
        const uint8_t *c = vb__qslice_codes(s, i), *sp = vb__qslice_scales(s, i);
        uint8_t *t = codes + i * seg * VB_PANEL;
        for (int32_t k = 0; k < seg; k += 8) {
            __m512i v = _mm512_loadu_si512(c + k * 8);
            _mm512_store_si512(t + k * 16, _mm512_and_si512(v, low));
            _mm512_store_si512(t + k * 16 + 64, _mm512_and_si512(_mm512_srli_epi16(v, 4), low));
        }
        _mm512_store_ps(scales + i * 2 * VB_PANEL, vb__scales16(sp, s->kind));
        if (s->has_bias)
            _mm512_store_ps(scales + i * 2 * VB_PANEL + VB_PANEL, vb__scales16(sp + s->scale_seg / 2, s->kind));
    }
}

enum {
    CODES_BYTES = VB_SLICE * VB_PANEL,                  /* an unpacked slice of one panel */
    SCALES_BYTES = VB_SLICE / 16 * 2 * VB_PANEL * 4,    /* its scales and biases */
    TOTALS = 2 * (CODES_BYTES + SCALES_BYTES)           /* where the totals start in scratch */
};

void vb__linear_q_avx512(VB_LINEAR_Q_ARGS) {
    const vb__qpanels *w = g->w;
    const vb__qact *x = g->x;
    int32_t seg = x->seg, planes = x->planes;
    const int wide = w->code_bits == 4 && x->rows * planes > FEW;
    uint8_t *codes = g->scratch;
    float *scales = (float *)(void *)(codes + 2 * CODES_BYTES), *totals = (float *)(void *)(codes + TOTALS);
    const int64_t panel_total = (int64_t)x->rows * VB_PANEL;
    for (int32_t p = p0, np; p < p1; p += np) {
        const uint8_t *panel = w->data + p * w->panel_stride;
        np = p1 - p < 2 ? 1 : 2;
        float *total = totals + (p - p0) % VB_SPAN * panel_total;
        for (int32_t k = 0; k < w->k; k += VB_SLICE) {
            vb__qslice s = vb__qslice_of(w, panel, k, seg);
            int64_t panel_codes = w->panel_stride, panel_scales = w->panel_stride;
            if (wide) {
                unpack(&s, seg, codes, scales);
                if (np == 2) {
                    vb__qslice t = vb__qslice_of(w, panel + w->panel_stride, k, seg);
                    unpack(&t, seg, codes + CODES_BYTES, scales + SCALES_BYTES / 4);
                }
                s.codes = codes;
                s.code_unit = s.code_seg = seg * VB_PANEL;
                s.scales = (const uint8_t *)scales;
                s.scale_unit = s.scale_seg = 2 * VB_PANEL * 4;
                s.shift = s.mask = s.per_group = 0;
                s.kind = VB_SCALE_F32;
                panel_codes = CODES_BYTES;
                panel_scales = SCALES_BYTES;
            }
            block_fn *fn = block_of(np, planes, seg, wide ? 8 : w->code_bits);
            for (int32_t r0 = 0; r0 < x->rows; r0 += VB_ROW_BLOCK) {
                int32_t nb = vb__row_block(x->rows, r0);
                if (k == 0)
                    for (int32_t i = 0; i < np; i++) vb__expect_store(g, p + i, r0, nb);
                block b = {.nb = nb, .plane = nb * x->width, .a_seg = (int64_t)planes * nb * x->width};
                b.a = vb__qact_block(x, r0) + (int64_t)k * planes * nb;
                b.dd = vb__qact_dd(x, r0) + (int64_t)(k / seg) * 2 * nb;
                if (wide && r0 == 0) {
                    const uint8_t *next = k + VB_SLICE < w->k ? panel + (int64_t)((k + VB_SLICE) / w->unit) * w->unit_bytes
                                                              : panel + 2 * w->panel_stride;
                    b.next[0] = next;
                    b.next[1] = next + w->panel_stride;
                    b.next_lines = s.segs * seg / w->unit * w->unit_bytes / 64;
                    int32_t steps = s.segs * ((nb + GROUP / planes - 1) / (GROUP / planes));
                    b.lines_per_step = (b.next_lines + steps - 1) / steps;
                }
                b.sums = vb__qact_sums(x, r0) + (int64_t)(k / seg) * nb;
                fn(&s, panel_codes, panel_scales, &b, k == 0, !wide && r0 == 0, total + (int64_t)r0 * VB_PANEL,
                   panel_total);
            }
        }
        int32_t held = (p - p0) % VB_SPAN + np;
        if (held < VB_SPAN && p + np < p1) continue;
        for (int32_t r = 0; r < x->rows; r++)
            for (int32_t i = 0; i < held; i++)
                vb__panel_store(g->y + r * g->ys, (p + np - held + i) * VB_PANEL, w->n, g->bias,
                                g->residual == NULL ? NULL : g->residual + r * g->rs,
                                _mm512_load_ps(totals + i * panel_total + (int64_t)r * VB_PANEL));
    }
}
