/* rope, C reference. Contract and order: ops/rope.h. */
#include "backend/ops/rope.h"
#include "base/vmath.h"

void vb__rope_table_ref(VB_ROPE_TABLE_ARGS) {
    for (int64_t i = 0; i < rows; i++)
        for (int32_t j = 0; j < half; j++) {
            float s, c;
            vb__sincosf((float)pos[i] * freqs[j], &s, &c);
            cosines[i * half + j] = c * m;
            sines[i * half + j] = s * m;
        }
}

void vb__rope_ref(VB_ROPE_ARGS) {
    int32_t half = r / 2;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < heads; h++) {
            float *v = x + i * xs + h * xh;
            const float *c = cosines + i * half, *s = sines + i * half;
            for (int32_t j = 0; j < half; j++) {
                float a = v[j], b = v[j + half];
                v[j] = __builtin_fmaf(-b, s[j], a * c[j]);
                v[j + half] = __builtin_fmaf(a, s[j], b * c[j]);
            }
        }
}
