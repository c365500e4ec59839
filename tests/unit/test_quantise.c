/* model/quantise: the codes decode to the weights as well as they must, the folder loads again, whatever the layout
 * before, with any number of threads the same bytes. */
#include "base/alloc.h"
#include "base/bf16.h"
#include "base/file.h"
#include "base/fp_env.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint_walk.h"
#include "model/quantise.h"
#include "testdir.h"
#include <setjmp.h>
#include <stdarg.h>
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

static uint32_t seed = 12345;
static float uniform(void) { /* -1 .. 1, bf16 */
    seed = seed * 1664525u + 1013904223u;
    return vb__from_bf16(vb__to_bf16((float)(int32_t)seed * 0x1p-31f));
}
static float bell(void) { return vb__from_bf16(vb__to_bf16(uniform() + uniform() + uniform() + uniform())); }

/* Element i of a row of codes, from the definition: bits i*bits .. of the little-endian bit string. */
static uint32_t code_at(const uint8_t *codes, int64_t i, int bits) {
    uint32_t c = 0;
    for (int b = 0; b < bits; b++) {
        int64_t at = i * bits + b;
        c |= (uint32_t)(codes[at >> 3] >> (at & 7) & 1) << b;
    }
    return c;
}

static void rows_decode_to_their_values(void **state) {
    (void)state;
    static const int all_bits[] = {2, 3, 4, 5, 6, 7, 8};
    static const double bound[] = {0.36, 0.19, 0.095, 0.05, 0.026, 0.014, 0.0075}; /* of a bell curve, groups of 128 */
    enum { K = 1024 };
    float x[K];
    uint8_t codes[K];
    uint16_t scales[K / 32], biases[K / 32];
    uint32_t csr = vb__fp_enter();
    for (int g = 32; g <= 128; g *= 2)
        for (int b = 0; b < 7; b++) {
            int bits = all_bits[b];
            double sums[2] = {0, 0}, err = 0, sq = 0;
            for (int i = 0; i < K; i++) x[i] = bell();
            memset(codes, 0xaa, sizeof codes);
            assert_true(vb__quantise_row(x, K, bits, g, codes, scales, biases, sums));
            for (int i = 0; i < K; i++) {
                double v = (double)vb__from_bf16(scales[i / g]) * code_at(codes, i, bits) + vb__from_bf16(biases[i / g]);
                err += (v - x[i]) * (v - x[i]);
                sq += (double)x[i] * x[i];
            }
            assert_true(err > 0.999999 * sums[0] && err < 1.000001 * sums[0] && sq == sums[1]);
            if (!(err < bound[b] * bound[b] * sq)) fail_msg("%d bits, groups of %d: error %.4f", bits, g, err / sq);
            if (bits != 8) assert_int_equal(codes[K * bits / 8], 0xaa); /* not a byte more */
        }
    /* what codes can say exactly is said exactly: values 0..2^bits-1 times a power of two */
    for (int b = 0; b < 7; b++) {
        double sums[2] = {0, 0};
        for (int i = 0; i < K; i++) x[i] = 0.25f * (float)(i % (1 << all_bits[b])) - 1.0f;
        for (int i = 0; i < K; i += 64) x[i] = -1.0f; /* both ends in every group */
        for (int i = 1; i < K; i += 64) x[i] = 0.25f * (float)((1 << all_bits[b]) - 1) - 1.0f;
        assert_true(vb__quantise_row(x, K, all_bits[b], 64, codes, scales, biases, sums));
        assert_true(sums[0] == 0);
    }
    vb__fp_leave(csr);
}

