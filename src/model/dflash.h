/* DFlash: a block drafter for a target model (docs/speculation.md). A small decoder whose layers read keys and values of
 * context rows (projections of the target's residual stream) and of the block [anchor, MASK, MASK, ...]; one
 * pass gives all proposals. It owns neither embedding nor head: both are the target's.
 *
 * Its sequence (vb__seq on vb__dflash_model) holds one context row per committed position of the target. */
#ifndef VB_MODEL_DFLASH_H
#define VB_MODEL_DFLASH_H
#include "model/forward.h"

typedef struct vb__dflash vb__dflash;

/* Whether a drafter of this config goes with a target of that one: VB_E_MISMATCH with both numbers when hidden size, vocabulary or layer
 * count differ. */
VB_MUST_USE vb_err vb__dflash_fits(const vb__model_config *drafter, const vb__model_config *target, vb_error *err);
/* Loads a drafter that fits `target`, for calls of at most max_rows rows in at most max_seqs sequences. */
VB_MUST_USE vb_err vb__dflash_load(const vb__weight_source *src, const vb__model *target, int32_t max_rows, int32_t max_seqs,
                                   vb__dflash **out, vb_error *err);
void vb__dflash_destroy(vb__dflash *d);
const vb__model *vb__dflash_model(const vb__dflash *d); /* for pools and sequences */

/* What one sequence does in a call; it must be reserved for length + rows. Sequences share nothing but the call. */
typedef struct vb__dflash_seq {
    vb__seq *seq;
    int32_t rows;
    int32_t anchor; /* of a block: the pending token */
} vb__dflash_seq;

/* Adds context rows from taps (all rows of the call, n_taps*hidden) of the target's committed rows. Each sequence grows by its rows. */
VB_MUST_USE vb_err vb__dflash_context(vb__dflash *d, const vb__dflash_seq *seqs, int32_t n_seqs, const float *taps, vb_error *err);
/* One block behind each context: out (all rows of the call, hidden), normed, for the target's head; row 0 of a block (the
 * anchor's) is not read. The sequences stay as long as they were. */
VB_MUST_USE vb_err vb__dflash_block(vb__dflash *d, const vb__dflash_seq *seqs, int32_t n_seqs, float *out, vb_error *err);

#endif
