/* act_quant: the input of linear_q, quantised once per activation group of A = min(max(G, 32), 64) elements.
 *
 * formula   any |x| of the group not finite: d = NaN, all a = 0. Else amax = max |x|; amax < 2^-64: d = +0, all
 *           a = 0. Else d = amax / L, id = L / amax, a = rne(x * id), |a| <= L, with L = 127 (8-bit
 *           activations) or 32512 (16-bit). Divisions and the product are rounded; FTZ and DAZ on.
 *           Per segment of S = min(G, 64) elements: sum = sum of a, ds = d * (float)sum.
 * 16-bit    a = 256*hi + lo with lo in -128..127 and hi in -127..127: two int8 planes, hi then lo. The integer
 *           kernels see a row as two rows.
 * layout    rows lie in blocks of 16 (the last one shorter: nb rows), so that a block is a set of AMX A tiles and a
 *           row of a block is a constant distance from its neighbour:
 *             a    [block][k / A][plane][nb][A]  int8
 *             dd   [block][k / S][2][nb]         f32: d of the segment's activation group, then ds
 *             sums [block][k / S][nb]            int32
 *           4 KiB behind each of the three may be read by a kernel (whole tiles of a short block), never used.
 * limits    k a multiple of A; no alignment of x
 * class     cpu: every variant returns the reference's bits (a NaN's payload is unspecified)
 * threads   rows are items */
#ifndef VB_BACKEND_OPS_ACT_QUANT_H
#define VB_BACKEND_OPS_ACT_QUANT_H
#include <stdint.h>

enum { VB_ROW_BLOCK = 16 };

typedef struct vb__qact {
    int8_t *a;
    float *dd;
    int32_t *sums;
    int32_t rows, k;
    int32_t k0;     /* first k-value that a product uses: 0 except under a planted fault */
    int32_t width;  /* A: 32 or 64 */
    int32_t seg;    /* S: 16, 32 or 64 */
    int32_t planes; /* 1: 8-bit activations, 2: 16-bit */
} vb__qact;

static inline int32_t vb__qact_width(int32_t group) { return group < 32 ? 32 : group > 64 ? 64 : group; }
static inline int32_t vb__qact_seg(int32_t group) { return group > 64 ? 64 : group; }
/* Rows of the block that starts at row `r0`. */
static inline int32_t vb__row_block(int32_t rows, int32_t r0) {
    return rows - r0 < VB_ROW_BLOCK ? rows - r0 : VB_ROW_BLOCK;
}

/* Start of the block of row r0 (a multiple of 16), at k0. */
static inline int8_t *vb__qact_block(const vb__qact *q, int32_t r0) {
    return q->a + ((int64_t)r0 * q->k + (int64_t)q->k0 * vb__row_block(q->rows, r0)) * q->planes;
}
static inline float *vb__qact_dd(const vb__qact *q, int32_t r0) {
    return q->dd + ((int64_t)r0 * (q->k / q->seg) + (int64_t)(q->k0 / q->seg) * vb__row_block(q->rows, r0)) * 2;
}
static inline int32_t *vb__qact_sums(const vb__qact *q, int32_t r0) {
    return q->sums + (int64_t)r0 * (q->k / q->seg) + (int64_t)(q->k0 / q->seg) * vb__row_block(q->rows, r0);
}

/* Rows r0 .. r1-1 of x (stride xs) into q, whose geometry and memory are set. */
#define VB_ACT_QUANT_ARGS const vb__qact *q, const float *x, int64_t xs, int32_t r0, int32_t r1
typedef void vb__act_quant_fn(VB_ACT_QUANT_ARGS);
vb__act_quant_fn vb__act_quant_ref, vb__act_quant_avx2, vb__act_quant_avx512;

#endif
