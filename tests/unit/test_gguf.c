/* format/gguf and gguf_blocks: files made here are read, every defect is one error that names file and key or tensor, and
 * blocks decode as the formulas of the format say, element by element. */
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/fp_env.h"
#include "format/gguf.h"
#include "format/gguf_blocks.h"
#include "testdir.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static testdir dir;
static vb__buffer b;
static int make_dir(void **state) {
    (void)state;
    testdir_make(&dir);
    vb__buffer_init(&b, 1 << 24);
    return 0;
}
static int remove_dir(void **state) {
    (void)state;
    vb__buffer_fini(&b);
    testdir_remove(&dir);
    return 0;
}

/* ---- a writer ------------------------------------------------------------------------------------------- */

static void u(uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) (void)vb__buffer_putc(&b, (char)(uint8_t)(v >> 8 * i));
}
static void str(const char *s) {
    u(strlen(s), 8);
    (void)vb__buffer_puts(&b, s);
}
static void head(uint32_t version, uint64_t tensors, uint64_t keys) {
    vb__buffer_clear(&b);
    (void)vb__buffer_append(&b, "GGUF", 4);
    u(version, 4);
    u(tensors, 8);
    u(keys, 8);
}
static void key_u32(const char *name, uint32_t v) {
    str(name);
    u(VB_GGUF_U32, 4);
    u(v, 4);
}
static void tensor(const char *name, int dims, uint64_t a, uint64_t c, uint32_t type, uint64_t offset) {
    str(name);
    u((uint64_t)dims, 4);
    if (dims > 0) u(a, 8);
    if (dims > 1) u(c, 8);
    for (int i = 2; i < dims; i++) u(1, 8);
    u(type, 4);
    u(offset, 8);
}
static void pad(uint64_t to) {
    while (b.len % to != 0) u(0, 1);
}
static void bytes(int n) {
    for (int i = 0; i < n; i++) u((uint64_t)i, 1);
}

static vb_err open_it(vb__gguf *g, vb_error *err) {
    testdir_write(&dir, "x.gguf", vb__buffer_str(&b), b.len);
    return vb__gguf_open(testdir_file(&dir, "x.gguf"), g, err);
}

static void refused(const char *says) {
    vb__gguf g;
    vb_error err = {0};
    size_t before = vb__alloc_bytes(VB_TAG_FORMAT);
    if (open_it(&g, &err) == VB_OK) fail_msg("taken, expected \"%s\"", says);
    if (strstr(err.text, says) == NULL || strncmp(err.text, "x.gguf: ", 8) != 0) fail_msg("\"%s\" lacks \"%s\"", err.text, says);
    assert_int_equal(vb__alloc_bytes(VB_TAG_FORMAT), before);
}

/* Two tensors, one key of each kind. */
static void good(uint32_t version, uint32_t alignment) {
    head(version, 2, 13);
    key_u32("general.alignment", alignment);
    str("u8"), u(VB_GGUF_U8, 4), u(200, 1);
    str("i8"), u(VB_GGUF_I8, 4), u(0xff, 1);
    str("u16"), u(VB_GGUF_U16, 4), u(60000, 2);
    str("i16"), u(VB_GGUF_I16, 4), u(0x8000, 2);
    str("i32"), u(VB_GGUF_I32, 4), u(0xfffffffe, 4);
    str("f32"), u(VB_GGUF_F32, 4), u(0x3f000000, 4);
    str("bool"), u(VB_GGUF_BOOL, 4), u(1, 1);
    str("string"), u(VB_GGUF_STRING, 4), str("hello");
    str("strings"), u(VB_GGUF_ARRAY, 4), u(VB_GGUF_STRING, 4), u(3, 8), str("a"), str(""), str("bcd");
    str("u64"), u(VB_GGUF_U64, 4), u(UINT64_MAX, 8);
    str("i64"), u(VB_GGUF_I64, 4), u(7, 8);
    str("f64"), u(VB_GGUF_F64, 4), u(0x4000000000000000, 8);
    tensor("b", 2, 32, 3, VB_GGUF_TYPE_Q4_0, alignment);
    tensor("a", 1, 5, 0, VB_GGUF_TYPE_F32, 0);
    pad(alignment);
    bytes(20);
    pad(alignment);
    bytes(54);
}

