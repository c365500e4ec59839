/* What the tests of kv_append and attention share: a backend of a level with its attention family alone,
 * random values of several kinds, pages, comparison of bits. */
#ifndef VB_TESTS_KV_CASE_H
#define VB_TESTS_KV_CASE_H
#include "backend/cpu/cpu_backend.h"
#include "backend/ops/attention.h"
#include "backend/ops/kv_append.h"
#include "base/alloc.h"
#include "base/vmath.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct rng {
    uint64_t s;
} rng;
static inline uint32_t rng_u32(rng *r) {
    r->s = r->s * 6364136223846793005u + 1442695040888963407u;
    uint64_t x = r->s;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdu;
    return (uint32_t)(x >> 32);
}
static inline int32_t rng_int(rng *r, int32_t lo, int32_t hi) {
    return lo + (int32_t)(rng_u32(r) % (uint32_t)(hi - lo + 1));
}
static inline float rng_unit(rng *r) {
    return (float)(rng_u32(r) >> 8) * 0x1p-23f - 1.0f;
}

/* NORMAL: about -2..2. WIDE: exponents -40..40. EXTREME: any finite pattern, denormals and zeros among them.
 * SMALL: 2^-70 .. 2^-60, so that products of two underflow. TINY: zero or next to 2^-126, so that a product
 * with p < 1/2 does. BITS: any pattern, also infinities and NaN. */
typedef enum kind { NORMAL, WIDE, EXTREME, SMALL, TINY, BITS, KINDS } kind;
static inline float rng_value(rng *r, kind k) {
    float x = rng_unit(r);
    switch (k) {
    case NORMAL: return x + rng_unit(r);
    case WIDE: return x * vb__float32((uint32_t)(rng_int(r, -40, 40) + 127) << 23);
    case SMALL: return x * vb__float32((uint32_t)(rng_int(r, -70, -60) + 127) << 23);
    case TINY:
        if (rng_u32(r) & 1) return 0.0f;
        return vb__float32((rng_u32(r) & 0x807f0000u) | 0x00800000u);
    case EXTREME:
        if (rng_u32(r) % 16 == 0) return rng_u32(r) & 1 ? 0.0f : -0.0f;
        for (;;) {
            uint32_t u = rng_u32(r);
            if (rng_u32(r) % 8 == 0) u &= 0x807fffffu; /* denormal */
            if ((u & 0x7f800000u) != 0x7f800000u) return vb__float32(u);
        }
    default: return vb__float32(rng_u32(r) % 8 == 0 ? rng_u32(r) | 0x7f800000u : rng_u32(r));
    }
}
static inline void rng_fill(rng *r, float *x, int64_t n, kind k) {
    for (int64_t i = 0; i < n; i++) x[i] = rng_value(r, k);
}

/* A backend that has only pool, kernels and the attention family. */
static inline vb__cpu_backend *case_backend(vb__cpu_level level, int32_t threads, int32_t rows, int32_t heads,
                                            int32_t dim) {
    vb__cpu_backend *be = calloc(1, sizeof *be);
    be->level = level;
    be->o = (vb__cpu_backend_options){.level = (int32_t)level,
                                      .threads = threads,
                                      .activations = 8,
                                      .max_rows = rows,
                                      .max_heads = heads,
                                      .max_head_dim = dim};
    vb__kernels_init(&be->k, level);
    vb_error err;
    if (vb__pool_create(threads, &be->pool, &err) != VB_OK || vb__cpu_attention_init(be, &err) != VB_OK) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
    return be;
}
static inline void case_backend_free(vb__cpu_backend *be) {
    vb__cpu_attention_fini(be);
    vb__pool_destroy(be->pool);
    free(be);
}

static inline bool same_bits(const float *a, const float *b, int64_t n, int64_t *at) {
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&a[i], &b[i], 4) == 0 || (a[i] != a[i] && b[i] != b[i])) continue;
        *at = i;
        return false;
    }
    return true;
}

#endif
