/* Tokenizers against the stock library's ids (the shared fixtures, where present) and small cases of our own.
 */
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/pool.h"
#include "text/detokenizer.h"
#include "text/pre_scan.h"
#include "text/text_regex.h"
#include "text/text_unicode.h"
#include "text/tokenize_lines.h"
#include "text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

/* ---- helpers ---- */

static const char *shared(void) {
    const char *s = getenv("VERBATIM_SHARED");
    return s != NULL ? s : SOURCE_ROOT "/../shared";
}

/* The path of a shared file, or skips the test. */
static const char *shared_path(const char *rest) {
    static char path[4][1024];
    static int k;
    char *p = path[k++ % 4];
    (void)snprintf(p, sizeof path[0], "%s/%s", shared(), rest);
    if (!vb__file_exists(p) && !vb__file_is_dir(p)) {
        print_message("skipped: %s is absent\n", p);
        skip();
    }
    return p;
}

static json_t *read_json(const char *path) {
    vb_error err = {0};
    json_t *v = NULL;
    if (vb__json_read(path, VB_LIMIT_JSON_BYTES, NULL, &v, &err) != VB_OK) fail_msg("%s", err.text);
    return v;
}

static vb__tokenizer *load(const char *folder) {
    vb_error err = {0};
    vb__tokenizer *t = NULL;
    if (vb__tokenizer_load(folder, &t, &err) != VB_OK) fail_msg("%s", err.text);
    return t;
}

static vb__tokenizer *parse(const char *json) {
    vb_error err = {0};
    vb__tokenizer *t = NULL;
    if (vb__tokenizer_parse(json, strlen(json), NULL, 0, &t, &err) != VB_OK) fail_msg("%s", err.text);
    return t;
}

static vb__ids encode(const vb__tokenizer *t, const char *s, size_t n, const vb__encode_options *o) {
    vb_error err = {0};
    vb__ids ids = {0};
    if (vb__tokenizer_encode(t, s, n, o, &ids, &err) != VB_OK) fail_msg("%s", err.text);
    return ids;
}

static bool same_ids(const vb__ids *got, const json_t *want) {
    if (got->len != json_array_size(want)) return false;
    for (size_t i = 0; i < got->len; i++)
        if (got->data[i] != json_integer_value(json_array_get(want, i))) return false;
    return true;
}

static bool decodes_to(const vb__tokenizer *t, const int32_t *ids, size_t n, const char *want,
                       size_t n_want) {
    vb_error err = {0};
    vb__buffer b;
    vb__buffer_init(&b, 1 << 24);
    if (vb__tokenizer_decode(t, ids, n, false, &b, &err) != VB_OK) fail_msg("%s", err.text);
    bool same = b.len == n_want && memcmp(vb__buffer_str(&b), want, n_want) == 0;
    vb__buffer_fini(&b);
    return same;
}

static vb__ids ids_of(const json_t *list) {
    vb__ids ids = {0};
    for (size_t i = 0; i < json_array_size(list); i++)
        assert_int_equal(vb__ids_push(&ids, (int32_t)json_integer_value(json_array_get(list, i))), VB_OK);
    return ids;
}

/* ---- shared fixtures ---- */

/* Number of cases whose ids or decoding differ. */
static int differing(const vb__tokenizer *t, const json_t *cases, bool show) {
    int bad = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *text = json_object_get(c, "text"),
                     *decoded = json_object_get(c, "decoded");
        vb__encode_options o = {.parse = json_is_false(json_object_get(c, "parse_special"))
                                             ? VB_PARSE_NOT_SPECIAL
                                             : VB_PARSE_ALL};
        vb__ids ids = encode(t, json_string_value(text), json_string_length(text), &o);
        bool ok = same_ids(&ids, json_object_get(c, "ids")) &&
                  (decoded == NULL ||
                   decodes_to(t, ids.data, ids.len, json_string_value(decoded), json_string_length(decoded)));
        if (!ok && show) print_message("case %zu differs: %s\n", i, json_string_value(text));
        bad += !ok;
        vb__ids_fini(&ids);
    }
    return bad;
}

static void qwen3_cases(void **state) {
    (void)state;
    const char *folder = shared_path("fixtures/tokenizers/qwen3");
    json_t *all = read_json(shared_path("fixtures/tokenizers/qwen3/cases.json"));
    vb__tokenizer *t = load(folder);
    assert_true(json_array_size(json_object_get(all, "cases")) >= 857);
    assert_int_equal(differing(t, json_object_get(all, "cases"), true), 0);
    const json_t *newer = json_object_get(all, "unicode_new");
    print_message("newer than our tables: %d of %zu differ (known)\n", differing(t, newer, false),
                  json_array_size(newer));
    const json_t *plain = json_object_get(all, "no_added_tokens");
    for (size_t i = 0; i < json_array_size(plain); i++) {
        const json_t *c = json_array_get(plain, i), *text = json_object_get(c, "text");
        vb__ids none = encode(t, json_string_value(text), json_string_length(text),
                              &(vb__encode_options){.parse = VB_PARSE_NONE});
        assert_true(same_ids(&none, json_object_get(c, "ids")));
        vb__text_span span = {json_string_length(text),
                              true}; /* user data from end to end is the same thing */
        vb__ids user = encode(t, json_string_value(text), json_string_length(text),
                              &(vb__encode_options){.spans = &span, .n_spans = 1});
        assert_true(same_ids(&user, json_object_get(c, "ids")));
        vb__ids_fini(&none);
        vb__ids_fini(&user);
    }
    size_t n;
    assert_int_equal(vb__tokenizer_eos_ids(t, &n)[0], 151645);
    assert_int_equal(n, 1);
    assert_int_equal(vb__tokenizer_named(t, VB_TOKEN_PAD), 151643);
    assert_int_equal(vb__tokenizer_count(t), 151669);
    vb__tokenizer_destroy(t);
    json_decref(all);
}

static void qwen3_streams(void **state) {
    (void)state;
    const char *folder = shared_path("fixtures/tokenizers/qwen3");
    json_t *all = read_json(shared_path("fixtures/tokenizers/qwen3/cases.json"));
    vb__tokenizer *t = load(folder);
    vb_error err = {0};
    vb__detokenizer *d;
    assert_int_equal(vb__detokenizer_create(t, false, &d, &err), VB_OK);
    const json_t *streams = json_object_get(all, "stream");
    for (size_t i = 0; i < json_array_size(streams); i++) {
        const json_t *c = json_array_get(streams, i), *pieces = json_object_get(c, "pieces"),
                     *end = json_object_get(c, "end");
        vb__ids ids = ids_of(json_object_get(c, "ids"));
        const char *text;
        size_t n;
        for (size_t k = 0; k < ids.len; k++) {
            const json_t *want = json_array_get(pieces, k);
            assert_int_equal(vb__detokenizer_push(d, ids.data[k], &text, &n, &err), VB_OK);
            if (n != json_string_length(want) || memcmp(text, json_string_value(want), n) != 0)
                fail_msg("stream %zu, token %zu: \"%.*s\", expected \"%s\"", i, k, (int)n, text,
                         json_string_value(want));
        }
        assert_int_equal(vb__detokenizer_end(d, &text, &n, &err), VB_OK);
        assert_int_equal(n, json_string_length(end));
        assert_memory_equal(text, json_string_value(end), n);
        const json_t *whole = json_object_get(c, "text");
        assert_true(decodes_to(t, ids.data, ids.len, json_string_value(whole), json_string_length(whole)));
        vb__ids_fini(&ids);
    }
    vb__detokenizer_destroy(d);
    vb__tokenizer_destroy(t);
    json_decref(all);
}

