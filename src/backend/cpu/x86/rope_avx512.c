/* rope, AVX-512. Contract and order: ops/rope.h. */
#include "backend/ops/rope.h"
#include "backend/cpu/x86/lanes_avx512.h"

void vb__rope_avx512(VB_ROPE_ARGS) {
    int32_t half = r / 2;
    for (int64_t i = 0; i < rows; i++) {
        const float *c = cosines + i * half, *s = sines + i * half;
        for (int64_t h = 0; h < heads; h++) {
            float *v = x + i * xs + h * xh;
            for (int32_t j = 0; j < half; j += 16) {
                __mmask16 m = vb__mask16(half - j);
                __m512 a = _mm512_maskz_loadu_ps(m, v + j), b = _mm512_maskz_loadu_ps(m, v + j + half);
                __m512 cj = _mm512_maskz_loadu_ps(m, c + j), sj = _mm512_maskz_loadu_ps(m, s + j);
                _mm512_mask_storeu_ps(v + j, m, _mm512_fnmadd_ps(b, sj, _mm512_mul_ps(a, cj)));
                _mm512_mask_storeu_ps(v + j + half, m, _mm512_fmadd_ps(a, sj, _mm512_mul_ps(b, cj)));
            }
        }
    }
}
