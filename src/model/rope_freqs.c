#include "model/rope_freqs.h"
#include "base/vmath.h"

static const double pi = 3.14159265358979323846;

static double floor_of(double x) { /* |x| far below 2^52 */
    double t = (double)(int64_t)x;
    return t > x ? t - 1.0 : t;
}

/* The dimension whose wave makes n turns in the trained length, kept within what converts to an integer. */
static double yarn_dim(const vb__rope_config *r, double n) {
    double d = r->rotated * vb__log64(r->original_max / (2.0 * pi * n)) / (2.0 * vb__log64(r->theta));
    return d > 1e9 ? 1e9 : d < -1e9 ? -1e9 : d;
}

/* g(c) of YaRN: how attention sharpens with the factor. */
static double yarn_mscale(double factor, double c) {
    return factor <= 1.0 ? 1.0 : 0.1 * c * vb__log64(factor) + 1.0;
}

typedef struct yarn {
    double lo, hi, m;
} yarn;

static yarn yarn_of(const vb__rope_config *r) {
    yarn y = {.lo = yarn_dim(r, r->beta_fast), .hi = yarn_dim(r, r->beta_slow)};
    if (r->truncate) {
        y.lo = floor_of(y.lo);
        y.hi = -floor_of(-y.hi);
    }
    if (y.lo < 0.0) y.lo = 0.0;
    if (y.hi > r->rotated - 1.0) y.hi = r->rotated - 1.0;
    if (y.lo == y.hi) y.hi += 0.001;
    if (r->attention_factor >= 0.0) y.m = r->attention_factor;
    else if (r->mscale != 0.0 && r->mscale_all_dim != 0.0)
        y.m = yarn_mscale(r->factor, r->mscale) / yarn_mscale(r->factor, r->mscale_all_dim);
    else y.m = yarn_mscale(r->factor, 1.0);
    return y;
}

static double scaled(const vb__rope_config *r, const yarn *y, double f, int32_t j) {
    switch (r->type) {
    case VB_ROPE_LINEAR: return f / r->factor;
    case VB_ROPE_LLAMA3: {
        double wave = 2.0 * pi / f;
        if (wave < r->original_max / r->high_freq_factor) return f;
        if (wave > r->original_max / r->low_freq_factor) return f / r->factor;
        double t = (r->original_max / wave - r->low_freq_factor) / (r->high_freq_factor - r->low_freq_factor);
        return (1.0 - t) * f / r->factor + t * f;
    }
    case VB_ROPE_YARN: {
        double t = (j - y->lo) / (y->hi - y->lo);
        t = t < 0.0 ? 0.0 : t > 1.0 ? 1.0 : t;
        return (1.0 - t) * f + t * (f / r->factor);
    }
    case VB_ROPE_DIVISORS: return f / r->divisors[j];
    case VB_ROPE_DEFAULT: break;
    }
    return f;
}

/* What the formulas divide by or take the logarithm of. NaN fails every comparison. */
static bool meaningful(const vb__rope_config *r) {
    if (!(r->rotated >= 2 && r->rotated % 2 == 0 && r->theta > 1.0)) return false;
    if (r->type == VB_ROPE_DEFAULT) return true;
    if (r->type == VB_ROPE_DIVISORS) {
        for (int32_t j = 0; j < r->rotated / 2; j++)
            if (j >= VB_MAX_ROPE_DIVISORS || !(r->divisors[j] > 0.0f)) return false;
        return true;
    }
    if (!(r->factor > 0.0)) return false;
    if (r->type == VB_ROPE_LINEAR) return true;
    if (!(r->original_max > 0.0)) return false;
    if (r->type == VB_ROPE_LLAMA3) return r->low_freq_factor > 0.0 && r->high_freq_factor > r->low_freq_factor;
    return r->beta_fast > 0.0 && r->beta_slow > 0.0;
}

vb_err vb__rope_freqs(const vb__rope_config *r, float *freqs, float *m, vb_error *err) {
    if ((unsigned)r->type > VB_ROPE_DIVISORS)
        return vb__fail(err, VB_E_UNSUPPORTED, "rope_type: number %d, expected default, linear, llama3, yarn or divisors", (int)r->type);
    if (!meaningful(r))
        return vb__fail(err, VB_E_FORMAT, "rope: numbers that give no frequencies, expected an even width, theta above 1, "
                                          "and positive factors in order");
    yarn y = {.m = 1.0};
    if (r->type == VB_ROPE_YARN) y = yarn_of(r);
    double log_theta = vb__log64(r->theta);
    for (int32_t j = 0; j < r->rotated / 2; j++)
        freqs[j] = (float)scaled(r, &y, vb__exp64(-(2.0 * j / r->rotated) * log_theta), j);
    *m = (float)y.m;
    return VB_OK;
}
