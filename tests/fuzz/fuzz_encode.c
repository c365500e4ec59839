/* Any text, with any origins, through small tokenizers of three kinds. The first bytes choose the tokenizer,
 * the mode and where user data begins and ends. What has no user data and no normalization must come back. */
#include "base/buffer.h"
#include "base/error.h"
#include "text/text_unicode.h"
#include "text/tokenizer.h"
#include "fuzz_tokenizers.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 4 || size > 100000) return 0;
    vb__tokenizer *t = fuzz_tokenizer(data[0] % FUZZ_TOKENIZERS);
    const char *text = (const char *)data + 4;
    size_t n = size - 4, from = n * data[2] / 256, to = n * data[3] / 256;
    if (to < from) to = from;
    vb__text_span spans[3] = {{from, false}, {to, true}, {n, false}};
    vb__encode_options o = {.parse = (vb__parse)(data[1] % 3), .add_special = (data[1] & 16) != 0};
    if (data[1] & 32) {
        o.spans = spans;
        o.n_spans = 3;
    }
    vb_error err;
    vb__ids ids = {0};
    vb_err e = vb__tokenizer_encode(t, text, n, &o, &ids, &err);
    vb_check((e == VB_E_FORMAT) == (vb__utf8_check(text, n) != n));
    if (e == VB_OK) {
        vb__buffer out;
        vb__buffer_init(&out, 1 << 24);
        vb_check(vb__tokenizer_decode(t, ids.data, ids.len, false, &out, &err) == VB_OK);
        vb_check(vb__utf8_check(vb__buffer_str(&out), out.len) == out.len);
        if (data[0] % FUZZ_TOKENIZERS == 0 && !o.add_special) /* bytes in, bytes out */
            vb_check(out.len == n && memcmp(vb__buffer_str(&out), text, n) == 0);
        vb__buffer_fini(&out);
    }
    vb__ids_fini(&ids);
    return 0;
}
