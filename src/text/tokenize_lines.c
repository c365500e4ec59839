#include "text/tokenize_lines.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "text/text_unicode.h"
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 6 * VB_LIMIT_PROMPT_BYTES };

vb_err vb__json_put_string(vb__buffer *out, const char *s, size_t n) {
    size_t done = 0;
    (void)vb__buffer_putc(out, '"');
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) continue;
        (void)vb__buffer_append(out, s + done, i - done);
        done = i + 1;
        if (c == '"' || c == '\\') (void)vb__buffer_printf(out, "\\%c", c);
        else if (c == '\n') (void)vb__buffer_puts(out, "\\n");
        else if (c == '\t') (void)vb__buffer_puts(out, "\\t");
        else if (c == '\r') (void)vb__buffer_puts(out, "\\r");
        else (void)vb__buffer_printf(out, "\\u%04x", c);
    }
    (void)vb__buffer_append(out, s + done, n - done);
    return vb__buffer_putc(out, '"');
}

static vb_err encode_line(const vb__tokenizer *t, vb__json_at at, vb__buffer *out, vb_error *err) {
    char b[80];
    const json_t *text = vb__json_get(at, "text");
    if (!json_is_string(text))
        return vb__fail(err, VB_E_ARGUMENT, "text: %s, expected a string", vb__json_is(text, b, sizeof b));
    bool special;
    vb__encode_options o = {0};
    VB_TRY(vb__json_bool_or(at, "parse_special", true, &special, err));
    VB_TRY(vb__json_bool_or(at, "add_special", false, &o.add_special, err));
    o.parse = special ? VB_PARSE_ALL : VB_PARSE_NOT_SPECIAL;
    vb__ids ids = {0};
    vb_err e = vb__tokenizer_encode(t, json_string_value(text), json_string_length(text), &o, &ids, err);
    if (e == VB_OK) {
        (void)vb__buffer_puts(out, "{\"ids\": [");
        for (size_t i = 0; i < ids.len; i++)
            (void)vb__buffer_printf(out, i == 0 ? "%d" : ", %d", ids.data[i]);
        e = vb__buffer_puts(out, "]}\n");
        if (e != VB_OK) e = vb__fail(err, e, "output: %s", vb_err_message(e));
    }
    vb__ids_fini(&ids);
    return e;
}

static vb_err decode_line(const vb__tokenizer *t, vb__json_at at, vb__buffer *out, vb_error *err) {
    json_t *list;
    bool skip;
    VB_TRY(vb__json_array(at, "ids", VB_LIMIT_PROMPT_BYTES, &list, err));
    VB_TRY(vb__json_bool_or(at, "skip_special", false, &skip, err));
    size_t n = json_array_size(list);
    int32_t *ids = vb__alloc(VB_TAG_TEXT, (n + 1) * sizeof *ids);
    vb__buffer text;
    vb__buffer_init(&text, SIZE_MAX / 4);
    vb_err e = ids == NULL ? vb__fail(err, VB_E_MEMORY, "ids: out of memory") : VB_OK;
    for (size_t i = 0; e == VB_OK && i < n; i++) {
        const json_t *v = json_array_get(list, i);
        char b[80];
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            e = vb__fail(err, VB_E_ARGUMENT, "ids[%zu]: %s, expected a token id", i,
                         vb__json_is(v, b, sizeof b));
        else ids[i] = (int32_t)json_integer_value(v);
    }
    if (e == VB_OK) e = vb__tokenizer_decode(t, ids, n, skip, &text, err);
    if (e == VB_OK) {
        (void)vb__buffer_puts(out, "{\"text\": ");
        (void)vb__json_put_string(out, vb__buffer_str(&text), text.len);
        e = vb__buffer_puts(out, "}\n");
        if (e != VB_OK) e = vb__fail(err, e, "output: %s", vb_err_message(e));
    }
    vb__buffer_fini(&text);
    vb__free(ids);
    return e;
}

vb_err vb__tokenize_line(const vb__tokenizer *t, bool decode, const char *line, size_t n, vb__buffer *out,
                         vb_error *err) {
    vb_error why = {.code = VB_OK};
    json_t *v = NULL;
    size_t before = out->len;
    vb_err e = vb__json_parse(line, n, LINE_MAX_BYTES, "line", &v, &why);
    if (e == VB_OK) {
        vb__json_at at = {v, ""};
        if (!json_is_object(v)) e = vb__fail(&why, VB_E_FORMAT, "line: expected a JSON object");
        else e = decode ? decode_line(t, at, out, &why) : encode_line(t, at, out, &why);
    }
    json_decref(v);
    if (e == VB_OK) return VB_OK;
    if (out->error != VB_OK || e == VB_E_MEMORY) return vb__fail(err, e, "%s", why.text);
    out->len = before;
    size_t shown = strlen(why.text);
    /* The message may have been cut inside a character. */
    char text[VB_ERROR_TEXT_MAX];
    size_t k = 0;
    for (size_t i = 0; i < shown;) {
        size_t m = vb__utf8_len((unsigned char)why.text[i]);
        if (m <= shown - i && vb__utf8_check(why.text + i, m) == m) {
            memcpy(text + k, why.text + i, m);
            k += m;
            i += m;
        } else {
            text[k++] = '?';
            i++;
        }
    }
    (void)vb__buffer_puts(out, "{\"error\": ");
    (void)vb__json_put_string(out, text, k);
    e = vb__buffer_puts(out, "}\n");
    return e == VB_OK ? e : vb__fail(err, e, "output: %s", vb_err_message(e));
}
