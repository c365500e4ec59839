#include "text/added_tokens.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

vb_err vb__added_init(vb__added_tokens *a) {
    *a = (vb__added_tokens){0};
    vb__byte_trie_init(&a->raw);
    vb__byte_trie_init(&a->normal);
    return vb__vocabulary_init(&a->names, 64, 1024);
}

void vb__added_fini(vb__added_tokens *a) {
    for (int32_t i = 0; i < a->n; i++) {
        vb__free(a->list[i].text);
        vb__free(a->list[i].shown);
    }
    vb__free(a->list);
    vb__free(a->by_id);
    vb__byte_trie_fini(&a->raw);
    vb__byte_trie_fini(&a->normal);
    vb__vocabulary_fini(&a->names);
    *a = (vb__added_tokens){0};
}

static vb_err make_room(vb__added_tokens *a, int32_t id) {
    if (a->n == a->cap) {
        int32_t cap = a->cap < 32 ? 64 : 2 * a->cap;
        vb__added_token *p = vb__realloc_array(VB_TAG_TEXT, a->list, (size_t)cap, sizeof *p);
        if (p == NULL) return VB_E_MEMORY;
        a->list = p;
        a->cap = cap;
    }
    if (id >= a->n_ids) {
        int32_t n = id + 1 + id / 8;
        int32_t *p = vb__realloc_array(VB_TAG_TEXT, a->by_id, (size_t)n, sizeof *p);
        if (p == NULL) return VB_E_MEMORY;
        for (int32_t i = a->n_ids; i < n; i++) p[i] = -1;
        a->by_id = p;
        a->n_ids = n;
    }
    return VB_OK;
}

vb_err vb__added_add(vb__added_tokens *a, const vb__added_token *t) {
    if (t->id < 0 || t->id >= VB_LIMIT_VOCAB) return VB_E_RANGE;
    if (t->len > VB_LIMIT_ADDED_TOKEN_BYTES) return VB_E_LIMIT;
    const vb__added_token *old = vb__added_of(a, t->id);
    if (old != NULL)
        return old->len == t->len && memcmp(old->text, t->text, t->len) == 0 ? VB_OK : VB_E_MISMATCH;
    int32_t same = vb__vocabulary_find(&a->names, t->text, t->len);
    if (same >= 0 && same != t->id) return VB_E_MISMATCH;
    VB_TRY(make_room(a, t->id));
    VB_TRY(vb__vocabulary_add(&a->names, t->text, t->len, t->id, true));
    char *text = vb__strndup(VB_TAG_TEXT, t->text, t->len);
    if (text == NULL) return VB_E_MEMORY;
    a->by_id[t->id] = a->n;
    a->list[a->n] = *t;
    a->list[a->n].shown = NULL;
    a->list[a->n++].text = text;
    return VB_OK;
}

vb_err vb__added_prepare(vb__added_tokens *a, const vb__normalizer *n, vb__norm_scratch *s, vb_error *err) {
    for (int32_t i = 0; i < a->n; i++) {
        vb__added_token *t = &a->list[i];
        vb__text_view v = {t->text, NULL, t->len};
        if (t->normalized) {
            VB_TRY(vb__normalizer_run(n, s, &v, err));
            a->any_normal = true;
            if (v.data != t->text || v.len != t->len) {
                t->shown = vb__strndup(VB_TAG_TEXT, v.data, v.len);
                t->n_shown = v.len;
                if (t->shown == NULL) return vb__fail(err, VB_E_MEMORY, "added_tokens: out of memory");
            }
        }
        if (v.len == 0) continue;
        size_t len = 0;
        const vb__byte_trie *trie = t->normalized ? &a->normal : &a->raw;
        if (vb__byte_trie_longest(trie, v.data, v.len, &len) >= 0 && len == v.len)
            continue; /* the first one counts */
        vb_err e = vb__byte_trie_add(t->normalized ? &a->normal : &a->raw, v.data, v.len, i);
        if (e != VB_OK) return vb__fail(err, e, "added_tokens: out of memory");
    }
    return VB_OK;
}

/* ---- search ---- */

static bool word_before(const char *t, size_t n, size_t at) {
    if (at == 0) return false;
    size_t i = at - 1;
    while (i > 0 && ((unsigned char)t[i] & 0xc0) == 0x80) i--;
    return vb__char_is_word(vb__utf8_next(t, n, &i));
}

static bool word_after(const char *t, size_t n, size_t at) {
    return at < n && vb__char_is_word(vb__utf8_next(t, n, &at));
}

static size_t spaces_before(const char *t, size_t n, size_t at, size_t floor) {
    while (at > floor) {
        size_t i = at - 1, j;
        while (i > 0 && ((unsigned char)t[i] & 0xc0) == 0x80) i--;
        j = i;
        if (!vb__char_is_space(vb__utf8_next(t, n, &j))) break;
        at = i;
    }
    return at;
}

static size_t spaces_after(const char *t, size_t n, size_t at) {
    while (at < n) {
        size_t i = at;
        if (!vb__char_is_space(vb__utf8_next(t, n, &i))) break;
        at = i;
    }
    return at;
}

/* The leftmost, then longest string of the set that lies wholly in the template's characters. */
static int32_t find(vb__added_search *s, size_t *begin, size_t *len) {
    const vb__text_view *t = s->text;
    for (size_t i = s->from; i < t->len; i++) {
        if (s->trie->first[(unsigned char)t->data[i]] == 0) continue;
        size_t limit = t->len;
        if (t->user != NULL) {
            if (t->user[i] != 0) {
                const uint8_t *own = memchr(t->user + i, 0, t->len - i);
                if (own == NULL) return -1;
                i = (size_t)(own - t->user) - 1;
                continue;
            }
            if (s->own_end <= i) {
                const uint8_t *user = memchr(t->user + i, 1, t->len - i);
                s->own_end = user == NULL ? t->len : (size_t)(user - t->user);
            }
            limit = s->own_end;
        }
        int32_t k = vb__byte_trie_longest(s->trie, t->data + i, limit - i, len);
        if (k < 0) continue;
        *begin = i;
        return k;
    }
    return -1;
}

bool vb__added_next(vb__added_search *s, const vb__added_token **token, size_t *begin, size_t *end) {
    const vb__text_view *t = s->text;
    for (;;) {
        size_t a = 0, len = 0;
        int32_t k = find(s, &a, &len);
        if (k < 0) return false;
        const vb__added_token *x = &s->tokens->list[k];
        size_t b = a + len;
        if (a < s->done) { /* inside the white space that the token before took */
            s->from = s->done;
            continue;
        }
        s->from = b;
        if (s->hide_special && x->special) continue;
        if (x->single_word && (word_before(t->data, t->len, a) || word_after(t->data, t->len, b))) continue;
        if (x->lstrip) a = spaces_before(t->data, t->len, a, s->done);
        if (x->rstrip) b = spaces_after(t->data, t->len, b);
        s->done = b;
        *token = x;
        *begin = a;
        *end = b;
        return true;
    }
}
