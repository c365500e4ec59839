/* Drafting against plain decode in the same run: `bench --draft` and `tune`. Every arm is measured in pairs with plain
 * decode, one directly after the other, so that a machine that slows down slows both; the median of the pairs' ratios counts. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fp_env.h"
#include "engine/draft_policy.h"
#include "engine/drafting.h"
#include "engine/gate.h"
#include "engine/home.h"
#include "engine/model_handle.h"
#include "engine/tuned.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PAIRS_MAX = 15, WIDTHS_MAX = 16, BUILT_IN_CTX = 2048 };

typedef struct prompt {
    const char *name, *text;
    bool chat;
} prompt;

static const prompt prompts[] = {
    {"counting", "Count from one to ten.", true},
    {"listing", "List the days of the week.", true},
    {"code", "#include <linux/", false},
    {"meaning", "What does gravity mean?", true},
    {"prose", "The following example shows how to", false},
};
enum { PROMPTS = sizeof prompts / sizeof prompts[0] };

typedef struct arm {
    int32_t kind; /* -1: the policy over all kinds (auto) */
    int32_t width; /* 0: the policy's */
    double ratio, low, high; /* tokens/s to plain: median, least and largest pair */
    double tokens_per_s, plain_tokens_per_s, accepted, per_round, draft_share;
} arm;

void vb_draft_bench_options_init(vb_draft_bench_options *o) {
    *o = (vb_draft_bench_options){.activations = 8, .draft = "auto", .tokens = 128, .pairs = 5};
}

static vb_err prompt_ids(vb_model *m, const prompt *p, int32_t **ids, int32_t *n, vb_error *err) {
    if (m->engine->tok == NULL) { /* any ids do: a cycle that drafters can learn */
        *ids = vb__alloc(VB_TAG_ENGINE, 24 * sizeof **ids);
        if (*ids == NULL) return vb__fail(err, VB_E_MEMORY, "bench: out of memory");
        for (int32_t i = 0; i < 24; i++) (*ids)[i] = (i % 7 * 131 + (int32_t)(p - prompts) * 17) % m->engine->model->cfg.vocab;
        *n = 24;
        return VB_OK;
    }
    if (p->chat && m->engine->chat != NULL) {
        json_t *messages = json_pack("[{s:s, s:s}]", "role", "user", "content", p->text); /* NULL: no UTF-8 */
        char *json = messages == NULL ? NULL : json_dumps(messages, JSON_COMPACT);
        json_decref(messages);
        vb_err e = json == NULL ? vb__fail(err, VB_E_FORMAT, "is no valid UTF-8, expected UTF-8 text")
                                : vb_apply_template(m, json, NULL, NULL, true, NULL, ids, n, err);
        free(json);
        return e;
    }
    return vb_tokenize(m, p->text, strlen(p->text), true, true, false, ids, n, err);
}

/* What one or several answers took. Answers go on behind end tokens, so that every arm has the same number of tokens. */
typedef struct tally {
    double seconds, draft_s;
    int64_t tokens, proposed, accepted, rounds;
} tally;

static vb_err run_tokens(vb_model *m, const int32_t *ids, int32_t n, int32_t tokens, tally *t, vb_error *err) {
    vb_request q;
    vb_result r;
    vb_request_init(&q);
    q.prompt_ids = ids;
    q.prompt_count = n;
    q.max_tokens = tokens + 1;
    q.ignore_eos = true;
    q.sampling = (vb_sampling){.set = VB_SET_TEMPERATURE, .temperature = 0};
    vb__engine_clear(m->engine);
    VB_TRY(vb_generate(m, &q, &r, err));
    t->seconds += r.decode_s;
    t->draft_s += r.draft_s;
    t->tokens += r.count - 1; /* the first token is the prompt's */
    t->proposed += r.proposed;
    t->accepted += r.accepted;
    t->rounds += r.rounds;
    vb_result_fini(&r);
    return VB_OK;
}

