/* conv: every level against the reference, rows in one call against one at a time, replay, tail, what goes
 * into the tape. */
#include "rowwise_test.h"

typedef struct shape {
    int32_t n, taps, rows, certain, replay, before; /* before > 0: a later piece of rows, without tail */
    bool norm;
    fill kind;
} shape;

static void one_case(shape c) {
    int64_t ms = c.n + rnd_below(5), outs = c.n + rnd_below(5), ts = c.n + rnd_below(4), tape = c.n + rnd_below(9);
    if (c.n % 64 == 0 && (rnd() & 1)) tape = c.n + 16; /* whole lines: stores past the caches */
    int64_t raw = c.rows + c.before + c.certain;
    float *m = new_filled(raw * ms, c.kind), *w = new_filled((int64_t)c.n * c.taps, c.kind);
    float *tail = new_filled((c.taps - 1) * ts, c.kind), *in = new_filled(c.replay * tape, c.kind);
    float *out = new_filled(c.rows * outs, FILL_NORMAL);
    int32_t tape_from = rnd_below(c.rows + 1);
    int64_t tape_floats = (c.rows - tape_from) * tape;
    float *want_tape = new_filled(tape_floats, FILL_NORMAL), *tape_out = new_floats(tape_floats);
    vb__conv_head a = {.n = c.n, .taps = c.taps, .rows = c.rows, .certain = c.certain, .replay = c.replay, .before = c.before,
                       .m = m + c.before * ms, .ms = ms, .w = w, .outs = outs, .tail_stride = ts, .tape_in = in,
                       .tape_stride = tape, .keep = c.before == 0, .norm = c.norm, .scale = c.n & 1 ? 1.0f : 0.17f,
                       .tape_from = tape_from, .ask = rnd() & 1 ? c.n : 0};
    float *want = copy_of(out, c.rows * outs), *want_tail = copy_of(tail, (c.taps - 1) * ts);
    a.out = want;
    a.tail = want_tail;
    memcpy(tape_out, want_tape, (size_t)tape_floats * sizeof(float));
    if (tape_floats > 0) a.tape_out = want_tape;
    vb__conv_ref(&a);
    for (int32_t t = tape_from; t < c.rows; t++)
        assert_memory_equal(want_tape + (t - tape_from) * tape, a.m + t * ms, (size_t)c.n * sizeof(float));
    if (c.before > 0) expect_same("tail without keep", VB_CPU_C, want_tail, tail, (c.taps - 1) * ts);
    FOR_LEVELS(level) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        a.out = copy_of(out, c.rows * outs);
        a.tail = copy_of(tail, (c.taps - 1) * ts);
        if (a.ask != 0) a.ask_out = a.out;
        float *tape_got = copy_of(tape_out, tape_floats);
        if (tape_floats > 0) a.tape_out = tape_got;
        k.conv(&a);
        assert_memory_equal(tape_got, want_tape, (size_t)tape_floats * sizeof(float)); /* and nothing between its rows */
        vb__free(tape_got);
        expect_same("conv out", level, a.out, want, c.rows * outs);
        expect_same("conv tail", level, a.tail, want_tail, (c.taps - 1) * ts);
        vb__free(a.out);
        vb__free(a.tail);
    }
    float *all[] = {m, w, tail, in, out, want, want_tail, want_tape, tape_out};
    for (int i = 0; i < 9; i++) vb__free(all[i]);
}

static void levels_return_the_same_bits(void **state) {
    (void)state;
    say_skipped("conv");
    for (int32_t n = 1; n <= 140; n++)
        for (int32_t taps = 2; taps <= 4; taps++)
            for (fill kind = 0; kind < FILLS; kind++) {
                int32_t rows = rnd_below(20);
                one_case((shape){n, taps, rows, rnd_below(rows + 1), rnd_below(18), rnd() & 1 ? 3 + rnd_below(4) : 0, rnd() & 1, kind});
            }
    one_case((shape){512, 8, 9, 4, 2, 0, true, FILL_NORMAL});
    one_case((shape){256, 4, 70, 70, 0, 0, true, FILL_NORMAL});
    one_case((shape){24, 5, 3, 0, 1, 0, false, FILL_WIDE});
}

