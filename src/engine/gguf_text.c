#include "engine/gguf_text.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "base/log.h"
#include <string.h>

/* A short string key as a C string; NULL when absent. */
static vb_err name_of(const vb__gguf *g, const char *key, char *buf, size_t size, const char **out, vb_error *err) {
    const char *s;
    size_t n;
    *out = NULL;
    if (vb__gguf_find(g, key) == NULL) return VB_OK;
    VB_TRY(vb__gguf_bytes(g, key, &s, &n, err));
    if (n >= size || memchr(s, 0, n) != NULL)
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: has %zu bytes, expected a short name", g->file, key, n);
    memcpy(buf, s, n);
    buf[n] = '\0';
    *out = buf;
    return VB_OK;
}

static vb_err id_of(const vb__gguf *g, const char *key, size_t n_tokens, int32_t *out, vb_error *err) {
    *out = VB_NO_TOKEN;
    if (vb__gguf_find(g, key) == NULL) return VB_OK;
    return vb__gguf_i32(g, key, 0, (int32_t)n_tokens - 1, out, err);
}

/* An id that nothing depends on: files are about that name one beyond the vocabulary, or -1. */
static vb_err idle_id_of(const vb__gguf *g, const char *key, size_t n_tokens, int32_t *out, vb_error *err) {
    int64_t id;
    *out = VB_NO_TOKEN;
    if (vb__gguf_find(g, key) == NULL) return VB_OK;
    VB_TRY(vb__gguf_int(g, key, INT64_MIN, INT64_MAX, &id, err));
    if (id >= 0 && id < (int64_t)n_tokens) *out = (int32_t)id;
    else vb__log(VB_LOG_WARN, "load", "file=%s %s=%lld: is no token, left out", g->file, key, (long long)id);
    return VB_OK;
}

static vb_err flag_of(const vb__gguf *g, const char *key, bool fallback, bool *out, vb_error *err) {
    *out = fallback;
    return vb__gguf_find(g, key) == NULL ? VB_OK : vb__gguf_bool(g, key, out, err);
}

static vb_err strings_of(const vb__gguf *g, const char *key, uint64_t max, vb__gguf_string **out, size_t *count, vb_error *err) {
    const vb__gguf_key *k;
    VB_TRY(vb__gguf_array(g, key, VB_GGUF_STRING, max, &k, err));
    vb__gguf_string *s = vb__calloc(VB_TAG_TEXT, (size_t)k->count, sizeof *s);
    if (s == NULL) return vb__fail(err, VB_E_MEMORY, "%s: key %s: no memory", g->file, key);
    const uint8_t *at = k->data;
    for (uint64_t i = 0; i < k->count; i++) s[i].text = vb__gguf_next_string(&at, &s[i].len);
    *out = s;
    *count = (size_t)k->count;
    return VB_OK;
}

/* n values of 4 bytes, copied because the file may hold them unaligned. Absent: NULL. */
static vb_err values_of(const vb__gguf *g, const char *key, vb__gguf_kind kind, size_t n, void **out, vb_error *err) {
    const vb__gguf_key *k;
    *out = NULL;
    if (vb__gguf_find(g, key) == NULL) return VB_OK;
    VB_TRY(vb__gguf_array(g, key, kind, n, &k, err));
    if (k->count != n)
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: has %llu values, expected one for each of %zu tokens", g->file, key,
                        (unsigned long long)k->count, n);
    *out = vb__calloc(VB_TAG_TEXT, n, 4);
    if (*out == NULL) return vb__fail(err, VB_E_MEMORY, "%s: key %s: no memory", g->file, key);
    memcpy(*out, k->data, n * 4);
    return VB_OK;
}

#define KEY(name) "tokenizer.ggml." name

vb_err vb__gguf_tokenizer(const vb__gguf *g, vb__tokenizer **out, vb_error *err) {
    vb__gguf_vocab v = {0};
    char model[64], pre[64];
    vb__gguf_string *tokens = NULL, *merges = NULL;
    void *scores = NULL, *types = NULL;
    vb_err e;
    if (vb__gguf_find(g, KEY("model")) == NULL || vb__gguf_find(g, KEY("tokens")) == NULL)
        return vb__fail(err, VB_E_NOT_FOUND, "%s: key %s: is missing, expected for text", g->file, KEY("tokens"));
    VB_TRY_OUT(name_of(g, KEY("model"), model, sizeof model, &v.model, err));
    VB_TRY_OUT(name_of(g, KEY("pre"), pre, sizeof pre, &v.pre, err));
    VB_TRY_OUT(strings_of(g, KEY("tokens"), VB_LIMIT_VOCAB, &tokens, &v.n_tokens, err));
    v.tokens = tokens;
    VB_TRY_OUT(values_of(g, KEY("scores"), VB_GGUF_F32, v.n_tokens, &scores, err));
    VB_TRY_OUT(values_of(g, KEY("token_type"), VB_GGUF_I32, v.n_tokens, &types, err));
    v.scores = scores;
    v.types = types;
    if (vb__gguf_find(g, KEY("merges")) != NULL) VB_TRY_OUT(strings_of(g, KEY("merges"), 4 * VB_LIMIT_VOCAB, &merges, &v.n_merges, err));
    v.merges = merges;
    VB_TRY_OUT(id_of(g, KEY("bos_token_id"), v.n_tokens, &v.bos, err));
    VB_TRY_OUT(id_of(g, KEY("eos_token_id"), v.n_tokens, &v.eos, err));
    VB_TRY_OUT(id_of(g, KEY("eot_token_id"), v.n_tokens, &v.eot, err));
    VB_TRY_OUT(id_of(g, KEY("eom_token_id"), v.n_tokens, &v.eom, err));
    VB_TRY_OUT(id_of(g, KEY("unknown_token_id"), v.n_tokens, &v.unk, err));
    VB_TRY_OUT(idle_id_of(g, KEY("padding_token_id"), v.n_tokens, &v.pad, err));
    bool sentencepiece = v.model != NULL && strcmp(v.model, "llama") == 0;
    VB_TRY_OUT(flag_of(g, KEY("add_bos_token"), sentencepiece || vb__gguf_pre_adds_bos(v.pre), &v.add_bos, err));
    VB_TRY_OUT(flag_of(g, KEY("add_eos_token"), false, &v.add_eos, err));
    VB_TRY_OUT(flag_of(g, KEY("add_space_prefix"), sentencepiece, &v.add_space_prefix, err));
    e = vb__tokenizer_from_gguf(&v, out, err);
    if (e != VB_OK) (void)vb__fail_prefix(err, e, "%s", g->file);
out:
    vb__free(tokens);
    vb__free(merges);
    vb__free(scores);
    vb__free(types);
    return e;
}

vb_err vb__gguf_chat_template(const vb__gguf *g, const char **out, size_t *len, vb_error *err) {
    static const char key[] = "tokenizer.chat_template";
    if (vb__gguf_find(g, key) == NULL) return vb__fail(err, VB_E_NOT_FOUND, "%s: key %s: is missing", g->file, key);
    VB_TRY(vb__gguf_bytes(g, key, out, len, err));
    if (*len > VB_LIMIT_TEMPLATE_BYTES)
        return vb__fail(err, VB_E_LIMIT, "%s: key %s: has %zu bytes, expected at most %d", g->file, key, *len, VB_LIMIT_TEMPLATE_BYTES);
    return VB_OK;
}
