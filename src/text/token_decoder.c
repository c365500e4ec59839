#include "text/token_decoder.h"
#include "base/alloc.h"
#include "text/normalizer.h"
#include "text/text_unicode.h"
#include "text/vocabulary.h"
#include <string.h>

enum { TEXT_MAX = 1 << 30 };
static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */

void vb__decoder_fini(vb__decoder *d) {
    for (int i = 0; i < d->n_steps; i++) {
        vb__free(d->step[i].pattern);
        vb__free(d->step[i].content);
        vb__regex_destroy(d->step[i].regex);
    }
    *d = (vb__decoder){0};
}

vb_err vb__decoder_prepare(vb__decoder *d, vb_error *err) {
    bool fused = false;
    for (int i = 0; i < d->n_steps; i++) {
        vb__dec_step *s = &d->step[i];
        s->fused = fused;
        if (fused && (s->kind == VB_DEC_BYTE_LEVEL || s->kind == VB_DEC_BYTE_FALLBACK || s->regex != NULL))
            return vb__fail(err, VB_E_UNSUPPORTED, "decoder: %s after Fuse or ByteLevel is not supported",
                            s->regex != NULL               ? "Replace with a regular expression"
                            : s->kind == VB_DEC_BYTE_LEVEL ? "ByteLevel"
                                                           : "ByteFallback");
        if (s->kind == VB_DEC_BYTE_LEVEL || s->kind == VB_DEC_FUSE) fused = true;
    }
    return VB_OK;
}

/* ---- the stream ---- */

void vb__dec_stream_init(vb__dec_stream *s) {
    *s = (vb__dec_stream){0};
    vb__buffer_init(&s->out, TEXT_MAX);
    for (int i = 0; i < VB_LIMIT_TEXT_STEPS; i++) {
        vb__buffer_init(&s->state[i].held, TEXT_MAX);
        vb__buffer_init(&s->temp[i], TEXT_MAX);
    }
}

void vb__dec_stream_fini(vb__dec_stream *s) {
    vb__buffer_fini(&s->out);
    for (int i = 0; i < VB_LIMIT_TEXT_STEPS; i++) {
        vb__buffer_fini(&s->state[i].held);
        vb__buffer_fini(&s->temp[i]);
    }
    vb__regex_scratch_fini(&s->regex);
}

void vb__dec_stream_reset(vb__dec_stream *s) {
    for (int i = 0; i < VB_LIMIT_TEXT_STEPS; i++) {
        vb__buffer_clear(&s->state[i].held);
        s->state[i].count = 0;
        s->state[i].broken = s->state[i].started = false;
    }
}

typedef struct pass {
    const vb__decoder *d;
    vb__dec_stream *s;
    vb_error *err;
} pass;

static vb_err feed(const pass *p, int k, const char *t, size_t n);

/* ---- bytes to characters ---- */

/* How many bytes the sequence that begins with b[0] has, and whether b[0..n) is a beginning of a character.
 */
static size_t sequence_length(unsigned char c) {
    return c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
}

static bool continues(const unsigned char *b, size_t n, unsigned char next) {
    unsigned low = 0x80, high = 0xbf;
    if (n == 1) {
        if (b[0] == 0xe0) low = 0xa0;
        if (b[0] == 0xed) high = 0x9f;
        if (b[0] == 0xf0) low = 0x90;
        if (b[0] == 0xf4) high = 0x8f;
    }
    return next >= low && next <= high;
}

/* Feeds one byte: U+FFFD for each maximal broken part, whole characters otherwise. The bytes of an unfinished
 * character are held; characters go to out. */
static vb_err lossy_byte(vb__buffer *held, unsigned char c, vb__buffer *out) {
    if (held->len > 0) {
        const unsigned char *b = (const unsigned char *)held->data;
        if (continues(b, held->len, c)) {
            VB_TRY(vb__buffer_putc(held, (char)c));
            if (held->len < sequence_length((unsigned char)held->data[0])) return VB_OK;
            VB_TRY(vb__buffer_append(out, held->data, held->len));
            vb__buffer_clear(held);
            return VB_OK;
        }
        vb__buffer_clear(held);
        VB_TRY(vb__buffer_puts(out, replacement));
    }
    size_t n = sequence_length(c);
    if (n == 0) return vb__buffer_puts(out, replacement);
    return vb__buffer_putc(n == 1 ? out : held, (char)c);
}

