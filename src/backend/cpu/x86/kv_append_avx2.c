/* kv_append, AVX2. Contract: ops/kv_append.h. Conversion is vector code; the stores are single words, since a
 * row's values lie 64 (K) and 4 (V) bytes apart, and a neighbour's row, perhaps another thread's, between
 * them. */
#include "backend/ops/kv_append.h"
#include "base/bf16.h"
#include <immintrin.h>

/* to_bf16 in the high halves, +0 for what is not finite after it; those lanes are added to *bad. */
static inline __m256i round_finite(const float *x, __m256i *bad) {
    __m256i u = _mm256_loadu_si256((const __m256i *)(const void *)x),
            exponent = _mm256_set1_epi32(0x7f800000);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    r = _mm256_and_si256(r, _mm256_set1_epi32((int32_t)0xffff0000));
    __m256i e = _mm256_and_si256(u, exponent);
    __m256i tiny = _mm256_cmpeq_epi32(e, _mm256_setzero_si256());
    r = _mm256_blendv_epi8(r, _mm256_and_si256(u, _mm256_set1_epi32((int32_t)0x80000000)), tiny);
    /* not finite before, or rounded up to an infinity */
    __m256i inf = _mm256_or_si256(_mm256_cmpeq_epi32(e, exponent),
                                  _mm256_cmpeq_epi32(_mm256_and_si256(r, exponent), exponent));
    *bad = _mm256_or_si256(*bad, inf);
    return _mm256_andnot_si256(inf, r);
}

static inline void store_k(uint16_t *k, __m256i r) { /* four words of two dims, 32 elements apart */
    r = _mm256_or_si256(_mm256_srli_epi64(r, 16), _mm256_srli_epi64(r, 32));
    __m128i a = _mm256_castsi256_si128(r), b = _mm256_extracti128_si256(r, 1);
    uint32_t w[4] = {(uint32_t)_mm_cvtsi128_si32(a), (uint32_t)_mm_extract_epi32(a, 2),
                     (uint32_t)_mm_cvtsi128_si32(b), (uint32_t)_mm_extract_epi32(b, 2)};
    for (int32_t i = 0; i < 4; i++) __builtin_memcpy(k + 32 * i, &w[i], 4);
}

static inline void store_v(uint16_t *v, __m256i r) { /* eight values, 2 elements apart */
    __m128i a = _mm256_castsi256_si128(r), b = _mm256_extracti128_si256(r, 1);
    v[0] = (uint16_t)_mm_extract_epi16(a, 1);
    v[2] = (uint16_t)_mm_extract_epi16(a, 3);
    v[4] = (uint16_t)_mm_extract_epi16(a, 5);
    v[6] = (uint16_t)_mm_extract_epi16(a, 7);
    v[8] = (uint16_t)_mm_extract_epi16(b, 1);
    v[10] = (uint16_t)_mm_extract_epi16(b, 3);
    v[12] = (uint16_t)_mm_extract_epi16(b, 5);
    v[14] = (uint16_t)_mm_extract_epi16(b, 7);
}

static inline uint16_t one_finite(float x, bool *finite) {
    uint16_t b = vb__to_bf16(x);
    if (vb__bf16_finite(b)) return b;
    *finite = false;
    return 0;
}

bool vb__kv_append_avx2(VB_KV_APPEND_ARGS) {
    __m256i bad = _mm256_setzero_si256();
    bool finite = true;
    for (int32_t h = 0; h < kv_heads; h++, k += dim, v += dim) {
        uint16_t *kp = (uint16_t *)(void *)(heads + h * vb__kv_head_bytes(dim));
        uint16_t *vp = kp + (int64_t)dim * 64;
        int32_t d = 0;
        for (; d + 8 <= dim; d += 8) {
            store_k(kp + vb__kv_k_index(dim, slot, d), round_finite(k + d, &bad));
            store_v(vp + vb__kv_v_index(dim, slot, d), round_finite(v + d, &bad));
        }
        for (; d < dim; d++) {
            kp[vb__kv_k_index(dim, slot, d)] = one_finite(k[d], &finite);
            vp[vb__kv_v_index(dim, slot, d)] = one_finite(v[d], &finite);
        }
    }
    return finite && _mm256_testz_si256(bad, bad);
}
