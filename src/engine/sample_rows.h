/* The sampler over rows of several requests at one time: rows are independent, so threads share them. */
#ifndef VB_ENGINE_SAMPLE_ROWS_H
#define VB_ENGINE_SAMPLE_ROWS_H
#include "engine/engine.h"

/* Chooses for rows[0..n-1], n <= VB_LOGIT_ROWS. why[i].code is VB_OK and out[i] set, or why[i] says what is wrong with row i. */
void vb__sample_rows(vb__engine *e, const vb__sample_row *rows, int32_t n, vb__sample *out, vb_error *why);

#endif
