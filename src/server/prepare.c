/* The preparing thread: bodies become requests on the model, and long answers become text. Parsing, rendering and tokenizing may take a
 * while for a long prompt; here they hold up nobody but the next prompt. */
#include "server/job.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "server/json_writer.h"
#include <string.h>

void vb__prepare_push(vb__job *j) {
    vb__server *s = j->server;
    vb__job_ref(j);
    pthread_mutex_lock(&s->lock);
    j->next_prepare = NULL;
    *s->prepare_tail = j;
    s->prepare_tail = &j->next_prepare;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
}

/* ---- Small answers ---------------------------------------------------------------------------------------------------------- */

static vb_err tokenize(vb__job *j, const json_t *root, vb__buffer *b, vb_error *err) {
    const vb__json_at at = {root, ""};
    const vb_model *m = j->server->model;
    bool special, add;
    int32_t *ids = NULL, count = 0;
    VB_TRY(vb__json_bool_or(at, "parse_special", true, &special, err));
    VB_TRY(vb__json_bool_or(at, "add_special", false, &add, err));
    if (vb__json_get(at, "messages") != NULL) {
        VB_TRY(vb__gen_render(root, m, NULL, &ids, &count, err));
    } else {
        const char *key = vb__json_get(at, "content") != NULL ? "content" : "prompt";
        const json_t *text = vb__json_get(at, key);
        char is[80];
        if (!json_is_string(text)) return vb__fail(err, VB_E_ARGUMENT, "%s: %s, expected a text", key, vb__json_is(text, is, sizeof is));
        vb_err code = vb_tokenize(m, json_string_value(text), json_string_length(text), special, true, add, &ids, &count, err);
        VB_TRY(vb__gen_without(code, key, "this model has no tokenizer", err));
    }
    vb__buffer_puts(b, "{\"tokens\":[");
    for (int32_t i = 0; i < count; i++) vb__buffer_printf(b, i > 0 ? ",%d" : "%d", ids[i]);
    vb__buffer_printf(b, "],\"count\":%d,\"max_model_len\":%lld}\n", count, (long long)j->server->info.ctx);
    vb_ids_free(ids);
    return VB_OK;
}

static vb_err detokenize(vb__job *j, const json_t *root, vb__buffer *b, vb_error *err) {
    const vb__json_at at = {root, ""};
    json_t *tokens;
    VB_TRY(vb__json_array(at, "tokens", VB_GEN_BODY_VALUES, &tokens, err));
    size_t n = json_array_size(tokens), len = 0;
    int32_t *ids = vb__calloc(VB_TAG_SERVER, n + 1, sizeof *ids);
    char *text = NULL;
    vb_err code = ids == NULL ? vb__fail(err, VB_E_MEMORY, "tokens: out of memory") : VB_OK;
    for (size_t i = 0; code == VB_OK && i < n; i++) {
        const json_t *v = json_array_get(tokens, i);
        json_int_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id >= j->server->info.vocab)
            code = vb__fail(err, VB_E_ARGUMENT, "tokens: entry %zu, expected a token id 0..%d", i, j->server->info.vocab - 1);
        else ids[i] = (int32_t)id;
    }
    if (code == VB_OK) code = vb_detokenize(j->server->model, ids, (int32_t)n, false, &text, &len, err);
    code = vb__gen_without(code, "tokens", "this model has no tokenizer", err);
    if (code == VB_OK) {
        vb__buffer_puts(b, "{\"content\":");
        vb__jw_string(b, text, len);
        vb__buffer_puts(b, "}\n");
    }
    vb_string_free(text);
    vb__free(ids);
    return code;
}

static vb_err apply_template(vb__job *j, const json_t *root, vb__buffer *b, vb_error *err) {
    char *text = NULL;
    VB_TRY(vb__gen_render(root, j->server->model, &text, NULL, NULL, err));
    vb__buffer_puts(b, "{\"prompt\":");
    vb__jw_text(b, text);
    vb__buffer_puts(b, "}\n");
    vb_string_free(text);
    return VB_OK;
}

static void small_answer(vb__job *j, json_t *root) {
    vb_error err = {0};
    vb__buffer b;
    vb__buffer_init(&b, (size_t)1 << 31);
    vb_err code = j->route == VB_ROUTE_TOKENIZE     ? tokenize(j, root, &b, &err)
                  : j->route == VB_ROUTE_DETOKENIZE ? detokenize(j, root, &b, &err)
                                                    : apply_template(j, root, &b, &err);
    json_decref(root);
    if (code != VB_OK) {
        vb__job_fail(j, &err);
        vb__buffer_fini(&b);
        return;
    }
    pthread_mutex_lock(&j->lock);
    vb__buffer_fini(&j->out);
    j->out = b;
    vb__job_ready_locked(j, 200, "application/json");
    pthread_mutex_unlock(&j->lock);
}

