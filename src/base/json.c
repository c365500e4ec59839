#include "base/json.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/limits.h"
#include <stdio.h>
#include <string.h>

/* ---- parsing -------------------------------------------------------------------------------------------- */

/* jansson has a depth limit of its own, far above ours: brackets outside strings are counted first. Text that is
 * not JSON may be miscounted; jansson refuses it anyway, and never goes deeper than this count. */
static vb_err json_depth(const char *s, size_t n, const char *file, vb_error *err) {
    int32_t depth = 0;
    size_t line = 1;
    for (size_t i = 0; i < n; i++) {
        char c = s[i];
        if (c == '"') {
            for (i++; i < n && s[i] != '"'; i++) {
                if (s[i] == '\\') i++;
                else if (s[i] == '\n') line++;
            }
        } else if (c == '\n') {
            line++;
        } else if (c == '{' || c == '[') {
            if (++depth > VB_LIMIT_JSON_DEPTH)
                return vb__fail(err, VB_E_LIMIT, "%s: line %zu: is nested deeper than %d levels", file, line,
                                VB_LIMIT_JSON_DEPTH);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return VB_OK;
}

vb_err vb__json_parse(const char *text, size_t len, size_t max, const char *file, json_t **out, vb_error *err) {
    if (len > max) return vb__fail(err, VB_E_LIMIT, "%s: has %zu bytes, expected at most %zu", file, len, max);
    if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return vb__fail(err, VB_E_FORMAT, "%s: line 1: begins with a byte order mark, expected plain UTF-8", file);
    VB_TRY(json_depth(text, len, file, err));
    json_error_t je;
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
    if (v == NULL) {
        if (json_error_code(&je) == json_error_out_of_memory)
            return vb__fail(err, VB_E_MEMORY, "%s: no memory for its values", file);
        if (json_error_code(&je) == json_error_numeric_overflow)
            return vb__fail(err, VB_E_FORMAT, "%s: line %d: a number is out of range (%s), expected at most 64 bits",
                            file, je.line, je.text);
        return vb__fail(err, VB_E_FORMAT, "%s: line %d: %s, expected JSON", file, je.line, je.text);
    }
    *out = v;
    return VB_OK;
}

vb_err vb__json_read(const char *path, size_t max, const char *label, json_t **out, vb_error *err) {
    vb__buffer b;
    vb__buffer_init(&b, max);
    vb_err e;
    VB_TRY_OUT(vb__file_read(path, max, &b, err));
    VB_TRY_OUT(vb__json_parse(vb__buffer_str(&b), b.len, max, label != NULL ? label : vb__path_base(path), out, err));
out:
    vb__buffer_fini(&b);
    return e;
}

/* ---- getters -------------------------------------------------------------------------------------------- */

json_t *vb__json_get(vb__json_at at, const char *key) {
    json_t *v = json_object_get(at.obj, key);
    return json_is_null(v) ? NULL : v;
}

const char *vb__json_is(const json_t *v, char *buf, size_t size) {
    if (v == NULL) return "is missing";
    switch (json_typeof(v)) {
    case JSON_NULL: return "is null";
    case JSON_TRUE: return "is true";
    case JSON_FALSE: return "is false";
    case JSON_STRING: {
        size_t n = json_string_length(v);
        int shown = n > 48 ? 48 : (int)n;
        (void)snprintf(buf, size, "is \"%.*s%s\"", shown, json_string_value(v), n > 48 ? "..." : "");
        return buf;
    }
    case JSON_INTEGER: (void)snprintf(buf, size, "is %lld", (long long)json_integer_value(v)); return buf;
    case JSON_REAL: (void)snprintf(buf, size, "is %.17g", json_real_value(v)); return buf;
    case JSON_ARRAY: (void)snprintf(buf, size, "is an array of %zu", json_array_size(v)); return buf;
    case JSON_OBJECT: return "is an object";
    }
    return "is unknown";
}

/* Absent and null read the same to callers, but the message should say which. */
static const char *found(vb__json_at at, const char *key, char *buf, size_t size) {
    return vb__json_is(json_object_get(at.obj, key), buf, size);
}

vb_err vb__json_int(vb__json_at at, const char *key, int64_t lo, int64_t hi, int64_t *out, vb_error *err) {
    char b[80];
    json_t *v = vb__json_get(at, key);
    if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) > hi)
        return vb__fail(err, VB_E_FORMAT, "%s%s: %s, expected an integer %lld..%lld", at.where, key,
                        found(at, key, b, sizeof b), (long long)lo, (long long)hi);
    *out = json_integer_value(v);
    return VB_OK;
}

