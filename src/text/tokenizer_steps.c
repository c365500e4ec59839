/* The sections normalizer, pre_tokenizer, decoder and post_processor of tokenizer.json. */
#include "text/tokenizer_parts.h"
#include "base/alloc.h"
#include <stdio.h>
#include <string.h>

/* Where in the file: "tokenizer.json: decoder.decoders[2]."; the getters append the key. */
typedef struct place {
    char where[200];
} place;

static place place_of(const char *name) {
    place p;
    (void)snprintf(p.where, sizeof p.where, "tokenizer.json: %s.", name);
    return p;
}

static place place_item(place outer, const char *list, size_t i) {
    place p;
    (void)snprintf(p.where, sizeof p.where, "%.100s%.30s[%zu].", outer.where, list, i);
    return p;
}

static vb_err no_memory(vb_error *err, const char *where) {
    return vb__fail(err, VB_E_MEMORY, "%sout of memory", where);
}

/* A string that may hold NUL; copied. */
static vb_err take_text(vb__json_at at, const char *key, char **out, size_t *n, vb_error *err) {
    char b[80];
    const json_t *v = vb__json_get(at, key);
    if (!json_is_string(v))
        return vb__fail(err, VB_E_FORMAT, "%s%s: %s, expected a string", at.where, key,
                        vb__json_is(v, b, sizeof b));
    *n = json_string_length(v);
    *out = vb__strndup(VB_TAG_TEXT, json_string_value(v), *n);
    return *out == NULL ? no_memory(err, at.where) : VB_OK;
}

/* {"String": s} or {"Regex": s}; the literal goes to *text, the compiled expression to *regex. */
static vb_err take_pattern(vb__json_at at, char **text, size_t *n, vb__regex **regex, vb__pre_scan *scan,
                           vb_error *err) {
    json_t *p;
    VB_TRY(vb__json_object(at, "pattern", &p, err));
    vb__json_at in = {p, at.where};
    if (vb__json_get(in, "String") != NULL) return take_text(in, "String", text, n, err);
    const json_t *v = vb__json_get(in, "Regex");
    if (!json_is_string(v))
        return vb__fail(err, VB_E_FORMAT, "%spattern: expected {\"String\"} or {\"Regex\"}", at.where);
    if (scan != NULL) *scan = vb__pre_scan_of(json_string_value(v), json_string_length(v));
    char what[240];
    (void)snprintf(what, sizeof what, "%spattern", at.where);
    return vb__regex_create(json_string_value(v), json_string_length(v), what, regex, err);
}

/* The items of a Sequence, or the one step. */
typedef vb_err step_fn(const json_t *v, place where, void *out, vb_error *err);

static vb_err each_step(const json_t *v, place where, const char *list, step_fn *fn, void *out,
                        vb_error *err) {
    if (v == NULL || json_is_null(v)) return VB_OK;
    char b[80];
    if (!json_is_object(v))
        return vb__fail(err, VB_E_FORMAT, "%s %s, expected an object", where.where,
                        vb__json_is(v, b, sizeof b));
    vb__json_at at = {v, where.where};
    const char *type;
    VB_TRY(vb__json_string(at, "type", &type, err));
    if (strcmp(type, "Sequence") != 0) return fn(v, where, out, err);
    json_t *items;
    VB_TRY(vb__json_array(at, list, 4 * VB_LIMIT_TEXT_STEPS, &items, err));
    for (size_t i = 0; i < json_array_size(items); i++)
        VB_TRY(each_step(json_array_get(items, i), place_item(where, list, i), list, fn, out, err));
    return VB_OK;
}

static vb_err too_many(vb_error *err, const char *what) {
    return vb__fail(err, VB_E_LIMIT, "tokenizer.json: %s: more than %d steps", what, VB_LIMIT_TEXT_STEPS);
}

/* ---- normalizers ---- */

vb_err vb__norm_add(vb__normalizer *n, vb__norm_step step, vb_error *err) {
    if (n->n_steps < VB_LIMIT_TEXT_STEPS) {
        n->step[n->n_steps++] = step;
        return VB_OK;
    }
    vb__free(step.pattern);
    vb__free(step.content);
    vb__regex_destroy(step.regex);
    return too_many(err, "normalizer");
}

