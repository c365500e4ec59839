/* format/safetensors and format/shards: what is right is read, every defect is one error that names file and tensor. */
#include "base/alloc.h"
#include "format/shards.h"
#include "testdir.h"
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

static testdir dir;
static int make_dir(void **state) {
    (void)state;
    testdir_make(&dir);
    return 0;
}
static int remove_dir(void **state) {
    (void)state;
    testdir_remove(&dir);
    return 0;
}

static const uint8_t zeros[4096];

#define T(name, dtype, shape, from, to) "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void a_good_file_is_read(void **state) {
    (void)state;
    const char *h = "{\"__metadata__\":{\"format\":\"pt\"}," T("b", "F32", "[2,3]", 4, 28) "," T("a", "BF16", "[2]", 0, 4) ","
                    T("e", "U8", "[0,9223372036854775807]", 28, 28) "," T("s", "I64", "[]", 28, 36) "}   ";
    uint8_t data[36];
    for (int i = 0; i < 36; i++) data[i] = (uint8_t)i;
    testdir_safetensors(&dir, "x.safetensors", h, data, sizeof data);
    vb__safetensors s;
    vb_error err = {0};
    if (vb__safetensors_open(testdir_file(&dir, "x.safetensors"), &s, &err) != VB_OK) fail_msg("%s", err.text);
    assert_int_equal(s.count, 4);
    assert_string_equal(s.tensors[0].name, "a");
    assert_int_equal(s.tensors[0].dtype, VB_DTYPE_BF16);
    assert_string_equal(s.tensors[1].name, "b");
    assert_int_equal(s.tensors[1].dims, 2);
    assert_int_equal(s.tensors[1].shape[1], 3);
    assert_int_equal(s.tensors[1].bytes, 24);
    assert_int_equal(s.tensors[1].data[0], 4);
    assert_string_equal(s.tensors[2].name, "e");
    assert_int_equal(s.tensors[2].bytes, 0);
    assert_string_equal(s.tensors[3].name, "s");
    assert_int_equal(s.tensors[3].dims, 0);
    vb__safetensors_close(&s);
}

typedef struct defect {
    const char *header;
    size_t data;
    const char *says; /* beside the file's name */
} defect;

