/* Small helpers of the row-wise kernels, AVX2. Static inline only. Partial stores go through a buffer: masked
 * stores are very slow on some processors. */
#ifndef VB_X86_LANES_AVX2_H
#define VB_X86_LANES_AVX2_H
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

/* All bits set in the first n of 8 lanes; n <= 0 gives none, n >= 8 all. */
static inline __m256i vb__mask8(int64_t n) {
    static const int32_t edge[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    int64_t at = n >= 8 ? 0 : n <= 0 ? 8 : 8 - n;
    return _mm256_loadu_si256((const __m256i *)(const void *)(edge + at));
}

/* The first n of 8 floats, +0 in the other lanes. */
static inline __m256 vb__load_part_avx2(const float *p, int64_t n) {
    return n >= 8 ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vb__mask8(n));
}
static inline void vb__store_part_avx2(float *p, __m256 v, int64_t n) {
    if (n >= 8) {
        _mm256_storeu_ps(p, v);
    } else if (n > 0) {
        float t[8];
        _mm256_storeu_ps(t, v);
        memcpy(p, t, (size_t)n * sizeof(float));
    }
}

/* The contract's tree over 16 partial sums: 0..7 and 8..15. */
static inline float vb__tree16_avx2(__m256 lo, __m256 hi) {
    __m256 a = _mm256_add_ps(lo, hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));
    b = _mm_add_ss(b, _mm_movehdup_ps(b));
    return _mm_cvtss_f32(b);
}

/* 1 / sqrt(x), both operations rounded. */
static inline float vb__rsqrt_avx2(float x) {
    return _mm_cvtss_f32(_mm_div_ss(_mm_set_ss(1.0f), _mm_sqrt_ss(_mm_set_ss(x))));
}

#endif
