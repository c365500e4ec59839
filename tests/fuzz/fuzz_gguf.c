/* format/gguf: any bytes give keys and tensors that lie inside them, or an error with a sentence. */
#include "format/gguf.h"
#include "format/gguf_blocks.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile uint8_t sink;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    vb__mapped map = {data, size};
    vb__gguf g;
    vb_error err = {0};
    if (vb__gguf_parse(&map, "input", &g, &err) != VB_OK) {
        if (err.text[0] == '\0') abort();
        return 0;
    }
    for (int32_t i = 0; i < g.n_keys; i++) {
        const vb__gguf_key *k = &g.keys[i];
        int64_t v;
        double d;
        (void)!vb__gguf_int(&g, k->name, INT64_MIN, INT64_MAX, &v, &err);
        (void)!vb__gguf_number(&g, k->name, -1e300, 1e300, &d, &err);
        if (k->kind != VB_GGUF_ARRAY || k->element != VB_GGUF_STRING) continue;
        const uint8_t *at = k->data;
        for (uint64_t j = 0; j < k->count; j++) {
            size_t n;
            const char *s = vb__gguf_next_string(&at, &n);
            if (n > 0) sink = (uint8_t)(s[0] + s[n - 1]);
        }
        if (at > data + size) abort();
    }
    for (int32_t i = 0; i < g.n_tensors; i++) {
        const vb__gguf_tensor *t = &g.tensors[i];
        if (t->data < data || t->bytes > (uint64_t)(data + size - t->data)) abort();
        float out[256];
        const vb__gguf_type_info *info = vb__gguf_type_get((uint32_t)t->type);
        vb__gguf_decode((vb__gguf_type)t->type, t->data, info->block, out);
    }
    g.map = (vb__mapped){0}; /* not a mapping: nothing to unmap */
    vb__gguf_close(&g);
    return 0;
}
