/* DFlash: a block drafter for a target model (docs/speculation.md). A small decoder whose layers read keys and values of
 * context rows (projections of the target's residual stream) and of the block [anchor, MASK, MASK, ...]; one
 * pass gives all proposals. It owns neither embedding nor head: both are the target's.
 *
 * Its sequence (vb__seq on vb__dflash_model) holds one context row per committed position of the target. */
#ifndef VB_MODEL_DFLASH_H
#define VB_MODEL_DFLASH_H
#include "model/forward.h"

typedef struct vb__dflash vb__dflash;

/* Loads a drafter for `target`. VB_E_MISMATCH with both numbers when hidden size, vocabulary or layer count differ. */
VB_MUST_USE vb_err vb__dflash_load(const vb__weight_source *src, const vb__model *target, int32_t max_rows, vb__dflash **out,
                                   vb_error *err);
void vb__dflash_destroy(vb__dflash *d);
const vb__model *vb__dflash_model(const vb__dflash *d); /* for pools and sequences */

/* Adds context rows from taps (rows, n_taps*hidden) of the target's committed rows. The sequence grows by `rows` (at most
 * max_rows); it must be reserved. */
VB_MUST_USE vb_err vb__dflash_context(vb__dflash *d, vb__seq *s, const float *taps, int32_t rows, vb_error *err);
/* One block of `width` rows behind the context: out (width, hidden), normed, for the target's head; row 0 (the anchor) is not
 * read. The sequence must be reserved for length + width and stays as long as it was. */
VB_MUST_USE vb_err vb__dflash_block(vb__dflash *d, vb__seq *s, int32_t anchor, int32_t width, float *out, vb_error *err);

#endif
