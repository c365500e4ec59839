/* route and combine: every level against the reference, ties and NaN by hand; launchers at every thread
 * count. */
#include "rowwise_test.h"

static void levels_route_alike(void **state) {
    (void)state;
    say_skipped("route");
    for (int32_t n = 1; n <= 300; n += n < 70 ? 1 : 19)
        for (fill kind = 0; kind < FILLS; kind++)
            for (int32_t some = 0; some < 3; some++) {
                int32_t k = some == 0 ? 1 : some == 1 ? n : 1 + rnd_below(n < 9 ? n : 9);
                int32_t ids[2][300];
                float *x = new_filled(n, kind), *p = new_floats(n), *want = new_floats(k), *w = new_floats(k);
                if (rnd_below(3) == 0)
                    for (int32_t i = 0; i < n; i++) x[i] = x[rnd_below(i + 1)]; /* ties */
                vb__route_ref(ids[0], want, p, x, n, k);
                for (int32_t i = 0; i < k; i++) assert_in_range(ids[0][i], 0, n - 1);
                FOR_LEVELS(level) {
                    vb__kernels ks;
                    vb__kernels_init(&ks, level);
                    float *own = copy_of(x, n);
                    ks.route(ids[1], w, own, own, n, k);
                    expect_same("route", level, w, want, k);
                    assert_memory_equal(ids[1], ids[0], (size_t)k * sizeof(int32_t));
                    vb__free(own);
                }
                vb__free(x);
                vb__free(p);
                vb__free(want);
                vb__free(w);
            }
}

static void choice_by_hand(void **state) {
    (void)state;
    for (vb__cpu_level level = VB_CPU_C; level <= g_best; level++) {
        vb__kernels ks;
        vb__kernels_init(&ks, level);
        int32_t ids[4];
        float w[4];
        float tied[6] = {1, 3, 2, 3, 2, -5};
        ks.route(ids, w, tied, tied, 6, 4);
        assert_true(ids[0] == 1 && ids[1] == 3 && ids[2] == 2 && ids[3] == 4);
        assert_true(w[0] == w[1] && w[2] == w[3] && w[0] > w[2]);
        float sum = ((w[0] + w[1]) + w[2]) + w[3];
        assert_true(fabsf(sum - 1.0f) < 1e-6f);
        float broken[4] = {1, NAN, 2, 3};
        ks.route(ids, w, broken, broken, 4, 2); /* the softmax is NaN everywhere */
        assert_true(ids[0] == 0 && ids[1] == 1 && w[0] != w[0]);
        float far[3] = {-INFINITY, 0, -1000};
        ks.route(ids, w, far, far, 3, 3);
        assert_true(ids[0] == 1 && ids[1] == 0 && ids[2] == 2 && w[0] == 1 && w[1] == 0);
    }
}

static void levels_combine_alike(void **state) {
    (void)state;
    for (int32_t n = 0; n <= 200; n++)
        for (fill kind = 0; kind < FILLS; kind++) {
            enum { SLOTS = 5 };
            int64_t es = n + 3;
            int32_t k = 1 + rnd_below(9), slot[9];
            for (int32_t i = 0; i < k; i++) slot[i] = rnd_below(SLOTS);
            float *e = new_filled(SLOTS * es, kind), *w = new_filled(k, FILL_NORMAL),
                  *s = new_filled(n, kind), *r = new_filled(n, kind), *want = new_floats(n + 1),
                  *y = new_floats(n + 1), gate = rnd_fill(kind);
            want[n] = y[n] = 5.0f;
            vb__combine_ref(want, e, es, slot, w, k, s, gate, r, n);
            FOR_LEVELS(level) {
                vb__kernels ks;
                vb__kernels_init(&ks, level);
                memcpy(y, r, (size_t)n * sizeof *y);
                ks.combine(y, e, es, slot, w, k, s, gate, y, n);
                expect_same("combine", level, y, want, n + 1);
            }
            vb__free(e);
            vb__free(w);
            vb__free(s);
            vb__free(r);
            vb__free(want);
            vb__free(y);
        }
}

static void launchers_give_the_same_at_every_thread_count(void **state) {
    (void)state;
    enum { ROWS = 13, E = 40, K = 3, N = 4100 };
    float *x = new_filled(ROWS * E, FILL_NORMAL), *own = new_floats(ROWS * E),
          *out = new_filled((int64_t)ROWS * K * N, FILL_NORMAL), *shared = new_filled(ROWS * N, FILL_NORMAL),
          *gate = new_filled(ROWS, FILL_NORMAL), *res = new_filled(ROWS * N, FILL_NORMAL),
          *want = new_floats(N), *y = new_floats(ROWS * N), wr[ROWS * K], w1[K], p[E];
    int32_t ids[ROWS * K], id1[K], slot[ROWS * K];
    for (int32_t i = 0; i < ROWS * K; i++) slot[i] = (i * 7) % (ROWS * K);
    for (vb__cpu_level level = VB_CPU_C; level <= g_best; level++)
        for (int32_t threads = 1; threads <= 3; threads++) {
            vb__cpu_backend be;
            backend_open(&be, level, threads, ROWS);
            memcpy(own, x, ROWS * E * sizeof *x);
            vb__cpu_route(&be.base, own, E, ROWS, E, K, ids, wr);
            const vb__combine_args a = {.y = y,
                                        .ys = N,
                                        .experts = out,
                                        .es = N,
                                        .slot = slot,
                                        .w = wr,
                                        .shared = shared,
                                        .ss = N,
                                        .gate = gate,
                                        .residual = res,
                                        .rs = N,
                                        .rows = ROWS,
                                        .n = N,
                                        .used = K};
            vb__cpu_combine(&be.base, &a);
            for (int32_t r = 0; r < ROWS; r++) {
                vb__route_ref(id1, w1, p, x + r * E, E, K);
                assert_memory_equal(ids + r * K, id1, sizeof id1);
                expect_same("route launcher", level, wr + r * K, w1, K);
                vb__combine_ref(want, out, N, slot + r * K, w1, K, shared + r * N, gate[r], res + r * N, N);
                expect_same("combine launcher", level, y + r * N, want, N);
            }
            backend_close(&be);
        }
    vb__free(x);
    vb__free(own);
    vb__free(out);
    vb__free(shared);
    vb__free(gate);
    vb__free(res);
    vb__free(want);
    vb__free(y);
}

static void bench(void) {
    enum { E = 256, K = 8, N = 2048 };
    float *x = new_filled(E, FILL_NORMAL), *own = new_floats(E), *out = new_filled(K * N, FILL_NORMAL),
          *y = new_filled(N, FILL_NORMAL), w[K];
    int32_t ids[K], slot[K] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        double t[2];
        MEDIAN_TIME(t[0], 15, 50, k.route(ids, w, own, x, E, K));
        MEDIAN_TIME(t[1], 15, 50, k.combine(y, out, N, slot, w, K, y, 1.0f, y, N));
        printf("%-7s route 8 of 256: %.3f us; combine 8 x 2048: %.3f us\n", vb__cpu_level_name(level),
               t[0] * 1e6, t[1] * 1e6);
    }
    vb__free(x);
    vb__free(own);
    vb__free(out);
    vb__free(y);
}

int main(int argc, char **argv) {
    test_begin();
    if (is_bench(argc, argv)) {
        bench();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_route_alike),
        cmocka_unit_test(choice_by_hand),
        cmocka_unit_test(levels_combine_alike),
        cmocka_unit_test(launchers_give_the_same_at_every_thread_count),
    };
    return cmocka_run_group_tests_name("route", tests, NULL, NULL);
}
