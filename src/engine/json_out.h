/* A JSON document of ours as text for a caller of the public interface. */
#ifndef VB_ENGINE_JSON_OUT_H
#define VB_ENGINE_JSON_OUT_H
#include "base/error.h"
#include <jansson.h>

/* Takes j (NULL: out of memory while it was built). Indented, keys in the order they were set, numbers with 6 digits
 * at least; *out is freed with vb_string_free. */
VB_MUST_USE vb_err vb__json_out(json_t *j, char **out, vb_error *err);
/* A path as JSON text; bytes of one that is not UTF-8 become '?', for JSON has no other way to say them. NULL: out of memory. */
json_t *vb__json_path(const char *path);

#endif
