/* The engine: one loaded model, its slots (sequences), and the step that runs rows of all live requests
 * through one forward. Everything a user sees (run, chat, the server, verify) is requests on an engine.
 *
 * One thread drives an engine. A step fills one forward with rows of every live request: those that decode
 * first (their next token and, when a drafter proposes, a block to verify), then chunks of prompts under a row
 * budget. Nothing below the engine knows the difference. */
#ifndef VB_ENGINE_ENGINE_H
#define VB_ENGINE_ENGINE_H
#include "base/cpu.h"
#include "engine/request.h"
#include "model/forward.h"
#include "text/tokenizer.h"
#include "verbatim/verbatim.h"

enum {
    VB_LOGIT_ROWS = 16,          /* logit rows in memory at one time */
    VB_TILE_ROWS = 16,           /* rows that cost about as much as one */
    VB_PREFILL_CHUNK = 512,      /* default rows of a prompt in one step */
    VB_PREFILL_ROWS_LEAST = 16,  /* of one prompt in a step, when several share the budget */
    VB_PREFILL_ROWS_BUSY = 64,   /* prompt rows of a step while other requests decode */
};

/* A place for one sequence. Its tokens outlive the request, so that a later request may continue them. */
typedef struct vb__slot {
    vb__seq *seq;
    int32_t *tokens; /* [ctx]: those that the sequence has run, seq->length of them */
    vb__req *req;    /* live request, or NULL */
    struct vb__draft_slot *draft;
} vb__slot;

typedef struct vb__engine_stats {
    double load_s;
    int64_t steps, rows;
    int64_t gave_way; /* requests that gave up their pages to be computed again */
} vb__engine_stats;

typedef struct vb__engine {
    vb__backend *be;
    vb__model *model;
    vb__workspace *ws;
    vb__page_pool *pages;
    vb__tokenizer *tok; /* NULL: ids only */
    char *no_text;      /* why a GGUF file's own tokenizer is not used; NULL: there is none */
    struct vb__chat_template *chat; /* NULL: none */
    char *path;
    char fingerprint[33]; /* of the model's files; "" when not computed */
    vb__cpu_level level;
    int32_t threads, activations;
    int32_t ctx, trained_ctx, parallel, prefill_chunk, max_rows;
    int32_t eos[64], n_eos;        /* end tokens, the union of all sources */
    vb_sampling defaults;          /* generation_config.json */
    uint32_t *token_mask;          /* bit id: the tokenizer has a token; NULL without a tokenizer */
    vb__sampler *samplers[VB_LOGIT_ROWS]; /* as many as rows may be sampled at one time */
    int32_t n_samplers;
    vb__slot *slots;               /* [parallel] */
    vb__req *queue, **queue_tail;  /* waiting requests, in order */
    uint64_t serial;               /* of the next request */
    struct vb__drafting *drafting; /* drafters and their policy; NULL: none */
    /* Step scratch, made at open. */
    float *hidden;        /* device (max_rows, hidden) */
    float *logit_hidden;  /* device (VB_LOGIT_ROWS, hidden) */
    float *logits;        /* device (VB_LOGIT_ROWS, vocab) */
    float *taps;          /* device (max_rows, n_taps*hidden), NULL without a drafter that wants them */
    vb__forward_seq *fseqs;   /* [parallel] */
    struct vb__step_seq *plan; /* [parallel] */
    int32_t *row_tokens;      /* [max_rows] */
    int32_t *hidden_rows;     /* [max_rows] */
    vb__engine_stats stats;
} vb__engine;

VB_MUST_USE vb_err vb__engine_open(const vb_model_options *o, vb__engine **out, vb_error *err);
/* The same on a weight source of the caller (benchmarks): no tokenizer. src is used up. */
VB_MUST_USE vb_err vb__engine_open_source(const vb_model_options *o, const vb__weight_source *src, vb__engine **out,
                                          vb_error *err);
void vb__engine_close(vb__engine *e);

/* Queues a request; it becomes the engine's until it is done and released. Errors name the field. A request that
 * can never fit is refused here with both numbers. */
VB_MUST_USE vb_err vb__engine_submit(vb__engine *e, vb__req *r, vb_error *err);
/* One step. VB_OK also when there was nothing to do (*worked false). An error is the engine's (device), not a request's. */
VB_MUST_USE vb_err vb__engine_step(vb__engine *e, bool *worked, vb_error *err);
/* Ends a request between steps, in any phase: its finish becomes "cancelled". */
void vb__engine_cancel(vb__engine *e, vb__req *r);
/* Forgets what slots without a request hold. */
void vb__engine_clear(vb__engine *e);

#endif
