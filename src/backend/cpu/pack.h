/* Packed weights of the CPU backend: what vb__weight points to. Layouts: ops/linear_q.h, ops/linear_bf16.h. */
#ifndef VB_BACKEND_CPU_PACK_H
#define VB_BACKEND_CPU_PACK_H
#include "backend/ops/linear_bf16.h"
#include "backend/ops/linear_q.h"
#include "backend/weight.h"
#include "base/error.h"
#include "base/pool.h"
#include <stddef.h>

/* Memory of packed weights, in large pieces that many matrices share: only large mappings get huge pages, and without
 * them a product of small matrices is held up by page walks. One thread at a time. */
typedef struct vb__weight_store {
    struct vb__weight_piece *current; /* where the next matrix goes if it fits */
    size_t total;                     /* bytes handed out so far */
} vb__weight_store;

typedef struct vb__cpu_weight {
    vb__weight pub; /* first */
    vb__qpanels q;  /* pub.quantised */
    vb__bpanels b;  /* otherwise */
    struct vb__weight_piece *piece;
} vb__cpu_weight;

/* Checks src and packs it into the store, panels in parallel. Errors name src->name: VB_E_UNSUPPORTED for a geometry that the contract
 * refuses, VB_E_MEMORY. *out is the caller's (vb__pack_destroy). */
VB_MUST_USE vb_err vb__pack(vb__weight_store *store, vb__pool *pool, const vb__matrix *src, int32_t max_k,
                            vb__cpu_weight **out, vb_error *err);
void vb__pack_destroy(vb__cpu_weight *w); /* accepts NULL; its piece goes with the last of its matrices */

#endif
