/* elementwise: swiglu y[i] = silu(g[i]) * u[i]; unary y[i] = f(x[i]) for f = exp, sigmoid, silu, softplus
 *
 * shapes    n contiguous f32 each
 * limits    0 <= n; no alignment required; y may equal an input
 * class     cpu: every variant returns the reference's bits
 * order     the sequences of base/vmath.h, element by element; swiglu's product rounded. FTZ and DAZ on. NaN in,
 *           NaN out (payload unspecified).
 * threads   elements are independent
 * cost      reads 4*n bytes an input, writes 4*n
 */
#ifndef VB_OPS_ELEMENTWISE_H
#define VB_OPS_ELEMENTWISE_H
#include <stdint.h>

#define VB_SWIGLU_ARGS float *y, const float *g, const float *u, int32_t n
#define VB_UNARY_ARGS float *y, const float *x, int32_t n
typedef enum vb__unary { VB_UNARY_EXP, VB_UNARY_SIGMOID, VB_UNARY_SILU, VB_UNARY_SOFTPLUS, VB_UNARIES } vb__unary;
typedef void vb__swiglu_fn(VB_SWIGLU_ARGS);
typedef void vb__unary_fn(VB_UNARY_ARGS);
vb__swiglu_fn vb__swiglu_ref, vb__swiglu_avx2, vb__swiglu_avx512;
vb__unary_fn vb__exp_rows_ref, vb__exp_rows_avx2, vb__exp_rows_avx512;
vb__unary_fn vb__sigmoid_rows_ref, vb__sigmoid_rows_avx2, vb__sigmoid_rows_avx512;
vb__unary_fn vb__silu_rows_ref, vb__silu_rows_avx2, vb__silu_rows_avx512;
vb__unary_fn vb__softplus_rows_ref, vb__softplus_rows_avx2, vb__softplus_rows_avx512;

#endif
