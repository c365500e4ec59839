#include "text/bpe.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "text/text_unicode.h"
#include <stdio.h>
#include <string.h>

enum { SHORT_WORD = 48, JOINED_BITS = 20 };

void vb__bpe_init(vb__bpe *b) { *b = (vb__bpe){.unk = VB_NO_TOKEN}; }

void vb__bpe_fini(vb__bpe *b) {
    vb__free(b->prefix);
    vb__free(b->suffix);
    vb__free(b->merges);
    vb__free(b->char_ids);
    vb__free(b->joined);
    vb__bpe_init(b);
}

void vb__bpe_scratch_fini(vb__bpe_scratch *s) {
    vb__free(s->symbols);
    vb__free(s->heap);
    *s = (vb__bpe_scratch){0};
}

/* ---- rules ---- */

static uint64_t merge_slot(uint64_t key, uint64_t mask) {
    uint64_t h = key * 0x9e3779b97f4a7c15u;
    return (h ^ h >> 32) & mask;
}

static vb_err merges_resize(vb__bpe *b, size_t slots) {
    struct vb__merge *m = vb__realloc_array(VB_TAG_TEXT, NULL, slots, sizeof *m);
    if (m == NULL) return VB_E_MEMORY;
    memset(m, 0xff, slots * sizeof *m);
    for (uint64_t i = 0; b->merges != NULL && i <= b->mask; i++) {
        if (b->merges[i].key == UINT64_MAX) continue;
        uint64_t at = merge_slot(b->merges[i].key, slots - 1);
        while (m[at].key != UINT64_MAX) at = (at + 1) & (slots - 1);
        m[at] = b->merges[i];
    }
    vb__free(b->merges);
    b->merges = m;
    b->mask = slots - 1;
    return VB_OK;
}

vb_err vb__bpe_add_merge(vb__bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id,
                         size_t expected) {
    if (b->merges == NULL || 2 * (b->n_merges + 1) > b->mask) {
        size_t slots = b->merges == NULL ? 256 : 2 * (size_t)(b->mask + 1);
        while (slots < 2 * expected && slots < ((size_t)1 << 24)) slots *= 2;
        VB_TRY(merges_resize(b, slots));
    }
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, at = merge_slot(key, b->mask);
    while (b->merges[at].key != UINT64_MAX && b->merges[at].key != key) at = (at + 1) & b->mask;
    if (b->merges[at].key == UINT64_MAX) b->n_merges++;
    b->merges[at] = (struct vb__merge){key, rank, id};
    return VB_OK;
}

static const struct vb__merge *find_merge(const vb__bpe *b, const uint64_t *hidden, int32_t left,
                                          int32_t right) {
    if (b->merges == NULL) return NULL;
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right, at = merge_slot(key, b->mask);
    for (;; at = (at + 1) & b->mask) {
        if (b->merges[at].key == key) return vb__id_set_has(hidden, b->merges[at].id) ? NULL : &b->merges[at];
        if (b->merges[at].key == UINT64_MAX) return NULL;
    }
}

/* ---- preparation ---- */

static uint32_t pair_bit(uint32_t a, uint32_t c) {
    uint64_t h = ((uint64_t)a << 21 | c) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> (64 - JOINED_BITS));
}

/* Marks every pair of characters that some merge's result holds side by side: between any other two
 * characters a word may be cut without changing its tokens. Not when a rule touches a byte token or the
 * unknown token, whose text is not what it stands for. */
static vb_err mark_joined(vb__bpe *b, const vb__vocabulary *v) {
    if (b->byte_level || b->prefix != NULL || b->suffix != NULL) return VB_OK;
    b->joined = vb__calloc(VB_TAG_TEXT, (1u << JOINED_BITS) / 64, sizeof *b->joined);
    if (b->joined == NULL) return VB_E_MEMORY;
    for (uint64_t i = 0; b->merges != NULL && i <= b->mask; i++) {
        if (b->merges[i].key == UINT64_MAX) continue;
        int32_t parts[2] = {(int32_t)(b->merges[i].key >> 32), (int32_t)(uint32_t)b->merges[i].key};
        for (int k = 0; k < 2; k++) {
            size_t n = 0;
            const char *s = vb__vocabulary_text(v, parts[k], &n);
            if (s == NULL || parts[k] == b->unk || vb__byte_token(s, n) >= 0) {
                vb__free(b->joined);
                b->joined = NULL;
                return VB_OK;
            }
        }
        size_t n = 0, at = 0;
        const char *s = vb__vocabulary_text(v, b->merges[i].id, &n);
        uint32_t last = 0;
        for (bool first = true; s != NULL && at < n; first = false) {
            uint32_t c = vb__utf8_next(s, n, &at);
            if (!first) {
                uint32_t bit = pair_bit(last, c);
                b->joined[bit / 64] |= (uint64_t)1 << bit % 64;
            }
            last = c;
        }
    }
    return VB_OK;
}

