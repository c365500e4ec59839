/* base/json and base/file: strictness, messages, getters, atomic writing. */
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static void refused(const char *text, size_t n, vb_err code, const char *part) {
    json_t *doc = NULL;
    vb_error err = {0};
    assert_int_equal(vb__json_parse(text, n, 1 << 20, "f.json", &doc, &err), code);
    assert_null(doc);
    if (strstr(err.text, part) == NULL || strncmp(err.text, "f.json: ", 8) != 0)
        fail_msg("\"%s\" lacks \"%s\"", err.text, part);
}
#define REFUSED(text, code, part) refused(text, sizeof(text) - 1, code, part)

static void what_is_not_strict_json_is_refused(void **state) {
    (void)state;
    REFUSED("", VB_E_FORMAT, "line 1");
    REFUSED("{\n\"a\": }", VB_E_FORMAT, "line 2");
    REFUSED("{\"a\": 1,\n \"a\": 2}", VB_E_FORMAT, "duplicate object key near '\"a\"'");
    REFUSED("\xef\xbb\xbf{}", VB_E_FORMAT, "byte order mark");
    REFUSED("{} {}", VB_E_FORMAT, "line 1");
    REFUSED("{\"a\": 9223372036854775808}", VB_E_FORMAT, "64 bits");
    REFUSED("{\"a\": 1e999}", VB_E_FORMAT, "out of range");
    REFUSED("{\"a\": NaN}", VB_E_FORMAT, "line 1");
    REFUSED("{\"a\": \"\xff\"}", VB_E_FORMAT, "line 1");
    REFUSED("{\"a\\u0000b\": 1}", VB_E_FORMAT, "line 1");
    REFUSED("{\"a\": 1}\0", VB_E_FORMAT, "line 1");
    char deep[600];
    for (int d = VB_LIMIT_JSON_DEPTH; d <= VB_LIMIT_JSON_DEPTH + 1; d++) {
        memset(deep, '[', (size_t)d);
        memset(deep + d, ']', (size_t)d);
        json_t *doc = NULL;
        vb_error err;
        vb_err e = vb__json_parse(deep, 2 * (size_t)d, 1 << 20, "f.json", &doc, &err);
        assert_int_equal(e, d == VB_LIMIT_JSON_DEPTH ? VB_OK : VB_E_LIMIT);
        json_decref(doc);
    }
    /* brackets in strings do not count, and an escaped quote does not end a string */
    char s[700] = "[\"\\\"";
    memset(s + 4, '[', 600);
    memcpy(s + 604, "\"]", 3);
    json_t *doc = NULL;
    vb_error err;
    assert_int_equal(vb__json_parse(s, strlen(s), 1 << 20, "f.json", &doc, &err), VB_OK);
    json_decref(doc);
    assert_int_equal(vb__json_parse("[1]", 3, 2, "f.json", &doc, &err), VB_E_LIMIT);
}

