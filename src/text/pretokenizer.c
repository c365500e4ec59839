#include "text/pretokenizer.h"
#include "base/alloc.h"
#include "text/normalizer.h"
#include "text/pre_scan.h"
#include "text/vocabulary.h"
#include <string.h>

void vb__pretokenizer_fini(vb__pretokenizer *p) {
    for (int i = 0; i < p->n_steps; i++) {
        vb__regex_destroy(p->step[i].regex);
        vb__free(p->step[i].pattern);
    }
    *p = (vb__pretokenizer){0};
}

/* One run: where the pieces of a step go. */
typedef struct run {
    const vb__pretokenizer *p;
    vb__pre_scratch *s;
    vb__word_fn *word;
    void *ctx;
    vb_error *err;
} run;

static vb_err do_step(const run *r, int k, const char *text, size_t n, bool first);

/* ---- behaviours: a stream of (stretch, is a match) becomes pieces ---- */

typedef struct cutter {
    const run *r;
    int next; /* the step that takes the pieces */
    const char *text;
    bool first; /* the text begins where the whole input begins */
    bool invert;
    vb__pre_behavior behavior;
    bool held, previous; /* a piece is held back; the last stretch was a match */
    size_t a, b;
} cutter;

static inline vb_err cut_emit(const cutter *c, size_t a, size_t b) {
    return a == b ? VB_OK : do_step(c->r, c->next, c->text + a, b - a, c->first && a == 0);
}

static vb_err cut(cutter *c, size_t a, size_t b, bool match) {
    if (c->invert) match = !match;
    bool join = false;
    switch (c->behavior) {
    case VB_PRE_ISOLATED: return cut_emit(c, a, b);
    case VB_PRE_REMOVED: return match ? VB_OK : cut_emit(c, a, b);
    case VB_PRE_CONTIGUOUS: join = c->held && match == c->previous; break;
    case VB_PRE_MERGED_WITH_PREVIOUS: join = c->held && match && !c->previous; break;
    case VB_PRE_MERGED_WITH_NEXT: join = c->held && c->previous && !match; break;
    }
    c->previous = match;
    if (join) {
        c->b = b;
        return VB_OK;
    }
    vb_err e = c->held ? cut_emit(c, c->a, c->b) : VB_OK;
    c->held = true;
    c->a = a;
    c->b = b;
    return e;
}

static vb_err cut_end(cutter *c) { return c->held ? cut_emit(c, c->a, c->b) : VB_OK; }

/* ---- splitters ---- */

/* Stretches of a regular expression, as the stock library finds them: an empty match is not taken where the
 * last match ended. */
static vb_err split_regex(const run *r, const vb__pre_step *step, cutter *c, size_t n) {
    size_t done = 0, from = 0, last_end = SIZE_MAX;
    while (from <= n) {
        if (step->scan != VB_SCAN_NONE) { /* Isolated, not inverted: pieces are matches */
            size_t end;
            while (from < n && (end = vb__pre_scan_next(step->scan, c->text, n, from)) > from) {
                VB_TRY(cut_emit(c, from, end));
                done = from = last_end = end;
            }
            if (from >= n) break;
        }
        bool found;
        size_t a, b;
        VB_TRY(vb__regex_find(step->regex, r->s->regex, c->text, n, from, &found, &a, &b, r->err));
        if (!found) break;
        if (a == b && b == last_end) {
            from += from < n ? vb__utf8_len((unsigned char)c->text[from]) : 1;
            continue;
        }
        if (a > done) VB_TRY(cut(c, done, a, false));
        VB_TRY(cut(c, a, b, true));
        done = from = last_end = b;
    }
    return done < n ? cut(c, done, n, false) : VB_OK;
}

static vb_err split_literal(const vb__pre_step *step, cutter *c, size_t n) {
    size_t done = 0;
    while (step->n_pattern != 0) {
        size_t a = vb__find_literal(c->text, n, done, step->pattern, step->n_pattern);
        if (a >= n) break;
        if (a > done) VB_TRY(cut(c, done, a, false));
        VB_TRY(cut(c, a, a + step->n_pattern, true));
        done = a + step->n_pattern;
    }
    return done < n ? cut(c, done, n, false) : VB_OK;
}

static bool char_matches(const vb__pre_step *step, uint32_t ch) {
    switch (step->kind) {
    case VB_PRE_DIGITS: return vb__char_is_numeric(ch);
    case VB_PRE_WHITESPACE_SPLIT: return vb__char_is_space(ch);
    case VB_PRE_PUNCTUATION: return vb__char_is_punct(ch);
    default: return ch == step->delimiter;
    }
}

/* Every matching character is a match of its own. */
static vb_err split_chars(const vb__pre_step *step, cutter *c, size_t n) {
    size_t done = 0;
    for (size_t i = 0; i < n;) {
        size_t a = i;
        if (!char_matches(step, vb__utf8_next(c->text, n, &i))) continue;
        if (a > done) VB_TRY(cut(c, done, a, false));
        VB_TRY(cut(c, a, i, true));
        done = i;
    }
    return done < n ? cut(c, done, n, false) : VB_OK;
}

