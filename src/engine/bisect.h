/* Where a block of rows first differs from one-row steps: the layer and position whose residual stream differs. */
#ifndef VB_ENGINE_BISECT_H
#define VB_ENGINE_BISECT_H
#include "engine/engine.h"

typedef struct vb__difference {
    bool found;
    int32_t position, width, row, accept;
    int32_t layer;        /* -1: behind the layers (head) or none of them (state) */
    char tensor[64];      /* "residual after layer 3 (full attention)", "logits", "state" */
    int32_t element;      /* first element that differs; -1: unknown */
    float want, got;
} vb__difference;

/* Blocks of `width` rows at every accept length against a chain of 48 steps behind a 96-token prefill, with the residual
 * stream of every layer. Also the prefill in one call against row by row. */
VB_MUST_USE vb_err vb__bisect(vb__engine *e, int32_t width, vb__difference *out, vb_error *err);

#endif
