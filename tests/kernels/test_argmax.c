/* argmax: every level against the reference and a plain search; the launcher's parts; finiteness. */
#include "rowwise_test.h"

/* Values by ==, in which a denormal is 0. */
static bool same(const vb__best *a, const vb__best *b) {
    return a->value == b->value && a->second == b->second && a->id == b->id && a->finite == b->finite;
}

/* The contract once more, in another way: the row without its best. */
static void second_is_the_best_of_the_others(void **state) {
    (void)state;
    for (int32_t n = 1; n <= 100; n++) {
        float *x = new_filled(n, FILL_NORMAL);
        if (n > 4) x[n / 2] = x[n - 1]; /* perhaps a tie */
        vb__best all, others;
        vb__argmax_ref(x, n, &all);
        x[all.id] = -INFINITY;
        vb__argmax_ref(x, n, &others);
        assert_true(all.second == others.value);
        vb__free(x);
    }
}

static void check(const vb__kernels *k, vb__cpu_level level, const float *x, int32_t n) {
    vb__best got, want;
    vb__argmax_ref(x, n, &want);
    k->argmax(x, n, &got);
    if (!same(&got, &want))
        fail_msg("argmax %s n %d: got %x at %d, second %x, finite %d, want %x at %d, second %x, finite %d", vb__cpu_level_name(level), n,
                 vb__bits32(got.value), got.id, vb__bits32(got.second), got.finite, vb__bits32(want.value), want.id,
                 vb__bits32(want.second), want.finite);
}

static void levels_agree(void **state) {
    (void)state;
    say_skipped("argmax");
    for (int32_t n = 1; n <= 300; n++)
        for (int kind = 0; kind < FILLS + 2; kind++) {
            float *x = new_filled(n, kind < FILLS ? (fill)kind : FILL_NORMAL);
            if (kind == FILLS)
                for (int32_t i = 0; i < n; i++) x[i] = (float)rnd_below(3); /* ties */
            if (kind == FILLS + 1)
                for (int32_t i = 0; i < n; i++) x[i] = rnd_below(8) ? -INFINITY : NAN;
            FOR_LEVELS(level) {
                vb__kernels k;
                vb__kernels_init(&k, level);
                check(&k, level, x, n);
            }
            vb__free(x);
        }
}

static void launcher_cuts_rows(void **state) {
    (void)state;
    static const int32_t widths[] = {1, 16384, 16385, 100003};
    enum { ROWS = 5 };
    for (int c = 0; c < 4; c++) {
        int32_t n = widths[c];
        float *x = new_filled((int64_t)ROWS * n, FILL_NORMAL);
        x[n / 2] = x[n - 1] = 100.0f;                                   /* row 0: a tie across parts */
        x[n + n / 3] = NAN;                                             /* row 1 */
        for (int32_t i = 0; i < n; i++) x[2 * (int64_t)n + i] = -5.0f;  /* row 2: all equal */
        x[4 * (int64_t)n - 1] = INFINITY;                               /* row 3 */
        for (vb__cpu_level level = VB_CPU_C; level <= g_best; level++)
            for (int32_t threads = 1; threads <= 3; threads++) {
                vb__cpu_backend be;
                backend_open(&be, level, threads, ROWS);
                vb__best best[ROWS];
                vb__cpu_argmax(&be.base, x, n, ROWS, n, best);
                for (int r = 0; r < ROWS; r++) {
                    vb__best want;
                    vb__argmax_ref(x + (int64_t)r * n, n, &want);
                    assert_true(same(&best[r], &want));
                }
                assert_int_equal(best[0].id, n / 2);
                if (n > 1) assert_true(best[0].second == 100.0f);
                assert_int_equal(best[1].finite, 0);
                assert_int_equal(best[2].id, 0);
                if (n > 1) assert_true(best[2].second == -5.0f);
                assert_int_equal(best[3].finite, 0);
                assert_int_equal(best[4].finite, 1);
                backend_close(&be);
            }
        vb__free(x);
    }
}

static void bench(void) {
    enum { N = 248320 };
    float *x = new_filled(N, FILL_NORMAL);
    vb__best best;
    for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++) {
        vb__cpu_backend be;
        backend_open(&be, level, 2, 16);
        double t, both;
        g_bench_threads = 1;
        MEDIAN_TIME(t, 15, 5, be.k.argmax(x, N, &best));
        g_bench_threads = 2;
        MEDIAN_TIME(both, 15, 5, vb__cpu_argmax(&be.base, x, N, 1, N, &best));
        printf("argmax %-7s n 248320: %.2f us (%.1f GB/s); launcher, 2 threads %.2f us\n", vb__cpu_level_name(level), t * 1e6,
               4e-9 * N / t, both * 1e6);
        backend_close(&be);
    }
    vb__free(x);
}

int main(int argc, char **argv) {
    test_begin();
    if (is_bench(argc, argv)) {
        bench();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_agree),
        cmocka_unit_test(second_is_the_best_of_the_others),
        cmocka_unit_test(launcher_cuts_rows),
    };
    return cmocka_run_group_tests_name("argmax", tests, NULL, NULL);
}
