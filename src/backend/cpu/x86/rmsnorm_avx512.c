/* rmsnorm, AVX-512. Contract and order: ops/rmsnorm.h. One zmm is exactly the 16 partial sums. */
#include "backend/ops/rmsnorm.h"
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/vmath_avx512.h"

static inline float scale_of(const float *x, int32_t n, float eps) {
    __m512 s = _mm512_setzero_ps();
    int32_t j = 0;
    for (; j + 16 <= n; j += 16) {
        __m512 v = _mm512_loadu_ps(x + j);
        s = _mm512_fmadd_ps(v, v, s);
    }
    if (j < n) { /* a lane past the end adds +0 */
        __m512 v = _mm512_maskz_loadu_ps(vb__mask16(n - j), x + j);
        s = _mm512_fmadd_ps(v, v, s);
    }
    return vb__rsqrt_avx512(vb__tree16_avx512(s) / (float)n + eps);
}

void vb__rmsnorm_avx512(VB_RMSNORM_ARGS) {
    for (int32_t i = 0; i < items; i++) {
        const float *xi = x + i * xs;
        float *yi = y + i * ys;
        __m512 scale = _mm512_set1_ps(scale_of(xi, n, eps));
        int32_t j = 0;
        for (; j + 16 <= n; j += 16)
            _mm512_storeu_ps(yi + j, _mm512_mul_ps(_mm512_mul_ps(_mm512_loadu_ps(xi + j), scale), _mm512_loadu_ps(w + j)));
        if (j < n) {
            __mmask16 m = vb__mask16(n - j);
            __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, xi + j), scale);
            _mm512_mask_storeu_ps(yi + j, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w + j)));
        }
    }
}

void vb__rmsnorm_gated_avx512(VB_RMSNORM_GATED_ARGS) {
    for (int32_t i = 0; i < items; i++) {
        const float *xi = x + i * xs, *zi = z + i * zs;
        float *yi = y + i * ys;
        __m512 scale = _mm512_set1_ps(scale_of(xi, n, eps));
        int32_t j = 0;
#define EACH _Pragma("GCC unroll 4") for (int32_t k = 0; k < 4; k++)
        for (; j + 64 <= n; j += 64) {
            __m512 g[4], v[4];
            EACH g[k] = _mm512_loadu_ps(zi + j + 16 * k);
            vb__silus_avx512(g, 4);
            EACH v[k] = _mm512_mul_ps(_mm512_loadu_ps(xi + j + 16 * k), scale);
            EACH v[k] = _mm512_mul_ps(v[k], _mm512_loadu_ps(w + j + 16 * k));
            EACH _mm512_storeu_ps(yi + j + 16 * k, _mm512_mul_ps(v[k], g[k]));
        }
#undef EACH
        for (; j < n; j += 16) {
            __mmask16 m = vb__mask16(n - j);
            __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, xi + j), scale);
            v = _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w + j));
            v = _mm512_mul_ps(v, vb__silu_avx512(_mm512_maskz_loadu_ps(m, zi + j)));
            _mm512_mask_storeu_ps(yi + j, m, v);
        }
    }
}
