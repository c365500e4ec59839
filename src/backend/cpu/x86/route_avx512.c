/* route and combine, AVX-512. Contract and order: ops/route.h. One register is exactly the 16 partial sums.
 */
#include "backend/ops/route.h"
#include "backend/cpu/route_choose.h"
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/vmath_avx512.h"

void vb__route_avx512(VB_ROUTE_ARGS) {
    float m = -__builtin_inff();
    for (int32_t i = 0; i < n; i++)
        if (x[i] > m) m = x[i];
    __m512 top = _mm512_set1_ps(m), s = _mm512_setzero_ps();
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 part = vb__mask16(n - i);
        __m512 v = vb__exp_avx512(_mm512_sub_ps(_mm512_maskz_loadu_ps(part, x + i), top));
        _mm512_mask_storeu_ps(p + i, part, v);
        s = _mm512_mask_add_ps(s, part, s, v);
    }
    __m512 sum = _mm512_set1_ps(vb__tree16_avx512(s));
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 part = vb__mask16(n - i);
        _mm512_mask_storeu_ps(p + i, part, _mm512_div_ps(_mm512_maskz_loadu_ps(part, p + i), sum));
    }
    vb__route_choose(ids, w, p, n, k);
}

void vb__combine_avx512(VB_COMBINE_ARGS) {
    __m512 g = vb__sigmoid_avx512(_mm512_set1_ps(gate));
    for (int32_t j = 0; j < n; j += 16) {
        __mmask16 part = vb__mask16(n - j);
        __m512 acc = _mm512_setzero_ps();
        for (int32_t i = 0; i < k; i++)
            acc =
                _mm512_fmadd_ps(_mm512_set1_ps(w[i]), _mm512_maskz_loadu_ps(part, e + slot[i] * es + j), acc);
        acc = _mm512_add_ps(acc, _mm512_mul_ps(_mm512_maskz_loadu_ps(part, s + j), g));
        _mm512_mask_storeu_ps(y + j, part, _mm512_add_ps(acc, _mm512_maskz_loadu_ps(part, r + j)));
    }
}
