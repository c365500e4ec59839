/* act_quant, AVX-512. Contract: ops/act_quant.h. Rows of a block that have a group in common go together: their
 * largest values and their sums are reduced in one tree of 16 x 16, their divisions are one vector's. */
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/ops/act_quant.h"
#include <immintrin.h>
#include <stdbool.h>

/* One activation group of `vectors` x 16 elements. */
static inline __attribute__((always_inline)) void group(int vectors, int planes, int seg, const float *x, int8_t *a,
                                                        int64_t plane, float *dd, int32_t *sums, int32_t nb) {
    const float limit = planes == 2 ? 32512.0f : 127.0f;
    __m512 v[4];
    __m512i largest = _mm512_setzero_si512(), q[4];
    for (int i = 0; i < vectors; i++) {
        v[i] = _mm512_loadu_ps(x + 16 * i);
        largest = _mm512_max_epu32(largest,
                                   _mm512_and_si512(_mm512_castps_si512(v[i]), _mm512_set1_epi32(0x7fffffff)));
    }
    uint32_t bits = _mm512_reduce_max_epu32(largest);
    float d = 0.0f;
    if (bits >= 0x7f800000u || bits < 0x1f800000u /* 2^-64 */) {
        if (bits >= 0x7f800000u) d = __builtin_nanf("");
        for (int i = 0; i < vectors; i++) q[i] = _mm512_setzero_si512();
    } else {
        float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits)));
        d = amax / limit;
        __m512 id = _mm512_set1_ps(limit / amax);
        for (int i = 0; i < vectors; i++) q[i] = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], id));
    }
    for (int i = 0; i < vectors; i++) {
        __m128i low = _mm512_cvtepi32_epi8(q[i]);
        if (planes == 1) {
            _mm_storeu_si128((__m128i *)(void *)(a + 16 * i), low);
            continue;
        }
        __m512i high = _mm512_srai_epi32(_mm512_sub_epi32(q[i], _mm512_cvtepi8_epi32(low)), 8);
        _mm_storeu_si128((__m128i *)(void *)(a + 16 * i), _mm512_cvtepi32_epi8(high));
        _mm_storeu_si128((__m128i *)(void *)(a + plane + 16 * i), low);
    }
    int per = seg / 16;
    for (int s = 0; s < vectors; s += per) {
        __m512i t = q[s];
        for (int i = 1; i < per; i++) t = _mm512_add_epi32(t, q[s + i]);
        int32_t sum = _mm512_reduce_add_epi32(t);
        dd[0] = d;
        dd[nb] = d * (float)sum;
        *sums = sum;
        dd += 2 * nb;
        sums += nb;
    }
}

/* Lane i: the sum (or the unsigned maximum) of the 16 lanes of v[i]. Integers have no order. */
#define TREE(name, op)                                                                                       \
    static inline __attribute__((always_inline)) __m512i name(const __m512i *v) {                            \
        __m512i a[8], b[4], c[2];                                                                            \
        for (int i = 0; i < 8; i++)                                                                          \
            a[i] = op(_mm512_unpacklo_epi32(v[2 * i], v[2 * i + 1]), _mm512_unpackhi_epi32(v[2 * i], v[2 * i + 1])); \
        for (int i = 0; i < 4; i++)                                                                          \
            b[i] = op(_mm512_unpacklo_epi64(a[2 * i], a[2 * i + 1]), _mm512_unpackhi_epi64(a[2 * i], a[2 * i + 1])); \
        for (int i = 0; i < 2; i++)                                                                          \
            c[i] = op(_mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0x88), _mm512_shuffle_i32x4(b[2 * i], b[2 * i + 1], 0xdd)); \
        return op(_mm512_shuffle_i32x4(c[0], c[1], 0x88), _mm512_shuffle_i32x4(c[0], c[1], 0xdd));           \
    }
TREE(largest_of, _mm512_max_epu32)
TREE(sum_of, _mm512_add_epi32)

/* One group of `vectors` x 16 elements of n rows, 8-bit, a segment each. False, and nothing done, if any row's largest
 * value is out of range. */
