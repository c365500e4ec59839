/* The avx2 forms of vmath over arrays, for test_vmath.c. */
#include "backend/cpu/x86/vmath_avx2.h"
#include "vmath_levels.h"

typedef __m256 lane_fn(__m256);

static inline void map(float *y, const float *x, int n, lane_fn *f) {
    for (int i = 0; i < n; i += 8) _mm256_storeu_ps(y + i, f(_mm256_loadu_ps(x + i)));
}

void vb__test_vmath_avx2(int function, float *y, const float *x, int n) {
    switch (function) {
    case VMATH_EXP: map(y, x, n, vb__exp_avx2); break;
    case VMATH_LOG: map(y, x, n, vb__log_avx2); break;
    case VMATH_LOG1P: map(y, x, n, vb__log1p_avx2); break;
    case VMATH_SIGMOID: map(y, x, n, vb__sigmoid_avx2); break;
    case VMATH_SILU: map(y, x, n, vb__silu_avx2); break;
    default: map(y, x, n, vb__softplus_avx2); break;
    }
}
