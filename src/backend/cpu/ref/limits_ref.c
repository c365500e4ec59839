/* Limits of the C level: cpu/limits_measure.h. */
#include "backend/cpu/limits_measure.h"
#include <math.h>
#include <string.h>

int64_t vb__contract_loop_ref(int32_t iterations) {
    float acc = 0.0f;
    int32_t v = 1;
    for (int32_t i = 0; i < iterations; i++) {
        int32_t dot = 0;
        for (int32_t k = 0; k < 64; k++) {
            __asm__ volatile("" : "+r"(v));
            dot += v * v;
        }
        acc = fmaf((float)dot, 0.5f * (float)v, acc);
        acc = fmaf(0.25f, acc, acc);
    }
    __asm__ volatile("" : : "x"(acc));
    return (int64_t)iterations * 64;
}

uint64_t vb__read_loop_ref(const uint8_t *p, int64_t bytes) {
    uint64_t s[4] = {0}, v[4];
    for (int64_t i = 0; i < bytes; i += 32) {
        memcpy(v, p + i, 32);
        for (int j = 0; j < 4; j++) s[j] += v[j];
    }
    return s[0] + s[1] + s[2] + s[3];
}
