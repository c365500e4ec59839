/* What one request yields: the callbacks of the engine on one side, a vb_result on the other. Shared by vb_generate, which
 * waits for it, and the asynchronous interface, which does not. */
#ifndef VB_ENGINE_ANSWER_H
#define VB_ENGINE_ANSWER_H
#include "base/buffer.h"
#include "engine/engine.h"
#include "engine/trace.h"

enum {
    VB_ANSWER_ROUNDS = 1, /* collect the rounds (trace) */
    VB_ANSWER_HASH = 2    /* hash the rows sampled from */
};

typedef struct vb__answer {
    const vb_request *q; /* borrowed until fini */
    vb__engine *e;
    vb__req *req;
    vb__buffer text;
    struct evp_md_ctx_st *sha;
    float *logprobs;     /* [n] in room for cap */
    vb_top_logprob *top; /* [n][top_logprobs] */
    int32_t n, cap;
    vb__rounds rounds;
    bool cancelled;      /* a callback of the request said so */
    bool lost;           /* out of memory for logprobs */
    void (*on_token)(void *user, const vb__req_token *t); /* after it was collected; NULL */
    void *user;
} vb__answer;

/* Checks the request and makes the engine's; any thread. `a` must be zero and stay where it is. Sampling is resolved.
 * vb__answer_fini in any case. */
VB_MUST_USE vb_err vb__answer_begin(vb__answer *a, vb__engine *e, const vb_request *q, const vb_sampling *sampling,
                                    const vb__draft_script *script, uint32_t flags, vb_error *err);
/* After the request is done. */
VB_MUST_USE vb_err vb__answer_result(vb__answer *a, vb_result *out, vb_error *err);
/* The request must not be queued or live. */
void vb__answer_fini(vb__answer *a);

#endif