static vb_err norm_step(const json_t *v, place where, void *out, vb_error *err) {
    static const char *const forms[] = {"NFC", "NFD", "NFKC", "NFKD"};
    vb__json_at at = {v, where.where};
    const char *type;
    VB_TRY(vb__json_string(at, "type", &type, err));
    vb__norm_step s = {0};
    for (int i = 0; i < 4; i++)
        if (strcmp(type, forms[i]) == 0) {
            s.form = (vb__nf)i;
            return vb__norm_add(out, s, err);
        }
    vb_err e = VB_OK;
    if (strcmp(type, "Prepend") == 0) {
        s.kind = VB_NORM_PREPEND;
        e = take_text(at, "prepend", &s.content, &s.n_content, err);
    } else if (strcmp(type, "Replace") == 0) {
        s.kind = VB_NORM_REPLACE;
        e = take_pattern(at, &s.pattern, &s.n_pattern, &s.regex, NULL, err);
        if (e == VB_OK) e = take_text(at, "content", &s.content, &s.n_content, err);
    } else if (strcmp(type, "Lowercase") == 0) {
        s.kind = VB_NORM_LOWER;
    } else if (strcmp(type, "StripAccents") == 0) {
        s.kind = VB_NORM_STRIP_ACCENTS;
    } else if (strcmp(type, "Strip") == 0) {
        s.kind = VB_NORM_STRIP;
        e = vb__json_bool_or(at, "strip_left", true, &s.left, err);
        if (e == VB_OK) e = vb__json_bool_or(at, "strip_right", true, &s.right, err);
    } else {
        e = vb__fail(err, VB_E_UNSUPPORTED, "%stype: normalizer \"%.60s\" is not supported", where.where,
                     type);
    }
    if (e == VB_OK) return vb__norm_add(out, s, err);
    vb__free(s.pattern);
    vb__free(s.content);
    vb__regex_destroy(s.regex);
    return e;
}

vb_err vb__load_normalizer(const json_t *v, vb__normalizer *out, vb_error *err) {
    return each_step(v, place_of("normalizer"), "normalizers", norm_step, out, err);
}

/* ---- pre-tokenizers ---- */

vb_err vb__pre_add(vb__pretokenizer *p, vb__pre_step step, vb_error *err) {
    if (p->n_steps < VB_LIMIT_TEXT_STEPS) {
        p->step[p->n_steps++] = step;
        return VB_OK;
    }
    vb__regex_destroy(step.regex);
    vb__free(step.pattern);
    return too_many(err, "pre_tokenizer");
}

vb_err vb__pre_add_regex(vb__pretokenizer *p, const char *pattern, size_t n, const char *where,
                         vb_error *err) {
    vb__pre_step s = {.kind = VB_PRE_SPLIT, .behavior = VB_PRE_ISOLATED, .scan = vb__pre_scan_of(pattern, n)};
    VB_TRY(vb__regex_create(pattern, n, where, &s.regex, err));
    return vb__pre_add(p, s, err);
}

static vb_err take_behavior(vb__json_at at, const char *fallback, vb__pre_behavior *out, vb_error *err) {
    static const char *const names[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext",
                                        "Contiguous"};
    const char *name;
    VB_TRY(fallback == NULL ? vb__json_string(at, "behavior", &name, err)
                            : vb__json_string_or(at, "behavior", fallback, &name, err));
    for (int i = 0; i < 5; i++)
        if (strcmp(name, names[i]) == 0) {
            *out = (vb__pre_behavior)i;
            return VB_OK;
        }
    return vb__fail(err, VB_E_UNSUPPORTED, "%sbehavior: \"%.60s\" is not supported", at.where, name);
}

/* The one character of a field; fallback 0: required. */
static vb_err take_char(vb__json_at at, const char *key, const char *fallback, char **text, size_t *n,
                        uint32_t *c, vb_error *err) {
    size_t len, i = 0;
    char *s;
    if (fallback != NULL && vb__json_get(at, key) == NULL) {
        len = strlen(fallback);
        s = vb__strdup(VB_TAG_TEXT, fallback);
        if (s == NULL) return no_memory(err, at.where);
    } else {
        VB_TRY(take_text(at, key, &s, &len, err));
    }
    if (len == 0 || vb__utf8_len((unsigned char)s[0]) != len) {
        vb__free(s);
        return vb__fail(err, VB_E_FORMAT, "%s%s: expected one character", at.where, key);
    }
    if (c != NULL) *c = vb__utf8_next(s, len, &i);
    *text = s;
    *n = len;
    return VB_OK;
}

