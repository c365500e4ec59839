/* rope, AVX2. Contract and order: ops/rope.h. */
#include "backend/ops/rope.h"
#include "backend/cpu/x86/lanes_avx2.h"

void vb__rope_avx2(VB_ROPE_ARGS) {
    int32_t half = r / 2;
    for (int64_t i = 0; i < rows; i++) {
        const float *c = cosines + i * half, *s = sines + i * half;
        for (int64_t h = 0; h < heads; h++) {
            float *v = x + i * xs + h * xh;
            for (int32_t j = 0; j < half; j += 8) {
                int32_t n = half - j;
                __m256 a = vb__load_part_avx2(v + j, n), b = vb__load_part_avx2(v + j + half, n);
                __m256 cj = vb__load_part_avx2(c + j, n), sj = vb__load_part_avx2(s + j, n);
                vb__store_part_avx2(v + j, _mm256_fnmadd_ps(b, sj, _mm256_mul_ps(a, cj)), n);
                vb__store_part_avx2(v + j + half, _mm256_fmadd_ps(a, sj, _mm256_mul_ps(b, cj)), n);
            }
        }
    }
}
