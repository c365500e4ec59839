/* Tokenizers against the stock library's ids (the shared fixtures, where present) and small cases of our own.
 */
#include "base/alloc.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "text/detokenizer.h"
#include "text/text_unicode.h"
#include "text/tokenize_lines.h"
#include "text/tokenizer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_cases),
        cmocka_unit_test(qwen3_streams),
        cmocka_unit_test(atto_cases),
    };
    (void)parse;
    return cmocka_run_group_tests_name("tokenizer", tests, NULL, NULL);
}