static vb_err take_metaspace(vb__json_at at, char **text, size_t *n, vb__pre_prepend *prepend, bool *split,
                             vb_error *err) {
    static const char *const schemes[] = {"always", "first", "never"};
    const char *name;
    bool add;
    VB_TRY(vb__json_string_or(at, "prepend_scheme", "always", &name, err));
    VB_TRY(vb__json_bool_or(at, "add_prefix_space", true, &add, err));
    VB_TRY(vb__json_bool_or(at, "split", true, split, err));
    int k = -1;
    for (int i = 0; i < 3; i++)
        if (strcmp(name, schemes[i]) == 0) k = i;
    if (k < 0)
        return vb__fail(err, VB_E_UNSUPPORTED, "%sprepend_scheme: \"%.60s\" is not supported", at.where,
                        name);
    if (!add) {
        if (vb__json_get(at, "prepend_scheme") != NULL && k != VB_PREPEND_NEVER)
            return vb__fail(err, VB_E_MISMATCH, "%sadd_prefix_space: is false, but prepend_scheme is \"%s\"",
                            at.where, name);
        k = VB_PREPEND_NEVER;
    }
    *prepend = (vb__pre_prepend)k;
    return take_char(at, "replacement", NULL, text, n, NULL, err);
}

static const char gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

static vb_err pre_fill(vb__json_at at, const char *type, vb__pre_step *s, vb_error *err) {
    if (strcmp(type, "Split") == 0) {
        s->kind = VB_PRE_SPLIT;
        VB_TRY(take_behavior(at, NULL, &s->behavior, err));
        VB_TRY(vb__json_bool_or(at, "invert", false, &s->invert, err));
        VB_TRY(take_pattern(at, &s->pattern, &s->n_pattern, &s->regex, &s->scan, err));
        if (s->behavior != VB_PRE_ISOLATED) s->scan = VB_SCAN_NONE;
        return VB_OK;
    }
    if (strcmp(type, "ByteLevel") == 0) {
        bool use;
        s->kind = VB_PRE_BYTE_LEVEL;
        VB_TRY(vb__json_bool_or(at, "add_prefix_space", true, &s->add_prefix_space, err));
        VB_TRY(vb__json_bool_or(at, "use_regex", true, &use, err));
        if (!use) return VB_OK;
        s->scan = VB_SCAN_GPT2;
        return vb__regex_create(gpt2_pattern, sizeof gpt2_pattern - 1, at.where, &s->regex, err);
    }
    if (strcmp(type, "Digits") == 0) {
        bool single;
        s->kind = VB_PRE_DIGITS;
        VB_TRY(vb__json_bool_or(at, "individual_digits", false, &single, err));
        s->behavior = single ? VB_PRE_ISOLATED : VB_PRE_CONTIGUOUS;
        return VB_OK;
    }
    if (strcmp(type, "Metaspace") == 0) {
        s->kind = VB_PRE_METASPACE;
        return take_metaspace(at, &s->pattern, &s->n_pattern, &s->prepend, &s->split, err);
    }
    if (strcmp(type, "Whitespace") == 0) {
        s->kind = VB_PRE_WHITESPACE;
        return VB_OK;
    }
    if (strcmp(type, "WhitespaceSplit") == 0) {
        s->kind = VB_PRE_WHITESPACE_SPLIT;
        s->behavior = VB_PRE_REMOVED;
        return VB_OK;
    }
    if (strcmp(type, "Punctuation") == 0) {
        s->kind = VB_PRE_PUNCTUATION;
        return take_behavior(at, "Isolated", &s->behavior, err);
    }
    if (strcmp(type, "CharDelimiterSplit") == 0) {
        s->kind = VB_PRE_CHAR;
        s->behavior = VB_PRE_REMOVED;
        return take_char(at, "delimiter", NULL, &s->pattern, &s->n_pattern, &s->delimiter, err);
    }
    return vb__fail(err, VB_E_UNSUPPORTED, "%stype: pre-tokenizer \"%.60s\" is not supported", at.where,
                    type);
}

static vb_err pre_step(const json_t *v, place where, void *out, vb_error *err) {
    vb__pretokenizer *p = out;
    vb__json_at at = {v, where.where};
    const char *type;
    VB_TRY(vb__json_string(at, "type", &type, err));
    /* What follows a byte level step sees the bytes as characters. */
    if (p->n_steps > 0 && p->step[p->n_steps - 1].kind == VB_PRE_BYTE_LEVEL)
        VB_TRY(vb__pre_add(p, (vb__pre_step){.kind = VB_PRE_BYTE_MAP}, err));
    vb__pre_step s = {0};
    vb_err e = pre_fill(at, type, &s, err);
    if (e == VB_OK) return vb__pre_add(p, s, err);
    vb__regex_destroy(s.regex);
    vb__free(s.pattern);
    return e;
}

