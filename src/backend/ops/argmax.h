/* argmax: of n values, the largest, its lowest index, and whether all are finite
 *
 * shapes    x: n contiguous f32
 * limits    1 <= n; no alignment required
 * class     cpu: every variant returns the reference's results
 * order     none to speak of: *best starts as -inf with *id 0, x[i] replaces it where x[i] > *best, i ascending. So
 *           a NaN never wins, and denormals count as 0 (DAZ on; a best that is one may come back as 0). *finite is
 *           0 when any value is a NaN or infinite.
 * threads   a row may be cut: parts are folded in ascending order by the same rule
 * cost      reads 4*n bytes
 */
#ifndef VB_OPS_ARGMAX_H
#define VB_OPS_ARGMAX_H
#include <stdint.h>

#define VB_ARGMAX_ARGS const float *x, int32_t n, float *best, int32_t *id, uint8_t *finite
typedef void vb__argmax_fn(VB_ARGMAX_ARGS);
vb__argmax_fn vb__argmax_ref, vb__argmax_avx2, vb__argmax_avx512;

#endif
