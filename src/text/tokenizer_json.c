/* tokenizer.json and tokenizer_config.json: the model section, added tokens, names. The smaller sections are
 * in tokenizer_steps.c. */
#include "base/alloc.h"
#include "base/file.h"
#include "base/log.h"
#include "text/json_scan.h"
#include "text/tokenizer_parts.h"
#define XXH_INLINE_ALL
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

static const char here[] = "tokenizer.json: ";
static const char in_model[] = "tokenizer.json: model.";

static vb_err no_memory(vb_error *err) { return vb__fail(err, VB_E_MEMORY, "tokenizer.json: out of memory"); }

/* At most 40 bytes of a token for a message. */
#define SHOW(n) ((int)((n) > 40 ? 40 : (n)))

/* The file and where its big parts are. */
typedef struct source {
    const char *text;
    vb__json_span vocab, merges;
} source;

static vb_err add_vocab(vb__tokenizer *t, const char *s, size_t n, int32_t id, vb_error *err) {
    vb_err e = vb__vocabulary_add(&t->model, s, n, id, true);
    if (e == VB_E_MISMATCH) {
        size_t m = 0;
        const char *other = vb__vocabulary_text(&t->model, id, &m);
        return vb__fail(err, e, "%svocab: \"%.*s\" and \"%.*s\" both have id %d", in_model, SHOW(m), other,
                        SHOW(n), s, id);
    }
    if (e == VB_E_FORMAT) return vb__fail(err, e, "%svocab: \"%.*s\" is there twice", in_model, SHOW(n), s);
    if (e == VB_E_LIMIT)
        return vb__fail(err, e, "%svocab: \"%.*s...\" has %zu bytes, expected at most %d", in_model, SHOW(n),
                        s, n, VB_LIMIT_TOKEN_BYTES);
    return e == VB_OK ? e : no_memory(err);
}

static vb_err read_vocab(vb__json_scan *s, vb__tokenizer *t, vb_error *err) {
    VB_TRY(vb__json_scan_expect(s, '{', err));
    for (bool more = !vb__json_scan_take(s, '}'); more;) {
        const char *text;
        size_t n;
        int32_t id;
        VB_TRY(vb__json_scan_string(s, 0, &text, &n, err));
        VB_TRY(vb__json_scan_expect(s, ':', err));
        VB_TRY(vb__json_scan_int(s, VB_LIMIT_VOCAB - 1, &id, err));
        VB_TRY(add_vocab(t, text, n, id, err));
        more = vb__json_scan_take(s, ',');
        if (!more) VB_TRY(vb__json_scan_expect(s, '}', err));
    }
    return vb__json_scan_done(s, err);
}

static vb_err load_vocab(const source *from, vb__tokenizer *t, vb_error *err) {
    size_t bytes = from->vocab.end - from->vocab.begin;
    if (bytes == 0) return vb__fail(err, VB_E_FORMAT, "%svocab: is missing, expected an object", in_model);
    if (vb__vocabulary_init(&t->model, bytes / 20, bytes / 2) != VB_OK) return no_memory(err);
    vb__json_scan s;
    vb__json_scan_init(&s, from->text, from->vocab, "tokenizer.json: model.vocab: ");
    vb_err e = read_vocab(&s, t, err);
    vb__json_scan_fini(&s);
    return e;
}

/* ---- BPE ---- */

static vb_err unknown_part(vb_error *err, size_t i, const char *s, size_t n) {
    return vb__fail(err, VB_E_MISMATCH, "%smerges[%zu]: \"%.*s\" is not in the vocabulary", in_model, i,
                    SHOW(n), s);
}

