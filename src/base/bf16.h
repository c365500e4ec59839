/* bf16 as uint16_t. to_bf16 of the numerics contract: NaN gives 0x7fc0, |x| < 2^-126 a signed 0, else round
 * to nearest even on the integer (so a value above the largest bf16 becomes an infinity). Exact the other
 * way. */
#ifndef VB_BASE_BF16_H
#define VB_BASE_BF16_H
#include <stdint.h>
#include <string.h>

static inline uint16_t vb__to_bf16(float x) {
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    uint32_t a = u & 0x7fffffffu;
    if (a > 0x7f800000u) return 0x7fc0;
    if (a < 0x00800000u) return (uint16_t)(u >> 16 & 0x8000u);
    return (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
}

static inline float vb__from_bf16(uint16_t b) {
    uint32_t u = (uint32_t)b << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* False for infinities and NaN. */
static inline int vb__bf16_finite(uint16_t b) {
    return (b & 0x7f80) != 0x7f80;
}

#endif
