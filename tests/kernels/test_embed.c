/* embed through the launcher: rows of every kind of matrix against values computed from the file's bytes. */
#include "linear_support.h"

static void check(const vb__matrix *m) {
    vb__cpu_backend *be = backend(0, 2, 8, 64, m->k);
    vb__weight *w;
    assert_int_equal(vb__cpu_weight_create(&be->base, m, &w, NULL), VB_OK);
    enum { ROWS = 40 };
    int64_t ys = m->k + 3;
    float *y = malloc((size_t)(ys * ROWS) * 4);
    int32_t ids[ROWS];
    for (int r = 0; r < ROWS; r++) ids[r] = r == 0 ? m->n - 1 : (int32_t)(rng() % (uint64_t)m->n);
    for (int64_t i = 0; i < ys * ROWS; i++) y[i] = 777.0f;
    vb__cpu_embed(&be->base, w, ids, ROWS, y, ys);
    for (int r = 0; r < ROWS; r++) {
        for (int k = 0; k < m->k; k++) {
            float want;
            if (m->kind == VB_MATRIX_AFFINE) {
                int64_t g = (int64_t)ids[r] * (m->k / m->group) + k / m->group;
                want = fmaf((float)code_value(m, ids[r], k), scale_value(m->scales, g, m->scale_kind),
                            scale_value(m->biases, g, m->scale_kind));
            } else {
                want = bf16_of_matrix(m, ids[r], k);
            }
            float got = y[r * ys + k];
            assert_true(to_bits(got) == to_bits(want) || (isnan(got) && isnan(want)));
        }
        for (int64_t k = m->k; k < ys; k++) assert_true(y[r * ys + k] == 777.0f);
    }
    free(y);
    vb__cpu_weight_destroy(&be->base, w);
    backend_free(be);
}

static void rows_are_the_files_values(void **state) {
    (void)state;
    static const int bits[] = {2, 3, 4, 5, 6, 7, 8};
    for (int i = 0; i < 7; i++)
        for (int g = 32; g <= 128; g *= 2) {
            vb__matrix m = affine_matrix(37 + i, 384, bits[i], g, (vb__scale_kind)((i + g) % 3), i == 2);
            check(&m);
            matrix_free(&m);
        }
    for (int kind = VB_MATRIX_BF16; kind <= VB_MATRIX_F32; kind++)
        for (int k = 1; k < 200; k = 3 * k + 1) {
            vb__matrix m = plain_matrix((vb__matrix_kind)kind, 33, k, 2);
            check(&m);
            matrix_free(&m);
        }
}

static int bench_embed(void) {
    vb__matrix m = affine_matrix(20000, 1024, 4, 64, VB_SCALE_BF16, 0);
    vb__cpu_backend *be = backend(0, 1, 8, 512, 1024);
    vb__weight *w;
    assert_int_equal(vb__cpu_weight_create(&be->base, &m, &w, NULL), VB_OK);
    static float y[512 * 1024];
    int32_t ids[512];
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        for (int r = 0; r < 512; r++) ids[r] = (int32_t)(rng() % 20000);
        double t = vb__now();
        vb__cpu_embed(&be->base, w, ids, 512, y, 1024);
        t = vb__now() - t;
        if (t < best) best = t;
    }
    printf("4-bit, 1024 wide: %.2f us a row\n", best / 512 * 1e6);
    vb__cpu_weight_destroy(&be->base, w);
    backend_free(be);
    matrix_free(&m);
    return 0;
}

int main(int argc, char **argv) {
    (void)vb__fp_enter();
    (void)levels();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench_embed();
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows_are_the_files_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
