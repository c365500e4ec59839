#include "engine/answer.h"
#include "base/alloc.h"
#include "base/log.h"
#include "engine/drafting.h"
#include "engine/sampling_options.h"
#include "engine/draft_policy.h"
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

static vb_err on_logits(void *user, const float *logits, int32_t vocab, int32_t position) {
    vb__answer *a = user;
    /* logits_sha256 covers the rows sampled from only. */
    if (a->sha != NULL && position >= a->req->n_prompt - 1 &&
        EVP_DigestUpdate(a->sha, logits, (size_t)vocab * sizeof *logits) != 1)
        return VB_E_INTERNAL;
    return a->q->logits_row != NULL ? a->q->logits_row(a->q->user, logits, vocab) : VB_OK;
}

static void emit(vb__answer *a, const char *text, size_t len) {
    if (len == 0) return;
    (void)vb__buffer_append(&a->text, text, len); /* its error sticks and is seen at the end */
    if (a->q->on_text != NULL && !a->cancelled && !a->q->on_text(a->q->user, text, len)) a->cancelled = true;
}

static bool room_for_logprobs(vb__answer *a) {
    if (a->n < a->cap) return true;
    int32_t cap = a->cap == 0 ? 64 : a->cap * 2, tops = a->q->top_logprobs + 1;
    float *l = vb__realloc_array(VB_TAG_ENGINE, a->logprobs, (size_t)cap, sizeof *l);
    if (l != NULL) a->logprobs = l;
    vb_top_logprob *t = l == NULL ? NULL : vb__realloc_array(VB_TAG_ENGINE, a->top, (size_t)cap * (size_t)tops, sizeof *t);
    if (t == NULL) {
        a->lost = true;
        return false;
    }
    a->top = t;
    a->cap = cap;
    return true;
}

static void on_token(void *user, const vb__req_token *t) {
    vb__answer *a = user;
    if (a->q->top_logprobs >= 0 && room_for_logprobs(a)) {
        a->logprobs[a->n] = t->logprob;
        for (int32_t i = 0; i < a->q->top_logprobs; i++)
            a->top[(int64_t)a->n * a->q->top_logprobs + i] =
                i < t->n_top ? t->top[i] : (vb_top_logprob){.id = -1};
        a->n++;
    }
    emit(a, t->text, t->text_len);
    if (a->cancelled) a->req->unwanted = true;
    if (a->on_token != NULL) a->on_token(a->user, t);
}

static void on_round(void *user, int32_t proposed, int32_t accepted) {
    vb__answer *a = user;
    vb__rounds_add(&a->rounds, proposed, accepted);
}

static void on_prefill(void *user, int32_t done, int32_t total) {
    vb__answer *a = user;
    if (a->q->progress != NULL && !a->q->progress(a->q->user, "prefill", done, total)) a->cancelled = true;
}

/* The request's own choice among the drafters that are loaded. */
static vb_err choose_drafter(const vb__engine *e, const vb_request *q, vb__req_params *p, vb_error *err) {
    if (q->draft_width < 0 || q->draft_width > VB_LIMIT_DRAFT_WIDTH)
        return vb__fail(err, VB_E_RANGE, "draft.width: %d, expected 1 to %d", q->draft_width, VB_LIMIT_DRAFT_WIDTH);
    p->draft_width = q->draft_width;
    if (q->draft == NULL || strcmp(q->draft, "auto") == 0) return VB_OK;
    int32_t kind = vb__draft_kind_parse(q->draft, strlen(q->draft));
    if (kind == VB_DRAFT_NONE) {
        p->draft_width = 1;
        return VB_OK;
    }
    if (kind < 0)
        return vb__fail(err, VB_E_ARGUMENT, "draft: is \"%.40s\", expected none, auto or a kind loaded at start", q->draft);
    if ((vb__drafting_kinds(e) >> kind & 1) == 0)
        return vb__fail(err, VB_E_ARGUMENT, "draft: %s is not loaded, expected none, auto or a kind loaded at start",
                        vb__draft_kind_name(kind));
    p->draft_kinds = 1 << kind;
    return VB_OK;
}

