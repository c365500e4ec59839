#include "text/tokenizer.h"
#include "base/alloc.h"
#include "text/tokenizer_parts.h"
#include <string.h>

/* ---- work space: one for each thread that encodes at the moment, kept in a list between calls ---- */

enum { CACHE_SLOTS = 1 << 15, CACHE_WORD = 23, CACHE_IDS = 9, NORMAL_MAX = 4 * VB_LIMIT_PROMPT_BYTES };

/* A word of at most 23 bytes (its length in the last byte of key) and its ids: one cache line. */
typedef struct cached_word {
    uint64_t key[3];
    uint32_t n;
    int32_t id[CACHE_IDS];
} cached_word;

typedef struct vb__tok_scratch {
    struct vb__tok_scratch *next;
    cached_word *cache; /* CACHE_SLOTS, made when a text is long enough to pay for it */
    vb__regex_scratch regex;
    vb__norm_scratch norm;
    vb__pre_scratch pre;
    vb__bpe_scratch bpe;
    vb__unigram_scratch unigram;
    vb__textbuf mapped; /* a word as characters, for ignore_merges */
    uint8_t *user;      /* origins of a text given with spans */
} scratch;

static void scratch_destroy(scratch *s) {
    if (s == NULL) return;
    vb__free(s->cache);
    vb__regex_scratch_fini(&s->regex);
    vb__textbuf_fini(&s->norm.buf[0]);
    vb__textbuf_fini(&s->norm.buf[1]);
    vb__nf_work_fini(&s->norm.work);
    for (int i = 0; i < VB_LIMIT_TEXT_STEPS; i++) vb__textbuf_fini(&s->pre.buf[i]);
    vb__bpe_scratch_fini(&s->bpe);
    vb__unigram_scratch_fini(&s->unigram);
    vb__textbuf_fini(&s->mapped);
    vb__free(s->user);
    vb__free(s);
}

static scratch *scratch_create(void) {
    scratch *s = vb__calloc(VB_TAG_TEXT, 1, sizeof *s);
    if (s == NULL) return NULL;
    s->norm.regex = s->pre.regex = &s->regex;
    vb__textbuf_init(&s->norm.buf[0], NORMAL_MAX);
    vb__textbuf_init(&s->norm.buf[1], NORMAL_MAX);
    for (int i = 0; i < VB_LIMIT_TEXT_STEPS; i++) vb__textbuf_init(&s->pre.buf[i], NORMAL_MAX);
    vb__textbuf_init(&s->mapped, NORMAL_MAX);
    return s;
}

static scratch *scratch_take(const vb__tokenizer *t) {
    vb__tokenizer *m = (vb__tokenizer *)t; /* the list is the one part that changes; it has a lock */
    (void)pthread_mutex_lock(&m->lock);
    scratch *s = m->idle;
    if (s != NULL) m->idle = s->next;
    (void)pthread_mutex_unlock(&m->lock);
    return s != NULL ? s : scratch_create();
}

/* Memory that a huge text made necessary is not kept. */
static void scratch_give(const vb__tokenizer *t, scratch *s, size_t text_bytes) {
    vb__tokenizer *m = (vb__tokenizer *)t;
    if (text_bytes > (4u << 20)) {
        scratch_destroy(s);
        return;
    }
    (void)pthread_mutex_lock(&m->lock);
    s->next = m->idle;
    m->idle = s;
    (void)pthread_mutex_unlock(&m->lock);
}

/* ---- making and unmaking ---- */

vb_err vb__tokenizer_new(vb__tokenizer **out, vb_error *err) {
    vb__tokenizer *t = vb__calloc(VB_TAG_TEXT, 1, sizeof *t);
    if (t == NULL) return vb__fail(err, VB_E_MEMORY, "tokenizer: out of memory");
    vb__bpe_init(&t->bpe);
    for (int i = 0; i < VB_TOKEN_NAMES; i++) t->named[i] = VB_NO_TOKEN;
    (void)pthread_mutex_init(&t->lock, NULL);
    if (vb__added_init(&t->added) != VB_OK) {
        vb__tokenizer_destroy(t);
        return vb__fail(err, VB_E_MEMORY, "tokenizer: out of memory");
    }
    *out = t;
    return VB_OK;
}

void vb__tokenizer_destroy(vb__tokenizer *t) {
    if (t == NULL) return;
    for (scratch *s = t->idle, *next; s != NULL; s = next) {
        next = s->next;
        scratch_destroy(s);
    }
    (void)pthread_mutex_destroy(&t->lock);
    vb__vocabulary_fini(&t->model);
    vb__added_fini(&t->added);
    vb__normalizer_fini(&t->normalizer);
    vb__pretokenizer_fini(&t->pre);
    vb__decoder_fini(&t->decoder);
    vb__bpe_fini(&t->bpe);
    vb__unigram_fini(&t->unigram);
    vb__free(t->special);
    vb__free(t->token_bytes);
    vb__free(t->bytes_at);
    vb__free(t);
}

