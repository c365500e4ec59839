/* Memory of a loaded model: what `inspect` states before loading, what `bench` compares with, in bytes. */
#ifndef VB_ENGINE_FOOTPRINT_H
#define VB_ENGINE_FOOTPRINT_H
#include "model/model.h"

typedef struct vb__footprint {
    int64_t weights;      /* packed, with vectors */
    int64_t kv_per_token; /* of the page pool */
    int64_t page;         /* of 64 positions: the unit in which it is taken */
    int64_t state;        /* recurrent state and conv tails of one sequence */
    int64_t tapes;        /* of one sequence, when drafts are verified */
    int64_t workspace;    /* scratch of forward calls, logit rows, sampler; once per engine */
} vb__footprint;

/* drafts: room for verify blocks. The model may come from a sizing backend (inspect). */
void vb__footprint_of(const vb__model *m, bool drafts, vb__footprint *out);
/* One sequence of ctx positions and the workspace: everything but the weights. */
int64_t vb__footprint_context(const vb__footprint *f, int64_t ctx);

#endif