vb_err vb__answer_begin(vb__answer *a, vb__engine *e, const vb_request *q, const vb_sampling *sampling,
                        const vb__draft_script *script, uint32_t flags, vb_error *err) {
    a->q = q;
    a->e = e;
    vb__buffer_init(&a->text, (size_t)1 << 31);
    if (q->n_stops < 0 || q->n_stops > VB_MAX_STOPS)
        return vb__fail(err, VB_E_RANGE, "stop: %d strings, expected at most %d", q->n_stops, VB_MAX_STOPS);
    if (q->top_logprobs > VB_TOP_LOGPROBS_MAX)
        return vb__fail(err, VB_E_RANGE, "top_logprobs: %d, expected at most %d", q->top_logprobs, VB_TOP_LOGPROBS_MAX);
    for (int32_t i = 0; i < q->n_stops; i++)
        if (q->stops[i] == NULL) return vb__fail(err, VB_E_ARGUMENT, "stop: string %d is missing", i);
    if (q->n_stops > 0 && e->tok == NULL)
        return vb__fail(err, VB_E_NOT_FOUND, "%s/tokenizer.json: missing, expected for stop strings", e->path);
    vb__req_params p = {.prompt = q->prompt_ids, .n_prompt = q->prompt_count, .max_tokens = q->max_tokens,
                        .ignore_eos = q->ignore_eos, .stops = q->stops, .n_stops = q->n_stops, .sampling = *sampling,
                        .choice = q->choice, .logit_bias = q->logit_bias, .n_logit_bias = q->n_logit_bias,
                        .top_logprobs = q->top_logprobs, .all_logits = q->all_logits, .script = script,
                        .on_round = (flags & VB_ANSWER_ROUNDS) != 0 || vb__log_get_level() <= VB_LOG_DEBUG ? on_round : NULL,
                        .on_logits = (flags & VB_ANSWER_HASH) != 0 || q->logits_row != NULL ? on_logits : NULL,
                        .on_token = on_token, .on_prefill = on_prefill, .user = a};
    if (q->n_prediction < 0 || (q->n_prediction > 0 && q->prediction == NULL))
        return vb__fail(err, VB_E_ARGUMENT, "prediction: %d ids, expected 0 or more with their array", q->n_prediction);
    for (int32_t i = 0; i < q->n_prediction; i++)
        if (q->prediction[i] < 0 || q->prediction[i] >= e->model->cfg.vocab)
            return vb__fail(err, VB_E_RANGE, "prediction: id %d, expected 0 to %d", q->prediction[i], e->model->cfg.vocab - 1);
    p.prediction = q->prediction;
    p.n_prediction = q->n_prediction;
    VB_TRY(choose_drafter(e, q, &p, err));
    VB_TRY(vb__logit_bias_check(q->logit_bias, q->n_logit_bias, e->model->cfg.vocab, err));
    if ((flags & VB_ANSWER_HASH) != 0) {
        a->sha = EVP_MD_CTX_new();
        if (a->sha == NULL || EVP_DigestInit_ex(a->sha, EVP_sha256(), NULL) != 1)
            return vb__fail(err, VB_E_MEMORY, "logits hash: out of memory");
    }
    return vb__req_create(e, &p, &a->req, err);
}

