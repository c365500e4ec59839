/* linear_bf16: y[r][o] = W[o] . to_bf16(x[r]) (+ bias[o]) (+ residual[r][o]), W in bf16, sums in f32.
 *
 * shapes    w packed (n, k); x prepared (rows, k) by act_bf16; y (rows, n), stride ys
 * order     k padded with zeros to a multiple of 32. Per 32 k-values the even and the odd products run in two fma
 *           chains from +0, k ascending; the chains are added; that sum is added to the accumulator, which starts
 *           at +0. This is what tdpbf16ps does. Then + bias[o], then + residual, each rounded. FTZ and DAZ on.
 * layout    panels of 16 outputs: [kp / 2][16 outputs][2] bf16, kp = k rounded up to 32, zeros beyond n and k: 16
 *           vectors of 64 bytes are an AMX B tile of 32 k.
 * input     up to AVX-512: [block of 16 rows][kp][nb] f32 (values of to_bf16), for broadcasts
 *           AMX: [block][kp / 32][nb][32] bf16, A tiles
 * limits    n, k >= 1; y may equal residual
 * class     cpu: every variant returns the reference's bits (a NaN's payload is unspecified)
 * threads   panels are items; a panel is never split
 * cost      reads 32*kp bytes a panel once, 16*k*rows multiply-accumulates a panel */
#ifndef VB_BACKEND_OPS_LINEAR_BF16_H
#define VB_BACKEND_OPS_LINEAR_BF16_H
#include "backend/ops/linear_q.h"

typedef struct vb__bpanels {
    const uint16_t *data; /* 64-byte aligned */
    int64_t panel_stride; /* elements: 16*kp */
    int32_t n, k, kp;
} vb__bpanels;

typedef struct vb__bact {
    void *x;
    int32_t rows, k, kp;
    int32_t k0; /* first k-value that a product uses: 0 except under a planted fault */
} vb__bact;

/* Elements from b->x to the block of row r0 (a multiple of 16), at k0; products run over w->kp values from there. */
static inline int64_t vb__bact_block(const vb__bact *b, int32_t r0) {
    return (int64_t)r0 * b->kp + (int64_t)b->k0 * vb__row_block(b->rows, r0);
}

typedef struct vb__linear_bf16_args {
    const vb__bpanels *w;
    const vb__bact *x;
    float *y;
    int64_t ys;
    const float *bias, *residual;
    int64_t rs;
    void *scratch; /* as in linear_q */
} vb__linear_bf16_args;

#define VB_LINEAR_BF16_ARGS const vb__linear_bf16_args *g, int32_t p0, int32_t p1
typedef void vb__linear_bf16_fn(VB_LINEAR_BF16_ARGS);
vb__linear_bf16_fn vb__linear_bf16_ref, vb__linear_bf16_avx2, vb__linear_bf16_avx512, vb__linear_bf16_amx;

/* Rows r0 .. r1-1 of x (stride xs) into b. ..._ref writes the f32 form (all levels below AMX use it), ..._amx the bf16 form. */
#define VB_ACT_BF16_ARGS const vb__bact *b, const float *x, int64_t xs, int32_t r0, int32_t r1
typedef void vb__act_bf16_fn(VB_ACT_BF16_ARGS);
vb__act_bf16_fn vb__act_bf16_ref, vb__act_bf16_amx;

#endif
