#include "base/bf16.h"
#include "model/quantise.h"
#include <string.h>

/* value = scale * code + bias, codes 0 .. 2^bits - 1, scale and bias bf16. The starting point is MLX's rule: the end of
 * the range farther from zero is met exactly, and the scale is stretched so that zero is nearly a code. Scale and bias
 * are rounded before codes are chosen, so that codes make up for the rounding. Then the fit is improved: least squares
 * for scale and bias given the codes, new codes, a few times, also from ranges that clip the outermost values; the
 * smallest squared error wins, the earlier one on a tie. */

enum { GROUP_MAX = 128, LANES = 8, REFINE = 4 };

typedef struct fit {
    float scale, bias, error;
} fit;

static const float magic = 12582912.0f; /* 1.5 * 2^23: adding and subtracting it rounds to the nearest even integer */

static float code_of(float x, float scale, float bias, float top) {
    float c = (x - bias) / scale;
    c = c < 0.0f ? 0.0f : c > top ? top : c; /* first, so that the rounding trick is in range */
    return (c + magic) - magic;
}

/* Codes for a scale and bias, and their squared error; f32 in eight fixed lanes. */
static float codes_for(const float *x, int32_t n, float scale, float bias, float top, float *codes) {
    float sum[LANES] = {0};
    for (int32_t i = 0; i < n; i += LANES)
        for (int32_t l = 0; l < LANES; l++) {
            float c = code_of(x[i + l], scale, bias, top);
            float d = x[i + l] - (scale * c + bias);
            codes[i + l] = c;
            sum[l] += d * d;
        }
    return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

static bool usable(float scale) {
    float a = scale < 0 ? -scale : scale;
    return a >= 0x1p-100f && a < 0x1p120f;
}

static void try_fit(const float *x, int32_t n, float scale, float bias, float top, float *codes, fit *best) {
    for (int step = 0; step <= REFINE; step++) {
        scale = vb__from_bf16(vb__to_bf16(scale));
        bias = vb__from_bf16(vb__to_bf16(bias));
        if (!usable(scale)) return;
        float e = codes_for(x, n, scale, bias, top, codes);
        if (e < best->error) *best = (fit){scale, bias, e};
        if (step == REFINE || e == 0.0f) return;
        /* least squares of x against the codes */
        double sc = 0, sx = 0, scc = 0, scx = 0;
        for (int32_t i = 0; i < n; i++) {
            double c = codes[i], v = x[i];
            sc += c;
            sx += v;
            scc += c * c;
            scx += c * v;
        }
        double det = n * scc - sc * sc;
        if (!(det > 0)) return; /* one code for all */
        double s = (n * scx - sc * sx) / det;
        float next = (float)s, next_bias = (float)((sx - s * sc) / n);
        if (next == scale && next_bias == bias) return;
        scale = next;
        bias = next_bias;
    }
}

static fit fit_group(const float *x, int32_t n, int32_t bits, float *codes) {
    float top = (float)((1 << bits) - 1), lo = x[0], hi = x[0];
    for (int32_t i = 1; i < n; i++) {
        if (x[i] < lo) lo = x[i];
        if (x[i] > hi) hi = x[i];
    }
    fit best = {0.0f, 0.0f, __builtin_inff()};
    /* a group of one value: any scale will do */
    if (lo == hi) try_fit(x, n, 1.0f, lo, top, codes, &best);
    /* ranges that leave out up to a quarter of each half; with many codes clipping never pays */
    static const float clips[] = {1.0f, 0.9f, 0.8f, 0.7f};
    int per_end = bits >= 6 ? 1 : 4;
    for (int t = 0; t < per_end * per_end && lo < hi; t++) {
        float mid = 0.5f * lo + 0.5f * hi, half = 0.5f * hi - 0.5f * lo;
        float a = mid - half * clips[t / per_end], b = mid + half * clips[t % per_end];
        if (t == 0) {
            bool low_edge = -lo > hi;
            float scale = (b - a) / top;
            if (scale < 1e-7f) scale = 1e-7f;
            if (!low_edge) scale = -scale;
            float edge = low_edge ? a : b, steps = edge / scale, whole = steps;
            if (steps > -4e6f && steps < 4e6f) whole = (steps + magic) - magic;
            if (whole != 0.0f) scale = edge / whole;
            try_fit(x, n, scale, whole == 0.0f ? 0.0f : edge, top, codes, &best);
        }
        try_fit(x, n, (b - a) / top, a, top, codes, &best);
    }
    if (!(best.error < __builtin_inff())) best = (fit){1.0f, vb__from_bf16(vb__to_bf16(lo)), 0.0f};
    (void)codes_for(x, n, best.scale, best.bias, top, codes);
    return best;
}

static void pack(const float *codes, int32_t n, int32_t bits, uint8_t *out) {
    uint32_t hold = 0;
    int32_t have = 0;
    for (int32_t i = 0; i < n; i++) {
        hold |= (uint32_t)codes[i] << have;
        for (have += bits; have >= 8; have -= 8) {
            *out++ = (uint8_t)hold;
            hold >>= 8;
        }
    }
}

bool vb__quantise_row(const float *x, int32_t k, int32_t bits, int32_t group, uint8_t *codes, uint16_t *scales,
                      uint16_t *biases, double sums[2]) {
    float c[GROUP_MAX];
    for (int32_t i = 0; i < k; i++)
        if (!(x[i] - x[i] == 0.0f)) return false;
    for (int32_t g = 0; g < k / group; g++) {
        const float *v = x + (int64_t)g * group;
        fit f = fit_group(v, group, bits, c);
        scales[g] = vb__to_bf16(f.scale);
        biases[g] = vb__to_bf16(f.bias);
        pack(c, group, bits, codes + (int64_t)g * group * bits / 8);
        for (int32_t i = 0; i < group; i++) {
            double d = (double)v[i] - ((double)f.scale * c[i] + f.bias);
            sums[0] += d * d;
            sums[1] += (double)v[i] * v[i];
        }
    }
    return true;
}
