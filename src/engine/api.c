/* The public interface of include/verbatim/verbatim.h over an engine: models and generation. */
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fp_env.h"
#include "base/log.h"
#include "engine/answer.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/model_handle.h"
#include "engine/neighbours.h"
#include "engine/sampling_options.h"
#include "engine/trace.h"
#include "verbatim/verbatim.h"
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
        .vnni = e->level == VB_CPU_AVX2 && vb__cpu_vnni(),
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
        .fingerprint = e->fingerprint,
        .parallel = e->parallel,
        .max_prompt = e->ctx - 1,
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

/* ---- One request at a time ---------------------------------------------------------------------------------------- */

static vb_err run(vb__engine *e, vb__answer *c, vb_error *err) {
    for (;;) {
        bool worked;
        VB_TRY(vb__engine_step(e, &worked, err));
        if (c->req->phase == VB_REQ_DONE) break;
        if (c->cancelled) vb__engine_cancel(e, c->req);
        if (c->req->phase == VB_REQ_DONE) break;
        if (!worked) return vb__fail(err, VB_E_INTERNAL, "engine: a request waits and nothing can run");
    }
    if (c->req->error == VB_E_NONFINITE) /* numbers of the file, as far as anybody can tell */
        return vb__fail(err, VB_E_NONFINITE, "%.120s: %s", e->path, c->req->message.text);
    if (c->req->error != VB_OK) return vb__fail(err, c->req->error, "%s", c->req->message.text);
    return VB_OK;
}

vb_err vb__generate(vb_model *m, const vb_request *q, const vb__draft_script *script, vb_result *out, vb__rounds *rounds,
                    vb_error *err) {
    vb__engine *e = m->engine;
    vb__trace *trace = NULL;
    vb__neighbours *others = NULL;
    vb__answer a = {0};
    vb_sampling sampling;
    if (q->neighbours < 0 || q->neighbours >= e->parallel)
        return vb__fail(err, VB_E_RANGE, "neighbours: %d, expected 0 to %d (parallel - 1)", q->neighbours, e->parallel - 1);
    uint32_t csr = vb__fp_enter();
    vb_err code = vb__sampling_resolve(&q->sampling, NULL, &e->defaults, &sampling, err);
    if (code == VB_OK && q->trace_path != NULL) code = vb__trace_open(q->trace_path, e, &trace, err);
    if (code == VB_OK)
        code = vb__answer_begin(&a, e, q, &sampling, script,
                                (q->trace_path != NULL || rounds != NULL ? VB_ANSWER_ROUNDS : 0) |
                                    (q->hash_logits || q->trace_path != NULL ? VB_ANSWER_HASH : 0), err);
    if (code == VB_OK) code = vb__engine_submit(e, a.req, err);
    if (code == VB_OK) code = vb__neighbours_start(e, q->neighbours, q->prompt_count, &others, err);
    if (code == VB_OK) code = run(e, &a, err);
    if (code == VB_OK) {
        vb_result done = {0};
        code = vb__answer_result(&a, &done, err);
        if (code == VB_OK && trace != NULL && done.finish != VB_FINISH_CANCELLED)
            code = vb__trace_write(trace, a.req, &a.rounds, done.logits_sha256, err);
        if (code == VB_OK) *out = done;
        else vb_result_fini(&done);
    }
    if (code == VB_OK && rounds != NULL) {
        *rounds = a.rounds;
        a.rounds = (vb__rounds){0};
    }
    vb__trace_close(trace);
    vb__neighbours_stop(e, others);
    if (a.req != NULL) vb__engine_cancel(e, a.req);
    vb__answer_fini(&a);
    vb__fp_leave(csr);
    return code;
}

/* An answer that ends earlier has no room for all that was asked for. */
static void say_unwalked(const vb_request *q, const vb__rounds *r) {
    int32_t same = 0;
    while (same < q->n_accepts && same < r->n && r->accepted[same] == q->accepts[same]) same++;
    if (same == q->n_accepts) return;
    if (same < r->n)
        vb__log(VB_LOG_WARN, "accepts", "round %d of %d accepted %d of %d: the answer ends there", same + 1, q->n_accepts, r->accepted[same],
                q->accepts[same]);
    else vb__log(VB_LOG_WARN, "accepts", "%d of %d rounds were run: the answer ends behind them", same, q->n_accepts);
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
    vb__rounds rounds = {0};
    vb_err code = vb__generate(m, &again, &script, out, &rounds, err);
    if (code == VB_OK && out->finish != VB_FINISH_CANCELLED) say_unwalked(q, &rounds);
    vb__rounds_fini(&rounds);
    vb_result_fini(&plain);
    return code;
}

vb_err vb_generate(vb_model *m, const vb_request *q, vb_result *out, vb_error *err) {
    if (q->n_accepts > 0) return generate_accepts(m, q, out, err);
    return vb__generate(m, q, NULL, out, NULL, err);
}
