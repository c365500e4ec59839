#include "text/json_scan.h"
#include "base/limits.h"
#include "text/text_unicode.h"
#include <stdio.h>
#include <string.h>

static bool white(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* ---- finding ---- */

/* Behind the string that begins at text[i] == '"'. */
static size_t skip_string(const char *text, size_t n, size_t i) {
    for (i++; i < n; i++) {
        const char *q = memchr(text + i, '"', n - i);
        if (q == NULL) return n;
        size_t at = (size_t)(q - text), slashes = 0;
        while (at - slashes > i && text[at - slashes - 1] == '\\') slashes++;
        i = at;
        if (slashes % 2 == 0) return i + 1;
    }
    return n;
}

/* Behind the value that begins at text[i]. */
static size_t skip_value(const char *text, size_t n, size_t i) {
    int64_t depth = 0;
    while (i < n) {
        char c = text[i];
        if (c == '"') i = skip_string(text, n, i);
        else {
            if (c == '{' || c == '[') depth++;
            if (c == '}' || c == ']') {
                if (depth == 0) return i;
                depth--;
            }
            if (c == ',' && depth == 0) return i;
            i++;
        }
        if (depth == 0 && i > 0 && (text[i - 1] == '}' || text[i - 1] == ']' || text[i - 1] == '"')) return i;
    }
    return n;
}

static size_t skip_white(const char *text, size_t n, size_t i) {
    while (i < n && white(text[i])) i++;
    return i;
}

static bool key_is(const char *text, vb__json_span key, const char *name) {
    size_t n = strlen(name);
    return key.end - key.begin == n + 2 && memcmp(text + key.begin + 1, name, n) == 0;
}

/* Members of the object at text[i] == '{', one by one; *i is where the next one begins. */
static bool next_member(const char *text, size_t n, size_t *i, vb__json_span *key, size_t *value) {
    size_t at = skip_white(text, n, *i);
    if (at < n && (text[at] == ',' || text[at] == '{')) at = skip_white(text, n, at + 1);
    if (at >= n || text[at] != '"') return false;
    key->begin = at;
    key->end = at = skip_string(text, n, at);
    at = skip_white(text, n, at);
    if (at >= n || text[at] != ':') return false;
    *value = skip_white(text, n, at + 1);
    return *value < n;
}

void vb__json_find_model(const char *text, size_t n, vb__json_span *vocab, vb__json_span *merges) {
    *vocab = *merges = (vb__json_span){0, 0};
    vb__json_span key;
    size_t i = skip_white(text, n, 0), value;
    if (i >= n || text[i] != '{') return;
    while (next_member(text, n, &i, &key, &value)) {
        if (!key_is(text, key, "model") || text[value] != '{') {
            i = skip_value(text, n, value);
            continue;
        }
        i = value;
        while (next_member(text, n, &i, &key, &value)) {
            i = skip_value(text, n, value);
            if (key_is(text, key, "vocab") && text[value] == '{') *vocab = (vb__json_span){value, i};
            if (key_is(text, key, "merges") && text[value] == '[') *merges = (vb__json_span){value, i};
        }
        return;
    }
}

vb_err vb__json_without(const char *text, size_t n, const vb__json_span *spans, int n_spans,
                        vb__buffer *out) {
    size_t done = 0;
    for (int k = 0; k < n_spans; k++) {
        /* the spans in order of place; two, so a search will do */
        const vb__json_span *next = NULL;
        for (int j = 0; j < n_spans; j++)
            if (spans[j].end > spans[j].begin && spans[j].begin >= done &&
                (next == NULL || spans[j].begin < next->begin))
                next = &spans[j];
        if (next == NULL) break;
        (void)vb__buffer_append(out, text + done, next->begin - done);
        (void)vb__buffer_putc(out, text[next->begin]);
        for (const char *p = text + next->begin, *end = text + next->end;
             (p = memchr(p, '\n', (size_t)(end - p))) != NULL; p++)
            (void)vb__buffer_putc(out, '\n');
        (void)vb__buffer_putc(out, text[next->begin] == '{' ? '}' : ']');
        done = next->end;
    }
    return vb__buffer_append(out, text + done, n - done);
}

/* ---- reading ---- */

void vb__json_scan_init(vb__json_scan *s, const char *text, vb__json_span span, const char *where) {
    *s = (vb__json_scan){.text = text, .where = where, .at = span.begin, .end = span.end};
    vb__buffer_init(&s->hold[0], VB_LIMIT_JSON_BYTES);
    vb__buffer_init(&s->hold[1], VB_LIMIT_JSON_BYTES);
}

void vb__json_scan_fini(vb__json_scan *s) {
    vb__buffer_fini(&s->hold[0]);
    vb__buffer_fini(&s->hold[1]);
}

static vb_err fail_at(const vb__json_scan *s, size_t at, const char *what, vb_error *err) {
    size_t line = 1;
    for (size_t i = 0; i < at && i < s->end; i++) line += s->text[i] == '\n';
    return vb__fail(err, VB_E_FORMAT, "%sline %zu, byte %zu: %s", s->where, line, at, what);
}

bool vb__json_scan_take(vb__json_scan *s, char c) {
    s->at = skip_white(s->text, s->end, s->at);
    if (s->at >= s->end || s->text[s->at] != c) return false;
    s->at++;
    return true;
}

vb_err vb__json_scan_expect(vb__json_scan *s, char c, vb_error *err) {
    if (vb__json_scan_take(s, c)) return VB_OK;
    char what[16] = "expected ' '";
    what[10] = c;
    return fail_at(s, s->at, what, err);
}

/* Four hex digits at text[i]; -1 when they are not there. */
static int32_t hex4(const vb__json_scan *s, size_t i) {
    int32_t x = 0;
    if (s->end - i < 4) return -1;
    for (size_t k = 0; k < 4; k++) {
        char c = s->text[i + k];
        int32_t d = c >= '0' && c <= '9'                 ? c - '0'
                    : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10
                                                         : -1;
        if (d < 0) return -1;
        x = 16 * x + d;
    }
    return x;
}

/* The escape at text[*i] == '\\'. */
static vb_err unescape(const vb__json_scan *s, size_t *i, vb__buffer *out, vb_error *err) {
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char c = *i + 1 < s->end ? s->text[*i + 1] : '\0';
    const char *simple = c == '\0' ? NULL : strchr(from, c);
    if (simple != NULL) {
        *i += 2;
        return vb__buffer_putc(out, to[simple - from]);
    }
    if (c != 'u') return fail_at(s, *i, "an unknown escape", err);
    int32_t x = hex4(s, *i + 2);
    if (x < 0) return fail_at(s, *i, "\\u needs 4 hex digits", err);
    size_t next = *i + 6;
    if (x >= 0xd800 && x < 0xdc00 && s->end - next >= 6 && s->text[next] == '\\' &&
        s->text[next + 1] == 'u') {
        int32_t low = hex4(s, next + 2);
        if (low >= 0xdc00 && low < 0xe000) {
            x = 0x10000 + ((x - 0xd800) << 10) + (low - 0xdc00);
            next += 6;
        }
    }
    if (x >= 0xd800 && x < 0xe000) return fail_at(s, *i, "half of a surrogate pair", err);
    *i = next;
    char bytes[4];
    return vb__buffer_append(out, bytes, vb__utf8_put(bytes, (uint32_t)x));
}

vb_err vb__json_scan_string(vb__json_scan *s, int which, const char **text, size_t *n, vb_error *err) {
    if (!vb__json_scan_take(s, '"')) return fail_at(s, s->at, "expected a string", err);
    vb__buffer *b = &s->hold[which];
    size_t begin = s->at, i = begin;
    bool held = false;
    for (; i < s->end && s->text[i] != '"';) {
        if ((unsigned char)s->text[i] < 0x20)
            return fail_at(s, i, "a control character inside a string", err);
        if (s->text[i] != '\\') {
            i++;
            continue;
        }
        if (!held) vb__buffer_clear(b);
        held = true;
        if (vb__buffer_append(b, s->text + begin, i - begin) != VB_OK) break;
        vb_err e = unescape(s, &i, b, err);
        if (e == VB_E_FORMAT) return e;
        begin = i;
    }
    if (i >= s->end) return fail_at(s, begin, "a string without an end", err);
    s->at = i + 1;
    *text = s->text + begin;
    *n = i - begin;
    if (held) {
        if (vb__buffer_append(b, *text, *n) != VB_OK)
            return vb__fail(err, b->error, "%s%s", s->where, vb_err_message(b->error));
        *text = b->data;
        *n = b->len;
    }
    return VB_OK;
}

vb_err vb__json_scan_int(vb__json_scan *s, int32_t max, int32_t *out, vb_error *err) {
    s->at = skip_white(s->text, s->end, s->at);
    size_t i = s->at;
    int64_t x = 0;
    while (i < s->end && s->text[i] >= '0' && s->text[i] <= '9' && x <= max)
        x = 10 * x + (s->text[i++] - '0');
    bool number = i > s->at && (s->text[s->at] != '0' || i == s->at + 1);
    if (!number || x > max || (i < s->end && !white(s->text[i]) && s->text[i] != ',' && s->text[i] != '}')) {
        char b[64];
        (void)snprintf(b, sizeof b, "expected an id 0..%d", max);
        return fail_at(s, s->at, b, err);
    }
    s->at = i;
    *out = (int32_t)x;
    return VB_OK;
}

vb_err vb__json_scan_done(vb__json_scan *s, vb_error *err) {
    s->at = skip_white(s->text, s->end, s->at);
    return s->at == s->end ? VB_OK : fail_at(s, s->at, "expected the end", err);
}
