/* format/safetensors: any bytes give tensors that lie inside them, in order, or an error with a sentence. */
#include "format/safetensors.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    vb__mapped map = {data, size};
    vb__safetensors s;
    vb_error err = {0};
    if (vb__safetensors_parse(&map, "input", &s, &err) != VB_OK) {
        if (err.text[0] == '\0') abort();
        return 0;
    }
    const uint8_t *at = data;
    for (int32_t i = 0; i < s.count; i++) {
        const vb__st_tensor *t = &s.tensors[i];
        if (t->data < at || t->bytes > (uint64_t)(data + size - t->data)) abort();
        at = t->data + t->bytes;
    }
    if (at > data + size) abort();
    s.map = (vb__mapped){0}; /* not a mapping: nothing to unmap */
    vb__safetensors_close(&s);
    return 0;
}
