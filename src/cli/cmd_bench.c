/* verbatim bench: speed against limits measured in the same run. */
#include "base/error.h"
#include "cli/bench_serve.h"
#include "cli/commands.h"
#include "cli/draft_table.h"
#include "cli/groups.h"
#include "cli/report.h"
#include "verbatim/verbatim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
    const char *model, *geometry, *weights, *activations;
    vb__opt_int threads, ctx, prefill, repeats, draft_width, tokens;
    bool no_head_chunk, json, draft;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_opts[] = {
    {"model", 'm', VB_OPT_STRING, "MODEL", AT(model), 0, 0, "VERBATIM_MODEL",
     "The model to measure; without it and --geometry, the embedded model"},
    {"geometry", 0, VB_OPT_CHOICE, "qwen3.5-0.8b|qwen3.5-2b|qwen3.5-4b", AT(geometry), 0, 0, NULL,
     "Random weights of a named geometry instead of a model"},
    {"weights", 0, VB_OPT_CHOICE, "q4|q8|bf16", AT(weights), 0, 0, NULL,
     "With --geometry: the kind of weights; default q4"},
    {"threads", 't', VB_OPT_INT, "N", AT(threads), 1, 1024, "VERBATIM_THREADS",
     "Exactly N threads; by default one per core that the process may use"},
    {"ctx", 'c', VB_OPT_INT, "N", AT(ctx), 1, VB_LIMIT_CONTEXT, NULL,
     "Context depth at which decode and widths are measured; default 1024"},
    {"prefill", 0, VB_OPT_INT, "N", AT(prefill), 1, 1 << 20, NULL,
     "Tokens of the prefill measurement; default 512"},
    {"repeats", 0, VB_OPT_INT, "N", AT(repeats), 1, 1000, NULL,
     "Repetitions of each measurement; the median counts"},
    {"activations", 0, VB_OPT_CHOICE, "8|16", AT(activations), 0, 0, "VERBATIM_ACTIVATIONS",
     "Bits of the activations in quantised layers; default 8"},
    {"no-head-chunk", 0, VB_OPT_FLAG, NULL, AT(no_head_chunk), 0, 0, "VERBATIM_NO_HEAD_CHUNK",
     "Turn the head-chunk plan of attention off"},
    {"draft", 0, VB_OPT_FLAG, NULL, AT(draft), 0, 0, NULL,
     "Measure the drafters against plain decode instead, on built-in prompts, each arm interleaved with "
     "plain runs"},
    {"draft-width", 0, VB_OPT_INT, "N", AT(draft_width), 2, 16, NULL,
     "With --draft: only blocks of N rows; default 2, 4, 8, 16 and the width that the policy chooses (0)"},
    {"tokens", 0, VB_OPT_INT, "N", AT(tokens), 1, 4096, NULL, "With serve: tokens of each answer; default 128"},
    {"json", 0, VB_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "Print one JSON object"},
    {0}};
#undef AT

