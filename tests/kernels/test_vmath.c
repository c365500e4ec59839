/* vmath: every level against the scalar definition bit by bit, and the definition against libm in f64 and
 * long double. `--bench` prints the time per value of each form. */
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fp_env.h"
#include "base/vmath.h"
#include "vmath_levels.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { CHUNK = 4096 };
static vb__cpu_level g_level;

static float scalar(int function, float x) {
    switch (function) {
    case VMATH_EXP: return vb__expf(x);
    case VMATH_LOG: return vb__logf(x);
    case VMATH_LOG1P: return vb__log1pf(x);
    case VMATH_SIGMOID: return vb__sigmoidf(x);
    case VMATH_SILU: return vb__siluf(x);
    default: return vb__softplusf(x);
    }
}

static const char *const g_names[] = {"exp", "log", "log1p", "sigmoid", "silu", "softplus"};

static bool same(float a, float b) {
    return (a != a && b != b) || vb__bits32(a) == vb__bits32(b);
}

static void compare_levels(const float *x, int n) {
    static float want[CHUNK], got[CHUNK];
    for (int f = 0; f < VMATH_FUNCTIONS; f++) {
        for (int i = 0; i < n; i++) want[i] = scalar(f, x[i]);
        for (int level = VB_CPU_AVX2; level <= (int)g_level && level <= VB_CPU_AVX512; level++) {
            if (level == VB_CPU_AVX2) vb__test_vmath_avx2(f, got, x, n);
            else vb__test_vmath_avx512(f, got, x, n);
            for (int i = 0; i < n; i++) {
                if (!same(want[i], got[i]))
                    fail_msg("%s %s(%a): got %a, want %a", vb__cpu_level_name((vb__cpu_level)level),
                             g_names[f], (double)x[i], (double)got[i], (double)want[i]);
            }
        }
    }
}

static void levels_return_the_same_bits(void **state) {
    (void)state;
    static float x[CHUNK];
    if (g_level < VB_CPU_AVX512) printf("vmath: avx512 skipped, the CPU lacks it\n");
    if (g_level < VB_CPU_AVX2) printf("vmath: avx2 skipped, the CPU lacks it\n");
    /* a dense sweep over all bit patterns: 97 is odd, so the low bits vary as well */
    uint32_t u = 0;
    for (uint64_t total = 0; total < (1ull << 32) / 97; total += CHUNK) {
        for (int i = 0; i < CHUNK; i++, u += 97) x[i] = vb__float32(u);
        compare_levels(x, CHUNK);
    }
    uint64_t s = 0x9e3779b97f4a7c15ull;
    for (int k = 0; k < 1000; k++) {
        for (int i = 0; i < CHUNK; i++) {
            s = s * 6364136223846793005ull + 1442695040888963407ull;
            /* half of them anywhere, half where the functions have their shape */
            x[i] = (i & 1) ? vb__float32((uint32_t)(s >> 32)) : (float)((double)(int64_t)s * 0x1p-63 * 100.0);
        }
        compare_levels(x, CHUNK);
    }
}