/* ---- Generation --------------------------------------------------------------------------------------------------------------- */

static vb_err hand_in(vb__job *j, vb_error *err) {
    vb__gen *g = &j->gen;
    int32_t n = g->n_prompts * g->n;
    vb_call_options *o = vb__calloc(VB_TAG_SERVER, (size_t)n, sizeof *o);
    vb_call **calls = vb__calloc(VB_TAG_SERVER, (size_t)n, sizeof *calls);
    j->runs = vb__calloc(VB_TAG_SERVER, (size_t)n, sizeof *j->runs);
    vb_err code = o == NULL || calls == NULL || j->runs == NULL ? vb__fail(err, VB_E_MEMORY, "request: out of memory") : VB_OK;
    vb_sampling s = {0};
    for (int32_t i = 0; code == VB_OK && i < n; i++) {
        vb__run *r = &j->runs[i];
        *r = (vb__run){.job = j, .index = i, .prompt = i / g->n};
        o[i] = (vb_call_options){.request = g->request, .on_token = vb__run_on_token, .on_done = vb__run_on_done, .user = r};
        o[i].request.prompt_ids = g->prompts[r->prompt].ids;
        o[i].request.prompt_count = g->prompts[r->prompt].count;
        o[i].request.choice = (uint32_t)(i % g->n);
    }
    if (code == VB_OK) {
        /* The lock is held until the job is in its new state: the first token must find it there. */
        pthread_mutex_lock(&j->lock);
        if (j->gone) code = vb__fail(err, VB_E_CANCELLED, "the client is gone");
        if (code == VB_OK) code = vb_async_submit(j->server->async, o, n, calls, &s, err);
        code = vb__gen_without(code, "stop", "this model has no tokenizer, expected none", err);
        if (code == VB_OK) {
            j->seed = s.seed;
            j->has_seed = true;
            j->n_runs = j->left = n;
            j->refs += n;
            for (int32_t i = 0; i < n; i++) j->runs[i].call = calls[i];
            if (g->stream) {
                j->state = VB_JOB_STREAM;
                j->status = 200;
                for (int32_t i = 0; i < n; i++) vb__chunk_first(j, &j->runs[i], &j->out);
                j->last_event = vb__now();
                vb__job_wake_locked(j);
            } else {
                j->state = VB_JOB_RUN;
            }
        }
        pthread_mutex_unlock(&j->lock);
    }
    vb__free(o);
    vb__free(calls);
    return code;
}

static void prepare(vb__job *j) {
    vb_error err = {0};
    json_t *root = NULL;
    vb_err code = vb__body_parse(vb__buffer_str(&j->body), j->body.len, &root, &err);
    vb__buffer_fini(&j->body);
    vb__buffer_init(&j->body, 1);
    if (code != VB_OK) {
        vb__job_fail(j, &err);
        return;
    }
    if (j->route != VB_ROUTE_CHAT && j->route != VB_ROUTE_COMPLETIONS) {
        small_answer(j, root);
        return;
    }
    code = vb__gen_read(&j->gen, root, j->route == VB_ROUTE_CHAT, &err);
    if (code == VB_OK) code = vb__gen_prompts(&j->gen, j->server->model, &err);
    if (code == VB_OK) code = hand_in(j, &err);
    if (code == VB_OK) vb__gen_forget(&j->gen);
    if (code != VB_OK) vb__job_fail(j, &err);
}

/* A long answer as text: on the HTTP thread everybody would wait for it. */
static void write_answer(vb__job *j) {
    vb__buffer b;
    vb__buffer_init(&b, (size_t)1 << 31);
    vb__answer_whole(j, &b);
    pthread_mutex_lock(&j->lock);
    vb__buffer_fini(&j->out);
    j->out = b;
    vb__job_ready_locked(j, 200, "application/json");
    pthread_mutex_unlock(&j->lock);
}

void *vb__prepare_thread(void *user) {
    vb__server *s = user;
    for (;;) {
        pthread_mutex_lock(&s->lock);
        while (s->prepare == NULL && !s->stop) pthread_cond_wait(&s->wake, &s->lock);
        vb__job *j = s->prepare;
        if (j != NULL) {
            s->prepare = j->next_prepare;
            if (s->prepare == NULL) s->prepare_tail = &s->prepare;
        }
        pthread_mutex_unlock(&s->lock);
        if (j == NULL) return NULL;
        pthread_mutex_lock(&j->lock);
        bool gone = j->gone, done = j->state == VB_JOB_RUN;
        pthread_mutex_unlock(&j->lock);
        if (!gone && done) write_answer(j);
        else if (!gone) {
            prepare(j);
            atomic_fetch_sub(&s->body_bytes, j->counted); /* neither the body nor what was read from it is there any more */
            j->counted = 0;
        }
        vb__job_unref(j);
    }
}