static void extreme_rows_are_survived(void **state) {
    (void)state;
    enum { K = 128 };
    float x[K];
    uint8_t codes[K];
    uint16_t scales[4], biases[4];
    double sums[2] = {0, 0};
    uint32_t csr = vb__fp_enter();
    static const float constants[] = {0.0f, 1.0f, -3.5f, 1e-30f, -1e30f};
    for (int c = 0; c < 5; c++) {
        for (int i = 0; i < K; i++) x[i] = vb__from_bf16(vb__to_bf16(constants[c]));
        sums[0] = sums[1] = 0;
        assert_true(vb__quantise_row(x, K, 4, 32, codes, scales, biases, sums));
        assert_true(sums[0] <= 1e-12 * sums[1] && vb__bf16_finite(scales[0]) && vb__bf16_finite(biases[0]));
    }
    for (int i = 0; i < K; i++) x[i] = (i & 1) != 0 ? 3e38f : -3e38f; /* the range overflows */
    assert_true(vb__quantise_row(x, K, 4, 32, codes, scales, biases, sums));
    assert_true(vb__bf16_finite(scales[0]) && vb__bf16_finite(biases[0]));
    for (int i = 0; i < K; i++) x[i] = (float)i * 1e-38f;
    assert_true(vb__quantise_row(x, K, 8, 32, codes, scales, biases, sums));
    assert_true(vb__bf16_finite(scales[0]) && vb__bf16_finite(biases[0]));
    x[77] = __builtin_nanf("");
    assert_false(vb__quantise_row(x, K, 4, 32, codes, scales, biases, sums));
    x[77] = -__builtin_inff();
    assert_false(vb__quantise_row(x, K, 4, 32, codes, scales, biases, sums));
    vb__fp_leave(csr);
}

/* ---- folders ------------------------------------------------------------------------------------------- */

static char *sub(const char *name) {
    static char p[4][200];
    static int turn;
    char *out = p[turn++ & 3];
    (void)snprintf(out, 200, "%s/%s", dir.path, name);
    return out;
}

static void quantised(const char *from, const char *to, int bits, int group, int threads) {
    vb_error err = {0};
    vb__pool *pool;
    vb__quantise_result r;
    assert_int_equal(vb__pool_create(threads, &pool, &err), VB_OK);
    vb__quantise_options o = {.bits = bits, .group = group, .pool = pool};
    if (vb__quantise_folder(from, to, &o, &r, &err) != VB_OK) fail_msg("%s: %s", from, err.text);
    vb__pool_destroy(pool);
    assert_true(r.matrices > 0 && r.bytes_out < r.bytes_in && r.relative_error > 0);
}

static void same_files(const char *a, const char *b) {
    DIR *d = opendir(a);
    int n = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        char p[600], q[600];
        size_t np, nq;
        (void)snprintf(p, sizeof p, "%s/%s", a, e->d_name);
        (void)snprintf(q, sizeof q, "%s/%s", b, e->d_name);
        char *x = testdir_read(p, &np), *y = testdir_read(q, &nq);
        if (np != nq || memcmp(x, y, np) != 0) fail_msg("%s differs", e->d_name);
        free(x), free(y);
        n++;
    }
    closedir(d);
    assert_true(n >= 2);
}

/* Every vector of the quantised folder is that of the source, every matrix has its shape. */
static void compare(const char *from, const char *to, bool all_affine) {
    vb_error err = {0};
    walk a = {.err = &err}, b = {.err = &err};
    if (vb__checkpoint_open(from, &a.c, &err) != VB_OK || walk_all(&a) != VB_OK) fail_msg("%s: %s", from, err.text);
    if (vb__checkpoint_open(to, &b.c, &err) != VB_OK || walk_all(&b) != VB_OK) fail_msg("%s: %s", to, err.text);
    assert_int_equal(a.matrices, b.matrices);
    if (all_affine) assert_int_equal(b.affine, b.matrices);
    const vb__model_config *m = vb__checkpoint_config(a.c);
    float *x = malloc(65536 * 4), *y = malloc(65536 * 4);
    for (int32_t i = 0; i < vb__checkpoint_tensor_count(a.c); i++) {
        vb__tensor_info t;
        vb__checkpoint_tensor(a.c, i, &t);
        if (t.canonical == NULL || t.dims == 2 || strstr(t.canonical, ".experts.") != NULL) continue;
        bool conv = t.dims == 3;
        bool norm = strstr(t.canonical, "norm") != NULL && strstr(t.canonical, "linear_attn.norm") == NULL;
        int64_t n = conv ? t.shape[0] * m->lin_taps : t.shape[0];
        vb__vector_kind kind = conv ? VB_VECTOR_CONV : norm ? VB_VECTOR_NORM : VB_VECTOR_PLAIN;
        char module[600];
        (void)snprintf(module, sizeof module, "%s", t.canonical);
        char *tail = strstr(module, ".weight");
        if (tail != NULL) *tail = '\0';
        assert_int_equal(vb__checkpoint_vector(a.c, module, kind, n, x, &err), VB_OK);
        if (vb__checkpoint_vector(b.c, module, kind, n, y, &err) != VB_OK) fail_msg("%s", err.text);
        assert_memory_equal(x, y, (size_t)n * 4);
    }
    free(x), free(y);
    vb__checkpoint_close(a.c);
    vb__checkpoint_close(b.c);
}

