/* verbatim verify and verbatim replay: proofs. Exit 1 when a check finds a difference. */
#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/report.h"
#include "verbatim/verbatim.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct verify_values {
    vb__output_values output;
    const char *model, *draft, *activations, *certificate;
    bool quick, full;
} verify_values;

#define AT(f) offsetof(verify_values, f)
static const vb__opt g_verify_opts[] = {
    {"model", 'm', VB_OPT_STRING, "MODEL", AT(model), 0, 0, "VERBATIM_MODEL", "The model; without it the embedded one"},
    {"quick", 0, VB_OPT_FLAG, NULL, AT(quick), 0, 0, NULL,
     "A sample of the grid, in under a minute for a small model (the default)"},
    {"full", 0, VB_OPT_FLAG, NULL, AT(full), 0, 0, NULL, "The whole grid: a soak"},
    {"draft", 0, VB_OPT_STRING, "KIND", AT(draft), 0, 0, NULL,
     "The drafters in the grid: auto (all that fit), none, lookup, mtp, dflash[:PATH], model:PATH"},
    {"activations", 0, VB_OPT_CHOICE, "8|16", AT(activations), 0, 0, "VERBATIM_ACTIVATIONS",
     "Bits of an activation in quantised products; default 8"},
    {"certificate", 0, VB_OPT_STRING, "FILE", AT(certificate), 0, 0, NULL,
     "Write the certificate (JSON) to FILE"},
    {0}};
#undef AT

static double real_of(const json_t *o, const char *key) {
    return json_number_value(json_object_get(o, key));
}
static const char *text_of(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s != NULL ? s : "";
}

static void print_values(const json_t *a) {
    for (size_t i = 0; i < json_array_size(a); i++) {
        const json_t *v = json_array_get(a, i);
        const char *comma = i > 0 ? ", " : "";
        if (json_is_string(v)) printf("%s%s", comma, json_string_value(v));
        else printf("%s%lld", comma, (long long)json_integer_value(v));
    }
}

static void print_list(const char *name, const json_t *a) {
    printf("%-10s ", name);
    print_values(a);
    printf("\n");
}

static void print_drafters(const json_t *grid) {
    const json_t *a = json_object_get(grid, "drafters");
    printf("%-10s ", "drafters");
    for (size_t i = 0; i < json_array_size(a); i++) {
        const char *name = json_string_value(json_array_get(a, i));
        const json_t *n = name ? json_object_get(json_object_get(grid, "proposed"), name) : NULL;
        printf("%s%s", i > 0 ? ", " : "", name ? name : "");
        if (n) printf(" (%lld drafts)", (long long)json_integer_value(n));
    }
    printf("\n");
}

static void print_difference(const json_t *d) {
    if (strcmp(text_of(d, "where"), "blocks") == 0)
        printf("first difference: %s, position %d, in row %d of a block of %d rows (accept length %d), level "
               "%s, %d threads\n",
               text_of(d, "tensor"), (int)real_of(d, "position"), (int)real_of(d, "row"),
               (int)real_of(d, "width"), (int)real_of(d, "accept"), text_of(d, "level"),
               (int)real_of(d, "threads"));
    else if (strcmp(text_of(d, "where"), "gate") == 0)
        printf("first difference: %s, level %s, %d threads\n", text_of(d, "text"), text_of(d, "level"),
               (int)real_of(d, "threads"));
    else
        printf("first difference: prompt %d, drafter %s, width %d, chunk %d, neighbours %d, level %s, %d "
               "threads%s\n",
               (int)real_of(d, "prompt"), text_of(d, "drafter"), (int)real_of(d, "width"),
               (int)real_of(d, "chunk"), (int)real_of(d, "neighbours"), text_of(d, "level"),
               (int)real_of(d, "threads"), json_is_true(json_object_get(d, "warm")) ? ", warm" : "");
}

static void print_certificate(const json_t *c) {
    const json_t *g = json_object_get(c, "grid"), *d = json_object_get(c, "first_difference");
    printf("%-10s %s\n%-10s %s\n", "model", text_of(c, "path"), "machine", text_of(c, "machine"));
    print_list("levels", json_object_get(g, "levels"));
    print_list("threads", json_object_get(g, "threads"));
    print_drafters(g);
    print_list("widths", json_object_get(g, "widths"));
    print_list("chunks", json_object_get(g, "chunks"));
    print_list("neighbours", json_object_get(g, "neighbours"));
    print_list("cache", json_object_get(g, "cache"));
    print_list("blocks", json_object_get(g, "blocks"));
    print_list("gate", json_object_get(g, "gate"));
    if (json_is_string(json_object_get(c, "fault"))) printf("%-10s %s\n", "fault", text_of(c, "fault"));
    printf("%-10s %lld in %.1f s\n", "cells", (long long)real_of(c, "cells"), real_of(c, "seconds"));
    if (json_is_object(d)) print_difference(d);
    else printf("equal: one hash of logits for every prompt\n");
}

