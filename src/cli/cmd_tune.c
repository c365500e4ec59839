/* verbatim tune: which block width each drafter should use on this machine. */
#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/draft_table.h"
#include "cli/groups.h"
#include "cli/report.h"
#include "verbatim/verbatim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXTS = 16, TEXT_MAX = 1 << 20 };

typedef struct values {
    const char *model, *draft, *activations;
    vb__opt_int threads, tokens;
    vb__opt_list prompts;
    vb__output_values output;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_opts[] = {
    {"model", 'm', VB_OPT_STRING, "MODEL", AT(model), 0, 0, "VERBATIM_MODEL", "The model; without it the embedded one"},
    {"draft", 0, VB_OPT_STRING, "KIND", AT(draft), 0, 0, NULL,
     "Which drafters: auto (all that fit), lookup, mtp, dflash[:PATH], model:PATH"},
    {"prompt-file", 0, VB_OPT_LIST, "FILE", AT(prompts), 0, TEXTS, NULL,
     "A prompt of yours, a user message where the model has a chat template; without any, built-in ones"},
    {"tokens", 'n', VB_OPT_INT, "N", AT(tokens), 16, 1024, NULL, "Tokens of an answer; default 128"},
    {"threads", 't', VB_OPT_INT, "N", AT(threads), 1, 1024, "VERBATIM_THREADS",
     "Exactly N threads; by default one per core that the process may use"},
    {"activations", 0, VB_OPT_CHOICE, "8|16", AT(activations), 0, 0, "VERBATIM_ACTIVATIONS",
     "Bits of an activation in quantised products; default 8"},
    {0}};
#undef AT

static int run(void *values_, const char *const *positional, int n) {
    const values *v = values_;
    (void)positional, (void)n;
    vb_error err = {0};
    vb_draft_bench_options o;
    vb__buffer text[TEXTS];
    const char *texts[TEXTS];
    char *path = NULL, *json = NULL;
    int read = 0;
    vb__output_start(v->output.verbose);
    vb_draft_bench_options_init(&o);
    vb_err e = v->draft != NULL && strcmp(v->draft, "none") == 0
                   ? vb__fail(&err, VB_E_ARGUMENT, "--draft: is \"none\", expected a drafter to measure")
                   : vb__model_path(v->model, &path, &err);
    for (; read < v->prompts.n && e == VB_OK; read++) {
        vb__buffer_init(&text[read], TEXT_MAX);
        e = vb__file_read(v->prompts.v[read], TEXT_MAX, &text[read], &err);
        texts[read] = vb__buffer_str(&text[read]);
    }
    if (e == VB_OK) {
        o.path = path;
        if (v->draft != NULL) o.draft = v->draft;
        if (v->threads.set) o.threads = (int32_t)v->threads.v;
        if (v->tokens.set) o.tokens = (int32_t)v->tokens.v;
        if (v->activations != NULL) o.activations = atoi(v->activations);
        o.progress = vb__cli_progress;
        e = vb_tune_json(&o, texts, v->prompts.n, &json, &err);
    }
    vb__cli_progress_clear();
    if (e == VB_OK && v->output.json) puts(json);
    else if (e == VB_OK) vb__print_draft_table(json);
    for (int i = 0; i < read; i++) vb__buffer_fini(&text[i]);
    vb_string_free(json);
    vb__free(path);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

const vb__command vb__cmd_tune = {
    .name = "tune",
    .synopsis = "[-m MODEL] [options]",
    .summary = "Find the block width of each drafter on this machine",
    .text = "Measures plain decode and each drafter at widths 2 to 16, every arm between two plain runs, and "
            "prints acceptance and cost. The "
            "best width of a drafter is stored (per model, device and drafter, in $VERBATIM_HOME/tune.memo) "
            "when it beats plain decode by more "
            "than the plain runs differ among themselves. Runs that name the drafter (--draft mtp) begin with it; auto "
            "learns from its own rounds.",
    .examples = "  verbatim tune\n  verbatim tune -m ./my-model --prompt-file question.txt\n",
    .groups = {{"Options", g_opts, 0}, {"Output", vb__output_opts, offsetof(values, output)}},
    .values_size = sizeof(values),
    .run = run,
};
