/* linear_q on ymm registers, for linear_q_avx2.c and linear_q_avxvnni.c, which say what multiplies: VB_VNNI is 0 or 1, and
 * VB_KERNEL the name of the entry. Contract and layout: ops/linear_q.h.
 * Up to GROUP int8 rows share a pass over the 16 outputs of a panel: their sums lie in registers, float chains in memory. The
 * first pass unpacks as it goes and leaves codes and scales for the others. Whatever is not a product is kept small in the
 * loops, address arithmetic above all, and prefetches lie between the products, never in a row. */
#ifndef VB_KERNEL
#define VB_VNNI 0
#define VB_KERNEL vb__linear_q_avx2
#endif
#include "backend/cpu/x86/linear_slice.h"
#include <immintrin.h>

enum {
    GROUP = VB_VNNI ? 6 : 4,          /* int8 rows of a pass at most */
    SLICE_BYTES = VB_SLICE * VB_PANEL, /* a slice as one nibble a byte */
    SCALES_AT = 2 * SLICE_BYTES,      /* in scratch: low nibbles, high nibbles of 8-bit codes, then scales as f32 */
    TOTALS_AT = SCALES_AT + VB_SLICE / 16 * 2 * VB_PANEL * 4
};

/* Rows of one block, and the next slice, which is asked for while this one is multiplied: next_step bytes a segment. */
typedef struct block {
    const int8_t *a;
    const float *dd;
    const int32_t *sums;
    int64_t a_seg, plane; /* bytes to the next activation group; from the hi plane to the lo plane */
    int32_t nb;
    const uint8_t *next; /* readable: asked for even where the step is 0 */
    int32_t next_step;
} block;

/* Activations lie in groups of 32 or 64 a row; a segment of 16 is half of one. */
#define WIDTH(seg) ((seg) < 32 ? 32 : (seg))

/* Without it gcc reorders the integer sums of a whole segment and spills most of them. */
#define PIN(v) __asm__ volatile("" : "+x"(v))

typedef enum form {
    KEPT,   /* nibbles as bytes, which the first rows of this slice left */
    PACKED, /* nibbles as the layout has them, for the only rows */
    FIRST,  /* the same for the first of several groups of rows, and kept for the others */
    WIDE,   /* 8-bit codes of several groups. Without VNNI: low nibbles as bytes, high nibbles SLICE_BYTES behind, unpacked
             * before. With it: as the layout has them, and kept for the others */
    BYTES   /* 8-bit codes as the layout has them, for the only rows */
} form;

/* In scratch: a slice's nibbles and scales (scale[16], bias[16] a segment). */
typedef struct kept {
    uint8_t *bytes;
    float *scales;
} kept;

/* Rows of the next pass over a slice, of those left: as even as can be. */
VB_INLINE int32_t pass_rows(int32_t left, int planes) {
    int32_t most = GROUP / planes, passes = (left + most - 1) / most;
    return (left + passes - 1) / passes;
}

VB_INLINE void prefetch(const uint8_t *p) { _mm_prefetch((const char *)p, _MM_HINT_T0); }
VB_INLINE __m256i load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
VB_INLINE void keep(uint8_t *p, __m256i v) { _mm256_store_si256((__m256i *)(void *)p, v); }
VB_INLINE __m256i bcast4(const int8_t *a) {
    __m256i v;
    __asm__ volatile("vpbroadcastd %1, %0" : "=x"(v) : "m"(*(const int8_t(*)[4])a));
    return v;
}

/* Forms that read the stream of weights itself, and those that leave what they read. */
VB_INLINE int streams(form f) { return f == PACKED || f == FIRST || f == BYTES || (VB_VNNI && f == WIDE); }
VB_INLINE int leaves(form f) { return f == FIRST || (VB_VNNI && f == WIDE); }

/* Two vectors of codes for k .. k+3, left at `bytes` as well where others want them. high: the high nibbles of 8-bit codes, which
 * have to be taken apart without VNNI. */
