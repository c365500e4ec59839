/* conv: the short causal convolution of a gated delta-net layer for one head's channels and some rows of one
 * sequence, its silu, and (q and k heads) the l2 norm; keeps the tail
 *
 * The sequence's raw rows are, oldest first: the taps-1 rows of tail (zeros before the first token), the first
 * `replay` rows of tape_in (accepted rows of the call before), and this call's rows m. Row t of m gives
 *   c[t][i] = silu(sum over j of w[i][j] * raw row (t - (taps-1) + j)[i])
 * A call of a kernel makes rows of m from `before` on. The one with `keep` set then makes the tail the last taps-1
 * rows of what is certain: tail, replayed rows, m rows below `certain`. Raw rows from tape_from on are copied to
 * tape_out, perhaps past the caches: a store fence comes before another thread reads them.
 *
 * shapes    as in the struct; rows may be 0 (replay only)
 * limits    2 <= taps <= 8, 1 <= n <= 512, certain >= 0; `before` is 0 with keep, else at least taps-1; no
 *           alignment required; out and tape_out alias nothing
 * class     cpu: every variant returns the reference's bits
 * order     taps oldest first by fma from +0; silu of base/vmath.h; norm: 16 partial sums of squares over the n
 *           channels and their tree (ops/rmsnorm.h), then x * (1 / sqrt(sum + 1e-6)), then that * scale, each
 *           operation rounded. FTZ and DAZ on. NaN in, NaN out (payload unspecified). The tail is a copy.
 * threads   heads, sequences and pieces of rows are independent: only the piece with keep touches the tail
 * cost      reads 4*n*(rows + 2*taps) bytes, writes 4*n*(rows + taps), and what goes into the tape
 */
#ifndef VB_OPS_CONV_H
#define VB_OPS_CONV_H
#include "base/limits.h"
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum { VB_CONV_MAX_TAPS = VB_LIMIT_CONV_TAPS, VB_CONV_MAX_N = VB_LIMIT_DELTA_HEAD_DIM };

typedef struct vb__conv_head {
    int32_t n, taps, rows, certain, replay;
    int32_t before; /* rows of the call before row 0 of m: they lie before it in memory */
    const float *m; /* row t at m + t*ms */
    int64_t ms;
    const float *w; /* [n][taps], oldest tap first; may be NULL if rows is 0 */
    float *out;     /* row t at out + t*outs */
    int64_t outs;
    float *tail; /* row t at tail + t*tail_stride; taps-1 rows */
    int64_t tail_stride;
    const float *tape_in; /* row t at tape_in + t*tape_stride */
    int64_t tape_stride;
    bool keep, norm;
    float scale; /* with norm: 1 for k, 1/sqrt(n) for q */
    float *tape_out;   /* raw row t of m, t >= tape_from, goes to tape_out + (t - tape_from)*tape_stride; or NULL */
    int32_t tape_from; /* >= 0 */
    /* A head that follows soon lies `ask` channels behind, in m, w and tail, and has its rows at ask_out (or NULL): worth
     * asking for meanwhile. 0: none. */
    int64_t ask;
    const float *ask_out;
} vb__conv_head;

typedef void vb__conv_fn(const vb__conv_head *a);
vb__conv_fn vb__conv_ref, vb__conv_avx2, vb__conv_avx512;

/* Raw row t of the sequence as seen from row 0 of m: t >= -before in m, below that replayed rows, then the tail;
 * t >= -(taps-1) - replay. */
static inline const float *vb__conv_row(const vb__conv_head *a, int64_t t) {
    if (t >= -a->before) return a->m + t * a->ms;
    if (t >= -a->replay) return a->tape_in + (a->replay + t) * a->tape_stride;
    return a->tail + (a->taps - 1 + a->replay + t) * a->tail_stride;
}

/* The copies that follow the arithmetic: into the tape, if a variant has not made them on the way, and the tail. */
static inline void vb__conv_tape(const vb__conv_head *a) {
    if (a->tape_out == NULL) return;
    for (int64_t t = a->tape_from; t < a->rows; t++)
        memcpy(a->tape_out + (t - a->tape_from) * a->tape_stride, a->m + t * a->ms, (size_t)a->n * sizeof(float));
}
static inline void vb__conv_keep(const vb__conv_head *a) {
    if (!a->keep || a->certain + a->replay == 0) return;
    /* Ascending, because a row of the new tail may be a later row of the old one. */
    for (int64_t j = 0; j < a->taps - 1; j++)
        memmove(a->tail + j * a->tail_stride, vb__conv_row(a, a->certain - (a->taps - 1) + j), (size_t)a->n * sizeof(float));
}

#endif
