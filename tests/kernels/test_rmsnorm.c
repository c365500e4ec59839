/* rmsnorm and its gated form: every level against the reference, items against single items, accuracy. */
#include "rowwise_test.h"

static void one_case(int32_t n, int32_t items, int64_t xs, int64_t zs, fill kind, bool in_place) {
    float *x = new_filled(items * xs, kind), *z = new_filled(items * zs, kind), *w = new_filled(n, kind);
    float *want = copy_of(x, items * xs), *want_gated = copy_of(x, items * xs);
    vb__rmsnorm_ref(want, xs, x, xs, w, items, n, 1e-6f);
    vb__rmsnorm_gated_ref(want_gated, xs, x, xs, z, zs, w, items, n, 1e-6f);
    FOR_LEVELS(level) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        float *y = copy_of(x, items * xs), *yg = copy_of(x, items * xs);
        k.rmsnorm(y, xs, in_place ? y : x, xs, w, items, n, 1e-6f);
        k.rmsnorm_gated(yg, xs, in_place ? yg : x, xs, z, zs, w, items, n, 1e-6f);
        expect_same("rmsnorm", level, y, want, items * xs);
        expect_same("rmsnorm_gated", level, yg, want_gated, items * xs);
        if (n % 3 == 0) { /* one at a time */
            float *single = copy_of(x, items * xs);
            for (int32_t i = 0; i < items; i++) k.rmsnorm(single + i * xs, xs, x + i * xs, xs, w, 1, n, 1e-6f);
            expect_same("rmsnorm one by one", level, single, want, items * xs);
            vb__free(single);
        }
        vb__free(y);
        vb__free(yg);
    }
    vb__free(x);
    vb__free(z);
    vb__free(w);
    vb__free(want);
    vb__free(want_gated);
}

static void levels_return_the_same_bits(void **state) {
    (void)state;
    say_skipped("rmsnorm");
    for (int32_t n = 1; n <= 300; n++) {
        int32_t items = 1 + n % 4;
        for (fill kind = 0; kind < FILLS; kind++) one_case(n, items, n + n % 5, n + n % 3, kind, n & 1);
    }
    one_case(1024, 16, 2048, 1024, FILL_NORMAL, false);
    one_case(5120, 3, 5120, 5120, FILL_WIDE, true);
}

static void launcher_gives_the_same_at_every_thread_count(void **state) {
    (void)state;
    enum { N = 768, ITEMS = 150 };
    float *x = new_filled(ITEMS * N, FILL_NORMAL), *z = new_filled(ITEMS * N, FILL_NORMAL), *w = new_filled(N, FILL_NORMAL);
    float *want = new_floats(ITEMS * N), *y = new_floats(ITEMS * N);
    for (int gated = 0; gated < 2; gated++) {
        if (gated) vb__rmsnorm_gated_ref(want, N, x, N, z, N, w, ITEMS, N, 1e-5f);
        else vb__rmsnorm_ref(want, N, x, N, w, ITEMS, N, 1e-5f);
        for (vb__cpu_level level = VB_CPU_C; level <= g_best; level++)
            for (int32_t threads = 1; threads <= 3; threads++) {
                vb__cpu_backend be;
                backend_open(&be, level, threads, ITEMS);
                memset(y, 0, ITEMS * N * sizeof(float));
                if (gated) vb__cpu_rmsnorm_gated(&be.base, y, N, x, N, z, N, w, ITEMS, N, 1e-5f);
                else vb__cpu_rmsnorm(&be.base, y, N, x, N, w, ITEMS, N, 1e-5f);
                expect_same("launcher", level, y, want, ITEMS * N);
                backend_close(&be);
            }
    }
    vb__free(x);
    vb__free(z);
    vb__free(w);
    vb__free(want);
    vb__free(y);
}

/* Against f64: an element's relative error stays below 4 units of 2^-24. */
static void accuracy(void **state) {
    (void)state;
    enum { N = 1024 };
    float *x = new_filled(N, FILL_NORMAL), *w = new_filled(N, FILL_NORMAL), *y = new_floats(N);
    double worst = 0;
    for (int run = 0; run < 50; run++) {
        fill_with(x, N, FILL_NORMAL);
        vb__rmsnorm_ref(y, N, x, N, w, 1, N, 1e-6f);
        double sum = 0;
        for (int i = 0; i < N; i++) sum += (double)x[i] * x[i];
        double scale = 1 / sqrt(sum / N + (double)1e-6f);
        for (int i = 0; i < N; i++) {
            double want = x[i] * scale * w[i], e = fabs((double)y[i] - want) / (fabs(want) + 1e-30);
            if (e > worst) worst = e;
        }
    }
    printf("rmsnorm: largest relative error %.2f x 2^-24\n", worst * 0x1p24);
    assert_true(worst < 4 * 0x1p-24);
    vb__free(x);
    vb__free(w);
    vb__free(y);
}

static void bench(void) {
    enum { N = 1024, ITEMS = 16 };
    float *x = new_filled(ITEMS * N, FILL_NORMAL), *w = new_filled(N, FILL_NORMAL), *y = new_floats(ITEMS * N);
    for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        double one, many, gated;
        MEDIAN_TIME(one, 15, 200, k.rmsnorm(y, N, x, N, w, 1, N, 1e-6f));
        MEDIAN_TIME(many, 15, 20, k.rmsnorm(y, N, x, N, w, ITEMS, N, 1e-6f));
        MEDIAN_TIME(gated, 15, 20, k.rmsnorm_gated(y, 128, x, 128, x, 128, w, 128, 128, 1e-6f));
        printf("rmsnorm %-7s n 1024: one row %.3f us, 16 rows %.3f us; gated 128 x 128 %.3f us\n", vb__cpu_level_name(level),
               one * 1e6, many * 1e6, gated * 1e6);
    }
    vb__free(x);
    vb__free(w);
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
        cmocka_unit_test(launcher_gives_the_same_at_every_thread_count),
        cmocka_unit_test(accuracy),
    };
    return cmocka_run_group_tests_name("rmsnorm", tests, NULL, NULL);
}