/* The head's name is MLX's: apart from the stack of layers. */
static void head_is_where_mlx_wants_it(const char *folder) {
    vb_error err = {0};
    vb__checkpoint *c;
    if (vb__checkpoint_open(folder, &c, &err) != VB_OK) fail_msg("%s", err.text);
    vb__arch arch = vb__checkpoint_config(c)->arch;
    const char *prefix = arch == VB_ARCH_QWEN3_5 || arch == VB_ARCH_QWEN3_5_MOE ? "language_model.lm_head." : "lm_head.";
    for (int32_t i = 0; i < vb__checkpoint_tensor_count(c); i++) {
        vb__tensor_info t;
        vb__checkpoint_tensor(c, i, &t);
        if (strstr(t.name, "lm_head") != NULL && strncmp(t.name, prefix, strlen(prefix)) != 0) fail_msg("%s, expected %s*", t.name, prefix);
    }
    vb__checkpoint_close(c);
}

static void folders_of_every_family_load_again(void **state) {
    (void)state;
    static const struct {
        const char *folder;
        int bits, group;
    } cases[] = {{"qwen35-mtp", 4, 32}, {"qwen35", 8, 64}, {"qwen35-moe", 4, 32}, {"qwen35-moe-text", 3, 32},
                 {"llama-default", 5, 32}, {"llama-yarn", 2, 64}, {"llama-linear", 7, 32}, {"qwen2", 6, 32}, {"qwen3", 4, 64}};
    if (shared_dir() == NULL) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char from[600];
        (void)snprintf(from, sizeof from, "%s/fixtures/tiny/%s", shared_dir(), cases[i].folder);
        testdir_clear(dir.path);
        quantised(from, sub("a"), cases[i].bits, cases[i].group, 1);
        quantised(from, sub("b"), cases[i].bits, cases[i].group, 3);
        same_files(sub("a"), sub("b"));
        compare(from, sub("a"), false);
        head_is_where_mlx_wants_it(sub("a"));
    }
    char from[600];
    (void)snprintf(from, sizeof from, "%s/models/atto-dflash", shared_dir());
    testdir_clear(dir.path);
    quantised(from, sub("a"), 8, 64, 2);
    compare(from, sub("a"), true);
}

/* Fused and numbered experts of the same weights give the same tensors. */
static void both_expert_layouts_become_one(void **state) {
    (void)state;
    if (shared_dir() == NULL) skip();
    char from[600];
    testdir_clear(dir.path);
    (void)snprintf(from, sizeof from, "%s/fixtures/tiny/qwen35-moe", shared_dir());
    quantised(from, sub("fused"), 4, 32, 2);
    (void)snprintf(from, sizeof from, "%s/fixtures/tiny/qwen35-moe-text", shared_dir());
    quantised(from, sub("numbered"), 4, 32, 2);
    vb__checkpoint *a, *b;
    vb_error err;
    assert_int_equal(vb__checkpoint_open(sub("fused"), &a, &err), VB_OK);
    assert_int_equal(vb__checkpoint_open(sub("numbered"), &b, &err), VB_OK);
    vb__matrix x, y;
    for (int e = 0; e < 8; e++) {
        char name[100];
        (void)snprintf(name, sizeof name, "layers.2.mlp.experts.%d.up_proj", e);
        assert_int_equal(vb__checkpoint_matrix(a, name, 24, 64, &x, &err), VB_OK);
        assert_int_equal(vb__checkpoint_matrix(b, name, 24, 64, &y, &err), VB_OK);
        assert_int_equal(x.kind, VB_MATRIX_AFFINE);
        assert_memory_equal(x.data, y.data, 24 * 64 / 2);
        assert_memory_equal(x.scales, y.scales, 24 * 2 * 2);
        /* width 24: no multiple of the group, so as it was */
        (void)snprintf(name, sizeof name, "layers.2.mlp.experts.%d.down_proj", e);
        assert_int_equal(vb__checkpoint_matrix(a, name, 64, 24, &x, &err), VB_OK);
        assert_int_equal(vb__checkpoint_matrix(b, name, 64, 24, &y, &err), VB_OK);
        assert_int_equal(x.kind, VB_MATRIX_BF16);
        assert_memory_equal(x.data, y.data, 64 * 24 * 2);
    }
    assert_int_equal(vb__checkpoint_matrix(a, "layers.2.mlp.gate", 8, 64, &x, &err), VB_OK);
    assert_int_equal(x.bits, 8);
    assert_int_equal(x.group, 64);
    vb__checkpoint_close(a);
    vb__checkpoint_close(b);
}

