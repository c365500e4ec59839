/* linear_q, the definition. Contract: ops/linear_q.h. */
#include "backend/ops/linear_q.h"
#include "backend/ops/packed_ref.h"
#include <math.h>

/* One segment of a panel: codes as [S][16] and the values of its group. Unpacked once for all rows. */
typedef struct segment {
    int32_t code[64][VB_PANEL];
    float scale[VB_PANEL], bias[VB_PANEL];
} segment;

static void unpack(const vb__qpanels *w, int32_t panel, int32_t k, int32_t seg, segment *s) {
    const uint8_t *unit = w->data + panel * w->panel_stride + (int64_t)(k / w->unit) * w->unit_bytes;
    int32_t ku = k % w->unit;
    for (int32_t i = 0; i < seg; i++)
        for (int32_t o = 0; o < VB_PANEL; o++) {
            int32_t at = ku + i, code;
            if (w->code_bits == 8) code = unit[at / 4 * 64 + o * 4 + at % 4];
            else code = unit[at / 8 * 64 + o * 4 + at % 4] >> (at % 8 < 4 ? 0 : 4) & 15;
            s->code[i][o] = code - w->offset;
        }
    for (int32_t o = 0; o < VB_PANEL; o++) {
        s->scale[o] = vb__qpanels_scale(w, panel * VB_PANEL + o, k, 0);
        if (w->has_bias) s->bias[o] = vb__qpanels_scale(w, panel * VB_PANEL + o, k, 1);
    }
}

/* dot[o] = sum over the segment of code * a */
static void dots(const vb__qact *x, int32_t r, int32_t k, const segment *s, int32_t dot[VB_PANEL]) {
    int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(x->rows, base);
    const int8_t *a = vb__qact_block(x, base) + (int64_t)(k / x->width) * x->width * x->planes * nb +
                      (r - base) * x->width + k % x->width;
    for (int32_t o = 0; o < VB_PANEL; o++) dot[o] = 0;
    for (int32_t i = 0; i < x->seg; i++) {
        int32_t v = x->planes == 1 ? a[i] : 256 * a[i] + a[nb * x->width + i];
        for (int32_t o = 0; o < VB_PANEL; o++) dot[o] += s->code[i][o] * v;
    }
}

void vb__linear_q_ref(VB_LINEAR_Q_ARGS) {
    const vb__qpanels *w = g->w;
    const vb__qact *x = g->x;
    int32_t seg = x->seg, dot[VB_PANEL];
    segment s;
    float(*total)[VB_PANEL] = g->scratch, (*acc)[VB_PANEL] = total + x->rows; /* [rows][16] */
    for (int32_t p = p0; p < p1; p++) {
        for (int32_t k = 0; k < w->k; k += seg) {
            if (k % VB_SLICE == 0)
                for (int32_t r = 0; r < x->rows; r++)
                    for (int32_t o = 0; o < VB_PANEL; o++) acc[r][o] = 0.0f;
            unpack(w, p, k, seg, &s);
            for (int32_t r = 0; r < x->rows; r++) {
                int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(x->rows, base);
                const float *dd = vb__qact_dd(x, base) + (int64_t)(k / seg) * 2 * nb + (r - base);
                dots(x, r, k, &s, dot);
                for (int32_t o = 0; o < VB_PANEL; o++) {
                    acc[r][o] = fmaf((float)dot[o], s.scale[o] * dd[0], acc[r][o]);
                    if (w->has_bias) acc[r][o] = fmaf(s.bias[o], dd[nb], acc[r][o]);
                }
            }
            if ((k + seg) % VB_SLICE != 0 && k + seg != w->k) continue;
            for (int32_t r = 0; r < x->rows; r++)
                for (int32_t o = 0; o < VB_PANEL; o++)
                    total[r][o] = k < VB_SLICE ? acc[r][o] : total[r][o] + acc[r][o];
        }
        for (int32_t r = 0; r < x->rows; r++)
            for (int32_t o = p * VB_PANEL; o < w->n && o < (p + 1) * VB_PANEL; o++) {
                float v = total[r][o % VB_PANEL];
                if (g->bias != NULL) v = v + g->bias[o];
                if (g->residual != NULL) v = v + g->residual[r * g->rs + o];
                g->y[r * g->ys + o] = v;
            }
    }
}
