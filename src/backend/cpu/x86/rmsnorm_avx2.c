/* rmsnorm, AVX2. Contract and order: ops/rmsnorm.h. Two ymm are the 16 partial sums. */
#include "backend/ops/rmsnorm.h"
#include "backend/cpu/x86/lanes_avx2.h"
#include "backend/cpu/x86/vmath_avx2.h"

static inline float scale_of(const float *x, int32_t n, float eps) {
    __m256 lo = _mm256_setzero_ps(), hi = lo;
    int32_t j = 0;
    for (; j + 16 <= n; j += 16) {
        __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + j + 8);
        lo = _mm256_fmadd_ps(a, a, lo);
        hi = _mm256_fmadd_ps(b, b, hi);
    }
    if (j < n) { /* a lane past the end adds +0 */
        __m256 a = vb__load_part_avx2(x + j, n - j), b = vb__load_part_avx2(x + j + 8, n - j - 8);
        lo = _mm256_fmadd_ps(a, a, lo);
        hi = _mm256_fmadd_ps(b, b, hi);
    }
    return vb__rsqrt_avx2(vb__tree16_avx2(lo, hi) / (float)n + eps);
}

void vb__rmsnorm_avx2(VB_RMSNORM_ARGS) {
    for (int32_t i = 0; i < items; i++) {
        const float *xi = x + i * xs;
        float *yi = y + i * ys;
        __m256 scale = _mm256_set1_ps(scale_of(xi, n, eps));
        for (int32_t j = 0; j < n; j += 8) {
            __m256 v = _mm256_mul_ps(vb__load_part_avx2(xi + j, n - j), scale);
            vb__store_part_avx2(yi + j, _mm256_mul_ps(v, vb__load_part_avx2(w + j, n - j)), n - j);
        }
    }
}

void vb__rmsnorm_gated_avx2(VB_RMSNORM_GATED_ARGS) {
    for (int32_t i = 0; i < items; i++) {
        const float *xi = x + i * xs, *zi = z + i * zs;
        float *yi = y + i * ys;
        __m256 scale = _mm256_set1_ps(scale_of(xi, n, eps));
        int32_t j = 0;
#define EACH _Pragma("GCC unroll 4") for (int32_t k = 0; k < 4; k++)
        for (; j + 32 <= n; j += 32) {
            __m256 g[4], v[4];
            EACH g[k] = _mm256_loadu_ps(zi + j + 8 * k);
            vb__silus_avx2(g, 4);
            EACH v[k] = _mm256_mul_ps(_mm256_loadu_ps(xi + j + 8 * k), scale);
            EACH v[k] = _mm256_mul_ps(v[k], _mm256_loadu_ps(w + j + 8 * k));
            EACH _mm256_storeu_ps(yi + j + 8 * k, _mm256_mul_ps(v[k], g[k]));
        }
#undef EACH
        for (; j < n; j += 8) {
            __m256 v = _mm256_mul_ps(vb__load_part_avx2(xi + j, n - j), scale);
            v = _mm256_mul_ps(v, vb__load_part_avx2(w + j, n - j));
            v = _mm256_mul_ps(v, vb__silu_avx2(vb__load_part_avx2(zi + j, n - j)));
            vb__store_part_avx2(yi + j, v, n - j);
        }
    }
}
