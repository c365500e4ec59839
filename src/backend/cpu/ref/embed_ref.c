/* embed, the definition and only implementation. Contract: ops/embed.h. */
#include "backend/ops/embed.h"
#include "backend/ops/packed_ref.h"
#include <math.h>

void vb__embed_q_ref(const vb__qpanels *w, int32_t id, float *y) {
    for (int32_t k = 0; k < w->k; k += w->group) {
        float scale = vb__qpanels_scale(w, id, k, 0), bias = w->has_bias ? vb__qpanels_scale(w, id, k, 1) : 0.0f;
        for (int32_t i = k; i < k + w->group; i++) {
            float code = (float)(vb__qpanels_code(w, id, i) - w->offset);
            y[i] = w->has_bias ? fmaf(code, scale, bias) : code * scale;
        }
    }
}

void vb__embed_bf16_ref(const vb__bpanels *w, int32_t id, float *y) {
    const uint16_t *v = w->data + id / VB_PANEL * w->panel_stride + id % VB_PANEL * 2;
    for (int32_t k = 0; k < w->k; k++) y[k] = vb__from_bf16(v[(int64_t)(k / 2) * 2 * VB_PANEL + k % 2]);
}
