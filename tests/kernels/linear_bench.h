/* Benchmarks of the linear layers on the geometries of Qwen3.5-0.8B and 4B: decode, a verify block and prefill,
 * against limits measured in the same run. Each figure is the median of interleaved rounds over a working set that
 * caches do not hold. */
#ifndef VB_TESTS_LINEAR_BENCH_H
#define VB_TESTS_LINEAR_BENCH_H
#include "backend/cpu/limits_measure.h"
#include "linear_support.h"

typedef struct bench_options {
    int level, threads, act, bits, group, rounds, mb, big;
    int k, n, repeat; /* k, n: one product of that size instead of a model's layer; repeat: passes over the set a round */
    int rows[12], n_rows;
} bench_options;

static inline int by_value(const void *a, const void *b) {
    double d = *(const double *)a - *(const double *)b;
    return d < 0 ? -1 : d > 0;
}

/* Weights of one layer: calls of (k, up to 4 products n), from the model's geometry. */
typedef struct bench_call {
    int k, n[4];
} bench_call;
static const bench_call small_layer[] = {{1024, {6144, 2048, 16, 16}}, {2048, {1024}}, {1024, {3584, 3584}}, {3584, {1024}}};
static const bench_call large_layer[] = {{2560, {8192, 4096, 32, 32}}, {4096, {2560}}, {2560, {9216, 9216}}, {9216, {2560}}};

