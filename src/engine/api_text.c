/* The public interface of include/verbatim/verbatim.h over the text layer: tokens and templates, with and without a
 * model. */
#include "base/alloc.h"
#include "base/buffer.h"
#include "engine/model_handle.h"
#include "text/tokenize_lines.h"
#include "text/tokenizer.h"
#include "verbatim/verbatim.h"

/* ---- Tokens of a model ------------------------------------------------------------------------------------------- */

static vb_err need_tokenizer(const vb__engine *e, vb_error *err) {
    if (e->tok != NULL) return VB_OK;
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

/* ---- A tokenizer alone ----------------------------------------------------------------------------------------------- */

struct vb_tokenizer {
    vb__tokenizer *tok;
};

vb_err vb_tokenizer_open(const char *folder, vb_tokenizer **out, vb_error *err) {
    if (folder == NULL) return vb__fail(err, VB_E_ARGUMENT, "tokenizer: no folder");
    vb_tokenizer *t = vb__calloc(VB_TAG_TEXT, 1, sizeof *t);
    if (t == NULL) return vb__fail(err, VB_E_MEMORY, "tokenizer: out of memory");
    vb_err code = vb__tokenizer_load(folder, &t->tok, err);
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
