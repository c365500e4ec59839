/* The scheduler's plan of one request in one step; the engine makes room for `parallel` of them at open. */
#ifndef VB_ENGINE_STEP_SEQ_H
#define VB_ENGINE_STEP_SEQ_H
#include "engine/engine.h"

/* What one request does in this step. */
typedef struct vb__step_seq {
    vb__slot *slot;
    int32_t row0;    /* first row of the call */
    int32_t known;   /* certain rows: known tokens */
    int32_t drafts;  /* rows behind them */
    bool samples;    /* the known tokens end in this step, so the last one is sampled from */
    int32_t hidden0; /* index into the hidden rows wanted of this request's first one */
    int32_t hidden_first; /* which of its rows that is */
    int32_t accepted;     /* drafts accepted */
    int32_t keep;         /* rows to commit */
    bool over;            /* no more rows of it are sampled in this step */
    bool ended;           /* the answer ended */
} vb__step_seq;

/* Load progress of the model, in the terms of vb_model_options.progress (user: the options). */
bool vb__engine_load_progress(void *user, int64_t done, int64_t total);

#endif
