/* Small tokenizers for fuzz targets: byte-level, SentencePiece BPE, Unigram. Made at the first use, never
 * freed. */
#ifndef VB_TESTS_FUZZ_TOKENIZERS_H
#define VB_TESTS_FUZZ_TOKENIZERS_H
#include "base/buffer.h"
#include "text/text_unicode.h"
#include "text/tokenizer.h"
#include "text/vocabulary.h"
#include <string.h>

enum { FUZZ_TOKENIZERS = 3 };

static const char *const fuzz_parts[FUZZ_TOKENIZERS][3] = {
    {"{\"added_tokens\": [{\"id\": 260, \"content\": \"<|x|>\", \"special\": true}, {\"id\": 261, "
     "\"content\": \"<t>\", \"normalized\": "
     "false}], \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false}, \"decoder\": "
     "{\"type\": \"ByteLevel\"}, "
     "\"model\": {\"type\": \"BPE\", \"vocab\": {",
     ", \"aa\": 256, \"ab\": 257, \"aaaa\": 258, \"\\u0120a\": 259}, \"merges\": [\"a a\", \"\\u0120 a\", "
     "\"a b\", \"aa aa\"]}}",
     "b"},
    {"{\"added_tokens\": [{\"id\": 256, \"content\": \"<s>\", \"special\": true, \"lstrip\": true}, {\"id\": "
     "264, \"content\": \"<T>\", "
     "\"normalized\": true, \"single_word\": true, \"rstrip\": true}], \"normalizer\": {\"type\": "
     "\"Sequence\", \"normalizers\": [{\"type\": "
     "\"NFKC\"}, {\"type\": \"Lowercase\"}, {\"type\": \"Prepend\", \"prepend\": \"\\u2581\"}, {\"type\": "
     "\"Replace\", \"pattern\": {\"String\": "
     "\" \"}, \"content\": \"\\u2581\"}]}, \"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": "
     "\"Replace\", \"pattern\": {\"String\": "
     "\"\\u2581\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, {\"type\": "
     "\"Strip\", \"content\": \" \", \"start\": 1, "
     "\"stop\": 1}]}, \"post_processor\": {\"type\": \"BertProcessing\", \"cls\": [\"<s>\", 256], \"sep\": "
     "[\"<s>\", 256]}, \"model\": {\"type\": "
     "\"BPE\", \"byte_fallback\": true, \"vocab\": {",
     ", \"<s>\": 256, \"a\": 257, \"b\": 258, \"ab\": 259, \"\\u2581\": 260, \"\\u2581a\": 261, "
     "\"\\u2581\\u2581\": 262, \"aa\": 263}, \"merges\": "
     "[[\"a\", \"b\"], [\"\\u2581\", \"a\"], [\"\\u2581\", \"\\u2581\"], [\"a\", \"a\"]]}}",
     "<"},
    {"{\"added_tokens\": [{\"id\": 0, \"content\": \"<u>\", \"special\": true}], \"normalizer\": {\"type\": "
     "\"NFC\"}, \"pre_tokenizer\": {\"type\": "
     "\"Metaspace\", \"replacement\": \"\\u2581\", \"prepend_scheme\": \"first\"}, \"decoder\": {\"type\": "
     "\"Metaspace\", \"replacement\": "
     "\"\\u2581\", \"prepend_scheme\": \"first\"}, \"model\": {\"type\": \"Unigram\", \"unk_id\": 0, "
     "\"vocab\": [[\"<u>\", 0], [\"a\", -2], [\"b\", "
     "-2.5], [\"ab\", -3], [\"aab\", -5], [\"\\u2581\", -3], [\"\\u2581a\", -3.5], [\"\\u00e9\", -4]]}}",
     NULL, NULL}};

static inline vb__tokenizer *fuzz_tokenizer(int k) {
    static vb__tokenizer *made[FUZZ_TOKENIZERS];
    if (made[k] != NULL) return made[k];
    vb__buffer b;
    vb_error err;
    vb__buffer_init(&b, 1 << 20);
    (void)vb__buffer_puts(&b, fuzz_parts[k][0]);
    for (unsigned i = 0; fuzz_parts[k][1] != NULL && i < 256; i++) {
        if (fuzz_parts[k][2][0] == '<')
            (void)vb__buffer_printf(&b, "%s\"<0x%02X>\": %u", i == 0 ? "" : ", ", i, i);
        else (void)vb__buffer_printf(&b, "%s\"\\u%04x\": %u", i == 0 ? "" : ", ", vb__byte_char(i), i);
    }
    if (fuzz_parts[k][1] != NULL) (void)vb__buffer_puts(&b, fuzz_parts[k][1]);
    if (vb__tokenizer_parse(b.data, b.len, NULL, 0, &made[k], &err) != VB_OK)
        vb__check_failed(err.text, __FILE__, __LINE__);
    vb__buffer_fini(&b);
    return made[k];
}

#endif