VB_INLINE void take(form f, int high, int k, const uint8_t *codes, uint8_t *bytes, __m256i *c) {
    const __m256i low = _mm256_set1_epi8(0x0f);
#pragma GCC unroll 2
    for (int h = 0; h < 2; h++) {
        if (f == KEPT || f == WIDE || f == BYTES) {
            c[h] = load(codes + k * VB_PANEL + 32 * h);
            if (!VB_VNNI && f == BYTES) {
                if (high) c[h] = _mm256_srli_epi16(c[h], 4);
                c[h] = _mm256_and_si256(c[h], low);
            }
        } else {
            c[h] = load(codes + k / 8 * 64 + 32 * h);
            if (k & 4) c[h] = _mm256_srli_epi16(c[h], 4);
            c[h] = _mm256_and_si256(c[h], low);
        }
        if (leaves(f)) keep(bytes + k * VB_PANEL + 32 * h, c[h]);
        PIN(c[h]);
    }
}

VB_INLINE void ask(form f, int high, int k, const uint8_t *codes, const uint8_t *next) {
    if (f == PACKED && k % 8 == 0) {
        _mm_prefetch((const char *)codes + k * 8 + VB_FAR, _MM_HINT_T1);
        prefetch(codes + k * 8 + VB_NEAR);
    }
    if (f == BYTES && !high) prefetch(codes + k * VB_PANEL + VB_AHEAD);
    if (leaves(f) && f == WIDE) prefetch(next + k * VB_PANEL);
    if (f == FIRST && k % 8 == 4) prefetch(next + k * 8 - 32);
    if (f == KEPT && k % 20 == 8) prefetch(next + k / 20 * 64);
}

/* Activations k .. k+3 of int8 row r. */
VB_INLINE __m256i activations(int planes, int seg, int r, int k, const int8_t *a, const int8_t *a_low) {
    return bcast4(planes == 2 && r & 1 ? a_low + r / 2 * WIDTH(seg) + k : a + r / planes * WIDTH(seg) + k);
}

/* dot[2 * r + h] of one segment for `rows` int8 rows. */
#if VB_VNNI
VB_INLINE void dots(int rows, int planes, int seg, form f, int high, const uint8_t *codes, uint8_t *bytes, const int8_t *a,
                    const int8_t *a_low, const uint8_t *next, __m256i *dot) {
#pragma GCC unroll 12
    for (int i = 0; i < 2 * rows; i++) dot[i] = _mm256_setzero_si256();
#pragma GCC unroll 16
    for (int k = 0; k < seg; k += 4) {
        __m256i c[2];
        ask(f, high, k, codes, next);
        take(f, high, k, codes, bytes, c);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m256i x = activations(planes, seg, r, k, a, a_low);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                dot[2 * r + h] = _mm256_dpbusd_avx_epi32(dot[2 * r + h], c[h], x);
                PIN(dot[2 * r + h]);
            }
        }
    }
}
#else
VB_INLINE void dots(int rows, int planes, int seg, form f, int high, const uint8_t *codes, uint8_t *bytes, const int8_t *a,
                    const int8_t *a_low, const uint8_t *next, __m256i *dot) {
    const __m256i ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
    for (int k0 = 0; k0 < seg; k0 += 32) {
        __m256i sum[2 * GROUP];
#pragma GCC unroll 8
        for (int k = k0; k < k0 + (seg < 32 ? seg : 32); k += 4) {
            __m256i c[2];
            ask(f, high, k, codes, next);
            take(f, high, k, codes, bytes, c);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                __m256i x = activations(planes, seg, r, k, a, a_low);
                __m256i t[2];
                t[0] = _mm256_maddubs_epi16(c[0], x);
                PIN(t[0]);
                t[1] = _mm256_maddubs_epi16(c[1], x);
                PIN(t[1]);
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) {
                    sum[2 * r + h] = k == k0 ? t[h] : _mm256_add_epi16(sum[2 * r + h], t[h]);
                    PIN(sum[2 * r + h]);
                }
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < 2 * rows; i++) {
            __m256i t = _mm256_madd_epi16(sum[i], ones);
            dot[i] = k0 == 0 ? t : _mm256_add_epi32(dot[i], t);
        }
    }
}
#endif

/* 16 scales or biases as f32. */
VB_INLINE void widen(const uint8_t *p, vb__scale_kind kind, float *to) {
    for (int h = 0; h < 2; h++) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)(p + 16 * h));
        __m256 f = kind == VB_SCALE_F32   ? _mm256_loadu_ps((const float *)(const void *)(p + 32 * h))
                   : kind == VB_SCALE_F16 ? _mm256_cvtph_ps(v)
                                          : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
        _mm256_store_ps(to + 8 * h, f);
    }
}

