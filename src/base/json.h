/* Strict JSON from files that are not ours, over jansson: size and depth limits, no duplicate keys, no byte order
 * mark, and getters whose errors name file and field. Values belong to the document that the caller frees with
 * json_decref. */
#ifndef VB_BASE_JSON_H
#define VB_BASE_JSON_H
#include "base/error.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One JSON value of any kind (callers check that they got an object). `file` names the source in errors:
 * "FILE: line N: what". Strings may hold NUL (\u0000), keys not. Depth at most VB_LIMIT_JSON_DEPTH. VB_E_FORMAT;
 * VB_E_LIMIT for depth and `max` bytes; VB_E_MEMORY. */
VB_MUST_USE vb_err vb__json_parse(const char *text, size_t len, size_t max, const char *file, json_t **out,
                                  vb_error *err);
/* The same from a file; errors name its last path component only when `label` is NULL, else `label`. */
VB_MUST_USE vb_err vb__json_read(const char *path, size_t max, const char *label, json_t **out, vb_error *err);

/* An object and how to spell its fields in errors: where + key, e.g. "config.json: text_config." + "hidden_size". */
typedef struct vb__json_at {
    const json_t *obj;
    const char *where;
} vb__json_at;

/* The value, NULL when absent or null. */
json_t *vb__json_get(vb__json_at at, const char *key);
/* Describes a value for "is ..., expected ...": "is \"x\"", "is 12", "is an array of 3", "is missing" for NULL. */
const char *vb__json_is(const json_t *v, char *buf, size_t size);

/* Required fields: absent or null is an error. Numbers in lo..hi (both included). */
VB_MUST_USE vb_err vb__json_int(vb__json_at at, const char *key, int64_t lo, int64_t hi, int64_t *out, vb_error *err);
VB_MUST_USE vb_err vb__json_i32(vb__json_at at, const char *key, int32_t lo, int32_t hi, int32_t *out, vb_error *err);
VB_MUST_USE vb_err vb__json_number(vb__json_at at, const char *key, double lo, double hi, double *out, vb_error *err);
VB_MUST_USE vb_err vb__json_bool(vb__json_at at, const char *key, bool *out, vb_error *err);
/* Borrowed; a string with a NUL inside is refused. */
VB_MUST_USE vb_err vb__json_string(vb__json_at at, const char *key, const char **out, vb_error *err);
VB_MUST_USE vb_err vb__json_object(vb__json_at at, const char *key, json_t **out, vb_error *err);
VB_MUST_USE vb_err vb__json_array(vb__json_at at, const char *key, size_t max, json_t **out, vb_error *err);

/* The same for optional fields: `fallback` when absent or null. Objects and arrays: NULL. */
VB_MUST_USE vb_err vb__json_int_or(vb__json_at at, const char *key, int64_t lo, int64_t hi, int64_t fallback,
                                   int64_t *out, vb_error *err);
VB_MUST_USE vb_err vb__json_i32_or(vb__json_at at, const char *key, int32_t lo, int32_t hi, int32_t fallback,
                                   int32_t *out, vb_error *err);
VB_MUST_USE vb_err vb__json_number_or(vb__json_at at, const char *key, double lo, double hi, double fallback,
                                      double *out, vb_error *err);
VB_MUST_USE vb_err vb__json_bool_or(vb__json_at at, const char *key, bool fallback, bool *out, vb_error *err);
VB_MUST_USE vb_err vb__json_string_or(vb__json_at at, const char *key, const char *fallback, const char **out,
                                      vb_error *err);
VB_MUST_USE vb_err vb__json_object_or(vb__json_at at, const char *key, json_t **out, vb_error *err);
VB_MUST_USE vb_err vb__json_array_or(vb__json_at at, const char *key, size_t max, json_t **out, vb_error *err);

#endif