vb_err vb__bpe_prepare(vb__bpe *b, const vb__vocabulary *v) {
    b->has_all_bytes = true;
    for (unsigned i = 0; i < 256; i++) {
        char s[16];
        size_t n =
            b->byte_level ? vb__utf8_put(s, vb__byte_char(i)) : (size_t)snprintf(s, sizeof s, "<0x%02X>", i);
        b->byte_ids[i] = vb__vocabulary_find(v, s, n);
        if (b->byte_ids[i] < 0) b->has_all_bytes = false;
    }
    if (b->byte_level) return VB_OK;
    b->char_ids = vb__alloc(VB_TAG_TEXT, 0x10000 * sizeof *b->char_ids);
    if (b->char_ids == NULL) return VB_E_MEMORY;
    memset(b->char_ids, 0xff, 0x10000 * sizeof *b->char_ids);
    for (int32_t id = 0; id < v->n_ids; id++) {
        size_t n = 0, at = 0;
        const char *s = vb__vocabulary_text(v, id, &n);
        if (s == NULL || n == 0 || n != vb__utf8_len((unsigned char)s[0])) continue;
        uint32_t c = vb__utf8_next(s, n, &at);
        if (c < 0x10000) b->char_ids[c] = vb__vocabulary_find(v, s, n);
    }
    return mark_joined(b, v);
}

/* ---- symbols of a word ---- */

static vb_err reserve_symbols(vb__bpe_scratch *s, size_t n) {
    if (n <= s->cap_symbols) return VB_OK;
    if (n > VB_LIMIT_WORD_SYMBOLS) return VB_E_LIMIT;
    size_t cap = 2 * s->cap_symbols > n ? 2 * s->cap_symbols : n;
    struct vb__bpe_symbol *p = vb__realloc_array(VB_TAG_TEXT, s->symbols, cap, sizeof *p);
    if (p == NULL) return VB_E_MEMORY;
    s->symbols = p;
    s->cap_symbols = cap;
    return VB_OK;
}

static int32_t char_id(const vb__bpe *b, const vb__vocabulary *v, const char *s, size_t n, uint32_t c) {
    return c < 0x10000 ? b->char_ids[c] : vb__vocabulary_find(v, s, n);
}

/* With a prefix or suffix, the text of a first symbol is built for the look-up. */
static int32_t affixed_id(const vb__bpe *b, const vb__vocabulary *v, const char *s, size_t n, bool first,
                          bool last) {
    char text[2 * VB_LIMIT_AFFIX_BYTES + 8];
    size_t k = 0, p = first || b->prefix == NULL ? 0 : strlen(b->prefix),
           q = !last || b->suffix == NULL ? 0 : strlen(b->suffix);
    if (p != 0) memcpy(text, b->prefix, p);
    k = p;
    memcpy(text + k, s, n);
    k += n;
    if (q != 0) memcpy(text + k, b->suffix, q);
    return vb__vocabulary_find(v, text, k + q);
}

/* Fills s->symbols[*count] on; the rules for unknown characters follow the stock library to the letter (a
 * pending unknown token is written when the next known character comes). */
