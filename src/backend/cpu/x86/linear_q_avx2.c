/* linear_q, AVX2. Contract and layout: ops/linear_q.h.
 * vpmaddubsw multiplies 8 outputs x 4 codes (0..15, unsigned) with four activations broadcast from memory and adds
 * neighbours in int16; eight such steps (15 * 128 * 2 * 8 = 30720) fit, then vpmaddwd widens. 8-bit codes go as two
 * nibbles: dot = dot(low) + 16 * dot(high), which no value of an activation can saturate. Four int8 rows share a pass
 * over the 16 outputs of a panel: 8 sums in registers, float chains in memory. More rows first unpack a slice to
 * nibbles in bytes, once for all of them. */
#include "backend/cpu/x86/linear_slice.h"
#include <immintrin.h>

enum {
    GROUP = 4,                        /* int8 rows of a pass */
    SLICE_BYTES = VB_SLICE * VB_PANEL, /* a slice as one nibble a byte */
    SCALES_AT = 2 * SLICE_BYTES,      /* in scratch: low nibbles, high nibbles of 8-bit codes, then scales as f32 */
    TOTALS_AT = SCALES_AT + VB_SLICE / 16 * 2 * VB_PANEL * 4
};

/* Rows of one block and the stream of the next slice, which is asked for while this one is multiplied. */
typedef struct block {
    const int8_t *a;
    const float *dd;
    const int32_t *sums;
    int64_t a_seg, plane; /* bytes to the next activation group; from the hi plane to the lo plane */
    int32_t nb;
    const uint8_t *next;
    int32_t next_lines, lines_per_step;
} block;

/* Activations lie in groups of 32 or 64 a row; a segment of 16 is half of one. */
#define WIDTH(seg) ((seg) < 32 ? 32 : (seg))

/* Without it gcc reorders the integer sums of a whole segment and spills most of them. */
#define PIN(v) __asm__ volatile("" : "+x"(v))

VB_INLINE __m256i load(const uint8_t *p) { return _mm256_loadu_si256((const __m256i *)(const void *)p); }
VB_INLINE void keep(uint8_t *p, __m256i v) { _mm256_store_si256((__m256i *)(void *)p, v); }
VB_INLINE __m256i bcast4(const int8_t *a) {
    __m256i v;
    __asm__ volatile("vpbroadcastd %1, %0" : "=x"(v) : "m"(*(const int8_t(*)[4])a));
    return v;
}