static void a_good_file_is_read(void **state) {
    (void)state;
    vb__gguf g;
    vb_error err = {0};
    for (uint32_t version = 2; version <= 3; version++)
        for (uint32_t alignment = 32; alignment <= 64; alignment *= 2) {
            good(version, alignment);
            if (open_it(&g, &err) != VB_OK) fail_msg("%s", err.text);
            assert_int_equal(g.n_keys, 13);
            assert_int_equal(g.n_tensors, 2);
            assert_int_equal(g.alignment, alignment);
            assert_string_equal(g.tensors[0].name, "a");
            assert_int_equal(g.tensors[0].bytes, 20);
            assert_int_equal(g.tensors[1].ne[0], 32);
            assert_int_equal(g.tensors[1].ne[1], 3);
            assert_int_equal(g.tensors[1].bytes, 54);
            assert_int_equal(g.tensors[1].data[1], 1);
            int64_t i;
            double d;
            bool yes;
            const char *s;
            size_t n;
            const vb__gguf_key *k;
            assert_int_equal(vb__gguf_int(&g, "i8", -1, -1, &i, &err), VB_OK);
            assert_int_equal(vb__gguf_int(&g, "i16", -32768, 0, &i, &err), VB_OK);
            assert_int_equal(i, -32768);
            assert_int_equal(vb__gguf_int(&g, "i32", -5, 5, &i, &err), VB_OK);
            assert_int_equal(i, -2);
            assert_int_equal(vb__gguf_int(&g, "u8", 0, 199, &i, &err), VB_E_FORMAT);
            assert_string_equal(err.text, "x.gguf: key u8: is 200, expected an integer 0..199");
            assert_int_equal(vb__gguf_int(&g, "u64", 0, INT64_MAX, &i, &err), VB_E_FORMAT);
            assert_int_equal(vb__gguf_int(&g, "none", 0, 5, &i, &err), VB_E_FORMAT);
            assert_string_equal(err.text, "x.gguf: key none: is missing, expected an integer 0..5");
            assert_int_equal(vb__gguf_int(&g, "f32", 0, 5, &i, &err), VB_E_FORMAT);
            assert_int_equal(vb__gguf_number(&g, "f32", 0, 5, &d, &err), VB_OK);
            assert_true(d == 0.5);
            assert_int_equal(vb__gguf_number(&g, "f64", 0, 5, &d, &err), VB_OK);
            assert_true(d == 2.0);
            assert_int_equal(vb__gguf_number(&g, "i64", 0, 7, &d, &err), VB_OK);
            assert_int_equal(vb__gguf_number(&g, "i64", 0, 6, &d, &err), VB_E_FORMAT);
            assert_int_equal(vb__gguf_bool(&g, "bool", &yes, &err), VB_OK);
            assert_true(yes);
            assert_int_equal(vb__gguf_bytes(&g, "string", &s, &n, &err), VB_OK);
            assert_int_equal(n, 5);
            assert_memory_equal(s, "hello", 5);
            assert_int_equal(vb__gguf_bytes(&g, "bool", &s, &n, &err), VB_E_FORMAT);
            assert_int_equal(vb__gguf_array(&g, "strings", VB_GGUF_STRING, 2, &k, &err), VB_E_LIMIT);
            assert_int_equal(vb__gguf_array(&g, "strings", VB_GGUF_U32, 9, &k, &err), VB_E_FORMAT);
            assert_int_equal(vb__gguf_array(&g, "strings", VB_GGUF_STRING, 3, &k, &err), VB_OK);
            const uint8_t *at = k->data;
            assert_int_equal((vb__gguf_next_string(&at, &n), n), 1);
            assert_int_equal((vb__gguf_next_string(&at, &n), n), 0);
            s = vb__gguf_next_string(&at, &n);
            assert_int_equal(n, 3);
            assert_memory_equal(s, "bcd", 3);
            vb__gguf_close(&g);
        }
    head(3, 0, 0);
    assert_int_equal(open_it(&g, &err), VB_OK);
    vb__gguf_close(&g);
}

static void every_truncation_is_refused(void **state) {
    (void)state;
    good(3, 32);
    size_t n = b.len;
    char *whole = malloc(n);
    memcpy(whole, vb__buffer_str(&b), n);
    for (size_t cut = 0; cut < n; cut++) {
        vb__buffer_clear(&b);
        (void)vb__buffer_append(&b, whole, cut);
        refused("");
    }
    free(whole);
}

