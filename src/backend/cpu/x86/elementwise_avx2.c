/* elementwise, AVX2. Contract: ops/elementwise.h. */
#include "backend/ops/elementwise.h"
#include "backend/cpu/x86/lanes_avx2.h"
#include "backend/cpu/x86/vmath_avx2.h"

void vb__swiglu_avx2(VB_SWIGLU_ARGS) {
    int32_t i = 0;
#define EACH _Pragma("GCC unroll 4") for (int32_t k = 0; k < 4; k++)
    for (; i + 32 <= n; i += 32) {
        __m256 v[4];
        EACH v[k] = _mm256_loadu_ps(g + i + 8 * k);
        vb__silus_avx2(v, 4);
        EACH _mm256_storeu_ps(y + i + 8 * k, _mm256_mul_ps(v[k], _mm256_loadu_ps(u + i + 8 * k)));
    }
#undef EACH
    for (; i < n; i += 8) {
        __m256 v = vb__silu_avx2(vb__load_part_avx2(g + i, n - i));
        vb__store_part_avx2(y + i, _mm256_mul_ps(v, vb__load_part_avx2(u + i, n - i)), n - i);
    }
}

#define UNARY(name, f)                                                                                       \
    void name(VB_UNARY_ARGS) {                                                                               \
        for (int32_t i = 0; i < n; i += 8) vb__store_part_avx2(y + i, f(vb__load_part_avx2(x + i, n - i)), n - i); \
    }
UNARY(vb__exp_rows_avx2, vb__exp_avx2)
UNARY(vb__sigmoid_rows_avx2, vb__sigmoid_avx2)
UNARY(vb__silu_rows_avx2, vb__silu_avx2)
UNARY(vb__softplus_rows_avx2, vb__softplus_avx2)
