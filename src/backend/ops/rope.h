/* rope_table: cos and sin of a position's angles; rope: rotates the first r dims of every head, in place
 *
 * shapes    freqs (r/2) f32; pos (rows); cos, sin (rows, r/2) contiguous; head h of row i at x + i*xs + h*xh
 * limits    r even, 2 <= r <= the head's width; positions 0 .. 2^24-1; no alignment required
 * class     cpu: every variant returns the reference's bits
 * order     angle = (float)pos * freqs[j], rounded; sine and cosine of that f32 (base/vmath.h), each times m,
 *           rounded. With half = r/2, j < half, a = x[j], b = x[j + half]:
 *             x[j] = fma(-b, sin[j], a * cos[j])    x[j + half] = fma(a, sin[j], b * cos[j])
 *           Dims from r on are untouched. FTZ and DAZ on. NaN in, NaN out (payload unspecified).
 * threads   rows and heads are independent
 * cost      rope reads and writes 4*r bytes a head and reads 4*r a row
 */
#ifndef VB_OPS_ROPE_H
#define VB_OPS_ROPE_H
#include <stdint.h>

#define VB_ROPE_TABLE_ARGS                                                                                   \
    float *cosines, float *sines, const int32_t *pos, int32_t rows, const float *freqs, int32_t half, float m
#define VB_ROPE_ARGS                                                                                         \
    float *x, int64_t xs, int64_t xh, int32_t rows, int32_t heads, const float *cosines, const float *sines, int32_t r
typedef void vb__rope_table_fn(VB_ROPE_TABLE_ARGS);
typedef void vb__rope_fn(VB_ROPE_ARGS);
vb__rope_table_fn vb__rope_table_ref; /* one form for all levels: it runs once for all layers of a call */
vb__rope_fn vb__rope_ref, vb__rope_avx2, vb__rope_avx512;

#endif
