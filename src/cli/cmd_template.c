/* verbatim template: renders chat templates. */
#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/report.h"
#include "verbatim/verbatim.h"
#include <stdio.h>
#include <string.h>

typedef struct values {
    const char *model, *messages, *chat_template;
    bool lines, json;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_opts[] = {{"model", 'm', VB_OPT_STRING, "MODEL", AT(model), 0, 0, "VERBATIM_MODEL",
                                  "The model whose template is used; without it, the embedded model"},
                                 {"messages", 0, VB_OPT_STRING, "FILE", AT(messages), 0, 0, NULL,
                                  "A JSON file: an array of messages, or an object with messages and perhaps "
                                  "tools and other variables of the template"},
                                 {"chat-template", 0, VB_OPT_STRING, "FILE", AT(chat_template), 0, 0,
                                  "VERBATIM_CHAT_TEMPLATE", "A file that replaces the model's chat template"},
                                 {"stdin-jsonl", 0, VB_OPT_FLAG, NULL, AT(lines), 0, 0, NULL,
                                  "One JSON object per line of standard input, one per line of output"},
                                 {"json", 0, VB_OPT_FLAG, NULL, AT(json), 0, 0, NULL,
                                  "Print one JSON object; always so with --stdin-jsonl"},
                                 {0}};
#undef AT

static vb_err one_line(void *user, const char *line, size_t len, char **out, vb_error *err) {
    (void)user;
    return vb_template_line(line, len, out, err);
}

static vb_err from_file(const values *v, vb_error *err) {
    vb__buffer b;
    char *path = NULL, *out = NULL;
    vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
    vb_err e = vb__file_read(v->messages, VB_LIMIT_PROMPT_BYTES, &b, err);
    if (e == VB_OK) e = vb__model_path(v->model, &path, err);
    if (e == VB_OK)
        e = vb_template_render_folder(path, v->chat_template, vb__buffer_str(&b), b.len, &out, err);
    if (e == VB_OK && v->json) e = vb__print_json(json_pack("{s:s}", "text", out), err);
    else if (e == VB_OK) fputs(out, stdout);
    vb_string_free(out);
    vb__free(path);
    vb__buffer_fini(&b);
    return e;
}

static int run(void *values_, const char *const *positional, int n) {
    const values *v = values_;
    (void)positional, (void)n;
    vb_error err = {0};
    vb_err e;
    if (v->lines == (v->messages != NULL))
        e = vb__fail(&err, VB_E_ARGUMENT, "template: expected one of --stdin-jsonl and --messages FILE");
    else e = v->lines ? vb__each_line(one_line, NULL, VB_LIMIT_PROMPT_BYTES, &err) : from_file(v, &err);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

const vb__command vb__cmd_template = {
    .name = "template",
    .synopsis = "--messages FILE | --stdin-jsonl",
    .summary = "Render a chat template",
    .text = "With --messages, renders a conversation with the model's chat template.\n\n"
            "With --stdin-jsonl, lines {\"template\", \"context\": {...}, \"now\": seconds since 1970} give "
            "{\"text\"} or {\"error\"}; the context is all there "
            "is, nothing is added.",
    .examples = "  verbatim template -m ./my-model --messages conversation.json\n"
                "  echo '{\"template\": \"{{ x + 1 }}\", \"context\": {\"x\": 2}}' | verbatim template "
                "--stdin-jsonl\n",
    .groups = {{"Options", g_opts, 0}},
    .values_size = sizeof(values),
    .run = run,
};
