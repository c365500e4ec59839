#include "engine/chat_load.h"
#include "base/log.h"
#include "engine/gguf_text.h"

static void add_token(json_t *o, const char *key, const vb__tokenizer *tok, vb__named_token name) {
    int32_t id = vb__tokenizer_named(tok, name);
    size_t n;
    const char *text = id == VB_NO_TOKEN ? NULL : vb__tokenizer_token_text(tok, id, &n);
    if (text != NULL) (void)json_object_set_new(o, key, json_stringn(text, n));
}

static vb_err from_gguf(const char *path, const vb__gguf *g, const vb__tokenizer *tok, vb__chat_template **out, vb_error *err) {
    size_t len;
    const char *source;
    VB_TRY(vb__gguf_chat_template(g, &source, &len, err));
    json_t *tokens = json_object();
    add_token(tokens, "bos_token", tok, VB_TOKEN_BOS);
    add_token(tokens, "eos_token", tok, VB_TOKEN_EOS);
    add_token(tokens, "pad_token", tok, VB_TOKEN_PAD);
    add_token(tokens, "unk_token", tok, VB_TOKEN_UNK);
    vb_err code = vb__chat_template_create(source, len, NULL, 0, tokens, path, out, err);
    json_decref(tokens);
    return code;
}

vb_err vb__chat_load(const char *path, const char *file, const vb__gguf *g, const vb__tokenizer *tok,
                     vb__chat_template **out, vb_error *err) {
    vb_error why = {0};
    *out = NULL;
    vb_err code = g == NULL || file != NULL ? vb__chat_template_open(g == NULL ? path : NULL, file, out, &why)
                                            : from_gguf(path, g, tok, out, &why);
    if (code == VB_OK || (code == VB_E_NOT_FOUND && file == NULL)) return VB_OK;
    if (file != NULL || code == VB_E_MEMORY) return vb__fail(err, code, "%s", why.text);
    vb__log(VB_LOG_WARN, "engine", "chat template not used: %s", why.text);
    return VB_OK;
}
