/* The avx512 forms of vmath over arrays, for test_vmath.c. */
#include "backend/cpu/x86/vmath_avx512.h"
#include "vmath_levels.h"

typedef __m512 lane_fn(__m512);

static inline void map(float *y, const float *x, int n, lane_fn *f) {
    for (int i = 0; i < n; i += 16) _mm512_storeu_ps(y + i, f(_mm512_loadu_ps(x + i)));
}

void vb__test_vmath_avx512(int function, float *y, const float *x, int n) {
    switch (function) {
    case VMATH_EXP: map(y, x, n, vb__exp_avx512); break;
    case VMATH_LOG: map(y, x, n, vb__log_avx512); break;
    case VMATH_LOG1P: map(y, x, n, vb__log1p_avx512); break;
    case VMATH_SIGMOID: map(y, x, n, vb__sigmoid_avx512); break;
    case VMATH_SILU: map(y, x, n, vb__silu_avx512); break;
    default: map(y, x, n, vb__softplus_avx512); break;
    }
}
