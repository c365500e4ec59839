/* delta, AVX2. Contract and order: ops/delta.h. As the AVX-512 form with four ymm per row of the state: the update
 * of step t and the decay of step t+1 share a pass over a block of 32 columns in L1. */
#include "backend/ops/delta.h"
#include "backend/cpu/x86/lanes_avx2.h"
#include "backend/cpu/x86/vmath_avx2.h"
#include <stdbool.h>
#include <stddef.h>

enum { C = 32, V = C / 8 /* vectors of a row */ };
#define INLINE static inline __attribute__((always_inline))

void vb__delta_gates_avx2(VB_DELTA_GATES_ARGS) {
    for (int32_t t = 0; t < rows; t += 8) {
        int32_t n = rows - t < 8 ? rows - t : 8;
        float at[8] = {0}, bt[8] = {0};
        for (int32_t i = 0; i < n; i++) {
            at[i] = a[(t + i) * as_];
            bt[i] = b[(t + i) * bs];
        }
        __m256 s = vb__softplus_avx2(_mm256_add_ps(_mm256_loadu_ps(at), _mm256_set1_ps(dt_bias)));
        vb__store_part_avx2(decay + t, vb__exp_avx2(_mm256_mul_ps(_mm256_set1_ps(neg_exp_a), s)), n);
        vb__store_part_avx2(beta + t, vb__sigmoid_avx2(_mm256_loadu_ps(bt)), n);
    }
}

/* Vector i of a row in memory; a full block needs no masks. */
INLINE __m256 load(const float *p, int i, bool full, int32_t cols) {
    return full ? _mm256_loadu_ps(p + 8 * i) : vb__load_part_avx2(p + 8 * i, cols - 8 * i);
}
INLINE void store(float *p, int i, __m256 v, bool full, int32_t cols) {
    if (full) _mm256_storeu_ps(p + 8 * i, v);
    else vb__store_part_avx2(p + 8 * i, v, cols - 8 * i);
}

/* n (1 or 2) rows of the state from memory: replay, write back if nothing else will, decay of row 0 and its u. */
INLINE void first_rows(const vb__delta_block *d, const int n, int64_t k0, __m256 *u, const bool full) {
    const float *tk = d->in_k, *delta = d->scratch + VB_DELTA_SCRATCH_DELTA;
    int32_t cols = d->cols;
    __m256 s[2][V];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < V; i++) s[r][i] = load(d->s + (k0 + r) * d->ss, i, full, cols);
    for (int32_t t = 0; t < d->replay; t++) {
        __m256 g = _mm256_set1_ps(d->in_decay[t]);
        for (int r = 0; r < n; r++) {
            __m256 k = _mm256_set1_ps(tk[t * d->dk + k0 + r]);
            for (int i = 0; i < V; i++)
                s[r][i] = _mm256_fmadd_ps(k, _mm256_load_ps(delta + t * C + 8 * i), _mm256_mul_ps(g, s[r][i]));
        }
    }
    if (d->certain == 0 && d->replay > 0)
        for (int r = 0; r < n; r++)
            for (int i = 0; i < V; i++) store(d->s + (k0 + r) * d->ss, i, s[r][i], full, cols);
    if (d->rows == 0) return;
    __m256 g = _mm256_set1_ps(d->decay[0]);
    for (int r = 0; r < n; r++) {
        __m256 k = _mm256_set1_ps(d->k[k0 + r]);
        for (int i = 0; i < V; i++) {
            __m256 a = _mm256_mul_ps(g, s[r][i]);
            u[i] = _mm256_fmadd_ps(a, k, u[i]);
            _mm256_store_ps(d->scratch + (k0 + r) * C + 8 * i, a);
        }
    }
}

/* Update and output of row t; unless it is the last, decay and u of row t+1 (u holds row t's, then row t+1's). *ask
 * is the next row of the next block to ask for, `per` that many in a chunk. */
