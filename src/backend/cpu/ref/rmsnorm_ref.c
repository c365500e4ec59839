/* rmsnorm, C reference. Contract and order: ops/rmsnorm.h. */
#include "backend/ops/rmsnorm.h"
#include "backend/cpu/ref/sum16.h"
#include "base/vmath.h"

void vb__rmsnorm_ref(VB_RMSNORM_ARGS) {
    for (int32_t i = 0; i < items; i++) {
        const float *xi = x + i * xs;
        float *yi = y + i * ys;
        float scale = 1.0f / __builtin_sqrtf(vb__sum_squares_ref(xi, n) / (float)n + eps);
        for (int32_t j = 0; j < n; j++) yi[j] = (xi[j] * scale) * w[j];
    }
}

void vb__rmsnorm_gated_ref(VB_RMSNORM_GATED_ARGS) {
    for (int32_t i = 0; i < items; i++) {
        const float *xi = x + i * xs, *zi = z + i * zs;
        float *yi = y + i * ys;
        float scale = 1.0f / __builtin_sqrtf(vb__sum_squares_ref(xi, n) / (float)n + eps);
        for (int32_t j = 0; j < n; j++) yi[j] = ((xi[j] * scale) * w[j]) * vb__siluf(zi[j]);
    }
}
