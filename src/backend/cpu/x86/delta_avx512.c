/* delta, AVX-512. Contract and order: ops/delta.h. A block of 32 columns is two zmm per row of the state and lies
 * in scratch, 16 KiB at dk 128. The update of step t and the decay of step t+1 touch the same element one after
 * the other, so they share a pass: one load and one store per element and step, four fma-class operations, two
 * chains (o of step t, u of step t+1) per vector. */
#include "backend/ops/delta.h"
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/vmath_avx512.h"
#include <stdbool.h>
#include <stddef.h>

enum { C = VB_DELTA_COLS };

void vb__delta_gates_avx512(VB_DELTA_GATES_ARGS) {
    for (int32_t t = 0; t < rows; t += 16) {
        int32_t n = rows - t < 16 ? rows - t : 16;
        __mmask16 m = vb__mask16(n);
        float at[16] = {0}, bt[16] = {0};
        for (int32_t i = 0; i < n; i++) {
            at[i] = a[(t + i) * as_];
            bt[i] = b[(t + i) * bs];
        }
        __m512 s = vb__softplus_avx512(_mm512_add_ps(_mm512_loadu_ps(at), _mm512_set1_ps(dt_bias)));
        _mm512_mask_storeu_ps(decay + t, m, vb__exp_avx512(_mm512_mul_ps(_mm512_set1_ps(neg_exp_a), s)));
        _mm512_mask_storeu_ps(beta + t, m, vb__sigmoid_avx512(_mm512_loadu_ps(bt)));
    }
}

typedef struct lanes {
    __m512 a, b; /* columns 0..15 and 16..31 */
} lanes;

static inline lanes load_masked(const float *p, __mmask16 ma, __mmask16 mb) {
    return (lanes){_mm512_maskz_loadu_ps(ma, p), _mm512_maskz_loadu_ps(mb, p + 16)};
}
static inline void store_masked(float *p, __mmask16 ma, __mmask16 mb, __m512 a, __m512 b) {
    _mm512_mask_storeu_ps(p, ma, a);
    _mm512_mask_storeu_ps(p + 16, mb, b);
}

/* N rows of the state from memory: replay, write back if nothing else will, decay of row 0 and its u. */
static inline __attribute__((always_inline)) lanes first_rows(const vb__delta_block *d, const int n, int64_t k0, lanes u,
                                                              __mmask16 ma, __mmask16 mb) {
    lanes s[4];
    const float *tk = d->in_k, *delta = d->scratch + VB_DELTA_SCRATCH_DELTA;
    for (int i = 0; i < n; i++) s[i] = load_masked(d->s + (k0 + i) * d->ss, ma, mb);
    for (int32_t t = 0; t < d->replay; t++) {
        __m512 g = _mm512_set1_ps(d->in_decay[t]);
        __m512 da = _mm512_load_ps(delta + t * C), db = _mm512_load_ps(delta + t * C + 16);
        for (int i = 0; i < n; i++) {
            __m512 k = _mm512_set1_ps(tk[t * d->dk + k0 + i]);
            s[i].a = _mm512_fmadd_ps(k, da, _mm512_mul_ps(g, s[i].a));
            s[i].b = _mm512_fmadd_ps(k, db, _mm512_mul_ps(g, s[i].b));
        }
    }
    if (d->certain == 0 && d->replay > 0)
        for (int i = 0; i < n; i++) store_masked(d->s + (k0 + i) * d->ss, ma, mb, s[i].a, s[i].b);
    if (d->rows == 0) return u;
    __m512 g = _mm512_set1_ps(d->decay[0]);
    for (int i = 0; i < n; i++) {
        __m512 k = _mm512_set1_ps(d->k[k0 + i]);
        __m512 a = _mm512_mul_ps(g, s[i].a), b = _mm512_mul_ps(g, s[i].b);
        u.a = _mm512_fmadd_ps(a, k, u.a);
        u.b = _mm512_fmadd_ps(b, k, u.b);
        _mm512_store_ps(d->scratch + (k0 + i) * C, a);
        _mm512_store_ps(d->scratch + (k0 + i) * C + 16, b);
    }
    return u;
}

