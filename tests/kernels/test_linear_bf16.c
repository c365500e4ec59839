/* linear_bf16 through the launcher, every level against an oracle that reads the file's bytes. */
#include "linear_support.h"

enum { MAX_ROWS = 512, GUARD = 3 };
static int n_levels, first_level;

static int check_matrix(const vb__matrix *m, int values, const int *row_counts, int n_counts) {
    int bad = 0, most = 0;
    for (int i = 0; i < n_counts; i++) most = row_counts[i] > most ? row_counts[i] : most;
    int64_t xs = m->k + 5, ys = m->n + GUARD, rs = m->n + 1;
    float *x = malloc((size_t)(xs * most) * 4), *y = malloc((size_t)(ys * most) * 4);
    float *res = malloc((size_t)(rs * most) * 4), *bias = malloc((size_t)m->n * 4);
    float *want = malloc((size_t)m->n * (size_t)most * 4);
    for (int64_t i = 0; i < xs * most; i++) x[i] = value(values == 2 && rng() % 300 ? 0 : values);
    for (int64_t i = 0; i < rs * most; i++) res[i] = uniform();
    for (int i = 0; i < m->n; i++) bias[i] = uniform();
    oracle_bf16(m, x, xs, most, want);
    for (int level = first_level; level < n_levels && !bad; level++) {
        vb__cpu_backend *be = backend(level, 1 + level % 2, 8, MAX_ROWS, m->k);
        vb__weight *w;
        vb_error err;
        assert_int_equal(vb__cpu_weight_create(&be->base, m, &w, &err), VB_OK);
        for (int i = 0; i < n_counts && !bad; i++) {
            int rows = row_counts[i], with = (int)(rng() % 4);
            for (int64_t j = 0; j < ys * rows; j++) y[j] = 12345.0f;
            vb__linear_out out = {w, with & 1 ? bias : NULL, with & 2 ? res : NULL, rs, y, ys};
            vb__cpu_linear(&be->base, x, xs, rows, &out, 1);
            char what[160];
            (void)snprintf(what, sizeof what, "level %s kind %d n %d k %d rows %d values %d",
                           vb__cpu_level_name((vb__cpu_level)level), m->kind, m->n, m->k, rows, values);
            bad |= differs(what, want, out.bias, out.residual, rs, y, ys, rows, m->n);
            for (int r = 0; r < rows; r++)
                for (int j = m->n; j < m->n + GUARD; j++) bad |= y[r * ys + j] != 12345.0f;
        }
        vb__cpu_weight_destroy(&be->base, w);
        backend_free(be);
    }
    free(x);
    free(y);
    free(res);
    free(bias);
    free(want);
    return bad;
}

static const int few[] = {1, 2, 3, 4, 5, 6, 7, 9, 13, 16, 17, 31, 33, 50, 64};
static const int tail[] = {1, 16, 41};

static void shapes_and_row_counts(void **state) {
    (void)state;
    static const int ks[] = {1, 2, 31, 32, 33, 64, 100, 320, 1024, 1056};
    for (int i = 0; i < 10; i++)
        for (int n = 1; n < 150; n = n * 3 + 1 + (i & 1)) {
            vb__matrix m = plain_matrix(VB_MATRIX_BF16, n, ks[i], 0);
            assert_false(check_matrix(&m, 0, n == 40 || n == 41 ? few : tail, n == 40 || n == 41 ? 15 : 3));
            matrix_free(&m);
        }
}

static void f16_and_f32_are_rounded_once(void **state) {
    (void)state;
    for (int values = 0; values < 4; values++)
        for (int kind = VB_MATRIX_F16; kind <= VB_MATRIX_F32; kind++) {
            vb__matrix m = plain_matrix((vb__matrix_kind)kind, 35, 96, values);
            assert_false(check_matrix(&m, 1, tail, 3));
            matrix_free(&m);
        }
}

/* Denormals, infinities, NaN and every magnitude in weights and inputs: the order and the flushing of the hardware. */
static void extreme_values(void **state) {
    (void)state;
    for (int i = 0; i < 40; i++) {
        vb__matrix m = plain_matrix(VB_MATRIX_BF16, 33, 128 + 32 * (i % 5), i % 4);
        assert_false(check_matrix(&m, 1 + (i / 4) % 3, few, 15));
        matrix_free(&m);
    }
}

static void planted_fault_is_caught(void **state) {
    (void)state;
    static const int one[] = {1}, two[] = {2};
    vb__matrix m = plain_matrix(VB_MATRIX_BF16, 64, 512, 0);
    vb__fault_set(VB_FAULT_LINEAR_ROWS);
    for (; first_level < n_levels; first_level++) {
        assert_false(check_matrix(&m, 0, one, 1));
        assert_true(check_matrix(&m, 0, two, 1));
    }
    first_level = 0;
    vb__fault_set(VB_FAULT_NONE);
    matrix_free(&m);
}

#include "linear_bench.h"

int main(int argc, char **argv) {
    (void)vb__fp_enter();
    n_levels = levels();
    char bits[] = "bits=16";
    char *with_bits[16] = {argv[0], NULL, bits};
    if (argc > 1 && argc < 14 && strcmp(argv[1], "--bench") == 0) {
        for (int i = 2; i < argc; i++) with_bits[i + 1] = argv[i];
        return bench(argc + 1, with_bits, n_levels);
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_and_row_counts),
        cmocka_unit_test(f16_and_f32_are_rounded_once),
        cmocka_unit_test(extreme_values),
        cmocka_unit_test(planted_fault_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
