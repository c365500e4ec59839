/* linear_q and act_quant through the launcher, every level against an oracle that reads the file's bytes. */
#include "linear_support.h"

enum { MAX_ROWS = 512, GUARD = 3 };
static int n_levels, first_level;

/* One matrix, every level, some row counts: bits, and nothing written outside y. */
static int check_matrix(const vb__matrix *m, int values, int activations, const int *row_counts, int n_counts) {
    int bad = 0, most = 0;
    for (int i = 0; i < n_counts; i++) most = row_counts[i] > most ? row_counts[i] : most;
    int64_t xs = m->k + 5, ys = m->n + GUARD, rs = m->n + 1;
    float *x = malloc((size_t)(xs * most) * 4), *y = malloc((size_t)(ys * most) * 4);
    float *res = malloc((size_t)(rs * most) * 4), *bias = malloc((size_t)m->n * 4);
    float *want = malloc((size_t)m->n * (size_t)most * 4);
    for (int64_t i = 0; i < xs * most; i++) x[i] = value(values == 2 && rng() % 300 ? 0 : values);
    for (int64_t i = 0; i < rs * most; i++) res[i] = uniform();
    for (int i = 0; i < m->n; i++) bias[i] = uniform();
    oracle_q(m, x, xs, most, activations, want);
    for (int level = first_level; level < n_levels && !bad; level++) {
        vb__cpu_backend *be = backend(level, 1 + level % 2, activations, MAX_ROWS, m->k);
        vb__weight *w;
        vb_error err;
        assert_int_equal(vb__cpu_weight_create(&be->base, m, &w, &err), VB_OK);
        for (int i = 0; i < n_counts && !bad; i++) {
            int rows = row_counts[i], with = (int)(rng() % 4);
            for (int64_t j = 0; j < ys * rows; j++) y[j] = 12345.0f;
            vb__linear_out out = {w, with & 1 ? bias : NULL, with & 2 ? res : NULL, rs, y, ys};
            vb__cpu_linear(&be->base, x, xs, rows, &out, 1);
            char what[160];
            (void)snprintf(what, sizeof what, "level %s n %d k %d bits %d group %d scales %d act %d rows %d values %d",
                           vb__cpu_level_name((vb__cpu_level)level), m->n, m->k, m->bits, m->group, m->scale_kind,
                           activations, rows, values);
            bad |= differs(what, want, out.bias, out.residual, rs, y, ys, rows, m->n);
            for (int r = 0; r < rows; r++)
                for (int j = m->n; j < m->n + GUARD; j++) bad |= y[r * ys + j] != 12345.0f;
            if (bad) printf("%s\n", what);
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

static const int few[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 50};
static const int tail[] = {1, 16, 101};

static void every_format_gives_the_contracts_bits(void **state) {
    (void)state;
    static const int bits[] = {4, 8, 2, 3, 5, 6, 7}, groups[] = {32, 64, 128};
    for (int b = 0; b < 7; b++)
        for (int g = 0; g < 3; g++)
            for (int act = 8; act <= 16; act += 8) {
                vb__matrix m = affine_matrix(b < 2 ? 37 : 18, 1152, bits[b], groups[g], (vb__scale_kind)(rng() % 3), 0);
                assert_false(check_matrix(&m, 0, act, b < 2 ? few : tail, b < 2 ? 14 : 3));
                matrix_free(&m);
            }
}

static void ragged_shapes(void **state) {
    (void)state;
    static const int ks[] = {32, 64, 96, 128, 192, 480, 512, 544, 576, 640, 1024, 1056, 3584};
    for (int i = 0; i < 13; i++)
        for (int g = 32; g <= 128; g *= 2)
            for (int n = 1; n < 80; n = n * 2 + (i & 1)) {
                if (ks[i] % g != 0) continue;
                vb__matrix m = affine_matrix(n, ks[i], i % 3 == 2 ? 8 : 4, g, (vb__scale_kind)(i % 3), 0);
                assert_false(check_matrix(&m, 1, n % 2 ? 8 : 16, tail, 3));
                matrix_free(&m);
            }
}

/* Slices of one and two segments under one to three blocks of rows: fewer products than run ahead of their chains. */
static void short_slices(void **state) {
    (void)state;
    static const int ks[] = {32, 64, 128, 544, 576, 640}, rows[] = {16, 17, 20, 33};
    for (size_t i = 0; i < sizeof ks / sizeof *ks; i++)
        for (int bits = 4; bits <= 8; bits += 4)
            for (int act = 8; act <= 16; act += 8) {
                vb__matrix m = affine_matrix(40, ks[i], bits, ks[i] % 64 ? 32 : 64, VB_SCALE_BF16, 0);
                assert_false(check_matrix(&m, 0, act, rows, 4));
                matrix_free(&m);
            }
}

static void extreme_values(void **state) {
    (void)state;
    for (int i = 0; i < 24; i++) {
        vb__matrix m = affine_matrix(33, 640, i & 1 ? 4 : 8, i & 2 ? 64 : 32, (vb__scale_kind)(i % 3), 1 + (i / 4) % 2);
        assert_false(check_matrix(&m, 1 + i % 3, i & 4 ? 16 : 8, few, 14));
        matrix_free(&m);
    }
}

static void saturated_activations(void **state) {
    (void)state;
    /* All codes and activations at their largest: the int16 and int32 sums of a kernel must hold them. */
    for (int act = 8; act <= 16; act += 8)
        for (int bits = 4; bits <= 8; bits += 4) {
            vb__matrix m = affine_matrix(16, 512, bits, 64, VB_SCALE_BF16, 2);
            float x[8 * 512], want[8 * 16], y[8 * 16];
            for (int i = 0; i < 8 * 512; i++) {
                int r = i / 512;
                x[i] = r == 0 ? 1.0f : r == 1 ? -1.0f : r == 2 ? -128.0f / 32512.0f : r == 3 ? 127.0f / 32512.0f : uniform();
                if (r >= 2 && i % 64 == 0) x[i] = 1.0f; /* so that the others are lo = -128 and 127 */
            }
            oracle_q(&m, x, 512, 8, act, want);
            for (int level = 0; level < n_levels; level++) {
                vb__cpu_backend *be = backend(level, 1, act, 16, 512);
                vb__weight *w;
                assert_int_equal(vb__cpu_weight_create(&be->base, &m, &w, NULL), VB_OK);
                vb__linear_out out = {w, NULL, NULL, 0, y, 16};
                vb__cpu_linear(&be->base, x, 512, 8, &out, 1);
                assert_false(differs(vb__cpu_level_name((vb__cpu_level)level), want, NULL, NULL, 0, y, 16, 8, 16));
                vb__cpu_weight_destroy(&be->base, w);
                backend_free(be);
            }
            matrix_free(&m);
        }
}

/* Several products of one input, of several kinds, y over the residual, wide prefill in several passes. */
static void one_call_many_products(void **state) {
    (void)state;
    enum { K = 1024, ROWS = 300 };
    vb__matrix m[4] = {affine_matrix(130, K, 4, 64, VB_SCALE_BF16, 0), affine_matrix(1, K, 8, 32, VB_SCALE_F16, 0),
                       plain_matrix(VB_MATRIX_BF16, 17, K, 0), affine_matrix(16, K, 4, 128, VB_SCALE_F32, 0)};
    float *x = malloc(sizeof(float) * K * ROWS), *want[4], *y[4], *keep[4];
    for (int i = 0; i < K * ROWS; i++) x[i] = value(0);
    for (int i = 0; i < 4; i++) {
        size_t cells = (size_t)m[i].n * ROWS;
        want[i] = malloc(cells * 4);
        y[i] = malloc(cells * 4);
        keep[i] = malloc(cells * 4);
        for (size_t j = 0; j < cells; j++) keep[i][j] = uniform();
        if (m[i].kind == VB_MATRIX_AFFINE) oracle_q(&m[i], x, K, ROWS, 8, want[i]);
        else oracle_bf16(&m[i], x, K, ROWS, want[i]);
    }
    for (int level = 0; level < n_levels; level++)
        for (int threads = 1; threads <= 3; threads++) {
            vb__cpu_backend *be = backend(level, threads, 8, ROWS, 2048);
            vb__linear_out out[4];
            vb__weight *w[4];
            for (int i = 0; i < 4; i++) {
                assert_int_equal(vb__cpu_weight_create(&be->base, &m[i], &w[i], NULL), VB_OK);
                memcpy(y[i], keep[i], (size_t)m[i].n * ROWS * 4);
                out[i] = (vb__linear_out){w[i], NULL, y[i], m[i].n, y[i], m[i].n};
            }
            vb__cpu_linear(&be->base, x, K, level == 0 ? 20 : ROWS, out, 4);
            for (int i = 0; i < 4; i++) {
                assert_false(differs(vb__cpu_level_name((vb__cpu_level)level), want[i], NULL, keep[i], m[i].n, y[i],
                                     m[i].n, level == 0 ? 20 : ROWS, m[i].n));
                vb__cpu_weight_destroy(&be->base, w[i]);
            }
            backend_free(be);
        }
    for (int i = 0; i < 4; i++) {
        free(want[i]);
        free(y[i]);
        free(keep[i]);
        matrix_free(&m[i]);
    }
    free(x);
}

/* The planted fault must be visible here, at every level, with more than one row only. */
static void planted_fault_is_caught(void **state) {
    (void)state;
    static const int one[] = {1}, two[] = {2};
    vb__matrix m = affine_matrix(40, 512, 4, 64, VB_SCALE_BF16, 0), m2 = affine_matrix(40, 1024, 8, 128, VB_SCALE_BF16, 0);
    vb__fault_set(VB_FAULT_LINEAR_ROWS);
    for (; first_level < n_levels; first_level++) {
        assert_false(check_matrix(&m, 0, 8, one, 1));
        assert_true(check_matrix(&m, 0, 8, two, 1));
        assert_true(check_matrix(&m2, 0, 16, two, 1));
    }
    first_level = 0;
    vb__fault_set(VB_FAULT_NONE);
    matrix_free(&m);
    matrix_free(&m2);
}

static void same_best(const vb__best *a, const vb__best *b, int32_t rows) {
    for (int32_t r = 0; r < rows; r++)
        assert_true(a[r].value == b[r].value && a[r].second == b[r].second && a[r].id == b[r].id && a[r].finite == b[r].finite);
}

/* The same logits, and the argmax of the finished rows, ties and values that are not finite included. */
static void argmax_beside_the_product(void **state) {
    (void)state;
    enum { N = 5000, K = 128, ROWS = 70 };
    vb__matrix m = affine_matrix(N, K, 4, 64, VB_SCALE_BF16, 0), plain = plain_matrix(VB_MATRIX_BF16, N, K, 0);
    float *x = vb__alloc_aligned(VB_TAG_SCRATCH, ROWS * K * 4), *y[2];
    for (int i = 0; i < 2; i++) y[i] = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)ROWS * N * 4);
    for (int i = 0; i < ROWS * K; i++) x[i] = i / K == 2 ? 0.0f : value(0); /* row 2: all logits 0 */
    x[3 * K + 5] = NAN;
    x[69 * K] = INFINITY;
    for (int level = 0; level < n_levels; level++)
        for (int kind = 0; kind < 6; kind++) { /* 1 to 3 threads, quantised or not */
            vb__cpu_backend *be = backend(level, 1 + kind / 2, 8, ROWS, K);
            vb__weight *w;
            assert_int_equal(vb__cpu_weight_create(&be->base, kind % 2 ? &plain : &m, &w, NULL), VB_OK);
            static const int counts[] = {1, 2, 5, 16, ROWS};
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                int32_t rows = counts[c];
                vb__best best[2][ROWS];
                vb__linear_out out[2] = {{w, NULL, NULL, 0, y[0], N}, {w, NULL, NULL, 0, y[1], N}};
                vb__cpu_linear(&be->base, x, K, rows, &out[0], 1);
                for (int r = 0; r < rows; r++) {
                    vb__argmax_ref(y[0] + (int64_t)r * N, N, &best[0][r]);
                }
                vb__cpu_linear_argmax(&be->base, x, K, rows, &out[1], NULL, 0, best[1]);
                assert_memory_equal(y[0], y[1], (size_t)rows * N * 4);
                same_best(best[0], best[1], rows);
                vb__linear_out unwanted = {w, NULL, NULL, 0, NULL, 0}; /* the product itself */
                memset(best[1], 0xff, sizeof best[1]);
                vb__cpu_linear_argmax(&be->base, x, K, rows, &unwanted, NULL, 0, best[1]);
                same_best(best[0], best[1], rows);
                if (rows > 3) assert_true(best[0][2].id == 0 && best[0][2].finite == 1 && best[0][3].finite == 0);
            }
            vb__cpu_weight_destroy(&be->base, w);
            backend_free(be);
        }
    for (int i = 0; i < 2; i++) vb__free(y[i]);
    vb__free(x);
    matrix_free(&m);
    matrix_free(&plain);
}