static int verify(void *values_, const char *const *positional, int n) {
    const verify_values *v = values_;
    (void)positional, (void)n;
    vb_error err = {0};
    vb_verify_options o;
    char *path = NULL, *json = NULL;
    json_t *root = NULL;
    bool equal = false;
    vb_err e = VB_OK;
    vb__output_start(v->output.verbose);
    vb_verify_options_init(&o);
    if (v->quick && v->full)
        e = vb__fail(&err, VB_E_ARGUMENT, "verify: --quick and --full, expected one of them");
    if (e == VB_OK) e = vb__model_path(v->model, &path, &err);
    o.path = path;
    o.full = v->full;
    if (v->draft != NULL) o.draft = v->draft;
    if (v->activations != NULL) o.activations = atoi(v->activations);
    o.progress = vb__cli_progress;
    if (e == VB_OK && v->certificate != NULL) { /* a path that cannot be written shows before the work, not after it */
        vb__file_writer w;
        e = vb__file_writer_open(&w, v->certificate, &err);
        if (e == VB_OK) vb__file_writer_abort(&w);
    }
    if (e == VB_OK) e = vb_verify_json(&o, &json, &equal, &err);
    vb__cli_progress_clear();
    if (e == VB_OK && v->certificate != NULL) e = vb__file_write(v->certificate, json, strlen(json), &err);
    if (e == VB_OK) {
        root = json_loads(json, 0, NULL);
        if (v->output.json) e = vb__print_json(root, &err), root = NULL;
        else print_certificate(root);
    }
    json_decref(root);
    vb_string_free(json);
    vb__free(path);
    if (e != VB_OK) return vb__cli_fail(&err);
    int code = vb__cli_finish_stdout();
    return code != 0 ? code : equal ? 0 : vb_err_exit_code(VB_E_DIFFERENCE);
}

const vb__command vb__cmd_verify = {
    .name = "verify",
    .synopsis = "[-m MODEL] [--quick | --full] [options]",
    .summary = "Prove that nothing changes the text on this machine",
    .text = "Runs a model over a grid of drafters, block widths, prompt chunks, threads, CPU levels, "
            "neighbours and warm or cold "
            "starts, and compares hashes of the logits: there must be one for each prompt. Before that, "
            "blocks of rows are compared "
            "with one-row steps layer by layer, so that a difference is named by layer and position. Exit "
            "status 1 when anything "
            "differs.\n\nVERBATIM_FAULT plants a fault that verify must find: linear-rows, attention-rows, "
            "rope-rows, "
            "state-commit, kv-truncate or draft-crash (which must cost speed only).",
    .examples =
        "  verbatim verify --quick\n  verbatim verify -m ./my-model --full --certificate certificate.json\n",
    .groups = {{"Options", g_verify_opts, 0}, {"Output", vb__output_opts, offsetof(verify_values, output)}},
    .values_size = sizeof(verify_values),
    .run = verify,
};

/* ---- replay
 * ------------------------------------------------------------------------------------------------------ */

typedef struct replay_values {
    vb__output_values output;
    const char *model;
    vb__opt_int threads;
} replay_values;

#define AT(f) offsetof(replay_values, f)
static const vb__opt g_replay_opts[] = {{"model", 'm', VB_OPT_STRING, "MODEL", AT(model), 0, 0, NULL,
                                         "The model, when it is not where the trace says"},
                                        {"threads", 't', VB_OPT_INT, "N", AT(threads), 1, 1024,
                                         "VERBATIM_THREADS", "Exactly N threads. Default: one per CPU"},
                                        {0}};
#undef AT

static int replay(void *values_, const char *const *positional, int n) {
    const replay_values *v = values_;
    vb_error err = {0};
    char *path = NULL, *json = NULL;
    bool equal = false;
    vb_err e = VB_OK;
    vb__output_start(v->output.verbose);
    if (n != 1) e = vb__fail(&err, VB_E_ARGUMENT, "replay: expected one FILE written by --trace");
    if (e == VB_OK && v->model != NULL) e = vb__model_path(v->model, &path, &err);
    if (e == VB_OK)
        e = vb_replay_json(positional[0], path, v->threads.set ? (int32_t)v->threads.v : 0, &json, &equal,
                           &err);
    if (e == VB_OK) {
        json_t *root = json_loads(json, 0, NULL);
        const json_t *d = json_object_get(root, "first_difference");
        if (!v->output.json) {
            if (equal)
                printf("equal: %lld requests, every token and every logit\n",
                       (long long)real_of(root, "requests"));
            else if (strcmp(text_of(d, "what"), "logits") == 0) /* their hash does not say where */
                printf("first difference: line %d of the trace: logits; every token and round is the same\n", (int)real_of(d, "line"));
            else
                printf("first difference: line %d of the trace: %s, token %d, round %d\n",
                       (int)real_of(d, "line"), text_of(d, "what"), (int)real_of(d, "token"),
                       (int)real_of(d, "round"));
            json_decref(root);
        } else e = vb__print_json(root, &err);
    }
    vb_string_free(json);
    vb__free(path);
    if (e != VB_OK) return vb__cli_fail(&err);
    int code = vb__cli_finish_stdout();
    return code != 0 ? code : equal ? 0 : vb_err_exit_code(VB_E_DIFFERENCE);
}

const vb__command vb__cmd_replay = {
    .name = "replay",
    .synopsis = "FILE [options]",
    .summary = "Run recorded requests again and compare bits",
    .text = "Runs every request of a trace (run --trace FILE, serve --trace FILE) again with the same "
            "rounds, and compares tokens and "
            "logits. Exit status 1 when anything differs.",
    .examples =
        "  verbatim run \"Count from one to ten.\" --trace trace.jsonl\n  verbatim replay trace.jsonl\n",
    .groups = {{"Options", g_replay_opts, 0}, {"Output", vb__output_opts, offsetof(replay_values, output)}},
    .max_positional = 1,
    .values_size = sizeof(replay_values),
    .run = replay,
};
