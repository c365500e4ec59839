/* The contract's sum over a row of any length: 16 partial sums and a tree. */
#ifndef VB_REF_SUM16_H
#define VB_REF_SUM16_H
#include <stdint.h>

static inline float vb__tree16_ref(float s[16]) {
    for (int32_t h = 8; h >= 1; h /= 2)
        for (int32_t i = 0; i < h; i++) s[i] = s[i] + s[i + h];
    return s[0];
}

static inline float vb__sum_squares_ref(const float *x, int32_t n) {
    float s[16] = {0};
    for (int32_t i = 0; i < n; i++) s[i % 16] = __builtin_fmaf(x[i], x[i], s[i % 16]);
    return vb__tree16_ref(s);
}

#endif
