/* route and combine, AVX2. Contract and order: ops/route.h. The choice itself stays scalar: a few hundred
 * comparisons a rank. Lanes are experts in route and columns in combine. */
#include "backend/ops/route.h"
#include "backend/cpu/route_choose.h"
#include "backend/cpu/x86/lanes_avx2.h"
#include "backend/cpu/x86/vmath_avx2.h"

void vb__route_avx2(VB_ROUTE_ARGS) {
    float m = -__builtin_inff();
    for (int32_t i = 0; i < n; i++)
        if (x[i] > m) m = x[i];
    __m256 top = _mm256_set1_ps(m), s[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = vb__exp_avx2(_mm256_sub_ps(vb__load_part_avx2(x + i, n - i), top));
        v = _mm256_and_ps(v, _mm256_castsi256_ps(vb__mask8(n - i))); /* + 0 changes no sum: none is -0 */
        vb__store_part_avx2(p + i, v, n - i);
        s[i / 8 % 2] = _mm256_add_ps(s[i / 8 % 2], v);
    }
    __m256 sum = _mm256_set1_ps(vb__tree16_avx2(s[0], s[1]));
    for (int32_t i = 0; i < n; i += 8)
        vb__store_part_avx2(p + i, _mm256_div_ps(vb__load_part_avx2(p + i, n - i), sum), n - i);
    vb__route_choose(ids, w, p, n, k);
}

void vb__combine_avx2(VB_COMBINE_ARGS) {
    float share[8];
    _mm256_storeu_ps(share, vb__sigmoid_avx2(_mm256_set1_ps(gate)));
    __m256 g = _mm256_set1_ps(share[0]);
    for (int32_t j = 0; j < n; j += 8) {
        __m256 acc = _mm256_setzero_ps();
        for (int32_t i = 0; i < k; i++)
            acc = _mm256_fmadd_ps(_mm256_set1_ps(w[i]), vb__load_part_avx2(e + slot[i] * es + j, n - j), acc);
        acc = _mm256_add_ps(acc, _mm256_mul_ps(vb__load_part_avx2(s + j, n - j), g));
        vb__store_part_avx2(y + j, _mm256_add_ps(acc, vb__load_part_avx2(r + j, n - j)), n - j);
    }
}
