/* embed: y[r] = row ids[r] of a matrix, as f32.
 *
 * formula   bf16: widened. Quantised: fma((float)code, scale, bias); without bias (float)code * scale. FTZ and DAZ on.
 * layout    the packed panels of linear_bf16.h and linear_q.h
 * class     cpu: one implementation for all levels
 * threads   rows are items */
#ifndef VB_BACKEND_OPS_EMBED_H
#define VB_BACKEND_OPS_EMBED_H
#include "backend/ops/linear_bf16.h"
#include "backend/ops/linear_q.h"

/* Row `id` (< n) into y (k). */
void vb__embed_q_ref(const vb__qpanels *w, int32_t id, float *y);
void vb__embed_bf16_ref(const vb__bpanels *w, int32_t id, float *y);

#endif