/* acc[r] = fma((float)dot, scale * d, acc[r]) and, with a bias, fma(bias, ds, .): half h of R rows; d lie at dd, ds
 * nb behind. */
VB_INLINE void fold(int R, int h, int has_bias, const __m256i *dot, const float *scales, const float *dd, int64_t nb,
                    float (*acc)[VB_PANEL]) {
    __m256 scale = _mm256_load_ps(scales + 8 * h), bias = _mm256_load_ps(scales + VB_PANEL + 8 * h);
#pragma GCC unroll 6
    for (int r = 0; r < R; r++) {
        __m256 v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[2 * r + h]), _mm256_mul_ps(scale, _mm256_broadcast_ss(dd + r)),
                                   _mm256_load_ps(acc[r] + 8 * h));
        if (has_bias) v = _mm256_fmadd_ps(bias, _mm256_broadcast_ss(dd + nb + r), v);
        _mm256_store_ps(acc[r] + 8 * h, v);
    }
}

/* One slice of one panel for R rows from r0 on. */
VB_INLINE void slice_rows(int R, int planes, int seg, form f, const vb__qslice *s, const kept *to, block *b, int32_t r0,
                          int first, float *total) {
    float acc[GROUP][VB_PANEL] __attribute__((aligned(32)));
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) _mm256_store_ps(acc[r] + 8 * h, _mm256_setzero_ps());
    const int8_t *a = b->a + r0 * WIDTH(seg), *a_low = a + b->plane;
    const float *dd = b->dd + r0;
    const int64_t nb = b->nb, a_seg = b->a_seg, next_step = b->next_step;
    const uint8_t *next = b->next, *unit = s->codes, *unit_scales = s->scales, *codes = unit, *sp = unit_scales;
    uint8_t *bytes = to->bytes;
    float *scales = to->scales;
    const int32_t segs = s->segs, has_bias = s->has_bias, offset = s->offset;
    for (int32_t i = 0, part = 0; i < segs; i++) {
        __m256i dot[2 * GROUP];
        if (!VB_VNNI && f == WIDE)
            for (int32_t j = 0; j < next_step; j += 64) _mm_prefetch((const char *)next + j, _MM_HINT_T1);
        dots(R * planes, planes, seg, f, 0, streams(f) ? codes : bytes, bytes, a, a_low, next, dot);
        if (!VB_VNNI && (f == WIDE || f == BYTES)) {
            __m256i top[2 * GROUP];
            dots(R * planes, planes, seg, f, 1, f == BYTES ? codes : bytes + SLICE_BYTES, bytes, a, a_low, next, top);
#pragma GCC unroll 8
            for (int j = 0; j < 2 * R * planes; j++) dot[j] = _mm256_add_epi32(dot[j], _mm256_slli_epi32(top[j], 4));
        }
        if (planes == 2) {
#pragma GCC unroll 6
            for (int r = 0; r < R; r++)
                for (int h = 0; h < 2; h++)
                    dot[2 * r + h] = _mm256_add_epi32(_mm256_slli_epi32(dot[4 * r + h], 8), dot[4 * r + 2 + h]);
        }
        if (__builtin_expect(offset != 0, 0)) {
            const int32_t *sums = b->sums + i * nb + r0;
#pragma GCC unroll 12
            for (int j = 0; j < 2 * R; j++)
                dot[j] = _mm256_sub_epi32(dot[j], _mm256_set1_epi32(offset * sums[j / 2]));
        }
        if (streams(f)) {
            if (!leaves(f)) prefetch(sp + VB_AHEAD);
            if (!leaves(f) && s->kind == VB_SCALE_F32) prefetch(sp + VB_AHEAD + 64);
            widen(sp, s->kind, scales);
            if (has_bias) widen(sp + s->scale_seg / 2, s->kind, scales + VB_PANEL);
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            if (has_bias) fold(R, h, 1, dot, scales, dd, nb, acc);
            else fold(R, h, 0, dot, scales, dd, nb, acc);
        }
        if (f != PACKED && f != BYTES) {
            scales += 2 * VB_PANEL;
            bytes += seg * VB_PANEL;
        }
        if (streams(f)) {
            if (++part > s->mask) {
                part = 0;
                codes = unit += s->code_unit;
                sp = unit_scales += s->scale_unit;
            } else {
                codes += s->code_seg;
                sp = unit_scales + (part >> s->per_group) * s->scale_seg;
            }
        }
        next += next_step;
        dd += 2 * nb;
        int64_t step = seg == WIDTH(seg) ? a_seg : i & 1 ? a_seg - seg : seg;
        a += step;
        a_low += step;
    }
    b->next = next;
