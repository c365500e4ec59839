/* Memory of a loaded model: what `inspect` states before loading, what `bench` compares with, in bytes. */
#ifndef VB_ENGINE_FOOTPRINT_H
#define VB_ENGINE_FOOTPRINT_H
#include "model/model.h"

typedef struct vb__footprint {
    int64_t weights;      /* packed, with vectors */
    int64_t kv_per_token; /* of the page pool */
    int64_t page;         /* of 64 positions: the unit in which it is taken */
    int64_t state;        /* recurrent state and conv tails of one sequence */
    int64_t tapes;        /* of one sequence, for verify blocks */
    int64_t workspace;    /* scratch of forward calls and kernels, logit rows, sampler, draft vocabulary; once per engine */
} vb__footprint;

/* The model may come from a sizing backend (inspect). scratch: vb__footprint_scratch. */
void vb__footprint_of(const vb__model *m, int64_t scratch, vb__footprint *out);
/* What the kernels of a CPU backend for this model keep as scratch, found by making one and letting it go. threads 0: one per
 * CPU allowed. */
VB_MUST_USE vb_err vb__footprint_scratch(const vb__model_config *c, int32_t threads, int32_t activations, int64_t *out,
                                         vb_error *err);
/* One sequence of ctx positions and the workspace: everything but the weights. */
int64_t vb__footprint_context(const vb__footprint *f, int64_t ctx);

#endif
