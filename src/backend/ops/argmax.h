/* argmax: of n values, the largest, its lowest index, the second largest, and whether all are finite
 *
 * shapes    x: n contiguous f32
 * limits    1 <= n; no alignment required
 * class     cpu: every variant returns the reference's results
 * order     none to speak of: value starts as -inf with id 0, x[i] replaces it where x[i] > value, i ascending; second is the
 *           largest of the others (equal to value on a tie, -inf where there are none). So a NaN never wins, and denormals
 *           count as 0 (DAZ on; a value that is one may come back as 0). finite is 0 when any value is a NaN or infinite.
 * threads   a row may be cut: parts are folded in any order
 * cost      reads 4*n bytes
 */
#ifndef VB_OPS_ARGMAX_H
#define VB_OPS_ARGMAX_H
#include <stdint.h>

typedef struct vb__best {
    float value, second;
    int32_t id;
    uint8_t finite;
} vb__best;

/* Of nothing yet. */
#define VB_BEST_NONE ((vb__best){-__builtin_inff(), -__builtin_inff(), 0, 1})

/* Adds what a part of the row gave; its first value is the row's value `at`. Of equal values the lower index stays. */
static inline void vb__best_fold(vb__best *all, const vb__best *part, int32_t at) {
    if (part->value > all->value || (part->value == all->value && at + part->id < all->id)) {
        all->second = all->value > part->second ? all->value : part->second;
        all->value = part->value;
        all->id = at + part->id;
    } else if (part->value > all->second) all->second = part->value;
    all->finite &= part->finite;
}

#define VB_ARGMAX_ARGS const float *x, int32_t n, vb__best *best
typedef void vb__argmax_fn(VB_ARGMAX_ARGS);
vb__argmax_fn vb__argmax_ref, vb__argmax_avx2, vb__argmax_avx512;

#endif
