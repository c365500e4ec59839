/* conv, AVX-512. Contract and order: ops/conv.h. A block is 16 channels; the last taps-1 raw rows stay in
 * registers while rows pass. Heads with a norm go through a buffer, eight rows at a time, so that the rows'
 * large stride (which puts them all into the same few sets of the L1 cache) costs one store each. */
#include "backend/ops/conv.h"
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/vmath_avx512.h"

enum { ROWS = 8 };

/* Weights of 16 channels, one vector per tap. */
static inline void load_taps(const float *w, int32_t n, int32_t taps, __m512 *out) {
    if (taps == 4 && n >= 16) {
        __m512 a = _mm512_loadu_ps(w), b = _mm512_loadu_ps(w + 16), c = _mm512_loadu_ps(w + 32), d = _mm512_loadu_ps(w + 48);
        __m512i four = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
        for (int32_t j = 0; j < 4; j++) {
            __m512i at = _mm512_add_epi32(four, _mm512_set1_epi32(j));
            __m512 lo = _mm512_permutex2var_ps(a, at, b), hi = _mm512_permutex2var_ps(c, at, d);
            out[j] = _mm512_shuffle_f32x4(lo, hi, 0x44);
        }
        return;
    }
    __m512i lane = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                      _mm512_set1_epi32(taps));
    for (int32_t j = 0; j < taps; j++)
        out[j] = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), vb__mask16(n), lane, w + j, 4);
}

/* Rows t0 .. t0+rows-1 of 16 channels from channel i on, to y with stride ys; squares are added to sums. */
static inline __attribute__((always_inline)) void block(const vb__conv_head *a, int32_t taps, int32_t i, int64_t t0,
                                                        int32_t rows, float *y, int64_t ys, __m512 *sums) {
    __mmask16 m = vb__mask16(a->n - i);
    __m512 w[VB_CONV_MAX_TAPS], x[VB_CONV_MAX_TAPS];
    load_taps(a->w + (int64_t)i * taps, a->n - i, taps, w);
    for (int32_t j = 0; j < taps - 1; j++) x[j] = _mm512_maskz_loadu_ps(m, vb__conv_row(a, t0 - (taps - 1) + j) + i);
    for (int32_t r = 0; r < rows; r++) {
        x[taps - 1] = _mm512_maskz_loadu_ps(m, a->m + (t0 + r) * a->ms + i);
        __m512 s = _mm512_setzero_ps();
        for (int32_t j = 0; j < taps; j++) s = _mm512_fmadd_ps(w[j], x[j], s);
        for (int32_t j = 0; j < taps - 1; j++) x[j] = x[j + 1];
        s = vb__silu_avx512(s);
        if (sums != NULL) sums[r] = _mm512_fmadd_ps(s, s, sums[r]);
        _mm512_mask_storeu_ps(y + r * ys + i, m, s);
    }
}

static inline __attribute__((always_inline)) void rows_of(const vb__conv_head *a, int32_t taps) {
    int32_t n = a->n;
    if (!a->norm) {
        for (int32_t i = 0; i < n; i += 16) block(a, taps, i, 0, a->rows, a->out, a->outs, NULL);
        return;
    }
    float buffer[ROWS * VB_CONV_MAX_N];
    __m512 scale = _mm512_set1_ps(a->scale);
    for (int64_t t = 0; t < a->rows; t += ROWS) {
        int32_t rows = a->rows - t < ROWS ? (int32_t)(a->rows - t) : ROWS;
        __m512 sums[ROWS];
        for (int32_t r = 0; r < ROWS; r++) sums[r] = _mm512_setzero_ps();
        for (int32_t i = 0; i < n; i += 16) block(a, taps, i, t, rows, buffer, n, sums);
        for (int32_t r = 0; r < rows; r++) {
            __m512 by = _mm512_set1_ps(vb__rsqrt_avx512(vb__tree16_avx512(sums[r]) + 1e-6f));
            float *y = a->out + (t + r) * a->outs;
            for (int32_t i = 0; i < n; i += 16) {
                __mmask16 m = vb__mask16(n - i);
                __m512 v = _mm512_maskz_loadu_ps(m, buffer + r * n + i);
                _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(_mm512_mul_ps(v, by), scale));
            }
        }
    }
}

void vb__conv_avx512(const vb__conv_head *a) {
    if (a->rows == 0) {
        /* replay only: there may be no weights */
    } else if (a->taps == 4) rows_of(a, 4);
    else rows_of(a, a->taps);
    vb__conv_keep(a);
}
