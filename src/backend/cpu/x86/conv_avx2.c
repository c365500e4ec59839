/* conv, AVX2. Contract and order: ops/conv.h. As the AVX-512 form with blocks of 8 channels: the last taps-1 raw
 * rows stay in registers while rows pass, and heads with a norm go through a buffer, eight rows at a time. */
#include "backend/ops/conv.h"
#include "backend/cpu/x86/lanes_avx2.h"
#include "backend/cpu/x86/vmath_avx2.h"

enum { ROWS = 8 };

static inline __m256 two_halves(const float *lo, const float *hi) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo)), _mm_loadu_ps(hi), 1);
}

/* Weights of 8 channels, one vector per tap. */
static inline void load_taps(const float *w, int32_t n, int32_t taps, __m256 *out) {
    if (taps == 4 && n >= 8) { /* two 4 x 4 transpositions side by side */
        __m256 a = two_halves(w, w + 16), b = two_halves(w + 4, w + 20), c = two_halves(w + 8, w + 24),
               d = two_halves(w + 12, w + 28);
        __m256 ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
        __m256 cd0 = _mm256_unpacklo_ps(c, d), cd1 = _mm256_unpackhi_ps(c, d);
        out[0] = _mm256_shuffle_ps(ab0, cd0, 0x44);
        out[1] = _mm256_shuffle_ps(ab0, cd0, 0xee);
        out[2] = _mm256_shuffle_ps(ab1, cd1, 0x44);
        out[3] = _mm256_shuffle_ps(ab1, cd1, 0xee);
        return;
    }
    for (int32_t j = 0; j < taps; j++) {
        float t[8] = {0};
        for (int32_t i = 0; i < n && i < 8; i++) t[i] = w[i * taps + j];
        out[j] = _mm256_loadu_ps(t);
    }
}

/* Rows t0 .. t0+rows-1 of 8 channels from channel i on, to y with stride ys; squares are added to sums. */
static inline __attribute__((always_inline)) void block(const vb__conv_head *a, int32_t taps, int32_t i, int64_t t0,
                                                        int32_t rows, float *y, int64_t ys, __m256 *sums) {
    int32_t n = a->n - i;
    __m256 w[VB_CONV_MAX_TAPS], x[VB_CONV_MAX_TAPS];
    load_taps(a->w + (int64_t)i * taps, n, taps, w);
    for (int32_t j = 0; j < taps - 1; j++) x[j] = vb__load_part_avx2(vb__conv_row(a, t0 - (taps - 1) + j) + i, n);
    for (int32_t r = 0; r < rows; r++) {
        x[taps - 1] = vb__load_part_avx2(a->m + (t0 + r) * a->ms + i, n);
        __m256 s = _mm256_setzero_ps();
        for (int32_t j = 0; j < taps; j++) s = _mm256_fmadd_ps(w[j], x[j], s);
        for (int32_t j = 0; j < taps - 1; j++) x[j] = x[j + 1];
        s = vb__silu_avx2(s);
        if (sums != NULL) sums[2 * r + (i / 8 & 1)] = _mm256_fmadd_ps(s, s, sums[2 * r + (i / 8 & 1)]);
        vb__store_part_avx2(y + r * ys + i, s, n);
    }
}

static inline __attribute__((always_inline)) void rows_of(const vb__conv_head *a, int32_t taps) {
    int32_t n = a->n;
    if (!a->norm) {
        for (int32_t i = 0; i < n; i += 8) block(a, taps, i, 0, a->rows, a->out, a->outs, NULL);
        return;
    }
    float buffer[ROWS * VB_CONV_MAX_N];
    __m256 scale = _mm256_set1_ps(a->scale);
    for (int64_t t = 0; t < a->rows; t += ROWS) {
        int32_t rows = a->rows - t < ROWS ? (int32_t)(a->rows - t) : ROWS;
        __m256 sums[2 * ROWS];
        for (int32_t r = 0; r < 2 * ROWS; r++) sums[r] = _mm256_setzero_ps();
        for (int32_t i = 0; i < n; i += 8) block(a, taps, i, t, rows, buffer, n, sums);
        for (int32_t r = 0; r < rows; r++) {
            __m256 by = _mm256_set1_ps(vb__rsqrt_avx2(vb__tree16_avx2(sums[2 * r], sums[2 * r + 1]) + 1e-6f));
            float *y = a->out + (t + r) * a->outs;
            for (int32_t i = 0; i < n; i += 8) {
                __m256 v = vb__load_part_avx2(buffer + r * n + i, n - i);
                vb__store_part_avx2(y + i, _mm256_mul_ps(_mm256_mul_ps(v, by), scale), n - i);
            }
        }
    }
}

void vb__conv_avx2(const vb__conv_head *a) {
    if (a->rows == 0) {
        /* replay only: there may be no weights */
    } else if (a->taps == 4) rows_of(a, 4);
    else rows_of(a, a->taps);
    vb__conv_keep(a);
}
