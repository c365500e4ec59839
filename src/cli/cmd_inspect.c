/* verbatim inspect: what a model is and what it needs. */
#include "base/error.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/json_text.h"
#include "cli/report.h"
#include "verbatim/verbatim.h"
#include <stdlib.h>

typedef struct values {
    const char *model;
    vb__opt_int ctx;
    bool json, tensors;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_opts[] = {
    {"model", 'm', VB_OPT_STRING, "MODEL", AT(model), 0, 0, "VERBATIM_MODEL",
     "A model folder, a GGUF file, or owner/name in the model store; without it, the embedded model"},
    {"ctx", 'c', VB_OPT_INT, "N", AT(ctx), 1, VB_LIMIT_CONTEXT, "VERBATIM_CTX",
     "The context length to compute the memory for; default: the trained length"},
    {"tensors", 0, VB_OPT_FLAG, NULL, AT(tensors), 0, 0, NULL,
     "List the tensors too (always so with --json)"},
    {"json", 0, VB_OPT_FLAG, NULL, AT(json), 0, 0, NULL, "Print one JSON object"},
    {0}};
#undef AT

static int run(void *values_, const char *const *positional, int n) {
    const values *v = values_;
    vb_error err = {0};
    char *path = NULL, *text = NULL;
    vb_err e = VB_OK;
    if (n > 0 && v->model && v->model != getenv("VERBATIM_MODEL"))
        e = vb__fail(&err, VB_E_ARGUMENT, "inspect: given --model and an argument, expected one of them");
    if (e == VB_OK) e = vb__model_path(n > 0 ? positional[0] : v->model, &path, &err);
    if (e == VB_OK) e = vb_inspect_json(path, v->ctx.set ? v->ctx.v : 0, &text, &err);
    if (e == VB_OK && v->json) puts(text);
    else if (e == VB_OK) {
        json_t *o = json_loads(text, 0, NULL);
        if (!o) e = vb__fail(&err, VB_E_INTERNAL, "inspect: its JSON cannot be read");
        if (!v->tensors) json_object_del(o, "tensors");
        vb__json_text(stdout, o);
        json_decref(o);
    }
    vb_string_free(text);
    vb__free(path);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

const vb__command vb__cmd_inspect = {
    .name = "inspect",
    .synopsis = "[options] [MODEL]",
    .summary = "Show a model's configuration, tensors and memory",
    .text = "Reads a model's files without running it: configuration, tensors, the memory that a context "
            "needs, and the largest context that "
            "fits into the memory that is free now.",
    .examples = "  verbatim inspect ./my-model --ctx 32768\n  verbatim inspect --json\n",
    .groups = {{"Options", g_opts, 0}},
    .values_size = sizeof(values),
    .max_positional = 1,
    .run = run,
};