static void atto_cases(void **state) {
    (void)state;
    const char *folder = shared_path("models/atto");
    json_t *all = read_json(shared_path("fixtures/tokenizer_cases.json"));
    vb__tokenizer *t = load(folder);
    assert_int_equal(json_array_size(all), 266);
    assert_int_equal(differing(t, all, true), 0);
    vb__nf_work work = {0};
    vb__textbuf nfc;
    vb__textbuf_init(&nfc, 1 << 24);
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *text = json_object_get(json_array_get(all, i), "text");
        const char *s = json_string_value(text);
        size_t n = json_string_length(text);
        bool changed;
        vb__textbuf_clear(&nfc, false);
        assert_int_equal(vb__normalize_unicode(VB_NFC, s, n, NULL, &work, &nfc, &changed), VB_OK);
        vb__ids ids = encode(t, s, n, NULL);
        assert_true(decodes_to(t, ids.data, ids.len, changed ? nfc.data : s, changed ? nfc.len : n));
        vb__ids_fini(&ids);
    }
    vb__textbuf_fini(&nfc);
    vb__nf_work_fini(&work);
    vb__tokenizer_destroy(t);
    json_decref(all);
}

/* ---- cases of our own, made by tools/oracle/tokenizer_diff.py --write-cases ---- */

static vb__tokenizer *parse_value(const json_t *v) {
    char *text = json_dumps(v, JSON_COMPACT);
    assert_non_null(text);
    vb__tokenizer *t = parse(text);
    free(text);
    return t;
}

/* A stream of the ids gives the decoding, in whole characters. */
static void check_stream(const vb__tokenizer *t, const vb__ids *ids, const char *want, size_t n_want) {
    vb_error err = {0};
    vb__detokenizer *d;
    vb__buffer all;
    const char *text;
    size_t n;
    vb__buffer_init(&all, 1 << 24);
    assert_int_equal(vb__detokenizer_create(t, false, &d, &err), VB_OK);
    for (size_t i = 0; i < ids->len; i++) {
        assert_int_equal(vb__detokenizer_push(d, ids->data[i], &text, &n, &err), VB_OK);
        assert_int_equal(vb__utf8_check(text, n), n);
        assert_int_equal(vb__buffer_append(&all, text, n), VB_OK);
    }
    assert_int_equal(vb__detokenizer_end(d, &text, &n, &err), VB_OK);
    assert_int_equal(vb__utf8_check(text, n), n);
    assert_int_equal(vb__buffer_append(&all, text, n), VB_OK);
    assert_int_equal(all.len, n_want);
    assert_memory_equal(vb__buffer_str(&all), want, n_want);
    vb__buffer_fini(&all);
    vb__detokenizer_destroy(d);
}

static void small_tokenizers_of_every_kind(void **state) {
    (void)state;
    json_t *all = read_json(SOURCE_ROOT "/tests/data/tokenizers.json");
    int checked = 0;
    for (size_t i = 0; i < json_array_size(all); i++) {
        const json_t *entry = json_array_get(all, i), *cases = json_object_get(entry, "cases");
        vb__tokenizer *t = parse_value(json_object_get(entry, "tokenizer"));
        for (size_t k = 0; k < json_array_size(cases); k++, checked++) {
            const json_t *c = json_array_get(cases, k), *text = json_object_get(c, "text");
            const json_t *decoded = json_object_get(c, "decoded");
            vb__encode_options o = {.parse = json_is_true(json_object_get(c, "parse_special"))
                                                 ? VB_PARSE_ALL
                                                 : VB_PARSE_NOT_SPECIAL,
                                    .add_special = json_is_true(json_object_get(c, "add_special"))};
            vb__ids ids = encode(t, json_string_value(text), json_string_length(text), &o);
            if (!same_ids(&ids, json_object_get(c, "ids")))
                fail_msg("%s, case %zu", json_string_value(json_object_get(entry, "name")), k);
            assert_true(
                decodes_to(t, ids.data, ids.len, json_string_value(decoded), json_string_length(decoded)));
            check_stream(t, &ids, json_string_value(decoded), json_string_length(decoded));
            vb__ids_fini(&ids);
        }
        vb__tokenizer_destroy(t);
    }
    assert_true(checked > 150);
    json_decref(all);
}

static json_t *small_kind(json_t *all, const char *name) {
    for (size_t i = 0; i < json_array_size(all); i++)
        if (strcmp(json_string_value(json_object_get(json_array_get(all, i), "name")), name) == 0)
            return json_object_get(json_array_get(all, i), "tokenizer");
    fail_msg("no %s", name);
    return NULL;
}

/* ---- loading is strict ---- */

#define PLAIN_MODEL                                                                                          \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"ab\": 2}, \"merges\": [\"a b\"]}"