/* Random ranges of n outputs: one panel to many, next to each other or far apart, the ragged end in or out. */
static int32_t random_ranges(vb__out_range *ranges, int32_t n, int32_t most) {
    int32_t panels = (n + VB_RANGE_UNIT - 1) / VB_RANGE_UNIT, count = 0;
    for (int32_t p = (int32_t)(rng() % 4); p < panels && count < most; p += (int32_t)(rng() % 5)) {
        int32_t some = rng() % 8 == 0 ? 1 + (int32_t)(rng() % 150) : 1 + (int32_t)(rng() % 3), end = p + some < panels ? p + some : panels;
        ranges[count++] = (vb__out_range){p * VB_RANGE_UNIT, end * VB_RANGE_UNIT < n ? end * VB_RANGE_UNIT : n};
        p = end;
    }
    return count;
}

/* Only the outputs of some ranges: the whole product's bits in their cells and nothing written elsewhere, and the argmax of what is in
 * them. */
static void argmax_of_some_outputs(void **state) {
    (void)state;
    enum { K = 128, ROWS = 70, N_MOST = 8000 };
    static const int32_t sizes[] = {N_MOST, 4999, 17, 5};
    static const int counts[] = {1, 2, 5, 16, ROWS};
    float *x = vb__alloc_aligned(VB_TAG_SCRATCH, ROWS * K * 4), *y[2];
    for (int i = 0; i < 2; i++) y[i] = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)ROWS * N_MOST * 4);
    for (int i = 0; i < ROWS * K; i++) x[i] = i / K == 2 ? 0.0f : value(0); /* row 2: all logits 0, so the lowest id of the ranges wins */
    x[3 * K + 5] = NAN;
    int32_t tried = 0, most = 0;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        const int32_t n = sizes[s];
        vb__matrix m[2] = {affine_matrix(n, K, 4, 64, VB_SCALE_BF16, 0), plain_matrix(VB_MATRIX_BF16, n, K, 0)};
        for (int level = 0; level < n_levels; level++)
            for (int kind = 0; kind < 6; kind++) {
                vb__cpu_backend *be = backend(level, 1 + kind / 2, 8, ROWS, K);
                vb__weight *w;
                assert_int_equal(vb__cpu_weight_create(&be->base, &m[kind % 2], &w, NULL), VB_OK);
                for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
                    vb__out_range ranges[VB_RANGES_MAX];
                    int32_t rows = counts[c], n_ranges = random_ranges(ranges, n, c % 2 ? VB_RANGES_MAX : 1 + (int32_t)(rng() % 3));
                    if (n_ranges == 0) continue;
                    tried++;
                    most = n_ranges > most ? n_ranges : most;
                    vb__best want[ROWS], best[2][ROWS];
                    vb__linear_out out[2] = {{w, NULL, NULL, 0, y[0], n}, {w, NULL, NULL, 0, y[1], n}};
                    vb__cpu_linear(&be->base, x, K, rows, &out[0], 1);
                    for (int32_t i = 0; i < rows * n; i++) y[1][i] = 12345.0f;
                    vb__cpu_linear_argmax(&be->base, x, K, rows, &out[1], ranges, n_ranges, best[0]);
                    vb__linear_out unwanted = {w, NULL, NULL, 0, NULL, 0};
                    memset(best[1], 0xff, sizeof best[1]);
                    vb__cpu_linear_argmax(&be->base, x, K, rows, &unwanted, ranges, n_ranges, best[1]);
                    for (int32_t r = 0; r < rows; r++) {
                        float *full = y[0] + (int64_t)r * n;
                        want[r] = VB_BEST_NONE;
                        for (int32_t i = 0, at = 0; i <= n_ranges; i++) {
                            int32_t until = i < n_ranges ? ranges[i].begin : n;
                            for (; at < until; at++) full[at] = 12345.0f; /* what the cells outside must still be */
                            if (i == n_ranges) break;
                            vb__best part;
                            vb__argmax_ref(full + at, ranges[i].end - at, &part);
                            vb__best_fold(&want[r], &part, at);
                            at = ranges[i].end;
                        }
                    }
                    assert_memory_equal(y[0], y[1], (size_t)rows * (size_t)n * 4);
                    same_best(want, best[0], rows);
                    same_best(want, best[1], rows);
                    if (rows > 3) assert_true(want[2].id == ranges[0].begin && want[3].finite == 0);
                }
                vb__cpu_weight_destroy(&be->base, w);
                backend_free(be);
            }
        matrix_free(&m[0]);
        matrix_free(&m[1]);
    }
    printf("%d lists of ranges, the longest of %d\n", tried, most);
    for (int i = 0; i < 2; i++) vb__free(y[i]);
    vb__free(x);
}