/* With one thread, CPU time of the thread: a busy machine then disturbs less. */
static int bench_threads;
static inline double bench_now(void) {
    struct timespec t;
    (void)clock_gettime(bench_threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
static inline double bench_read(vb__pool *pool) {
    enum { BYTES = 1 << 29 };
    if (bench_threads != 1) return vb__read_bandwidth(pool);
    static uint8_t *p;
    if (p == NULL) p = memset(vb__alloc_aligned(VB_TAG_SCRATCH, BYTES), 1, BYTES);
    double t = bench_now();
    volatile uint64_t sink = best_level >= VB_CPU_AVX512 ? vb__read_loop_avx512(p, BYTES) : vb__read_loop_avx2(p, BYTES);
    (void)sink;
    return BYTES / (bench_now() - t) / 1e9;
}
static inline double bench_contract(vb__cpu_level level, vb__pool *pool) {
    if (bench_threads != 1) return vb__contract_gops(level, pool);
    double t = bench_now();
    int64_t macs = vb__contract_loop(level)(100000);
    return (double)macs / (bench_now() - t) / 1e9;
}

static int bench(int argc, char **argv, int levels_here) {
    bench_options o = {.level = levels_here - 1, .threads = vb__cpu_count(), .act = 8, .bits = 4, .group = 64, .rounds = 5,
                       .mb = 1200, .repeat = 1};
    for (int i = 2; i < argc; i++) {
        char *eq = strchr(argv[i], '=');
        int v = eq ? atoi(eq + 1) : 0;
        if (!strncmp(argv[i], "level=", 6))
            for (int l = 0; l < levels_here; l++)
                if (!strcmp(eq + 1, vb__cpu_level_name((vb__cpu_level)l))) o.level = l;
        if (!strncmp(argv[i], "threads=", 8)) o.threads = v;
        if (!strncmp(argv[i], "act=", 4)) o.act = v;
        if (!strncmp(argv[i], "bits=", 5)) o.bits = v;
        if (!strncmp(argv[i], "group=", 6)) o.group = v;
        if (!strncmp(argv[i], "rounds=", 7)) o.rounds = v;
        if (!strncmp(argv[i], "mb=", 3)) o.mb = v;
        if (!strncmp(argv[i], "4b=", 3)) o.big = v;
        if (!strncmp(argv[i], "repeat=", 7)) o.repeat = v;
        if (!strncmp(argv[i], "k=", 2)) o.k = v;
        if (!strncmp(argv[i], "n=", 2)) o.n = v;
        if (!strncmp(argv[i], "rows=", 5) && o.n_rows < 12) o.rows[o.n_rows++] = v;
    }
    if (o.n_rows == 0) {
        static const int standard[] = {1, 2, 4, 8, 16, 512};
        o.n_rows = 6;
        memcpy(o.rows, standard, sizeof standard);
    }
    bench_threads = o.threads;
    const bench_call one_call[4] = {{o.k, {o.n}}}, *layer = o.k > 0 ? one_call : o.big ? large_layer : small_layer;
    int max_k = o.k > 0 ? o.k : o.big ? 9216 : 3584, max_n = o.n > 9216 ? o.n : 9216;
    vb__cpu_backend *be = backend(o.level, o.threads, o.act, 512, max_k);
    /* One layer of random codes, packed again and again until the set is large enough. */
    enum { MOST = 400 };
    static vb__weight *w[MOST][4][4];
    int64_t bytes = 0, macs = 0;
    int layers = 0;
    vb__matrix m[4][4];
    for (int c = 0; c < 4; c++)
        for (int i = 0; i < 4 && layer[c].n[i]; i++)
            m[c][i] = o.bits == 16 ? plain_matrix(VB_MATRIX_BF16, layer[c].n[i], layer[c].k, 0)
                                   : affine_matrix(layer[c].n[i], layer[c].k, o.bits, o.group, VB_SCALE_BF16, 0);
    double pack = vb__now();
    for (; layers < MOST && bytes < (int64_t)o.mb << 20; layers++)
        for (int c = 0; c < 4; c++)
            for (int i = 0; i < 4 && layer[c].n[i]; i++) {
                assert_int_equal(vb__cpu_weight_create(&be->base, &m[c][i], &w[layers][c][i], NULL), VB_OK);
                bytes += w[layers][c][i]->bytes;
                macs += (int64_t)layer[c].n[i] * layer[c].k;
            }
    pack = vb__now() - pack;
    float *x = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)max_k * 512 * 4);
    float *y[4];
    for (int i = 0; i < 4; i++) y[i] = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)max_n * 512 * 4);
    for (int i = 0; i < max_k * 512; i++) x[i] = value(0);
    double read = 0, gops = 0, *times[12];
    for (int i = 0; i < o.n_rows; i++) times[i] = calloc((size_t)o.rounds, sizeof(double));
    int parts[12]; /* a fraction of the layers is enough for many rows */
    for (int i = 0; i < o.n_rows; i++) parts[i] = o.rows[i] <= 16 ? layers : layers > 2 ? 2 : layers;
    for (int round = 0; round < o.rounds; round++) {
        double v = bench_read(be->pool);
        read = v > read ? v : read;
        v = bench_contract(be->level, be->pool);
        gops = v > gops ? v : gops;
        for (int i = 0; i < o.n_rows; i++) {
            double t = bench_now();
            for (int pass = 0; pass < o.repeat * parts[i]; pass++)
                for (int c = 0, l = pass % parts[i]; c < 4; c++) {
                    vb__linear_out out[4];
                    int n = 0;
                    for (; n < 4 && layer[c].n[n]; n++)
                        out[n] = (vb__linear_out){w[l][c][n], NULL, NULL, 0, y[n], layer[c].n[n]};
                    vb__cpu_linear(&be->base, x, layer[c].k, o.rows[i], out, n);
                }
            times[i][round] = (bench_now() - t) / (o.repeat * parts[i]);
        }
    }
    double per_layer = (double)macs / layers, layer_bytes = (double)bytes / layers;
    printf("level %s threads %d activations %d bits %d group %d geometry %s: %d layers, %.0f MB, packed at %.2f GB/s\n",
           vb__cpu_level_name(be->level), o.threads, o.act, o.bits, o.group, o.big ? "4B" : "0.8B", layers,
           (double)bytes / 1e6, (double)bytes / pack / 1e9);
    printf("read %.1f GB/s, contract %.0f GMAC/s\n", read, gops);
    double one = layer_bytes / read / 1e9;
    for (int i = 0; i < o.n_rows; i++) {
        qsort(times[i], (size_t)o.rounds, sizeof(double), by_value);
        double t = times[i][o.rounds / 2], compute = o.rows[i] * per_layer / gops / 1e9;
        if (o.rows[i] == 1) one = t;
        printf("rows %3d: %9.1f us/layer (best %9.1f)  %5.1f GB/s = %3.0f%% of read  %6.0f GMAC/s = %3.0f%% of contract  ratio "
               "%5.2f  factor %.2f\n",
               o.rows[i], t * 1e6, times[i][0] * 1e6, layer_bytes / t / 1e9, layer_bytes / t / 1e7 / read,
               o.rows[i] * per_layer / t / 1e9, 100 * compute / t, t / one, t / (one > compute ? one : compute));
    }
    return 0;
}
#endif
