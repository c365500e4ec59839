#include "server/json_writer.h"
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of the well-formed character at s (n bytes left), 0 when there is none; then *bad is how many bytes one U+FFFD stands for. */
static size_t utf8_length(const unsigned char *s, size_t n, size_t *bad) {
    unsigned lo = 0x80, hi = 0xBF;
    size_t want;
    *bad = 1;
    if (s[0] < 0x80) return 1;
    if (s[0] >= 0xC2 && s[0] <= 0xDF) want = 2;
    else if (s[0] >= 0xE0 && s[0] <= 0xEF) {
        want = 3;
        if (s[0] == 0xE0) lo = 0xA0;
        if (s[0] == 0xED) hi = 0x9F;
    } else if (s[0] >= 0xF0 && s[0] <= 0xF4) {
        want = 4;
        if (s[0] == 0xF0) lo = 0x90;
        if (s[0] == 0xF4) hi = 0x8F;
    } else return 0;
    for (size_t i = 1; i < want; i++) {
        if (i >= n || s[i] < lo || s[i] > hi) {
            *bad = i;
            return 0;
        }
        lo = 0x80;
        hi = 0xBF;
    }
    return want;
}

bool vb__jw_is_utf8(const char *s, size_t n) {
    size_t bad;
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_length((const unsigned char *)s + i, n - i, &bad);
        if (len == 0) return false;
    }
    return true;
}

void vb__jw_string(vb__buffer *b, const char *text, size_t n) {
    const unsigned char *s = (const unsigned char *)text;
    vb__buffer_putc(b, '"');
    size_t from = 0;
    for (size_t i = 0; i < n;) {
        unsigned char c = s[i];
        if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
            i++;
            continue;
        }
        size_t bad, len = utf8_length(s + i, n - i, &bad);
        if (len > 1) {
            i += len;
            continue;
        }
        vb__buffer_append(b, text + from, i - from);
        if (len == 0) {
            vb__buffer_puts(b, "\xEF\xBF\xBD");
            len = bad;
        } else switch (c) {
            case '"': vb__buffer_puts(b, "\\\""); break;
            case '\\': vb__buffer_puts(b, "\\\\"); break;
            case '\n': vb__buffer_puts(b, "\\n"); break;
            case '\r': vb__buffer_puts(b, "\\r"); break;
            case '\t': vb__buffer_puts(b, "\\t"); break;
            default: vb__buffer_printf(b, "\\u%04x", c);
        }
        i += len;
        from = i;
    }
    vb__buffer_append(b, text + from, n - from);
    vb__buffer_putc(b, '"');
}

void vb__jw_text(vb__buffer *b, const char *s) {
    if (s == NULL) vb__buffer_puts(b, "null");
    else vb__jw_string(b, s, strlen(s));
}

void vb__jw_float(vb__buffer *b, float x) {
    char t[40];
    if (!isfinite(x)) {
        vb__buffer_puts(b, "null");
        return;
    }
    for (int digits = 6; digits <= 9; digits++) {
        (void)snprintf(t, sizeof t, "%.*g", digits, (double)x);
        if (strtof(t, NULL) == x) break;
    }
    vb__buffer_puts(b, t);
}

void vb__jw_bytes(vb__buffer *b, const char *s, size_t n) {
    vb__buffer_putc(b, '[');
    for (size_t i = 0; i < n; i++) vb__buffer_printf(b, i > 0 ? ",%u" : "%u", (unsigned)(unsigned char)s[i]);
    vb__buffer_putc(b, ']');
}

void vb__jw_value(vb__buffer *b, const json_t *v) {
    char *s = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY);
    vb__buffer_puts(b, s != NULL ? s : "null");
    free(s);
}