static bool stop(void *user, int64_t done, int64_t total) {
    *(int64_t *)user = total;
    return done < total / 2;
}

static void refusals_leave_nothing_behind(void **state) {
    (void)state;
    if (shared_dir() == NULL) skip();
    char from[600];
    (void)snprintf(from, sizeof from, "%s/fixtures/tiny/qwen35-mtp", shared_dir());
    testdir_clear(dir.path);
    vb_error err = {0};
    vb__pool *pool;
    vb__quantise_result r;
    int64_t total = 0;
    assert_int_equal(vb__pool_create(1, &pool, &err), VB_OK);
    vb__quantise_options o = {.bits = 9, .group = 32, .pool = pool};
    assert_int_equal(vb__quantise_folder(from, sub("a"), &o, &r, &err), VB_E_ARGUMENT);
    o.bits = 4;
    o.group = 48;
    assert_int_equal(vb__quantise_folder(from, sub("a"), &o, &r, &err), VB_E_ARGUMENT);
    o.group = 32;
    assert_int_equal(vb__quantise_folder(sub("nowhere"), sub("a"), &o, &r, &err), VB_E_NOT_FOUND);
    o.progress = stop;
    o.user = &total;
    assert_int_equal(vb__quantise_folder(from, sub("a"), &o, &r, &err), VB_E_CANCELLED);
    assert_true(total > 100000);
    assert_false(vb__file_is_dir(sub("a")));
    o.progress = NULL;
    for (uint64_t n = 1; n < 2000; n += 7) { /* out of memory anywhere */
        size_t before = vb__alloc_bytes(VB_TAG_FORMAT) + vb__alloc_bytes(VB_TAG_MISC);
        vb__alloc_fail_at(n, false);
        vb_err e = vb__quantise_folder(from, sub("a"), &o, &r, &err);
        vb__alloc_fail_at(0, false);
        assert_int_equal(vb__alloc_bytes(VB_TAG_FORMAT) + vb__alloc_bytes(VB_TAG_MISC), before);
        if (e == VB_OK) break;
        assert_int_equal(e, VB_E_MEMORY);
        assert_false(vb__file_is_dir(sub("a")));
    }
    assert_true(vb__file_is_dir(sub("a")));
    assert_int_equal(vb__quantise_folder(from, sub("a"), &o, &r, &err), VB_E_ARGUMENT); /* not empty */
    assert_non_null(strstr(err.text, "is not empty"));
    assert_int_equal(vb__quantise_folder(sub("a"), sub("b"), &o, &r, &err), VB_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "quantised already"));
    vb__pool_destroy(pool);
}

int main(void) {
    vb__log_set(NULL, NULL, VB_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_decode_to_their_values),
        cmocka_unit_test(extreme_rows_are_survived),
        cmocka_unit_test(folders_of_every_family_load_again),
        cmocka_unit_test(both_expert_layouts_become_one),
        cmocka_unit_test(refusals_leave_nothing_behind),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