static void defects_are_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *json, *expect;
    } bad[] = {
        {"", "tokenizer.json"},
        {"[]", "expected an object"},
        {"\xef\xbb\xbf{" PLAIN_MODEL "}", "byte order mark"},
        {"{" PLAIN_MODEL "} x", "line 1"},
        {"{" PLAIN_MODEL ", " PLAIN_MODEL "}", "duplicate"},
        {"{}", "model: is missing"},
        {"{\"model\": {\"type\": \"WordPiece\", \"vocab\": {}}}", "\"WordPiece\" is not supported"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}}}", "merges: is missing"},
        {"{\"model\": {\"type\": \"BPE\", \"merges\": []}}", "vocab: is missing"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 0}, \"merges\": []}}",
         "both have id 0"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"a\": 1}, \"merges\": []}}",
         "is there twice"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"a\": 0}, \"merges\": []}}",
         "is there twice"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": -1}, \"merges\": []}}", "expected an id"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 4194304}, \"merges\": []}}", "expected an id"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 01}, \"merges\": []}}", "expected an id"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 1.0}, \"merges\": []}}", "expected an id"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0,}, \"merges\": []}}", "expected a string"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\\ud800\": 0}, \"merges\": []}}", "surrogate"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"\xff\": 0}, \"merges\": []}}", "not UTF-8"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0], \"merges\": []}}", "tokenizer.json"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a c\"]}}",
         "\"c\" is not in the vocabulary"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": [\"a b\"]}}",
         "\"ab\" is not"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [\"a\"]}}", "two parts"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [[\"a\"]]}}", "expected ','"},
        {"{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"dropout\": 0.1}}",
         "dropout"},

        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 1e999]]}}", "tokenizer.json"},
        {"{\"model\": {\"type\": \"Unigram\", \"vocab\": [[\"a\", 0]], \"unk_id\": 1}}", "unk_id"},
        {"{\"normalizer\": {\"type\": \"Nmt\"}, " PLAIN_MODEL "}", "normalizer \"Nmt\" is not supported"},
        {"{\"pre_tokenizer\": {\"type\": \"UnicodeScripts\"}, " PLAIN_MODEL "}",
         "\"UnicodeScripts\" is not supported"},
        {"{\"decoder\": {\"type\": \"CTC\"}, " PLAIN_MODEL "}", "decoder \"CTC\" is not supported"},
        {"{\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Fuse\"}, {\"type\": "
         "\"ByteFallback\"}]}, " PLAIN_MODEL "}",
         "ByteFallback after Fuse"},
        {"{\"post_processor\": {\"type\": \"Odd\"}, " PLAIN_MODEL "}", "\"Odd\" is not supported"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(\"}, \"behavior\": "
         "\"Isolated\"}, " PLAIN_MODEL "}",
         "pre_tokenizer.pattern"},
        {"{\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"[a&&b]\"}, \"behavior\": "
         "\"Isolated\"}, " PLAIN_MODEL "}",
         "class intersection"},
        {"{\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Punctuation\", "
         "\"behavior\": \"Odd\"}]}, " PLAIN_MODEL "}",
         "pretokenizers[0].behavior: \"Odd\""},
        {"{\"added_tokens\": [{\"id\": 9999, \"content\": \"<x>\"}], " PLAIN_MODEL "}", "added_tokens[0].id"},
        {"{\"added_tokens\": [{\"id\": 1, \"content\": \"<x>\"}], " PLAIN_MODEL "}",
         "which is \"b\" in the vocabulary"},
        {"{\"added_tokens\": [{\"id\": 3, \"content\": \"b\"}], " PLAIN_MODEL "}", "but 1 in the vocabulary"},
        {"{\"added_tokens\": [{\"id\": 3, \"content\": \"<x>\"}, {\"id\": 4, \"content\": "
         "\"<x>\"}], " PLAIN_MODEL "}",
         "another added token"},
        {"{\"added_tokens\": [{\"id\": 3, \"content\": \"<x>\"}, {\"id\": 3, \"content\": "
         "\"<y>\"}], " PLAIN_MODEL "}",
         "another added token"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        vb_error err = {0};
        vb__tokenizer *t = NULL;
        vb_err e = vb__tokenizer_parse(bad[i].json, strlen(bad[i].json), NULL, 0, &t, &err);
        if (e == VB_OK || strstr(err.text, bad[i].expect) == NULL)
            fail_msg("case %zu: %s (%s)", i, err.text, bad[i].json);
        assert_null(t);
    }
    vb_error err = {0};
    vb__tokenizer *t = NULL;
    assert_int_equal(vb__tokenizer_load("/nonexistent", &t, &err), VB_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "tokenizer.json"));
}

static void an_absent_unknown_token_matters_when_needed(void **state) {
    (void)state;
    vb__tokenizer *t = parse(
        "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": [], \"unk_token\": \"u\"}}");
    vb__ids ids = encode(t, "aa", 2, NULL);
    assert_int_equal(ids.len, 2);
    vb_error err = {0};
    assert_int_equal(vb__tokenizer_encode(t, "ab", 2, NULL, &ids, &err), VB_E_FORMAT);
    assert_int_equal(ids.len, 2);
    assert_non_null(strstr(err.text, "unk_token"));
    vb__ids_fini(&ids);
    vb__tokenizer_destroy(t);
}

static void config_adds_tokens_and_names_ends(void **state) {
    (void)state;
    static const char json[] =
        "{\"added_tokens\": [{\"id\": 3, \"content\": \"<x>\", \"special\": true}], " PLAIN_MODEL "}";
    static const char config[] =
        "{\"eos_token\": {\"content\": \"<e>\"}, \"pad_token\": \"<none>\", \"bos_token\": null, "
        "\"added_tokens_decoder\": {\"3\": {\"content\": \"<x>\", \"special\": true}, "
        "\"4\": {\"content\": \"<e>\", \"special\": true}}}";
    vb_error err = {0};
    vb__tokenizer *t, *bare;
    assert_int_equal(vb__tokenizer_parse(json, strlen(json), config, strlen(config), &t, &err), VB_OK);
    assert_int_equal(vb__tokenizer_parse(json, strlen(json), NULL, 0, &bare, &err), VB_OK);
    size_t n;
    assert_int_equal(vb__tokenizer_named(t, VB_TOKEN_EOS), 4);
    assert_int_equal(vb__tokenizer_named(t, VB_TOKEN_PAD), VB_NO_TOKEN);
    assert_int_equal(vb__tokenizer_eos_ids(t, &n)[0], 4);
    assert_int_equal(vb__tokenizer_count(t), 5);
    assert_int_equal(vb__tokenizer_count(bare), 4);
    assert_true(vb__tokenizer_is_special(t, 4));
    assert_false(vb__tokenizer_has_id(t, 5));
    assert_false(vb__tokenizer_has_id(t, -1));
    assert_int_equal(vb__tokenizer_find(t, "ab", 2), 2);
    assert_int_equal(vb__tokenizer_find(t, "<e>", 3), 4);
    assert_string_not_equal(vb__tokenizer_token_text(t, 2, &n), "");
    assert_true(memcmp(&(vb__text_hash[]){vb__tokenizer_fingerprint(t)}[0],
                       &(vb__text_hash[]){vb__tokenizer_fingerprint(bare)}[0], sizeof(vb__text_hash)) != 0);
    vb__tokenizer_destroy(t);
    vb__tokenizer_destroy(bare);
    static const char contradicts[] = "{\"added_tokens_decoder\": {\"3\": {\"content\": \"<y>\"}}}";
    assert_int_equal(vb__tokenizer_parse(json, strlen(json), contradicts, strlen(contradicts), &t, &err),
                     VB_E_MISMATCH);
    assert_non_null(strstr(err.text, "tokenizer_config.json: added_tokens_decoder.3"));
}

/* ---- origins ---- */

static int32_t count_id(const vb__ids *ids, int32_t id) {
    int32_t n = 0;
    for (size_t i = 0; i < ids->len; i++) n += ids->data[i] == id;
    return n;
}

