/* Reading one value of the packed layouts of linear_q.h and linear_bf16.h; plain C for references, packing and
 * tests. */
#ifndef VB_BACKEND_OPS_PACKED_REF_H
#define VB_BACKEND_OPS_PACKED_REF_H
#include "backend/ops/linear_bf16.h"
#include "backend/ops/linear_q.h"
#include "base/bf16.h"
#include <string.h>

/* Exact; NaN stays NaN. */
static inline float vb__f16_widen(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff, u;
    if (e == 31) u = sign | 0x7f800000u | m << 13 | (m != 0 ? 0x400000u : 0);
    else if (e != 0) u = sign | (e + 112) << 23 | m << 13;
    else if (m == 0) u = sign;
    else {
        uint32_t shift = 0;
        while ((m & 0x400) == 0) {
            m <<= 1;
            shift++;
        }
        u = sign | (113 - shift) << 23 | (m & 0x3ff) << 13;
    }
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline float vb__scale_read(const void *p, int64_t i, vb__scale_kind kind) {
    if (kind == VB_SCALE_F32) {
        float f;
        memcpy(&f, (const uint8_t *)p + 4 * i, 4);
        return f;
    }
    uint16_t h;
    memcpy(&h, (const uint8_t *)p + 2 * i, 2);
    return kind == VB_SCALE_BF16 ? vb__from_bf16(h) : vb__f16_widen(h);
}

/* Scale or bias of output o at input k. */
static inline float vb__qpanels_scale(const vb__qpanels *w, int32_t o, int32_t k, int32_t bias) {
    const uint8_t *u = w->data + o / VB_PANEL * w->panel_stride + (int64_t)(k / w->unit) * w->unit_bytes;
    const uint8_t *s = u + w->codes_bytes + k % w->unit / w->group * w->scale_stride;
    return vb__scale_read(s, o % VB_PANEL + (bias ? VB_PANEL : 0), w->scale_kind);
}

#endif