static void special_values(void **state) {
    (void)state;
    float inf = INFINITY, nan = NAN;
    static const float around[] = {
        0.0f,     0x1p-149f,      0x1p-126f,        0x1p-24f,       0.5f,          1.0f,
        20.0f,    0x1.62e42ep+6f, 0x1.5d589ep+6f,   88.73f,         104.0f,        0x1p24f,
        0x1p126f, 0x1p127f,       0x1.fffffep+127f, 0x1.6a09e6p-1f, 0x1.6a09e6p+0f};
    static float x[CHUNK];
    int n = 0;
    for (size_t i = 0; i < sizeof around / sizeof around[0]; i++) {
        for (int d = -3; d <= 3; d++) {
            uint32_t u = vb__bits32(around[i]) + (uint32_t)d;
            x[n++] = vb__float32(u);
            x[n++] = vb__float32(u ^ 0x80000000u);
        }
    }
    for (uint32_t m = 1; m < 0x800000; m <<= 1) {
        x[n++] = vb__float32(0x7f800000u | m); /* every kind of NaN, and denormals */
        x[n++] = vb__float32(0xff800000u | m);
        x[n++] = vb__float32(m);
        x[n++] = vb__float32(0x80000000u | m);
    }
    x[n++] = inf;
    x[n++] = -inf;
    while (n % 16) x[n++] = 0;
    compare_levels(x, n);

    assert_true(vb__bits32(vb__expf(0.0f)) == 0x3f800000u && vb__bits32(vb__expf(-0.0f)) == 0x3f800000u);
    assert_true(vb__bits32(vb__expf(-inf)) == 0 && vb__expf(inf) == inf && isnan(vb__expf(nan)));
    assert_true(vb__bits32(vb__expf(-87.33655f)) == 0 && vb__expf(VB_EXP_LO) >= 0x1p-126f);
    assert_true(isfinite(vb__expf(VB_EXP_HI)) && isinf(vb__expf(88.7228394f)));
    assert_true(vb__logf(0.0f) == -inf && vb__logf(-0.0f) == -inf && vb__logf(0x1p-127f) == -inf);
    assert_true(isnan(vb__logf(-1.0f)) && isnan(vb__logf(-inf)) && isnan(vb__logf(nan)) &&
                vb__logf(inf) == inf);
    assert_true(vb__bits32(vb__logf(1.0f)) == 0);
    assert_true(vb__log1pf(-1.0f) == -inf && isnan(vb__log1pf(-1.0000001f)) && isnan(vb__log1pf(-inf)));
    assert_true(vb__log1pf(inf) == inf && isnan(vb__log1pf(nan)) && vb__bits32(vb__log1pf(0.0f)) == 0);
    assert_true(vb__sigmoidf(0.0f) == 0.5f && vb__sigmoidf(inf) == 1.0f &&
                vb__bits32(vb__sigmoidf(-inf)) == 0);
    assert_true(vb__siluf(0.0f) == 0.0f && vb__siluf(inf) == inf && isnan(vb__siluf(-inf)));
    assert_true(vb__softplusf(21.0f) == 21.0f && vb__softplusf(inf) == inf && vb__softplusf(-inf) == 0.0f);
    assert_true(isnan(vb__sigmoidf(nan)) && isnan(vb__siluf(nan)) && isnan(vb__softplusf(nan)));
    float si, co;
    vb__sincosf(0.0f, &si, &co);
    assert_true(si == 0.0f && co == 1.0f);
    vb__sincosf(inf, &si, &co);
    assert_true(isnan(si) && isnan(co));
    vb__sincosf(nan, &si, &co);
    assert_true(isnan(si) && isnan(co) && isnan(vb__sinf(0x1p31f)) && isnan(vb__cosf(-0x1p31f)));
    assert_true(vb__exp64(0.0) == 1.0 && vb__exp64(-0.0) == 1.0 && vb__exp64(-(double)inf) == 0.0 &&
                isinf(vb__exp64(710.0)));
    assert_true(vb__exp64(-708.4) == 0.0 && vb__exp64(-708.39) > 0.0 && isfinite(vb__exp64(709.78)) &&
                isnan(vb__exp64(NAN)));
    assert_true(vb__log64(1.0) == 0.0 && isinf(vb__log64(0.0)) && isnan(vb__log64(-1.0)) &&
                isnan(vb__log64(NAN)));
}

/* Distance in units in the last place of the f32 nearest to `want`; NaN or a wrong infinity counts as huge.
 */
static double ulps(float got, double want) {
    float w = (float)want;
    if (!isfinite(w)) return same(got, w) ? 0 : 1e9;
    int e;
    (void)frexp(want, &e);
    if (e < -125) return fabsf(got) <= 0x1p-126f ? 0 : 1e9;
    return fabs(((double)got - want) / ldexp(1.0, e - 24));
}

static double exact(int function, double x) {
    switch (function) {
    case VMATH_EXP: return exp(x);
    case VMATH_LOG: return log(x);
    case VMATH_LOG1P: return log1p(x);
    case VMATH_SIGMOID: return 1.0 / (1.0 + exp(-x));
    case VMATH_SILU: return x / (1.0 + exp(-x));
    default: return x > 30 ? x + exp(-x) : log1p(exp(x));
    }
}

