/* verbatim run: one prompt, one answer. */
#include "base/error.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/logits_file.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include "cli/result_json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
    vb__model_values model;
    vb__sampling_values sampling;
    vb__output_values output;
    vb__prompt_values prompt;
    vb__opt_int max_tokens, neighbours, top_logprobs;
    bool ignore_eos, all_logits;
    vb__opt_list stops;
    const char *logits_out, *accepts, *trace;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_prompt_opts[] = {
    {"prompt", 'p', VB_OPT_STRING, "TEXT", AT(prompt.prompt), 0, 0, NULL, "The prompt"},
    {"prompt-file", 0, VB_OPT_STRING, "FILE", AT(prompt.prompt_file), 0, 0, NULL,
     "The prompt is the content of FILE"},
    {"ids", 0, VB_OPT_STRING, "IDS", AT(prompt.ids), 0, 0, NULL, "The prompt as token ids, 1,2,3 or @FILE"},
    {"raw", 0, VB_OPT_FLAG, NULL, AT(prompt.raw), 0, 0, NULL,
     "No chat template; special tokens written in the text are parsed as such. Without it the text is a user "
     "message, in which "
     "nothing can become a control token"},
    {"system", 0, VB_OPT_STRING, "TEXT", AT(prompt.system), 0, 0, NULL, "A system message before the prompt"},
    {"max-tokens", 'n', VB_OPT_INT, "N", AT(max_tokens), 0, 1 << 24, NULL,
     "At most N new tokens; 0 only runs the prompt. Default: up to the context's end"},
    {"ignore-eos", 0, VB_OPT_FLAG, NULL, AT(ignore_eos), 0, 0, NULL, "Go on after end tokens"},
    {"stop", 0, VB_OPT_LIST, "TEXT", AT(stops), 0, VB_MAX_STOPS, NULL, "End the answer before TEXT"},
    {0}};
static const vb__opt g_check_opts[] = {
    {"top-logprobs", 0, VB_OPT_INT, "N", AT(top_logprobs), 0, 20, NULL,
     "With --json: the log-probability of each token and of the N most likely ones"},
    {"logits-out", 0, VB_OPT_STRING, "FILE", AT(logits_out), 0, 0, NULL,
     "Write the logits sampled from to a safetensors file, one tensor logits [rows, vocabulary]"},
    {"all-logits", 0, VB_OPT_FLAG, NULL, AT(all_logits), 0, 0, NULL,
     "With --logits-out: those of all prompt positions too"},
    {"neighbours", 0, VB_OPT_INT, "N", AT(neighbours), 0, 255, NULL,
     "N other sequences of seeded random ids take rows in the same steps. Never changes the result"},
    {"accepts", 0, VB_OPT_STRING, "LIST", AT(accepts), 0, 0, NULL,
     "Force the accept length of each round, 3,1,4"},
    {"trace", 0, VB_OPT_STRING, "FILE", AT(trace), 0, 0, NULL,
     "Record the request and its rounds, for verbatim replay"},
    {0}};
#undef AT

typedef struct run_state {
    vb__logits_file logits;
    vb_error logits_error;
    bool quiet, wrote, newline;
} run_state;

static vb_err on_logits(void *user, const float *logits, int32_t vocab) {
    run_state *s = user;
    (void)vocab;
    if (vb__cli_stopped()) return vb__fail(&s->logits_error, VB_E_CANCELLED, "--logits-out: stopped by a signal");
    return vb__logits_file_row(&s->logits, logits, &s->logits_error);
}

static bool on_text(void *user, const char *text, size_t len) {
    run_state *s = user;
    if (s->quiet || len == 0) return true;
    vb__cli_progress_clear();
    s->wrote = true;
    s->newline = text[len - 1] == '\n';
    return fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
}

static vb_err fill_request(const values *v, vb_request *q, run_state *s, int32_t **accepts, vb_error *err) {
    q->max_tokens = v->max_tokens.set ? v->max_tokens.v : -1;
    q->ignore_eos = v->ignore_eos;
    VB_TRY(vb__stops_from(&v->stops, q, err));
    q->sampling = vb__sampling_from(&v->sampling);
    if (v->top_logprobs.set && v->output.json) q->top_logprobs = (int32_t)v->top_logprobs.v;
    if (v->neighbours.set) q->neighbours = (int32_t)v->neighbours.v;
    q->hash_logits = v->output.json;
    q->all_logits = v->all_logits;
    if (v->all_logits && !v->logits_out)
        return vb__fail(err, VB_E_ARGUMENT, "--all-logits: needs --logits-out FILE");
    if (v->accepts) VB_TRY(vb__parse_ids("--accepts", v->accepts, accepts, &q->n_accepts, err));
    for (int32_t i = 0; i < q->n_accepts; i++)
        if ((*accepts)[i] >= VB_LIMIT_DRAFT_WIDTH)
            return vb__fail(err, VB_E_ARGUMENT, "--accepts: is %d at number %d, expected lengths 0 to %d", (*accepts)[i], i + 1,
                            VB_LIMIT_DRAFT_WIDTH - 1);
    if (v->accepts && v->model.draft && strcmp(v->model.draft, "none") == 0)
        return vb__fail(err, VB_E_ARGUMENT, "--accepts: needs drafting, and --draft is none");
    q->accepts = *accepts;
    q->trace_path = v->trace;
    q->on_text = on_text;
    q->progress = vb__cli_progress;
    q->user = s;
    return VB_OK;
}

