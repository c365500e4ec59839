/* Helpers of the AVX-512 linear kernels, also used by AMX. Static inline only. */
#ifndef VB_BACKEND_X86_LINEAR_AVX512_H
#define VB_BACKEND_X86_LINEAR_AVX512_H
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/linear_slice.h"
#include <immintrin.h>

/* 16 scales (or biases) as f32. */
VB_INLINE __m512 vb__scales16(const uint8_t *p, vb__scale_kind kind) {
    if (kind == VB_SCALE_F32) return _mm512_loadu_ps(p);
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (kind == VB_SCALE_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

VB_INLINE __m512i vb__bcast4(const int8_t *a) {
    int32_t v;
    __builtin_memcpy(&v, a, sizeof v);
    return _mm512_set1_epi32(v);
}

/* acc += codes (unsigned) * the four activations at a, four products a lane, for one panel and for two. In assembly: gcc
 * 12 takes the intrinsic's result for a new value and copies every accumulator of a loop twice, and the copies take the
 * multiplier's ports. */
VB_INLINE void vb__dpbusd_1(__m512i *acc, __m512i codes, const int8_t *a) {
    __m512i x;
    __asm__ volatile("vpbroadcastd %2, %1\n\tvpdpbusd %1, %3, %0" : "+v"(*acc), "=&v"(x) : "m"(*(const int8_t(*)[4])a), "v"(codes));
}
VB_INLINE void vb__dpbusd_2(__m512i *acc0, __m512i *acc1, __m512i codes0, __m512i codes1, const int8_t *a) {
    __m512i x;
    __asm__ volatile("vpbroadcastd %3, %2\n\tvpdpbusd %2, %4, %0\n\tvpdpbusd %2, %5, %1"
            : "+v"(*acc0), "+v"(*acc1), "=&v"(x)
            : "m"(*(const int8_t(*)[4])a), "v"(codes0), "v"(codes1));
}
/* Asks for a line; keeps its place among the products. */
VB_INLINE void vb__ask(const uint8_t *p) { __asm__ volatile("prefetcht0 %0" : : "m"(*p)); }
VB_INLINE void vb__ask_far(const uint8_t *p) { __asm__ volatile("prefetcht1 %0" : : "m"(*p)); }
VB_INLINE void vb__ask_to_write(const float *p) { __asm__ volatile("prefetchw %0" : : "m"(*p)); }
/* Values of their own: copies of one vector would take these ports too. */
VB_INLINE void vb__zero(__m512i *v) { __asm__("vpxord %x0, %x0, %x0" : "=v"(*v)); }
VB_INLINE void vb__bcast4_own(__m512i *v, const int32_t *a) { __asm__("vpbroadcastd %1, %0" : "=v"(*v) : "m"(*a)); }

/* A loop of stores would become a slow `rep stos`. */
VB_INLINE void vb__store_zero(float *p) {
    _mm512_store_ps(p, _mm512_setzero_ps());
    __asm__ volatile("" : : : "memory");
}

/* + bias, + residual, and the store of one row of a panel; never beyond n. */
VB_INLINE void vb__panel_store(float *y, int32_t o, int32_t n, const float *bias, const float *residual, __m512 v) {
    __mmask16 m = vb__mask16(n - o);
    if (bias != NULL) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, bias + o));
    if (residual != NULL) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, residual + o));
    _mm512_mask_storeu_ps(y + o, m, v);
}

#endif