static void every_defect_of_one_file_is_named(void **state) {
    (void)state;
    char deep[400];
    memset(deep, '[', 200);
    memset(deep + 200, ']', 199);
    deep[399] = '\0';
    char longer[700];
    (void)snprintf(longer, sizeof longer, "{\"%0600d\":{}}", 0);
    const defect defects[] = {
        {"", 0, "line 1"},
        {"[]", 0, "expected an object"},
        {"{", 0, "line 1"},
        {"\xef\xbb\xbf{}", 0, "byte order mark"},
        {"{} x", 0, "line 1"},
        {deep, 0, "nested deeper"},
        {longer, 0, "name has 600 bytes"},
        {"{\"\":{}}", 0, "name has 0 bytes"},
        {"{" T("a", "U8", "[1]", 0, 1) "," T("a", "U8", "[1]", 1, 2) "}", 2, "duplicate object key near '\"a\"'"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
        {"{\"__metadata__\":[]}", 0, "__metadata__"},
        {"{\"a\":7}", 0, "tensor a: is 7"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "tensor a: dtype is missing"},
        {"{" T("a", "F4", "[1]", 0, 1) "}", 1, "tensor a: dtype is \"F4\""},
        {"{" T("a", "bf16", "[1]", 0, 2) "}", 2, "tensor a: dtype is \"bf16\""},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "tensor a: shape is missing"},
        {"{" T("a", "U8", "[-1]", 0, 1) "}", 1, "tensor a: shape[0] is -1"},
        {"{" T("a", "U8", "[1.5]", 0, 1) "}", 1, "tensor a: shape[0] is 1.5"},
        {"{" T("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, "tensor a: shape is an array of 9"},
        {"{" T("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0, "tensor a: shape has more than 2^64"},
        {"{" T("a", "F32", "[4611686018427387904]", 0, 0) "}", 0, "tensor a: shape has more than 2^64"},
        {"{" T("a", "U8", "[18446744073709551617]", 0, 1) "}", 1, "64 bits"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "tensor a: data_offsets is missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "tensor a: data_offsets"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1, "tensor a: has a field \"x\""},
        {"{" T("a", "U8", "[1]", 1, 0) "}", 1, "tensor a: data_offsets"},
        {"{" T("a", "U8", "[1]", -1, 0) "}", 1, "tensor a: data_offsets"},
        {"{" T("a", "U8", "[2]", 0, 2) "}", 1, "tensor a: ends at byte 2 of the data, expected at most 1"},
        {"{" T("a", "U8", "[9223372036854775807]", 0, 9223372036854775807) "}", 1, "tensor a: ends at byte"},
        {"{" T("a", "F32", "[2]", 0, 7) "}", 7, "tensor a: has 7 bytes, expected 8"},
        {"{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 1, 3) "}", 3, "tensor b: overlaps tensor a"},
        {"{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 0, 2) "}", 2, "tensor b: overlaps tensor a"},
        {"{" T("a", "U8", "[2]", 1, 3) "}", 3, "tensor a: a hole of 1 bytes"},
        {"{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[2]", 4, 6) "}", 6, "tensor b: a hole of 2 bytes"},
        {"{" T("a", "U8", "[2]", 0, 2) "}", 3, "1 bytes follow the last tensor (a)"},
        {"{}", 1, "1 bytes follow the last tensor (none)"},
    };
    size_t before = vb__alloc_bytes(VB_TAG_FORMAT);
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        const defect *d = &defects[i];
        testdir_safetensors(&dir, "x.safetensors", d->header, zeros, d->data);
        vb__safetensors s;
        vb_error err = {0};
        if (vb__safetensors_open(testdir_file(&dir, "x.safetensors"), &s, &err) == VB_OK) fail_msg("taken: %.100s", d->header);
        if (strstr(err.text, d->says) == NULL || strncmp(err.text, "x.safetensors: ", 15) != 0)
            fail_msg("%.100s: \"%s\" lacks \"%s\"", d->header, err.text, d->says);
        assert_int_equal(vb__alloc_bytes(VB_TAG_FORMAT), before);
    }
}

static void open_raw(const void *data, size_t n, const char *says) {
    testdir_write(&dir, "x.safetensors", data, n);
    vb__safetensors s;
    vb_error err = {0};
    assert_int_not_equal(vb__safetensors_open(testdir_file(&dir, "x.safetensors"), &s, &err), VB_OK);
    if (strstr(err.text, says) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.text, says);
}

static void lengths_that_lie_are_refused(void **state) {
    (void)state;
    uint8_t b[64] = {0};
    open_raw(b, 0, "has 0 bytes");
    open_raw(b, 7, "has 7 bytes");
    b[7] = 0x40; /* 2^62 */
    open_raw(b, sizeof b, "claims 4611686018427387904 bytes");
    memset(b, 0xff, 8);
    open_raw(b, sizeof b, "claims 18446744073709551615 bytes");
    memset(b, 0, 8);
    b[0] = 57;
    open_raw(b, sizeof b, "claims 57 bytes, the file has 56");
    vb__safetensors s;
    vb_error err = {0};
    assert_int_equal(vb__safetensors_open(testdir_file(&dir, "none"), &s, &err), VB_E_NOT_FOUND);
    assert_int_equal(vb__safetensors_open(dir.path, &s, &err), VB_E_IO);
    assert_int_equal(mkfifo(testdir_file(&dir, "pipe"), 0600), 0);
    assert_int_equal(vb__safetensors_open(testdir_file(&dir, "pipe"), &s, &err), VB_E_IO);
    assert_non_null(strstr(err.text, "not a regular file"));
}

/* A whole file cut anywhere is refused. */
static void every_truncation_is_refused(void **state) {
    (void)state;
    testdir_safetensors(&dir, "x.safetensors", "{" T("a", "F32", "[2]", 0, 8) "," T("b", "U8", "[5]", 8, 13) "}", zeros, 13);
    size_t n;
    char *whole = testdir_read(testdir_file(&dir, "x.safetensors"), &n);
    for (size_t cut = 0; cut < n; cut++) {
        testdir_write(&dir, "x.safetensors", whole, cut);
        vb__safetensors s;
        vb_error err = {0};
        if (vb__safetensors_open(testdir_file(&dir, "x.safetensors"), &s, &err) == VB_OK) fail_msg("cut at %zu was taken", cut);
        assert_true(err.text[0] != '\0');
    }
    free(whole);
}

static void a_rich_header_is_bounded(void **state) {
    (void)state;
    size_t n = 40u << 20;
    char *h = malloc(n + 1);
    assert_non_null(h);
    h[0] = '[';
    for (size_t i = 1; i + 1 < n; i += 2) memcpy(h + i, "1,", 2);
    memcpy(h + n - 2, "1]", 3);
    testdir_safetensors(&dir, "x.safetensors", h, NULL, 0);
    free(h);
    vb__safetensors s;
    vb_error err = {0};
    clock_t t0 = clock();
    assert_int_equal(vb__safetensors_open(testdir_file(&dir, "x.safetensors"), &s, &err), VB_E_LIMIT);
    assert_true((double)(clock() - t0) / CLOCKS_PER_SEC < 5);
}

static void memory_failures_are_errors(void **state) {
    (void)state;
    testdir_safetensors(&dir, "model.safetensors", "{" T("a", "F32", "[2]", 0, 8) "}", zeros, 8);
    vb_error err = {0};
    vb__shards s;
    for (uint64_t n = 1; n < 50; n++) {
        size_t before = vb__alloc_bytes(VB_TAG_FORMAT);
        vb__alloc_fail_at(n, false);
        vb_err e = vb__shards_open(dir.path, &s, &err);
        vb__alloc_fail_at(0, false);
        if (e == VB_OK) {
            vb__shards_close(&s);
            assert_true(n > 3);
            return;
        }
        assert_int_equal(e, VB_E_MEMORY);
        assert_int_equal(vb__alloc_bytes(VB_TAG_FORMAT), before);
    }
    fail_msg("never opened");
}

/* ---- several files ------------------------------------------------------------------------------------- */

#define INDEX "model.safetensors.index.json"

static void good_shards(void) {
    testdir_clear(dir.path);
    testdir_safetensors(&dir, "s1.safetensors", "{" T("a", "U8", "[2]", 0, 2) "," T("b", "U8", "[1]", 2, 3) "}", zeros, 3);
    testdir_safetensors(&dir, "s2.safetensors", "{" T("c", "U8", "[2]", 0, 2) "}", zeros, 2);
    testdir_puts(&dir, INDEX, "{\"metadata\":{\"total_size\":5},\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\","
                              "\"c\":\"s2.safetensors\"}}");
}

static void refused(const char *says) {
    vb__shards s;
    vb_error err = {0};
    if (vb__shards_open(dir.path, &s, &err) == VB_OK) fail_msg("taken, expected \"%s\"", says);
    if (strstr(err.text, says) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.text, says);
}

static void shards_are_joined(void **state) {
    (void)state;
    vb__shards s;
    vb_error err = {0};
    good_shards();
    if (vb__shards_open(dir.path, &s, &err) != VB_OK) fail_msg("%s", err.text);
    assert_int_equal(s.n_files, 2);
    assert_int_equal(s.count, 3);
    vb__shards_close(&s);
    testdir_safetensors(&dir, "mtp.safetensors", "{" T("mtp.x", "U8", "[2]", 0, 2) "}", zeros, 2);
    if (vb__shards_open(dir.path, &s, &err) != VB_OK) fail_msg("%s", err.text);
    assert_int_equal(s.count, 4);
    assert_true(s.tensors[3].sidecar);
    assert_false(s.tensors[0].sidecar);
    vb__shards_close(&s);
}

static void defects_of_an_index_are_named(void **state) {
    (void)state;
    testdir_clear(dir.path);
    refused("has neither model.safetensors nor model.safetensors.index.json");
    good_shards();
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"../s1.safetensors\"}}");
    refused("weight_map.a: names \"../s1.safetensors\", expected a file of the same folder");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"/etc/passwd\"}}");
    refused("weight_map.a: names");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s3.safetensors\"}}");
    refused(INDEX ": weight_map.b: ");
    refused("/s3.safetensors: ");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"sub/s1.safetensors\"}}");
    refused("weight_map.a: names");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"..\"}}");
    refused("weight_map.a: names");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":3}}");
    refused("weight_map.a: is 3");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{}}");
    refused("weight_map: has 0 tensors");
    testdir_puts(&dir, INDEX, "{}");
    refused("weight_map: is missing");
    testdir_puts(&dir, INDEX, "[]");
    refused("is no object");
    testdir_puts(&dir, INDEX, "\xef\xbb\xbf{}");
    refused("byte order mark");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"c\":\"s2.safetensors\"}}");
    refused("s1.safetensors: tensor b: is not in model.safetensors.index.json");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s2.safetensors\",\"c\":\"s2.safetensors\"}}");
    refused("s1.safetensors: tensor b: model.safetensors.index.json places it in s2.safetensors");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\",\"c\":\"s2.safetensors\","
                              "\"d\":\"s2.safetensors\"}}");
    refused("tensor d: is missing from s2.safetensors");
    testdir_puts(&dir, INDEX, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\",\"c\":\"s3.safetensors\"}}");
    refused("s3.safetensors: cannot be opened");
    testdir_puts(&dir, INDEX, "{\"metadata\":{\"total_size\":6},\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\","
                              "\"c\":\"s2.safetensors\"}}");
    vb__shards s; /* a number that decides nothing */
    vb_error err = {0};
    if (vb__shards_open(dir.path, &s, &err) != VB_OK) fail_msg("%s", err.text);
    vb__shards_close(&s);
    good_shards();
    testdir_safetensors(&dir, "model.safetensors", "{" T("a", "U8", "[2]", 0, 2) "}", zeros, 2);
    refused("model.safetensors: lies beside");
    good_shards();
    testdir_safetensors(&dir, "mtp.safetensors", "{" T("c", "U8", "[2]", 0, 2) "}", zeros, 2);
    refused("mtp.safetensors: tensor c: is also in s2.safetensors");
    good_shards();
    size_t n;
    char *p = testdir_read(testdir_file(&dir, "s2.safetensors"), &n);
    testdir_write(&dir, "s2.safetensors", p, n - 1);
    free(p);
    refused("s2.safetensors: tensor c: ends at byte 2 of the data, expected at most 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_is_read),
        cmocka_unit_test(every_defect_of_one_file_is_named),
        cmocka_unit_test(lengths_that_lie_are_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(a_rich_header_is_bounded),
        cmocka_unit_test(memory_failures_are_errors),
        cmocka_unit_test(shards_are_joined),
        cmocka_unit_test(defects_of_an_index_are_named),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
