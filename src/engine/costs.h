/* What a forward call must move and multiply: the arithmetic behind "how far from the limit". Of the model's trunk;
 * an MTP head is not part of a step. */
#ifndef VB_ENGINE_COSTS_H
#define VB_ENGINE_COSTS_H
#include "model/model.h"

typedef struct vb__costs {
    int64_t weight_bytes;   /* packed bytes, scales included, that any call with logits reads: all products and one row
                               of the embedding (the whole of it where it is the head); of experts those that one row uses */
    int64_t kv_bytes;       /* of one position, all attention layers */
    int64_t kv_window_bytes; /* the part of kv_bytes in layers with a sliding window */
    int32_t window;         /* of those; 0: none */
    int64_t state_bytes;    /* recurrent state and conv tails; a call reads and writes them once */
    int64_t body_macs;      /* multiply-accumulates of one row in all products but the head */
    int64_t head_macs;      /* of one row of logits */
} vb__costs;

void vb__costs_of(const vb__model *m, vb__costs *out);
/* Bytes of a decode step whose row is at position `pos`: weights, KV of positions 0..pos, state read and written. */
int64_t vb__costs_step_bytes(const vb__costs *c, int64_t pos);

#endif