/* A token's bytes: one for each character that stands for one; if any does not, the token's own. */
static vb_err byte_level_bytes(const char *t, size_t n, vb__buffer *out) {
    size_t start = out->len;
    for (size_t i = 0; i < n;) {
        int byte = vb__char_byte(vb__utf8_next(t, n, &i));
        if (byte < 0) {
            out->len = start;
            return vb__buffer_append(out, t, n);
        }
        VB_TRY(vb__buffer_putc(out, (char)byte));
    }
    return out->error;
}

static vb_err byte_level(const pass *p, int k, const char *t, size_t n) {
    vb__buffer *bytes = &p->s->state[k].held, *raw = &p->s->temp[k];
    vb__buffer_clear(raw);
    VB_TRY(byte_level_bytes(t, n, raw));
    /* Characters go to the next step together; `raw` is rewritten in place from its end on. */
    size_t m = raw->len;
    if (m == 0) return VB_OK;
    for (size_t i = 0; i < m; i++) VB_TRY(lossy_byte(bytes, (unsigned char)raw->data[i], raw));
    return feed(p, k + 1, raw->data + m, raw->len - m);
}

/* ---- byte fallback: a run of byte tokens is text when all of it is UTF-8, else one U+FFFD a byte ---- */

static vb_err replacements(const pass *p, int k, size_t n) {
    for (size_t i = 0; i < n; i++) VB_TRY(feed(p, k + 1, replacement, 3));
    return VB_OK;
}

static vb_err byte_run_end(const pass *p, int k) {
    struct vb__dec_state *st = &p->s->state[k];
    vb_err e = VB_OK;
    if (st->held.len > 0) {
        size_t n = st->held.len;
        e = vb__utf8_check(st->held.data, n) == n ? feed(p, k + 1, st->held.data, n) : replacements(p, k, n);
    }
    vb__buffer_clear(&st->held);
    st->broken = false;
    st->count = 0;
    return e;
}

static vb_err byte_fallback(const pass *p, int k, const char *t, size_t n) {
    struct vb__dec_state *st = &p->s->state[k];
    int byte = vb__byte_token(t, n);
    if (byte < 0) {
        VB_TRY(byte_run_end(p, k));
        return feed(p, k + 1, t, n);
    }
    if (!st->broken) {
        /* count: where the unfinished character at the end of the run begins */
        const unsigned char *open = (const unsigned char *)vb__buffer_str(&st->held) + st->count;
        size_t m = st->held.len - st->count;
        bool good =
            m == 0 ? sequence_length((unsigned char)byte) != 0 : continues(open, m, (unsigned char)byte);
        if (good) {
            VB_TRY(vb__buffer_putc(&st->held, (char)byte));
            if (m + 1 == sequence_length((unsigned char)st->held.data[st->count])) st->count = st->held.len;
            return VB_OK;
        }
        size_t held = st->held.len;
        vb__buffer_clear(&st->held);
        st->broken = true;
        VB_TRY(replacements(p, k, held));
    }
    return replacements(p, k, 1);
}

/* ---- replace ---- */

static vb_err replace_token(const pass *p, int k, const char *t, size_t n) {
    const vb__dec_step *step = &p->d->step[k];
    vb__buffer *b = &p->s->temp[k];
    vb__buffer_clear(b);
    size_t done = 0, from = 0, last_end = SIZE_MAX;
    while (from <= n) {
        bool found = false;
        size_t a = n, e = n;
        if (step->regex != NULL)
            VB_TRY(vb__regex_find(step->regex, &p->s->regex, t, n, from, &found, &a, &e, p->err));
        else if (step->n_pattern != 0) {
            a = vb__find_literal(t, n, from, step->pattern, step->n_pattern);
            found = a < n;
            e = a + step->n_pattern;
        }
        if (!found) break;
        if (a == e && e == last_end) {
            from += from < n ? vb__utf8_len((unsigned char)t[from]) : 1;
            continue;
        }
        VB_TRY(vb__buffer_append(b, t + done, a - done));
        VB_TRY(vb__buffer_append(b, step->content, step->n_content));
        done = from = last_end = e;
    }
    if (done == 0) return feed(p, k + 1, t, n);
    VB_TRY(vb__buffer_append(b, t + done, n - done));
    return feed(p, k + 1, vb__buffer_str(b), b->len);
}

