/* linear_q: y[r][o] = chain over segments of W[o] . x[r] (+ bias[o]) (+ residual[r][o]), W = scale_g * code + bias_g.
 *
 * shapes    w packed (n, k); x quantised (rows, k) by act_quant of the same group; y (rows, n), stride ys
 * order     per segment (S = min(G, 64) elements, k ascending) with dot = sum code * a, exact in int32, and ds =
 *           d * (float)(sum a) rounded:
 *             acc = fma((float)dot, scale_g * d, acc), then if the format has a bias acc = fma(bias_g, ds, acc)
 *           (float)dot rounds to nearest even. k is cut in slices of 512, each with a chain of its own from +0; slice 0
 *           is copied, the others are added in ascending order. Then + bias[o], then + residual, each rounded.
 * layout    panels of 16 outputs, one after the other, zero codes and scales beyond n. A panel is a sequence of units of U =
 *           max(G, 64) k-values (the last may be partly unused, with zeros):
 *             codes   4-bit: 64 bytes hold 8 k-values of all 16 outputs: byte [o][j], j < 4 is
 *                     code[k+j] | code[k+4+j] << 4; 8-bit: 64 bytes hold 4 k-values: byte [o][j] is code[k+j]
 *             scales  for each group of the unit: scale[16], then (if any) bias[16]; bf16, f16 or f32
 *           So an `and` and a shift give two VNNI operands, and 64 k-values are the rows of an AMX B tile.
 *           A format with signed codes stores code + offset; dot is then sum (code + offset) * a - offset * sum a.
 * limits    k a multiple of 32 and of G; G 16, 32, 64 or 128; n >= 1; y may equal residual
 * class     cpu: every variant returns the reference's bits
 * threads   panels are items; a panel is never split
 * cost      reads panel_stride bytes a panel once, k*16*rows multiply-accumulates a panel */
#ifndef VB_BACKEND_OPS_LINEAR_Q_H
#define VB_BACKEND_OPS_LINEAR_Q_H
#include "backend/ops/act_quant.h"
#include "backend/weight.h"

enum { VB_PANEL = 16, VB_SLICE = 512, VB_LINEAR_SCRATCH = 256 << 10 };

typedef struct vb__qpanels {
    const uint8_t *data; /* 64-byte aligned; 16 KiB behind the last panel may be read, never used */
    int64_t panel_stride; /* bytes */
    int32_t n, k;
    int32_t group;       /* G */
    int32_t code_bits;   /* 4 or 8: how a code is stored */
    int32_t offset;      /* see layout; 0 for unsigned codes */
    int32_t has_bias;
    vb__scale_kind scale_kind;
    int32_t unit, unit_bytes; /* U and bytes of a unit */
    int32_t codes_bytes;      /* of a unit: where its scales start */
    int32_t scale_stride;     /* bytes from one group's scales to the next */
} vb__qpanels;

static inline int32_t vb__scale_size(vb__scale_kind kind) { return kind == VB_SCALE_F32 ? 4 : 2; }

/* Fills the layout fields from n, k, group, code_bits, has_bias and scale_kind. */
static inline void vb__qpanels_layout(vb__qpanels *w) {
    w->unit = w->group > 64 ? w->group : 64;
    w->codes_bytes = w->unit * VB_PANEL * w->code_bits / 8;
    w->scale_stride = VB_PANEL * vb__scale_size(w->scale_kind) * (w->has_bias ? 2 : 1);
    w->unit_bytes = w->codes_bytes + w->unit / w->group * w->scale_stride;
    w->panel_stride = (int64_t)((w->k + w->unit - 1) / w->unit) * w->unit_bytes;
}

/* One product of a call. scratch: VB_LINEAR_SCRATCH bytes of the calling thread, 64-byte aligned, rows at most 512. */
typedef struct vb__linear_q_args {
    const vb__qpanels *w;
    const vb__qact *x;
    float *y;
    int64_t ys;
    const float *bias, *residual; /* (n) and (rows, n) with stride rs, or NULL */
    int64_t rs;
    void *scratch;
} vb__linear_q_args;

/* Panels p0 .. p1-1 for all rows. */
#define VB_LINEAR_Q_ARGS const vb__linear_q_args *g, int32_t p0, int32_t p1
typedef void vb__linear_q_fn(VB_LINEAR_Q_ARGS);
vb__linear_q_fn vb__linear_q_ref, vb__linear_q_avx2, vb__linear_q_avxvnni, vb__linear_q_avx512, vb__linear_q_amx;

#endif