static void bad_matrices_are_refused(void **state) {
    (void)state;
    vb__cpu_backend *be = backend(0, 1, 8, 4, 1024);
    static const struct {
        int n, k, bits, group;
        const char *says;
    } cases[] = {{4, 1024, 9, 64, "9-bit codes"}, {4, 1024, 4, 48, "group 48"}, {4, 96, 4, 64, "multiple of the group 64"},
                 {4, 2048, 4, 64, "at most 1024"}, {0, 64, 4, 64, "at least 1 x 1"}, {4, 1024, 1, 64, "1-bit codes"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vb__matrix m = {.kind = VB_MATRIX_AFFINE, .n = cases[i].n, .k = cases[i].k, .bits = cases[i].bits,
                        .group = cases[i].group, .name = "model.layers.3.q"};
        vb__weight *w;
        vb_error err;
        assert_int_not_equal(vb__cpu_weight_create(&be->base, &m, &w, &err), VB_OK);
        assert_non_null(strstr(err.text, cases[i].says));
        assert_non_null(strstr(err.text, "model.layers.3.q"));
    }
    backend_free(be);
}

static void packing_survives_lack_of_memory(void **state) {
    (void)state;
    vb__cpu_backend *be = backend(0, 1, 8, 4, 1024);
    vb__matrix m = affine_matrix(4, 64, 4, 64, VB_SCALE_BF16, 0);
    size_t before = vb__alloc_bytes(VB_TAG_WEIGHTS);
    for (uint64_t i = 1; i <= 3; i++) {
        vb__weight *w;
        vb_error err;
        vb__alloc_fail_at(i, false);
        assert_int_equal(vb__cpu_weight_create(&be->base, &m, &w, &err), VB_E_MEMORY);
    }
    vb__alloc_fail_at(0, false);
    assert_int_equal(vb__alloc_bytes(VB_TAG_WEIGHTS), before);
    matrix_free(&m);
    backend_free(be);
}

#include "linear_bench.h"

int main(int argc, char **argv) {
    (void)vb__fp_enter();
    n_levels = levels();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench(argc, argv, n_levels);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_gives_the_contracts_bits),
        cmocka_unit_test(ragged_shapes),
        cmocka_unit_test(extreme_values),
        cmocka_unit_test(saturated_activations),
        cmocka_unit_test(one_call_many_products),
        cmocka_unit_test(planted_fault_is_caught),
        cmocka_unit_test(short_slices), cmocka_unit_test(argmax_beside_the_product), cmocka_unit_test(argmax_of_some_outputs),
        cmocka_unit_test(bad_matrices_are_refused),
        cmocka_unit_test(packing_survives_lack_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
