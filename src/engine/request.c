#include "engine/request.h"
#include "base/alloc.h"
#include "engine/engine.h"
#include <string.h>

vb_err vb__req_create(vb__engine *e, const vb__req_params *p, vb__req **out, vb_error *err) {
    int32_t vocab = e->model->cfg.vocab;
    if (p->n_prompt < 1 || p->prompt == NULL) return vb__fail(err, VB_E_ARGUMENT, "prompt: no tokens, expected at least one");
    if (p->n_prompt > e->ctx || (p->max_tokens != 0 && p->n_prompt >= e->ctx))
        return vb__fail(err, VB_E_CONTEXT_FULL, "prompt is too long: %d tokens > %d maximum", p->n_prompt,
                        p->max_tokens != 0 ? e->ctx - 1 : e->ctx);
    for (int32_t i = 0; i < p->n_prompt; i++)
        if (p->prompt[i] < 0 || p->prompt[i] >= vocab)
            return vb__fail(err, VB_E_RANGE, "prompt: token %d is %d, expected 0 to %d", i, p->prompt[i], vocab - 1);
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].id < 0 || p->logit_bias[i].id >= vocab)
            return vb__fail(err, VB_E_RANGE, "logit_bias: id %d, expected 0 to %d", p->logit_bias[i].id, vocab - 1);
    vb__req *r = vb__calloc(VB_TAG_ENGINE, 1, sizeof *r);
    if (r == NULL) return vb__fail(err, VB_E_MEMORY, "request: out of memory");
    r->p = *p;
    r->p.prompt = NULL;
    r->n_prompt = r->n_tokens = p->n_prompt;
    int64_t cap = p->max_tokens < 0 || p->max_tokens > e->ctx - p->n_prompt ? e->ctx : p->n_prompt + p->max_tokens;
    r->cap = (int32_t)cap;
    vb_err code = VB_E_MEMORY;
    r->tokens = vb__alloc(VB_TAG_ENGINE, (size_t)cap * sizeof *r->tokens);
    if (r->tokens == NULL) goto fail;
    memcpy(r->tokens, p->prompt, (size_t)p->n_prompt * sizeof *r->tokens);
    if (p->n_prediction > 0) {
        r->prediction = vb__alloc(VB_TAG_ENGINE, (size_t)p->n_prediction * sizeof *r->prediction);
        if (r->prediction == NULL) goto fail;
        memcpy(r->prediction, p->prediction, (size_t)p->n_prediction * sizeof *r->prediction);
    }
    r->p.prediction = NULL;
    r->counting = vb__sampling_needs_counts(&p->sampling);
    if (r->counting) {
        code = vb__token_counts_init(&r->counts, cap < vocab ? cap : vocab, NULL);
        if (code == VB_OK) code = vb__token_counts_prompt(&r->counts, p->prompt, p->n_prompt);
        if (code != VB_OK) goto fail;
    }
    if (e->tok != NULL && !p->no_text) {
        code = vb__text_out_create(e->tok, p->stops, p->n_stops, &r->text, err);
        if (code != VB_OK) goto fail_said;
    }
    *out = r;
    return VB_OK;
fail:
    (void)vb__fail(err, code, "request: out of memory for %lld tokens", (long long)cap);
fail_said:
    vb__req_destroy(r);
    return code;
}

void vb__req_destroy(vb__req *r) {
    if (r == NULL) return;
    vb_check(r->phase == VB_REQ_NEW || r->phase == VB_REQ_DONE);
    vb__token_counts_fini(&r->counts);
    vb__text_out_destroy(r->text);
    vb__free(r->tokens);
    vb__free(r->prediction);
    vb__free(r);
}