/* The reference itself: a row's history, written out a second time from the raw rows; and chunks of any size. */
static void rows_follow_the_definition_in_any_chunks(void **state) {
    (void)state;
    enum { N = 32, TAPS = 4, ROWS = 23 };
    float *m = new_filled(ROWS * N, FILL_NORMAL), *w = new_filled(N * TAPS, FILL_NORMAL), *want = new_floats(ROWS * N);
    for (int t = 0; t < ROWS; t++) {
        double sum = 0;
        float y[N];
        for (int i = 0; i < N; i++) {
            float s = 0;
            for (int j = 0; j < TAPS; j++) s = fmaf(w[i * TAPS + j], t - 3 + j < 0 ? 0.0f : m[(t - 3 + j) * N + i], s);
            y[i] = vb__siluf(s);
            sum += (double)y[i] * y[i];
        }
        for (int i = 0; i < N; i++) want[t * N + i] = (float)(y[i] / sqrt(sum + 1e-6) * 0.25);
    }
    for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        float first[ROWS * N];
        for (int chunk = 1; chunk <= ROWS; chunk++) {
            float tail[(TAPS - 1) * N] = {0}, out[ROWS * N];
            for (int t = 0; t < ROWS; t += chunk) {
                int rows = ROWS - t < chunk ? ROWS - t : chunk;
                k.conv(&(vb__conv_head){.n = N, .taps = TAPS, .rows = rows, .certain = rows, .m = m + t * N, .ms = N, .w = w,
                                        .out = out + t * N, .outs = N, .tail = tail, .tail_stride = N, .keep = true, .norm = true,
                                        .scale = 0.25f});
            }
            if (chunk == 1) memcpy(first, out, sizeof out);
            assert_memory_equal(out, first, sizeof out);
            assert_memory_equal(tail, m + (ROWS - 3) * N, sizeof tail);
        }
        for (int i = 0; i < ROWS * N; i++) assert_true(fabsf(first[i] - want[i]) < 1e-6f);
    }
    vb__free(m);
    vb__free(w);
    vb__free(want);
}

static void bench(void) {
    enum { NK = 16, N = 128, HEADS = 48, CH = HEADS * N, ROWS = 512 };
    float *m = new_filled(ROWS * CH, FILL_NORMAL), *w = new_filled(CH * 4, FILL_NORMAL), *out = new_floats(ROWS * CH),
          *tail = new_floats(3 * CH);
    static const int32_t rows[] = {1, 16, 512};
    for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++)
        for (int32_t threads = 1; threads <= 2; threads++) {
            vb__cpu_backend be;
            backend_open(&be, level, threads, ROWS);
            g_bench_threads = threads;
            printf("conv %-7s 6144 channels, %d threads:", vb__cpu_level_name(level), threads);
            for (int r = 0; r < 3; r++) {
                vb__seq_rows s = {.rows = rows[r], .certain = rows[r], .conv_tail = tail};
                vb__conv_args a = {.lay = {NK, NK, N, N, 4, 0, 0, 0, 0, false}, .m = m, .ms = CH, .w = w, .out = out, .outs = CH,
                                   .seqs = &s, .n_seqs = 1};
                double t;
                MEDIAN_TIME(t, 9, rows[r] > 16 ? 1 : 20, vb__cpu_conv(&be.base, &a));
                printf(" %d rows %.2f us", rows[r], t * 1e6);
            }
            printf("\n");
            backend_close(&be);
        }
    vb__free(m);
    vb__free(w);
    vb__free(out);
    vb__free(tail);
}

int main(int argc, char **argv) {
    test_begin();
    if (is_bench(argc, argv)) {
        bench();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_return_the_same_bits),
        cmocka_unit_test(rows_follow_the_definition_in_any_chunks),
    };
    return cmocka_run_group_tests_name("conv", tests, NULL, NULL);
}