/* One debug line for each burst of rounds; `run --accepts` takes its list. */
static void log_rounds(const vb__answer *a) {
    enum { BURST = 64, DIGITS = 2 }; /* accept lengths are 0..15 */
    const vb__rounds *r = &a->rounds;
    if (vb__log_get_level() > VB_LOG_DEBUG) return;
    for (int32_t first = 0; first < r->n; first += BURST) {
        char text[BURST * (DIGITS + 1) + 1];
        int32_t end = r->n - first < BURST ? r->n : first + BURST;
        size_t at = 0;
        for (int32_t i = first; i < end && at < sizeof text; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", i > first ? "," : "", (int)r->accepted[i]);
        vb__log(VB_LOG_DEBUG, "draft", "kind=%s rounds=%d..%d accepts=%s", vb__draft_kind_name(a->req->stats.draft_kind), first + 1, end,
                text);
    }
}

vb_err vb__answer_result(vb__answer *a, vb_result *out, vb_error *err) {
    vb__req *r = a->req;
    const vb__req_stats *s = &r->stats;
    const char *rest = "";
    size_t rest_len = 0;
    if (a->lost) return vb__fail(err, VB_E_MEMORY, "logprobs: out of memory");
    if (r->text != NULL && r->stop == NULL) VB_TRY(vb__text_out_end(r->text, &rest, &rest_len));
    emit(a, rest, rest_len);
    log_rounds(a);
    vb_result o = {.finish = a->cancelled ? VB_FINISH_CANCELLED : r->finish, .sampling = r->p.sampling, .cached_tokens = s->cached};
    for (int32_t i = 0; i < a->q->n_stops && r->stop != NULL && !a->cancelled; i++)
        if (strcmp(a->q->stops[i], r->stop) == 0) o.stop = a->q->stops[i];
    o.count = vb__req_count(r);
    o.text_len = a->text.len;
    o.text = vb__buffer_take(&a->text);
    o.ids = vb__alloc(VB_TAG_ENGINE, (size_t)o.count * sizeof *o.ids);
    if (o.text == NULL || o.ids == NULL) {
        vb_result_fini(&o);
        return vb__fail(err, VB_E_MEMORY, "answer: out of memory");
    }
    memcpy(o.ids, r->tokens + r->n_prompt, (size_t)o.count * sizeof *o.ids);
    o.logprobs = a->logprobs;
    o.top = a->top;
    a->logprobs = NULL;
    a->top = NULL;
    if (a->q->top_logprobs >= 0 && o.logprobs == NULL && room_for_logprobs(a)) { /* asked for, and no token came */
        o.logprobs = a->logprobs;
        o.top = a->top;
        a->logprobs = NULL;
        a->top = NULL;
    }
    if (a->sha != NULL) {
        unsigned char md[EVP_MAX_MD_SIZE];
        unsigned n = 0;
        if (EVP_DigestFinal_ex(a->sha, md, &n) != 1) n = 0;
        for (unsigned i = 0; i < n && i < 32; i++) (void)snprintf(o.logits_sha256 + 2 * i, 3, "%02x", md[i]);
    }
    double first = o.count > 0 ? s->first_token : s->finished;
    double started = s->started > 0 ? s->started : s->finished; /* cancelled in the queue */
    o.prefill_s = first - started;
    o.decode_s = s->finished - first - s->logits_s;
    if (o.decode_s < 0) o.decode_s = 0;
    o.queue_s = s->submitted > 0 ? started - s->submitted : 0;
    /* One that was asked for by name is named also where it had nothing to propose. */
    o.draft_kind = vb__draft_kind_name(s->draft_kind != VB_DRAFT_NONE ? s->draft_kind : vb__drafting_asked(a->e, r));
    o.draft_width = s->draft_width > 0 ? s->draft_width : s->rounds > 0; /* plain decode is a block of one row */
    o.rounds = s->rounds;
    o.proposed = s->proposed;
    o.accepted = s->accepted;
    for (int i = 0; i < 16; i++) {
        o.accepted_at[i] = s->accepted_at[i];
        o.proposed_at[i] = s->proposed_at[i];
    }
    o.n_declined = vb__drafting_declined(a->e, o.declined);
    o.draft_s = s->draft_s;
    o.verify_s = s->verify_s;
    o.commit_s = s->commit_s;
    *out = o;
    return VB_OK;
}

void vb__answer_fini(vb__answer *a) {
    if (a->req != NULL) vb__req_destroy(a->req);
    vb__rounds_fini(&a->rounds);
    vb__free(a->logprobs);
    vb__free(a->top);
    EVP_MD_CTX_free(a->sha);
    vb__buffer_fini(&a->text);
    *a = (vb__answer){0};
}