vb_err vb__load_pretokenizer(const json_t *v, vb__pretokenizer *out, vb_error *err) {
    return each_step(v, place_of("pre_tokenizer"), "pretokenizers", pre_step, out, err);
}

/* ---- decoders ---- */

vb_err vb__dec_add(vb__decoder *d, vb__dec_step step, vb_error *err) {
    if (d->n_steps < VB_LIMIT_TEXT_STEPS) {
        d->step[d->n_steps++] = step;
        return VB_OK;
    }
    vb__free(step.pattern);
    vb__free(step.content);
    vb__regex_destroy(step.regex);
    return too_many(err, "decoder");
}

static vb_err dec_fill(vb__json_at at, const char *type, vb__dec_step *s, vb_error *err) {
    if (strcmp(type, "ByteLevel") == 0) {
        s->kind = VB_DEC_BYTE_LEVEL;
        return VB_OK;
    }
    if (strcmp(type, "ByteFallback") == 0) {
        s->kind = VB_DEC_BYTE_FALLBACK;
        return VB_OK;
    }
    if (strcmp(type, "Fuse") == 0) {
        s->kind = VB_DEC_FUSE;
        return VB_OK;
    }
    if (strcmp(type, "Replace") == 0) {
        s->kind = VB_DEC_REPLACE;
        VB_TRY(take_pattern(at, &s->pattern, &s->n_pattern, &s->regex, NULL, err));
        return take_text(at, "content", &s->content, &s->n_content, err);
    }
    if (strcmp(type, "Strip") == 0) {
        int32_t start, stop;
        s->kind = VB_DEC_STRIP;
        VB_TRY(vb__json_i32_or(at, "start", 0, 1 << 20, 0, &start, err));
        VB_TRY(vb__json_i32_or(at, "stop", 0, 1 << 20, 0, &stop, err));
        s->start = (size_t)start;
        s->stop = (size_t)stop;
        return take_char(at, "content", NULL, &s->content, &s->n_content, NULL, err);
    }
    if (strcmp(type, "Metaspace") == 0) {
        vb__pre_prepend prepend;
        bool split;
        s->kind = VB_DEC_METASPACE;
        VB_TRY(take_metaspace(at, &s->pattern, &s->n_pattern, &prepend, &split, err));
        s->drop_first = prepend != VB_PREPEND_NEVER;
        return VB_OK;
    }
    return vb__fail(err, VB_E_UNSUPPORTED, "%stype: decoder \"%.60s\" is not supported", at.where, type);
}

static vb_err dec_step(const json_t *v, place where, void *out, vb_error *err) {
    vb__json_at at = {v, where.where};
    const char *type;
    VB_TRY(vb__json_string(at, "type", &type, err));
    vb__dec_step s = {0};
    vb_err e = dec_fill(at, type, &s, err);
    if (e == VB_OK) return vb__dec_add(out, s, err);
    vb__free(s.pattern);
    vb__free(s.content);
    vb__regex_destroy(s.regex);
    return e;
}

vb_err vb__load_decoder(const json_t *v, vb__decoder *out, vb_error *err) {
    if (v == NULL || json_is_null(v)) VB_TRY(vb__dec_add(out, (vb__dec_step){.kind = VB_DEC_JOIN}, err));
    else VB_TRY(each_step(v, place_of("decoder"), "decoders", dec_step, out, err));
    return vb__decoder_prepare(out, err);
}

/* ---- post-processors ---- */

static vb_err post_put(vb__tokenizer *t, bool after, int32_t id, const char *where, vb_error *err) {
    int *n = after ? &t->n_after : &t->n_before;
    int32_t *list = after ? t->after : t->before;
    if (*n == VB_POST_MAX) return vb__fail(err, VB_E_LIMIT, "%sadds more than %d tokens", where, VB_POST_MAX);
    list[(*n)++] = id;
    return VB_OK;
}

/* {"SpecialToken": {"id": name}}: the ids listed for it in special_tokens. */
static vb_err post_special(vb__tokenizer *t, vb__json_at at, const json_t *piece, bool after, int32_t *got,
                           int *n_got, vb_error *err) {
    const char *name;
    json_t *table, *entry, *ids;
    VB_TRY(vb__json_string((vb__json_at){piece, at.where}, "id", &name, err));
    VB_TRY(vb__json_object(at, "special_tokens", &table, err));
    VB_TRY(vb__json_object((vb__json_at){table, at.where}, name, &entry, err));
    VB_TRY(vb__json_array((vb__json_at){entry, at.where}, "ids", VB_POST_MAX, &ids, err));
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *v = json_array_get(ids, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) >= VB_LIMIT_VOCAB)
            return vb__fail(err, VB_E_FORMAT, "%sspecial_tokens: \"%.60s\" has an id out of range", at.where,
                            name);
        if (*n_got == VB_POST_MAX)
            return vb__fail(err, VB_E_LIMIT, "%ssingle: more than %d tokens", at.where, VB_POST_MAX);
        got[(*n_got)++] = (int32_t)json_integer_value(v);
    }
    (void)t;
    (void)after;
    return VB_OK;
}

