/* Sampling: from one row of logits to one token, as docs/numerics.md ("Sampling", contract 1) defines it bit
 * by bit. A token is a function of (prefix, options, seed): the noise comes from the seed, the row's position
 * and the choice index, never from a sequence of draws, so that neither drafts nor neighbours can change it.
 *
 * Order of steps: ids without a token masked, logit bias, repetition, presence and frequency penalties,
 * grammar mask, temperature, top-k, top-p, min-p, Gumbel noise. Selection is O(vocabulary) without a sort.
 *
 * threads  a sampler is a workspace: one per thread that samples at a time. Everything else is read only.
 * memory   28 bytes per vocabulary entry, taken by create; a pick allocates nothing. */
#ifndef VB_ENGINE_SAMPLER_H
#define VB_ENGINE_SAMPLER_H
#include "engine/token_counts.h"
#include "verbatim/verbatim.h"

enum { VB_TOP_LOGPROBS_MAX = 20 };

typedef struct vb__sampler vb__sampler;

VB_MUST_USE vb_err vb__sampler_create(int32_t vocab, vb__sampler **out, vb_error *err);
void vb__sampler_destroy(vb__sampler *s); /* accepts NULL */

typedef struct vb__sample_row {
    const float *logits;          /* [vocab] raw; read only */
    const vb_sampling *options;   /* resolved and checked (sampling_options.h) */
    const uint32_t *token_mask;   /* bit id set: the id has a token. [(vocab + 31) / 32]; NULL: all have */
    const uint32_t *grammar_mask; /* bit id set: the grammar allows it; NULL: no grammar */
    const vb_logit_bias *bias;    /* [n_bias] ids below vocab, added in this order */
    int32_t n_bias;
    const vb__token_counts *counts; /* history of this row; NULL when all penalties are off */
    int64_t position;               /* of the row, >= 0: the chosen token will stand at position + 1 */
    uint32_t choice;                /* 0 for n = 1 */
    int32_t top_logprobs;           /* -1: no logprobs; 0 .. VB_TOP_LOGPROBS_MAX */
    bool known_best; /* `best` is the lowest id of the largest raw logit, and all logits are finite: a */
    int32_t best;    /*   greedy choice without edits is then made without reading the row again */
    float margin;    /* with known_best: by how much that logit is above the second */
    bool wants_margin;
} vb__sample_row;

typedef struct vb__sample {
    int32_t id;
    int32_t survivors; /* tokens that the noise chose from; 1 for greedy */
    float margin;      /* by how much the winner is above the second, in logits over temperature and with the noise: how sure
                        * the choice is. INFINITY for a sole survivor; only with wants_margin */
    float logprob;     /* of the raw distribution; only with top_logprobs >= 0 */
    int32_t n_top;     /* best first, ties to the lower id */
    vb_top_logprob top[VB_TOP_LOGPROBS_MAX];
} vb__sample;

/* Chooses a token. VB_E_NONFINITE when a raw logit is not finite (or has left the range of f32 on the way);
 * VB_E_NOT_FOUND when the masks leave no token. *out is set only on success. */
VB_MUST_USE vb_err vb__sampler_pick(vb__sampler *s, const vb__sample_row *row, vb__sample *out,
                                    vb_error *err);

/* True when the choice is known without reading the row: greedy, nothing edits the row, and its best id has a token. */
bool vb__sampler_known(const vb__sample_row *row);
/* True when it will be, if the best logit is of an id that has a token: logits, known_best and best are not looked at. */
bool vb__sampler_wants_best(const vb__sample_row *row);

/* True when the options need token counts. */
bool vb__sampling_needs_counts(const vb_sampling *o);

/* log(sum of exp) and single logprobs of a raw row: lp_i = z_i - vb__log_normaliser(z). Finite logits. */
float vb__log_normaliser(const float *logits, int32_t vocab);

#endif
