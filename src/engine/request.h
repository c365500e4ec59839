/* One request on an engine: its tokens, its sampler, its text, its end. Owned by whoever made it; between submit and done
 * the engine drives it. */
#ifndef VB_ENGINE_REQUEST_H
#define VB_ENGINE_REQUEST_H
#include "base/error.h"
#include "engine/sampler.h"
#include "engine/text_out.h"
#include "verbatim/verbatim.h"

struct vb__engine;
struct vb__slot;

typedef enum vb__req_phase { VB_REQ_NEW, VB_REQ_QUEUED, VB_REQ_LIVE, VB_REQ_DONE } vb__req_phase;

/* One new token. text: what became final with it (may be empty, may hold text of earlier tokens). */
typedef struct vb__req_token {
    int32_t id;
    bool end;                   /* an end token */
    const char *text;
    size_t text_len;
    float logprob;              /* when asked for */
    const vb_top_logprob *top;  /* [n_top] */
    int32_t n_top;
} vb__req_token;

/* A round structure to walk again: round i proposes proposed[i] tokens of which the first accepted[i] are right. */
typedef struct vb__draft_script {
    const int32_t *tokens; /* the answer that the rounds belong to */
    int32_t n_tokens;
    const int32_t *proposed, *accepted; /* proposed NULL: one wrong token behind the accepted ones */
    int32_t n_rounds;      /* afterwards: plain decode */
} vb__draft_script;

typedef struct vb__req_params {
    const int32_t *prompt; /* copied */
    int32_t n_prompt;
    int64_t max_tokens; /* < 0: up to the context's end */
    bool ignore_eos;
    bool no_text;       /* neither detokenise nor match stop strings */
    const char *const *stops;
    int32_t n_stops;
    vb_sampling sampling; /* resolved, with a seed */
    uint32_t choice;      /* index i of n: samples with (seed, i) */
    const vb_logit_bias *logit_bias;
    int32_t n_logit_bias;
    int32_t top_logprobs; /* -1: none */
    bool all_logits;
    bool no_reuse;        /* do not continue what a slot holds */
    int32_t draft_width;  /* 0: the engine's policy; 1: none; else at most this many rows */
    int32_t draft_kinds;  /* bit mask of kinds; 0: the engine's */
    const int32_t *prediction; /* copied; tokens for the lookup drafter */
    int32_t n_prediction;
    const struct vb__draft_script *script; /* replay: proposals as written, by no drafter; borrowed; NULL */
    /* Callbacks, all optional, called inside step. on_logits sees the raw row that token count (0-based) is sampled from, or with
     * all_logits every prompt row first (position = its index in the sequence). */
    vb_err (*on_logits)(void *user, const float *logits, int32_t vocab, int32_t position);
    void (*on_token)(void *user, const vb__req_token *t);
    void (*on_round)(void *user, int32_t proposed, int32_t accepted);
    void (*on_prefill)(void *user, int32_t done, int32_t total);
    void *user;
} vb__req_params;

typedef struct vb__req_stats {
    double submitted, started, first_token, finished; /* vb__now */
    double logits_s;     /* spent in on_logits, inside the times above */
    double draft_s, verify_s, commit_s;
    int32_t cached;      /* prompt tokens that a slot already held */
    int64_t rounds, proposed, accepted;
    int64_t accepted_at[16], proposed_at[16];
    int32_t draft_kind, draft_width;
} vb__req_stats;

typedef struct vb__req {
    vb__req_params p;
    uint64_t serial;
    vb__req_phase phase;
    struct vb__slot *slot;
    struct vb__req *next; /* in the queue */
    int32_t *tokens;      /* prompt, then answer; cap entries */
    int32_t n_prompt, n_tokens, cap;
    int32_t *prediction;  /* [p.n_prediction] */
    int32_t fed;          /* of tokens, how many the slot's sequence has run */
    int32_t logits_from;  /* all_logits: prompt rows before this were reported (after giving way) */
    int32_t round;        /* verify rounds so far */
    vb__token_counts counts; /* when penalties need them */
    bool counting;
    vb__text_out *text;   /* NULL: no text wanted */
    bool unwanted;        /* set by on_token: nobody wants more, the token just handed out is the last */
    vb_finish finish;
    const char *stop;     /* stop string that ended it */
    vb_err error;         /* of this request alone */
    vb_error message;
    vb__req_stats stats;
} vb__req;

VB_MUST_USE vb_err vb__req_create(struct vb__engine *e, const vb__req_params *p, vb__req **out, vb_error *err);
/* Not while queued or live (cancel first). Accepts NULL. */
void vb__req_destroy(vb__req *r);
static inline int32_t vb__req_count(const vb__req *r) { return r->n_tokens - r->n_prompt; }

#endif
