/* 16-bit floats as integers: exact widening, and to_bf16 of the numerics contract. Independent of MXCSR. */
#ifndef VB_MODEL_HALVES_H
#define VB_MODEL_HALVES_H
#include <stdint.h>
#include <string.h>

static inline uint32_t vb__float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float vb__bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint16_t vb__load_u16(const void *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
static inline uint32_t vb__load_u32(const void *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static inline float vb__bf16_to_float(uint16_t h) { return vb__bits_float((uint32_t)h << 16); }

static inline uint32_t vb__f16_to_bits(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 0x3ff;
    if (e == 31) return sign | 0x7f800000u | m << 13;
    if (e != 0) return sign | (e + 112) << 23 | m << 13;
    if (m == 0) return sign;
    int shift = __builtin_clz(m) - 21; /* brings the leading bit to bit 10 */
    return sign | (uint32_t)(113 - shift) << 23 | (m << shift & 0x3ff) << 13;
}
static inline float vb__f16_to_float(uint16_t h) { return vb__bits_float(vb__f16_to_bits(h)); }

/* NaN gives 0x7fc0; below 2^-126 a signed 0; else round to nearest even. */
static inline uint16_t vb__bits_to_bf16(uint32_t u) {
    uint32_t mag = u & 0x7fffffffu;
    if (mag > 0x7f800000u) return 0x7fc0;
    if (mag < 0x00800000u) return (uint16_t)(u >> 16 & 0x8000);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
static inline uint16_t vb__float_to_bf16(float f) { return vb__bits_to_bf16(vb__float_bits(f)); }

#endif
