/* A backend that only measures: it binds a model's matrices without reading them and says how many bytes they
 * would take packed. Nothing runs on it. */
#ifndef VB_ENGINE_SIZING_H
#define VB_ENGINE_SIZING_H
#include "backend/backend.h"

/* For vb__model_load and vb__model_destroy. Weights have n, k, bits, group and bytes; vectors are real memory. Scales stored as f32
 * count as f32, though packing may find that bf16 holds them. Destroyed like any backend. */
VB_MUST_USE vb_err vb__sizing_backend_create(vb__backend **out, vb_error *err);

#endif
