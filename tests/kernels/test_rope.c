/* rope: the table against f64, every level against the reference, many rows against one row. */
#include "base/fault.h"
#include "rowwise_test.h"

static void one_case(int32_t r, int32_t width, int32_t rows, int32_t heads, fill kind) {
    int64_t xh = width, xs = (int64_t)heads * width + 3;
    float *x = new_filled(rows * xs, kind), *c = new_filled(rows * r / 2, kind), *s = new_filled(rows * r / 2, kind);
    float *want = copy_of(x, rows * xs);
    vb__rope_ref(want, xs, xh, rows, heads, c, s, r);
    FOR_LEVELS(level) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        float *y = copy_of(x, rows * xs);
        k.rope(y, xs, xh, rows, heads, c, s, r);
        expect_same("rope", level, y, want, rows * xs);
        vb__free(y);
    }
    vb__free(x);
    vb__free(c);
    vb__free(s);
    vb__free(want);
}

static void levels_return_the_same_bits(void **state) {
    (void)state;
    say_skipped("rope");
    for (int32_t r = 2; r <= 140; r += 2)
        for (fill kind = 0; kind < FILLS; kind++) one_case(r, r + r % 7, 1 + r % 3, 1 + r % 5, kind);
    one_case(64, 256, 16, 8, FILL_NORMAL);
}

static void table_is_accurate_and_row_by_row_the_same(void **state) {
    (void)state;
    enum { HALF = 32, ROWS = 40 };
    float freqs[HALF], c[ROWS * HALF], s[ROWS * HALF], c1[HALF], s1[HALF];
    int32_t pos[ROWS];
    for (int j = 0; j < HALF; j++) freqs[j] = (float)vb__exp64(-(double)j / HALF * vb__log64(1e7));
    for (int i = 0; i < ROWS; i++) pos[i] = i < 20 ? i : rnd_below(1 << 20);
    vb__rope_table_ref(c, s, pos, ROWS, freqs, HALF, 1.0f);
    double worst = 0;
    for (int i = 0; i < ROWS; i++) {
        vb__rope_table_ref(c1, s1, pos + i, 1, freqs, HALF, 1.0f);
        expect_same("table cos", VB_CPU_C, c1, c + i * HALF, HALF);
        expect_same("table sin", VB_CPU_C, s1, s + i * HALF, HALF);
        for (int j = 0; j < HALF; j++) {
            double angle = (double)((float)pos[i] * freqs[j]);
            worst = fmax(worst, fabs(cos(angle) - (double)c1[j]));
            worst = fmax(worst, fabs(sin(angle) - (double)s1[j]));
        }
    }
    printf("rope: largest error of a table entry against the f32 angle %.2f x 2^-24\n", worst * 0x1p24);
    assert_true(worst <= 0.52 * 0x1p-24);
    vb__rope_table_ref(c1, s1, pos + 7, 1, freqs, HALF, 1.25f);
    for (int j = 0; j < HALF; j++) assert_true(c1[j] == c[7 * HALF + j] * 1.25f && s1[j] == s[7 * HALF + j] * 1.25f);
}

static void launcher_rows_threads_and_the_planted_fault(void **state) {
    (void)state;
    enum { R = 64, WIDTH = 256, HEADS = 8, ROWS = 70, XS = HEADS * WIDTH };
    float *x = new_filled(ROWS * XS, FILL_NORMAL), *y = new_floats(ROWS * XS), *want = copy_of(x, ROWS * XS);
    float freqs[R / 2];
    int32_t pos[ROWS];
    for (int j = 0; j < R / 2; j++) freqs[j] = (float)vb__exp64(-(double)j / (R / 2) * vb__log64(1e4));
    for (int i = 0; i < ROWS; i++) pos[i] = 100 + 3 * i;
    vb__rope_table t = {new_floats(ROWS * R / 2), new_floats(ROWS * R / 2), R};
    vb__rope_table_ref(t.cos, t.sin, pos, ROWS, freqs, R / 2, 1.0f);
    vb__rope_ref(want, XS, WIDTH, ROWS, HEADS, t.cos, t.sin, R);
    for (vb__cpu_level level = VB_CPU_C; level <= g_best; level++)
        for (int32_t threads = 1; threads <= 3; threads++) {
            vb__cpu_backend be;
            backend_open(&be, level, threads, ROWS);
            memcpy(y, x, ROWS * XS * sizeof(float));
            memset(t.cos, 0, ROWS * R / 2 * sizeof(float));
            vb__cpu_rope_table(&be.base, &t, pos, ROWS, freqs, 1.0f);
            vb__cpu_rope(&be.base, y, XS, WIDTH, ROWS, HEADS, &t);
            expect_same("rope launcher", level, y, want, ROWS * XS);
            for (int i = 0; i < ROWS; i++) { /* one row a call */
                memcpy(y, x + i * XS, XS * sizeof(float));
                vb__cpu_rope_table(&be.base, &t, pos + i, 1, freqs, 1.0f);
                vb__cpu_rope(&be.base, y, XS, WIDTH, 1, HEADS, &t);
                expect_same("rope, one row", level, y, want + i * XS, XS);
            }
            vb__cpu_rope_table(&be.base, &t, pos, ROWS, freqs, 1.0f);
            vb__fault_set(VB_FAULT_ROPE_ROWS);
            memcpy(y, x, ROWS * XS * sizeof(float));
            vb__cpu_rope(&be.base, y, XS, WIDTH, ROWS, HEADS, &t);
            assert_memory_not_equal(y, want, ROWS * XS * sizeof(float));
            memcpy(y, x, XS * sizeof(float));
            vb__cpu_rope(&be.base, y, XS, WIDTH, 1, HEADS, &t);
            assert_memory_equal(y, want, XS * sizeof(float));
            vb__fault_set(VB_FAULT_NONE);
            backend_close(&be);
        }
    vb__free(t.cos);
    vb__free(t.sin);
    vb__free(x);
    vb__free(y);
    vb__free(want);
}

static void bench(void) {
    enum { R = 64, WIDTH = 256, HEADS = 8, ROWS = 16, XS = HEADS * WIDTH };
    float *x = new_filled(ROWS * XS, FILL_NORMAL), *c = new_filled(ROWS * R / 2, FILL_NORMAL);
    float freqs[R / 2];
    int32_t pos[ROWS] = {0};
    fill_with(freqs, R / 2, FILL_NORMAL);
    double table;
    MEDIAN_TIME(table, 15, 20, vb__rope_table_ref(c, c, pos, ROWS, freqs, R / 2, 1.0f));
    printf("rope table: 16 rows x 32 %.3f us\n", table * 1e6);
    for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        double t;
        MEDIAN_TIME(t, 15, 20, k.rope(x, XS, WIDTH, ROWS, HEADS, c, c, R));
        printf("rope %-7s 16 rows, 8 heads, r 64: %.3f us\n", vb__cpu_level_name(level), t * 1e6);
    }
    vb__free(x);
    vb__free(c);
}

int main(int argc, char **argv) {
    test_begin();
    if (is_bench(argc, argv)) {
        bench();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_return_the_same_bits),
        cmocka_unit_test(table_is_accurate_and_row_by_row_the_same),
        cmocka_unit_test(launcher_rows_threads_and_the_planted_fault),
    };
    return cmocka_run_group_tests_name("rope", tests, NULL, NULL);
}