/* \w+|[^\w\s]+ ; what it does not match is removed. */
static vb_err split_whitespace(cutter *c, size_t n) {
    size_t a = 0;
    int last = 0; /* 0: space, 1: word, 2: other */
    for (size_t i = 0; i < n;) {
        size_t at = i;
        uint32_t ch = vb__utf8_next(c->text, n, &i);
        int class = vb__char_is_word(ch) ? 1 : vb__char_is_space(ch) ? 0 : 2;
        if (class == last) continue;
        if (last != 0) VB_TRY(cut_emit(c, a, at));
        last = class;
        a = at;
    }
    return last != 0 ? cut_emit(c, a, n) : VB_OK;
}

/* ---- steps that rewrite ---- */

static vb_err out_of_room(const run *r, vb_err e) {
    return vb__fail(r->err, e, "text: %s in the pre-tokenizer", vb_err_message(e));
}

static vb_err metaspace(const run *r, int k, const char *text, size_t n, bool first) {
    const vb__pre_step *step = &r->p->step[k];
    vb__textbuf *b = &r->s->buf[k];
    const char *rep = step->pattern;
    size_t m = step->n_pattern;
    vb__textbuf_clear(b, false);
    vb_err e = vb__textbuf_reserve(b, n + m);
    bool prepend = step->prepend == VB_PREPEND_ALWAYS || (step->prepend == VB_PREPEND_FIRST && first);
    bool starts = text[0] == ' ' || (n >= m && memcmp(text, rep, m) == 0);
    if (e == VB_OK && prepend && !starts) e = vb__textbuf_put(b, rep, m, false);
    for (size_t done = 0; e == VB_OK && done < n;) {
        size_t a = vb__find_literal(text, n, done, " ", 1);
        e = vb__textbuf_put(b, text + done, a - done, false);
        if (e == VB_OK && a < n) e = vb__textbuf_put(b, rep, m, false);
        done = a + 1;
    }
    if (e != VB_OK) return out_of_room(r, e);
    if (!step->split) return do_step(r, k + 1, b->data, b->len, first);
    cutter c = {.r = r, .next = k + 1, .text = b->data, .first = first, .behavior = VB_PRE_MERGED_WITH_NEXT};
    VB_TRY(split_literal(step, &c, b->len));
    return cut_end(&c);
}

static vb_err byte_map(const run *r, int k, const char *text, size_t n, bool first) {
    vb__textbuf *b = &r->s->buf[k];
    vb__textbuf_clear(b, false);
    vb_err e = vb__textbuf_reserve(b, 2 * n);
    if (e != VB_OK) return out_of_room(r, e);
    for (size_t i = 0; i < n; i++)
        b->len += vb__utf8_put(b->data + b->len, vb__byte_char((unsigned char)text[i]));
    return do_step(r, k + 1, b->data, b->len, first);
}

static vb_err byte_level(const run *r, int k, const char *text, size_t n, bool first) {
    const vb__pre_step *step = &r->p->step[k];
    if (step->add_prefix_space && text[0] != ' ') {
        vb__textbuf *b = &r->s->buf[k];
        vb__textbuf_clear(b, false);
        vb_err e = vb__textbuf_put(b, " ", 1, false);
        if (e == VB_OK) e = vb__textbuf_put(b, text, n, false);
        if (e != VB_OK) return out_of_room(r, e);
        text = b->data;
        n = b->len;
    }
    if (step->regex == NULL) return do_step(r, k + 1, text, n, first);
    cutter c = {.r = r, .next = k + 1, .text = text, .first = first, .behavior = VB_PRE_ISOLATED};
    VB_TRY(split_regex(r, step, &c, n));
    return cut_end(&c);
}

static vb_err do_step(const run *r, int k, const char *text, size_t n, bool first) {
    if (k >= r->p->n_steps) return r->word(r->ctx, text, n, r->err);
    const vb__pre_step *step = &r->p->step[k];
    if (step->kind == VB_PRE_METASPACE) return metaspace(r, k, text, n, first);
    if (step->kind == VB_PRE_BYTE_LEVEL) return byte_level(r, k, text, n, first);
    if (step->kind == VB_PRE_BYTE_MAP) return byte_map(r, k, text, n, first);
    cutter c = {.r = r,
                .next = k + 1,
                .text = text,
                .first = first,
                .invert = step->invert,
                .behavior = step->behavior};
    switch (step->kind) {
    case VB_PRE_SPLIT:
        if (step->regex != NULL) VB_TRY(split_regex(r, step, &c, n));
        else VB_TRY(split_literal(step, &c, n));
        break;
    case VB_PRE_WHITESPACE: VB_TRY(split_whitespace(&c, n)); break;
    default: VB_TRY(split_chars(step, &c, n)); break;
    }
    return cut_end(&c);
}

vb_err vb__pretokenizer_run(const vb__pretokenizer *p, vb__pre_scratch *s, const char *text, size_t n,
                            bool first, vb__word_fn *word, void *ctx, vb_error *err) {
    run r = {p, s, word, ctx, err};
    return n == 0 ? VB_OK : do_step(&r, 0, text, n, first);
}
