/* tokenizer.json from anywhere: loads or is refused, and what loads encodes and decodes a fixed text. */
#include "base/buffer.h"
#include "base/log.h"
#include "text/tokenizer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "The  world's \xe2\x96\x81 na\xc3\xafve <x> 123\r\n\xe6\x97\xa5\xe6\x9c\xac "
                               "e\xcc\x81\xcc\xa3 \xf0\x9f\x98\x80 aaaaaaaaaaaaaaaaaaaa";
    vb_error err;
    vb__tokenizer *t = NULL;
    vb__log_set(NULL, NULL, VB_LOG_ERROR);
    if (size > 65536 || vb__tokenizer_parse((const char *)data, size, NULL, 0, &t, &err) != VB_OK) return 0;
    vb__ids ids = {0};
    vb__encode_options o = {.parse = VB_PARSE_ALL, .add_special = true};
    if (vb__tokenizer_encode(t, text, sizeof text - 1, &o, &ids, &err) == VB_OK) {
        vb__buffer out;
        vb__buffer_init(&out, 1 << 20);
        (void)!vb__tokenizer_decode(t, ids.data, ids.len, false, &out, &err);
        vb__buffer_fini(&out);
    }
    vb__ids_fini(&ids);
    vb__tokenizer_destroy(t);
    return 0;
}
