/* argmax, C reference. Contract: ops/argmax.h. */
#include "backend/ops/argmax.h"

void vb__argmax_ref(VB_ARGMAX_ARGS) {
    vb__best b = VB_BEST_NONE;
    for (int32_t i = 0; i < n; i++) {
        if (x[i] > b.value) {
            b.second = b.value;
            b.value = x[i];
            b.id = i;
        } else if (x[i] > b.second) b.second = x[i];
        /* x - x is 0 for a finite x, else a NaN */
        if (x[i] - x[i] != 0.0f) b.finite = 0;
    }
    *best = b;
}