#pragma GCC unroll 6
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) {
            float *t = total + (int64_t)(r0 + r) * VB_PANEL + 8 * h;
            __m256 v = _mm256_load_ps(acc[r] + 8 * h);
            _mm256_store_ps(t, first ? v : _mm256_add_ps(_mm256_load_ps(t), v));
        }
}

typedef void block_fn(const vb__qslice *s, const kept *to, block *b, int32_t r0, int32_t r1, int first, float *total);
#define ROWS_CASE(R, planes, seg, form)                                                       \
    case R: slice_rows(R, planes, seg, form, s, to, b, r0, first, total); break;
#define FOUR(seg, form) ROWS_CASE(1, 1, seg, form) ROWS_CASE(2, 1, seg, form) ROWS_CASE(3, 1, seg, form) ROWS_CASE(4, 1, seg, form)
#define TWO(seg, form) ROWS_CASE(1, 2, seg, form) ROWS_CASE(2, 2, seg, form)
#if VB_VNNI
#define CASES_1(seg, form) FOUR(seg, form) ROWS_CASE(5, 1, seg, form) ROWS_CASE(6, 1, seg, form)
#define CASES_2(seg, form) TWO(seg, form) ROWS_CASE(3, 2, seg, form)
#else
#define CASES_1(seg, form) FOUR(seg, form)
#define CASES_2(seg, form) TWO(seg, form)
#endif
#define BLOCK(planes, seg, form)                                                              \
    static __attribute__((noinline)) void block_##planes##_##seg##_##form(                    \
        const vb__qslice *s, const kept *to, block *b, int32_t r0, int32_t r1, int first, float *total) { \
        for (int32_t n; r0 < r1; r0 += n) {                                                   \
            n = pass_rows(r1 - r0, planes);                                               \
            switch (n) { CASES_##planes(seg, form) }                                          \
        }                                                                                     \
    }
#define FORMS(planes, seg) \
    BLOCK(planes, seg, KEPT) BLOCK(planes, seg, PACKED) BLOCK(planes, seg, FIRST) BLOCK(planes, seg, WIDE) \
    BLOCK(planes, seg, BYTES)
FORMS(1, 16) FORMS(1, 32) FORMS(1, 64) FORMS(2, 16) FORMS(2, 32) FORMS(2, 64)

static block_fn *block_of(int planes, int seg, form f) {
#define FNS(planes, seg) \
    {block_##planes##_##seg##_KEPT, block_##planes##_##seg##_PACKED, block_##planes##_##seg##_FIRST, \
     block_##planes##_##seg##_WIDE, block_##planes##_##seg##_BYTES}
    static block_fn *const fn[2][3][5] = {{FNS(1, 16), FNS(1, 32), FNS(1, 64)}, {FNS(2, 16), FNS(2, 32), FNS(2, 64)}};
    return fn[planes - 1][seg / 32][f];
}

/* ---- preparing a slice of 8-bit codes ----------------------------------------------------------------------------- */

static void unpack8(const vb__qslice *s, int32_t seg, uint8_t *to) {
    const __m256i low = _mm256_set1_epi8(0x0f);
    for (int32_t i = 0; i < s->segs; i++) {
        const uint8_t *c = vb__qslice_codes(s, i);
        for (int32_t k = 0; k < seg * VB_PANEL; k += 32, to += 32) {
            __m256i v = load(c + k);
            keep(to, _mm256_and_si256(v, low));
            keep(to + SLICE_BYTES, _mm256_and_si256(_mm256_srli_epi16(v, 4), low));
        }
    }
}

static void widen_scales(const vb__qslice *s, float *to) {
    for (int32_t i = 0; i < s->segs; i++, to += 2 * VB_PANEL) {
        const uint8_t *p = vb__qslice_scales(s, i);
        widen(p, s->kind, to);
        if (s->has_bias) widen(p + s->scale_seg / 2, s->kind, to + VB_PANEL);
    }
}

/* + bias, + residual, and the store of one row of a panel; never beyond n. */
static void store_row(const vb__linear_q_args *g, int32_t r, int32_t o, const float *total) {
    float *y = g->y + r * g->ys + o;
    const float *bias = g->bias == NULL ? NULL : g->bias + o;
    const float *residual = g->residual == NULL ? NULL : g->residual + r * g->rs + o;
    int32_t n = g->w->n - o < VB_PANEL ? g->w->n - o : VB_PANEL;
    if (n == VB_PANEL) {
        for (int h = 0; h < VB_PANEL; h += 8) {
            __m256 v = _mm256_load_ps(total + h);
            if (bias != NULL) v = _mm256_add_ps(v, _mm256_loadu_ps(bias + h));
            if (residual != NULL) v = _mm256_add_ps(v, _mm256_loadu_ps(residual + h));
            _mm256_storeu_ps(y + h, v);
        }
        return;
    }
    for (int32_t i = 0; i < n; i++) {
        float v = total[i];
        if (bias != NULL) v = v + bias[i];
        if (residual != NULL) v = v + residual[i];
        y[i] = v;
    }
}

void VB_KERNEL(VB_LINEAR_Q_ARGS) {
    const vb__qpanels *w = g->w;
    const vb__qact *x = g->x;
    int32_t seg = x->seg, planes = x->planes;
    uint8_t *bytes = g->scratch;
    const kept to = {bytes, (float *)(void *)(bytes + SCALES_AT)};
    float *totals = (float *)(void *)(bytes + TOTALS_AT);
    const int64_t panel_total = (int64_t)x->rows * VB_PANEL;
    const int32_t first_rows = pass_rows(x->rows < VB_ROW_BLOCK ? x->rows : VB_ROW_BLOCK, planes);
    const int alone = first_rows == x->rows, wide = w->code_bits == 8 && !alone, unpacked = wide && !VB_VNNI;
    block_fn *opening = block_of(planes, seg, wide ? WIDE : !alone ? FIRST : w->code_bits == 8 ? BYTES : PACKED);
    block_fn *rest = block_of(planes, seg, unpacked ? WIDE : KEPT);
    for (int32_t p = p0; p < p1; p++) {
        const uint8_t *panel = w->data + p * w->panel_stride;
        float *total = totals + (p - p0) % VB_SPAN * panel_total;
        for (int32_t k = 0; k < w->k; k += VB_SLICE) {
            vb__qslice s = vb__qslice_of(w, panel, k, seg);
            if (unpacked) {
                widen_scales(&s, to.scales);
                unpack8(&s, seg, bytes);
            }
            for (int32_t r0 = 0; r0 < x->rows; r0 += VB_ROW_BLOCK) {
                int32_t nb = vb__row_block(x->rows, r0), done = 0;
                if (k == 0) vb__expect_store(g, p, r0, nb);
                block b = {.nb = nb, .plane = nb * x->width, .a_seg = (int64_t)planes * nb * x->width};
                b.a = vb__qact_block(x, r0) + (int64_t)k * planes * nb;
                b.dd = vb__qact_dd(x, r0) + (int64_t)(k / seg) * 2 * nb;
                b.sums = vb__qact_sums(x, r0) + (int64_t)(k / seg) * nb;
                b.next = bytes;
                float *t = total + (int64_t)r0 * VB_PANEL;
                if (r0 == 0) {
                    /* The next slice is asked for evenly: at most three lines a segment after the first rows. */
                    int32_t lines = s.segs * seg / w->unit * (w->unit_bytes / 64), passes, each, own;
                    passes = (nb * planes + GROUP - 1) / GROUP;
                    each = (lines / s.segs + passes) / passes;
                    if (!unpacked && each > 3) each = 3;
                    own = unpacked ? each : lines / s.segs + 1 - each * (passes - 1);
                    b.next = s.codes + lines * 64;
                    b.next_step = own > 0 ? own * 64 : 0;
                    done = first_rows;
                    opening(&s, &to, &b, 0, done, k == 0, t);
                    b.next_step = each * 64;
                }
                rest(&s, &to, &b, done, nb, k == 0, t);
            }
        }
        int32_t held = (p - p0) % VB_SPAN + 1;
        if (held < VB_SPAN && p + 1 < p1) continue;
        for (int32_t r = 0; r < x->rows; r++)
            for (int32_t i = 0; i < held; i++)
                store_row(g, r, (p + 1 - held + i) * VB_PANEL, totals + i * panel_total + (int64_t)r * VB_PANEL);
    }
}
