/* A second, smaller model with the same vocabulary as drafter. It runs row by row behind the pending token;
 * what it has seen of a request is a sequence of its own, which lags behind the target's and catches up when
 * it is asked. On the target's backend; one thread at a time. */
#ifndef VB_ENGINE_DRAFT_MODEL_H
#define VB_ENGINE_DRAFT_MODEL_H
#include "model/forward.h"

typedef struct vb__draft_model vb__draft_model;

/* VB_E_MISMATCH with both numbers when the vocabularies differ in size by more than padding may. */
VB_MUST_USE vb_err vb__draft_model_fits(const vb__model_config *drafter, const vb__model_config *target, vb_error *err);
/* n_pages: KV pages for all its sequences. */
VB_MUST_USE vb_err vb__draft_model_open(const char *path, const vb__model *target, int32_t max_rows,
                                        int32_t n_pages, vb__draft_model **out, vb_error *err);
void vb__draft_model_close(vb__draft_model *d); /* accepts NULL; after its sequences */
VB_MUST_USE vb_err vb__draft_model_seq(const vb__draft_model *d, int32_t max_length, vb__seq **out,
                                       vb_error *err);

/* Runs what the sequence has not yet seen of known[0..n_known-2]; for good. */
VB_MUST_USE vb_err vb__draft_model_catch_up(vb__draft_model *d, vb__seq *s, const int32_t *known,
                                            int32_t n_known, vb_error *err);
/* Logits (1, the target's vocab), device; a drafter of more rows writes them all, up to twice the target's; behind the known tokens (the last of them pending) and drafts. Drafts must
 * extend those of the last call since settle. */
VB_MUST_USE vb_err vb__draft_model_next(vb__draft_model *d, vb__seq *s, const int32_t *known, int32_t n_known,
                                        const int32_t *drafts, int32_t n_drafts, float *logits,
                                        vb_error *err);
/* The target's sequence has `n` tokens now; those shown that are not among them are forgotten. */
void vb__draft_model_settle(vb__seq *s, int32_t n);

#endif
