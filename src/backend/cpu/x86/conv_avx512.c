/* conv, AVX-512. Contract and order: ops/conv.h. Sixteen rows at a time and in two passes through a buffer: the sums over
 * taps, whose short chains let many loads of rows far apart be on their way at once, then silu row by row, four vectors side
 * by side. Each pass keeps to what bounds it (loads; the divider), which one loop over both did not. */
#include "backend/ops/conv.h"
#include "backend/cpu/x86/conv_errands.h"
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/vmath_avx512.h"

#define INLINE __attribute__((always_inline)) static inline
enum { ROWS = 16, SIDE = 4 /* vectors side by side */ };

/* Weights of 16 channels with 4 taps, one vector per tap. */
INLINE void load_four_taps(const float *w, __m512 *out) {
    __m512 a = _mm512_loadu_ps(w), b = _mm512_loadu_ps(w + 16), c = _mm512_loadu_ps(w + 32), d = _mm512_loadu_ps(w + 48);
    __m512i four = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    for (int32_t j = 0; j < 4; j++) {
        __m512i at = _mm512_add_epi32(four, _mm512_set1_epi32(j));
        __m512 lo = _mm512_permutex2var_ps(a, at, b), hi = _mm512_permutex2var_ps(c, at, d);
        out[j] = _mm512_shuffle_f32x4(lo, hi, 0x44);
    }
}

/* Sums over four taps of rows t .. t+rows-1 to sums[rows][ss], of whole blocks of 16 channels. */
static void sums_of_four(const vb__conv_head *a, int64_t t, int32_t rows, float *sums, int64_t ss) {
    const float *before[3];
    for (int32_t j = 0; j < 3; j++) before[j] = vb__conv_row(a, t + j - 3);
    for (int32_t i = 0; i + 16 <= a->n; i += 16) {
        __m512 w[4], x[4];
        load_four_taps(a->w + 4 * i, w);
        for (int32_t j = 0; j < 3; j++) x[j] = _mm512_loadu_ps(before[j] + i);
        const float *m = a->m + t * a->ms + i;
        float *to = sums + i;
        for (int32_t r = 0; r < rows; r++, m += a->ms, to += ss) {
            x[3] = _mm512_loadu_ps(m);
            __m512 s = _mm512_fmadd_ps(w[0], x[0], _mm512_setzero_ps());
            s = _mm512_fmadd_ps(w[1], x[1], s);
            s = _mm512_fmadd_ps(w[2], x[2], s);
            _mm512_store_ps(to, _mm512_fmadd_ps(w[3], x[3], s));
            for (int32_t j = 0; j < 3; j++) x[j] = x[j + 1];
        }
    }
}

/* The same of any number of taps, from channel i on; those past n get +0. */
static void sums_of_any(const vb__conv_head *a, int32_t i, int64_t t, int32_t rows, float *sums, int64_t ss) {
    __m512i lane = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15),
                                      _mm512_set1_epi32(a->taps));
    for (; i < a->n; i += 16) {
        __mmask16 m = vb__mask16(a->n - i);
        __m512 w[VB_CONV_MAX_TAPS];
        for (int32_t j = 0; j < a->taps; j++)
            w[j] = _mm512_mask_i32gather_ps(_mm512_setzero_ps(), m, lane, a->w + (int64_t)i * a->taps + j, 4);
        for (int32_t r = 0; r < rows; r++) {
            __m512 s = _mm512_setzero_ps();
            for (int32_t j = 0; j < a->taps; j++)
                s = _mm512_fmadd_ps(w[j], _mm512_maskz_loadu_ps(m, vb__conv_row(a, t + r - (a->taps - 1) + j) + i), s);
            _mm512_store_ps(sums + r * ss + i, s);
        }
    }
}

/* silu of n values (a multiple of 16), and the 16 partial sums of their squares. */
INLINE __m512 silu_row(float *y, const float *x, int32_t n, const vb__conv_errands *e) {
    __m512 squares = _mm512_setzero_ps(), s[SIDE];
    int32_t i = 0;
#define EACH _Pragma("GCC unroll 4") for (int32_t k = 0; k < SIDE; k++)
    for (; i + 16 * SIDE <= n; i += 16 * SIDE) {
        EACH s[k] = _mm512_load_ps(x + i + 16 * k);
        vb__silus_avx512(s, SIDE);
        EACH _mm512_storeu_ps(y + i + 16 * k, s[k]);
        EACH squares = _mm512_fmadd_ps(s[k], s[k], squares);
        vb__conv_errands_run(e, i, SIDE);
    }
#undef EACH
    for (; i < n; i += 16) {
        s[0] = vb__silu_avx512(_mm512_load_ps(x + i));
        _mm512_storeu_ps(y + i, s[0]);
        squares = _mm512_fmadd_ps(s[0], s[0], squares);
    }
    return squares;
}

/* y[i] = x[i] * by * scale, n values. */
INLINE void scaled_row(float *y, const float *x, int32_t n, float by, float scale) {
    __m512 b = _mm512_set1_ps(by), c = _mm512_set1_ps(scale);
    int32_t i = 0;
    for (; i + 16 <= n; i += 16) _mm512_storeu_ps(y + i, _mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(x + i), b), c));
    if (i < n) _mm512_mask_storeu_ps(y + i, vb__mask16(n - i), _mm512_mul_ps(_mm512_mul_ps(_mm512_load_ps(x + i), b), c));
}

static void some_rows(const vb__conv_head *a, int64_t t, int32_t rows, bool streams) {
    float buffer[ROWS * VB_CONV_MAX_N] __attribute__((aligned(64)));
    int32_t n = (a->n + 15) & ~15;
    if (a->taps == 4) sums_of_four(a, t, rows, buffer, n);
    if (a->taps != 4 || a->n < n) sums_of_any(a, a->taps == 4 ? n - 16 : 0, t, rows, buffer, n);
    float *out = a->out + t * a->outs, by[2] = {0};
    bool direct = !a->norm && a->n == n;
    /* A row is scaled when the next one's silu has been given to the processor: by then its norm is there. */
    for (int32_t r = 0; r <= rows; r++) {
        if (r < rows) {
            vb__conv_errands e = vb__conv_errands_of(a, t + r, rows, streams);
            float *s = buffer + r * n;
            __m512 squares = silu_row(direct ? out + r * a->outs : s, s, n, &e);
            by[r & 1] = a->norm ? vb__rsqrt_avx512(vb__tree16_avx512(squares) + 1e-6f) : 1.0f;
        }
        if (r > 0 && !direct)
            scaled_row(out + (r - 1) * a->outs, buffer + (r - 1) * n, a->n, by[(r - 1) & 1], a->norm ? a->scale : 1.0f);
    }
}

void vb__conv_avx512(const vb__conv_head *a) {
    bool streams = vb__conv_streams(a);
    for (int64_t t = 0; t < a->rows; t += ROWS) some_rows(a, t, a->rows - t < ROWS ? (int32_t)(a->rows - t) : ROWS, streams);
    if (!streams) vb__conv_tape(a);
    vb__conv_keep(a);
}
