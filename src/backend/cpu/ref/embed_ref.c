/* embed, the definition and only implementation. Contract: ops/embed.h. */
#include "backend/ops/embed.h"
#include "backend/ops/packed_ref.h"
#include <math.h>
#include <stdbool.h>

/* One row; bits and has_bias constant after inlining. Codes are read eight at a time, as they lie: a row has a line for each. */
__attribute__((always_inline)) static inline void embed_row(const vb__qpanels *w, int32_t id, float *y, const int bits,
                                                            const bool has_bias) {
    const uint8_t *panel = w->data + id / VB_PANEL * w->panel_stride + id % VB_PANEL * 4;
    for (int32_t k = 0; k < w->k; k += w->group) {
        const uint8_t *p = panel + (int64_t)(k / w->unit) * w->unit_bytes + k % w->unit * VB_PANEL * bits / 8;
        float scale = vb__qpanels_scale(w, id, k, 0), bias = has_bias ? vb__qpanels_scale(w, id, k, 1) : 0.0f;
        for (int32_t i = k; i < k + w->group; i += 8, p += 8 * VB_PANEL * bits / 8)
            for (int32_t j = 0; j < 8; j++) {
                int32_t code = bits == 8 ? p[j / 4 * 64 + j % 4] : j < 4 ? p[j] & 15 : p[j - 4] >> 4;
                float c = (float)(code - w->offset);
                y[i + j] = has_bias ? fmaf(c, scale, bias) : c * scale;
            }
    }
}

void vb__embed_q_ref(const vb__qpanels *w, int32_t id, float *y) {
    if (w->code_bits == 4 && w->has_bias) embed_row(w, id, y, 4, true);
    else if (w->code_bits == 4) embed_row(w, id, y, 4, false);
    else if (w->has_bias) embed_row(w, id, y, 8, true);
    else embed_row(w, id, y, 8, false);
}

void vb__embed_bf16_ref(const vb__bpanels *w, int32_t id, float *y) {
    const uint16_t *v = w->data + id / VB_PANEL * w->panel_stride + id % VB_PANEL * 2;
    for (int32_t k = 0; k < w->k; k++) y[k] = vb__from_bf16(v[(int64_t)(k / 2) * 2 * VB_PANEL + k % 2]);
}