static vb_err add_merge(vb__tokenizer *t, size_t i, const char *a, size_t na, const char *b, size_t nb,
                        size_t skip, uint32_t rank, size_t expected, vb_error *err) {
    int32_t left = vb__vocabulary_find(&t->model, a, na), right = vb__vocabulary_find(&t->model, b, nb);
    if (left < 0) return unknown_part(err, i, a, na);
    if (right < 0) return unknown_part(err, i, b, nb);
    if (nb < skip)
        return vb__fail(err, VB_E_FORMAT,
                        "%smerges[%zu]: the right part is shorter than continuing_subword_prefix", in_model,
                        i);
    char small[256], *both = small;
    size_t n = na + nb - skip;
    if (n > sizeof small && (both = vb__alloc(VB_TAG_TEXT, n)) == NULL) return no_memory(err);
    memcpy(both, a, na);
    memcpy(both + na, b + skip, nb - skip);
    int32_t id = vb__vocabulary_find(&t->model, both, n);
    vb_err e =
        id < 0 ? unknown_part(err, i, both, n) : vb__bpe_add_merge(&t->bpe, left, right, rank, id, expected);
    if (e == VB_E_MEMORY) e = no_memory(err);
    if (both != small) vb__free(both);
    return e;
}

/* "left right", one space. */
static vb_err add_merge_line(vb__tokenizer *t, size_t i, const char *s, size_t n, size_t skip, uint32_t rank,
                             size_t expected, vb_error *err) {
    const char *space = memchr(s, ' ', n);
    if (space == NULL || memchr(space + 1, ' ', n - (size_t)(space + 1 - s)) != NULL)
        return vb__fail(err, VB_E_FORMAT,
                        "%smerges[%zu]: \"%.*s\", expected two parts with one space between", in_model, i,
                        SHOW(n), s);
    size_t left = (size_t)(space - s);
    return add_merge(t, i, s, left, space + 1, n - left - 1, skip, rank, expected, err);
}

static vb_err read_merges(vb__json_scan *s, vb__tokenizer *t, vb_error *err) {
    size_t skip = t->bpe.prefix == NULL ? 0 : strlen(t->bpe.prefix), i = 0, expected = (size_t)t->model.count;
    uint32_t rank = 0;
    VB_TRY(vb__json_scan_expect(s, '[', err));
    for (bool more = !vb__json_scan_take(s, ']'); more; i++) {
        const char *a, *b;
        size_t na, nb;
        if (vb__json_scan_take(s, '[')) {
            VB_TRY(vb__json_scan_string(s, 0, &a, &na, err));
            VB_TRY(vb__json_scan_expect(s, ',', err));
            VB_TRY(vb__json_scan_string(s, 1, &b, &nb, err));
            VB_TRY(vb__json_scan_expect(s, ']', err));
            VB_TRY(add_merge(t, i, a, na, b, nb, skip, rank++, expected, err));
        } else {
            VB_TRY(vb__json_scan_string(s, 0, &a, &na, err));
            if (na < 8 || memcmp(a, "#version", 8) != 0)
                VB_TRY(add_merge_line(t, i, a, na, skip, rank++, expected, err));
        }
        if (i >= (size_t)4 * VB_LIMIT_VOCAB)
            return vb__fail(err, VB_E_LIMIT, "%smerges: more than %d", in_model, 4 * VB_LIMIT_VOCAB);
        more = vb__json_scan_take(s, ',');
        if (!more) VB_TRY(vb__json_scan_expect(s, ']', err));
    }
    return vb__json_scan_done(s, err);
}

static vb_err load_merges(const source *from, vb__tokenizer *t, vb_error *err) {
    if (from->merges.end == from->merges.begin)
        return vb__fail(err, VB_E_FORMAT, "%smerges: is missing, expected an array", in_model);
    vb__json_scan s;
    vb__json_scan_init(&s, from->text, from->merges, "tokenizer.json: model.merges: ");
    vb_err e = read_merges(&s, t, err);
    vb__json_scan_fini(&s);
    return e;
}

/* A field that is a string or null; "" is taken as absent. */
static vb_err take_affix(vb__json_at at, const char *key, char **out, vb_error *err) {
    const char *s;
    VB_TRY(vb__json_string_or(at, key, "", &s, err));
    if (strlen(s) > VB_LIMIT_AFFIX_BYTES)
        return vb__fail(err, VB_E_LIMIT, "%s%s: has %zu bytes, expected at most %d", at.where, key, strlen(s),
                        VB_LIMIT_AFFIX_BYTES);
    if (s[0] != '\0' && (*out = vb__strdup(VB_TAG_TEXT, s)) == NULL) return no_memory(err);
    return VB_OK;
}

