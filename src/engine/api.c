/* The public interface of include/verbatim/verbatim.h over an engine: models and generation. */
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fp_env.h"
#include "base/log.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/model_handle.h"
#include "engine/neighbours.h"
#include "engine/sampling_options.h"
#include "engine/trace.h"
#include "verbatim/verbatim.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

void vb_string_free(char *s) { vb__free(s); }
void vb_ids_free(int32_t *ids) { vb__free(ids); }

static vb_log_fn *user_log;
static void log_forward(void *user, vb__log_level level, const char *area, const char *text) {
    user_log(user, (int)level, area, text);
}
void vb_log_set(vb_log_fn *fn, void *user, int min_level) {
    user_log = fn;
    vb__log_set(fn == NULL ? NULL : log_forward, user, (vb__log_level)min_level);
}

void vb_model_options_init(vb_model_options *o) {
    *o = (vb_model_options){.activations = 8, .parallel = 1, .head_chunk = true, .draft = "auto"};
}

vb_err vb_model_open(const vb_model_options *o, vb_model **out, vb_error *err) {
    vb_model *m = vb__calloc(VB_TAG_ENGINE, 1, sizeof *m);
    if (m == NULL) return vb__fail(err, VB_E_MEMORY, "model: out of memory");
    vb_err code = vb__engine_open(o, &m->engine, err);
    if (code != VB_OK) {
        vb__free(m);
        return code;
    }
    *out = m;
    return VB_OK;
}

void vb_model_close(vb_model *m) {
    if (m == NULL) return;
    vb__engine_close(m->engine);
    vb__free(m);
}

void vb_model_get_info(const vb_model *m, vb_model_info *out) {
    const vb__engine *e = m->engine;
    const vb__model_config *c = &e->model->cfg;
    *out = (vb_model_info){
        .path = e->path,
        .architecture = vb__arch_name(c->arch),
        .klass = e->be->ops->klass,
        .level = vb__cpu_level_name(e->level),
        .contract = VB_CONTRACT,
        .activations = e->activations,
        .threads = e->threads,
        .vocab = c->vocab,
        .ctx = e->ctx,
        .trained_ctx = e->trained_ctx,
        .weight_bytes = e->model->weight_bytes,
        .state_bytes = 4 * (e->model->state_floats + e->model->conv_floats),
        .kv_bytes_per_token = e->model->page_bytes / VB_PAGE_POSITIONS,
        .workspace_bytes = vb__workspace_bytes(c, e->max_rows),
        .has_tokenizer = e->tok != NULL,
        .has_chat_template = e->chat != NULL,
        .has_mtp = e->model->mtp != NULL,
        .load_s = e->stats.load_s,
    };
}

/* ---- Generation ----------------------------------------------------------------------------------------------- */

void vb_request_init(vb_request *r) { *r = (vb_request){.max_tokens = -1, .top_logprobs = -1}; }

void vb_result_fini(vb_result *r) {
    vb__free(r->text);
    vb__free(r->ids);
    vb__free(r->logprobs);
    vb__free(r->top);
    *r = (vb_result){0};
}

/* Everything that the callbacks of one vb_generate call collect. */
typedef struct collector {
    const vb_request *q;
    vb__engine *e;
    vb__req *req;
    vb__buffer text;
    EVP_MD_CTX *sha;
    float *logprobs;
    vb_top_logprob *top;
    int32_t n;
    vb__rounds rounds;
    bool cancelled;
} collector;

static vb_err on_logits(void *user, const float *logits, int32_t vocab, int32_t position) {
    collector *c = user;
    /* logits_sha256 covers the rows sampled from only. */
    if (c->sha != NULL && position >= c->req->n_prompt - 1 &&
        EVP_DigestUpdate(c->sha, logits, (size_t)vocab * sizeof *logits) != 1)
        return VB_E_INTERNAL;
    return c->q->logits_row != NULL ? c->q->logits_row(c->q->user, logits, vocab) : VB_OK;
}

static void emit(collector *c, const char *text, size_t len) {
    if (len == 0) return;
    (void)vb__buffer_append(&c->text, text, len); /* its error sticks and is seen at the end */
    if (c->q->on_text != NULL && !c->q->on_text(c->q->user, text, len)) c->cancelled = true;
}

static void on_token(void *user, const vb__req_token *t) {
    collector *c = user;
    if (c->logprobs != NULL) {
        c->logprobs[c->n] = t->logprob;
        for (int32_t i = 0; i < c->q->top_logprobs; i++)
            c->top[(int64_t)c->n * c->q->top_logprobs + i] =
                i < t->n_top ? t->top[i] : (vb_top_logprob){.id = -1};
    }
    c->n++;
    emit(c, t->text, t->text_len);
}

static void on_round(void *user, int32_t proposed, int32_t accepted) {
    collector *c = user;
    vb__rounds_add(&c->rounds, proposed, accepted);
}

