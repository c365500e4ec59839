/* conv, C reference. Contract and order: ops/conv.h. */
#include "backend/ops/conv.h"
#include "backend/cpu/ref/sum16.h"
#include "base/vmath.h"

void vb__conv_ref(const vb__conv_head *a) {
    int32_t n = a->n, taps = a->taps;
    for (int64_t t = 0; t < a->rows; t++) {
        float *y = a->out + t * a->outs;
        for (int32_t i = 0; i < n; i++) {
            float s = 0.0f;
            for (int32_t j = 0; j < taps; j++)
                s = __builtin_fmaf(a->w[i * taps + j], vb__conv_row(a, t - (taps - 1) + j)[i], s);
            y[i] = vb__siluf(s);
        }
        if (!a->norm) continue;
        float r = 1.0f / __builtin_sqrtf(vb__sum_squares_ref(y, n) + 1e-6f);
        for (int32_t i = 0; i < n; i++) y[i] = (y[i] * r) * a->scale;
    }
    vb__conv_tape(a);
    vb__conv_keep(a);
}
