/* Parts of the forward pass that drafters share: scratch, row bookkeeping, one layer. Inside the model layer only. */
#ifndef VB_MODEL_DECODER_H
#define VB_MODEL_DECODER_H
#include "model/forward.h"

struct vb__workspace {
    vb__backend *be;
    int32_t max_rows, max_seqs;
    float *x;          /* (rows, hidden) residual stream */
    float *h;          /* (rows, hidden) normed */
    float *wide;       /* (rows, wide): q|k|v of attention or m|z|a|b of the delta net; gate of the MLP */
    float *wide2;      /* (rows, wide2): attention output, conv output; up of the MLP */
    float *mix;        /* (rows, mix): delta-net output */
    float *pair;       /* (rows, 2*hidden): MTP input */
    float *moe;        /* scratch of experts (moe.c), with moe_host; NULL: no experts */
    struct vb__moe_host *moe_host;
    vb__rope_table rope;
    vb__seq_rows *seqs; /* [max_seqs] */
    int32_t *ids, *pos; /* [max_rows] host */
    int64_t wide_n, wide2_n, mix_n;
};

/* Entry i of ws->seqs: `rows` rows of s from row0 on, at positions pos0...; ids and positions of the rows. */
void vb__rows_begin(vb__workspace *ws, int32_t i, vb__seq *s, int32_t row0, int32_t rows, int32_t certain, int32_t pos0,
                    const int32_t *tokens);
/* One layer over ws->x. */
void vb__layer_forward(const vb__model *m, const vb__layer *l, vb__workspace *ws, int32_t rows, int32_t n_seqs);
/* Only K and V of an attention layer, from its normed input x (rows, hidden), into the pages. */
void vb__layer_kv_only(const vb__model *m, const vb__layer *l, vb__workspace *ws, const float *x, int32_t rows,
                       int32_t n_seqs);

#endif
