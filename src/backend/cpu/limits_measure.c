#include "backend/cpu/limits_measure.h"
#include "base/alloc.h"
#include "base/clock.h"
#include <stdatomic.h>
#include <string.h>

/* ---- memory --------------------------------------------------------------------------------------------- */

enum { READ_CHUNK = 256 << 10, READ_PASSES = 4 };

typedef struct read_job {
    uint8_t *p;
    vb__read_loop_fn *fn;
    _Atomic uint64_t sink;
} read_job;

static void touch_chunks(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    read_job *j = ctx;
    (void)thread;
    memset(j->p + (int64_t)begin * READ_CHUNK, 1, (size_t)(end - begin) * READ_CHUNK);
}
static void read_chunks(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    read_job *j = ctx;
    (void)thread;
    j->sink += j->fn(j->p + (int64_t)begin * READ_CHUNK, (int64_t)(end - begin) * READ_CHUNK);
}

double vb__read_bandwidth(vb__pool *pool) {
    int32_t chunks = 4096;
    vb__cpu_level level;
    if (vb__cpu_detect(&level, NULL) != VB_OK) return 0.0;
    read_job j = {.fn = level >= VB_CPU_AVX512 ? vb__read_loop_avx512
                        : level >= VB_CPU_AVX2 ? vb__read_loop_avx2
                                               : vb__read_loop_ref};
    while ((j.p = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)chunks * READ_CHUNK)) == NULL)
        if ((chunks /= 2) < 64) return 0.0;
    vb__parallel_for(pool, chunks, 4, touch_chunks, &j);
    double best = 0.0;
    for (int i = 0; i < READ_PASSES; i++) {
        double t = vb__now();
        vb__parallel_for(pool, chunks, 1, read_chunks, &j);
        t = vb__now() - t;
        double gb = (double)chunks * READ_CHUNK / t / 1e9;
        if (gb > best) best = gb;
    }
    vb__free(j.p);
    return best;
}

/* ---- arithmetic ----------------------------------------------------------------------------------------- */

typedef struct contract_job {
    vb__contract_loop_fn *fn;
    int32_t iterations;
    _Atomic int64_t macs;
} contract_job;

static void contract_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    contract_job *j = ctx;
    (void)thread;
    for (int32_t i = begin; i < end; i++) j->macs += j->fn(j->iterations);
}

vb__contract_loop_fn *vb__contract_loop(vb__cpu_level level) {
    static vb__contract_loop_fn *const loops[VB_CPU_LEVELS] = {vb__contract_loop_ref, vb__contract_loop_avx2,
                                                               vb__contract_loop_avx512, vb__contract_loop_amx};
    return level == VB_CPU_AVX2 && vb__cpu_vnni() ? vb__contract_loop_avxvnni : loops[level];
}

double vb__contract_gops(vb__cpu_level level, vb__pool *pool) {
    contract_job j = {.fn = vb__contract_loop(level), .iterations = 1000};
    int32_t items = 16 * vb__pool_threads(pool);
    double best = 0.0;
    for (int i = 0; i < 5; i++) {
        j.macs = 0;
        double t = vb__now();
        vb__parallel_for(pool, items, 1, contract_items, &j);
        t = vb__now() - t;
        if (t < 0.004) j.iterations *= 4;
        double gops = (double)j.macs / t / 1e9;
        if (gops > best) best = gops;
    }
    return best;
}
