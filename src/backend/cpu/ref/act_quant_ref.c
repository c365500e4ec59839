/* act_quant, the definition. Contract: ops/act_quant.h. */
#include "backend/ops/act_quant.h"
#include <immintrin.h>
#include <string.h>

/* Round to nearest even (MXCSR). */
static int32_t rne(float x) { return _mm_cvtss_si32(_mm_set_ss(x)); }

static float abs_bits(uint32_t bits) {
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* One activation group: returns d, writes a. */
static float quantise(const float *x, int32_t width, float limit, int32_t *a) {
    uint32_t largest = 0; /* |x| as bits: their order is that of the values, and shows Inf and NaN */
    for (int32_t i = 0; i < width; i++) {
        uint32_t u;
        memcpy(&u, &x[i], sizeof u);
        u &= 0x7fffffffu;
        if (u > largest) largest = u;
    }
    memset(a, 0, (size_t)width * sizeof *a);
    if (largest >= 0x7f800000u) return abs_bits(0x7fc00000u);
    float amax = abs_bits(largest);
    if (amax < 0x1p-64f) return 0.0f;
    float d = amax / limit, id = limit / amax;
    for (int32_t i = 0; i < width; i++) a[i] = rne(x[i] * id);
    return d;
}

void vb__act_quant_ref(VB_ACT_QUANT_ARGS) {
    float limit = q->planes == 2 ? 32512.0f : 127.0f;
    for (int32_t r = r0; r < r1; r++) {
        int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(q->rows, base), i = r - base;
        for (int32_t k = 0; k < q->k; k += q->width) {
            int32_t a[64];
            float d = quantise(x + r * xs + k, q->width, limit, a);
            int8_t *to = vb__qact_block(q, base) + (int64_t)k * q->planes * nb + i * q->width;
            for (int32_t j = 0; j < q->width; j++) {
                if (q->planes == 1) {
                    to[j] = (int8_t)a[j];
                    continue;
                }
                int8_t lo = (int8_t)(a[j] & 0xff);
                to[j] = (int8_t)((a[j] - lo) / 256);
                to[nb * q->width + j] = lo;
            }
            for (int32_t s = 0; s < q->width; s += q->seg) {
                int32_t sum = 0;
                for (int32_t j = 0; j < q->seg; j++) sum += a[s + j];
                int32_t seg = (k + s) / q->seg;
                float *dd = vb__qact_dd(q, base) + (int64_t)seg * 2 * nb;
                dd[i] = d;
                dd[nb + i] = d * (float)sum;
                vb__qact_sums(q, base)[(int64_t)seg * nb + i] = sum;
            }
        }
    }
}
