/* elementwise, C reference. Contract: ops/elementwise.h. */
#include "backend/ops/elementwise.h"
#include "base/vmath.h"

void vb__swiglu_ref(VB_SWIGLU_ARGS) {
    for (int32_t i = 0; i < n; i++) y[i] = vb__siluf(g[i]) * u[i];
}
void vb__exp_rows_ref(VB_UNARY_ARGS) {
    for (int32_t i = 0; i < n; i++) y[i] = vb__expf(x[i]);
}
void vb__sigmoid_rows_ref(VB_UNARY_ARGS) {
    for (int32_t i = 0; i < n; i++) y[i] = vb__sigmoidf(x[i]);
}
void vb__silu_rows_ref(VB_UNARY_ARGS) {
    for (int32_t i = 0; i < n; i++) y[i] = vb__siluf(x[i]);
}
void vb__softplus_rows_ref(VB_UNARY_ARGS) {
    for (int32_t i = 0; i < n; i++) y[i] = vb__softplusf(x[i]);
}