static void hostile_heads_and_keys_are_refused(void **state) {
    (void)state;
    vb__buffer_clear(&b);
    refused("the magic");
    (void)vb__buffer_puts(&b, "GGML....");
    refused("does not begin with GGUF");
    head(1, 0, 0);
    refused("has version 1, expected 2 or 3");
    head(0x03000000, 0, 0);
    refused("expected 2 or 3, little-endian");
    head(3, UINT64_MAX, 0);
    refused("claims 18446744073709551615 tensors");
    head(3, 0, UINT64_MAX);
    refused("claims 18446744073709551615 keys");
    head(3, 0, 1), bytes(13);
    refused("claims 1 keys");
    head(3, 0, 1), u(1ull << 63, 8), bytes(50);
    refused("a key's name: has 9223372036854775808 bytes");
    head(3, 0, 1), u(0, 8), bytes(50);
    refused("a key's name: has 0 bytes");
    head(3, 0, 1), u(3, 8), bytes(50);
    refused("holds a NUL byte");
    head(3, 0, 1), str("k"), u(13, 4), bytes(8);
    refused("key k: has type 13");
    head(3, 0, 1), str("k"), u(VB_GGUF_STRING, 4), u(1ull << 63, 8), bytes(50);
    refused("k: needs 9223372036854775808 bytes");
    head(3, 0, 1), str("k"), u(VB_GGUF_BOOL, 4), u(2, 1);
    refused("key k: is 2, expected a bool");
    head(3, 0, 1), str("k"), u(VB_GGUF_ARRAY, 4), u(VB_GGUF_ARRAY, 4), u(1, 8);
    refused("key k: is an array of type 9");
    head(3, 0, 1), str("k"), u(VB_GGUF_ARRAY, 4), u(99, 4), u(1, 8);
    refused("key k: is an array of type 99");
    head(3, 0, 1), str("k"), u(VB_GGUF_ARRAY, 4), u(VB_GGUF_U64, 4), u(1ull << 61, 8); /* times 8 wraps to 0 */
    refused("k: needs 18446744073709551615 bytes");
    head(3, 0, 1), str("k"), u(VB_GGUF_ARRAY, 4), u(VB_GGUF_STRING, 4), u(1ull << 62, 8);
    refused("k: needs");
    head(3, 0, 1), str("k"), u(VB_GGUF_ARRAY, 4), u(VB_GGUF_STRING, 4), u(2, 8), str("a"), u(1ull << 63, 8);
    refused("k: needs 9223372036854775808 bytes");
    head(3, 0, 2), key_u32("k", 1), key_u32("k", 2);
    refused("key k: is there twice");
    static const uint32_t alignments[] = {0, 3, 48, 1u << 31, 1u << 21};
    for (int i = 0; i < 5; i++) {
        head(3, 0, 1), key_u32("general.alignment", alignments[i]);
        refused("key general.alignment: is");
    }
    head(3, 0, 1), str("general.alignment"), u(VB_GGUF_STRING, 4), str("32");
    refused("key general.alignment: is string");
}

static void one_tensor(int dims, uint64_t a, uint64_t c, uint32_t type, uint64_t offset, int data) {
    head(3, 1, 0);
    tensor("t", dims, a, c, type, offset);
    pad(32);
    bytes(data);
}

