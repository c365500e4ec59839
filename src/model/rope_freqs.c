#include "model/rope_freqs.h"
#include "base/vmath.h"
vb_err vb__rope_freqs(const vb__rope_config *r, float *freqs, float *m, vb_error *err) {
    if (r->type != VB_ROPE_DEFAULT) return vb__fail(err, VB_E_UNSUPPORTED, "rope");
    for (int32_t j = 0; j < r->rotated / 2; j++)
        freqs[j] = (float)vb__exp64(-(2.0 * j / r->rotated) * vb__log64(r->theta));
    *m = 1.0f;
    return VB_OK;
}
