#include "base/alloc.h"
#include "base/limits.h"
#include "text/detokenizer.h"
#include "text/text_unicode.h"
#include <string.h>

/* One automaton (Knuth, Morris, Pratt) per string: `at` is how many of its bytes the text so far ends with.
 */
typedef struct automaton {
    char *s;
    size_t n, at;
    uint32_t *border; /* border[i]: longest proper border of s[0..i) */
} automaton;

struct vb__stop_matcher {
    automaton *list;
    size_t n_list;
    vb__buffer held; /* text that may still be the beginning of a stop string, then what is handed out */
    size_t out;      /* bytes of held that were handed out by the last call */
    bool matched;
};

vb_err vb__stop_create(const char *const *strings, const size_t *lengths, size_t n, vb__stop_matcher **out,
                       vb_error *err) {
    if (n > VB_LIMIT_STOP_STRINGS)
        return vb__fail(err, VB_E_LIMIT, "stop: %zu strings, expected at most %d", n, VB_LIMIT_STOP_STRINGS);
    vb__stop_matcher *m = vb__calloc(VB_TAG_TEXT, 1, sizeof *m);
    vb_err e = VB_OK;
    if (m == NULL) return vb__fail(err, VB_E_MEMORY, "stop: out of memory");
    vb__buffer_init(&m->held, SIZE_MAX / 2);
    m->list = vb__calloc(VB_TAG_TEXT, n, sizeof *m->list);
    for (size_t i = 0; m->list != NULL && e == VB_OK && i < n; i++) {
        automaton *a = &m->list[m->n_list++];
        size_t len = lengths[i];
        if (len == 0 || vb__utf8_check(strings[i], len) != len) {
            e = vb__fail(err, VB_E_ARGUMENT, "stop: string %zu is %s, expected UTF-8 text", i,
                         len == 0 ? "empty" : "not UTF-8");
            break;
        }
        if (len > VB_LIMIT_STOP_BYTES) {
            e = vb__fail(err, VB_E_LIMIT, "stop: string %zu has %zu bytes, expected at most %d", i, len,
                         VB_LIMIT_STOP_BYTES);
            break;
        }
        a->n = len;
        a->s = vb__strndup(VB_TAG_TEXT, strings[i], len);
        a->border = vb__calloc(VB_TAG_TEXT, len + 1, sizeof *a->border);
        if (a->s == NULL || a->border == NULL) e = vb__fail(err, VB_E_MEMORY, "stop: out of memory");
        for (size_t j = 1, k = 0; e == VB_OK && j < len; j++) {
            while (k > 0 && a->s[j] != a->s[k]) k = a->border[k];
            if (a->s[j] == a->s[k]) k++;
            a->border[j + 1] = (uint32_t)k;
        }
    }
    if (m->list == NULL) e = vb__fail(err, VB_E_MEMORY, "stop: out of memory");
    if (e != VB_OK) {
        vb__stop_destroy(m);
        return e;
    }
    *out = m;
    return VB_OK;
}

void vb__stop_destroy(vb__stop_matcher *m) {
    if (m == NULL) return;
    for (size_t i = 0; i < m->n_list; i++) {
        vb__free(m->list[i].s);
        vb__free(m->list[i].border);
    }
    vb__free(m->list);
    vb__buffer_fini(&m->held);
    vb__free(m);
}

void vb__stop_reset(vb__stop_matcher *m) {
    for (size_t i = 0; i < m->n_list; i++) m->list[i].at = 0;
    vb__buffer_clear(&m->held);
    m->out = 0;
    m->matched = false;
}

static void drop_handed_out(vb__stop_matcher *m) {
    if (m->out > 0) memmove(m->held.data, m->held.data + m->out, m->held.len - m->out);
    m->held.len -= m->out;
    m->out = 0;
}

/* Moves one automaton by one byte; true when its string is complete. */
static bool step(automaton *a, char c) {
    size_t k = a->at;
    while (k > 0 && a->s[k] != c) k = a->border[k];
    if (a->s[k] == c) k++;
    a->at = k;
    return k == a->n;
}

vb_err vb__stop_push(vb__stop_matcher *m, const char *text, size_t n, const char **out, size_t *n_out,
                     int32_t *match) {
    drop_handed_out(m);
    *out = "";
    *n_out = 0;
    *match = -1;
    if (m->matched) return VB_OK;
    size_t before = m->held.len;
    VB_TRY(vb__buffer_append(&m->held, text, n));
    for (size_t i = 0; i < n; i++) {
        size_t best = 0;
        for (size_t k = 0; k < m->n_list; k++)
            if (step(&m->list[k], text[i]) && m->list[k].n > best) {
                best = m->list[k].n;
                *match = (int32_t)k;
            }
        if (best == 0) continue;
        m->matched = true;
        m->held.len = before + i + 1;
        m->out = m->held.len;
        *out = m->held.data;
        *n_out = m->held.len - best;
        return VB_OK;
    }
    size_t keep = 0;
    for (size_t k = 0; k < m->n_list; k++)
        if (m->list[k].at > keep) keep = m->list[k].at;
    m->out = m->held.len - keep;
    *out = vb__buffer_str(&m->held);
    *n_out = m->out;
    return VB_OK;
}

void vb__stop_end(vb__stop_matcher *m, const char **out, size_t *n_out) {
    drop_handed_out(m);
    m->out = m->held.len;
    *out = vb__buffer_str(&m->held);
    *n_out = m->held.len;
    for (size_t i = 0; i < m->n_list; i++) m->list[i].at = 0;
}
