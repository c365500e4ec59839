/* Elementary functions of our own: one operation sequence for every level, so that no libm reaches a bit. The
 * scalar forms here are the definition; backend/cpu/x86/vmath_avx2.h and vmath_avx512.h repeat them operation
 * by operation and return the same bits (a NaN is compared as a NaN, its payload is unspecified).
 *
 * environment  FTZ, DAZ, round to nearest even (base/fp_env.h). Files that use the inline functions are
 * compiled with -mfma; without it fmaf is a library call with the same, correctly rounded result. errors
 * largest distance from the true value in units of the last place, measured by tests/kernels/test_vmath.c
 * against long double libm (it fails above the bound given here): expf 1.05   logf 0.90   log1pf 1.45 sincosf
 * 0.51 (|x| <= 2^24)   exp64 1.05   log64 1.05 sigmoidf 2.50   siluf 2.50   softplusf 1.80 (x > -87) special
 * exp(+-0) = 1, exp(-inf) = 0, exp(inf) = inf; results below 2^-126 (2^-1022) are +0. log(+-0) = -inf,
 * log(negative) = NaN, log(inf) = inf; a denormal counts as 0. log1p(-1) = -inf, below -1 NaN, log1p(+-0) =
 * +0. NaN gives NaN everywhere. silu(-inf) = NaN, as its definition -inf / inf says.
 *
 * Method: exp by r = x - n ln 2 and a minimax polynomial of degree 6 on |r| <= ln(2)/2 (f64: Taylor, degree
 * 13); log by x = 2^e m, m in [sqrt(1/2), sqrt(2)), f = m - 1, f - f^2/2 + f^3 P(f) with a minimax P of
 * degree 7 (f64: the series of 2 atanh(f / (2 + f))). The coefficients are from a Remez exchange of our own.
 */
#ifndef VB_BASE_VMATH_H
#define VB_BASE_VMATH_H
#include <stdint.h>

/* exp: the bounds between which the result is finite and normal; n is rounded by adding 1.5 * 2^23. */
#define VB_EXP_LO (-0x1.5d589ep+6f)
#define VB_EXP_HI (0x1.62e42ep+6f)
#define VB_EXP_MAGIC (0x1.8p+23f)
#define VB_LOG2E (0x1.715476p+0f)
/* ln 2 in two parts, the first short enough that x - n * VB_LN2_HI is exact. */
#define VB_LN2_HI (0x1.62e4p-1f)
#define VB_LN2_LO (0x1.7f7d1cp-20f)
#define VB_EXP_C2 (0x1.fffffcp-2f)
#define VB_EXP_C3 (0x1.555492p-3f)
#define VB_EXP_C4 (0x1.5558f2p-5f)
#define VB_EXP_C5 (0x1.123a1p-7f)
#define VB_EXP_C6 (0x1.6a240ep-10f)
#define VB_SQRT_HALF_BITS 0x3f3504f3
#define VB_LOG_C0 (0.3333333134651184f)
#define VB_LOG_C1 (-0.2500081956386566f)
#define VB_LOG_C2 (0.20001226663589478f)
#define VB_LOG_C3 (-0.16623356938362122f)
#define VB_LOG_C4 (0.14201758801937103f)
#define VB_LOG_C5 (-0.13160182535648346f)
#define VB_LOG_C6 (0.12761574983596802f)
#define VB_LOG_C7 (-0.07634493708610535f)
#define VB_F32_MIN (0x1p-126f)

static inline uint32_t vb__bits32(float x) {
    union {
        float f;
        uint32_t u;
    } v = {.f = x};
    return v.u;
}
static inline float vb__float32(uint32_t u) {
    union {
        uint32_t u;
        float f;
    } v = {.u = u};
    return v.f;
}