static void set_arm(vb_model *m, int32_t kind, int32_t width) {
    vb__drafting_set_kinds(m->engine, kind < 0 ? UINT32_MAX : kind == 0 ? 0 : 1u << kind);
    vb__drafting_set_width(m->engine, kind == 0 ? 1 : width);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int32_t n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

static double rate(const tally *t) { return t->seconds > 0 ? (double)t->tokens / t->seconds : 0; }

static void fill_arm(arm *a, const tally *t) {
    a->accepted = t->proposed > 0 ? (double)t->accepted / (double)t->proposed : 0;
    a->per_round = t->rounds > 0 ? 1 + (double)t->accepted / (double)t->rounds : 1;
    a->draft_share = t->seconds > 0 ? t->draft_s / t->seconds : 0;
}

static vb_err measure_arm(vb_model *m, const int32_t *ids, int32_t n, int32_t tokens, int32_t pairs, arm *a, vb_error *err) {
    double ratios[PAIRS_MAX], fast[PAIRS_MAX], plain[PAIRS_MAX];
    tally all = {0};
    for (int32_t i = 0; i < pairs; i++) {
        for (int32_t half = 0; half < 2; half++) { /* which of the two goes first alternates */
            bool drafted = (half == 0) == (i % 2 == 0);
            tally t = {0};
            set_arm(m, drafted ? a->kind : 0, a->width);
            VB_TRY(run_tokens(m, ids, n, tokens, &t, err));
            if (!drafted) {
                plain[i] = rate(&t);
                continue;
            }
            fast[i] = rate(&t);
            all.seconds += t.seconds;
            all.draft_s += t.draft_s;
            all.proposed += t.proposed;
            all.accepted += t.accepted;
            all.rounds += t.rounds;
        }
        ratios[i] = plain[i] > 0 ? fast[i] / plain[i] : 0;
    }
    a->ratio = median(ratios, pairs);
    a->low = ratios[0];
    a->high = ratios[pairs - 1];
    a->tokens_per_s = median(fast, pairs);
    a->plain_tokens_per_s = median(plain, pairs);
    fill_arm(a, &all);
    return VB_OK;
}

static json_t *arm_json(const arm *a) {
    return json_pack("{s:s, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "drafter", a->kind < 0 ? "auto" : vb__draft_kind_name(a->kind), "width",
                     (int)a->width, "tokens_per_s", a->tokens_per_s, "plain_tokens_per_s", a->plain_tokens_per_s, "ratio", a->ratio,
                     "least", a->low, "largest", a->high, "acceptance", a->accepted, "tokens_per_round", a->per_round, "draft_share",
                     a->draft_share);
}

/* The gate of a width, before anything is timed. False: another width would serve in its place, so it is no arm. */
static bool pass_gate(vb_model *m, int32_t width) {
    vb__gate *g = vb__drafting_gate(m->engine);
    vb__gate_state s;
    if (width < 2 || g == NULL) return true;
    return vb__gate_check(g, width, false, &s, NULL) == VB_OK && vb__gate_width(g, width) == width;
}

static vb_err open_model(const vb_draft_bench_options *o, int64_t ctx, vb_model **m, vb_error *err) {
    vb_model_options mo;
    vb_model_options_init(&mo);
    mo.path = o->path;
    mo.threads = o->threads;
    mo.activations = o->activations;
    mo.draft = o->draft;
    mo.ctx = ctx;
    return vb_model_open(&mo, m, err);
}

static vb_err check(const vb_draft_bench_options *o, vb_error *err) {
    if (o->pairs < 1 || o->pairs > PAIRS_MAX) return vb__fail(err, VB_E_RANGE, "--repeats: %d, expected 1 to %d", o->pairs, PAIRS_MAX);
    if (o->tokens < 16 || o->tokens > 1024) return vb__fail(err, VB_E_RANGE, "tokens: %d, expected 16 to 1024", o->tokens);
    return VB_OK;
}

static vb_err finish(json_t *root, char **json, vb_error *err) {
    char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(6));
    json_decref(root);
    *json = text == NULL ? NULL : vb__strdup(VB_TAG_ENGINE, text);
    free(text);
    return *json != NULL ? VB_OK : vb__fail(err, VB_E_MEMORY, "bench: out of memory");
}