static void on_prefill(void *user, int32_t done, int32_t total) {
    collector *c = user;
    if (c->q->progress != NULL && !c->q->progress(c->q->user, "prefill", done, total)) c->cancelled = true;
}

static vb_err run(vb__engine *e, collector *c, vb_error *err) {
    for (;;) {
        bool worked;
        VB_TRY(vb__engine_step(e, &worked, err));
        if (c->req->phase == VB_REQ_DONE) break;
        if (c->cancelled) vb__engine_cancel(e, c->req);
        if (c->req->phase == VB_REQ_DONE) break;
        if (!worked) return vb__fail(err, VB_E_INTERNAL, "engine: a request waits and nothing can run");
    }
    if (c->req->error != VB_OK) return vb__fail(err, c->req->error, "%s", c->req->message.text);
    return VB_OK;
}

static vb_err fill_result(collector *c, vb_result *out, vb_error *err) {
    vb__req *r = c->req;
    const vb__req_stats *s = &r->stats;
    const char *rest = "";
    size_t rest_len = 0;
    if (r->text != NULL && r->stop == NULL) VB_TRY(vb__text_out_end(r->text, &rest, &rest_len));
    emit(c, rest, rest_len);
    vb_result o = {.finish = r->finish, .sampling = r->p.sampling, .cached_tokens = s->cached};
    for (int32_t i = 0; i < c->q->n_stops && r->stop != NULL; i++)
        if (strcmp(c->q->stops[i], r->stop) == 0) o.stop = c->q->stops[i];
    o.count = vb__req_count(r);
    o.text_len = c->text.len;
    o.text = vb__buffer_take(&c->text);
    o.ids = vb__alloc(VB_TAG_ENGINE, (size_t)o.count * sizeof *o.ids);
    if (o.text == NULL || o.ids == NULL) {
        vb_result_fini(&o);
        return vb__fail(err, VB_E_MEMORY, "answer: out of memory");
    }
    memcpy(o.ids, r->tokens + r->n_prompt, (size_t)o.count * sizeof *o.ids);
    o.logprobs = c->logprobs;
    o.top = c->top;
    c->logprobs = NULL;
    c->top = NULL;
    if (c->sha != NULL) {
        unsigned char md[EVP_MAX_MD_SIZE];
        unsigned n = 0;
        if (EVP_DigestFinal_ex(c->sha, md, &n) != 1) n = 0;
        for (unsigned i = 0; i < n && i < 32; i++) (void)snprintf(o.logits_sha256 + 2 * i, 3, "%02x", md[i]);
    }
    double first = o.count > 0 ? s->first_token : s->finished;
    o.prefill_s = first - s->started;
    o.decode_s = s->finished - first - s->logits_s;
    if (o.decode_s < 0) o.decode_s = 0;
    o.draft_kind = vb__draft_kind_name(s->draft_kind);
    o.draft_width = s->draft_width;
    o.rounds = s->rounds;
    o.proposed = s->proposed;
    o.accepted = s->accepted;
    for (int i = 0; i < 16; i++) {
        o.accepted_at[i] = s->accepted_at[i];
        o.proposed_at[i] = s->proposed_at[i];
    }
    o.n_declined = vb__drafting_declined(c->e, o.declined);
    o.draft_s = s->draft_s;
    o.verify_s = s->verify_s;
    o.commit_s = s->commit_s;
    *out = o;
    return VB_OK;
}

