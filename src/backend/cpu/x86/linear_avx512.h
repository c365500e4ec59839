/* Helpers of the AVX-512 linear kernels, also used by AMX. Static inline only. */
#ifndef VB_BACKEND_X86_LINEAR_AVX512_H
#define VB_BACKEND_X86_LINEAR_AVX512_H
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

/* + bias, + residual, and the store of one row of a panel; never beyond n. */
VB_INLINE void vb__panel_store(float *y, int32_t o, int32_t n, const float *bias, const float *residual, __m512 v) {
    __mmask16 m = n - o >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - o)) - 1);
    if (bias != NULL) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, bias + o));
    if (residual != NULL) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, residual + o));
    _mm512_mask_storeu_ps(y + o, m, v);
}

#endif
