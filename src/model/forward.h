/* The one forward pass. A call is rows of one or more sequences; what is wanted of it (hidden rows, taps) is an
 * argument. Logits are a second call, since few rows need them. */
#ifndef VB_MODEL_FORWARD_H
#define VB_MODEL_FORWARD_H
#include "model/model.h"
#include "model/sequence.h"

typedef struct vb__forward_seq {
    vb__seq *seq;          /* reserved up to length + rows */
    int32_t rows, certain; /* certain <= rows; rows - certain <= seq->tape_rows */
    const int32_t *tokens; /* host, rows ids below vocab */
} vb__forward_seq;

typedef struct vb__forward_args {
    const vb__forward_seq *seqs;
    int32_t n_seqs;
    /* Final-normed hidden rows wanted: hidden[i] = row hidden_rows[i] of the call (ascending host array; NULL with n_hidden =
     * all rows: every row). Device (n_hidden, hidden). */
    const int32_t *hidden_rows;
    int32_t n_hidden;
    float *hidden;
    /* Taps: the residual stream after layers tap_layers[0..n_taps-1], concatenated per row: (rows, n_taps*hidden). */
    const int32_t *tap_layers;
    int32_t n_taps;
    float *taps;
} vb__forward_args;

/* Scratch of calls with at most max_rows rows in at most max_seqs sequences. Many models may share one
 * workspace when it was made for the largest. */
typedef struct vb__workspace vb__workspace;
VB_MUST_USE vb_err vb__workspace_create(const vb__model *m, int32_t max_rows, int32_t max_seqs, vb__workspace **out,
                                        vb_error *err);
void vb__workspace_destroy(vb__workspace *ws);
int64_t vb__workspace_bytes(const vb__model_config *cfg, int32_t max_rows);

/* Runs the rows. Allocates nothing. Afterwards every sequence waits for vb__seq_commit. Errors: argument errors (our own bugs, ids
 * out of range) before anything ran; device errors. */
VB_MUST_USE vb_err vb__forward(const vb__model *m, vb__workspace *ws, const vb__forward_args *a, vb_error *err);

/* logits (rows, vocab) device, stride vocab, of final-normed hidden rows (rows, hidden). */
void vb__logits(const vb__model *m, const float *hidden, int32_t rows, float *logits);
/* The same, with the best of each row (host array [rows]); logits NULL when nobody wants those themselves. With ranges (n_ranges > 0)
 * only those ids are looked at; cells of others are left alone. Waits. */
void vb__logits_best(const vb__model *m, const float *hidden, int32_t rows, float *logits, const vb__out_range *ranges,
                     int32_t n_ranges, vb__best *best);

/* MTP rows (spec qwen3_5, section 5): for each sequence rows i = pos0 .. pos0+rows-1, row i from the hidden row i of
 * the trunk (or MTP's own output) and token i+1; KV goes to the MTP layer of the sequence's pages. out: (rows, hidden)
 * after mtp.norm, or NULL when only KV is wanted. */
typedef struct vb__mtp_seq {
    vb__seq *seq;
    int32_t rows, pos0;
    const int32_t *tokens; /* host: token i+1 of each row */
    const float *hidden;   /* device (rows, hidden) */
} vb__mtp_seq;
VB_MUST_USE vb_err vb__mtp_forward(const vb__model *m, vb__workspace *ws, const vb__mtp_seq *seqs, int32_t n_seqs,
                                   float *out, vb_error *err);

#endif