static vb_err char_symbols(const vb__bpe *b, const vb__vocabulary *v, vb__bpe_scratch *s,
                           const uint64_t *hidden, const char *w, size_t n, size_t *count) {
    size_t k = 0;
    bool pending = false, affixed = b->prefix != NULL || b->suffix != NULL;
    for (size_t i = 0; i < n;) {
        size_t from = i;
        uint32_t c = vb__utf8_next(w, n, &i);
        int32_t id = affixed ? affixed_id(b, v, w + from, i - from, from == 0, i == n)
                             : char_id(b, v, w + from, i - from, c);
        VB_TRY(reserve_symbols(s, k + 2 * VB_LIMIT_AFFIX_BYTES + 8));
        if (id >= 0 && !vb__id_set_has(hidden, id)) {
            if (pending) s->symbols[k++].id = b->unk;
            pending = false;
            s->symbols[k++].id = id;
            continue;
        }
        if (b->byte_fallback) {
            bool all = true;
            for (size_t j = from; j < i; j++) all = all && b->byte_ids[(unsigned char)w[j]] >= 0;
            if (all) { /* affixes have no byte tokens in practice; the stock library would write them too */
                for (size_t j = from; j < i; j++) s->symbols[k++].id = b->byte_ids[(unsigned char)w[j]];
                continue;
            }
        }
        if (b->unk == VB_UNK_MISSING) return VB_E_FORMAT;
        if (b->unk >= 0) {
            if (pending && !b->fuse_unk) s->symbols[k++].id = b->unk;
            pending = true;
        }
    }
    if (pending) {
        VB_TRY(reserve_symbols(s, k + 1));
        s->symbols[k++].id = b->unk;
    }
    *count = k;
    return VB_OK;
}

/* ---- merging ---- */

/* n <= SHORT_WORD: the lowest rank is looked for in a small array. */
static vb_err merge_short(const vb__bpe *b, const uint64_t *hidden, int32_t *id, size_t n, vb__ids *out) {
    uint32_t rank[SHORT_WORD];
    int32_t made[SHORT_WORD];
    for (size_t i = 0; i + 1 < n; i++) {
        const struct vb__merge *m = find_merge(b, hidden, id[i], id[i + 1]);
        rank[i] = m == NULL ? UINT32_MAX : m->rank;
        made[i] = m == NULL ? 0 : m->id;
    }
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < n; i++)
            if (rank[i] < rank[best]) best = i;
        if (rank[best] == UINT32_MAX) break;
        id[best] = made[best];
        size_t tail = n - best - 2;
        memmove(id + best + 1, id + best + 2, tail * sizeof *id);
        if (tail > 0) {
            memmove(rank + best + 1, rank + best + 2, (tail - 1) * sizeof *rank);
            memmove(made + best + 1, made + best + 2, (tail - 1) * sizeof *made);
        }
        n--;
        for (size_t i = best == 0 ? 0 : best - 1; i <= best && i + 1 < n; i++) {
            const struct vb__merge *m = find_merge(b, hidden, id[i], id[i + 1]);
            rank[i] = m == NULL ? UINT32_MAX : m->rank;
            made[i] = m == NULL ? 0 : m->id;
        }
    }
    VB_TRY(vb__ids_reserve(out, n));
    memcpy(out->data + out->len, id, n * sizeof *id);
    out->len += n;
    return VB_OK;
}

/* A queue of rank << 32 | position: equal ranks come out leftmost first. */
static vb_err heap_push(vb__bpe_scratch *s, uint64_t x) {
    if (s->n_heap == s->cap_heap) {
        size_t cap = s->cap_heap < 256 ? 256 : 2 * s->cap_heap;
        uint64_t *p = vb__realloc_array(VB_TAG_TEXT, s->heap, cap, sizeof *p);
        if (p == NULL) return VB_E_MEMORY;
        s->heap = p;
        s->cap_heap = cap;
    }
    size_t i = s->n_heap++;
    for (; i > 0 && s->heap[(i - 1) / 2] > x; i = (i - 1) / 2) s->heap[i] = s->heap[(i - 1) / 2];
    s->heap[i] = x;
    return VB_OK;
}

static uint64_t heap_pop(vb__bpe_scratch *s) {
    uint64_t top = s->heap[0], x = s->heap[--s->n_heap];
    size_t i = 0, n = s->n_heap;
    for (size_t c; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && s->heap[c + 1] < s->heap[c]) c++;
        if (s->heap[c] >= x) break;
        s->heap[i] = s->heap[c];
    }
    if (n > 0) s->heap[i] = x;
    return top;
}