static void only_the_template_writes_control_tokens(void **state) {
    (void)state;
    json_t *all = read_json(SOURCE_ROOT "/tests/data/tokenizers.json");
    static const char *const kinds[] = {"qwen35", "llama2", "gemma", "unigram_bytes"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        vb__tokenizer *t = parse_value(small_kind(all, kinds[k]));
        int32_t end = vb__tokenizer_find(t, "</s>", 4);
        assert_true(end >= 0);
        static const char text[] = "the </s>x</s>y</s>";
        /* the first by the user, the second by the template, the third half and half */
        const vb__text_span spans[] = {{9, true}, {13, false}, {16, true}, {18, false}};
        vb__encode_options o = {.spans = spans, .n_spans = 4};
        vb__ids ids = encode(t, text, sizeof text - 1, &o);
        assert_int_equal(count_id(&ids, end), 1);
        vb__ids_fini(&ids);
        ids = encode(t, text, sizeof text - 1, NULL);
        assert_int_equal(count_id(&ids, end), 3);
        vb__ids_fini(&ids);
        ids = encode(t, text, sizeof text - 1, &(vb__encode_options){.parse = VB_PARSE_NONE});
        assert_int_equal(count_id(&ids, end), 0); /* although the vocabulary of some has the string */
        vb__ids_fini(&ids);
        /* Harmless text: any origins, the same ids. */
        static const char plain[] = "</s>the world's own, the 日本語 straße </s>\n";
        vb__ids want = encode(t, plain, sizeof plain - 1, NULL);
        for (size_t cut = 4; cut < sizeof plain - 6; cut++) {
            if (((unsigned char)plain[cut] & 0xc0) == 0x80) continue;
            const vb__text_span some[] = {
                {4, false}, {cut, true}, {sizeof plain - 6, false}, {sizeof plain - 1, false}};
            ids = encode(t, plain, sizeof plain - 1, &(vb__encode_options){.spans = some, .n_spans = 4});
            assert_int_equal(ids.len, want.len);
            assert_memory_equal(ids.data, want.data, want.len * sizeof *want.data);
            vb__ids_fini(&ids);
        }
        vb__ids_fini(&want);
        vb_error err = {0};
        const vb__text_span shortened[] = {{3, true}};
        assert_int_equal(vb__tokenizer_encode(t, text, sizeof text - 1,
                                              &(vb__encode_options){.spans = shortened, .n_spans = 1}, &ids,
                                              &err),
                         VB_E_ARGUMENT);
        vb__ids_fini(&ids);
        vb__tokenizer_destroy(t);
    }
    json_decref(all);
}

static void origins_pass_through_normalizers(void **state) {
    (void)state;
    static const char json[] = "{\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
                               "\"Lowercase\"}, {\"type\": \"Replace\", \"pattern\": {\"String\": "
                               "\"--\"}, \"content\": \"<\"}, {\"type\": \"NFC\"}]}, \"added_tokens\": "
                               "[{\"id\": 5, \"content\": \"<X>\", \"normalized\": true}, "
                               "{\"id\": 6, \"content\": \"\\u00e9\", \"normalized\": true}], \"model\": "
                               "{\"type\": \"BPE\", \"unk_token\": \"?\", \"vocab\": {\"?\": 0, "
                               "\"a\": 1, \"x\": 2, \"<\": 3, \">\": 4}, \"merges\": []}}";
    vb__tokenizer *t = parse(json);
    static const struct {
        const char *text;
        size_t user_from, user_to;
        int32_t want[6];
        size_t n;
    } cases[] = {
        {"<X>", 0, 0, {5}, 1},        {"--X>", 0, 0, {5}, 1},      {"--X>", 0, 1, {3, 2, 4}, 3},
        {"--X>", 1, 2, {3, 2, 4}, 3}, {"<X>a", 3, 4, {5, 1}, 2},   {"a<X>", 0, 1, {1, 5}, 2},
        {"<X>", 1, 2, {3, 2, 4}, 3},  {"e\xcc\x81", 0, 0, {6}, 1}, {"e\xcc\x81", 1, 3, {0}, 1},
        {"e\xcc\x81", 0, 1, {0}, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].text);
        const vb__text_span spans[] = {{cases[i].user_from, false}, {cases[i].user_to, true}, {n, false}};
        vb__ids ids = encode(t, cases[i].text, n, &(vb__encode_options){.spans = spans, .n_spans = 3});
        if (ids.len != cases[i].n || memcmp(ids.data, cases[i].want, ids.len * sizeof *ids.data) != 0)
            fail_msg("case %zu", i);
        vb__ids_fini(&ids);
    }
    vb__tokenizer_destroy(t);
}

/* ---- streams ---- */

static void byte_tokens_wait_for_the_end_of_their_run(void **state) {
    (void)state;
    json_t *all = read_json(SOURCE_ROOT "/tests/data/tokenizers.json");
    vb__tokenizer *t = parse_value(small_kind(all, "llama2"));
    static const struct {
        const char *tokens[6], *pieces[6], *end;
    } cases[] = {
        {{"<0xC3>", "<0xA9>", "a"},
         {"", "",
          "\xc3\xa9"
          "a"},
         ""},
        {{"<0xC3>", "<0x41>", "<0x42>", "a"},
         {"", "\xef\xbf\xbd\xef\xbf\xbd", "\xef\xbf\xbd", "a"},
         ""}, /* broken: at once */
        {{"<0xE2>", "<0x82>"}, {"", ""}, "\xef\xbf\xbd\xef\xbf\xbd"},
        {{"\xe2\x96\x81the", "\xe2\x96\x81", "a"}, {"the", " ", "a"}, ""}, /* one space goes */
    };
    vb_error err = {0};
    vb__detokenizer *d;
    assert_int_equal(vb__detokenizer_create(t, false, &d, &err), VB_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text;
        size_t n;
        for (size_t k = 0; cases[i].tokens[k] != NULL; k++) {
            int32_t id = vb__tokenizer_find(t, cases[i].tokens[k], strlen(cases[i].tokens[k]));
            assert_true(id >= 0);
            assert_int_equal(vb__detokenizer_push(d, id, &text, &n, &err), VB_OK);
            if (n != strlen(cases[i].pieces[k]) || memcmp(text, cases[i].pieces[k], n) != 0)
                fail_msg("case %zu, token %zu: \"%.*s\"", i, k, (int)n, text);
        }
        assert_int_equal(vb__detokenizer_end(d, &text, &n, &err), VB_OK);
        assert_int_equal(n, strlen(cases[i].end));
        assert_memory_equal(text, cases[i].end, n);
    }
    vb__detokenizer_destroy(d);
    vb__tokenizer_destroy(t);
    json_decref(all);
}

static void a_stream_allocates_nothing_after_its_start(void **state) {
    (void)state;
    json_t *all = read_json(SOURCE_ROOT "/tests/data/tokenizers.json");
    vb__tokenizer *t = parse_value(small_kind(all, "llama2"));
    vb_error err = {0};
    vb__detokenizer *d;
    const char *text;
    size_t n;
    assert_int_equal(vb__detokenizer_create(t, false, &d, &err), VB_OK);
    for (int round = 0; round < 3; round++) {
        uint64_t before = vb__alloc_calls();
        for (int32_t id = 0; id < vb__tokenizer_id_end(t); id++)
            assert_int_equal(vb__detokenizer_push(d, id, &text, &n, &err), VB_OK);
        assert_int_equal(vb__detokenizer_end(d, &text, &n, &err), VB_OK);
        if (round > 0) assert_int_equal(vb__alloc_calls(), before);
    }
    vb__detokenizer_destroy(d);
    vb__tokenizer_destroy(t);
    json_decref(all);
}

/* ---- stop strings: against a plain search ---- */

