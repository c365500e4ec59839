/* The sampler over rows of several requests at one time: rows are independent, so threads share them. */
#ifndef VB_ENGINE_SAMPLE_ROWS_H
#define VB_ENGINE_SAMPLE_ROWS_H
#include "engine/engine.h"

/* The row of a request whose choice will stand behind `position`, without its logits. `top_logprobs`: -1 for none. */
vb__sample_row vb__request_row(const vb__engine *e, const vb__req *r, int32_t position, int32_t top_logprobs);

/* What choices need of some rows of logits. Most answers are greedy and need only the best id of each row: then the logits
 * are not kept, which spares a step of 16 rows a tenth of its memory traffic. */
typedef struct vb__row_logits {
    bool read, best; /* in: some row's logits are read; some row's best id is enough */
    const vb__out_range *ranges; /* in: [n_ranges] the ids that may be chosen (linear_argmax); n_ranges 0: all */
    int32_t n_ranges;
    const float *logits; /* out: [rows][vocab], NULL when nobody reads them; -1e30 outside the ranges */
    vb__best of[VB_LOGIT_ROWS]; /* out: its best, where it is finite; else nothing is known */
} vb__row_logits;

/* Notes that a choice will be made from such a row. */
void vb__row_logits_want(vb__row_logits *l, const vb__sample_row *row);
/* Makes them of final-normed hidden rows (device), rows <= VB_LOGIT_ROWS, into e->logits. Waits. */
VB_MUST_USE vb_err vb__row_logits_make(vb__engine *e, const float *hidden, int32_t rows, vb__row_logits *l, vb_error *err);
/* Fills in row `i` of them. */
void vb__row_logits_take(const vb__engine *e, const vb__row_logits *l, int32_t i, vb__sample_row *row);

/* Chooses for rows[0..n-1], n <= VB_LOGIT_ROWS. why[i].code is VB_OK and out[i] set, or why[i] says what is wrong with row i. */
void vb__sample_rows(vb__engine *e, const vb__sample_row *rows, int32_t n, vb__sample *out, vb_error *why);

#endif
