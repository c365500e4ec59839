/* rmsnorm: y[i][j] = x[i][j] * (1 / sqrt(mean(x[i]^2) + eps)) * w[j]; rmsnorm_gated: that * silu(z[i][j])
 *
 * shapes    x, y, z: items of n contiguous f32, item i at x + i*xs (a head inside a wider row is an item, so
 *           a stride may be anything); w (n) f32
 * limits    1 <= n <= 2^20; no alignment required; y may equal x (and, gated, z) with the same stride
 * class     cpu: every variant returns the reference's bits
 * order     squares: 16 partial sums, element j goes to sum j % 16 by fma from +0, j ascending; then for
 *           h = 8, 4, 2, 1: s[j] = s[j] + s[j + h] for j < h. Division by n, + eps, square root, 1 / that, and
 *           the two (gated: three) products are rounded one by one; silu of base/vmath.h. FTZ and DAZ on. NaN in,
 *           NaN out (payload unspecified).
 * threads   items are independent; an item is never split
 * cost      reads 4*n (gated: 8*n) bytes an item and 4*n once, writes 4*n an item
 */
#ifndef VB_OPS_RMSNORM_H
#define VB_OPS_RMSNORM_H
#include <stdint.h>

#define VB_RMSNORM_ARGS                                                                                      \
    float *y, int64_t ys, const float *x, int64_t xs, const float *w, int32_t items, int32_t n, float eps
#define VB_RMSNORM_GATED_ARGS                                                                                \
    float *y, int64_t ys, const float *x, int64_t xs, const float *z, int64_t zs, const float *w, int32_t items, \
        int32_t n, float eps
typedef void vb__rmsnorm_fn(VB_RMSNORM_ARGS);
typedef void vb__rmsnorm_gated_fn(VB_RMSNORM_GATED_ARGS);
vb__rmsnorm_fn vb__rmsnorm_ref, vb__rmsnorm_avx2, vb__rmsnorm_avx512;
vb__rmsnorm_gated_fn vb__rmsnorm_gated_ref, vb__rmsnorm_gated_avx2, vb__rmsnorm_gated_avx512;

#endif