static void errors_are_within_the_stated_bounds(void **state) {
    (void)state;
    static const double bound[] = {1.05, 0.90, 1.45, 2.50, 2.50, 1.80};
    bool bad = false;
    for (int f = 0; f < VMATH_FUNCTIONS; f++) {
        double worst = 0;
        float at = 0;
        for (uint64_t u = 0; u < 1ull << 32; u += 1511) {
            float x = vb__float32((uint32_t)u);
            if (!isfinite(x) || (x != 0.0f && fabsf(x) < 0x1p-126f)) continue;
            if ((f == VMATH_LOG && x <= 0.0f) || (f == VMATH_LOG1P && x <= -1.0f)) continue;
            /* by definition: 1 + exp(-x) is infinite there, and the true value tiny */
            if ((f == VMATH_SIGMOID || f == VMATH_SILU) && x < -87.0f) continue;
            if (f == VMATH_SOFTPLUS && x < -87.0f) continue;
            double d = ulps(scalar(f, x), exact(f, (double)x));
            if (d > worst) worst = d, at = x;
        }
        printf("vmath: %-8s %.3f ulp (at %a), bound %.2f\n", g_names[f], worst, (double)at, bound[f]);
        if (worst > bound[f]) bad = true;
    }
    double worst = 0;
    float at = 0;
    uint64_t s = 1;
    for (int i = 0; i < 3000000; i++) {
        s = s * 6364136223846793005ull + 1442695040888963407ull;
        float x = vb__float32((uint32_t)(s >> 33) % 0x4b800001u); /* every magnitude up to 2^24 */
        if (i % 3 == 0) x = (float)(s >> 40);                     /* positions */
        if (x < 0x1p-120f) continue;
        float si, co;
        vb__sincosf(x, &si, &co);
        double d = fmax(ulps(si, sin((double)x)), ulps(co, cos((double)x)));
        if (d > worst) worst = d, at = x;
        if (!same(vb__sinf(-x), -si) || !same(vb__cosf(-x), co))
            fail_msg("sincos(-%a) is not the mirror image", (double)x);
    }
    printf("vmath: sincos   %.5f ulp (at %a), bound 0.51\n", worst, (double)at);
    assert_true(worst <= 0.51 && !bad);
    long double worst_e = 0, worst_l = 0;
    for (int i = 0; i < 1000000; i++) {
        s = s * 6364136223846793005ull + 1442695040888963407ull;
        double x = (double)(int64_t)s * 0x1p-63 * ((i & 1) ? 708.0 : 4.0);
        long double want = expl((long double)x), got = (long double)vb__exp64(x);
        int e;
        (void)frexpl(want, &e);
        long double d = fabsl(got - want) / ldexpl(1.0L, e - 53);
        if (d > worst_e) worst_e = d;
        double y = (i & 1) ? fabs(x) + 0x1p-60 : exp(x / 4);
        want = logl((long double)y), got = (long double)vb__log64(y);
        (void)frexpl(want, &e);
        d = want == 0 ? 0 : fabsl(got - want) / ldexpl(1.0L, e - 53);
        if (d > worst_l) worst_l = d;
    }
    printf("vmath: exp64    %.3Lf ulp, bound 1.05\nvmath: log64    %.3Lf ulp, bound 1.05\n", worst_e,
           worst_l);
    assert_true(worst_e <= 1.05L && worst_l <= 1.05L);
}

static void bench(void) {
    static float x[CHUNK], y[CHUNK];
    for (int i = 0; i < CHUNK; i++) x[i] = (float)i / CHUNK * 20.0f - 15.0f + 0.001f;
    for (int f = 0; f < VMATH_FUNCTIONS; f++) {
        printf("%-8s", g_names[f]);
        for (int level = VB_CPU_C; level <= (int)g_level && level <= VB_CPU_AVX512; level++) {
            double best = 1e9;
            for (int k = 0; k < 200; k++) {
                double t = vb__now();
                if (level == VB_CPU_C)
                    for (int i = 0; i < CHUNK; i++) y[i] = scalar(f, x[i]);
                else if (level == VB_CPU_AVX2) vb__test_vmath_avx2(f, y, x, CHUNK);
                else vb__test_vmath_avx512(f, y, x, CHUNK);
                t = vb__now() - t;
                if (t < best) best = t;
            }
            printf("  %s %.2f ns", vb__cpu_level_name((vb__cpu_level)level), best / CHUNK * 1e9);
        }
        printf("\n");
    }
}

int main(int argc, char **argv) {
    vb_error err;
    if (vb__cpu_select(&g_level, &err) != VB_OK) {
        fprintf(stderr, "test_vmath: %s\n", err.text);
        return vb_err_exit_code(err.code);
    }
    uint32_t old = vb__fp_enter();
    int failed = 0;
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) bench();
    else {
        const struct CMUnitTest tests[] = {
            cmocka_unit_test(special_values),
            cmocka_unit_test(levels_return_the_same_bits),
            cmocka_unit_test(errors_are_within_the_stated_bounds),
        };
        failed = cmocka_run_group_tests(tests, NULL, NULL);
    }
    vb__fp_leave(old);
    return failed;
}