/* A row's deltas into the tape, past the cache where they fill its lines: the tape is read in another call. */
static inline void store_delta(const vb__delta_block *d, int64_t t, __mmask16 ma, __mmask16 mb, __m512 a, __m512 b) {
    float *p = d->out_delta + (t - d->certain) * d->tape_stride;
    if (d->cols == C && ((uintptr_t)p & 63) == 0) {
        _mm512_stream_ps(p, a);
        _mm512_stream_ps(p + 16, b);
    } else {
        store_masked(p, ma, mb, a, b);
    }
}

/* Update and output of row t; unless it is the last, decay and u of row t+1. Returns that u. *ask is the next row
 * of the next block to ask for, `per` that many in a chunk. */
static inline __attribute__((always_inline)) lanes step(const vb__delta_block *d, int64_t t, lanes u, const bool write,
                                                        const bool last, __mmask16 ma, __mmask16 mb, int64_t *ask,
                                                        int64_t per) {
    const float *q = d->q + t * d->xs, *k = d->k + t * d->xs, *k_next = k + d->xs;
    __m512 beta = _mm512_set1_ps(d->beta[t]);
    lanes v = load_masked(d->v + t * d->xs, ma, mb);
    __m512 da = _mm512_mul_ps(beta, _mm512_sub_ps(v.a, u.a)), db = _mm512_mul_ps(beta, _mm512_sub_ps(v.b, u.b));
    if (t >= d->certain) store_delta(d, t, ma, mb, da, db);
    __m512 g = _mm512_set1_ps(last ? 0.0f : d->decay[t + 1]);
    __m512 oa = _mm512_setzero_ps(), ob = oa, ua = oa, ub = oa;
    float *s = d->scratch;
    vb__delta_ask_vo(d, t);
    for (int64_t i = 0; i < d->dk;) {
        vb__delta_ask_qk(d, t, i);
        *ask = vb__delta_ask_state(d, *ask, per);
        for (int64_t end = i + VB_DELTA_CHUNK < d->dk ? i + VB_DELTA_CHUNK : d->dk; i < end; i++, s += C) {
            __m512 ki = _mm512_set1_ps(k[i]), qi = _mm512_set1_ps(q[i]);
            __m512 a = _mm512_fmadd_ps(ki, da, _mm512_load_ps(s)), b = _mm512_fmadd_ps(ki, db, _mm512_load_ps(s + 16));
            oa = _mm512_fmadd_ps(a, qi, oa);
            ob = _mm512_fmadd_ps(b, qi, ob);
            if (write) store_masked(d->s + i * d->ss, ma, mb, a, b);
            if (last) continue;
            __m512 kn = _mm512_set1_ps(k_next[i]);
            a = _mm512_mul_ps(g, a);
            b = _mm512_mul_ps(g, b);
            ua = _mm512_fmadd_ps(a, kn, ua);
            ub = _mm512_fmadd_ps(b, kn, ub);
            _mm512_store_ps(s, a);
            _mm512_store_ps(s + 16, b);
        }
    }
    store_masked(d->o + t * d->os, ma, mb, oa, ob);
    return (lanes){ua, ub};
}

void vb__delta_avx512(const vb__delta_block *args) {
    /* A copy that no store can alias: its fields then stay in registers. */
    const vb__delta_block local = *args, *d = &local;
    __mmask16 ma = vb__mask16(d->cols), mb = vb__mask16(d->cols - 16);
    for (int64_t t = 0; t < d->replay; t++) {
        lanes v = load_masked(d->in_delta + t * d->tape_stride, ma, mb);
        float *delta = d->scratch + VB_DELTA_SCRATCH_DELTA + t * C;
        _mm512_store_ps(delta, v.a);
        _mm512_store_ps(delta + 16, v.b);
    }
    lanes u = {_mm512_setzero_ps(), _mm512_setzero_ps()};
    int32_t k = 0;
    for (; k + 4 <= d->dk; k += 4) u = first_rows(d, 4, k, u, ma, mb);
    for (; k < d->dk; k++) u = first_rows(d, 1, k, u, ma, mb);
    int64_t ask = 0, per = vb__delta_ask_rows(d);
    for (int64_t t = 0; t < d->rows; t++) {
        bool write = t == d->certain - 1, last = t == d->rows - 1;
        if (write && last) (void)step(d, t, u, true, true, ma, mb, &ask, per);
        else if (write) u = step(d, t, u, true, false, ma, mb, &ask, per);
        else if (last) (void)step(d, t, u, false, true, ma, mb, &ask, per);
        else u = step(d, t, u, false, false, ma, mb, &ask, per);
    }
}
