/* What the tests of the linear layers share: a backend of one level without its other launchers, random matrices,
 * and oracles that compute the contract from the file's bytes, without packing, quantised layouts or kernels. */
#ifndef VB_TESTS_LINEAR_SUPPORT_H
#define VB_TESTS_LINEAR_SUPPORT_H
#include "backend/cpu/cpu_backend.h"
#include "base/alloc.h"
#include "base/bf16.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fp_env.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static uint64_t rng_state = 0x9e3779b97f4a7c15u;
static inline uint64_t rng(void) {
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return rng_state;
}
static inline float uniform(void) { return (float)((double)(rng() >> 11) * 0x1p-53 * 2.0 - 1.0); }
static inline float from_bits(uint32_t u) {
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}
static inline uint32_t to_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}
/* kind 0: ordinary; 1: many magnitudes; 2: any bits (NaN, Inf, denormals); 3: tiny, around 2^-64 and denormal */
static inline float value(int kind) {
    if (kind == 1) return ldexpf(uniform(), (int)(rng() % 60) - 30);
    if (kind == 2) return from_bits((uint32_t)rng());
    if (kind == 3) return ldexpf(uniform(), -63 - (int)(rng() % 4) * 22);
    return uniform() * (rng() % 50 == 0 ? 20.0f : 1.0f);
}

static vb__cpu_level best_level;

/* Levels present, and not above VERBATIM_CPU; prints the others as skipped, once. */
static inline int levels(void) {
    vb_error err;
    if (vb__cpu_select(&best_level, &err) != VB_OK) exit(77);
    printf("level avx2 with%s AVX-VNNI\n", vb__cpu_vnni() ? "" : "out");
    for (int l = (int)best_level + 1; l < VB_CPU_LEVELS; l++)
        printf("skipped: level %s (not asked for, or not on this CPU)\n", vb__cpu_level_name((vb__cpu_level)l));
    return (int)best_level + 1;
}

static inline vb__cpu_backend *backend(int level, int threads, int activations, int max_rows, int max_k) {
    vb__cpu_backend *be = vb__calloc(VB_TAG_ENGINE, 1, sizeof *be);
    assert_non_null(be);
    be->level = (vb__cpu_level)level;
    be->o = (vb__cpu_backend_options){.level = level, .threads = threads, .activations = activations,
                                      .max_rows = max_rows, .max_k = max_k};
    vb__kernels_init(&be->k, be->level);
    assert_int_equal(vb__pool_create(threads, &be->pool, NULL), VB_OK);
    assert_int_equal(vb__cpu_linear_init(be, NULL), VB_OK);
    return be;
}
static inline void backend_free(vb__cpu_backend *be) {
    vb__cpu_linear_fini(be);
    vb__pool_destroy(be->pool);
    vb__free(be);
}

/* ---- matrices ------------------------------------------------------------------------------------------ */

static inline void matrix_free(vb__matrix *m) {
    free((void *)(uintptr_t)m->data);
    free((void *)(uintptr_t)m->scales);
    free((void *)(uintptr_t)m->biases);
    *m = (vb__matrix){0};
}

static inline void *random_scales(int64_t count, vb__scale_kind kind, int extreme) {
    size_t size = kind == VB_SCALE_F32 ? 4 : 2;
    uint8_t *p = malloc((size_t)count * size);
    for (int64_t i = 0; i < count; i++) {
        float f = uniform() * 0.05f;
        uint32_t u = to_bits(f);
        uint16_t h = vb__to_bf16(f);
        if (kind == VB_SCALE_F16) h = (uint16_t)(rng() & 0x8fff) | (uint16_t)((8 + rng() % 7) << 10 & 0x7000);
        if (extreme && rng() % 8 == 0) {
            u = (uint32_t)rng();
            h = (uint16_t)rng();
        }
        memcpy(p + (size_t)i * size, size == 4 ? (void *)&u : (void *)&h, size);
    }
    return p;
}

static inline vb__matrix affine_matrix(int n, int k, int bits, int group, vb__scale_kind kind, int extreme) {
    size_t bytes = (size_t)n * (size_t)k / 8 * (size_t)bits;
    uint8_t *d = malloc(bytes + 8);
    for (size_t i = 0; i < bytes; i++) d[i] = (uint8_t)(rng() >> 24);
    if (extreme == 2) memset(d, 0xff, bytes);
    int64_t groups = (int64_t)n * (k / group);
    return (vb__matrix){.kind = VB_MATRIX_AFFINE, .n = n, .k = k, .data = d, .bits = bits, .group = group,
                        .scale_kind = kind, .scales = random_scales(groups, kind, extreme),
                        .biases = random_scales(groups, kind, extreme), .name = "test.weight"};
}

static inline vb__matrix plain_matrix(vb__matrix_kind kind, int n, int k, int values) {
    size_t size = kind == VB_MATRIX_F32 ? 4 : 2, count = (size_t)n * (size_t)k;
    uint8_t *d = malloc(count * size);
    for (size_t i = 0; i < count; i++) {
        float f = value(values);
        uint16_t h = values == 2 ? (uint16_t)rng() : vb__to_bf16(f);
        if (kind == VB_MATRIX_F16) h = (uint16_t)rng();
        memcpy(d + i * size, size == 4 ? (void *)&f : (void *)&h, size);
    }
    return (vb__matrix){.kind = kind, .n = n, .k = k, .data = d, .name = "test.weight"};
}

/* ---- oracles --------------------------------------------------------------------------------------------- */