static uint32_t random_state = 1;
static uint32_t random_below(uint32_t n) {
    random_state = random_state * 1664525u + 1013904223u;
    return (random_state >> 8) % n;
}

static void stop_strings_are_cut_exactly(void **state) {
    (void)state;
    for (int round = 0; round < 4000; round++) {
        char text[64], stops[3][8], got[80];
        const char *list[3];
        size_t lengths[3], n = random_below(40), n_stops = random_below(3) + 1, at = 0, want_end = n,
                           n_got = 0;
        int32_t want = -1, match = -1;
        for (size_t i = 0; i < n; i++) text[i] = (char)('a' + random_below(2 + round % 2));
        for (size_t k = 0; k < n_stops; k++) {
            lengths[k] = 1 + random_below(5);
            for (size_t i = 0; i < lengths[k]; i++) stops[k][i] = (char)('a' + random_below(2 + round % 2));
            list[k] = stops[k];
        }
        for (size_t end = 1; end <= n && want < 0; end++)
            for (size_t k = 0; k < n_stops; k++)
                if (lengths[k] <= end && memcmp(text + end - lengths[k], stops[k], lengths[k]) == 0 &&
                    (want < 0 || lengths[k] > lengths[want])) {
                    want = (int32_t)k;
                    want_end = end;
                }
        vb_error err = {0};
        vb__stop_matcher *m;
        assert_int_equal(vb__stop_create(list, lengths, n_stops, &m, &err), VB_OK);
        const char *out;
        size_t n_out;
        while (at < n && match < 0) {
            size_t piece = random_below(4);
            if (piece > n - at) piece = n - at;
            assert_int_equal(vb__stop_push(m, text + at, piece, &out, &n_out, &match), VB_OK);
            at += piece;
            memcpy(got + n_got, out, n_out);
            n_got += n_out;
            /* never more held than the longest beginning of a stop string that the text ends with */
            size_t most = 0;
            for (size_t k = 0; k < n_stops; k++)
                for (size_t h = 1; h < lengths[k] && h <= at; h++)
                    if (memcmp(text + at - h, stops[k], h) == 0 && h > most) most = h;
            if (match < 0) assert_int_equal(n_got, at - most);
        }
        if (match < 0) {
            vb__stop_end(m, &out, &n_out);
            memcpy(got + n_got, out, n_out);
            n_got += n_out;
        }
        assert_int_equal(match, want);
        size_t expect = want < 0 ? n : want_end - lengths[want];
        assert_int_equal(n_got, expect);
        assert_memory_equal(got, text, expect);
        vb__stop_destroy(m);
    }
    vb_error err = {0};
    vb__stop_matcher *m = NULL;
    const char *empty = "";
    size_t zero = 0;
    assert_int_equal(vb__stop_create(&empty, &zero, 1, &m, &err), VB_E_ARGUMENT);
}

/* ---- time ---- */

/* Time of this thread alone: other programs do not count. */
static double cpu_seconds(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double encode_seconds(const vb__tokenizer *t, const char *unit, size_t n) {
    size_t m = strlen(unit);
    char *text = malloc(n * m + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n; i++) memcpy(text + i * m, unit, m);
    memcpy(text + n * m, "x", 1);
    double best = 1e9;
    for (int k = 0; k < 3; k++) {
        double start = cpu_seconds();
        vb__ids ids = encode(t, text, n * m + 1, NULL);
        double s = cpu_seconds() - start;
        if (s < best) best = s;
        vb__ids_fini(&ids);
    }
    free(text);
    return best;
}

static void time_is_linear_in_any_text(void **state) {
    (void)state;
    json_t *all = read_json(SOURCE_ROOT "/tests/data/tokenizers.json");
    static const char *const kinds[] = {"qwen35", "llama2", "gemma", "o200k", "deepseek1", "unigram_whole"};
    /* White-space tokens that take white space. */
    vb__tokenizer *greedy =
        parse("{\"added_tokens\": [{\"id\": 3, \"content\": \"  \", \"rstrip\": true, \"lstrip\": true, "
              "\"normalized\": false}, {\"id\": 4, \"content\": \"\\n\", \"rstrip\": true, \"normalized\": "
              "true}], " PLAIN_MODEL "}");
    double few = encode_seconds(greedy, " \n", 4000), many = encode_seconds(greedy, " \n", 32000);
    if (many > 40 * few) fail_msg("added tokens: %g s, eight times as long %g s", few, many);
    vb__ids taken = encode(greedy, "a    b  \n\na", 12, NULL);
    assert_int_equal(taken.len, 5); /* a, the blanks, b, the rest of the white space, a */
    vb__ids_fini(&taken);
    vb__tokenizer_destroy(greedy);
    static const char *const units[] = {
        " ", "a", "the", "\n", "\t\n", "'", "\xcc\x81\xcc\xa3", "\xe3\x80\x80", "<", "</s", "A"};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        vb__tokenizer *t = parse_value(small_kind(all, kinds[k]));
        for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
            double one = encode_seconds(t, units[u], 8000), eight = encode_seconds(t, units[u], 64000);
            /* 8 when linear, 64 when quadratic */
            if (eight > 40 * one)
                fail_msg("%s, unit %zu: %g s, eight times as long %g s", kinds[k], u, one, eight);
        }
        vb__tokenizer_destroy(t);
    }
    json_decref(all);
}

/* ---- memory runs out ---- */

