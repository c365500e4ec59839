/* Shared by the tests of row-wise and delta-net kernels: levels, inputs, comparison of bits, timing. */
#ifndef VB_TESTS_ROWWISE_TEST_H
#define VB_TESTS_ROWWISE_TEST_H
#include "backend/cpu/cpu_backend.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fp_env.h"
#include "base/vmath.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static vb__cpu_level g_best; /* of this CPU */
static uint64_t g_seed = 1;

static inline uint32_t rnd(void) {
    g_seed = g_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(g_seed >> 32);
}
/* About normal, from four uniforms. */
static inline float rnd_normal(void) {
    double s = 0;
    for (int i = 0; i < 4; i++) s += (double)rnd() * 0x1p-32 - 0.5;
    return (float)(s * 1.7320508);
}
static inline int32_t rnd_below(int32_t n) { return (int32_t)(rnd() % (uint32_t)n); }

typedef enum fill { FILL_NORMAL, FILL_WIDE, FILL_DENORMAL, FILL_SPECIAL, FILL_BITS, FILLS } fill;
static inline float rnd_fill(fill kind) {
    static const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, -0x1p-126f, 0x1.fffffep+127f, -0x1p127f, 88.8f,
                                    -104.0f, 20.0f, INFINITY, -INFINITY, NAN, 1e-20f, 3.5f};
    switch (kind) {
    case FILL_NORMAL: return rnd_normal();
    case FILL_WIDE: return ldexpf(rnd_normal(), rnd_below(80) - 40);
    case FILL_DENORMAL: return vb__float32((rnd() & 0x80ffffffu)); /* below 2^-125 */
    case FILL_SPECIAL: return rnd_below(4) ? rnd_normal() : special[rnd_below(16)];
    default: return vb__float32(rnd());
    }
}
static inline void fill_with(float *x, int64_t n, fill kind) {
    for (int64_t i = 0; i < n; i++) x[i] = rnd_fill(kind);
}
static inline float *new_floats(int64_t n) {
    float *p = vb__alloc_aligned(VB_TAG_MISC, (size_t)(n + 1) * sizeof(float));
    if (p == NULL) abort();
    return p;
}
static inline float *new_filled(int64_t n, fill kind) {
    float *p = new_floats(n);
    fill_with(p, n, kind);
    return p;
}
static inline float *copy_of(const float *x, int64_t n) {
    float *p = new_floats(n);
    memcpy(p, x, (size_t)n * sizeof(float));
    return p;
}

/* A NaN is compared as a NaN. */
static inline bool same_bits(float a, float b) { return (a != a && b != b) || vb__bits32(a) == vb__bits32(b); }
static inline void expect_same(const char *what, vb__cpu_level level, const float *got, const float *want, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!same_bits(got[i], want[i]))
            fail_msg("%s, level %s, element %lld of %lld: got %a, want %a", what, vb__cpu_level_name(level), (long long)i,
                     (long long)n, (double)got[i], (double)want[i]);
}

/* The levels above C that this CPU has; `level` is declared by the macro. */
#define FOR_LEVELS(level)                                                                                    \
    for (vb__cpu_level level = VB_CPU_AVX2; level <= g_best && level <= VB_CPU_AVX512; level++)

static inline void say_skipped(const char *op) {
    for (vb__cpu_level l = VB_CPU_AVX2; l <= VB_CPU_AVX512; l++)
        if (l > g_best) printf("%s: level %s skipped, this CPU lacks it\n", op, vb__cpu_level_name(l));
}

/* A backend without the families that these tests do not use. */
static inline void backend_open(vb__cpu_backend *be, vb__cpu_level level, int32_t threads, int32_t max_rows) {
    memset(be, 0, sizeof *be);
    be->level = level;
    be->o = (vb__cpu_backend_options){.level = (int32_t)level, .threads = threads, .activations = 8, .max_rows = max_rows};
    vb__kernels_init(&be->k, level);
    if (vb__pool_create(threads, &be->pool, NULL) != VB_OK || vb__cpu_rowwise_init(be, NULL) != VB_OK ||
        vb__cpu_delta_init(be, NULL) != VB_OK)
        abort();
}
static inline void backend_close(vb__cpu_backend *be) {
    vb__cpu_delta_fini(be);
    vb__cpu_rowwise_fini(be);
    vb__pool_destroy(be->pool);
}

/* Processor time of the calling thread, which a busy machine disturbs least; for several threads the clock. */
static int32_t g_bench_threads = 1;
static inline double bench_now(void) {
    struct timespec t;
    if (g_bench_threads > 1) return vb__now();
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Median of `runs` timings of `calls` calls, in seconds a call. */
#define MEDIAN_TIME(out, runs, calls, statement)                                                             \
    do {                                                                                                     \
        double times_[64];                                                                                   \
        for (int run_ = 0; run_ < (runs); run_++) {                                                          \
            double start_ = bench_now();                                                                      \
            for (int call_ = 0; call_ < (calls); call_++) { statement; }                                     \
            times_[run_] = (bench_now() - start_) / (calls);                                                   \
        }                                                                                                    \
        for (int i_ = 1; i_ < (runs); i_++)                                                                  \
            for (int j_ = i_; j_ > 0 && times_[j_] < times_[j_ - 1]; j_--) {                                 \
                double swap_ = times_[j_];                                                                   \
                times_[j_] = times_[j_ - 1];                                                                 \
                times_[j_ - 1] = swap_;                                                                      \
            }                                                                                                \
        (out) = times_[(runs) / 2];                                                                          \
    } while (0)

static inline void test_begin(void) {
    if (vb__cpu_detect(&g_best, NULL) != VB_OK) abort();
    (void)vb__fp_enter();
}
static inline bool is_bench(int argc, char **argv) { return argc > 1 && strcmp(argv[1], "--bench") == 0; }

#endif
