/* The public interface of include/verbatim/verbatim.h over the text layer: tokens and templates, with and without a
 * model. */
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "engine/chat_load.h"
#include "engine/gguf_text.h"
#include "engine/model_handle.h"
#include "text/chat_template.h"
#include "text/template_lines.h"
#include "text/tokenize_lines.h"
#include "text/tokenizer.h"
#include "verbatim/verbatim.h"
#include <string.h>
#include <time.h>

/* ---- Tokens of a model ------------------------------------------------------------------------------------------- */

static vb_err need_tokenizer(const vb__engine *e, vb_error *err) {
    if (e->tok != NULL) return VB_OK;
    if (e->no_text != NULL) return vb__fail(err, VB_E_MISMATCH, "%s", e->no_text);
    size_t n = strlen(e->path);
    if (n > 5 && strcmp(e->path + n - 5, ".gguf") == 0)
        return vb__fail(err, VB_E_NOT_FOUND, "%s: key tokenizer.ggml.tokens: is missing, expected for text", e->path);
    return vb__fail(err, VB_E_NOT_FOUND, "%s/tokenizer.json: missing, expected for text", e->path);
}

vb_err vb_tokenize(const vb_model *m, const char *text, size_t len, bool parse_special, bool parse_added, bool add_special,
                   int32_t **ids, int32_t *count, vb_error *err) {
    VB_TRY(need_tokenizer(m->engine, err));
    const vb__encode_options o = {.parse = !parse_added     ? VB_PARSE_NONE
                                           : parse_special ? VB_PARSE_ALL
                                                           : VB_PARSE_NOT_SPECIAL,
                                  .add_special = add_special};
    vb__ids list = {0};
    vb_err code = vb__tokenizer_encode(m->engine->tok, text, len, &o, &list, err);
    if (code == VB_OK && list.len > INT32_MAX) code = vb__fail(err, VB_E_LIMIT, "text: too many tokens");
    if (code == VB_OK && list.data == NULL && vb__ids_reserve(&list, 1) != VB_OK)
        code = vb__fail(err, VB_E_MEMORY, "text: out of memory");
    if (code != VB_OK) {
        vb__ids_fini(&list);
        return code;
    }
    *ids = list.data;
    *count = (int32_t)list.len;
    return VB_OK;
}

vb_err vb_detokenize(const vb_model *m, const int32_t *ids, int32_t count, bool skip_special, char **text, size_t *len,
                     vb_error *err) {
    VB_TRY(need_tokenizer(m->engine, err));
    if (count < 0) return vb__fail(err, VB_E_RANGE, "token ids: count %d, expected at least 0", count);
    vb__buffer b;
    vb__buffer_init(&b, (size_t)1 << 31);
    vb_err code = vb__tokenizer_decode(m->engine->tok, ids, (size_t)count, skip_special, &b, err);
    size_t n = b.len;
    char *s = code == VB_OK ? vb__buffer_take(&b) : NULL;
    vb__buffer_fini(&b);
    VB_TRY(code);
    if (s == NULL) return vb__fail(err, VB_E_MEMORY, "text: out of memory");
    *text = s;
    *len = n;
    return VB_OK;
}

const char *vb_token_bytes(const vb_model *m, int32_t id, size_t *len) {
    size_t n = 0;
    const char *s = m->engine->tok != NULL ? vb__tokenizer_token_bytes(m->engine->tok, id, &n) : NULL;
    *len = s != NULL ? n : 0;
    return s;
}

/* ---- Chat ---------------------------------------------------------------------------------------------------------- */

/* JSON text of an argument; NULL stays NULL. */
static vb_err parse(const char *text, const char *what, json_t **out, vb_error *err) {
    *out = NULL;
    return text == NULL ? VB_OK : vb__json_parse(text, strlen(text), VB_LIMIT_PROMPT_BYTES, what, out, err);
}

/* Ids of a rendered conversation: only the template's own bytes may become added tokens. */
static vb_err encode_rendered(const vb__tokenizer *tok, const vb__jinja_result *r, vb__ids *list, vb_error *err) {
    vb__text_span *spans = vb__calloc(VB_TAG_TEXT, r->n_runs + 1, sizeof *spans);
    if (spans == NULL) return vb__fail(err, VB_E_MEMORY, "chat: out of memory");
    size_t end = 0;
    for (size_t i = 0; i < r->n_runs; i++) {
        end += r->runs[i].bytes;
        spans[i] = (vb__text_span){.end = end, .user = !r->runs[i].from_template};
    }
    const vb__encode_options o = {.parse = VB_PARSE_ALL, .spans = spans, .n_spans = r->n_runs};
    vb_err code = vb__tokenizer_encode(tok, r->text, r->len, &o, list, err);
    vb__free(spans);
    return code;
}

