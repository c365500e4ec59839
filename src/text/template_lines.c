#include "text/template_lines.h"
#include "text/jinja.h"
#include "base/limits.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Moves `value` into {"key": value} and appends it. */
static vb_err put(vb__buffer *out, const char *key, json_t *value, vb_error *err) {
    json_t *o = json_object();
    vb_err e = VB_E_MEMORY;
    if (o != NULL && value != NULL && json_object_set_new(o, key, json_incref(value)) == 0) {
        char *text = json_dumps(o, JSON_COMPACT);
        if (text != NULL) {
            vb__buffer_puts(out, text);
            e = vb__buffer_putc(out, '\n');
            free(text);
        }
    }
    json_decref(o);
    json_decref(value);
    return e == VB_OK ? VB_OK : vb__fail(err, e, "template: no room for the output line");
}

static vb_err put_error(vb__buffer *out, const char *text, vb_error *err) {
    json_t *v = json_string(text);
    if (v == NULL)
        v = json_string("an error whose text is not UTF-8"); /* a sentence cut inside a character */
    return put(out, "error", v, err);
}

/* "template line N: message", whole where the message is known. */
static vb_err put_failure(vb__buffer *out, const vb__jinja_result *res, const vb_error *why, vb_error *err) {
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
    if (res->message != NULL && res->line > 0) vb__buffer_printf(&b, "template line %d: ", res->line);
    else if (res->message != NULL) vb__buffer_puts(&b, "context: ");
    vb__buffer_puts(&b, res->message != NULL ? res->message : why->text);
    vb_err e = put_error(out, b.error == VB_OK ? vb__buffer_str(&b) : why->text, err);
    vb__buffer_fini(&b);
    return e;
}

static vb_err render(const json_t *source, const json_t *context, int64_t now, vb__buffer *out,
                     vb_error *err) {
    vb_error why = {0};
    vb__jinja *t = NULL;
    vb__jinja_result res = {0};
    vb__jinja_options opt = {.now = now};
    vb_err e = vb__jinja_compile(json_string_value(source), json_string_length(source), &t, &why);
    if (e != VB_OK) return put_error(out, why.text, err);
    e = vb__jinja_render(t, context, NULL, &opt, &res, &why);
    if (e == VB_OK) e = put(out, "text", json_stringn(res.text, res.len), err);
    else e = put_failure(out, &res, &why, err);
    vb__jinja_result_fini(&res);
    vb__jinja_destroy(t);
    return e;
}

vb_err vb__template_line(const char *line, size_t len, int64_t now, vb__buffer *out, vb_error *err) {
    json_error_t je;
    char text[256];
    while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r')) len--;
    if (len > VB_LIMIT_PROMPT_BYTES)
        return put_error(out, "the line is too long, expected at most 64 MiB", err);
    json_t *o = json_loadb(line, len, JSON_ALLOW_NUL, &je);
    if (o == NULL) {
        snprintf(text, sizeof(text), "the line is not JSON: %s, expected {\"template\", \"context\"}",
                 je.text);
        return put_error(out, text, err);
    }
    const json_t *source = json_object_get(o, "template"), *context = json_object_get(o, "context"),
                 *when = json_object_get(o, "now");
    vb_err e;
    if (!json_is_string(source)) {
        e = put_error(out, "template: missing or no string, expected the template's source", err);
    } else if (context != NULL && !json_is_null(context) && !json_is_object(context)) {
        e = put_error(out, "context: not an object, expected the variables", err);
    } else if (when != NULL && !json_is_null(when) &&
               !(json_is_number(when) && fabs(json_number_value(when)) < 1e15)) {
        e = put_error(out, "now: not a time, expected seconds since 1970", err);
    } else {
        if (json_is_number(when)) now = (int64_t)floor(json_number_value(when));
        e = render(source, json_is_object(context) ? context : NULL, now, out, err);
    }
    json_decref(o);
    return e;
}
