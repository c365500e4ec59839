/* mlp and norm_linear against the operations that they stand for, bit for bit: kinds of weights and of activations, biases, ragged widths,
 * rows of one block and of many, more rows than one pass takes, every level and several numbers of threads. */
#include "linear_support.h"

enum { MAX_ROWS = 530, MAX_K = 1024 };

typedef struct kind {
    int bits, group; /* bits 16: bf16 */
} kind;

typedef struct geometry {
    int k, n, m;         /* in, between, out */
    kind gate, up, down;
    int activations, bias;
} geometry;

static const geometry geometries[] = {
    {128, 192, 64, {4, 64}, {4, 64}, {4, 64}, 8, 0},
    {64, 1024, 80, {4, 64}, {4, 64}, {4, 64}, 8, 1},     /* several pieces */
    {128, 704, 48, {8, 32}, {4, 64}, {4, 32}, 8, 1},     /* two forms of the input */
    {96, 96, 33, {4, 32}, {4, 32}, {8, 32}, 8, 0},       /* a piece that ends inside an item */
    {128, 256, 64, {4, 128}, {2, 128}, {6, 128}, 16, 1}, /* two planes */
    {64, 160, 40, {4, 32}, {4, 32}, {4, 32}, 16, 0},
    {72, 136, 24, {16, 0}, {16, 0}, {16, 0}, 8, 1}, /* no quantisation, and widths that end inside a panel */
    {128, 640, 64, {16, 0}, {4, 64}, {16, 0}, 8, 0},
    {128, 320, 64, {4, 64}, {16, 0}, {6, 16}, 8, 1},
    {96, 224, 32, {6, 16}, {6, 16}, {6, 16}, 16, 0},
};

/* Groups of 16 come in block formats alone: scales, then codes of a row. */
static void unpack16(int32_t format, const void *row, int32_t k, int8_t *codes, float *scales, float *biases) {
    (void)format;
    (void)biases;
    memcpy(scales, row, (size_t)k / 16 * 4);
    memcpy(codes, (const uint8_t *)row + k / 16 * 4, (size_t)k);
}

static vb__matrix matrix_of16(int n, int k) {
    int64_t row = k / 16 * 4 + k;
    uint8_t *d = malloc((size_t)(n * row));
    for (int o = 0; o < n; o++) {
        for (int g = 0; g < k / 16; g++) {
            float scale = uniform() * 0.1f;
            memcpy(d + o * row + 4 * g, &scale, 4);
        }
        for (int i = 0; i < k; i++) d[o * row + k / 16 * 4 + i] = (uint8_t)(int8_t)((int)(rng() % 64) - 32);
    }
    return (vb__matrix){.kind = VB_MATRIX_BLOCKS, .n = n, .k = k, .data = d, .bits = 6, .group = 16, .scale_kind = VB_SCALE_F32,
                        .name = "test.weight", .row_bytes = row, .offset = 32, .unpack = unpack16};
}

static vb__matrix matrix_of(kind t, int n, int k) {
    if (t.group == 16) return matrix_of16(n, k);
    return t.bits == 16 ? plain_matrix(VB_MATRIX_BF16, n, k, 0) : affine_matrix(n, k, t.bits, t.group, VB_SCALE_BF16, 0);
}

static vb__weight *weight_of(vb__cpu_backend *be, const vb__matrix *m) {
    vb__weight *w = NULL;
    vb_error err = {0};
    if (vb__cpu_weight_create(&be->base, m, &w, &err) != VB_OK) fail_msg("%s", err.text);
    return w;
}

