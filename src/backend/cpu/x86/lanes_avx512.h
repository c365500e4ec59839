/* Small helpers of the row-wise kernels, AVX-512. Static inline only. */
#ifndef VB_X86_LANES_AVX512_H
#define VB_X86_LANES_AVX512_H
#include <immintrin.h>
#include <stdint.h>

/* The first n of 16 lanes; n <= 0 gives none, n >= 16 all. */
static inline __mmask16 vb__mask16(int64_t n) {
    uint32_t m = n >= 16 ? 0xffffu : n <= 0 ? 0u : (1u << n) - 1u;
    return (__mmask16)m;
}

/* The contract's tree over 16 partial sums. */
static inline float vb__tree16_avx512(__m512 s) {
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(s), _mm512_extractf32x8_ps(s, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    b = _mm_add_ss(b, _mm_movehdup_ps(b));
    return _mm_cvtss_f32(b);
}

/* 1 / sqrt(x), both operations rounded. */
static inline float vb__rsqrt_avx512(float x) {
    return _mm_cvtss_f32(_mm_div_ss(_mm_set_ss(1.0f), _mm_sqrt_ss(_mm_set_ss(x))));
}

#endif