static void every_allocation_may_fail(void **state) {
    (void)state;
    static const char json[] =
        "{\"normalizer\": {\"type\": \"NFC\"}, \"pre_tokenizer\": {\"type\": \"Sequence\", "
        "\"pretokenizers\": [{\"type\": \"Split\", \"pattern\": "
        "{\"String\": \" \"}, \"behavior\": \"Isolated\"}, {\"type\": \"Metaspace\", \"replacement\": "
        "\"\\u2581\"}]}, \"decoder\": {\"type\": "
        "\"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": {\"String\": \"\\u2581\"}, "
        "\"content\": \" \"}, {\"type\": \"ByteFallback\"}, "
        "{\"type\": \"Fuse\"}]}, \"added_tokens\": [{\"id\": 3, \"content\": \"<X>\", \"normalized\": "
        "true}], " PLAIN_MODEL "}";
    size_t before = vb__alloc_bytes(VB_TAG_TEXT) + vb__alloc_bytes(VB_TAG_MISC);
    bool done = false;
    for (uint64_t at = 1; !done; at++) {
        vb_error err = {0};
        vb__tokenizer *t = NULL;
        vb__ids ids = {0};
        vb__buffer b;
        vb__buffer_init(&b, 1000);
        vb__alloc_fail_at(at, false);
        vb_err e = vb__tokenizer_parse(json, strlen(json), NULL, 0, &t, &err);
        if (e == VB_OK) e = vb__tokenizer_encode(t, "ab <X> \xcc\x81\xcc\xa3", 11, NULL, &ids, &err);
        if (e == VB_OK) e = vb__tokenizer_decode(t, ids.data, ids.len, false, &b, &err);
        done = e == VB_OK;
        vb__alloc_fail_at(0, false);
        if (!done && e != VB_E_MEMORY) fail_msg("allocation %d: %s", (int)at, err.text);
        assert_true(at < 1000);
        vb__ids_fini(&ids);
        vb__buffer_fini(&b);
        vb__tokenizer_destroy(t);
        assert_int_equal(vb__alloc_bytes(VB_TAG_TEXT) + vb__alloc_bytes(VB_TAG_MISC), before);
    }
}

/* ---- GGUF ---- */

static void gguf_gives_the_ids_of_the_json(void **state) {
    (void)state;
    json_t *all = read_json(SOURCE_ROOT "/tests/data/tokenizers.json"), *json = small_kind(all, "qwen35");
    vb__tokenizer *t = parse_value(json), *g = NULL;
    size_t n = (size_t)vb__tokenizer_id_end(t), n_merges;
    vb__gguf_string *tokens = calloc(n, sizeof *tokens), *merges;
    int32_t *types = calloc(n, sizeof *types);
    for (size_t i = 0; i < n; i++) {
        tokens[i].text = vb__tokenizer_token_text(t, (int32_t)i, &tokens[i].len);
        types[i] = !vb__tokenizer_is_added(t, (int32_t)i)    ? VB_GGUF_NORMAL
                   : vb__tokenizer_is_special(t, (int32_t)i) ? VB_GGUF_CONTROL
                                                             : VB_GGUF_USER_DEFINED;
    }
    const json_t *list = json_object_get(json_object_get(json, "model"), "merges");
    n_merges = json_array_size(list);
    merges = calloc(n_merges, sizeof *merges);
    char **lines = calloc(n_merges, sizeof *lines);
    for (size_t i = 0; i < n_merges; i++) {
        const json_t *m = json_array_get(list, i);
        vb__buffer b;
        vb__buffer_init(&b, 1000);
        (void)vb__buffer_printf(&b, "%s %s", json_string_value(json_array_get(m, 0)),
                                json_string_value(json_array_get(m, 1)));
        merges[i].len = b.len;
        merges[i].text = lines[i] = vb__buffer_take(&b);
    }
    vb__gguf_vocab v = {.model = "gpt2",
                        .pre = "qwen35",
                        .tokens = tokens,
                        .types = types,
                        .n_tokens = n,
                        .merges = merges,
                        .n_merges = n_merges,
                        .bos = VB_NO_TOKEN,
                        .eos = 5,
                        .eot = 6,
                        .eom = 6,
                        .unk = VB_NO_TOKEN,
                        .pad = VB_NO_TOKEN};
    vb_error err = {0};
    if (vb__tokenizer_from_gguf(&v, &g, &err) != VB_OK) fail_msg("%s", err.text);
    static const char text[] = "The world's 42 straße</s> <think>\n\n\n  été e\xcc\x81 日本語 <|im_start|>";
    vb__ids a = encode(t, text, sizeof text - 1, NULL), b = encode(g, text, sizeof text - 1, NULL);
    assert_int_equal(a.len, b.len);
    assert_memory_equal(a.data, b.data, a.len * sizeof *a.data);
    size_t n_eos;
    (void)vb__tokenizer_eos_ids(g, &n_eos);
    assert_int_equal(n_eos, 2);
    vb__ids_fini(&a);
    vb__ids_fini(&b);
    vb__tokenizer_destroy(g);
    static const char *const known[] = {
        "qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "qwen35", "llama-bpe", "llama3", "llama-v3", "falcon3",
        "pixtral", "smaug-bpe", "glm4", "chatglm-bpe", "dbrx", "gpt-4o", "llama4", "o200k", "tekken", "gpt-2", "default", "phi-2",
        "mpt", "olmo", "roberta-bpe", "jina-es", "jina-de", "smollm", "starcoder", "refact", "command-r", "codeshell",
        "deepseek-llm", "deepseek-coder", "deepseek-v3"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        v.pre = known[i];
        if (vb__tokenizer_from_gguf(&v, &g, &err) != VB_OK) fail_msg("%s: %s", known[i], err.text);
        vb__ids words = encode(g, "abc \xe2\x84\xaa \xe1\xbf\x93 12", 14, NULL); /* two of the letters change in NFC */
        assert_true(words.len > 0);
        vb__ids_fini(&words);
        vb__tokenizer_destroy(g);
    }
    v.pre = "no-such";
    assert_int_equal(vb__tokenizer_from_gguf(&v, &g, &err), VB_E_UNSUPPORTED);
    v.pre = NULL;
    v.eos = (int32_t)n;
    assert_int_equal(vb__tokenizer_from_gguf(&v, &g, &err), VB_E_RANGE);
    for (size_t i = 0; i < n_merges; i++) vb__free(lines[i]);
    free(lines);
    free(tokens);
    free(types);
    free(merges);
    vb__tokenizer_destroy(t);
    json_decref(all);
}

static void gguf_scores_decide_the_merges(void **state) {
    (void)state;
    static const char *const texts[] = {"<unk>",
                                        "<s>",
                                        "</s>",
                                        "<0x00>",
                                        "<0x0A>",
                                        "<0xC3>",
                                        "<0xA9>",
                                        "\xe2\x96\x81",
                                        "a",
                                        "b",
                                        "c",
                                        "ab",
                                        "bc",
                                        "abc",
                                        ("\xe2\x96\x81"
                                         "a"),
                                        "<",
                                        "s>",
                                        "s",
                                        ">"};
    static const float scores[] = {0, 0, 0, 0, 0, 0, 0, -9, -9, -9, -9, -2, -1, -3, -4, -9, -9, -9, -9};
    static const int32_t types[] = {2, 3, 3, 6, 6, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    enum { N = sizeof texts / sizeof *texts };
    vb__gguf_string tokens[N];
    for (int i = 0; i < N; i++) tokens[i] = (vb__gguf_string){texts[i], strlen(texts[i])};
    vb__gguf_vocab v = {.model = "llama",
                        .tokens = tokens,
                        .scores = scores,
                        .types = types,
                        .n_tokens = N,
                        .bos = 1,
                        .eos = 2,
                        .eot = VB_NO_TOKEN,
                        .eom = VB_NO_TOKEN,
                        .unk = 0,
                        .pad = VB_NO_TOKEN,
                        .add_bos = true,
                        .add_space_prefix = true};
    vb_error err = {0};
    vb__tokenizer *t = NULL;
    if (vb__tokenizer_from_gguf(&v, &t, &err) != VB_OK) fail_msg("%s", err.text);
    static const struct {
        const char *text;
        int32_t want[8];
        size_t n;
    } cases[] = {
        {"abc", {1, 7, 8, 12}, 4}, /* bc has the best score, and then a + bc is abc: below */
        {"ab", {1, 7, 11}, 3},     /* ab before the blank and a */
        {"a", {1, 14}, 2},          {"\xc3\xa9\n", {1, 7, 5, 6, 4}, 5},
        {"<s>", {1, 7, 15, 16}, 4}, /* hidden below */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vb__ids ids = encode(t, cases[i].text, strlen(cases[i].text),
                             &(vb__encode_options){.parse = VB_PARSE_NONE, .add_special = true});
        if (i == 0) { /* bc (-1) first, then abc (-3) from a and bc, before the blank and a (-4) */
            assert_int_equal(ids.len, 3);
            assert_int_equal(ids.data[2], 13);
        } else if (ids.len != cases[i].n ||
                   memcmp(ids.data, cases[i].want, ids.len * sizeof *ids.data) != 0) {
            fail_msg("case %zu", i);
        }
        vb__ids_fini(&ids);
    }
    int32_t ids[] = {14, 7, 5, 6, 12};
    assert_true(decodes_to(t, ids, 5,
                           "a \xc3\xa9"
                           "bc",
                           6));
    vb__tokenizer_destroy(t);
}

/* ---- lines ---- */

static void lines_answer_lines(void **state) {
    (void)state;
    vb__tokenizer *t = parse("{\"added_tokens\": [{\"id\": 3, \"content\": \"<x>\", \"special\": true, "
                             "\"normalized\": false}], " PLAIN_MODEL "}");
    static const struct {
        bool decode;
        const char *in, *out;
    } cases[] = {
        {false, "{\"text\": \"ab<x>a\"}", "{\"ids\": [2, 3, 0]}\n"},
        {false, "{\"text\": \"ab<x>a\", \"parse_special\": false}", "{\"ids\": [2, 0]}\n"},
        {false, "{\"text\": \"\"}", "{\"ids\": []}\n"},
        {true, "{\"ids\": [2, 3, 0, 77]}", "{\"text\": \"ab <x> a\"}\n"},
        {true, "{\"ids\": [2, 3, 0], \"skip_special\": true}", "{\"text\": \"ab a\"}\n"},
        {false, "", "{\"error\": "},
        {false, "{\"text\": 1}", "{\"error\": \"text: is 1, expected a string\"}\n"},
        {false, "{\"text\": \"a\"", "{\"error\": "},
        {false, "{\"text\": \"\\ud800\"}", "{\"error\": "},
        {false, "{\"text\": \"a\", \"parse_special\": \"\x07\xff\"}", "{\"error\": "},
        {true, "{\"ids\": [1.5]}", "{\"error\": \"ids[0]: "},
        {true, "{\"ids\": [-1]}", "{\"error\": \"ids[0]: "},
        {true, "{\"ids\": {}}", "{\"error\": "},
        {true, "[]", "{\"error\": \"line: expected a JSON object\"}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vb_error err = {0};
        vb__buffer b;
        vb__buffer_init(&b, 10000);
        assert_int_equal(vb__tokenize_line(t, cases[i].decode, cases[i].in, strlen(cases[i].in), &b, &err),
                         VB_OK);
        if (strncmp(vb__buffer_str(&b), cases[i].out, strlen(cases[i].out)) != 0)
            fail_msg("case %zu: %s", i, vb__buffer_str(&b));
        json_t *v = json_loads(vb__buffer_str(&b), 0, NULL);
        assert_non_null(v);
        json_decref(v);
        vb__buffer_fini(&b);
    }
    vb__tokenizer_destroy(t);
}

/* ---- text ---- */

static void normal_forms(void **state) {
    (void)state;
    static const struct {
        vb__nf form;
        const char *in, *out;
    } cases[] = {
        {VB_NFC, "e\xcc\x81", "\xc3\xa9"},
        {VB_NFC, "a\xcc\xa3\xcc\x82", "\xe1\xba\xad"},                    /* marks in order */
        {VB_NFC, "a\xcc\x82\xcc\xa3", "\xe1\xba\xad"},                    /* and not */
        {VB_NFC, "\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa8", "\xea\xb0\x81"}, /* Hangul */
        {VB_NFC, "\xea\xb0\x80\xe1\x86\xa7", "\xea\xb0\x80\xe1\x86\xa7"}, /* U+11A7 stays */
        {VB_NFC, "\xe2\x84\xab", "\xc3\x85"},                             /* singleton */
        {VB_NFC, "\xe0\xa5\x98", "\xe0\xa4\x95\xe0\xa4\xbc"},             /* composition exclusion */
        {VB_NFD, "\xc3\xa9x", "e\xcc\x81x"},
        {VB_NFKC, "\xef\xac\x81\xe2\x91\xa0", "fi1"},
        {VB_NFKD, "\xc2\xbd",
         "1\xe2\x81\x84"
         "2"},
        {VB_NFC, "a\xcc\x95\xe1\xb7\xba", "a\xcc\x95\xe1\xb7\xba"}, /* U+1DFA came after Unicode 9 */
    };
    vb__nf_work work = {0};
    vb__textbuf out;
    vb__textbuf_init(&out, 1 << 20);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool changed;
        vb__textbuf_clear(&out, false);
        assert_int_equal(vb__normalize_unicode(cases[i].form, cases[i].in, strlen(cases[i].in), NULL, &work,
                                               &out, &changed),
                         VB_OK);
        const char *got = changed ? out.data : cases[i].in;
        size_t n = changed ? out.len : strlen(cases[i].in);
        if (n != strlen(cases[i].out) || memcmp(got, cases[i].out, n) != 0)
            fail_msg("case %zu: %.*s", i, (int)n, got);
    }
    vb__textbuf_fini(&out);
    vb__nf_work_fini(&work);
    /* marks for StripAccents, of Unicode 9: U+1CF2 was one, U+08D0, U+16FF0 and U+1E4EF came later */
    static const uint32_t marks[] = {0x300, 0x903, 0x20dd, 0x1cf2, 0x8d4, 0xc03, 0x1171d, 0xe0100};
    static const uint32_t no_marks[] = {'a', 0xb4, 0x2ff, 0x8d0, 0xc04, 0xc3c, 0x1cf7, 0x11a99, 0x16ff0, 0x1e4ef};
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (!vb__char_is_mark(marks[i])) fail_msg("U+%04X is no mark", marks[i]);
    for (size_t i = 0; i < sizeof no_marks / sizeof *no_marks; i++)
        if (vb__char_is_mark(no_marks[i])) fail_msg("U+%04X is a mark", no_marks[i]);
    assert_int_equal(vb__utf8_check("a\xc0\x80", 3), 1);
    assert_int_equal(vb__utf8_check("a\xed\xa0\x80", 4), 1);
    assert_int_equal(vb__utf8_check("a\xf4\x90\x80\x80", 5), 1);
    assert_int_equal(vb__utf8_check("ab\xe2\x82", 4), 2);
}

static void regular_expressions_mean_what_they_meant(void **state) {
    (void)state;
    static const struct {
        const char *pattern, *text;
        size_t begin, end; /* begin > end: no match */
    } cases[] = {
        {"\\s", "\xe1\xa0\x8e", 1, 0}, /* U+180E is not white space */
        {"\\S", "\xe1\xa0\x8e", 0, 3},
        {"[^\\s]", "\xe1\xa0\x8e", 0, 3},
        {"[\\S]", "\xe1\xa0\x8e", 0, 3},
        {"[\\s]", "a\xc2\x85", 1, 3},
        {"\\w+", "-e\xcc\x81-", 1, 4},
        {"(?i:'s)", "'\xc5\xbf", 0, 3},
        {"\\h+", "xyzaf0", 3, 6},
        {"\\p{Letter}", "1b", 1, 2},
        {"\\u0041", "A", 0, 1},
        {"\\bb", "ab b", 3, 4},
        {"^b", "a\nb", 2, 3},
        {"[]a]", "]", 0, 1},
        {"[[:alpha:]]+", "1a\xc3\xa9", 1, 4},
        {"[^(\\s|[.,])]+", "a].", 0, 2},
    };
    vb__regex_scratch s = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vb_error err = {0};
        vb__regex *r;
        bool found;
        size_t a = 0, b = 0;
        if (vb__regex_create(cases[i].pattern, strlen(cases[i].pattern), "pattern", &r, &err) != VB_OK)
            fail_msg("%s", err.text);
        assert_int_equal(vb__regex_find(r, &s, cases[i].text, strlen(cases[i].text), 0, &found, &a, &b, &err),
                         VB_OK);
        if (found != (cases[i].begin <= cases[i].end) ||
            (found && (a != cases[i].begin || b != cases[i].end)))
            fail_msg("case %zu: %s gave %zu..%zu", i, cases[i].pattern, a, b);
        vb__regex_destroy(r);
    }
    vb_error err = {0};
    vb__regex *r;
    bool found;
    size_t a, b;
    static const char costly[] = "(a+)+b";
    assert_int_equal(vb__regex_create(costly, strlen(costly), "pattern", &r, &err), VB_OK);
    assert_int_equal(
        vb__regex_find(r, &s, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaacb", 39, 0, &found, &a, &b, &err),
        VB_E_LIMIT);
    vb__regex_destroy(r);
    vb__regex_scratch_fini(&s);
}

/* The scanners answer as the regular expressions do, from every place of every text. */
static void scanners_agree_with_their_patterns(void **state) {
    (void)state;
    static const char *const alphabet[] = {" ",
                                           "  ",
                                           "\n",
                                           "\r",
                                           "\t",
                                           "a",
                                           "s",
                                           "S",
                                           "T",
                                           "re",
                                           "LL",
                                           "'",
                                           "''",
                                           "1",
                                           "23",
                                           "-",
                                           ".",
                                           "!",
                                           "\x01",
                                           "\x7f",
                                           "\xc3\xa9",
                                           "\xcc\x81",
                                           "\xe3\x80\x80",
                                           "\xd9\xa3",
                                           "\xc5\xbf",
                                           "\xe2\x80\x99"};
    enum { N = sizeof alphabet / sizeof *alphabet };
    vb__regex_scratch s = {0};
    size_t n_patterns = 0, answered = 0;
    const char *pattern;
    while ((pattern = vb__pre_scan_pattern(n_patterns)) != NULL) {
        vb_error err = {0};
        vb__regex *r;
        vb__pre_scan scan = vb__pre_scan_of(pattern, strlen(pattern));
        assert_int_not_equal(scan, VB_SCAN_NONE);
        assert_int_equal(vb__regex_create(pattern, strlen(pattern), "pattern", &r, &err), VB_OK);
        for (int round = 0; round < 20000; round++) {
            char text[64];
            size_t n = 0;
            for (uint32_t k = random_below(10) + 1; k > 0; k--) {
                const char *p = alphabet[random_below(random_below(3) == 0 ? N : N - 6)];
                memcpy(text + n, p, strlen(p));
                n += strlen(p);
            }
            for (size_t at = 0; at < n;) {
                bool found;
                size_t a, b, end = vb__pre_scan_next(scan, text, n, at);
                assert_int_equal(vb__regex_find(r, &s, text, n, at, &found, &a, &b, &err), VB_OK);
                assert_true(found && a == at);
                if (end != at && end != b)
                    fail_msg("pattern %zu, \"%.*s\" at %zu: %zu, expected %zu", n_patterns, (int)n, text, at,
                             end, b);
                answered += end != at;
                at = b;
            }
        }
        vb__regex_destroy(r);
        n_patterns++;
    }
    assert_true(n_patterns >= 4 && answered > 100000);
    vb__regex_scratch_fini(&s);
}

/* ---- threads ---- */

typedef struct shared_work {
    const vb__tokenizer *t;
    const char *text;
    size_t n;
    vb__ids ids[8];
} shared_work;

static void encode_item(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    (void)thread;
    shared_work *w = ctx;
    for (int32_t i = begin; i < end; i++)
        (void)!vb__tokenizer_encode(w->t, w->text, w->n, NULL, &w->ids[i], NULL);
}

static void threads_share_a_tokenizer(void **state) {
    (void)state;
    json_t *all = read_json(SOURCE_ROOT "/tests/data/tokenizers.json");
    vb__tokenizer *t = parse_value(small_kind(all, "gemma"));
    vb_error err = {0};
    vb__pool *pool;
    vb__cpu_level level;
    static char text[20000];
    for (size_t i = 0; i < sizeof text; i++) text[i] = "the own world "[i % 14];
    shared_work w = {.t = t, .text = text, .n = sizeof text};
    assert_int_equal(vb__cpu_detect(&level, &err), VB_OK);
    assert_int_equal(vb__pool_create(4, &pool, &err), VB_OK);
    vb__parallel_for(pool, 8, 1, encode_item, &w);
    vb__pool_destroy(pool);
    for (int i = 0; i < 8; i++) {
        assert_true(w.ids[i].len > 0 && w.ids[i].len == w.ids[0].len);
        assert_memory_equal(w.ids[i].data, w.ids[0].data, w.ids[0].len * sizeof *w.ids[0].data);
        if (i > 0) vb__ids_fini(&w.ids[i]);
    }
    vb__ids_fini(&w.ids[0]);
    vb__tokenizer_destroy(t);
    json_decref(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tokenizers_of_every_kind),
        cmocka_unit_test(defects_are_refused_by_name),
        cmocka_unit_test(an_absent_unknown_token_matters_when_needed),
        cmocka_unit_test(config_adds_tokens_and_names_ends),
        cmocka_unit_test(only_the_template_writes_control_tokens),
        cmocka_unit_test(origins_pass_through_normalizers),
        cmocka_unit_test(byte_tokens_wait_for_the_end_of_their_run),
        cmocka_unit_test(a_stream_allocates_nothing_after_its_start),
        cmocka_unit_test(stop_strings_are_cut_exactly),
        cmocka_unit_test(time_is_linear_in_any_text),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(gguf_gives_the_ids_of_the_json),
        cmocka_unit_test(gguf_scores_decide_the_merges),
        cmocka_unit_test(lines_answer_lines),
        cmocka_unit_test(normal_forms),
        cmocka_unit_test(regular_expressions_mean_what_they_meant),
        cmocka_unit_test(scanners_agree_with_their_patterns),
        cmocka_unit_test(threads_share_a_tokenizer),
        cmocka_unit_test(qwen3_cases),
        cmocka_unit_test(qwen3_streams),
        cmocka_unit_test(atto_cases),
    };
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
