#include "engine/json_out.h"
#include "base/alloc.h"
#include "base/buffer.h"

static int append(const char *text, size_t n, void *user) { return vb__buffer_append(user, text, n) == VB_OK ? 0 : -1; }

vb_err vb__json_out(json_t *j, char **out, vb_error *err) {
    if (j == NULL) return vb__fail(err, VB_E_MEMORY, "JSON: out of memory");
    vb__buffer b;
    vb__buffer_init(&b, (size_t)1 << 30);
    int rc = json_dump_callback(j, append, &b, JSON_INDENT(2) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(7));
    json_decref(j);
    char *text = rc == 0 ? vb__buffer_take(&b) : NULL;
    vb__buffer_fini(&b);
    if (text == NULL) return vb__fail(err, VB_E_MEMORY, "JSON: out of memory");
    *out = text;
    return VB_OK;
}

json_t *vb__json_path(const char *path) {
    json_t *text = json_string(path);
    if (text != NULL) return text;
    char *ascii = vb__strdup(VB_TAG_ENGINE, path);
    for (char *p = ascii; p != NULL && *p != '\0'; p++)
        if ((signed char)*p < 0) *p = '?';
    text = json_string(ascii);
    vb__free(ascii);
    return text;
}