static vb_err push_pair(const vb__bpe *b, const uint64_t *hidden, vb__bpe_scratch *s, int32_t left) {
    int32_t right = left < 0 ? -1 : s->symbols[left].next;
    if (right < 0) return VB_OK;
    const struct vb__merge *m = find_merge(b, hidden, s->symbols[left].id, s->symbols[right].id);
    return m == NULL ? VB_OK : heap_push(s, (uint64_t)m->rank << 32 | (uint32_t)left);
}

static vb_err merge_long(const vb__bpe *b, const uint64_t *hidden, vb__bpe_scratch *s, size_t n,
                         vb__ids *out) {
    struct vb__bpe_symbol *y = s->symbols;
    s->n_heap = 0;
    for (size_t i = 0; i < n; i++) {
        y[i].prev = (int32_t)i - 1;
        y[i].next = i + 1 < n ? (int32_t)i + 1 : -1;
    }
    for (size_t i = 0; i < n; i++) VB_TRY(push_pair(b, hidden, s, (int32_t)i));
    while (s->n_heap > 0) {
        uint64_t top = heap_pop(s);
        int32_t left = (int32_t)(uint32_t)top, right = y[left].id < 0 ? -1 : y[left].next;
        if (right < 0) continue;
        /* An entry is stale when its pair has changed since: then the pair there now has another rule. */
        const struct vb__merge *m = find_merge(b, hidden, y[left].id, y[right].id);
        if (m == NULL || m->rank != (uint32_t)(top >> 32)) continue;
        y[left].id = m->id;
        y[left].next = y[right].next;
        if (y[right].next >= 0) y[y[right].next].prev = left;
        y[right].id = VB_NO_TOKEN; /* gone */
        VB_TRY(push_pair(b, hidden, s, y[left].prev));
        VB_TRY(push_pair(b, hidden, s, left));
    }
    for (int32_t i = 0; i >= 0; i = y[i].next) VB_TRY(vb__ids_push(out, y[i].id));
    return VB_OK;
}

vb_err vb__bpe_encode(const vb__bpe *b, const vb__vocabulary *v, vb__bpe_scratch *s, const uint64_t *hidden,
                      const char *word, size_t n, vb__ids *out) {
    if (b->byte_level && b->has_all_bytes && n <= SHORT_WORD) {
        int32_t id[SHORT_WORD];
        for (size_t i = 0; i < n; i++) id[i] = b->byte_ids[(unsigned char)word[i]];
        return merge_short(b, hidden, id, n, out);
    }
    size_t k = 0;
    if (b->byte_level) {
        bool pending = false;
        VB_TRY(reserve_symbols(s, n + 1));
        for (size_t i = 0; i < n; i++) {
            int32_t id = b->byte_ids[(unsigned char)word[i]];
            if (id >= 0) {
                if (pending) s->symbols[k++].id = b->unk;
                pending = false;
                s->symbols[k++].id = id;
            } else if (b->unk == VB_UNK_MISSING) {
                return VB_E_FORMAT;
            } else if (b->unk >= 0) {
                if (pending && !b->fuse_unk) s->symbols[k++].id = b->unk;
                pending = true;
            }
        }
        if (pending) s->symbols[k++].id = b->unk;
    } else {
        VB_TRY(char_symbols(b, v, s, hidden, word, n, &k));
    }
    if (k == 0) return VB_OK;
    if (k <= SHORT_WORD) {
        int32_t id[SHORT_WORD];
        for (size_t i = 0; i < k; i++) id[i] = s->symbols[i].id;
        return merge_short(b, hidden, id, k, out);
    }
    return merge_long(b, hidden, s, k, out);
}

size_t vb__bpe_next_cut(const vb__bpe *b, const vb__vocabulary *v, const char *word, size_t n) {
    if (b->joined == NULL || n == 0) return n;
    size_t i = 0;
    uint32_t last = vb__utf8_next(word, n, &i);
    bool last_known = char_id(b, v, word, i, last) >= 0;
    while (i < n) {
        size_t at = i;
        uint32_t c = vb__utf8_next(word, n, &i), bit = pair_bit(last, c);
        bool known = char_id(b, v, word + at, i - at, c) >= 0;
        if (known && last_known && (b->joined[bit / 64] >> bit % 64 & 1) == 0) return at;
        last = c;
        last_known = known;
    }
    return n;
}
