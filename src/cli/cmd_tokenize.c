/* verbatim tokenize: text to ids and back. */
#include "base/error.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/report.h"
#include "verbatim/verbatim.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct values {
    const char *model;
    bool decode, lines, json, hide_special, add_special, skip_special;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_opts[] = {
    {"model", 'm', VB_OPT_STRING, "MODEL", AT(model), 0, 0, "VERBATIM_MODEL",
     "A folder with a tokenizer, a GGUF file, or owner/name in the model store; without it, the embedded "
     "model"},
    {"decode", 'd', VB_OPT_FLAG, NULL, AT(decode), 0, 0, NULL, "From ids to text"},
    {"stdin-jsonl", 0, VB_OPT_FLAG, NULL, AT(lines), 0, 0, NULL,
     "One JSON object per line of standard input, one per line of output"},
    {"json", 0, VB_OPT_FLAG, NULL, AT(json), 0, 0, NULL,
     "Print one JSON object; always so with --stdin-jsonl"},
    {"no-special", 0, VB_OPT_FLAG, NULL, AT(hide_special), 0, 0, NULL,
     "Special tokens written in the text are plain text"},
    {"add-special", 0, VB_OPT_FLAG, NULL, AT(add_special), 0, 0, NULL,
     "Add the tokens that the tokenizer puts around a text"},
    {"skip-special", 0, VB_OPT_FLAG, NULL, AT(skip_special), 0, 0, NULL,
     "With --decode: leave special tokens out of the text"},
    {0}};
#undef AT

typedef struct context {
    const vb_tokenizer *t;
    bool decode;
} context;

static vb_err one_line(void *user, const char *line, size_t len, char **out, vb_error *err) {
    const context *c = user;
    return vb_tokenize_line(c->t, c->decode, line, len, out, err);
}

/* The JSON line that says what the command line says. */
static json_t *request(const values *v, const char *text, size_t len, vb_error *err) {
    if (!v->decode) {
        json_t *o = json_pack("{s:s%, s:b, s:b}", "text", text, len, "parse_special", !v->hide_special,
                              "add_special", v->add_special);
        if (!o) (void)vb__fail(err, VB_E_FORMAT, "text: is not valid UTF-8, expected UTF-8 text");
        return o;
    }
    int32_t *ids = NULL, n = 0;
    if (memchr(text, '\0', len)) {
        (void)vb__fail(err, VB_E_FORMAT, "ids: holds a NUL byte, expected numbers");
        return NULL;
    }
    if (vb__parse_ids("ids", text, &ids, &n, err) != VB_OK) return NULL;
    json_t *a = json_array();
    for (int32_t i = 0; i < n; i++) json_array_append_new(a, json_integer(ids[i]));
    vb__free(ids);
    json_t *o = json_pack("{s:o, s:b}", "ids", a, "skip_special", v->skip_special);
    if (!o) (void)vb__fail(err, VB_E_MEMORY, "ids: out of memory");
    return o;
}

static vb_err print_plain(const char *line, vb_error *err) {
    json_t *o = json_loads(line, JSON_ALLOW_NUL, NULL), *ids = json_object_get(o, "ids"),
           *text = json_object_get(o, "text");
    const char *message = json_string_value(json_object_get(o, "error"));
    vb_err e = VB_OK;
    if (message) e = vb__fail(err, VB_E_FORMAT, "%s", message);
    else if (text) fwrite(json_string_value(text), 1, json_string_length(text), stdout);
    else
        for (size_t i = 0; i < json_array_size(ids); i++)
            printf("%s%lld", i ? " " : "", (long long)json_integer_value(json_array_get(ids, i)));
    if (e == VB_OK) putchar('\n');
    json_decref(o);
    return e;
}

static vb_err single(const values *v, const vb_tokenizer *t, const char *argument, vb_error *err) {
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
    vb_err e = VB_OK;
    char *line = NULL, *out = NULL;
    if (argument) e = vb__buffer_puts(&b, argument);
    else
        for (int c; (c = getc_unlocked(stdin)) != EOF && e == VB_OK;) e = vb__buffer_putc(&b, (char)c);
    if (e == VB_OK && !argument && ferror(stdin))
        return vb__fail(err, VB_E_IO, "standard input: %s, expected text", strerror(errno));
    if (e != VB_OK)
        e = vb__fail(err, e, "text: longer than %d bytes, expected less", (int)VB_LIMIT_PROMPT_BYTES);
    json_t *o = e == VB_OK ? request(v, vb__buffer_str(&b), b.len, err) : NULL;
    if (e == VB_OK && !o) e = err->code;
    if (e == VB_OK && !(line = json_dumps(o, JSON_COMPACT)))
        e = vb__fail(err, VB_E_MEMORY, "text: out of memory");
    if (e == VB_OK) e = vb_tokenize_line(t, v->decode, line, strlen(line), &out, err);
    if (e == VB_OK && v->json) puts(out);
    else if (e == VB_OK) e = print_plain(out, err);
    vb_string_free(out);
    free(line);
    json_decref(o);
    vb__buffer_fini(&b);
    return e;
}

static int run(void *values_, const char *const *positional, int n) {
    const values *v = values_;
    vb_error err = {0};
    vb_tokenizer *t = NULL;
    char *path = NULL;
    vb_err e = VB_OK;
    if (v->lines && n > 0)
        e = vb__fail(&err, VB_E_ARGUMENT, "--stdin-jsonl: given with a text, expected one of them");
    if (e == VB_OK) e = vb__model_path(v->model, &path, &err);
    if (e == VB_OK) e = vb_tokenizer_open(path, &t, &err);
    if (e == VB_OK) {
        context c = {t, v->decode};
        e = v->lines ? vb__each_line(one_line, &c, VB_LIMIT_PROMPT_BYTES, &err)
                     : single(v, t, n > 0 ? positional[0] : NULL, &err);
    }
    vb_tokenizer_close(t);
    vb__free(path);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

const vb__command vb__cmd_tokenize = {
    .name = "tokenize",
    .synopsis = "[options] [TEXT | IDS]",
    .summary = "Turn text into token ids, or ids into text",
    .text =
        "Prints the token ids of TEXT (or of standard input), or with --decode the text of IDS such as "
        "1,2,3.\n\n"
        "With --stdin-jsonl, lines {\"text\", \"parse_special\": true, \"add_special\": false} give "
        "{\"ids\"}, and with --decode lines {\"ids\", "
        "\"skip_special\": false} give {\"text\"}. A bad line gives {\"error\"} and the next one is read.",
    .examples = "  verbatim tokenize \"Hello, world\"\n  verbatim tokenize --decode 1,2,3\n"
                "  echo '{\"text\": \"Hello\"}' | verbatim tokenize -m ./my-model --stdin-jsonl\n",
    .groups = {{"Options", g_opts, 0}},
    .values_size = sizeof(values),
    .max_positional = 1,
    .run = run,
};