static inline float half_value(uint16_t h) {
    int e = h >> 10 & 31, m = h & 1023;
    if (e == 31) return m ? NAN : (h & 0x8000 ? -INFINITY : INFINITY);
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return (float)(h & 0x8000 ? -v : v);
}
static inline float scale_value(const void *p, int64_t i, vb__scale_kind kind) {
    uint16_t h;
    float f;
    if (kind == VB_SCALE_F32) {
        memcpy(&f, (const uint8_t *)p + 4 * i, 4);
        return f;
    }
    memcpy(&h, (const uint8_t *)p + 2 * i, 2);
    return kind == VB_SCALE_BF16 ? vb__from_bf16(h) : half_value(h);
}
static inline int code_value(const vb__matrix *m, int o, int k) {
    const uint8_t *d = m->data;
    int v = 0;
    for (int b = 0; b < m->bits; b++) {
        int64_t bit = ((int64_t)o * m->k + k) * m->bits + b;
        v |= (d[bit / 8] >> bit % 8 & 1) << b;
    }
    return v;
}

/* One activation group by the contract's words. */
static inline float oracle_quantise(const float *x, int width, int activations, int *a) {
    float limit = activations == 16 ? 32512.0f : 127.0f, amax = 0;
    int bad = 0;
    for (int i = 0; i < width; i++) {
        if (!isfinite(x[i])) bad = 1;
        float v = fabsf(x[i]);
        if (v > amax) amax = v;
        a[i] = 0;
    }
    if (bad) return NAN;
    if (amax < 0x1p-64f) return 0.0f;
    float d = amax / limit, id = limit / amax;
    for (int i = 0; i < width; i++) a[i] = (int)nearbyintf(x[i] * id);
    return d;
}

/* y (rows, n) of a quantised matrix, before bias and residual. */
static inline void oracle_q(const vb__matrix *m, const float *x, int64_t xs, int rows, int activations, float *y) {
    int group = m->group, width = group > 64 ? 64 : group < 32 ? 32 : group, seg = group < width ? group : width;
    int *a = malloc((size_t)m->k * sizeof *a), *code = malloc((size_t)m->n * (size_t)m->k * sizeof *code);
    float *d = malloc((size_t)m->k * sizeof *d);
    for (int o = 0; o < m->n; o++)
        for (int k = 0; k < m->k; k++) code[(int64_t)o * m->k + k] = code_value(m, o, k);
    for (int r = 0; r < rows; r++) {
        for (int k = 0; k < m->k; k += width) d[k] = oracle_quantise(x + r * xs + k, width, activations, a + k);
        for (int o = 0; o < m->n; o++) {
            float total = 0, acc = 0;
            for (int k = 0; k < m->k; k += seg) {
                if (k % 512 == 0) {
                    if (k == 512) total = acc;
                    else if (k > 512) total = total + acc;
                    acc = 0.0f;
                }
                int64_t dot = 0, sum = 0;
                for (int i = k; i < k + seg; i++) {
                    dot += code[(int64_t)o * m->k + i] * a[i];
                    sum += a[i];
                }
                int64_t g = (int64_t)o * (m->k / group) + k / group;
                float dk = d[k / width * width];
                acc = fmaf((float)dot, scale_value(m->scales, g, m->scale_kind) * dk, acc);
                acc = fmaf(scale_value(m->biases, g, m->scale_kind), dk * (float)sum, acc);
            }
            y[(int64_t)r * m->n + o] = m->k > 512 ? total + acc : acc;
        }
    }
    free(a);
    free(code);
    free(d);
}

static inline float bf16_of_matrix(const vb__matrix *m, int o, int k) {
    int64_t i = (int64_t)o * m->k + k;
    uint16_t h;
    float f;
    if (m->kind == VB_MATRIX_F32) {
        memcpy(&f, (const uint8_t *)m->data + 4 * i, 4);
        return vb__from_bf16(vb__to_bf16(f));
    }
    memcpy(&h, (const uint8_t *)m->data + 2 * i, 2);
    return m->kind == VB_MATRIX_BF16 ? vb__from_bf16(h) : vb__from_bf16(vb__to_bf16(half_value(h)));
}

static inline void oracle_bf16(const vb__matrix *m, const float *x, int64_t xs, int rows, float *y) {
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < m->n; o++) {
            float acc = 0;
            for (int k = 0; k < m->k; k += 32) {
                float part[2] = {0, 0};
                for (int i = k; i < k + 32; i++) {
                    float w = i < m->k ? bf16_of_matrix(m, o, i) : 0.0f;
                    float v = i < m->k ? vb__from_bf16(vb__to_bf16(x[r * xs + i])) : 0.0f;
                    part[i & 1] = fmaf(w, v, part[i & 1]);
                }
                acc = acc + (part[0] + part[1]);
            }
            y[(int64_t)r * m->n + o] = acc;
        }
}

/* Adds bias (NULL: none) and residual (NULL: none), and compares; the first difference is printed. */
static inline int differs(const char *what, const float *want, const float *bias, const float *residual, int64_t rs,
                          const float *y, int64_t ys, int rows, int n) {
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < n; o++) {
            float v = want[(int64_t)r * n + o], got = y[r * ys + o];
            if (bias != NULL) v = v + bias[o];
            if (residual != NULL) v = v + residual[r * rs + o];
            if ((isnan(v) && isnan(got)) || to_bits(v) == to_bits(got)) continue;
            printf("%s: row %d output %d: %.9g (%08x), expected %.9g (%08x)\n", what, r, o, (double)got, to_bits(got),
                   (double)v, to_bits(v));
            return 1;
        }
    return 0;
}

#endif