/* Literal, in one text: what may still become the pattern is held. */
static vb_err replace_fused(const pass *p, int k, const char *t, size_t n, bool end) {
    const vb__dec_step *step = &p->d->step[k];
    vb__buffer *held = &p->s->state[k].held, *b = &p->s->temp[k];
    VB_TRY(vb__buffer_append(held, t, n));
    vb__buffer_clear(b);
    size_t done = 0, m = step->n_pattern;
    while (m != 0) {
        size_t a = vb__find_literal(held->data == NULL ? "" : held->data, held->len, done, step->pattern, m);
        if (a >= held->len) break;
        VB_TRY(vb__buffer_append(b, held->data + done, a - done));
        VB_TRY(vb__buffer_append(b, step->content, step->n_content));
        done = a + m;
    }
    size_t keep = 0;
    if (!end && m != 0) {
        keep = held->len - done < m - 1 ? held->len - done : m - 1;
        while (keep > 0 && memcmp(held->data + held->len - keep, step->pattern, keep) != 0) keep--;
    }
    if (held->len > done + keep) VB_TRY(vb__buffer_append(b, held->data + done, held->len - done - keep));
    if (keep > 0) memmove(held->data, held->data + held->len - keep, keep);
    held->len = keep;
    return b->len > 0 ? feed(p, k + 1, b->data, b->len) : VB_OK;
}

/* ---- strip ---- */

static size_t count_prefix(const vb__dec_step *step, const char *t, size_t n, uint64_t most) {
    size_t i = 0, m = step->n_content;
    for (uint64_t c = 0; c < most && n - i >= m && memcmp(t + i, step->content, m) == 0; c++) i += m;
    return i;
}

static size_t count_suffix(const vb__dec_step *step, const char *t, size_t n, uint64_t most) {
    size_t i = 0, m = step->n_content;
    for (uint64_t c = 0; c < most && n - i >= m && memcmp(t + n - i - m, step->content, m) == 0; c++) i += m;
    return i;
}

static vb_err strip_token(const pass *p, int k, const char *t, size_t n) {
    const vb__dec_step *step = &p->d->step[k];
    size_t a = count_prefix(step, t, n, step->start), b = count_suffix(step, t, n, step->stop);
    return a + b >= n ? feed(p, k + 1, "", 0) : feed(p, k + 1, t + a, n - a - b);
}

static vb_err strip_fused(const pass *p, int k, const char *t, size_t n, bool end) {
    const vb__dec_step *step = &p->d->step[k];
    struct vb__dec_state *st = &p->s->state[k];
    if (!st->started && n > 0) {
        size_t a = count_prefix(step, t, n, step->start - st->count);
        st->count += a / step->n_content;
        t += a;
        n -= a;
        if (st->count == step->start || n > 0) st->started = true;
    }
    if (step->stop == 0) return n > 0 ? feed(p, k + 1, t, n) : VB_OK;
    VB_TRY(vb__buffer_append(&st->held, t, n));
    size_t b = count_suffix(step, vb__buffer_str(&st->held), st->held.len, step->stop),
           out = st->held.len - b;
    if (out > 0) VB_TRY(feed(p, k + 1, st->held.data, out));
    if (b > 0) memmove(st->held.data, st->held.data + out, b);
    st->held.len = end ? 0 : b;
    return VB_OK;
}

/* ---- metaspace, join ---- */

static vb_err metaspace(const pass *p, int k, const char *t, size_t n) {
    const vb__dec_step *step = &p->d->step[k];
    struct vb__dec_state *st = &p->s->state[k];
    bool drop = step->drop_first && (step->fused || st->count == 0);
    vb__buffer *b = &p->s->temp[k];
    st->count++;
    vb__buffer_clear(b);
    size_t m = step->n_pattern;
    for (size_t done = 0; done < n;) {
        size_t a = vb__find_literal(t, n, done, step->pattern, m);
        VB_TRY(vb__buffer_append(b, t + done, a - done));
        if (a < n && !drop) VB_TRY(vb__buffer_putc(b, ' '));
        done = a < n ? a + m : n;
    }
    return feed(p, k + 1, vb__buffer_str(b), b->len);
}

static vb_err join(const pass *p, int k, const char *t, size_t n) {
    struct vb__dec_state *st = &p->s->state[k];
    if (st->count++ > 0) VB_TRY(feed(p, k + 1, " ", 1));
    return feed(p, k + 1, t, n);
}