#define SHOW(n) ((int)((n) > 40 ? 40 : (n)))

vb_err vb__tokenizer_add_token(vb__tokenizer *t, const vb__added_token *x, int32_t id_limit,
                               const char *where, vb_error *err) {
    if (x->id < 0 || x->id >= id_limit)
        return vb__fail(err, VB_E_RANGE, "%sid: \"%.*s\" has id %d, expected one below %d", where,
                        SHOW(x->len), x->text, x->id, id_limit);
    size_t n = 0;
    const char *other = vb__vocabulary_text(&t->model, x->id, &n);
    if (other != NULL && (n != x->len || memcmp(other, x->text, n) != 0))
        return vb__fail(err, VB_E_MISMATCH, "%sid: \"%.*s\" has id %d, which is \"%.*s\" in the vocabulary",
                        where, SHOW(x->len), x->text, x->id, SHOW(n), other);
    int32_t own = vb__vocabulary_find(&t->model, x->text, x->len);
    if (own >= 0 && own != x->id && other == NULL)
        return vb__fail(err, VB_E_MISMATCH, "%sid: \"%.*s\" has id %d, but %d in the vocabulary", where,
                        SHOW(x->len), x->text, x->id, own);
    vb_err e = vb__added_add(&t->added, x);
    switch (e) {
    case VB_OK: return VB_OK;
    case VB_E_MISMATCH:
        return vb__fail(err, e, "%sid: \"%.*s\" or its id %d is used by another added token", where,
                        SHOW(x->len), x->text, x->id);
    case VB_E_LIMIT:
        return vb__fail(err, e, "%scontent: \"%.*s...\" has %zu bytes, expected at most %d", where,
                        SHOW(x->len), x->text, x->len, VB_LIMIT_ADDED_TOKEN_BYTES);
    default: return vb__fail(err, e, "%sout of memory", where);
    }
}

static vb_err make_token_bytes(vb__tokenizer *t, vb_error *err) {
    vb__buffer b;
    vb__dec_stream s;
    vb__buffer_init(&b, UINT32_MAX);
    vb__dec_stream_init(&s);
    t->bytes_at = vb__calloc(VB_TAG_TEXT, (size_t)t->id_end + 1, sizeof *t->bytes_at);
    vb_err e = t->bytes_at == NULL ? VB_E_MEMORY : vb__buffer_reserve(&b, 8 * (size_t)t->id_end);
    for (int32_t id = 0; e == VB_OK && id < t->id_end; id++) {
        size_t n = 0;
        const char *text = vb__tokenizer_decode_text(t, id, &n);
        if (text != NULL) e = vb__decoder_token_bytes(&t->decoder, &s, text, n, &b, err);
        t->bytes_at[id + 1] = (uint32_t)b.len;
    }
    vb__dec_stream_fini(&s);
    t->token_bytes = e == VB_OK ? vb__buffer_take(&b) : NULL;
    vb__buffer_fini(&b);
    return t->token_bytes == NULL ? vb__fail(err, e == VB_OK ? VB_E_MEMORY : e, "tokenizer: out of memory")
                                  : VB_OK;
}

/* Special tokens that stand in the model's vocabulary too: text that spells one out would become it through
 * the model. User data must not, so they are hidden there. The stock switch leaves them, as the stock library
 * does. */
static vb_err find_special(vb__tokenizer *t) {
    for (int32_t i = 0; i < t->added.n; i++) {
        const vb__added_token *x = &t->added.list[i];
        size_t n = 0;
        if (!x->special || vb__vocabulary_text(&t->model, x->id, &n) == NULL) continue;
        if (t->special == NULL)
            t->special = vb__calloc(VB_TAG_TEXT, (size_t)t->model.n_ids / 64 + 1, sizeof *t->special);
        if (t->special == NULL) return VB_E_MEMORY;
        t->special[x->id >> 6] |= (uint64_t)1 << (x->id & 63);
    }
    return VB_OK;
}