vb_err vb_bench_draft_json(const vb_draft_bench_options *o, char **json, vb_error *err) {
    enum { DECLINED = -1, POLICY = 0 };
    static const int32_t all_widths[] = {POLICY, 2, 4, 8, 16};
    int32_t widths[WIDTHS_MAX], n_widths = 0, done = 0;
    vb_model *m = NULL;
    VB_TRY(check(o, err));
    VB_TRY(open_model(o, BUILT_IN_CTX, &m, err));
    for (size_t i = 0; i < sizeof all_widths / sizeof *all_widths; i++)
        if (o->width == 0 || o->width == all_widths[i]) widths[n_widths++] = all_widths[i];
    if (n_widths == 0) widths[n_widths++] = o->width;
    for (int32_t w = 2; w <= 16; w++) {
        if (pass_gate(m, w)) continue;
        for (int32_t i = 0; i < n_widths; i++)
            if (widths[i] == w) widths[i] = DECLINED;
    }
    json_t *root = json_object(), *list = json_array();
    vb_err e = VB_OK;
    for (int32_t p = 0; p < PROMPTS && e == VB_OK; p++) {
        int32_t *ids = NULL, n = 0;
        json_t *arms = json_array();
        e = prompt_ids(m, &prompts[p], &ids, &n, err);
        for (int32_t k = -1; k < VB_DRAFT_KINDS && e == VB_OK; k++) {
            if (k == 0 || (k > 0 && (vb__drafting_kinds(m->engine) >> k & 1) == 0)) continue;
            for (int32_t i = 0; i < (k < 0 ? 1 : n_widths) && e == VB_OK; i++) {
                arm a = {.kind = k, .width = k < 0 ? 0 : widths[i]};
                if (k > 0 && a.width == DECLINED) continue;
                e = measure_arm(m, ids, n, o->tokens, o->pairs, &a, err);
                if (e == VB_OK) (void)json_array_append_new(arms, arm_json(&a));
                if (e == VB_OK && o->progress != NULL && !o->progress(o->progress_user, "bench", ++done, PROMPTS * (1 + 3 * n_widths)))
                    e = vb__fail(err, VB_E_CANCELLED, "bench: cancelled");
            }
        }
        (void)json_array_append_new(list, json_pack("{s:s, s:i, s:o}", "prompt", prompts[p].name, "prompt_tokens", (int)n, "arms", arms));
        vb_ids_free(ids);
    }
    (void)json_object_set_new(root, "level", json_string(vb__cpu_level_name(m->engine->level)));
    (void)json_object_set_new(root, "threads", json_integer(m->engine->threads));
    (void)json_object_set_new(root, "tokens", json_integer(o->tokens));
    (void)json_object_set_new(root, "pairs", json_integer(o->pairs));
    (void)json_object_set_new(root, "prompts", list);
    vb_model_close(m);
    if (e == VB_OK) return finish(root, json, err);
    json_decref(root);
    return e;
}

/* ---- tune ----------------------------------------------------------------------------------------------------------- */

/* All prompts in a row at one arm: tokens per second. */
static vb_err pass(vb_model *m, int32_t kind, int32_t width, int32_t *const *ids, const int32_t *n, int32_t prompts_n, int32_t tokens, arm *a,
                   vb_error *err) {
    tally t = {0};
    set_arm(m, kind, width);
    for (int32_t p = 0; p < prompts_n; p++) VB_TRY(run_tokens(m, ids[p], n[p], tokens, &t, err));
    a->tokens_per_s = rate(&t);
    fill_arm(a, &t);
    return VB_OK;
}

