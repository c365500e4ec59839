/* swiglu and the unary forms: every level against the reference; launchers of swiglu and gather_rows. */
#include "rowwise_test.h"

static void levels_return_the_same_bits(void **state) {
    (void)state;
    say_skipped("elementwise");
    static vb__unary_fn *const ref[] = {vb__exp_rows_ref, vb__sigmoid_rows_ref, vb__silu_rows_ref, vb__softplus_rows_ref};
    for (int32_t n = 0; n <= 300; n++)
        for (fill kind = 0; kind < FILLS; kind++) {
            float *g = new_filled(n + 1, kind), *u = new_filled(n + 1, kind), *want = new_floats(n + 1), *y = new_floats(n + 1);
            FOR_LEVELS(level) {
                vb__kernels k;
                vb__kernels_init(&k, level);
                want[n] = y[n] = 5.0f; /* nothing is written past the end */
                vb__swiglu_ref(want, g, u, n);
                k.swiglu(y, g, u, n);
                expect_same("swiglu", level, y, want, n + 1);
                for (int f = 0; f < VB_UNARIES; f++) {
                    for (int32_t i = 0; i < n; i++) y[i] = g[i] * 8.0f;
                    ref[f](want, y, n);
                    k.unary[f](y, y, n);
                    expect_same("unary", level, y, want, n + 1);
                }
            }
            vb__free(g);
            vb__free(u);
            vb__free(want);
            vb__free(y);
        }
}

static void launchers_give_the_same_at_every_thread_count(void **state) {
    (void)state;
    static const int32_t widths[] = {1, 129, 3584, 9217};
    enum { ROWS = 17 };
    int32_t idx[ROWS];
    for (int i = 0; i < ROWS; i++) idx[i] = rnd_below(ROWS);
    for (int c = 0; c < 4; c++) {
        int32_t n = widths[c];
        int64_t s = n + 5;
        float *g = new_filled(ROWS * s, FILL_NORMAL), *u = new_filled(ROWS * s, FILL_NORMAL), *want = new_floats(ROWS * s),
              *y = new_floats(ROWS * s);
        for (vb__cpu_level level = VB_CPU_C; level <= g_best; level++)
            for (int32_t threads = 1; threads <= 3; threads++) {
                vb__cpu_backend be;
                backend_open(&be, level, threads, ROWS);
                for (int i = 0; i < ROWS; i++) vb__swiglu_ref(want + i * s, g + i * s, u + i * s, n);
                vb__cpu_swiglu(&be.base, y, s, g, s, u, s, ROWS, n);
                for (int i = 0; i < ROWS; i++) expect_same("swiglu launcher", level, y + i * s, want + i * s, n);
                vb__cpu_swiglu(&be.base, y, s, g, s, u, s, 1, n);
                expect_same("swiglu, one row", level, y, want, n);
                vb__cpu_swiglu(&be.base, y, s, g, s, u, s, 0, n);
                vb__cpu_gather_rows(&be.base, y, s, g, s, idx, ROWS, n);
                for (int i = 0; i < ROWS; i++) assert_memory_equal(y + i * s, g + idx[i] * s, (size_t)n * sizeof(float));
                backend_close(&be);
            }
        vb__free(g);
        vb__free(u);
        vb__free(want);
        vb__free(y);
    }
}

static void bench(void) {
    enum { N = 3584 };
    float *g = new_filled(N, FILL_NORMAL), *u = new_filled(N, FILL_NORMAL), *y = new_floats(N);
    for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        double t;
        MEDIAN_TIME(t, 15, 50, k.swiglu(y, g, u, N));
        printf("swiglu %-7s n 3584: %.3f us\n", vb__cpu_level_name(level), t * 1e6);
    }
    vb__free(g);
    vb__free(u);
    vb__free(y);
}

int main(int argc, char **argv) {
    test_begin();
    if (is_bench(argc, argv)) {
        bench();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_return_the_same_bits),
        cmocka_unit_test(launchers_give_the_same_at_every_thread_count),
    };
    return cmocka_run_group_tests_name("elementwise", tests, NULL, NULL);
}