static vb_err load_bpe(vb__json_at at, const source *from, vb__tokenizer *t, vb_error *err) {
    vb__bpe *b = &t->bpe;
    double dropout;
    const char *unk;
    VB_TRY(vb__json_number_or(at, "dropout", 0, 1, 0, &dropout, err));
    if (dropout > 0)
        return vb__fail(err, VB_E_UNSUPPORTED, "%sdropout: %g is not supported", in_model, dropout);
    VB_TRY(take_affix(at, "continuing_subword_prefix", &b->prefix, err));
    VB_TRY(take_affix(at, "end_of_word_suffix", &b->suffix, err));
    VB_TRY(vb__json_bool_or(at, "fuse_unk", false, &b->fuse_unk, err));
    VB_TRY(vb__json_bool_or(at, "byte_fallback", false, &b->byte_fallback, err));
    VB_TRY(vb__json_bool_or(at, "ignore_merges", false, &b->ignore_merges, err));
    VB_TRY(vb__json_string_or(at, "unk_token", NULL, &unk, err));
    VB_TRY(load_vocab(from, t, err));
    if (unk != NULL) {
        b->unk = vb__vocabulary_find(&t->model, unk, strlen(unk));
        if (b->unk < 0) b->unk = VB_UNK_MISSING; /* matters only when it is needed */
    }
    VB_TRY(load_merges(from, t, err));
    const vb__pretokenizer *p = &t->pre;
    if (p->n_steps > 0 && p->step[p->n_steps - 1].kind == VB_PRE_BYTE_LEVEL) {
        if (b->prefix == NULL && b->suffix == NULL && !b->byte_fallback) b->byte_level = true;
        else VB_TRY(vb__pre_add(&t->pre, (vb__pre_step){.kind = VB_PRE_BYTE_MAP}, err));
    }
    return VB_OK;
}

/* ---- Unigram ---- */

static vb_err unigram_entries(const json_t *vocab, vb__tokenizer *t, double *scores, vb_error *err) {
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        const json_t *pair = json_array_get(vocab, i), *s = json_array_get(pair, 0),
                     *x = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(s) || !json_is_number(x) ||
            !isfinite(json_number_value(x)))
            return vb__fail(err, VB_E_FORMAT, "%svocab[%zu]: expected [text, score]", in_model, i);
        size_t n = json_string_length(s);
        if (n > VB_LIMIT_ADDED_TOKEN_BYTES)
            return vb__fail(err, VB_E_LIMIT, "%svocab[%zu]: has %zu bytes, expected at most %d", in_model, i,
                            n, VB_LIMIT_ADDED_TOKEN_BYTES);
        scores[i] = json_number_value(x);
        if (vb__vocabulary_add(&t->model, json_string_value(s), n, (int32_t)i, false) != VB_OK)
            return no_memory(err);
    }
    return VB_OK;
}

static vb_err load_unigram(vb__json_at at, vb__tokenizer *t, vb_error *err) {
    json_t *vocab;
    int32_t unk;
    bool fallback;
    VB_TRY(vb__json_array(at, "vocab", VB_LIMIT_VOCAB, &vocab, err));
    int32_t n = (int32_t)json_array_size(vocab);
    VB_TRY(vb__json_i32_or(at, "unk_id", 0, n - 1, VB_NO_TOKEN, &unk, err));
    VB_TRY(vb__json_bool_or(at, "byte_fallback", false, &fallback, err));
    if (n == 0) return vb__fail(err, VB_E_FORMAT, "%svocab: is empty", in_model);
    if (vb__vocabulary_init(&t->model, (size_t)n, 8 * (size_t)n) != VB_OK) return no_memory(err);
    double *scores = vb__calloc(VB_TAG_TEXT, (size_t)n, sizeof *scores);
    if (scores == NULL) return no_memory(err);
    vb_err e = unigram_entries(vocab, t, scores, err);
    if (e != VB_OK) {
        vb__free(scores);
        return e;
    }
    t->is_unigram = true;
    t->unigram = (vb__unigram){.scores = scores, .n_scores = n, .unk = unk, .byte_fallback = fallback};
    vb__pretokenizer *p = &t->pre;
    if (p->n_steps > 0 && p->step[p->n_steps - 1].kind == VB_PRE_BYTE_LEVEL)
        VB_TRY(vb__pre_add(p, (vb__pre_step){.kind = VB_PRE_BYTE_MAP}, err));
    return VB_OK;
}