vb_err vb__generate(vb_model *m, const vb_request *q, const vb__draft_script *script, vb_result *out, vb__rounds *rounds,
                    vb_error *err) {
    vb__engine *e = m->engine;
    bool hash = q->hash_logits || q->trace_path != NULL;
    vb__trace *trace = NULL;
    if (q->n_stops < 0 || q->n_stops > VB_MAX_STOPS)
        return vb__fail(err, VB_E_RANGE, "stop: %d strings, expected at most %d", q->n_stops, VB_MAX_STOPS);
    if (q->top_logprobs > VB_TOP_LOGPROBS_MAX)
        return vb__fail(err, VB_E_RANGE, "top_logprobs: %d, expected at most %d", q->top_logprobs, VB_TOP_LOGPROBS_MAX);
    if (q->n_stops > 0 && e->tok == NULL)
        return vb__fail(err, VB_E_NOT_FOUND, "%s/tokenizer.json: missing, expected for stop strings", e->path);
    if (q->neighbours < 0 || q->neighbours >= e->parallel)
        return vb__fail(err, VB_E_RANGE, "neighbours: %d, expected 0 to %d (parallel - 1)", q->neighbours, e->parallel - 1);
    uint32_t csr = vb__fp_enter();
    collector c = {.q = q, .e = e};
    vb__buffer_init(&c.text, (size_t)1 << 31);
    vb__req_params p = {.prompt = q->prompt_ids, .n_prompt = q->prompt_count, .max_tokens = q->max_tokens,
                        .ignore_eos = q->ignore_eos, .stops = q->stops, .n_stops = q->n_stops,
                        .logit_bias = q->logit_bias, .n_logit_bias = q->n_logit_bias, .top_logprobs = q->top_logprobs,
                        .all_logits = q->all_logits, .script = script,
                        .on_round = q->trace_path != NULL || rounds != NULL ? on_round : NULL,
                        .on_logits = hash || q->logits_row != NULL ? on_logits : NULL,
                        .on_token = on_token, .on_prefill = on_prefill, .user = &c};
    vb__neighbours *others = NULL;
    vb_err code = vb__sampling_resolve(&q->sampling, NULL, &e->defaults, &p.sampling, err);
    if (code != VB_OK) goto out;
    if (q->trace_path != NULL) {
        code = vb__trace_open(q->trace_path, e, &trace, err);
        if (code != VB_OK) goto out;
    }
    if (hash) {
        c.sha = EVP_MD_CTX_new();
        if (c.sha == NULL || EVP_DigestInit_ex(c.sha, EVP_sha256(), NULL) != 1) {
            code = vb__fail(err, VB_E_MEMORY, "logits hash: out of memory");
            goto out;
        }
    }
    code = vb__req_create(e, &p, &c.req, err);
    if (code != VB_OK) goto out;
    if (q->top_logprobs >= 0) {
        size_t n = (size_t)(c.req->cap - c.req->n_prompt) + 1;
        c.logprobs = vb__calloc(VB_TAG_ENGINE, n, sizeof *c.logprobs);
        c.top = vb__calloc(VB_TAG_ENGINE, n * (size_t)(q->top_logprobs + 1), sizeof *c.top);
        if (c.logprobs == NULL || c.top == NULL) {
            code = vb__fail(err, VB_E_MEMORY, "logprobs: out of memory");
            goto out;
        }
    }
    code = vb__engine_submit(e, c.req, err);
    if (code == VB_OK) code = vb__neighbours_start(e, q->neighbours, q->prompt_count, &others, err);
    if (code == VB_OK) code = run(e, &c, err);
    if (code == VB_OK) {
        vb_result done = {0};
        code = fill_result(&c, &done, err);
        if (code == VB_OK && trace != NULL) code = vb__trace_write(trace, c.req, &c.rounds, done.logits_sha256, err);
        if (code == VB_OK) *out = done;
        else vb_result_fini(&done);
    }
    if (code == VB_OK && rounds != NULL) {
        *rounds = c.rounds;
        c.rounds = (vb__rounds){0};
    }
out:
    vb__trace_close(trace);
    vb__rounds_fini(&c.rounds);
    vb__neighbours_stop(e, others);
    if (c.req != NULL) {
        vb__engine_cancel(e, c.req);
        if (c.req->phase == VB_REQ_NEW || c.req->phase == VB_REQ_DONE) vb__req_destroy(c.req);
    }
    vb__free(c.logprobs);
    vb__free(c.top);
    EVP_MD_CTX_free(c.sha);
    vb__buffer_fini(&c.text);
    vb__fp_leave(csr);
    return code;
}

/* Forced accept lengths: a first pass for the answer, then the same answer again by the rounds that were asked for. */
static vb_err generate_accepts(vb_model *m, const vb_request *q, vb_result *out, vb_error *err) {
    vb__engine *e = m->engine;
    for (int32_t i = 0; i < q->n_accepts; i++)
        if (q->accepts[i] < 0 || q->accepts[i] >= VB_LIMIT_DRAFT_WIDTH)
            return vb__fail(err, VB_E_RANGE, "--accepts: %d, expected lengths 0 to %d", q->accepts[i], VB_LIMIT_DRAFT_WIDTH - 1);
    if (e->slots[0].seq->tape_rows == 0)
        return vb__fail(err, VB_E_ARGUMENT, "--accepts: needs drafting, and --draft is none");
    const vb__draft_script none = {0};
    vb_request first = *q;
    vb_result plain;
    first.on_text = NULL;
    first.logits_row = NULL;
    first.trace_path = NULL;
    first.hash_logits = false;
    VB_TRY(vb__generate(m, &first, &none, &plain, NULL, err));
    vb__engine_clear(e);
    const vb__draft_script script = {.tokens = plain.ids, .n_tokens = plain.count, .accepted = q->accepts, .n_rounds = q->n_accepts};
    vb_request again = *q;
    again.sampling = plain.sampling;
    vb_err code = vb__generate(m, &again, &script, out, NULL, err);
    vb_result_fini(&plain);
    return code;
}

vb_err vb_generate(vb_model *m, const vb_request *q, vb_result *out, vb_error *err) {
    if (q->n_accepts > 0) return generate_accepts(m, q, out, err);
    return vb__generate(m, q, NULL, out, NULL, err);
}
