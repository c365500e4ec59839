/* delta, AVX-512. Contract and order: ops/delta.h. A block lies in scratch, 16 KiB at dk 128 and 32 columns. The
 * update of step t and the decay of step t+1 touch the same element one after the other, so they share a pass: one
 * load and one store per element and step, four fma-class operations, two chains (o of step t, u of step t+1) per
 * vector. Two vectors of a row keep both fma units just busy enough for a latency of 4; four leave them slack. */
#include "backend/ops/delta.h"
#include "backend/cpu/x86/lanes_avx512.h"
#include "backend/cpu/x86/vmath_avx512.h"
#include <stdbool.h>
#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 4")

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

/* Vector i of a row in memory; a full block needs no masks. */
INLINE __m512 load(const float *p, int i, const bool full, int32_t cols) {
    return full ? _mm512_loadu_ps(p + 16 * i) : _mm512_maskz_loadu_ps(vb__mask16(cols - 16 * i), p + 16 * i);
}
INLINE void store(float *p, int i, __m512 v, const bool full, int32_t cols) {
    if (full) _mm512_storeu_ps(p + 16 * i, v);
    else _mm512_mask_storeu_ps(p + 16 * i, vb__mask16(cols - 16 * i), v);
}

/* n rows of the state, V vectors each, from memory: replay, write back if nothing else will, decay of row 0 and its u. */
INLINE void first_rows(const vb__delta_block *d, const int V, const int n, int64_t k0, __m512 *u, const bool full) {
    __m512 s[4][4];
    const float *tk = d->in_k, *delta = d->scratch + VB_DELTA_SCRATCH_DELTA;
    int32_t cols = d->cols;
    UNROLL for (int r = 0; r < n; r++)
        UNROLL for (int i = 0; i < V; i++) s[r][i] = load(d->s + (k0 + r) * d->ss, i, full, cols);
    for (int32_t t = 0; t < d->replay; t++) {
        __m512 g = _mm512_set1_ps(d->in_decay[t]);
        UNROLL for (int r = 0; r < n; r++) {
            __m512 k = _mm512_set1_ps(tk[t * d->dk + k0 + r]);
            UNROLL for (int i = 0; i < V; i++)
                s[r][i] = _mm512_fmadd_ps(k, _mm512_load_ps(delta + 16 * (t * V + i)), _mm512_mul_ps(g, s[r][i]));
        }
    }
    if (d->certain == 0 && d->replay > 0)
        UNROLL for (int r = 0; r < n; r++)
            UNROLL for (int i = 0; i < V; i++) store(d->s + (k0 + r) * d->ss, i, s[r][i], full, cols);
    if (d->rows == 0) return;
    __m512 g = _mm512_set1_ps(d->decay[0]);
    UNROLL for (int r = 0; r < n; r++) {
        __m512 k = _mm512_set1_ps(d->k[k0 + r]);
        UNROLL for (int i = 0; i < V; i++) {
            __m512 a = _mm512_mul_ps(g, s[r][i]);
            u[i] = _mm512_fmadd_ps(a, k, u[i]);
            _mm512_store_ps(d->scratch + 16 * ((k0 + r) * V + i), a);
        }
    }
}

/* A row's deltas into the tape, past the cache where they fill its lines: the tape is read in another call. */
INLINE void store_delta(const vb__delta_block *d, const int V, int64_t t, const __m512 *delta, const bool full) {
    float *p = d->out_delta + (t - d->certain) * d->tape_stride;
    bool stream = full && ((uintptr_t)p & 63) == 0;
    UNROLL for (int i = 0; i < V; i++) {
        if (stream) _mm512_stream_ps(p + 16 * i, delta[i]);
        else store(p, i, delta[i], full, d->cols);
    }
}

/* Update and output of row t; unless it is the last, decay and u of row t+1 (u holds row t's, then row t+1's). *ask
 * is the next row of the next block to ask for, `per` that many in a chunk. */
INLINE void step(const vb__delta_block *d, const int V, int64_t t, __m512 *u, const bool write, const bool last, const bool full,
                 int64_t *ask, int64_t per) {
    const float *q = d->q + t * d->xs, *k = d->k + t * d->xs, *k_next = last ? q : k + d->xs;
    __m512 beta = _mm512_set1_ps(d->beta[t]), delta[4], o[4];
    UNROLL for (int i = 0; i < V; i++) {
        delta[i] = _mm512_mul_ps(beta, _mm512_sub_ps(load(d->v + t * d->xs, i, full, d->cols), u[i]));
        o[i] = u[i] = _mm512_setzero_ps();
    }
    if (t >= d->certain) store_delta(d, V, t, delta, full);
    __m512 g = _mm512_set1_ps(last ? 0.0f : d->decay[t + 1]);
    float *s = d->scratch;
    vb__delta_ask_vo(d, t);
    for (int64_t r = 0; r < d->dk;) {
        vb__delta_ask_qk(d, t, r);
        *ask = vb__delta_ask_state(d, *ask, per);
        for (int64_t end = r + VB_DELTA_CHUNK < d->dk ? r + VB_DELTA_CHUNK : d->dk; r < end; r++, s += 16 * V) {
            __m512 kr = _mm512_set1_ps(k[r]), qr = _mm512_set1_ps(q[r]), kn = _mm512_set1_ps(k_next[r]);
            UNROLL for (int i = 0; i < V; i++) {
                __m512 a = _mm512_fmadd_ps(kr, delta[i], _mm512_load_ps(s + 16 * i));
                o[i] = _mm512_fmadd_ps(a, qr, o[i]);
                if (write) store(d->s + r * d->ss, i, a, full, d->cols);
                if (last) continue;
                a = _mm512_mul_ps(g, a);
                u[i] = _mm512_fmadd_ps(a, kn, u[i]);
                _mm512_store_ps(s + 16 * i, a);
            }
        }
    }
    UNROLL for (int i = 0; i < V; i++) store(d->o + t * d->os, i, o[i], full, d->cols);
}

INLINE void run(const vb__delta_block *d, const int V, const bool full) {
    __m512 u[4];
    for (int64_t t = 0; t < d->replay; t++) {
        float *delta = d->scratch + VB_DELTA_SCRATCH_DELTA + 16 * t * V;
        UNROLL for (int i = 0; i < V; i++) _mm512_store_ps(delta + 16 * i, load(d->in_delta + t * d->tape_stride, i, full, d->cols));
    }
    UNROLL for (int i = 0; i < V; i++) u[i] = _mm512_setzero_ps();
    int32_t k = 0;
    for (; k + 4 <= d->dk; k += 4) first_rows(d, V, 4, k, u, full);
    for (; k < d->dk; k++) first_rows(d, V, 1, k, u, full);
    int64_t ask = 0, per = vb__delta_ask_rows(d);
    for (int64_t t = 0; t < d->rows; t++) {
        bool write = t == d->certain - 1, last = t == d->rows - 1;
        if (write && last) step(d, V, t, u, true, true, full, &ask, per);
        else if (write) step(d, V, t, u, true, false, full, &ask, per);
        else if (last) step(d, V, t, u, false, true, full, &ask, per);
        else step(d, V, t, u, false, false, full, &ask, per);
    }
}

void vb__delta_avx512(const vb__delta_block *args) {
    /* A copy that no store can alias: its fields then stay in registers. */
    const vb__delta_block local = *args;
    if (local.cols == 64) run(&local, 4, true);
    else if (local.cols == 32) run(&local, 2, true);
    else if (local.cols > 32) run(&local, 4, false);
    else run(&local, 2, false);
}
