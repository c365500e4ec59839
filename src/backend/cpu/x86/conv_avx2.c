/* conv, AVX2. Contract and order: ops/conv.h. As the AVX-512 form with blocks of 8 channels: the sums over taps of sixteen rows
 * into a buffer, then silu row by row, four vectors side by side. */
#include "backend/ops/conv.h"
#include "backend/cpu/x86/conv_errands.h"
#include "backend/cpu/x86/lanes_avx2.h"
#include "backend/cpu/x86/vmath_avx2.h"

#define INLINE __attribute__((always_inline)) static inline
enum { ROWS = 16, SIDE = 4 /* vectors side by side */ };

INLINE __m256 two_halves(const float *lo, const float *hi) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo)), _mm_loadu_ps(hi), 1);
}

/* Weights of 8 channels with 4 taps, one vector per tap: two 4 x 4 transpositions side by side. */
INLINE void load_four_taps(const float *w, __m256 *out) {
    __m256 a = two_halves(w, w + 16), b = two_halves(w + 4, w + 20), c = two_halves(w + 8, w + 24),
           d = two_halves(w + 12, w + 28);
    __m256 ab0 = _mm256_unpacklo_ps(a, b), ab1 = _mm256_unpackhi_ps(a, b);
    __m256 cd0 = _mm256_unpacklo_ps(c, d), cd1 = _mm256_unpackhi_ps(c, d);
    out[0] = _mm256_shuffle_ps(ab0, cd0, 0x44);
    out[1] = _mm256_shuffle_ps(ab0, cd0, 0xee);
    out[2] = _mm256_shuffle_ps(ab1, cd1, 0x44);
    out[3] = _mm256_shuffle_ps(ab1, cd1, 0xee);
}

/* Sums over four taps of rows t .. t+rows-1 to sums[rows][ss], of whole blocks of 8 channels. */
static void sums_of_four(const vb__conv_head *a, int64_t t, int32_t rows, float *sums, int64_t ss) {
    const float *before[3];
    for (int32_t j = 0; j < 3; j++) before[j] = vb__conv_row(a, t + j - 3);
    for (int32_t i = 0; i + 8 <= a->n; i += 8) {
        __m256 w[4], x[4];
        load_four_taps(a->w + 4 * i, w);
        for (int32_t j = 0; j < 3; j++) x[j] = _mm256_loadu_ps(before[j] + i);
        const float *m = a->m + t * a->ms + i;
        float *to = sums + i;
        for (int32_t r = 0; r < rows; r++, m += a->ms, to += ss) {
            x[3] = _mm256_loadu_ps(m);
            __m256 s = _mm256_fmadd_ps(w[0], x[0], _mm256_setzero_ps());
            s = _mm256_fmadd_ps(w[1], x[1], s);
            s = _mm256_fmadd_ps(w[2], x[2], s);
            _mm256_store_ps(to, _mm256_fmadd_ps(w[3], x[3], s));
            for (int32_t j = 0; j < 3; j++) x[j] = x[j + 1];
        }
    }
}

/* The same of any number of taps, from channel i on; those past n, up to ss, get +0. */
static void sums_of_any(const vb__conv_head *a, int32_t i, int64_t t, int32_t rows, float *sums, int64_t ss) {
    for (; i < ss; i += 8) {
        int32_t n = a->n - i;
        __m256 w[VB_CONV_MAX_TAPS];
        for (int32_t j = 0; j < a->taps; j++) {
            float column[8] = {0};
            for (int32_t k = 0; k < n && k < 8; k++) column[k] = a->w[(int64_t)(i + k) * a->taps + j];
            w[j] = _mm256_loadu_ps(column);
        }
        for (int32_t r = 0; r < rows; r++) {
            __m256 s = _mm256_setzero_ps();
            for (int32_t j = 0; j < a->taps && n > 0; j++)
                s = _mm256_fmadd_ps(w[j], vb__load_part_avx2(vb__conv_row(a, t + r - (a->taps - 1) + j) + i, n), s);
            _mm256_store_ps(sums + r * ss + i, s);
        }
    }
}

/* silu of n values (a multiple of 16), and the tree over the 16 partial sums of their squares. */
INLINE float silu_row(float *y, const float *x, int32_t n, const vb__conv_errands *e) {
    __m256 squares[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()}, s[SIDE];
    int32_t i = 0;
#define EACH _Pragma("GCC unroll 4") for (int32_t k = 0; k < SIDE; k++)
    for (; i + 8 * SIDE <= n; i += 8 * SIDE) {
        EACH s[k] = _mm256_load_ps(x + i + 8 * k);
        vb__silus_avx2(s, SIDE);
        EACH _mm256_storeu_ps(y + i + 8 * k, s[k]);
        EACH squares[k & 1] = _mm256_fmadd_ps(s[k], s[k], squares[k & 1]);
        vb__conv_errands_run(e, i, SIDE / 2);
    }
#undef EACH
    for (; i < n; i += 8) {
        s[0] = vb__silu_avx2(_mm256_load_ps(x + i));
        _mm256_storeu_ps(y + i, s[0]);
        squares[i >> 3 & 1] = _mm256_fmadd_ps(s[0], s[0], squares[i >> 3 & 1]);
    }
    return vb__tree16_avx2(squares[0], squares[1]);
}

/* y[i] = x[i] * by * scale, n values. */
INLINE void scaled_row(float *y, const float *x, int32_t n, float by, float scale) {
    __m256 b = _mm256_set1_ps(by), c = _mm256_set1_ps(scale);
    int32_t i = 0;
    for (; i + 8 <= n; i += 8) _mm256_storeu_ps(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_load_ps(x + i), b), c));
    vb__store_part_avx2(y + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_load_ps(x + (i < n ? i : 0)), b), c), n - i);
}

static void some_rows(const vb__conv_head *a, int64_t t, int32_t rows, bool streams) {
    float buffer[ROWS * VB_CONV_MAX_N] __attribute__((aligned(32)));
    int32_t n = (a->n + 15) & ~15;
    if (a->taps == 4) sums_of_four(a, t, rows, buffer, n);
    if (a->taps != 4 || a->n < n) sums_of_any(a, a->taps == 4 ? a->n & ~7 : 0, t, rows, buffer, n);
    float *out = a->out + t * a->outs, by[2] = {0};
    bool direct = !a->norm && a->n == n;
    /* A row is scaled when the next one's silu has been given to the processor: by then its norm is there. */
    for (int32_t r = 0; r <= rows; r++) {
        if (r < rows) {
            vb__conv_errands e = vb__conv_errands_of(a, t + r, rows, streams);
            float *s = buffer + r * n, squares = silu_row(direct ? out + r * a->outs : s, s, n, &e);
            by[r & 1] = a->norm ? vb__rsqrt_avx2(squares + 1e-6f) : 1.0f;
        }
        if (r > 0 && !direct)
            scaled_row(out + (r - 1) * a->outs, buffer + (r - 1) * n, a->n, by[(r - 1) & 1], a->norm ? a->scale : 1.0f);
    }
}

void vb__conv_avx2(const vb__conv_head *a) {
    bool streams = vb__conv_streams(a);
    for (int64_t t = 0; t < a->rows; t += ROWS) some_rows(a, t, a->rows - t < ROWS ? (int32_t)(a->rows - t) : ROWS, streams);
    if (!streams) vb__conv_tape(a);
    vb__conv_keep(a);
}