vb_err vb_apply_template(const vb_model *m, const char *messages_json, const char *tools_json, const char *kwargs_json,
                         bool add_generation_prompt, char **text, int32_t **ids, int32_t *count, vb_error *err) {
    const vb__engine *e = m->engine;
    VB_TRY(need_tokenizer(e, err));
    if (e->chat == NULL)
        return vb__fail(err, VB_E_NOT_FOUND, "%s: chat template: missing, expected chat_template.jinja or chat_template in tokenizer_config.json",
                        e->path);
    json_t *messages = NULL, *tools = NULL, *kwargs = NULL;
    vb__jinja_result r = {0};
    vb__ids list = {0};
    char *copy = NULL;
    vb_err code = parse(messages_json, "messages", &messages, err);
    if (code == VB_OK) code = parse(tools_json, "tools", &tools, err);
    if (code == VB_OK) code = parse(kwargs_json, "chat_template_kwargs", &kwargs, err);
    const vb__chat_input in = {.messages = messages, .tools = tools, .kwargs = kwargs,
                               .add_generation_prompt = add_generation_prompt, .thinking = -1};
    if (code == VB_OK) code = vb__chat_template_render(e->chat, &in, &r, err);
    if (code == VB_OK && ids != NULL) code = encode_rendered(e->tok, &r, &list, err);
    if (code == VB_OK && text != NULL && memchr(r.text, '\0', r.len) != NULL)
        code = vb__fail(err, VB_E_ARGUMENT, "messages: hold a NUL character, expected none where the text is asked for");
    if (code == VB_OK && text != NULL && (copy = vb__strndup(VB_TAG_TEXT, r.text, r.len)) == NULL)
        code = vb__fail(err, VB_E_MEMORY, "chat: out of memory");
    if (code == VB_OK && ids != NULL && list.data == NULL && vb__ids_reserve(&list, 1) != VB_OK)
        code = vb__fail(err, VB_E_MEMORY, "chat: out of memory");
    if (code == VB_OK && ids != NULL) {
        *ids = list.data;
        if (count != NULL) *count = (int32_t)list.len;
        list = (vb__ids){0};
    }
    if (code == VB_OK && text != NULL) *text = copy;
    else vb__free(copy);
    vb__ids_fini(&list);
    vb__jinja_result_fini(&r);
    json_decref(messages);
    json_decref(tools);
    json_decref(kwargs);
    return code;
}

/* ---- A tokenizer alone ----------------------------------------------------------------------------------------------- */

struct vb_tokenizer {
    vb__tokenizer *tok;
};

/* Opens `path` when it names a GGUF file; *is_gguf says so. */
static vb_err open_gguf(const char *path, vb__gguf *g, bool *is_gguf, vb_error *err) {
    size_t n = strlen(path);
    *is_gguf = n > 5 && strcmp(path + n - 5, ".gguf") == 0 && vb__file_exists(path);
    return *is_gguf ? vb__gguf_open(path, g, err) : VB_OK;
}

vb_err vb_tokenizer_open(const char *folder, vb_tokenizer **out, vb_error *err) {
    if (folder == NULL) return vb__fail(err, VB_E_ARGUMENT, "tokenizer: no folder");
    vb_tokenizer *t = vb__calloc(VB_TAG_TEXT, 1, sizeof *t);
    if (t == NULL) return vb__fail(err, VB_E_MEMORY, "tokenizer: out of memory");
    vb__gguf g;
    bool gguf = false;
    vb_err code = open_gguf(folder, &g, &gguf, err);
    if (code == VB_OK && gguf) {
        code = vb__gguf_tokenizer(&g, &t->tok, err);
        vb__gguf_close(&g);
    } else if (code == VB_OK) {
        code = vb__tokenizer_load(folder, &t->tok, err);
    }
    if (code != VB_OK) {
        vb__free(t);
        return code;
    }
    *out = t;
    return VB_OK;
}

void vb_tokenizer_close(vb_tokenizer *t) {
    if (t == NULL) return;
    vb__tokenizer_destroy(t->tok);
    vb__free(t);
}

/* The line that a line function appended, without its newline. */
static vb_err take_line(vb__buffer *b, vb_err code, char **out, vb_error *err) {
    if (b->len > 0 && b->data[b->len - 1] == '\n') b->data[--b->len] = 0;
    char *s = code == VB_OK ? vb__buffer_take(b) : NULL;
    vb__buffer_fini(b);
    VB_TRY(code);
    if (s == NULL) return vb__fail(err, VB_E_MEMORY, "line: out of memory");
    *out = s;
    return VB_OK;
}

vb_err vb_tokenize_line(const vb_tokenizer *t, bool decode, const char *line, size_t len, char **out, vb_error *err) {
    vb__buffer b;
    vb__buffer_init(&b, (size_t)1 << 31);
    vb_err code = vb__tokenize_line(t->tok, decode, line, len, &b, err);
    return take_line(&b, code, out, err);
}

/* ---- A template alone --------------------------------------------------------------------------------------------------- */

vb_err vb_template_line(const char *line, size_t len, char **out, vb_error *err) {
    vb__buffer b;
    vb__buffer_init(&b, (size_t)1 << 31);
    vb_err code = vb__template_line(line, len, (int64_t)time(NULL), &b, err);
    return take_line(&b, code, out, err);
}

vb_err vb_template_render_folder(const char *folder, const char *template_path, const char *json, size_t len, char **out,
                                 vb_error *err) {
    vb__chat_template *t = NULL;
    vb__jinja_result r = {0};
    char *text = NULL;
    vb__gguf g;
    bool gguf = false;
    vb_err code = open_gguf(folder, &g, &gguf, err);
    if (code == VB_OK && gguf) {
        vb__tokenizer *tok = NULL; /* names the texts of bos_token and so on */
        code = vb__gguf_tokenizer(&g, &tok, err);
        if (code == VB_OK) code = vb__chat_load(folder, template_path, &g, tok, &t, err);
        if (code == VB_OK && t == NULL) code = vb__fail(err, VB_E_NOT_FOUND, "%s: no chat template, expected tokenizer.chat_template", folder);
        vb__tokenizer_destroy(tok);
        vb__gguf_close(&g);
    } else if (code == VB_OK) {
        code = vb__chat_template_open(folder, template_path, &t, err);
    }
    if (code == VB_OK) code = vb__chat_template_render_json(t, json, len, &r, err);
    if (code == VB_OK && (text = vb__strndup(VB_TAG_TEXT, r.text, r.len)) == NULL)
        code = vb__fail(err, VB_E_MEMORY, "chat: out of memory");
    vb__jinja_result_fini(&r);
    vb__chat_template_destroy(t);
    if (code == VB_OK) *out = text;
    return code;
}
