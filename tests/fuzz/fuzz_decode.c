/* Any ids: a stream gives whole characters and in all what decoding at once gives; its pieces through a stop
 * matcher come out unchanged up to the match. Two bytes an id; the first byte chooses the tokenizer. */
#include "base/buffer.h"
#include "base/error.h"
#include "text/detokenizer.h"
#include "text/text_unicode.h"
#include "fuzz_tokenizers.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 1 || size > 20000) return 0;
    const vb__tokenizer *t = fuzz_tokenizer(data[0] % FUZZ_TOKENIZERS);
    const bool skip = (data[0] & 128) != 0;
    static const char *const stops[] = {"aa", "b\xc3\xa9", "<"};
    static const size_t lengths[] = {2, 3, 1};
    vb_error err;
    vb__detokenizer *d = NULL;
    vb__stop_matcher *m = NULL;
    vb__buffer stream, whole, passed;
    vb__ids ids = {0};
    vb__buffer_init(&stream, 1 << 24);
    vb__buffer_init(&whole, 1 << 24);
    vb__buffer_init(&passed, 1 << 24);
    vb_check(vb__detokenizer_create(t, skip, &d, &err) == VB_OK);
    vb_check(vb__stop_create(stops, lengths, 3, &m, &err) == VB_OK);
    const char *text, *out;
    size_t n, n_out;
    int32_t match = -1, found = -1;
    for (size_t i = 1; i + 1 < size; i += 2) {
        int32_t id = (data[i] | data[i + 1] << 8) % (vb__tokenizer_id_end(t) + 3);
        vb_check(vb__ids_push(&ids, id) == VB_OK);
        vb_check(vb__detokenizer_push(d, id, &text, &n, &err) == VB_OK);
        vb_check(vb__utf8_check(text, n) == n);
        (void)vb__buffer_append(&stream, text, n);
        vb_check(vb__stop_push(m, text, n, &out, &n_out, &match) == VB_OK);
        (void)vb__buffer_append(&passed, out, n_out);
        if (match >= 0) found = match;
    }
    vb_check(vb__detokenizer_end(d, &text, &n, &err) == VB_OK);
    (void)vb__buffer_append(&stream, text, n);
    vb_check(vb__tokenizer_decode(t, ids.data, ids.len, skip, &whole, &err) == VB_OK);
    vb_check(stream.len == whole.len &&
             memcmp(vb__buffer_str(&stream), vb__buffer_str(&whole), whole.len) == 0);
    vb_check(passed.len <= stream.len &&
             memcmp(vb__buffer_str(&passed), vb__buffer_str(&stream), passed.len) == 0);
    if (found >= 0) vb_check(memcmp(stream.data + passed.len, stops[found], lengths[found]) == 0);
    vb__stop_destroy(m);
    vb__detokenizer_destroy(d);
    vb__buffer_fini(&stream);
    vb__buffer_fini(&whole);
    vb__buffer_fini(&passed);
    vb__ids_fini(&ids);
    return 0;
}