vb_err vb__tokenizer_finish(vb__tokenizer *t, vb_error *err) {
    vb_err made =
        t->is_unigram ? vb__unigram_prepare(&t->unigram, &t->model) : vb__bpe_prepare(&t->bpe, &t->model);
    if (made == VB_OK) made = find_special(t);
    if (made != VB_OK) return vb__fail(err, made, "tokenizer: %s", vb_err_message(made));
    scratch *s = scratch_take(t);
    if (s == NULL) return vb__fail(err, VB_E_MEMORY, "tokenizer: out of memory");
    vb_err e = vb__added_prepare(&t->added, &t->normalizer, &s->norm, err);
    scratch_give(t, s, 0);
    VB_TRY(e);
    t->id_end = t->model.n_ids;
    t->count = t->model.count;
    for (int32_t i = 0; i < t->added.n; i++) {
        int32_t id = t->added.list[i].id;
        size_t n;
        if (id >= t->id_end) t->id_end = id + 1;
        if (vb__vocabulary_text(&t->model, id, &n) == NULL) t->count++;
    }
    return make_token_bytes(t, err);
}

/* ---- encoding ---- */

typedef struct job {
    const vb__tokenizer *t;
    scratch *s;
    vb__ids *out;
    vb__parse parse;
    const uint64_t *hidden; /* ids that must not come out of the model */
} job;

static vb_err encode_model(const job *j, const char *word, size_t n, vb_error *err) {
    const vb__tokenizer *t = j->t;
    if (t->is_unigram)
        return vb__unigram_encode(&t->unigram, &t->model, &j->s->unigram, j->hidden, word, n, j->out, err);
    vb_err e = vb__bpe_encode(&t->bpe, &t->model, &j->s->bpe, j->hidden, word, n, j->out);
    if (e == VB_E_FORMAT)
        return vb__fail(err, e,
                        "text: a character has no token, and the model's unk_token is not in its vocabulary");
    if (e == VB_E_LIMIT)
        return vb__fail(err, e, "text: a word of %zu bytes, expected at most %d symbols", n,
                        VB_LIMIT_WORD_SYMBOLS);
    return e == VB_OK ? e : vb__fail(err, e, "text: %s", vb_err_message(e));
}

/* A word, or a part of one that no merge leaves: through the cache when it is short. */
static vb_err encode_cached(const job *j, const char *word, size_t n, vb_error *err) {
    if (n > CACHE_WORD || j->s->cache == NULL) return encode_model(j, word, n, err);
    uint64_t key[3] = {0};
    memcpy(key, word, n);
    key[2] |= (uint64_t)(n | (j->hidden != NULL ? 0x80u : 0)) << 56;
    uint64_t h = (key[0] ^ key[1] * 0x9e3779b97f4a7c15u ^ key[2] * 0xc2b2ae3d27d4eb4fu) * 0xd6e8feb86659fd93u;
    cached_word *c = &j->s->cache[h >> 32 & (CACHE_SLOTS - 1)];
    if (c->key[0] == key[0] && c->key[1] == key[1] && c->key[2] == key[2]) {
        if (vb__ids_reserve(j->out, CACHE_IDS) != VB_OK)
            return vb__fail(err, VB_E_MEMORY, "text: out of memory");
        memcpy(j->out->data + j->out->len, c->id, sizeof c->id);
        j->out->len += c->n;
        return VB_OK;
    }
    size_t before = j->out->len;
    VB_TRY(encode_model(j, word, n, err));
    size_t made = j->out->len - before;
    if (made <= CACHE_IDS) {
        memcpy(c->key, key, sizeof key);
        c->n = (uint32_t)made;
        if (made > 0) memcpy(c->id, j->out->data + before, made * sizeof *c->id);
    }
    return VB_OK;
}

/* The id of a whole word, for ignore_merges. */
static int32_t whole_word(const job *j, const char *word, size_t n) {
    const vb__tokenizer *t = j->t;
    if (n > t->model.longest) return VB_NO_TOKEN;
    if (!t->bpe.byte_level) return vb__vocabulary_find(&t->model, word, n);
    vb__textbuf *b = &j->s->mapped;
    vb__textbuf_clear(b, false);
    if (vb__textbuf_reserve(b, 2 * n) != VB_OK) return VB_NO_TOKEN;
    for (size_t i = 0; i < n; i++)
        b->len += vb__utf8_put(b->data + b->len, vb__byte_char((unsigned char)word[i]));
    return vb__vocabulary_find(&t->model, b->data, b->len);
}

static vb_err encode_word(void *ctx, const char *word, size_t n, vb_error *err) {
    const job *j = ctx;
    const vb__bpe *b = &j->t->bpe;
    if (b->ignore_merges) {
        int32_t id = whole_word(j, word, n);
        if (id >= 0 && !vb__id_set_has(j->hidden, id))
            return vb__ids_push(j->out, id) == VB_OK ? VB_OK
                                                     : vb__fail(err, VB_E_MEMORY, "text: out of memory");
    }
    while (b->joined != NULL && n > 0) {
        size_t part = vb__bpe_next_cut(b, &j->t->model, word, n);
        VB_TRY(encode_cached(j, word, part, err));
        word += part;
        n -= part;
    }
    return n > 0 ? encode_cached(j, word, n, err) : VB_OK;
}

