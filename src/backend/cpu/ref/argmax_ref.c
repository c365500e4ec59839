/* argmax, C reference. Contract: ops/argmax.h. */
#include "backend/ops/argmax.h"

void vb__argmax_ref(VB_ARGMAX_ARGS) {
    float b = -__builtin_inff();
    int32_t at = 0;
    uint8_t ok = 1;
    for (int32_t i = 0; i < n; i++) {
        if (x[i] > b) {
            b = x[i];
            at = i;
        }
        /* x - x is 0 for a finite x, else a NaN */
        if (x[i] - x[i] != 0.0f) ok = 0;
    }
    *best = b;
    *id = at;
    *finite = ok;
}
