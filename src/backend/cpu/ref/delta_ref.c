/* delta, C reference. Contract and order: ops/delta.h. */
#include "backend/ops/delta.h"
#include "base/vmath.h"

void vb__delta_gates_ref(VB_DELTA_GATES_ARGS) {
    for (int64_t t = 0; t < rows; t++) {
        decay[t] = vb__expf(neg_exp_a * vb__softplusf(a[t * as_] + dt_bias));
        beta[t] = vb__sigmoidf(b[t * bs]);
    }
}

/* The block's state into memory. */
static void write_back(const vb__delta_block *a, const float *state) {
    for (int64_t k = 0; k < a->dk; k++)
        for (int32_t c = 0; c < a->cols; c++) a->s[k * a->ss + c] = state[k * a->cols + c];
}

void vb__delta_ref(const vb__delta_block *a) {
    int32_t cols = a->cols;
    float *state = a->scratch;
    for (int64_t k = 0; k < a->dk; k++)
        for (int32_t c = 0; c < cols; c++) state[k * cols + c] = a->s[k * a->ss + c];

    for (int64_t t = 0; t < a->replay; t++) {
        const float *tk = a->in_k + t * a->dk, *delta = a->in_delta + t * a->tape_stride;
        float g = a->in_decay[t];
        for (int64_t k = 0; k < a->dk; k++)
            for (int32_t c = 0; c < cols; c++) {
                float *s = &state[k * cols + c];
                *s = __builtin_fmaf(tk[k], delta[c], g * *s);
            }
    }
    if (a->certain == 0 && a->replay > 0) write_back(a, state);

    for (int64_t t = 0; t < a->rows; t++) {
        const float *q = a->q + t * a->xs, *tk = a->k + t * a->xs, *v = a->v + t * a->xs;
        for (int32_t c = 0; c < cols; c++) {
            float u = 0.0f, o = 0.0f;
            for (int64_t k = 0; k < a->dk; k++) {
                float *s = &state[k * cols + c];
                *s = a->decay[t] * *s;
                u = __builtin_fmaf(*s, tk[k], u);
            }
            float delta = a->beta[t] * (v[c] - u);
            for (int64_t k = 0; k < a->dk; k++) {
                float *s = &state[k * cols + c];
                *s = __builtin_fmaf(tk[k], delta, *s);
                o = __builtin_fmaf(*s, q[k], o);
            }
            a->o[t * a->os + c] = o;
            if (t >= a->certain) a->out_delta[(t - a->certain) * a->tape_stride + c] = delta;
        }
        if (t == a->certain - 1) write_back(a, state);
    }
}