static inline float vb__expf(float x) {
    if (!(x >= VB_EXP_LO)) return x != x ? x : 0.0f;
    if (x > VB_EXP_HI) return __builtin_inff();
    float t = __builtin_fmaf(x, VB_LOG2E, VB_EXP_MAGIC);
    float n = t - VB_EXP_MAGIC;
    float r = __builtin_fmaf(-n, VB_LN2_HI, x);
    r = __builtin_fmaf(-n, VB_LN2_LO, r);
    float q = __builtin_fmaf(VB_EXP_C6, r, VB_EXP_C5);
    q = __builtin_fmaf(q, r, VB_EXP_C4);
    q = __builtin_fmaf(q, r, VB_EXP_C3);
    q = __builtin_fmaf(q, r, VB_EXP_C2);
    float p = __builtin_fmaf(r * r, q, r);
    p = p + 1.0f;
    /* times 2^n; within the bounds the sum of exponents is always that of a normal number */
    return vb__float32(vb__bits32(p) + (vb__bits32(t) << 23));
}

/* f - f^2/2 + f^3 P(f) + e ln 2: what log and log1p share. */
static inline float vb__log_core(float f, float e) {
    float z = f * f;
    float p = __builtin_fmaf(VB_LOG_C7, f, VB_LOG_C6);
    p = __builtin_fmaf(p, f, VB_LOG_C5);
    p = __builtin_fmaf(p, f, VB_LOG_C4);
    p = __builtin_fmaf(p, f, VB_LOG_C3);
    p = __builtin_fmaf(p, f, VB_LOG_C2);
    p = __builtin_fmaf(p, f, VB_LOG_C1);
    p = __builtin_fmaf(p, f, VB_LOG_C0);
    float y = p * (z * f);
    y = __builtin_fmaf(e, VB_LN2_LO, y);
    y = __builtin_fmaf(-0.5f, z, y);
    y = y + f;
    return __builtin_fmaf(e, VB_LN2_HI, y);
}

static inline float vb__logf(float x) {
    if (!(x >= VB_F32_MIN)) {
        if (x != x) return x;
        return x > -VB_F32_MIN ? -__builtin_inff() : __builtin_nanf("");
    }
    if (x == __builtin_inff()) return x;
    uint32_t u = vb__bits32(x);
    int32_t e = (int32_t)(u - VB_SQRT_HALF_BITS) >> 23;
    float m = vb__float32(u - ((uint32_t)e << 23));
    return vb__log_core(m - 1.0f, (float)e);
}

static inline float vb__log1pf(float x) {
    if (!(x > -1.0f)) return x == -1.0f ? -__builtin_inff() : x != x ? x : __builtin_nanf("");
    if (x == __builtin_inff()) return x;
    float u = 1.0f + x;
    float t = u - 1.0f;
    float lost = (1.0f - (u - t)) + (x - t); /* 1 + x = u + lost, exactly */
    uint32_t b = vb__bits32(u);
    int32_t e = (int32_t)(b - VB_SQRT_HALF_BITS) >> 23;
    float m = vb__float32(b - ((uint32_t)e << 23));
    int32_t s = e < 126 ? e : 126;
    float scale = vb__float32((uint32_t)(127 - s) << 23);
    /* with e = 0 this sum is x itself */
    float f = __builtin_fmaf(lost, scale, m - 1.0f);
    return vb__log_core(f, (float)e);
}

static inline float vb__sigmoidf(float x) {
    return 1.0f / (1.0f + vb__expf(-x));
}
static inline float vb__siluf(float x) {
    return x / (1.0f + vb__expf(-x));
}
static inline float vb__softplusf(float x) {
    return x > 20.0f ? x : vb__log1pf(vb__expf(x));
}

/* Sine and cosine of the f32 angle x in radians, reduced and evaluated in f64 and rounded once. Accurate up
 * to 2^24; above 2^30 the range reduction loses meaning and both results are NaN, as for inf and NaN. */
void vb__sincosf(float x, float *sine, float *cosine);
float vb__sinf(float x);
float vb__cosf(float x);

/* f64, for constants computed at load (rope frequencies, YaRN). */
double vb__exp64(double x);
double vb__log64(double x);

#endif
