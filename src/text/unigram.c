#include "text/unigram.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "text/text_unicode.h"
#include <stdio.h>
#include <string.h>

vb_err vb__unigram_prepare(vb__unigram *u, const vb__vocabulary *v) {
    const double *scores = u->scores;
    int32_t n = u->n_scores;
    vb__byte_trie_init(&u->trie);
    u->has_all_bytes = true;
    double lowest = n > 0 ? scores[0] : 0;
    for (int32_t id = 0; id < n; id++) {
        if (scores[id] < lowest) lowest = scores[id];
        size_t len = 0;
        const char *s = vb__vocabulary_text(v, id, &len);
        int32_t found = s == NULL || len == 0 ? VB_NO_TOKEN : vb__vocabulary_find(v, s, len);
        if (found >= 0) VB_TRY(vb__byte_trie_add(&u->trie, s, len, found));
    }
    u->unk_score = lowest - 10;
    for (unsigned i = 0; i < 256; i++) {
        char s[8];
        u->byte_ids[i] = vb__vocabulary_find(v, s, (size_t)snprintf(s, sizeof s, "<0x%02X>", i & 255));
        if (u->byte_ids[i] < 0) u->has_all_bytes = false;
    }
    return VB_OK;
}

void vb__unigram_fini(vb__unigram *u) {
    vb__byte_trie_fini(&u->trie);
    vb__free(u->scores);
    *u = (vb__unigram){0};
}

void vb__unigram_scratch_fini(vb__unigram_scratch *s) {
    vb__free(s->nodes);
    *s = (vb__unigram_scratch){0};
}

static void offer(struct vb__unigram_node *t, double score, size_t start, int32_t id) {
    if (t->start == UINT32_MAX || score > t->score)
        *t = (struct vb__unigram_node){score, (uint32_t)start, id};
}

static vb_err best_path(const vb__unigram *u, const uint64_t *hidden, struct vb__unigram_node *node,
                        const char *text, size_t n, vb_error *err) {
    node[0] = (struct vb__unigram_node){0, 0, VB_NO_TOKEN};
    for (size_t i = 1; i <= n; i++) node[i].start = UINT32_MAX;
    for (size_t from = 0; from < n;) {
        size_t one = vb__utf8_len((unsigned char)text[from]);
        double here = node[from].score;
        bool single = false;
        uint32_t at = 0;
        for (size_t i = from; i < n; i++) {
            at = vb__byte_trie_child(&u->trie, at, (uint8_t)text[i]);
            if (at == 0) break;
            int32_t id = u->trie.value[at];
            if (id < 0 || vb__id_set_has(hidden, id)) continue;
            offer(&node[i + 1], u->scores[id] + here, from, id);
            single = single || i + 1 - from == one;
        }
        if (!single) {
            if (u->unk < 0)
                return vb__fail(
                    err, VB_E_FORMAT,
                    "unk_id: the model has no unknown token, and a character of the text has no token");
            offer(&node[from + one], u->unk_score + here, from, u->unk);
        }
        from += one;
    }
    return VB_OK;
}

/* The token of text[a..b), which may be a stretch of unknown characters: its own, its bytes, or unknown. Ids
 * are written last first. */
static vb_err put_piece(const vb__unigram *u, const vb__vocabulary *v, const uint64_t *hidden,
                        const char *text, size_t a, size_t b, vb__ids *out) {
    int32_t id = vb__vocabulary_find(v, text + a, b - a);
    if (id >= 0 && !vb__id_set_has(hidden, id)) return vb__ids_push(out, id);
    bool bytes = u->byte_fallback;
    for (size_t i = a; bytes && !u->has_all_bytes && i < b; i++)
        bytes = u->byte_ids[(unsigned char)text[i]] >= 0;
    if (!bytes) return vb__ids_push(out, u->unk);
    for (size_t i = b; i > a; i--) VB_TRY(vb__ids_push(out, u->byte_ids[(unsigned char)text[i - 1]]));
    return VB_OK;
}

vb_err vb__unigram_encode(const vb__unigram *u, const vb__vocabulary *v, vb__unigram_scratch *s,
                          const uint64_t *hidden, const char *text, size_t n, vb__ids *out, vb_error *err) {
    if (n == 0) return VB_OK;
    if (n + 1 > s->cap) {
        if (n > VB_LIMIT_WORD_SYMBOLS)
            return vb__fail(err, VB_E_LIMIT, "text: a piece of %zu bytes, expected at most %d", n,
                            VB_LIMIT_WORD_SYMBOLS);
        size_t cap = 2 * s->cap > n + 1 ? 2 * s->cap : n + 1;
        struct vb__unigram_node *p = vb__realloc_array(VB_TAG_TEXT, s->nodes, cap, sizeof *p);
        if (p == NULL) return vb__fail(err, VB_E_MEMORY, "text: out of memory");
        s->nodes = p;
        s->cap = cap;
    }
    VB_TRY(best_path(u, hidden, s->nodes, text, n, err));
    size_t first = out->len,
           unknown_end = 0; /* the stretch of unknown characters that ends here; 0: none open */
    for (size_t end = n; end > 0;) {
        const struct vb__unigram_node *t = &s->nodes[end];
        vb_err e = VB_OK;
        if (u->unk >= 0 && t->id == u->unk) {
            if (unknown_end == 0) unknown_end = end;
        } else {
            if (unknown_end != 0) e = put_piece(u, v, hidden, text, end, unknown_end, out);
            unknown_end = 0;
            if (e == VB_OK) e = put_piece(u, v, hidden, text, t->start, end, out);
        }
        if (e != VB_OK) return vb__fail(err, e, "text: out of memory");
        end = t->start;
    }
    if (unknown_end != 0 && put_piece(u, v, hidden, text, 0, unknown_end, out) != VB_OK)
        return vb__fail(err, VB_E_MEMORY, "text: out of memory");
    for (size_t a = first, b = out->len; a + 1 < b; a++, b--) {
        int32_t x = out->data[a];
        out->data[a] = out->data[b - 1];
        out->data[b - 1] = x;
    }
    return VB_OK;
}
