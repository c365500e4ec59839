/* verbatim quantize: a folder with fewer bits. */
#include "base/error.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/report.h"
#include "verbatim/verbatim.h"
#include <stdlib.h>

typedef struct values {
    const char *model, *output, *bits, *group_size;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_opts[] = {
    {"model", 'm', VB_OPT_STRING, "SRC", AT(model), 0, 0, NULL, "The folder to read: bf16, f16 or f32"},
    {"output", 'o', VB_OPT_STRING, "DIR", AT(output), 0, 0, NULL, "The folder to write"},
    {"bits", 'b', VB_OPT_CHOICE, "2|3|4|5|6|7|8", AT(bits), 0, 0, NULL, "Bits of a weight; default 4"},
    {"group-size", 'g', VB_OPT_CHOICE, "32|64|128", AT(group_size), 0, 0, NULL,
     "Weights that share a scale and a bias; default 64"},
    {0}};
#undef AT

static int run(void *values_, const char *const *positional, int n) {
    const values *v = values_;
    (void)positional, (void)n;
    vb_error err = {0};
    char *path = NULL;
    vb_err e = VB_OK;
    if (!v->model || !v->output) e = vb__fail(&err, VB_E_ARGUMENT, "quantize: expected -m SRC and -o DIR");
    if (e == VB_OK) e = vb__model_path(v->model, &path, &err);
    vb__cli_stoppable();
    if (e == VB_OK)
        e = vb_quantize(path, v->output, v->bits ? atoi(v->bits) : 4,
                        v->group_size ? atoi(v->group_size) : 64, vb__cli_progress, NULL, &err);
    vb__cli_progress_clear();
    vb__free(path);
    int code = e == VB_OK ? 0 : vb__cli_fail(&err);
    if (e == VB_E_CANCELLED) vb__cli_end_if_stopped();
    return code;
}

const vb__command vb__cmd_quantize = {
    .name = "quantize",
    .synopsis = "-m SRC -o DIR [options]",
    .summary = "Make a smaller copy of a model",
    .text = "Writes a copy of the model folder SRC whose matrices have 2 to 8 bits a weight, as affine "
            "groups in MLX layout.",
    .examples = "  verbatim quantize -m ./my-model -o ./my-model-4bit --bits 4 --group-size 64\n",
    .groups = {{"Options", g_opts, 0}},
    .values_size = sizeof(values),
    .run = run,
};