static void report(const values *v, const vb_result *r, int32_t n_prompt) {
    if (!(v->sampling.seed.set) && r->sampling.temperature >= 1e-5f)
        vb__cli_note("seed %llu", (unsigned long long)r->sampling.seed);
    if (!isatty(STDERR_FILENO) && !v->output.verbose) return;
    double p = r->prefill_s > 0 ? (n_prompt - r->cached_tokens) / r->prefill_s : 0;
    double d = r->decode_s > 0 && r->count > 1 ? (r->count - 1) / r->decode_s : 0;
    char draft[64] = "";
    if (r->proposed > 0)
        snprintf(draft, sizeof draft, ", %s %lld of %lld drafts accepted", r->draft_kind,
                 (long long)r->accepted, (long long)r->proposed);
    vb__cli_note("prompt %d tokens, %.1f/s; answer %d tokens, %.1f/s%s", n_prompt, p, r->count, d, draft);
}

static int run(void *values_, const char *const *positional, int n_positional) {
    const values *v = values_;
    vb_error err = {0};
    vb_model_options mo;
    vb_request q;
    vb_result r = {0};
    vb_model *m = NULL;
    vb_model_info info;
    vb__buffer text;
    char *path = NULL;
    int32_t *given = NULL, *encoded = NULL, *accepts = NULL, n = 0;
    run_state s = {.quiet = v->output.json};
    vb_err e;
    vb__output_start(v->output.verbose);
    vb__buffer_init(&text, VB_LIMIT_PROMPT_BYTES);
    vb_request_init(&q);
    /* All that can be wrong with the command line comes before the model is loaded. */
    VB_TRY_OUT(fill_request(v, &q, &s, &accepts, &err));
    if (v->trace) VB_TRY_OUT(vb_trace_check(v->trace, &err));
    VB_TRY_OUT(vb__prompt_read(&v->prompt, n_positional > 0 ? positional[0] : NULL, &text, &given, &n, &err));
    VB_TRY_OUT(vb__model_options_from(&v->model, &mo, &path, &err));
    mo.parallel = 1 + q.neighbours;
    VB_TRY_OUT(vb_model_open(&mo, &m, &err));
    vb_model_get_info(m, &info);
    if (!given) VB_TRY_OUT(vb__prompt_encode(m, &v->prompt, &text, &encoded, &n, &err));
    q.prompt_ids = given ? given : encoded;
    q.prompt_count = n;
    if (v->logits_out) {
        vb__cli_stoppable();
        VB_TRY_OUT(vb__logits_file_open(&s.logits, v->logits_out, info.vocab, &err));
        q.logits_row = on_logits;
    }
    e = vb_generate(m, &q, &r, &err);
    if (e != VB_OK && s.logits_error.code != VB_OK) err = s.logits_error;
    if (s.wrote && !s.newline) fputc('\n', stdout);
    if (e != VB_OK || r.finish == VB_FINISH_CANCELLED) goto out; /* cancelled: standard output failed, reported below */
    if (v->logits_out) VB_TRY_OUT(vb__logits_file_commit(&s.logits, &err));
    if (v->output.json) e = vb__print_json(vb__result_json(&r, &info, q.prompt_ids, n, q.top_logprobs), &err);
    else report(v, &r, n);
out:;
    int code = e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
    vb__logits_file_abort(&s.logits);
    if (e == VB_E_CANCELLED) vb__cli_end_if_stopped();
    vb_result_fini(&r);
    vb_model_close(m);
    vb_ids_free(encoded);
    vb__free(given);
    vb__free(accepts);
    vb__free(path);
    vb__buffer_fini(&text);
    return code;
}

const vb__command vb__cmd_run = {
    .name = "run",
    .synopsis = "[options] [PROMPT]",
    .summary = "Answer one prompt",
    .text = "Answers one prompt. The prompt is the argument, -p TEXT, --prompt-file FILE, --ids IDS, or "
            "standard input when it is not a "
            "terminal. The answer goes to standard output as it comes.\n\n"
            "Each sampling option is taken from the command line, else from the model's "
            "generation_config.json, else it is off; "
            "without any temperature the answer is greedy.",
    .examples = "  verbatim run \"Count from one to ten.\" --greedy\n"
                "  git diff | verbatim run -m ./my-model --system \"Review this change.\"\n"
                "  verbatim run --raw -n 32 \"int main(\" --json\n",
    .groups = {{"Prompt and answer", g_prompt_opts, 0},
               {"Sampling", vb__sampling_opts, offsetof(values, sampling)},
               {"Model", vb__model_opts, offsetof(values, model)},
               {"Output", vb__output_opts, offsetof(values, output)},
               {"Checking", g_check_opts, 0}},
    .values_size = sizeof(values),
    .max_positional = 1,
    .run = run,
};