static int run_draft(const values *v) {
    vb_error err = {0};
    vb_draft_bench_options o;
    char *path = NULL, *text = NULL;
    vb_draft_bench_options_init(&o);
    vb_err e = v->geometry || v->weights
                   ? vb__fail(&err, VB_E_ARGUMENT, "bench --draft: needs a model, --geometry has no drafters")
                   : VB_OK;
    if (e == VB_OK) e = vb__model_path(v->model, &path, &err);
    if (e == VB_OK) {
        o.path = path;
        if (v->threads.set) o.threads = (int32_t)v->threads.v;
        if (v->activations) o.activations = atoi(v->activations);
        if (v->repeats.set) o.pairs = (int32_t)v->repeats.v;
        if (v->draft_width.set) o.width = (int32_t)v->draft_width.v;
        o.progress = vb__cli_progress;
        e = vb_bench_draft_json(&o, &text, &err);
    }
    vb__cli_progress_clear();
    if (e == VB_OK && v->json) puts(text);
    else if (e == VB_OK) vb__print_draft_table(text);
    vb_string_free(text);
    vb__free(path);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

/* bench serve: several requests at a time. */
static int run_serve(const values *v) {
    vb_error err = {0};
    vb_model_options o;
    char *path = NULL;
    vb_model_options_init(&o);
    vb_err e = v->geometry || v->weights || v->draft
                   ? vb__fail(&err, VB_E_ARGUMENT, "bench serve: takes a model, expected none of --geometry, --weights, --draft")
                   : VB_OK;
    if (e == VB_OK) e = vb__model_path(v->model, &path, &err);
    if (e == VB_OK) {
        o.path = path;
        o.progress = vb__cli_progress;
        if (v->threads.set) o.threads = (int32_t)v->threads.v;
        if (v->activations) o.activations = atoi(v->activations);
        if (v->ctx.set) o.ctx = v->ctx.v;
        o.head_chunk = !v->no_head_chunk;
        e = vb__bench_serve(&o, v->tokens.set ? (int32_t)v->tokens.v : 0, v->repeats.set ? (int32_t)v->repeats.v : 0, v->json, &err);
    }
    vb__free(path);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

/* An option that this kind of measurement does not look at; NULL: none. */
static const char *unused(const values *v, bool serve) {
    if (!serve && v->tokens.set) return "--tokens: only bench serve takes it";
    if (!v->draft && v->draft_width.set) return "--draft-width: only bench --draft takes it";
    if ((serve || v->draft) && v->prefill.set) return "--prefill: bench serve and bench --draft do not take it";
    if (v->draft && v->ctx.set) return "--ctx: bench --draft does not take it";
    if (v->draft && v->no_head_chunk && !getenv("VERBATIM_NO_HEAD_CHUNK")) return "--no-head-chunk: bench --draft does not take it";
    return NULL;
}

static int run(void *values_, const char *const *positional, int n) {
    const values *v = values_;
    vb_error err = {0};
    bool serve = n > 0 && strcmp(positional[0], "serve") == 0;
    const char *what = n == 0 || serve ? unused(v, serve) : NULL;
    if (what) {
        (void)vb__fail(&err, VB_E_ARGUMENT, "%s, expected none here", what);
        return vb__cli_fail(&err);
    }
    if (serve) return run_serve(v);
    if (n > 0) {
        (void)vb__fail(&err, VB_E_ARGUMENT, "bench: %.60s: unknown, expected serve or nothing", positional[0]);
        return vb__cli_fail(&err);
    }
    if (v->draft) return run_draft(v);
    vb_bench_options o;
    char *path = NULL, *text = NULL;
    vb_err e = VB_OK;
    vb_bench_options_init(&o);
    if (v->geometry && v->model && v->model != getenv("VERBATIM_MODEL"))
        e = vb__fail(&err, VB_E_ARGUMENT, "bench: both --model and --geometry given, expected one");
    else if (v->weights && !v->geometry)
        e = vb__fail(&err, VB_E_ARGUMENT, "--weights: needs --geometry, a model has its own");
    if (e == VB_OK && !v->geometry) e = vb__model_path(v->model, &path, &err);
    if (e == VB_OK) {
        o.path = path;
        o.geometry = v->geometry;
        if (v->weights) o.weights = v->weights;
        if (v->threads.set) o.threads = (int32_t)v->threads.v;
        if (v->activations) o.activations = atoi(v->activations);
        if (v->ctx.set) o.ctx = v->ctx.v;
        if (v->prefill.set) o.prefill_tokens = (int32_t)v->prefill.v;
        if (v->repeats.set) o.repeats = (int32_t)v->repeats.v;
        o.head_chunk = !v->no_head_chunk;
        o.progress = vb__cli_progress;
        e = vb_bench_json(&o, &text, &err);
    }
    vb__cli_progress_clear();
    if (e == VB_OK && v->json) puts(text);
    else if (e == VB_OK) {
        char *table = NULL;
        e = vb_bench_text(text, &table, &err);
        if (e == VB_OK) fputs(table, stdout);
        vb_string_free(table);
    }
    vb_string_free(text);
    vb__free(path);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

const vb__command vb__cmd_bench = {
    .name = "bench",
    .synopsis = "[serve] [options]",
    .summary = "Measure speed against the machine's limits",
    .text = "Measures the machine's read bandwidth and integer rate, then decode, forward steps of 1 to 16 "
            "rows and prefill, each as a share of these "
            "limits, and the time by class of operation.\n\n"
            "serve: answers of built-in prompts at 1, 4, 8 and 16 requests at a time, without and with drafters: tokens per "
            "second of all together, and the time to the first token.",
    .examples =
        "  verbatim bench --geometry qwen3.5-0.8b --threads 2\n  verbatim bench -m ./my-model --json\n"
        "  verbatim bench serve\n",
    .groups = {{"Options", g_opts, 0}},
    .values_size = sizeof(values),
    .max_positional = 1,
    .run = run,
};
