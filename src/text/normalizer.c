#include "text/normalizer.h"
#include "base/alloc.h"
#include <string.h>

void vb__normalizer_fini(vb__normalizer *n) {
    for (int i = 0; i < n->n_steps; i++) {
        vb__free(n->step[i].pattern);
        vb__free(n->step[i].content);
        vb__regex_destroy(n->step[i].regex);
    }
    *n = (vb__normalizer){0};
}

size_t vb__find_literal(const char *text, size_t len, size_t from, const char *pattern, size_t m) {
    if (from > len) return len;
    const char *p =
        m == 1 ? memchr(text + from, pattern[0], len - from) : memmem(text + from, len - from, pattern, m);
    return p == NULL ? len : (size_t)(p - text);
}

static bool any_user(const uint8_t *user, size_t a, size_t b) {
    return user != NULL && b > a && memchr(user + a, 1, b - a) != NULL;
}

static const uint8_t *origins_at(const vb__text_view *t, size_t i) {
    return t->user == NULL ? NULL : t->user + i;
}

/* The next match at or after *from that the stock library would take: an empty one is passed over when it
 * touches the match before. */
static vb_err next_match(const vb__norm_step *step, vb__norm_scratch *s, const vb__text_view *t, size_t from,
                         size_t last_end, bool *found, size_t *a, size_t *b, vb_error *err) {
    if (step->regex == NULL) {
        *a = step->n_pattern == 0 ? t->len
                                  : vb__find_literal(t->data, t->len, from, step->pattern, step->n_pattern);
        *b = *a + step->n_pattern;
        *found = *a < t->len;
        return VB_OK;
    }
    for (;;) {
        *found = false;
        if (from > t->len) return VB_OK;
        VB_TRY(vb__regex_find(step->regex, s->regex, t->data, t->len, from, found, a, b, err));
        if (!*found || *a != *b || *b != last_end) return VB_OK;
        from += from < t->len ? vb__utf8_len((unsigned char)t->data[from]) : 1;
    }
}

static vb_err replace(const vb__norm_step *step, vb__norm_scratch *s, const vb__text_view *t,
                      vb__textbuf *out, bool *changed, vb_error *err) {
    size_t done = 0, from = 0, last_end = SIZE_MAX;
    for (;;) {
        bool found;
        size_t a, b;
        VB_TRY(next_match(step, s, t, from, last_end, &found, &a, &b, err));
        if (!found) break;
        *changed = true;
        VB_TRY(vb__textbuf_copy(out, t->data + done, a - done, origins_at(t, done)));
        VB_TRY(vb__textbuf_put(out, step->content, step->n_content, any_user(t->user, a, b)));
        done = from = last_end = b;
    }
    return *changed ? vb__textbuf_copy(out, t->data + done, t->len - done, origins_at(t, done)) : VB_OK;
}

static vb_err lower(const vb__text_view *t, vb__textbuf *out, bool *changed) {
    VB_TRY(vb__textbuf_reserve(out, t->len));
    for (size_t i = 0; i < t->len;) {
        size_t from = i;
        uint32_t c = vb__utf8_next(t->data, t->len, &i), to[2];
        int k = vb__char_lower(c, to);
        *changed = *changed || k != 1 || to[0] != c;
        for (int j = 0; j < k; j++) {
            char bytes[4];
            VB_TRY(vb__textbuf_put(out, bytes, vb__utf8_put(bytes, to[j]), any_user(t->user, from, i)));
        }
    }
    return VB_OK;
}

static vb_err strip_accents(const vb__text_view *t, vb__textbuf *out, bool *changed) {
    VB_TRY(vb__textbuf_reserve(out, t->len));
    for (size_t i = 0; i < t->len;) {
        size_t from = i;
        uint32_t c = vb__utf8_next(t->data, t->len, &i);
        if (vb__char_is_mark(c)) *changed = true;
        else VB_TRY(vb__textbuf_copy(out, t->data + from, i - from, origins_at(t, from)));
    }
    return VB_OK;
}

static void strip(const vb__norm_step *step, vb__text_view *t) {
    size_t a = 0, b = t->len;
    while (step->left && a < b) {
        size_t i = a;
        if (!vb__char_is_space(vb__utf8_next(t->data, b, &i))) break;
        a = i;
    }
    while (step->right && b > a) {
        size_t i = b - 1, j;
        while (i > a && ((unsigned char)t->data[i] & 0xc0) == 0x80) i--;
        j = i;
        if (!vb__char_is_space(vb__utf8_next(t->data, b, &j))) break;
        b = i;
    }
    *t = (vb__text_view){t->data + a, origins_at(t, a), b - a};
}

vb_err vb__normalizer_run(const vb__normalizer *n, vb__norm_scratch *s, vb__text_view *text, vb_error *err) {
    int k = 0;
    for (int i = 0; i < n->n_steps; i++) {
        const vb__norm_step *step = &n->step[i];
        vb__textbuf *out = &s->buf[k];
        bool changed = false;
        vb_err e = VB_OK;
        vb__textbuf_clear(out, text->user != NULL);
        switch (step->kind) {
        case VB_NORM_NF:
            e = vb__normalize_unicode(step->form, text->data, text->len, text->user, &s->work, out, &changed);
            break;
        case VB_NORM_PREPEND:
            if (text->len == 0 || step->n_content == 0) break;
            changed = true;
            e = vb__textbuf_put(out, step->content, step->n_content, false);
            if (e == VB_OK) e = vb__textbuf_copy(out, text->data, text->len, text->user);
            break;
        case VB_NORM_REPLACE: {
            vb_error why = {.code = VB_OK};
            e = replace(step, s, text, out, &changed, &why);
            if (e != VB_OK && why.code == e) return vb__fail(err, e, "%s", why.text);
            break;
        }
        case VB_NORM_LOWER: e = lower(text, out, &changed); break;
        case VB_NORM_STRIP: strip(step, text); break;
        case VB_NORM_STRIP_ACCENTS: e = strip_accents(text, out, &changed); break;
        }
        if (e == VB_E_LIMIT) return vb__fail(err, e, "text: normalised it has more than %zu bytes", out->max);
        if (e != VB_OK) return vb__fail(err, e, "text: %s while normalising", vb_err_message(e));
        if (changed) {
            *text = (vb__text_view){out->data == NULL ? "" : out->data, out->user, out->len};
            k = 1 - k;
        }
    }
    return VB_OK;
}