static void compare(const geometry *t, int level, int threads, int rows) {
    vb__cpu_backend *be = backend(level, threads, t->activations, MAX_ROWS, MAX_K);
    vb__matrix src[3] = {matrix_of(t->gate, t->n, t->k), matrix_of(t->up, t->n, t->k), matrix_of(t->down, t->m, t->n)};
    vb__weight *w[3];
    float *x = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)rows * (size_t)t->k * 4), *bias = vb__alloc_aligned(VB_TAG_SCRATCH, MAX_K * 4 * 3);
    float *g = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)rows * (size_t)t->n * 4), *u = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)rows * (size_t)t->n * 4);
    size_t bytes = (size_t)rows * (size_t)t->m * 4;
    float *residual = vb__alloc_aligned(VB_TAG_SCRATCH, bytes), *want = vb__alloc_aligned(VB_TAG_SCRATCH, bytes), *got = vb__alloc_aligned(VB_TAG_SCRATCH, bytes);
    for (int i = 0; i < 3; i++) w[i] = weight_of(be, &src[i]);
    float *raw = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)rows * (size_t)t->k * 4);
    for (int i = 0; i < rows * t->k; i++) raw[i] = value(i % 97 == 5 ? 3 : 0);
    for (int i = 0; i < 3 * MAX_K; i++) bias[i] = value(0);
    for (int i = 0; i < rows * t->m; i++) residual[i] = got[i] = value(0);
    const float *b[3] = {t->bias ? bias : NULL, t->bias ? bias + MAX_K : NULL, t->bias ? bias + 2 * MAX_K : NULL};
    if (t->m % 3 != 0) be->k.rmsnorm(x, t->k, raw, t->k, bias, rows, t->k, 1e-6f);
    else memcpy(x, raw, (size_t)rows * (size_t)t->k * 4);
    const vb__linear_out gu[2] = {{w[0], b[0], NULL, 0, g, t->n}, {w[1], b[1], NULL, 0, u, t->n}};
    vb__cpu_linear(&be->base, x, t->k, rows, gu, 2);
    for (int r = 0; r < rows; r++) be->k.swiglu(g + (int64_t)r * t->n, g + (int64_t)r * t->n, u + (int64_t)r * t->n, t->n);
    const vb__linear_out out = {w[2], b[2], residual, t->m, want, t->m};
    vb__cpu_linear(&be->base, g, t->n, rows, &out, 1);
    memcpy(got, residual, bytes);
    /* And with a norm that makes x, which then is nothing yet. */
    float *from = NULL;
    vb__norm norm = {.xs = t->k, .w = bias, .eps = 1e-6f};
    if (t->m % 3 != 0) {
        from = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)rows * (size_t)t->k * 4);
        norm.x = memcpy(from, raw, (size_t)rows * (size_t)t->k * 4);
        memset(x, 0, (size_t)rows * (size_t)t->k * 4);
    }
    const vb__mlp_args a = {w[0], w[1], b[0], b[1], from != NULL ? &norm : NULL, {w[2], b[2], got, t->m, got, t->m}};
    vb__cpu_mlp(&be->base, x, t->k, rows, &a);
    if (memcmp(want, got, bytes) != 0)
        for (int i = 0; i < rows * t->m; i++)
            if (memcmp(&want[i], &got[i], 4) != 0)
                fail_msg("geometry %d level %d threads %d rows %d: row %d output %d is %a, expected %a", (int)(t - geometries), level, threads,
                         rows, i / t->m, i % t->m, (double)got[i], (double)want[i]);
    for (int i = 0; i < 3; i++) {
        vb__cpu_weight_destroy(&be->base, w[i]);
        matrix_free(&src[i]);
    }
    float *const all[] = {x, raw, from, bias, g, u, residual, want, got};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) vb__free(all[i]);
    backend_free(be);
}

static int n_levels;

static void the_bits_of_three_operations(void **state) {
    (void)state;
    static const int rows[] = {1, 2, 5, 16, 17, 40};
    for (size_t i = 0; i < sizeof geometries / sizeof *geometries; i++)
        for (int level = 0; level < n_levels; level++)
            for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) compare(&geometries[i], level, 1 + (int)(i + r) % 3, rows[r]);
}

static void a_norm_and_its_product(void **state) {
    (void)state;
    enum { K = 192, N = 80, MOST = 300 };
    vb__matrix m[2] = {matrix_of((kind){4, 64}, N, K), matrix_of((kind){16, 0}, N, K)};
    float *x = vb__alloc_aligned(VB_TAG_SCRATCH, MOST * K * 4), *h[2], *y[4], norm[K];
    for (int i = 0; i < 2; i++) h[i] = vb__alloc_aligned(VB_TAG_SCRATCH, MOST * K * 4);
    for (int i = 0; i < 4; i++) y[i] = vb__alloc_aligned(VB_TAG_SCRATCH, MOST * N * 4);
    for (int i = 0; i < MOST * K; i++) x[i] = value(i % 89 == 3 ? 3 : 0);
    for (int i = 0; i < K; i++) norm[i] = value(0);
    for (int level = 0; level < n_levels; level++)
        for (int rows = 1; rows <= MOST; rows += rows < 20 ? 3 : 93) {
            vb__cpu_backend *be = backend(level, 1 + rows % 3, 8, MOST, K);
            vb__weight *w[2] = {weight_of(be, &m[0]), weight_of(be, &m[1])};
            const vb__linear_out want[2] = {{w[0], NULL, NULL, 0, y[0], N}, {w[1], NULL, NULL, 0, y[1], N}};
            const vb__linear_out got[2] = {{w[0], NULL, NULL, 0, y[2], N}, {w[1], NULL, NULL, 0, y[3], N}};
            be->k.rmsnorm(h[0], K, x, K, norm, rows, K, 1e-6f);
            vb__cpu_linear(&be->base, h[0], K, rows, want, 2);
            const vb__norm n = {x, K, norm, 1e-6f};
            memset(h[1], 0, MOST * K * 4);
            vb__cpu_norm_linear(&be->base, &n, h[1], K, rows, got, 2);
            assert_memory_equal(h[0], h[1], (size_t)rows * K * 4);
            for (int i = 0; i < 2; i++) assert_memory_equal(y[i], y[2 + i], (size_t)rows * N * 4);
            for (int i = 0; i < 2; i++) vb__cpu_weight_destroy(&be->base, w[i]);
            backend_free(be);
        }
    vb__free(x);
    for (int i = 0; i < 2; i++) vb__free(h[i]);
    for (int i = 0; i < 4; i++) vb__free(y[i]);
    for (int i = 0; i < 2; i++) matrix_free(&m[i]);
}

static void more_rows_than_a_pass(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof geometries / sizeof *geometries; i++)
        for (int level = 1; level < n_levels; level++) {
            compare(&geometries[i], level, 2, 300);
            if (i % 4 == 1) compare(&geometries[i], level, 3, MAX_ROWS);
        }
}

int main(void) {
    (void)vb__fp_enter();
    n_levels = levels();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bits_of_three_operations),
        cmocka_unit_test(more_rows_than_a_pass),
        cmocka_unit_test(a_norm_and_its_product),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