/* An outer processor's tokens go around those of the ones before it. */
static vb_err post_around(vb__tokenizer *t, const int32_t *before, int n_before, const int32_t *after,
                          int n_after, const char *where, vb_error *err) {
    if (t->n_before + n_before > VB_POST_MAX)
        return vb__fail(err, VB_E_LIMIT, "%sadds more than %d tokens", where, VB_POST_MAX);
    memmove(t->before + n_before, t->before, (size_t)t->n_before * sizeof *t->before);
    if (n_before > 0) memcpy(t->before, before, (size_t)n_before * sizeof *before);
    t->n_before += n_before;
    for (int i = 0; i < n_after; i++) VB_TRY(post_put(t, true, after[i], where, err));
    return VB_OK;
}

static vb_err post_template(vb__tokenizer *t, vb__json_at at, vb_error *err) {
    json_t *single;
    VB_TRY(vb__json_array(at, "single", 2 * VB_POST_MAX + 1, &single, err));
    int32_t ids[2][VB_POST_MAX];
    int n[2] = {0, 0};
    bool seen = false;
    for (size_t i = 0; i < json_array_size(single); i++) {
        vb__json_at piece = {json_array_get(single, i), at.where};
        if (!json_is_object(piece.obj))
            return vb__fail(err, VB_E_FORMAT, "%ssingle: expected objects", at.where);
        json_t *special, *sequence;
        VB_TRY(vb__json_object_or(piece, "SpecialToken", &special, err));
        VB_TRY(vb__json_object_or(piece, "Sequence", &sequence, err));
        if (special != NULL) {
            VB_TRY(post_special(t, at, special, seen, ids[seen], &n[seen], err));
            continue;
        }
        const char *name;
        if (sequence == NULL)
            return vb__fail(err, VB_E_FORMAT, "%ssingle: expected SpecialToken or Sequence", at.where);
        VB_TRY(vb__json_string((vb__json_at){sequence, at.where}, "id", &name, err));
        if (strcmp(name, "A") != 0 || seen)
            return vb__fail(err, VB_E_UNSUPPORTED, "%ssingle: sequence \"%.20s\"%s is not supported",
                            at.where, name, seen ? " a second time" : "");
        seen = true;
    }
    if (!seen) return vb__fail(err, VB_E_FORMAT, "%ssingle: sequence \"A\" is missing", at.where);
    return post_around(t, ids[0], n[0], ids[1], n[1], at.where, err);
}

/* ["text", id] */
static vb_err post_pair(vb__json_at at, const char *key, int32_t *id, vb_error *err) {
    json_t *v;
    VB_TRY(vb__json_array(at, key, 2, &v, err));
    const json_t *n = json_array_get(v, 1);
    if (!json_is_integer(n) || json_integer_value(n) < 0 || json_integer_value(n) >= VB_LIMIT_VOCAB)
        return vb__fail(err, VB_E_FORMAT, "%s%s: expected [text, id]", at.where, key);
    *id = (int32_t)json_integer_value(n);
    return VB_OK;
}

static vb_err post_step(const json_t *v, place where, void *out, vb_error *err) {
    vb__tokenizer *t = out;
    vb__json_at at = {v, where.where};
    const char *type;
    VB_TRY(vb__json_string(at, "type", &type, err));
    if (strcmp(type, "ByteLevel") == 0) return VB_OK; /* acts on offsets only */
    if (strcmp(type, "TemplateProcessing") == 0) return post_template(t, at, err);
    if (strcmp(type, "BertProcessing") == 0 || strcmp(type, "RobertaProcessing") == 0) {
        int32_t cls, sep;
        VB_TRY(post_pair(at, "cls", &cls, err));
        VB_TRY(post_pair(at, "sep", &sep, err));
        return post_around(t, &cls, 1, &sep, 1, at.where, err);
    }
    return vb__fail(err, VB_E_UNSUPPORTED, "%stype: post-processor \"%.60s\" is not supported", where.where,
                    type);
}

vb_err vb__load_post_processor(const json_t *v, vb__tokenizer *t, vb_error *err) {
    return each_step(v, place_of("post_processor"), "processors", post_step, t, err);
}