static void hostile_tensors_are_refused(void **state) {
    (void)state;
    one_tensor(0, 0, 0, 0, 0, 32);
    refused("tensor t: has 0 dimensions");
    one_tensor(5, 1, 1, 0, 0, 32);
    refused("tensor t: has 5 dimensions");
    one_tensor(2, 0, 1, 0, 0, 32);
    refused("tensor t: dimension 0 is 0");
    one_tensor(2, 1ull << 32, 1ull << 32, 0, 0, 32);
    refused("tensor t: dimension 1 is 4294967296, expected 1 or more and a product below");
    one_tensor(2, 1ull << 63, 2, 0, 0, 32);
    refused("tensor t: dimension 0 is 9223372036854775808");
    one_tensor(2, 1ull << 31, 1ull << 29, 0, 0, 32);
    refused("tensor t: dimension 1");
    one_tensor(1, 8, 0, 4, 0, 32);
    refused("tensor t: has type 4 (Q4_2), expected F32");
    one_tensor(1, 8, 0, 16, 0, 32);
    refused("tensor t: has type 16 (IQ2_XXS), expected F32");
    one_tensor(1, 8, 0, 34, 0, 32);
    refused("tensor t: has type 34 (TQ1_0), expected F32");
    one_tensor(1, 8, 0, 40, 0, 32);
    refused("tensor t: has type 40, expected F32");
    for (uint32_t type = 0; type < 60; type++) { /* every number has a name or none, and no two have the same */
        const char *name = vb__gguf_type_name(type);
        assert_true((name != NULL) == (type < 40));
        for (uint32_t i = 0; name != NULL && i < type; i++) assert_string_not_equal(name, vb__gguf_type_name(i));
    }
    one_tensor(1, 8, 0, 0xffffffff, 0, 32);
    refused("tensor t: has type 4294967295");
    one_tensor(1, 40, 0, VB_GGUF_TYPE_Q4_0, 0, 64);
    refused("tensor t: has rows of 40 elements, expected a multiple of 32 as it is Q4_0");
    one_tensor(1, 9, 0, 0, 0, 32);
    refused("tensor t: takes 36 bytes at 0 of the data, which has 32");
    one_tensor(1, 8, 0, 0, UINT64_MAX, 32);
    refused("tensor t: takes 32 bytes at 18446744073709551615");
    one_tensor(1, 4, 0, 0, 32, 64);
    refused("tensor t: a hole of 32 bytes");
    one_tensor(1, 8, 0, 0, 0, 96);
    refused("64 bytes follow the last tensor (t)");
    head(3, 2, 0), tensor("t", 1, 8, 0, 0, 0), tensor("t", 1, 8, 0, 0, 32), pad(32), bytes(64);
    refused("tensor t: is there twice");
    head(3, 2, 0), tensor("s", 1, 8, 0, 0, 0), tensor("t", 1, 8, 0, 0, 0), pad(32), bytes(32);
    refused("tensor t: overlaps tensor s");
    head(3, 2, 0), tensor("s", 1, 16, 0, 0, 0), tensor("t", 1, 8, 0, 0, 32), pad(32), bytes(64);
    refused("tensor t: overlaps tensor s");
    head(3, 2, 0), tensor("s", 1, 8, 0, 0, 0), tensor("t", 1, 8, 0, 0, 36), pad(32), bytes(68);
    refused("tensor t: a hole of 4 bytes");
}

static void shared_files_are_read(void **state) {
    (void)state;
    static const char *const files[] = {"llama-rope3", "qwen35-moe"};
    if (shared_dir() == NULL) skip();
    for (int i = 0; i < 2; i++) {
        char path[600];
        vb__gguf g;
        vb_error err;
        (void)snprintf(path, sizeof path, "%s/fixtures/tiny/%s/model.gguf", shared_dir(), files[i]);
        if (vb__gguf_open(path, &g, &err) != VB_OK) fail_msg("%s", err.text);
        assert_non_null(vb__gguf_find(&g, "general.architecture"));
        assert_true(g.n_tensors > 30);
        vb__gguf_close(&g);
    }
}

/* ---- blocks: each value from its formula, one element at a time ----------------------------------------- */

static double half_value(const uint8_t *p) {
    int h = p[0] | p[1] << 8, e = h >> 10 & 31, m = h & 1023;
    double v = e == 0 ? ldexp(m, -24) : ldexp(1024 + m, e - 25);
    return (h & 0x8000) != 0 ? -v : v;
}

