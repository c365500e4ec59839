/* base/json: any bytes give a document or an error with a sentence. */
#include "base/json.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    json_t *doc = NULL;
    vb_error err = {0};
    if (vb__json_parse((const char *)data, size, 1 << 20, "input", &doc, &err) != VB_OK) {
        if (err.text[0] == '\0') abort();
        return 0;
    }
    vb__json_at at = {doc, "input: "};
    int64_t i;
    double d;
    bool b;
    const char *s;
    json_t *v;
    (void)!vb__json_int(at, "a", -5, 5, &i, &err);
    (void)!vb__json_number(at, "a", -1.0, 1e9, &d, &err);
    (void)!vb__json_bool(at, "a", &b, &err);
    (void)!vb__json_string(at, "a", &s, &err);
    (void)!vb__json_object(at, "a", &v, &err);
    (void)!vb__json_array(at, "a", 3, &v, &err);
    json_decref(doc);
    return 0;
}