static void getters_check_and_name_the_field(void **state) {
    (void)state;
    const char *text = "{\"i\": 7, \"big\": 5000000000, \"r\": 0.5, \"t\": true, \"s\": \"x\", \"nul\": \"a\\u0000b\", \"z\": null,"
                       " \"o\": {}, \"a\": [1, 2]}";
    json_t *doc = NULL;
    vb_error err;
    assert_int_equal(vb__json_parse(text, strlen(text), 1 << 20, "config.json", &doc, &err), VB_OK);
    vb__json_at at = {doc, "config.json: text_config."};
    int32_t i = 0;
    double d = 0;
    bool b = false;
    const char *s = NULL;
    json_t *v = NULL;
    assert_int_equal(vb__json_i32(at, "i", 1, 7, &i, &err), VB_OK);
    assert_int_equal(i, 7);
    assert_int_equal(vb__json_i32(at, "i", 8, 9, &i, &err), VB_E_FORMAT);
    assert_string_equal(err.text, "config.json: text_config.i: is 7, expected an integer 8..9");
    assert_int_equal(vb__json_i32(at, "big", 0, INT32_MAX, &i, &err), VB_E_FORMAT);
    assert_int_equal(vb__json_i32(at, "r", 0, 9, &i, &err), VB_E_FORMAT);
    assert_int_equal(vb__json_i32(at, "s", 0, 9, &i, &err), VB_E_FORMAT);
    assert_string_equal(err.text, "config.json: text_config.s: is \"x\", expected an integer 0..9");
    assert_int_equal(vb__json_i32(at, "z", 0, 9, &i, &err), VB_E_FORMAT);
    assert_string_equal(err.text, "config.json: text_config.z: is null, expected an integer 0..9");
    assert_int_equal(vb__json_i32(at, "none", 0, 9, &i, &err), VB_E_FORMAT);
    assert_string_equal(err.text, "config.json: text_config.none: is missing, expected an integer 0..9");
    assert_int_equal(vb__json_i32_or(at, "z", 0, 9, 3, &i, &err), VB_OK);
    assert_int_equal(i, 3);
    assert_int_equal(vb__json_i32_or(at, "i", 0, 6, 3, &i, &err), VB_E_FORMAT);
    assert_int_equal(vb__json_number(at, "r", 0, 1, &d, &err), VB_OK);
    assert_int_equal(vb__json_number(at, "i", 0, 10, &d, &err), VB_OK);
    assert_true(d == 7.0);
    assert_int_equal(vb__json_number(at, "r", 1, 2, &d, &err), VB_E_FORMAT);
    assert_int_equal(vb__json_bool(at, "t", &b, &err), VB_OK);
    assert_int_equal(vb__json_bool(at, "i", &b, &err), VB_E_FORMAT);
    assert_int_equal(vb__json_string(at, "s", &s, &err), VB_OK);
    assert_string_equal(s, "x");
    assert_int_equal(vb__json_string(at, "nul", &s, &err), VB_E_FORMAT);
    assert_int_equal(vb__json_object(at, "o", &v, &err), VB_OK);
    assert_int_equal(vb__json_object(at, "a", &v, &err), VB_E_FORMAT);
    assert_string_equal(err.text, "config.json: text_config.a: is an array of 2, expected an object");
    assert_int_equal(vb__json_array(at, "a", 2, &v, &err), VB_OK);
    assert_int_equal(vb__json_array(at, "a", 1, &v, &err), VB_E_FORMAT);
    json_decref(doc);
}

static void files_are_read_with_a_limit_and_written_whole(void **state) {
    (void)state;
    char dir[] = "/tmp/verbatim-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char *path = vb__path_join(dir, "x.json");
    vb_error err;
    vb__buffer b;
    vb__buffer_init(&b, 100);
    assert_int_equal(vb__file_read(path, 100, &b, &err), VB_E_NOT_FOUND);
    assert_int_equal(vb__file_read(dir, 100, &b, &err), VB_E_IO);
    assert_int_equal(vb__file_write(path, "{\"a\": 1}", 8, &err), VB_OK);
    assert_int_equal(vb__file_read(path, 7, &b, &err), VB_E_LIMIT);
    assert_int_equal(vb__file_read(path, 8, &b, &err), VB_OK);
    assert_string_equal(vb__buffer_str(&b), "{\"a\": 1}");
    json_t *doc = NULL;
    assert_int_equal(vb__json_read(path, 100, NULL, &doc, &err), VB_OK);
    json_decref(doc);
    vb__file_writer w;
    assert_int_equal(vb__file_writer_open(&w, path, &err), VB_OK);
    assert_int_equal(vb__file_writer_put(&w, "half", 4, &err), VB_OK);
    vb__file_writer_abort(&w);
    assert_int_equal(vb__json_read(path, 100, NULL, &doc, &err), VB_OK); /* the old one is still whole */
    json_decref(doc);
    assert_true(vb__path_plain_name("a.b"));
    assert_false(vb__path_plain_name("../a"));
    assert_false(vb__path_plain_name(".."));
    assert_false(vb__path_plain_name(""));
    vb__buffer_fini(&b);
    unlink(path);
    rmdir(dir);
    vb__free(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_not_strict_json_is_refused),
        cmocka_unit_test(getters_check_and_name_the_field),
        cmocka_unit_test(files_are_read_with_a_limit_and_written_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
