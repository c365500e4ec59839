/* Walking a slice of a packed panel; shared by the linear kernels of all levels. Static inline, no intrinsics. */
#ifndef VB_BACKEND_X86_LINEAR_SLICE_H
#define VB_BACKEND_X86_LINEAR_SLICE_H
#include "backend/ops/linear_bf16.h"
#include "backend/ops/linear_q.h"

#define VB_INLINE static inline __attribute__((always_inline))

/* Bytes ahead of the weight stream that are asked for; the hardware's own prefetch stops at 4 KiB pages. */
enum { VB_AHEAD = 3072, VB_FAR = 4096, VB_NEAR = 1152 }; /* alone; or far into L2 and near into L1 */

/* Panels whose results are stored together: a row of y is then written in runs of 256 bytes, which memory takes twice
 * as fast as single lines a row apart. */
enum { VB_SPAN = 4 };

/* Asks for the lines of y that rows r0 .. r0+rows-1 of a panel will be stored to, long before. */
VB_INLINE void vb__expect_store(const vb__linear_q_args *g, int32_t p, int32_t r0, int32_t rows) {
    const float *y = g->y + (int64_t)r0 * g->ys + (int64_t)p * VB_PANEL;
    for (int32_t r = 0; r < rows; r++, y += g->ys) __asm__ volatile("prefetchw %0" : : "m"(*y));
}

/* Where the segments of one slice of a panel lie: segment i has its codes at codes + (i >> shift) * code_unit +
 * (i & mask) * code_seg and its scales at scales + (i >> shift) * scale_unit + ((i & mask) >> per_group) * scale_seg. */
typedef struct vb__qslice {
    const uint8_t *codes, *scales;
    int32_t code_unit, code_seg, scale_unit, scale_seg;
    int32_t shift, mask, per_group;
    int32_t segs; /* in this slice */
    vb__scale_kind kind;
    int32_t has_bias, offset;
} vb__qslice;

VB_INLINE vb__qslice vb__qslice_of(const vb__qpanels *w, const uint8_t *panel, int32_t k, int32_t seg) {
    vb__qslice s;
    const uint8_t *unit = panel + (int64_t)(k / w->unit) * w->unit_bytes;
    int32_t left = w->k - k;
    s.codes = unit;
    s.scales = unit + w->codes_bytes;
    s.code_unit = s.scale_unit = w->unit_bytes;
    s.code_seg = seg * VB_PANEL * w->code_bits / 8;
    s.scale_seg = w->scale_stride;
    s.mask = w->unit / seg - 1;
    s.shift = s.mask == 0 ? 0 : s.mask == 1 ? 1 : 2;
    s.per_group = w->group > seg ? 1 : 0;
    s.segs = (left < VB_SLICE ? left : VB_SLICE) / seg;
    s.kind = w->scale_kind;
    s.has_bias = w->has_bias;
    s.offset = w->offset;
    return s;
}
VB_INLINE const uint8_t *vb__qslice_codes(const vb__qslice *s, int32_t i) {
    return s->codes + (i >> s->shift) * s->code_unit + (i & s->mask) * s->code_seg;
}
VB_INLINE const uint8_t *vb__qslice_scales(const vb__qslice *s, int32_t i) {
    return s->scales + (i >> s->shift) * s->scale_unit + ((i & s->mask) >> s->per_group) * s->scale_seg;
}

#endif