static vb_err load_model(const json_t *v, const source *from, vb__tokenizer *t, vb_error *err) {
    vb__json_at at = {v, in_model};
    const char *type;
    VB_TRY(vb__json_string_or(at, "type", vb__json_get(at, "merges") != NULL ? "BPE" : "", &type, err));
    if (strcmp(type, "BPE") == 0) return load_bpe(at, from, t, err);
    if (strcmp(type, "Unigram") == 0) return load_unigram(at, t, err);
    if (type[0] == '\0') return vb__fail(err, VB_E_FORMAT, "%stype: is missing", in_model);
    return vb__fail(err, VB_E_UNSUPPORTED, "%stype: model \"%.60s\" is not supported", in_model, type);
}

/* ---- added tokens ---- */

static vb_err read_token(vb__json_at at, vb__added_token *out, vb_error *err) {
    const json_t *text = vb__json_get(at, "content");
    if (!json_is_string(text)) return vb__fail(err, VB_E_FORMAT, "%scontent: expected a string", at.where);
    *out = (vb__added_token){.text = (char *)json_string_value(text), .len = json_string_length(text)};
    VB_TRY(vb__json_bool_or(at, "special", false, &out->special, err));
    VB_TRY(vb__json_bool_or(at, "single_word", false, &out->single_word, err));
    VB_TRY(vb__json_bool_or(at, "lstrip", false, &out->lstrip, err));
    VB_TRY(vb__json_bool_or(at, "rstrip", false, &out->rstrip, err));
    return vb__json_bool_or(at, "normalized", !out->special, &out->normalized, err);
}

static vb_err load_added(const json_t *list, vb__tokenizer *t, int32_t limit, vb_error *err) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        char where[64];
        (void)snprintf(where, sizeof where, "tokenizer.json: added_tokens[%zu].", i);
        vb__json_at at = {json_array_get(list, i), where};
        vb__added_token x;
        if (!json_is_object(at.obj)) return vb__fail(err, VB_E_FORMAT, "%s: expected an object", where);
        int32_t id;
        VB_TRY(vb__json_i32(at, "id", 0, limit - 1, &id, err));
        VB_TRY(read_token(at, &x, err));
        x.id = id;
        VB_TRY(vb__tokenizer_add_token(t, &x, limit, where, err));
    }
    return VB_OK;
}

/* added_tokens_decoder of tokenizer_config.json: {"151643": {...}}. Tokens that tokenizer.json has already
 * keep its flags. */
static vb_err load_added_decoder(const json_t *table, vb__tokenizer *t, int32_t limit, vb_error *err) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)table, key, v) {
        char where[80];
        (void)snprintf(where, sizeof where, "tokenizer_config.json: added_tokens_decoder.%.20s.", key);
        size_t digits = strspn(key, "0123456789");
        if (digits == 0 || digits > 9 || key[digits] != '\0' || !json_is_object(v))
            return vb__fail(err, VB_E_FORMAT, "%s: expected an id and an object", where);
        vb__added_token x;
        VB_TRY(read_token((vb__json_at){v, where}, &x, err));
        for (const char *p = key; *p != '\0'; p++) x.id = 10 * x.id + (*p - '0');
        VB_TRY(vb__tokenizer_add_token(t, &x, limit, where, err));
    }
    return VB_OK;
}

