/* elementwise, AVX-512. Contract: ops/elementwise.h. */
#include "backend/ops/elementwise.h"
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/vmath_avx512.h"

void vb__swiglu_avx512(VB_SWIGLU_ARGS) {
    int32_t i = 0;
#define EACH _Pragma("GCC unroll 4") for (int32_t k = 0; k < 4; k++)
    for (; i + 64 <= n; i += 64) {
        __m512 v[4];
        EACH v[k] = _mm512_loadu_ps(g + i + 16 * k);
        vb__silus_avx512(v, 4);
        EACH _mm512_storeu_ps(y + i + 16 * k, _mm512_mul_ps(v[k], _mm512_loadu_ps(u + i + 16 * k)));
    }
#undef EACH
    for (; i < n; i += 16) {
        __mmask16 m = vb__mask16(n - i);
        __m512 v = vb__silu_avx512(_mm512_maskz_loadu_ps(m, g + i));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, u + i)));
    }
}

#define UNARY(name, f)                                                                                       \
    void name(VB_UNARY_ARGS) {                                                                               \
        for (int32_t i = 0; i < n; i += 16) {                                                                \
            __mmask16 m = vb__mask16(n - i);                                                                 \
            _mm512_mask_storeu_ps(y + i, m, f(_mm512_maskz_loadu_ps(m, x + i)));                             \
        }                                                                                                    \
    }
UNARY(vb__exp_rows_avx512, vb__exp_avx512)
UNARY(vb__sigmoid_rows_avx512, vb__sigmoid_avx512)
UNARY(vb__silu_rows_avx512, vb__silu_avx512)
UNARY(vb__softplus_rows_avx512, vb__softplus_avx512)
