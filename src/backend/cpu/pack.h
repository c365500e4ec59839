/* Packed weights of the CPU backend: what vb__weight points to. Layouts: ops/linear_q.h, ops/linear_bf16.h. */
#ifndef VB_BACKEND_CPU_PACK_H
#define VB_BACKEND_CPU_PACK_H
#include "backend/ops/linear_bf16.h"
#include "backend/ops/linear_q.h"
#include "backend/weight.h"
#include "base/error.h"
#include "base/pool.h"

typedef struct vb__cpu_weight {
    vb__weight pub; /* first */
    vb__qpanels q;  /* pub.quantised */
    vb__bpanels b;  /* otherwise */
    void *memory;
} vb__cpu_weight;

/* Checks src and packs it, panels in parallel. Errors name src->name: VB_E_UNSUPPORTED for a geometry that the contract
 * refuses, VB_E_MEMORY. *out is the caller's (vb__pack_destroy). */
VB_MUST_USE vb_err vb__pack(vb__pool *pool, const vb__matrix *src, int32_t max_k, vb__cpu_weight **out, vb_error *err);
void vb__pack_destroy(vb__cpu_weight *w); /* accepts NULL */

#endif