static vb_err encode_plain(const job *j, const char *text, size_t n, bool first, vb_error *err) {
    return vb__pretokenizer_run(&j->t->pre, &j->s->pre, text, n, first, encode_word, (void *)j, err);
}

static vb__text_view part_of(vb__text_view v, size_t a, size_t b) {
    return (vb__text_view){v.data + a, v.user == NULL ? NULL : v.user + a, b - a};
}

/* Text between the added tokens of the raw text: normalised as one piece, then searched for those added
 * tokens that are looked for in normalised text. */
static vb_err encode_section(const job *j, vb__text_view v, bool first, vb_error *err) {
    const vb__tokenizer *t = j->t;
    VB_TRY(vb__normalizer_run(&t->normalizer, &j->s->norm, &v, err));
    size_t done = 0;
    if (t->added.any_normal && j->parse != VB_PARSE_NONE) {
        vb__added_search q = {.trie = &t->added.normal,
                              .tokens = &t->added,
                              .text = &v,
                              .hide_special = j->parse == VB_PARSE_NOT_SPECIAL};
        const vb__added_token *x;
        size_t a, b;
        while (vb__added_next(&q, &x, &a, &b)) {
            if (a > done) VB_TRY(encode_plain(j, v.data + done, a - done, first && done == 0, err));
            if (vb__ids_push(j->out, x->id) != VB_OK)
                return vb__fail(err, VB_E_MEMORY, "text: out of memory");
            done = b;
        }
    }
    return done < v.len ? encode_plain(j, v.data + done, v.len - done, first && done == 0, err) : VB_OK;
}

static vb_err encode_text(const job *j, vb__text_view v, vb_error *err) {
    const vb__tokenizer *t = j->t;
    size_t done = 0;
    if (j->parse != VB_PARSE_NONE) {
        vb__added_search q = {.trie = &t->added.raw,
                              .tokens = &t->added,
                              .text = &v,
                              .hide_special = j->parse == VB_PARSE_NOT_SPECIAL};
        const vb__added_token *x;
        size_t a, b;
        while (vb__added_next(&q, &x, &a, &b)) {
            if (a > done) VB_TRY(encode_section(j, part_of(v, done, a), done == 0, err));
            if (vb__ids_push(j->out, x->id) != VB_OK)
                return vb__fail(err, VB_E_MEMORY, "text: out of memory");
            done = b;
        }
    }
    return done < v.len ? encode_section(j, part_of(v, done, v.len), done == 0, err) : VB_OK;
}

static vb_err fill_origins(scratch *s, size_t n, const vb__encode_options *o, vb_error *err) {
    vb__free(s->user);
    s->user = vb__alloc(VB_TAG_TEXT, n + 1);
    if (s->user == NULL) return vb__fail(err, VB_E_MEMORY, "text: out of memory");
    size_t at = 0;
    for (size_t i = 0; i < o->n_spans; i++) {
        size_t end = o->spans[i].end;
        if (end < at || end > n)
            return vb__fail(err, VB_E_ARGUMENT, "spans: span %zu ends at %zu, expected %zu..%zu", i, end, at,
                            n);
        memset(s->user + at, o->spans[i].user, end - at);
        at = end;
    }
    if (at != n) return vb__fail(err, VB_E_ARGUMENT, "spans: they end at %zu, expected %zu", at, n);
    return VB_OK;
}

static vb_err push_all(vb__ids *out, const int32_t *ids, int n, vb_error *err) {
    for (int i = 0; i < n; i++)
        if (vb__ids_push(out, ids[i]) != VB_OK) return vb__fail(err, VB_E_MEMORY, "text: out of memory");
    return VB_OK;
}