/* "eos_token": "text" or {"content": "text"}. */
static vb_err load_name(vb__json_at at, const char *key, vb__tokenizer *t, int32_t *out, vb_error *err) {
    const json_t *v = vb__json_get(at, key);
    if (v == NULL) return VB_OK;
    if (json_is_object(v)) v = json_object_get(v, "content");
    if (!json_is_string(v))
        return vb__fail(err, VB_E_FORMAT, "%s%s: expected a string or an object with content", at.where, key);
    *out = vb__tokenizer_find(t, json_string_value(v), json_string_length(v));
    if (*out < 0)
        vb__log(VB_LOG_WARN, "text", "tokenizer_config.json: %s=\"%.40s\" is not in the vocabulary, left out",
                key, json_string_value(v));
    return VB_OK;
}

static vb_err load_config(const json_t *config, vb__tokenizer *t, vb_error *err) {
    static const char *const names[VB_TOKEN_NAMES] = {"bos_token", "eos_token", "pad_token", "unk_token"};
    vb__json_at at = {config, "tokenizer_config.json: "};
    for (int i = 0; i < VB_TOKEN_NAMES; i++) VB_TRY(load_name(at, names[i], t, &t->named[i], err));
    if (t->named[VB_TOKEN_EOS] >= 0) t->eos[t->n_eos++] = t->named[VB_TOKEN_EOS];
    return VB_OK;
}

/* ---- the files ---- */

static vb_err check_post(const vb__tokenizer *t, vb_error *err) {
    for (int i = 0; i < t->n_before + t->n_after; i++) {
        int32_t id = i < t->n_before ? t->before[i] : t->after[i - t->n_before];
        if (!vb__tokenizer_has_id(t, id))
            return vb__fail(err, VB_E_MISMATCH,
                            "tokenizer.json: post_processor: adds id %d, which has no token", id);
    }
    return VB_OK;
}

static vb_err build(const json_t *root, const source *from, const json_t *config, vb__tokenizer *t,
                    vb_error *err) {
    vb__json_at at = {root, here}, conf = {config, "tokenizer_config.json: "};
    json_t *model, *added, *decoder = NULL;
    VB_TRY(vb__json_object(at, "model", &model, err));
    VB_TRY(vb__json_array_or(at, "added_tokens", VB_LIMIT_VOCAB, &added, err));
    if (config != NULL) VB_TRY(vb__json_object_or(conf, "added_tokens_decoder", &decoder, err));
    VB_TRY(vb__load_normalizer(json_object_get(root, "normalizer"), &t->normalizer, err));
    VB_TRY(vb__load_pretokenizer(json_object_get(root, "pre_tokenizer"), &t->pre, err));
    VB_TRY(vb__load_decoder(json_object_get(root, "decoder"), &t->decoder, err));
    VB_TRY(vb__load_post_processor(json_object_get(root, "post_processor"), t, err));
    VB_TRY(load_model(model, from, t, err));
    if (vb__json_get(at, "truncation") != NULL || vb__json_get(at, "padding") != NULL)
        vb__log(VB_LOG_INFO, "text", "tokenizer.json: truncation and padding are for training, left out");
    /* Added tokens follow the model's, some with a few ids left out; an id far beyond both counts is a
     * mistake. */
    size_t most = (size_t)t->model.n_ids + json_array_size(added) + json_object_size(decoder) + 1024;
    int32_t limit = most > VB_LIMIT_VOCAB ? VB_LIMIT_VOCAB : (int32_t)most;
    if (added != NULL) VB_TRY(load_added(added, t, limit, err));
    if (decoder != NULL) VB_TRY(load_added_decoder(decoder, t, limit, err));
    VB_TRY(vb__tokenizer_finish(t, err));
    if (config != NULL) VB_TRY(load_config(config, t, err));
    return check_post(t, err);
}