static vb_err feed(const pass *p, int k, const char *t, size_t n) {
    if (k >= p->d->n_steps) return vb__buffer_append(&p->s->out, t, n);
    const vb__dec_step *step = &p->d->step[k];
    if (step->fused && n == 0) return VB_OK;
    switch (step->kind) {
    case VB_DEC_BYTE_LEVEL: return byte_level(p, k, t, n);
    case VB_DEC_REPLACE: return step->fused ? replace_fused(p, k, t, n, false) : replace_token(p, k, t, n);
    case VB_DEC_BYTE_FALLBACK: return byte_fallback(p, k, t, n);
    case VB_DEC_FUSE: return feed(p, k + 1, t, n);
    case VB_DEC_STRIP: return step->fused ? strip_fused(p, k, t, n, false) : strip_token(p, k, t, n);
    case VB_DEC_METASPACE: return metaspace(p, k, t, n);
    case VB_DEC_JOIN: return join(p, k, t, n);
    }
    return VB_E_INTERNAL;
}

static vb_err wrap(vb_err e, vb_error *err, vb_error *inner) {
    if (e == VB_OK) return e;
    if (inner->code == e) return vb__fail(err, e, "%s", inner->text);
    return vb__fail(err, e, "decoder: %s", vb_err_message(e));
}

vb_err vb__decoder_push(const vb__decoder *d, vb__dec_stream *s, const char *token, size_t n, vb_error *err) {
    vb_error inner = {.code = VB_OK};
    pass p = {d, s, &inner};
    vb_err e = feed(&p, 0, token, n);
    return wrap(e, err, &inner);
}

vb_err vb__decoder_end(const vb__decoder *d, vb__dec_stream *s, vb_error *err) {
    vb_error inner = {.code = VB_OK};
    pass p = {d, s, &inner};
    vb_err e = VB_OK;
    for (int k = 0; e == VB_OK && k < d->n_steps; k++) {
        const vb__dec_step *step = &d->step[k];
        bool unfinished = s->state[k].held.len > 0;
        switch (step->kind) {
        case VB_DEC_BYTE_LEVEL:
            vb__buffer_clear(&s->state[k].held);
            if (unfinished) e = feed(&p, k + 1, replacement, 3);
            break;
        case VB_DEC_BYTE_FALLBACK: e = byte_run_end(&p, k); break;
        case VB_DEC_REPLACE:
            if (step->fused) e = replace_fused(&p, k, "", 0, true);
            break;
        case VB_DEC_STRIP:
            if (step->fused) e = strip_fused(&p, k, "", 0, true);
            break;
        default: break;
        }
    }
    return wrap(e, err, &inner);
}

vb_err vb__decoder_token_bytes(const vb__decoder *d, vb__dec_stream *s, const char *token, size_t n,
                               vb__buffer *out, vb_error *err) {
    vb__buffer *b[2] = {&s->temp[0], &s->temp[1]};
    const char *t = token;
    int side = 0;
    for (int k = 0; k < d->n_steps; k++) {
        const vb__dec_step *step = &d->step[k];
        vb__buffer *to = b[side];
        vb__buffer_clear(to);
        if (step->kind == VB_DEC_BYTE_LEVEL) {
            VB_TRY(byte_level_bytes(t, n, to));
        } else if (step->kind == VB_DEC_BYTE_FALLBACK && vb__byte_token(t, n) >= 0) {
            VB_TRY(vb__buffer_putc(to, (char)vb__byte_token(t, n)));
            return vb__buffer_append(out, to->data, 1);
        } else if (step->kind == VB_DEC_METASPACE ||
                   (step->kind == VB_DEC_REPLACE && step->regex == NULL && step->n_pattern != 0)) {
            bool space = step->kind == VB_DEC_METASPACE;
            for (size_t done = 0; done < n;) {
                size_t a = vb__find_literal(t, n, done, step->pattern, step->n_pattern);
                VB_TRY(vb__buffer_append(to, t + done, a - done));
                if (a < n)
                    VB_TRY(vb__buffer_append(to, space ? " " : step->content, space ? 1 : step->n_content));
                done = a < n ? a + step->n_pattern : n;
            }
        } else {
            continue;
        }
        t = vb__buffer_str(to);
        n = to->len;
        side = 1 - side;
    }
    (void)err;
    return vb__buffer_append(out, t, n);
}