vb_err vb__tokenizer_encode(const vb__tokenizer *t, const char *text, size_t n,
                            const vb__encode_options *options, vb__ids *out, vb_error *err) {
    static const vb__encode_options plain = {0};
    const vb__encode_options *o = options == NULL ? &plain : options;
    if (n > VB_LIMIT_PROMPT_BYTES)
        return vb__fail(err, VB_E_LIMIT, "text: has %zu bytes, expected at most %d", n,
                        VB_LIMIT_PROMPT_BYTES);
    if (n == 0) text = "";
    size_t bad = vb__utf8_check(text, n), before = out->len;
    if (bad != n) return vb__fail(err, VB_E_FORMAT, "text: byte %zu is not UTF-8", bad);
    scratch *s = scratch_take(t);
    if (s == NULL) return vb__fail(err, VB_E_MEMORY, "text: out of memory");
    vb_err e = VB_OK;
    if (n >= 512 && s->cache == NULL) s->cache = vb__calloc(VB_TAG_TEXT, CACHE_SLOTS, sizeof *s->cache);
    if (vb__ids_reserve(out, n / 4 + 16) != VB_OK) {
        e = vb__fail(err, VB_E_MEMORY, "text: out of memory");
        goto out;
    }
    if (o->spans != NULL) VB_TRY_OUT(fill_origins(s, n, o, err));
    if (o->add_special) VB_TRY_OUT(push_all(out, t->before, t->n_before, err));
    bool user = o->parse == VB_PARSE_NONE || o->spans != NULL;
    job j = {t, s, out, o->parse, user ? t->special : NULL};
    VB_TRY_OUT(encode_text(&j, (vb__text_view){text, o->spans != NULL ? s->user : NULL, n}, err));
    if (o->add_special) VB_TRY_OUT(push_all(out, t->after, t->n_after, err));
out:
    if (e != VB_OK) out->len = before;
    scratch_give(t, s, n);
    return e;
}

/* ---- decoding ---- */

vb_err vb__tokenizer_decode(const vb__tokenizer *t, const int32_t *ids, size_t n, bool skip_special,
                            vb__buffer *out, vb_error *err) {
    vb__dec_stream s;
    vb__dec_stream_init(&s);
    vb_err e = VB_OK;
    for (size_t i = 0; e == VB_OK && i < n; i++) {
        size_t len = 0;
        const char *text = vb__tokenizer_decode_text(t, ids[i], &len);
        if (text == NULL || (skip_special && vb__tokenizer_is_special(t, ids[i]))) continue;
        e = vb__decoder_push(&t->decoder, &s, text, len, err);
    }
    if (e == VB_OK) e = vb__decoder_end(&t->decoder, &s, err);
    if (e == VB_OK && vb__buffer_append(out, s.out.data, s.out.len) != VB_OK)
        e = vb__fail(err, out->error, "text: %s", vb_err_message(out->error));
    vb__dec_stream_fini(&s);
    return e;
}

/* ---- questions ---- */

int32_t vb__tokenizer_count(const vb__tokenizer *t) { return t->count; }
int32_t vb__tokenizer_id_end(const vb__tokenizer *t) { return t->id_end; }

const char *vb__tokenizer_token_text(const vb__tokenizer *t, int32_t id, size_t *n) {
    const vb__added_token *x = vb__added_of(&t->added, id);
    if (x == NULL) return vb__vocabulary_text(&t->model, id, n);
    *n = x->len;
    return x->text;
}

const char *vb__tokenizer_decode_text(const vb__tokenizer *t, int32_t id, size_t *n) {
    const vb__added_token *x = vb__added_of(&t->added, id);
    if (x == NULL || x->shown == NULL) return vb__tokenizer_token_text(t, id, n);
    *n = x->n_shown;
    return x->shown;
}

bool vb__tokenizer_has_id(const vb__tokenizer *t, int32_t id) {
    size_t n;
    return vb__tokenizer_token_text(t, id, &n) != NULL;
}

bool vb__tokenizer_is_added(const vb__tokenizer *t, int32_t id) {
    return vb__added_of(&t->added, id) != NULL;
}

bool vb__tokenizer_is_special(const vb__tokenizer *t, int32_t id) {
    const vb__added_token *x = vb__added_of(&t->added, id);
    return x != NULL && x->special;
}

const char *vb__tokenizer_token_bytes(const vb__tokenizer *t, int32_t id, size_t *n) {
    if (!vb__tokenizer_has_id(t, id)) return NULL;
    *n = t->bytes_at[id + 1] - t->bytes_at[id];
    return t->token_bytes + t->bytes_at[id];
}

int32_t vb__tokenizer_find(const vb__tokenizer *t, const char *text, size_t n) {
    int32_t id = vb__vocabulary_find(&t->added.names, text, n);
    return id >= 0 ? id : vb__vocabulary_find(&t->model, text, n);
}

int32_t vb__tokenizer_named(const vb__tokenizer *t, vb__named_token name) { return t->named[name]; }

const int32_t *vb__tokenizer_eos_ids(const vb__tokenizer *t, size_t *n) {
    *n = t->n_eos;
    return t->eos;
}

vb__text_hash vb__tokenizer_fingerprint(const vb__tokenizer *t) { return t->hash; }