static inline __attribute__((always_inline)) bool group_of_rows(int vectors, int n, const float *x, int64_t xs, int8_t *a,
                                                                float *dd, int32_t *sums, int32_t nb) {
    __m512i v[16];
    _Alignas(64) float id[16];
    for (int i = 0; i < 16; i++) {
        v[i] = _mm512_setzero_si512();
        if (i >= n) continue;
        for (int j = 0; j < vectors; j++)
            v[i] = _mm512_max_epu32(v[i], _mm512_and_si512(_mm512_castps_si512(_mm512_loadu_ps(x + i * xs + 16 * j)),
                                                           _mm512_set1_epi32(0x7fffffff)));
    }
    __mmask16 rows = vb__mask16(n);
    __m512i bits = largest_of(v);
    __mmask16 out = _mm512_mask_cmplt_epu32_mask(rows, bits, _mm512_set1_epi32(0x1f800000)) |
                    _mm512_mask_cmpge_epu32_mask(rows, bits, _mm512_set1_epi32(0x7f800000));
    if (out != 0) return false;
    __m512 limit = _mm512_set1_ps(127.0f), d = _mm512_div_ps(_mm512_castsi512_ps(bits), limit);
    _mm512_store_ps(id, _mm512_maskz_div_ps(rows, limit, _mm512_castsi512_ps(bits)));
    for (int i = 0; i < n; i++) {
        __m512 by = _mm512_set1_ps(id[i]);
        __m512i q[4];
        for (int j = 0; j < vectors; j++) q[j] = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_loadu_ps(x + i * xs + 16 * j), by));
        v[i] = _mm512_add_epi32(q[0], q[1]);
        if (vectors == 4) {
            v[i] = _mm512_add_epi32(v[i], _mm512_add_epi32(q[2], q[3]));
            __m512i p = _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]), _mm512_packs_epi32(q[2], q[3]));
            p = _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), p);
            _mm512_storeu_si512(a + 64 * i, p);
        } else {
            _mm_storeu_si128((__m128i *)(void *)(a + 32 * i), _mm512_cvtepi32_epi8(q[0]));
            _mm_storeu_si128((__m128i *)(void *)(a + 32 * i + 16), _mm512_cvtepi32_epi8(q[1]));
        }
    }
    __m512i sum = sum_of(v);
    _mm512_mask_storeu_ps(dd, rows, d);
    _mm512_mask_storeu_ps(dd + nb, rows, _mm512_mul_ps(d, _mm512_cvtepi32_ps(sum)));
    _mm512_mask_storeu_epi32(sums, rows, sum);
    return true;
}

/* Rows r0 .. r0+n-1, all of one block, in groups of `vectors` x 16; 4 <= n. */
static inline __attribute__((always_inline)) void some_rows(const vb__qact *q, int vectors, const float *x, int64_t xs,
                                                            int32_t r0, int32_t n) {
    int32_t base = r0 / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(q->rows, base), i = r0 - base;
    int8_t *a = vb__qact_block(q, base) + i * q->width;
    float *dd = vb__qact_dd(q, base) + i;
    int32_t *sums = vb__qact_sums(q, base) + i;
    int64_t plane = (int64_t)nb * q->width;
    x += r0 * xs;
    for (int32_t k = 0; k < q->k; k += q->width, a += plane, dd += 2 * nb, sums += nb) {
        bool done = n == 16 ? group_of_rows(vectors, 16, x + k, xs, a, dd, sums, nb)
                            : group_of_rows(vectors, n, x + k, xs, a, dd, sums, nb);
        for (int32_t r = 0; r < n && !done; r++)
            group(vectors, 1, q->seg, x + r * xs + k, a + r * q->width, plane, dd + r, sums + r, nb);
    }
}

void vb__act_quant_avx512(VB_ACT_QUANT_ARGS) {
    for (int32_t r = r0; r < r1; r++) {
        int32_t block_end = (r / VB_ROW_BLOCK + 1) * VB_ROW_BLOCK, n = (block_end < r1 ? block_end : r1) - r;
        if (n >= 4 && q->planes == 1 && q->seg == q->width) {
            if (q->width == 64) some_rows(q, 4, x, xs, r, n);
            else some_rows(q, 2, x, xs, r, n);
            r += n - 1;
            continue;
        }
        int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(q->rows, base), i = r - base;
        int8_t *a = vb__qact_block(q, base) + i * q->width;
        float *dd = vb__qact_dd(q, base) + i;
        int32_t *sums = vb__qact_sums(q, base) + i;
        int64_t plane = (int64_t)nb * q->width;
        const float *row = x + r * xs;
        for (int32_t k = 0; k < q->k; k += q->width) {
            if (q->width == 64 && q->planes == 1) group(4, 1, 64, row + k, a, plane, dd, sums, nb);
            else if (q->width == 64) group(4, 2, 64, row + k, a, plane, dd, sums, nb);
            else if (q->planes == 1) group(2, 1, q->seg, row + k, a, plane, dd, sums, nb);
            else group(2, 2, q->seg, row + k, a, plane, dd, sums, nb);
            a += plane * q->planes;
            dd += q->width / q->seg * 2 * nb;
            sums += q->width / q->seg * nb;
        }
    }
}