/* dot[2 * r + h] of one segment for `rows` int8 rows; packed: nibbles as the layout has them, else one a byte. */
VB_INLINE void dots(int rows, int planes, int seg, int packed, const uint8_t *codes, const int8_t *a,
                    const int8_t *a_low, __m256i *dot) {
    const __m256i low = _mm256_set1_epi8(0x0f), ones = _mm256_set1_epi16(1);
#pragma GCC unroll 2
    for (int k0 = 0; k0 < seg; k0 += 32) {
        __m256i sum[2 * GROUP];
#pragma GCC unroll 8
        for (int k = k0; k < k0 + (seg < 32 ? seg : 32); k += 4) {
            __m256i c[2];
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                if (packed) {
                    c[h] = load(codes + k / 8 * 64 + 32 * h);
                    if (k & 4) c[h] = _mm256_srli_epi16(c[h], 4);
                    c[h] = _mm256_and_si256(c[h], low);
                } else {
                    c[h] = load(codes + k * VB_PANEL + 32 * h);
                }
                PIN(c[h]);
            }
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) {
                const int8_t *at = planes == 2 && r & 1 ? a_low + r / 2 * WIDTH(seg) + k : a + r / planes * WIDTH(seg) + k;
                __m256i x = bcast4(at);
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) {
                    __m256i t = _mm256_maddubs_epi16(c[h], x);
                    sum[2 * r + h] = k == k0 ? t : _mm256_add_epi16(sum[2 * r + h], t);
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

/* One slice of one panel for R rows from r0 on. form: 0 nibbles as bytes in scratch, 1 nibbles as the layout has them,
 * 2 low nibbles as bytes in scratch and high nibbles at `high`. */
VB_INLINE void slice_rows(int R, int planes, int seg, int form, const vb__qslice *s, const uint8_t *high,
                          const float *scales, block *b, int32_t r0, int first, float *total) {
    float acc[GROUP][VB_PANEL] __attribute__((aligned(32))), own[2 * VB_PANEL] __attribute__((aligned(32))) = {0};
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) _mm256_store_ps(acc[r] + 8 * h, _mm256_setzero_ps());
    const int8_t *a = b->a + r0 * WIDTH(seg), *a_low = a + b->plane;
    const float *dd = b->dd + r0, *ds = dd + b->nb;
    const int32_t *sums = b->sums + r0;
    const int packed = form == 1;
    for (int32_t i = 0; i < s->segs; i++) {
        __m256i dot[2 * GROUP];
        const uint8_t *codes = vb__qslice_codes(s, i);
        if (packed) {
#pragma GCC unroll 1
            for (int j = 0; j < seg * 8 + 64; j += 64) _mm_prefetch(codes + VB_AHEAD + j, _MM_HINT_T0);
        } else if (b->next_lines > 0) {
            for (int32_t j = 0; j < b->lines_per_step; j++) _mm_prefetch(b->next + j * 64, _MM_HINT_T1);
            b->next += b->lines_per_step * 64;
            b->next_lines -= b->lines_per_step;
        }
        dots(R * planes, planes, seg, packed, codes, a, a_low, dot);
        if (form == 2) {
            __m256i top[2 * GROUP];
            dots(R * planes, planes, seg, 0, high + i * seg * VB_PANEL, a, a_low, top);
#pragma GCC unroll 8
            for (int j = 0; j < 2 * R * planes; j++) dot[j] = _mm256_add_epi32(dot[j], _mm256_slli_epi32(top[j], 4));
        }
        if (planes == 2) {
#pragma GCC unroll 4
            for (int r = 0; r < R; r++)
                for (int h = 0; h < 2; h++)
                    dot[2 * r + h] = _mm256_add_epi32(_mm256_slli_epi32(dot[4 * r + h], 8), dot[4 * r + 2 + h]);
        }
        if (__builtin_expect(s->offset != 0, 0)) {
#pragma GCC unroll 8
            for (int j = 0; j < 2 * R; j++)
                dot[j] = _mm256_sub_epi32(dot[j], _mm256_set1_epi32(s->offset * sums[j / 2]));
        }
        if (packed) { /* where the stream of weights has them */
            const uint8_t *sp = vb__qslice_scales(s, i);
            widen(sp, s->kind, own);
            if (s->has_bias) widen(sp + s->scale_seg / 2, s->kind, own + VB_PANEL);
            scales = own;
        }
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256 scale = _mm256_load_ps(scales + 8 * h), bias = _mm256_load_ps(scales + VB_PANEL + 8 * h);
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                __m256 v = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[2 * r + h]),
                                           _mm256_mul_ps(scale, _mm256_broadcast_ss(dd + r)),
                                           _mm256_load_ps(acc[r] + 8 * h));
                if (s->has_bias) v = _mm256_fmadd_ps(bias, _mm256_broadcast_ss(ds + r), v);
                _mm256_store_ps(acc[r] + 8 * h, v);
            }
        }
        if (!packed) scales += 2 * VB_PANEL;
        dd += 2 * b->nb;
        ds += 2 * b->nb;
        sums += b->nb;
        int64_t step = seg == WIDTH(seg) ? b->a_seg : i & 1 ? b->a_seg - seg : seg;
        a += step;
        a_low += step;
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) {
            float *t = total + (int64_t)(r0 + r) * VB_PANEL + 8 * h;
            __m256 v = _mm256_load_ps(acc[r] + 8 * h);
            _mm256_store_ps(t, first ? v : _mm256_add_ps(_mm256_load_ps(t), v));
        }
}

typedef void block_fn(const vb__qslice *s, const uint8_t *high, const float *scales, block *b, int first, float *total);
#define ROWS_CASE(R, planes, seg, form)                                                                    \
    case R: slice_rows(R, planes, seg, form, s, high, scales, b, r0, first, total); break;
#define CASES_1(seg, packed) ROWS_CASE(1, 1, seg, packed) ROWS_CASE(2, 1, seg, packed) ROWS_CASE(3, 1, seg, packed) \
    ROWS_CASE(4, 1, seg, packed)
