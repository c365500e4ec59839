/* Opening and closing an engine: what fits into memory, and everything a step needs, made once. */
#include "engine/engine.h"
#include "engine/gguf_text.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fp_env.h"
#include "base/log.h"
#include "engine/chat_load.h"
#include "engine/drafting.h"
#include "engine/gate.h"
#include "engine/memory.h"
#include "engine/sampling_options.h"
#include "engine/step_seq.h"
#include <string.h>

static vb_err out_of_memory(vb_error *err, const char *what) {
    return vb__fail(err, VB_E_MEMORY, "%s: out of memory", what);
}

static vb_err device_floats(vb__engine *e, int64_t n, float **out, const char *what, vb_error *err) {
    void *p = NULL;
    if (e->be->ops->alloc(e->be, (size_t)n * sizeof(float), &p) != VB_OK) return out_of_memory(err, what);
    *out = p;
    return VB_OK;
}

/* ---- The context that fits -------------------------------------------------------------------------------------- */

static vb_err choose_context(vb__engine *e, const vb_model_options *o, bool drafts, vb_error *err) {
    const vb__model *m = e->model;
    int64_t trained = m->cfg.max_position > 0 ? m->cfg.max_position : 4096;
    e->trained_ctx = (int32_t)trained;
    int64_t fixed = vb__memory_sequence(m, drafts) * e->parallel + vb__workspace_bytes(&m->cfg, e->max_rows) +
                    ((int64_t)e->max_rows * m->cfg.hidden + VB_LOGIT_ROWS * (int64_t)m->cfg.vocab) * 4;
    int64_t free_bytes = vb__memory_available();
    int64_t ctx = o->ctx;
    if (ctx < 0 || ctx > VB_LIMIT_CONTEXT)
        return vb__fail(err, VB_E_RANGE, "--ctx: %lld, expected 1 to %d", (long long)ctx, VB_LIMIT_CONTEXT);
    int64_t fits = vb__memory_fits(m->page_bytes, free_bytes / 10 * 8 - fixed);
    if (ctx == 0) {
        ctx = trained;
        if (fits < ctx && fits >= VB_PAGE_POSITIONS) {
            vb__log(VB_LOG_WARN, "engine", "ctx lowered=%lld trained=%lld free_bytes=%lld fixed_bytes=%lld bytes_per_token=%lld",
                    (long long)fits, (long long)trained, (long long)free_bytes, (long long)fixed,
                    (long long)(m->page_bytes / VB_PAGE_POSITIONS));
            ctx = fits;
        }
    } else if (ctx > trained) {
        vb__log(VB_LOG_WARN, "engine", "ctx=%lld is beyond the trained length %lld; quality may fall", (long long)ctx,
                (long long)trained);
    }
    if (o->kv_pages > 0 && m->page_bytes > 0 && ctx > o->kv_pages * VB_PAGE_POSITIONS) {
        ctx = o->kv_pages * VB_PAGE_POSITIONS; /* what one request alone could have */
        vb__log(VB_LOG_WARN, "engine", "ctx lowered=%lld, what %lld KV pages hold", (long long)ctx, (long long)o->kv_pages);
    }
    int64_t pages = (ctx + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS;
    int64_t need = pages * m->page_bytes + fixed;
    if (need > free_bytes)
        return vb__fail(err, VB_E_MEMORY, "memory: a context of %lld tokens needs %lld bytes, %lld are free; the largest that fits is %lld",
                        (long long)ctx, (long long)need, (long long)free_bytes,
                        (long long)vb__memory_fits(m->page_bytes, free_bytes - fixed));
    e->ctx = (int32_t)ctx;
    /* Pages cost nothing before they are used; the pool is as large as all slots could want or memory allows. */
    int64_t want = pages * e->parallel, most = m->page_bytes > 0 ? (free_bytes - fixed) / m->page_bytes : want;
    if (o->kv_pages > 0) want = o->kv_pages;
    if (drafts) want += VB_GATE_PAGES; /* the gate's sequence must not take what a full context needs */
    if (want > most) want = most > pages ? most : pages;
    return vb__page_pool_create(e->be, m->page_bytes > 0 ? m->page_bytes : 64, (int32_t)want, &e->pages, err);
}

/* ---- Tokens ------------------------------------------------------------------------------------------------------- */

static void add_eos(vb__engine *e, int32_t id) {
    if (id < 0 || id >= e->model->cfg.vocab) return;
    for (int32_t i = 0; i < e->n_eos; i++)
        if (e->eos[i] == id) return;
    if (e->n_eos < (int32_t)(sizeof e->eos / sizeof e->eos[0])) e->eos[e->n_eos++] = id;
}

static vb_err load_text(vb__engine *e, const vb_model_options *o, const vb__checkpoint *ck, vb_error *err) {
    const vb__gguf *g = vb__checkpoint_gguf(ck);
    vb_err code = g != NULL ? vb__gguf_tokenizer(g, &e->tok, err) : vb__tokenizer_load(o->path, &e->tok, err);
    if (code == VB_E_NOT_FOUND) return VB_OK; /* ids only */
    if (code == VB_E_MISMATCH && g != NULL) { /* a dummy vocabulary beside real tensors: ids run, text gets this error */
        vb__log(VB_LOG_WARN, "engine", "token ids only: %s", err == NULL ? "" : err->text);
        e->no_text = vb__strdup(VB_TAG_ENGINE, err == NULL ? "" : err->text);
        if (e->no_text == NULL) return out_of_memory(err, "tokenizer");
        if (err != NULL) *err = (vb_error){0};
        return VB_OK;
    }
    VB_TRY(code);
    int32_t vocab = e->model->cfg.vocab;
    e->token_mask = vb__calloc(VB_TAG_ENGINE, (size_t)(vocab + 31) / 32, sizeof *e->token_mask);
    if (e->token_mask == NULL) return out_of_memory(err, "tokenizer");
    for (int32_t i = 0; i < vocab; i++)
        if (vb__tokenizer_has_id(e->tok, i)) e->token_mask[i / 32] |= 1u << (i % 32);
    size_t n_eos;
    const int32_t *eos = vb__tokenizer_eos_ids(e->tok, &n_eos);
    for (size_t i = 0; i < n_eos; i++) add_eos(e, eos[i]);
    return vb__chat_load(o->path, o->chat_template, g, e->tok, &e->chat, err);
}

/* ---- Open and close -------------------------------------------------------------------------------------------------- */

static vb_err open_scratch(vb__engine *e, vb_error *err) {
    const vb__model_config *c = &e->model->cfg;
    VB_TRY(device_floats(e, (int64_t)e->max_rows * c->hidden, &e->hidden, "hidden rows", err));
    VB_TRY(device_floats(e, (int64_t)VB_LOGIT_ROWS * c->hidden, &e->logit_hidden, "logit rows", err));
    VB_TRY(device_floats(e, (int64_t)VB_LOGIT_ROWS * c->vocab, &e->logits, "logits", err));
    e->fseqs = vb__calloc(VB_TAG_ENGINE, (size_t)e->parallel, sizeof *e->fseqs);
    e->plan = vb__calloc(VB_TAG_ENGINE, (size_t)e->parallel, sizeof *e->plan);
    e->row_tokens = vb__calloc(VB_TAG_ENGINE, (size_t)e->max_rows, sizeof *e->row_tokens);
    e->hidden_rows = vb__calloc(VB_TAG_ENGINE, (size_t)e->max_rows, sizeof *e->hidden_rows);
    e->slots = vb__calloc(VB_TAG_ENGINE, (size_t)e->parallel, sizeof *e->slots);
    if (e->fseqs == NULL || e->plan == NULL || e->row_tokens == NULL || e->hidden_rows == NULL || e->slots == NULL)
        return out_of_memory(err, "engine");
    int32_t most = e->parallel < e->threads ? e->parallel : e->threads; /* one choice of a request at a time */
    for (; e->n_samplers < most && e->n_samplers < VB_LOGIT_ROWS; e->n_samplers++)
        VB_TRY(vb__sampler_create(c->vocab, &e->samplers[e->n_samplers], err));
    return VB_OK;
}

static vb_err open_slots(vb__engine *e, int32_t tape_rows, vb_error *err) {
    for (int32_t i = 0; i < e->parallel; i++) {
        vb__slot *s = &e->slots[i];
        VB_TRY(vb__seq_create(e->model, e->pages, e->ctx, e->max_rows, tape_rows, &s->seq, err));
        s->tokens = vb__alloc(VB_TAG_ENGINE, (size_t)e->ctx * sizeof *s->tokens);
        if (s->tokens == NULL) return out_of_memory(err, "slots");
    }
    return VB_OK;
}

static vb_err lower_level(vb__cpu_level *level, const char *want, vb_error *err) {
    if (want == NULL) return VB_OK;
    for (int32_t l = 0; l <= (int32_t)*level; l++)
        if (strcmp(want, vb__cpu_level_name((vb__cpu_level)l)) == 0) {
            *level = (vb__cpu_level)l;
            return VB_OK;
        }
    return vb__fail(err, VB_E_ARGUMENT, "level: '%s', expected c, avx2, avx512 or amx, at most %s", want, vb__cpu_level_name(*level));
}

vb_err vb__engine_open_source(const vb_model_options *o, const vb__weight_source *src, vb__engine **out, vb_error *err) {
    double t0 = vb__now();
    uint32_t csr = vb__fp_enter();
    vb__engine *e = vb__calloc(VB_TAG_ENGINE, 1, sizeof *e);
    if (e == NULL) {
        vb__fp_leave(csr);
        return out_of_memory(err, "engine");
    }
    e->queue_tail = &e->queue;
    vb_err code = VB_OK;
#define TRY(call)                                                                                            \
    do {                                                                                                     \
        if ((code = (call)) != VB_OK) goto out;                                                              \
    } while (0)
    TRY(vb__cpu_select(&e->level, err));
    TRY(lower_level(&e->level, o->level, err));
    if (o->threads < 0 || o->parallel < 1 || o->parallel > 256 || o->prefill_chunk < 0) {
        code = vb__fail(err, VB_E_RANGE, "options: threads %d, parallel %d, prefill chunk %d; expected threads >= 0, parallel 1 to 256, chunk >= 0",
                        o->threads, o->parallel, o->prefill_chunk);
        goto out;
    }
    if (o->kv_pages < 0 || o->kv_pages > VB_LIMIT_KV_PAGES) {
        code = vb__fail(err, VB_E_RANGE, "--kv-pages: %lld, expected 1 to %d", (long long)o->kv_pages, VB_LIMIT_KV_PAGES);
        goto out;
    }
    e->threads = o->threads > 0 ? o->threads : vb__cpu_cores();
    e->activations = o->activations;
    e->parallel = o->parallel;
    e->prefill_chunk = o->prefill_chunk == 0 ? VB_PREFILL_CHUNK : o->prefill_chunk;
    if (e->prefill_chunk > VB_LIMIT_ROWS) e->prefill_chunk = VB_LIMIT_ROWS; /* longer chunks: several calls, same bits */
    e->max_rows = VB_LIMIT_ROWS;
    const vb__model_config *c = src->cfg;
    vb__cpu_backend_options bo = {.level = (int32_t)e->level, .threads = e->threads, .activations = o->activations,
                                        .max_rows = e->max_rows, .max_k = vb__model_max_k(c), .max_heads = c->heads,
                                        .max_head_dim = c->head_dim > 128 ? c->head_dim : 128};
    vb__drafting_widen(src->path, o->draft, &bo);
    TRY(vb__cpu_backend_create(&bo, &e->be, err));
    TRY(vb__model_load(src, e->be, o->progress == NULL ? NULL : vb__engine_load_progress, (void *)(uintptr_t)o, &e->model, err));
    e->model->head_chunk = o->head_chunk;
    e->path = vb__strdup(VB_TAG_ENGINE, src->path);
    if (e->path == NULL) {
        code = out_of_memory(err, "engine");
        goto out;
    }
    bool drafts = o->draft == NULL || strcmp(o->draft, "none") != 0;
    TRY(vb__workspace_create(e->model, e->max_rows, e->parallel, &e->ws, err));
    TRY(open_scratch(e, err));
    TRY(choose_context(e, o, drafts, err));
    TRY(open_slots(e, drafts ? VB_LIMIT_DRAFT_WIDTH : 0, err));
    e->stats.load_s = vb__now() - t0;
    *out = e;
    e = NULL;
out:
    vb__engine_close(e);
    vb__fp_leave(csr);
    return code;
#undef TRY
}

/* The load callback of the model, in the terms of the public one. */
bool vb__engine_load_progress(void *user, int64_t done, int64_t total) {
    const vb_model_options *o = user;
    return o->progress(o->progress_user, "load", done, total);
}

vb_err vb__engine_open(const vb_model_options *o, vb__engine **out, vb_error *err) {
    double t0 = vb__now();
    if (o->path == NULL) return vb__fail(err, VB_E_ARGUMENT, "model: no path");
    vb__checkpoint *ck = NULL;
    vb__engine *e = NULL;
    VB_TRY(vb__checkpoint_open(o->path, &ck, err));
    uint32_t csr = vb__fp_enter();
    vb__weight_source src;
    vb__checkpoint_source(ck, &src);
    vb_err code = vb__drafting_check(&src, o, err); /* before the loading, which may take long */
    if (code == VB_OK) code = vb__engine_open_source(o, &src, &e, err);
    if (code == VB_OK) {
        const vb__model_config *c = vb__checkpoint_config(ck);
        for (int32_t i = 0; i < c->n_eos; i++) add_eos(e, c->eos[i]);
        code = load_text(e, o, ck, err);
    }
    if (code == VB_OK) {
        vb__generation_config g;
        code = vb__generation_config_read(o->path, &g, err);
        for (int32_t i = 0; code == VB_OK && i < g.n_eos; i++) add_eos(e, g.eos[i]);
        if (code == VB_OK) e->defaults = g.sampling;
    }
    if (code == VB_OK) vb__checkpoint_fingerprint(ck, e->fingerprint);
    vb__checkpoint_close(ck); /* everything is packed: the mapping may go */
    if (code == VB_OK) code = vb__drafting_open(e, o, err);
    if (code != VB_OK) {
        vb__engine_close(e);
    } else {
        e->stats.load_s = vb__now() - t0;
        *out = e;
    }
    vb__fp_leave(csr);
    return code;
}

void vb__engine_close(vb__engine *e) {
    if (e == NULL) return;
    vb__drafting_close(e);
    for (int32_t i = 0; e->slots != NULL && i < e->parallel; i++) {
        vb__seq_destroy(e->slots[i].seq);
        vb__free(e->slots[i].tokens);
    }
    if (e->be != NULL) {
        e->be->ops->free(e->be, e->hidden);
        e->be->ops->free(e->be, e->logit_hidden);
        e->be->ops->free(e->be, e->logits);
        e->be->ops->free(e->be, e->taps);
    }
    vb__page_pool_destroy(e->pages);
    vb__workspace_destroy(e->ws);
    vb__model_destroy(e->model);
    if (e->be != NULL) e->be->ops->destroy(e->be);
    for (int32_t i = 0; i < e->n_samplers; i++) vb__sampler_destroy(e->samplers[i]);
    vb__tokenizer_destroy(e->tok);
    vb__chat_template_destroy(e->chat);
    vb__free(e->token_mask);
    vb__free(e->slots);
    vb__free(e->fseqs);
    vb__free(e->plan);
    vb__free(e->row_tokens);
    vb__free(e->hidden_rows);
    vb__free(e->path);
    vb__free(e->no_text);
    vb__free(e);
}