static float formula(vb__gguf_type type, const uint8_t *p, int i) {
    static const int iq[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    static const int mx[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    float d = (float)half_value(p), m = (float)half_value(p + 2);
    int head_bytes = type == VB_GGUF_TYPE_Q4_1 ? 4 : type == VB_GGUF_TYPE_Q5_0 ? 6 : type == VB_GGUF_TYPE_Q5_1 ? 8 : type == VB_GGUF_TYPE_MXFP4 ? 1 : 2;
    int n = i < 16 ? p[head_bytes + i % 16] & 15 : p[head_bytes + i % 16] >> 4;
    const uint8_t *hb = p + (type == VB_GGUF_TYPE_Q5_1 ? 4 : 2);
    int five = n + 16 * (hb[i % 32 / 8] >> i % 8 & 1);
    switch (type) {
    case VB_GGUF_TYPE_Q4_0: return d * (float)(n - 8);
    case VB_GGUF_TYPE_Q4_1: return d * (float)n + m;
    case VB_GGUF_TYPE_Q5_0: return d * (float)(five - 16);
    case VB_GGUF_TYPE_Q5_1: return d * (float)five + m;
    case VB_GGUF_TYPE_Q8_0: return d * (float)(int8_t)p[2 + i];
    case VB_GGUF_TYPE_IQ4_NL: return d * (float)iq[n];
    case VB_GGUF_TYPE_MXFP4: return p[0] < 2 ? 0.0f * (float)mx[n] : (float)ldexp(1.0, p[0] - 128) * (float)mx[n];
    case VB_GGUF_TYPE_Q4_K:
    case VB_GGUF_TYPE_Q5_K: {
        const uint8_t *s = p + 4, *q = p + (type == VB_GGUF_TYPE_Q5_K ? 48 : 16);
        int j = i / 32, sc, mn;
        if (j < 4) sc = s[j] % 64, mn = s[j + 4] % 64;
        else sc = s[j + 4] % 16 + s[j - 4] / 64 * 16, mn = s[j + 4] / 16 + s[j] / 64 * 16;
        int v = q[32 * (j / 2) + i % 32];
        v = j % 2 == 0 ? v % 16 : v / 16;
        if (type == VB_GGUF_TYPE_Q5_K) v += 16 * (p[16 + i % 32] >> j & 1);
        return (d * (float)sc) * (float)v - (m * (float)mn);
    }
    case VB_GGUF_TYPE_Q6_K: {
        int h = i / 128, c = i % 128 / 32, l = i % 32, q = p[64 * h + 32 * (c % 2) + l];
        q = (c < 2 ? q % 16 : q / 16) + 16 * (p[128 + 32 * h + l] >> 2 * c & 3);
        return ((float)half_value(p + 208) * (float)(int8_t)p[192 + i / 16]) * (float)(q - 32);
    }
    default: return 0;
    }
}

static void blocks_decode_by_their_formulas(void **state) {
    (void)state;
    static const vb__gguf_type types[] = {VB_GGUF_TYPE_Q4_0, VB_GGUF_TYPE_Q4_1, VB_GGUF_TYPE_Q5_0, VB_GGUF_TYPE_Q5_1,
                                          VB_GGUF_TYPE_Q8_0, VB_GGUF_TYPE_Q4_K, VB_GGUF_TYPE_Q5_K, VB_GGUF_TYPE_Q6_K,
                                          VB_GGUF_TYPE_IQ4_NL, VB_GGUF_TYPE_MXFP4};
    uint32_t seed = 1, csr = vb__fp_enter();
    for (int t = 0; t < 10; t++) {
        const vb__gguf_type_info *info = vb__gguf_type_get(types[t]);
        for (int round = 0; round < 2000; round++) {
            uint8_t row[2 * 256];
            float out[512];
            for (int i = 0; i < 2 * info->bytes; i++) {
                seed = seed * 1664525u + 1013904223u;
                row[i] = (uint8_t)(seed >> 24);
            }
            if (types[t] == VB_GGUF_TYPE_MXFP4 && round < 256) row[0] = (uint8_t)round;
            vb__gguf_decode(types[t], row, 2 * info->block, out);
            for (int i = 0; i < 2 * info->block; i++) {
                const uint8_t *p = row + i / info->block * info->bytes;
                int h = types[t] == VB_GGUF_TYPE_Q6_K ? 208 : 0;
                bool finite = types[t] == VB_GGUF_TYPE_MXFP4 || (p[h + 1] & 0x7c) != 0x7c;
                if (info->bias && (p[3] & 0x7c) == 0x7c) finite = false; /* bytes 2 and 3: the second half */
                if (!finite) continue;
                float want = formula(types[t], p, i % info->block);
                if (memcmp(&want, &out[i], 4) != 0 && !(want == 0 && out[i] == 0))
                    fail_msg("%s element %d: %a, expected %a", info->name, i, (double)out[i], (double)want);
            }
        }
    }
    vb__fp_leave(csr);
    float f[3];
    vb__gguf_decode(VB_GGUF_TYPE_F16, (const uint8_t *)"\x00\x3c\x01\x00\xff\xfb", 3, f);
    assert_true(f[0] == 1.0f && f[1] == 0x1p-24f && f[2] == -65504.0f);
    vb__gguf_decode(VB_GGUF_TYPE_BF16, (const uint8_t *)"\x80\x3f\x00\xc0", 2, f);
    assert_true(f[0] == 1.0f && f[1] == -2.0f);
    vb__gguf_decode(VB_GGUF_TYPE_F32, (const uint8_t *)"\x00\x00\x80\x3f", 1, f);
    assert_true(f[0] == 1.0f);
    assert_null(vb__gguf_type_get(4));
    assert_null(vb__gguf_type_get(40));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_file_is_read),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(hostile_heads_and_keys_are_refused),
        cmocka_unit_test(hostile_tensors_are_refused),
        cmocka_unit_test(shared_files_are_read),
        cmocka_unit_test(blocks_decode_by_their_formulas),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