/* One arm between two plain runs; their spread is what an arm must beat. */
static vb_err bracket(vb_model *m, arm *a, int32_t *const *ids, const int32_t *n, int32_t prompts_n, int32_t tokens, double *spread,
                      vb_error *err) {
    arm before = {0}, after = {0};
    VB_TRY(pass(m, 0, 1, ids, n, prompts_n, tokens, &before, err));
    VB_TRY(pass(m, a->kind, a->width, ids, n, prompts_n, tokens, a, err));
    VB_TRY(pass(m, 0, 1, ids, n, prompts_n, tokens, &after, err));
    double mean = (before.tokens_per_s + after.tokens_per_s) / 2, diff = before.tokens_per_s - after.tokens_per_s;
    a->plain_tokens_per_s = mean;
    a->ratio = mean > 0 ? a->tokens_per_s / mean : 0;
    bool rose = before.tokens_per_s < after.tokens_per_s;
    const arm *slow = rose ? &before : &after, *quick = rose ? &after : &before;
    a->low = quick->tokens_per_s > 0 ? a->tokens_per_s / quick->tokens_per_s : 0;
    a->high = slow->tokens_per_s > 0 ? a->tokens_per_s / slow->tokens_per_s : 0;
    double s = mean > 0 ? (diff < 0 ? -diff : diff) / mean : 0;
    if (s > *spread) *spread = s;
    return VB_OK;
}

vb_err vb_tune_json(const vb_draft_bench_options *o, const char *const *texts, int32_t n_texts, char **json, vb_error *err) {
    enum { MAX_TEXTS = 16 };
    int32_t *ids[MAX_TEXTS] = {0}, n[MAX_TEXTS] = {0}, count = 0;
    vb_model *m = NULL;
    VB_TRY(check(o, err));
    if (n_texts > MAX_TEXTS) return vb__fail(err, VB_E_RANGE, "tune: %d prompts, expected at most %d", n_texts, MAX_TEXTS);
    VB_TRY(vb__tuned_writable(err)); /* shows before the work, not after it */
    VB_TRY(open_model(o, n_texts > 0 ? 0 : BUILT_IN_CTX, &m, err)); /* prompts of the user's may be long */
    vb_err e = VB_OK;
    for (; count < (n_texts > 0 ? n_texts : PROMPTS) && e == VB_OK; count++) {
        const prompt p = n_texts > 0 ? (prompt){"user", texts[count], true} : prompts[count];
        e = prompt_ids(m, &p, &ids[count], &n[count], err);
        if (e == VB_OK && n[count] == 0) e = vb__fail(err, VB_E_ARGUMENT, "has no tokens, expected at least one");
        if (e == VB_OK && (int64_t)n[count] + o->tokens + 1 > m->engine->ctx)
            e = vb__fail(err, VB_E_CONTEXT_FULL, "has %d tokens, and an answer %d, expected at most %d together", n[count], o->tokens + 1,
                         m->engine->ctx);
        if (e != VB_OK) e = vb__fail_prefix(err, e, "prompt %d of %d", count + 1, n_texts);
    }
    json_t *arms = json_array(), *stored = json_array();
    int32_t done = 0, all = 15 * __builtin_popcount(vb__drafting_kinds(m->engine) & ~1u);
    for (int32_t k = 1; k < VB_DRAFT_KINDS && e == VB_OK; k++) {
        if ((vb__drafting_kinds(m->engine) >> k & 1) == 0) continue;
        arm best = {0};
        double spread = 0;
        for (int32_t w = 2; w <= 16 && e == VB_OK; w++) {
            arm a = {.kind = k, .width = w};
            if (!pass_gate(m, w)) continue;
            e = bracket(m, &a, ids, n, count, o->tokens, &spread, err);
            if (e != VB_OK) break;
            (void)json_array_append_new(arms, arm_json(&a));
            if (a.ratio > best.ratio) best = a;
            if (o->progress != NULL && !o->progress(o->progress_user, "tune", ++done, all)) e = vb__fail(err, VB_E_CANCELLED, "tune: cancelled");
        }
        if (e == VB_OK && best.ratio > 1 + spread) {
            e = vb__tuned_store(m->engine, k, best.width, best.ratio, err);
            (void)json_array_append_new(stored, arm_json(&best));
        }
    }
    json_t *root = json_pack("{s:s, s:i, s:i, s:o, s:o}", "level", vb__cpu_level_name(m->engine->level), "threads", (int)m->engine->threads,
                             "tokens", (int)o->tokens, "arms", arms, "stored", stored);
    for (int32_t i = 0; i < count; i++) vb_ids_free(ids[i]);
    vb_model_close(m);
    if (e == VB_OK) return finish(root, json, err);
    json_decref(root);
    return e;
}