/* Everything but vocabulary and merges. */
static vb_err parse_rest(const char *json, size_t n, source *from, vb__buffer *small, json_t **root,
                         vb_error *err) {
    if (n > VB_LIMIT_JSON_BYTES)
        return vb__fail(err, VB_E_LIMIT, "tokenizer.json: has %zu bytes, expected at most %d", n,
                        VB_LIMIT_JSON_BYTES);
    vb__json_find_model(json, n, &from->vocab, &from->merges);
    vb__json_span spans[2] = {from->vocab, from->merges};
    for (int i = 0; i < 2; i++) {
        size_t len = spans[i].end - spans[i].begin, bad = vb__utf8_check(json + spans[i].begin, len);
        if (bad != len)
            return vb__fail(err, VB_E_FORMAT, "tokenizer.json: byte %zu is not UTF-8", spans[i].begin + bad);
    }
    if (vb__json_without(json, n, spans, 2, small) != VB_OK) return no_memory(err);
    return vb__json_parse(small->data, small->len, VB_LIMIT_JSON_BYTES, "tokenizer.json", root, err);
}

vb_err vb__tokenizer_parse(const char *json, size_t n, const char *config, size_t n_config,
                           vb__tokenizer **out, vb_error *err) {
    json_t *root = NULL, *conf = NULL;
    vb__tokenizer *t = NULL;
    char b[80];
    vb_err e;
    vb__buffer small;
    vb__buffer_init(&small, VB_LIMIT_JSON_BYTES);
    source from = {.text = json};
    VB_TRY_OUT(parse_rest(json, n, &from, &small, &root, err));
    if (config != NULL)
        VB_TRY_OUT(
            vb__json_parse(config, n_config, VB_LIMIT_JSON_BYTES, "tokenizer_config.json", &conf, err));
    if (!json_is_object(root) || (conf != NULL && !json_is_object(conf))) {
        bool first = !json_is_object(root);
        e = vb__fail(err, VB_E_FORMAT, "%s: %s, expected an object",
                     first ? "tokenizer.json" : "tokenizer_config.json",
                     vb__json_is(first ? root : conf, b, sizeof b));
        goto out;
    }
    VB_TRY_OUT(vb__tokenizer_new(&t, err));
    VB_TRY_OUT(build(root, &from, conf, t, err));
    XXH3_state_t *state = XXH3_createState();
    if (state == NULL) {
        e = no_memory(err);
        goto out;
    }
    uint64_t lengths[2] = {n, config == NULL ? UINT64_MAX : n_config};
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, lengths, sizeof lengths);
    XXH3_128bits_update(state, json, n);
    if (config != NULL) XXH3_128bits_update(state, config, n_config);
    XXH128_hash_t h = XXH3_128bits_digest(state);
    XXH3_freeState(state);
    t->hash = (vb__text_hash){h.low64, h.high64};
    *out = t;
    t = NULL;
out:
    vb__buffer_fini(&small);
    vb__tokenizer_destroy(t);
    json_decref(conf);
    json_decref(root);
    return e;
}

vb_err vb__tokenizer_load(const char *folder, vb__tokenizer **out, vb_error *err) {
    char *json = vb__path_join(folder, "tokenizer.json"),
         *config = vb__path_join(folder, "tokenizer_config.json");
    vb__buffer a, b;
    vb__buffer_init(&a, VB_LIMIT_JSON_BYTES);
    vb__buffer_init(&b, VB_LIMIT_JSON_BYTES);
    vb_err e = VB_OK;
    if (json == NULL || config == NULL) {
        e = no_memory(err);
        goto out;
    }
    VB_TRY_OUT(vb__file_read(json, VB_LIMIT_JSON_BYTES, &a, err));
    bool has_config = vb__file_exists(config);
    if (has_config) VB_TRY_OUT(vb__file_read(config, VB_LIMIT_JSON_BYTES, &b, err));
    e = vb__tokenizer_parse(vb__buffer_str(&a), a.len, has_config ? vb__buffer_str(&b) : NULL, b.len, out,
                            err);
out:
    vb__buffer_fini(&a);
    vb__buffer_fini(&b);
    vb__free(json);
    vb__free(config);
    return e;
}
