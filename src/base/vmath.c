/* The f64 half of vmath.h: constants at load time and rope tables. Compiled with -mfma. */
#include "base/vmath.h"

static uint64_t bits64(double x) {
    union {
        double f;
        uint64_t u;
    } v = {.f = x};
    return v.u;
}
static double float64(uint64_t u) {
    union {
        uint64_t u;
        double f;
    } v = {.u = u};
    return v.f;
}

/* 1.5 * 2^52: adding it rounds to an integer, which then stands in the low bits. */
#define MAGIC64 0x1.8p+52

double vb__exp64(double x) {
    static const double c[] = {/* 1/k!, k = 13 .. 2 */
                               1.0 / 6227020800.0, 1.0 / 479001600.0, 1.0 / 39916800.0, 1.0 / 3628800.0,
                               1.0 / 362880.0,     1.0 / 40320.0,     1.0 / 5040.0,     1.0 / 720.0,
                               1.0 / 120.0,        1.0 / 24.0,        1.0 / 6.0,        0.5};
    if (!(x >= -0x1.6232bdd7abcd2p+9)) return x != x ? x : 0.0;
    if (x > 0x1.62e42fefa39efp+9) return __builtin_inf();
    double t = __builtin_fma(x, 0x1.71547652b82fep+0, MAGIC64);
    double n = t - MAGIC64;
    double r = __builtin_fma(-n, 0x1.62e42fefap-1, x);
    r = __builtin_fma(-n, 0x1.cf79abc9e3b3ap-40, r);
    double q = c[0];
    for (int i = 1; i < 12; i++) q = __builtin_fma(q, r, c[i]);
    double p = __builtin_fma(r * r, q, r);
    p = p + 1.0;
    return float64(bits64(p) + (bits64(t) << 52));
}

double vb__log64(double x) {
    if (!(x >= 0x1p-1022)) {
        if (x != x) return x;
        return x > -0x1p-1022 ? -__builtin_inf() : __builtin_nan("");
    }
    if (x == __builtin_inf()) return x;
    uint64_t u = bits64(x);
    int64_t e = (int64_t)(u - 0x3fe6a09e667f3bcdull) >> 52; /* sqrt(1/2) */
    double f = float64(u - ((uint64_t)e << 52)) - 1.0;
    /* log(1 + f) = 2 atanh(s), s = f / (2 + f); 2 s = f - s f, so that f enters unrounded. */
    double s = f / (2.0 + f);
    double w = s * s;
    double q = 2.0 / 23.0;
    for (int k = 21; k >= 3; k -= 2) q = __builtin_fma(q, w, 2.0 / (double)k);
    double y = s * __builtin_fma(q, w, -f);
    y = __builtin_fma((double)e, 0x1.cf79abc9e3b3ap-40, y);
    y = y + f;
    return __builtin_fma((double)e, 0x1.62e42fefap-1, y);
}

void vb__sincosf(float x, float *sine, float *cosine) {
    static const double cs[] = {/* (-1)^k / (2k+1)!, k = 7 .. 1 */
                                -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
                                -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    static const double cc[] = {
        /* (-1)^k / (2k)!, k = 8 .. 1 */
        1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
        1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0,        -0.5};
    if (!(__builtin_fabsf(x) <= 0x1p+30f)) {
        *sine = *cosine = __builtin_nanf("");
        return;
    }
    double d = (double)x;
    double t = __builtin_fma(d, 0x1.45f306dc9c883p-1, MAGIC64);
    double n = t - MAGIC64;
    double r = __builtin_fma(-n, 0x1.921fb54442d18p+0, d);
    r = __builtin_fma(-n, 0x1.1a62633145c07p-54, r);
    double w = r * r;
    double s = cs[0], c = cc[0];
    for (int i = 1; i < 7; i++) s = __builtin_fma(s, w, cs[i]);
    for (int i = 1; i < 8; i++) c = __builtin_fma(c, w, cc[i]);
    float sf = (float)__builtin_fma(s * w, r, r);
    float cf = (float)__builtin_fma(c, w, 1.0);
    switch (bits64(t) & 3) {
    case 0:
        *sine = sf;
        *cosine = cf;
        break;
    case 1:
        *sine = cf;
        *cosine = -sf;
        break;
    case 2:
        *sine = -sf;
        *cosine = -cf;
        break;
    default:
        *sine = -cf;
        *cosine = sf;
        break;
    }
}

float vb__sinf(float x) {
    float s, c;
    vb__sincosf(x, &s, &c);
    return s;
}

float vb__cosf(float x) {
    float s, c;
    vb__sincosf(x, &s, &c);
    return c;
}