vb_err vb__json_i32(vb__json_at at, const char *key, int32_t lo, int32_t hi, int32_t *out, vb_error *err) {
    int64_t v;
    VB_TRY(vb__json_int(at, key, lo, hi, &v, err));
    *out = (int32_t)v;
    return VB_OK;
}

vb_err vb__json_number(vb__json_at at, const char *key, double lo, double hi, double *out, vb_error *err) {
    char b[80];
    json_t *v = vb__json_get(at, key);
    /* written so that no NaN could pass */
    if (!json_is_number(v) || !(json_number_value(v) >= lo && json_number_value(v) <= hi))
        return vb__fail(err, VB_E_FORMAT, "%s%s: %s, expected a number %.9g..%.9g", at.where, key,
                        found(at, key, b, sizeof b), lo, hi);
    *out = json_number_value(v);
    return VB_OK;
}

vb_err vb__json_bool(vb__json_at at, const char *key, bool *out, vb_error *err) {
    char b[80];
    json_t *v = vb__json_get(at, key);
    if (!json_is_boolean(v))
        return vb__fail(err, VB_E_FORMAT, "%s%s: %s, expected true or false", at.where, key,
                        found(at, key, b, sizeof b));
    *out = json_is_true(v);
    return VB_OK;
}

vb_err vb__json_string(vb__json_at at, const char *key, const char **out, vb_error *err) {
    char b[80];
    json_t *v = vb__json_get(at, key);
    if (!json_is_string(v))
        return vb__fail(err, VB_E_FORMAT, "%s%s: %s, expected a string", at.where, key, found(at, key, b, sizeof b));
    if (strlen(json_string_value(v)) != json_string_length(v))
        return vb__fail(err, VB_E_FORMAT, "%s%s: holds a NUL character, expected plain text", at.where, key);
    *out = json_string_value(v);
    return VB_OK;
}

vb_err vb__json_object(vb__json_at at, const char *key, json_t **out, vb_error *err) {
    char b[80];
    json_t *v = vb__json_get(at, key);
    if (!json_is_object(v))
        return vb__fail(err, VB_E_FORMAT, "%s%s: %s, expected an object", at.where, key, found(at, key, b, sizeof b));
    *out = v;
    return VB_OK;
}

vb_err vb__json_array(vb__json_at at, const char *key, size_t max, json_t **out, vb_error *err) {
    char b[80];
    json_t *v = vb__json_get(at, key);
    if (!json_is_array(v) || json_array_size(v) > max)
        return vb__fail(err, VB_E_FORMAT, "%s%s: %s, expected an array of at most %zu", at.where, key,
                        found(at, key, b, sizeof b), max);
    *out = v;
    return VB_OK;
}

vb_err vb__json_int_or(vb__json_at at, const char *key, int64_t lo, int64_t hi, int64_t fallback, int64_t *out,
                       vb_error *err) {
    *out = fallback;
    return vb__json_get(at, key) == NULL ? VB_OK : vb__json_int(at, key, lo, hi, out, err);
}
vb_err vb__json_i32_or(vb__json_at at, const char *key, int32_t lo, int32_t hi, int32_t fallback, int32_t *out,
                       vb_error *err) {
    *out = fallback;
    return vb__json_get(at, key) == NULL ? VB_OK : vb__json_i32(at, key, lo, hi, out, err);
}
vb_err vb__json_number_or(vb__json_at at, const char *key, double lo, double hi, double fallback, double *out,
                          vb_error *err) {
    *out = fallback;
    return vb__json_get(at, key) == NULL ? VB_OK : vb__json_number(at, key, lo, hi, out, err);
}
vb_err vb__json_bool_or(vb__json_at at, const char *key, bool fallback, bool *out, vb_error *err) {
    *out = fallback;
    return vb__json_get(at, key) == NULL ? VB_OK : vb__json_bool(at, key, out, err);
}
vb_err vb__json_string_or(vb__json_at at, const char *key, const char *fallback, const char **out, vb_error *err) {
    *out = fallback;
    return vb__json_get(at, key) == NULL ? VB_OK : vb__json_string(at, key, out, err);
}
vb_err vb__json_object_or(vb__json_at at, const char *key, json_t **out, vb_error *err) {
    *out = NULL;
    return vb__json_get(at, key) == NULL ? VB_OK : vb__json_object(at, key, out, err);
}
vb_err vb__json_array_or(vb__json_at at, const char *key, size_t max, json_t **out, vb_error *err) {
    *out = NULL;
    return vb__json_get(at, key) == NULL ? VB_OK : vb__json_array(at, key, max, out, err);
}