INLINE void step(const vb__delta_block *d, int64_t t, __m256 *u, const bool write, const bool last, const bool full,
                 int64_t *ask, int64_t per) {
    const float *q = d->q + t * d->xs, *k = d->k + t * d->xs, *k_next = k + d->xs;
    int32_t cols = d->cols;
    __m256 delta[V], o[V];
    float *tape = t >= d->certain ? d->out_delta + (t - d->certain) * d->tape_stride : NULL;
    bool stream = full && ((uintptr_t)tape & 63) == 0; /* whole lines, and read in another call only */
    for (int i = 0; i < V; i++) {
        __m256 v = load(d->v + t * d->xs, i, full, cols);
        delta[i] = _mm256_mul_ps(_mm256_set1_ps(d->beta[t]), _mm256_sub_ps(v, u[i]));
        o[i] = u[i] = _mm256_setzero_ps();
    }
    for (int i = 0; i < V && tape != NULL; i++) {
        if (stream) _mm256_stream_ps(tape + 8 * i, delta[i]);
        else store(tape, i, delta[i], full, cols);
    }
    __m256 g = _mm256_set1_ps(last ? 0.0f : d->decay[t + 1]);
    float *s = d->scratch;
    vb__delta_ask_vo(d, t);
    for (int64_t r = 0; r < d->dk;) {
        vb__delta_ask_qk(d, t, r);
        *ask = vb__delta_ask_state(d, *ask, per);
        for (int64_t end = r + VB_DELTA_CHUNK < d->dk ? r + VB_DELTA_CHUNK : d->dk; r < end; r++, s += C) {
            __m256 kr = _mm256_set1_ps(k[r]), qr = _mm256_set1_ps(q[r]), kn = last ? qr : _mm256_set1_ps(k_next[r]);
            for (int i = 0; i < V; i++) {
                __m256 a = _mm256_fmadd_ps(kr, delta[i], _mm256_load_ps(s + 8 * i));
                o[i] = _mm256_fmadd_ps(a, qr, o[i]);
                if (write) store(d->s + r * d->ss, i, a, full, cols);
                if (last) continue;
                a = _mm256_mul_ps(g, a);
                u[i] = _mm256_fmadd_ps(a, kn, u[i]);
                _mm256_store_ps(s + 8 * i, a);
            }
        }
    }
    for (int i = 0; i < V; i++) store(d->o + t * d->os, i, o[i], full, cols);
}

INLINE void run(const vb__delta_block *d, const bool full) {
    for (int64_t t = 0; t < d->replay; t++) {
        float *delta = d->scratch + VB_DELTA_SCRATCH_DELTA + t * C;
        for (int i = 0; i < V; i++) _mm256_store_ps(delta + 8 * i, load(d->in_delta + t * d->tape_stride, i, full, d->cols));
    }
    __m256 u[V];
    for (int i = 0; i < V; i++) u[i] = _mm256_setzero_ps();
    int32_t k = 0;
    for (; k + 2 <= d->dk; k += 2) first_rows(d, 2, k, u, full);
    for (; k < d->dk; k++) first_rows(d, 1, k, u, full);
    int64_t ask = 0, per = vb__delta_ask_rows(d);
    for (int64_t t = 0; t < d->rows; t++) {
        bool write = t == d->certain - 1, last = t == d->rows - 1;
        if (write && last) step(d, t, u, true, true, full, &ask, per);
        else if (write) step(d, t, u, true, false, full, &ask, per);
        else if (last) step(d, t, u, false, true, full, &ask, per);
        else step(d, t, u, false, false, full, &ask, per);
    }
}

void vb__delta_avx2(const vb__delta_block *args) {
    /* A copy that no store can alias: its fields then stay in registers. */
    vb__delta_block local = *args;
    for (int32_t left = args->cols; left > 0; left -= C) { /* a wider block is several */
        local.cols = left < C ? left : C;
        const vb__delta_block part = local;
        if (part.cols == C) run(&part, true);
        else run(&part, false);
        local.s += C;
        local.v += C;
        local.o += C;
        if (local.in_delta != NULL) local.in_delta += C;
        if (local.out_delta != NULL) local.out_delta += C;
        if (local.ask_s != NULL) local.ask_s += C;
    }
}
