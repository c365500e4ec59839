/* linear_bf16, the definition. Contract: ops/linear_bf16.h. */
#include "backend/ops/linear_bf16.h"
#include "base/bf16.h"
#include <math.h>

void vb__act_bf16_ref(VB_ACT_BF16_ARGS) {
    for (int32_t r = r0; r < r1; r++) {
        int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(b->rows, base);
        float *to = (float *)b->x + vb__bact_block(b, base) + (r - base);
        for (int32_t k = 0; k < b->kp; k++)
            to[(int64_t)k * nb] = k < b->k ? vb__from_bf16(vb__to_bf16(x[r * xs + k])) : 0.0f;
    }
}

/* One output element. */
static float dot(const vb__bpanels *w, int32_t o, const float *x, int32_t nb) {
    const uint16_t *v = w->data + o / VB_PANEL * w->panel_stride + o % VB_PANEL * 2;
    float acc = 0.0f;
    for (int32_t k = 0; k < w->kp; k += 32) {
        float even = 0.0f, odd = 0.0f;
        for (int32_t i = 0; i < 16; i++) {
            const uint16_t *pair = v + (int64_t)(k / 2 + i) * 2 * VB_PANEL;
            const float *at = x + (int64_t)(k + 2 * i) * nb;
            even = fmaf(vb__from_bf16(pair[0]), at[0], even);
            odd = fmaf(vb__from_bf16(pair[1]), at[nb], odd);
        }
        acc = acc + (even + odd);
    }
    return acc;
}

void vb__linear_bf16_ref(VB_LINEAR_BF16_ARGS) {
    const vb__bpanels *w = g->w;
    for (int32_t o = p0 * VB_PANEL; o < w->n && o < p1 * VB_PANEL; o++)
        for (int32_t r = 0; r < g->x->rows; r++) {
            int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(g->x->rows, base);
            float v = dot(w, o, (const float *)g->x->x + vb__bact_block(g->x, base) + (r - base), nb);
            if (g->bias != NULL) v = v + g->bias[o];
            if (g->residual != NULL) v = v + g->residual[r * g->rs + o];
            g->y[r * g->ys + o] = v;
        }
}