#define CASES_2(seg, packed) ROWS_CASE(1, 2, seg, packed) ROWS_CASE(2, 2, seg, packed)
#define BLOCK(planes, seg, packed)                                                                           \
    static __attribute__((noinline)) void block_##planes##_##seg##_##packed(                                 \
        const vb__qslice *s, const uint8_t *high, const float *scales, block *b, int first, float *total) {  \
        for (int32_t r0 = 0, n; r0 < b->nb; r0 += n) {                                                       \
            int32_t left = b->nb - r0, most = GROUP / planes, groups = (left + most - 1) / most;             \
            n = (left + groups - 1) / groups;                                                                \
            switch (n) { CASES_##planes(seg, packed) }                                                       \
        }                                                                                                    \
    }
BLOCK(1, 32, 0)
BLOCK(1, 32, 1)
BLOCK(1, 64, 0)
BLOCK(1, 64, 1)
BLOCK(2, 32, 0)
BLOCK(2, 32, 1)
BLOCK(2, 64, 0)
BLOCK(2, 64, 1)
BLOCK(1, 16, 0)
BLOCK(1, 16, 1)
BLOCK(1, 16, 2)
BLOCK(2, 16, 0)
BLOCK(2, 16, 1)
BLOCK(2, 16, 2)
BLOCK(1, 32, 2)
BLOCK(1, 64, 2)
BLOCK(2, 32, 2)
BLOCK(2, 64, 2)

static block_fn *block_of(int planes, int seg, int form) {
    static block_fn *const fn[2][3][3] = { /* planes, segment 16, 32, 64, form */
        {{block_1_16_0, block_1_16_1, block_1_16_2}, {block_1_32_0, block_1_32_1, block_1_32_2}, {block_1_64_0, block_1_64_1, block_1_64_2}},
        {{block_2_16_0, block_2_16_1, block_2_16_2}, {block_2_32_0, block_2_32_1, block_2_32_2}, {block_2_64_0, block_2_64_1, block_2_64_2}}};
    return fn[planes - 1][seg / 32][form];
}

/* ---- preparing a slice ------------------------------------------------------------------------------------------ */

static void unpack4(const vb__qslice *s, int32_t seg, uint8_t *to) {
    const __m256i low = _mm256_set1_epi8(0x0f);
    for (int32_t i = 0; i < s->segs; i++) {
        const uint8_t *c = vb__qslice_codes(s, i);
        for (int32_t k = 0; k < seg; k += 8, to += 128)
            for (int h = 0; h < 64; h += 32) {
                __m256i v = load(c + k * 8 + h);
                keep(to + h, _mm256_and_si256(v, low));
                keep(to + 64 + h, _mm256_and_si256(_mm256_srli_epi16(v, 4), low));
            }
    }
}

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

void vb__linear_q_avx2(VB_LINEAR_Q_ARGS) {
    const vb__qpanels *w = g->w;
    const vb__qact *x = g->x;
    int32_t seg = x->seg, planes = x->planes;
    const int packed = w->code_bits == 4 && x->rows * planes <= GROUP;
    uint8_t *bytes = g->scratch;
    float *scales = (float *)(void *)(bytes + SCALES_AT), *totals = (float *)(void *)(bytes + TOTALS_AT);
    const int64_t panel_total = (int64_t)x->rows * VB_PANEL;
    block_fn *fn = block_of(planes, seg, w->code_bits == 8 ? 2 : packed);
    for (int32_t p = p0; p < p1; p++) {
        const uint8_t *panel = w->data + p * w->panel_stride;
        float *total = totals + (p - p0) % VB_SPAN * panel_total;
        for (int32_t k = 0; k < w->k; k += VB_SLICE) {
            vb__qslice s = vb__qslice_of(w, panel, k, seg);
            const uint8_t *unit = s.codes, *high = bytes + SLICE_BYTES;
            if (!packed) {
                widen_scales(&s, scales);
                if (w->code_bits == 4) unpack4(&s, seg, bytes);
                else unpack8(&s, seg, bytes);
                s.codes = bytes;
                s.code_seg = seg * VB_PANEL;
                s.code_unit = s.code_seg << s.shift;
            }
            for (int32_t r0 = 0; r0 < x->rows; r0 += VB_ROW_BLOCK) {
                int32_t nb = vb__row_block(x->rows, r0);
                if (k == 0) vb__expect_store(g, p, r0, nb);
                block b = {.nb = nb, .plane = nb * x->width, .a_seg = (int64_t)planes * nb * x->width};
                b.a = vb__qact_block(x, r0) + (int64_t)k * planes * nb;
                b.dd = vb__qact_dd(x, r0) + (int64_t)(k / seg) * 2 * nb;
                b.sums = vb__qact_sums(x, r0) + (int64_t)(k / seg) * nb;
                if (r0 == 0 && !packed) {
                    int32_t steps = s.segs * ((nb * planes + GROUP - 1) / GROUP);
                    b.next_lines = s.segs * seg / w->unit * w->unit_bytes / 64;
                    b.next = unit + b.next_lines * 64;
                    b.lines_per_step = (b.next_lines + steps - 1) / steps;
                }
                fn(&s, high, scales, &b, k == 0, total + (int64_t)r0 * VB_PANEL);
            }
        }
        int32_t held = (p - p0) % VB_SPAN + 1;
        if (held < VB_SPAN && p + 1 < p1) continue;
        for (int32_t r = 0; r < x->rows; r++)
            for (int32_t i = 0; i < held; i++)
                store_row(g, r, (p + 1 - held + i) * VB_PANEL, totals + i * panel_total + (int64_t)r * VB_PANEL);
    }
}
