/* The MLP of a mixture of experts: router, the chosen experts' products, the shared expert. Inside the model
 * layer only. Contract: docs/numerics.md, "Experts"; ops/route.h. */
#ifndef VB_MODEL_MOE_H
#define VB_MODEL_MOE_H
#include "model/decoder.h"

/* Floats of scratch for calls of at most max_rows rows; 0 for models without experts. */
int64_t vb__moe_floats(const vb__model_config *c, int32_t max_rows);
/* Host scratch of a workspace (ws->moe_host), NULL without experts; VB_E_MEMORY. */
VB_MUST_USE vb_err vb__moe_host_create(const vb__model_config *c, int32_t max_rows,
                                       struct vb__moe_host **out);
void vb__moe_host_destroy(struct vb__moe_host *h); /* accepts NULL */
/* ws->x += block(ws->h). A row's bits depend on that row alone: experts see rows as linears do, and what a
 * row's experts gave is summed in the row's own rank order. */
void vb__moe_forward(const vb__model *m, const vb__layer *l, vb__workspace *ws, int32_t rows);

#endif
