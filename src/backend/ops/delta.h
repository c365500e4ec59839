/* delta: the gated delta rule for a block of value columns of one value head of one sequence; gates: its decay
 * and beta
 *
 * State S [dk][cols] f32, row k at s + k*ss. In this order:
 *   1. `replay` rows of a tape: S = fma(k, delta, g * S)
 *   2. rows t = 0 .. rows-1:  S' = g * S;  u = sum over k of S'[k] * k_k;  delta = beta * (v - u);
 *      S = fma(k_k, delta, S');  o = sum over k of S[k] * q_k
 * The state in memory ends as it is after row certain-1 (certain = 0: after the replay); later rows step in
 * scratch and leave their delta: row certain + t at out_delta + t*tape_stride.
 * gates: decay = exp(neg_exp_a * softplus(a + dt_bias)), beta = sigmoid(b), per row.
 *
 * shapes    as in the struct; rows may be 0 (replay only)
 * limits    1 <= dk <= 512, 1 <= cols <= 64, 0 <= certain <= rows, 0 <= replay <= 16; no alignment required
 *           except of scratch; o and out_delta alias nothing
 * class     cpu: every variant returns the reference's bits
 * order     the sums are fma chains from +0, k ascending; v - u and beta * that are rounded, g * S is rounded;
 *           lanes run over columns. Gates: a + dt_bias, softplus, product, exp rounded one by one (base/vmath.h).
 *           FTZ and DAZ on. NaN in, NaN out (payload unspecified).
 * threads   sequences, heads and column blocks are independent
 * cost      reads and writes 4*dk*cols bytes of state once; 4*dk*cols fma-class operations a row, 2 a replayed
 *           row. Step t's update and step t+1's decay share one pass over scratch.
 */
#ifndef VB_OPS_DELTA_H
#define VB_OPS_DELTA_H
#include "base/limits.h"
#include <stddef.h>
#include <stdint.h>

enum { VB_DELTA_COLS = 64, VB_DELTA_MAX_DK = VB_LIMIT_DELTA_HEAD_DIM, VB_DELTA_MAX_REPLAY = 16 };
/* Floats of scratch for a kernel: the block's state, and the replayed deltas (whose stride in the tape may put them
 * all into the same few sets of the L1 cache). */
enum {
    VB_DELTA_SCRATCH_DELTA = VB_DELTA_MAX_DK * VB_DELTA_COLS,
    VB_DELTA_SCRATCH = VB_DELTA_SCRATCH_DELTA + VB_DELTA_MAX_REPLAY * VB_DELTA_COLS
};

typedef struct vb__delta_block {
    int32_t dk, cols, rows, certain, replay;
    float *s;
    int64_t ss;
    const float *q, *k, *v; /* row t at + t*xs; v of the block's columns */
    int64_t xs;
    const float *decay, *beta; /* [rows] */
    float *o;                  /* row t at o + t*os */
    int64_t os;
    const float *in_decay, *in_k; /* [replay], [replay][dk]: copies from the tape */
    const float *in_delta;        /* row t at + t*tape_stride */
    float *out_delta;
    int64_t tape_stride;
    const float *ask_s; /* a hint: like s, of the block that this thread takes next; or NULL */
    float *scratch; /* [VB_DELTA_SCRATCH], 64-byte aligned, contents undefined before and after */
} vb__delta_block;

/* Prefetches, so that memory is read while the steps compute. A step works through dk in chunks of 16. */
enum { VB_DELTA_CHUNK = 16 };

/* Rows of the next block's state to ask for in each chunk, so that all are asked for by the end. */
static inline int64_t vb__delta_ask_rows(const vb__delta_block *d) {
    if (d->ask_s == NULL || d->rows == 0) return 0;
    int64_t chunks = (int64_t)d->rows * ((d->dk + VB_DELTA_CHUNK - 1) / VB_DELTA_CHUNK);
    return (d->dk + chunks - 1) / chunks;
}
/* n more of them from `row` on; returns the row after. */
static inline int64_t vb__delta_ask_state(const vb__delta_block *d, int64_t row, int64_t n) {
    for (; n > 0 && row < d->dk; n--, row++)
        for (int32_t c = 0; c < d->cols; c += 16) __builtin_prefetch(d->ask_s + row * d->ss + c, 0, 2);
    return row;
}
/* What step t+1 reads and writes: its v and o, its q and the k of the step after that. (A store to what is not in
 * the cache would hold up the stores of a whole pass behind it.) */
static inline void vb__delta_ask_vo(const vb__delta_block *d, int64_t t) {
    int64_t next = t + 1 < d->rows ? t + 1 : t;
    for (int32_t c = 0; c < d->cols; c += 16) {
        __builtin_prefetch(d->v + next * d->xs + c);
        __builtin_prefetch(d->o + next * d->os + c, 1);
    }
}
static inline void vb__delta_ask_qk(const vb__delta_block *d, int64_t t, int64_t i) {
    __builtin_prefetch(d->q + (t + 1 < d->rows ? t + 1 : t) * d->xs + i);
    __builtin_prefetch(d->k + (t + 2 < d->rows ? t + 2 : t) * d->xs + i);
}

#define VB_DELTA_GATES_ARGS                                                                                  \
    float *decay, float *beta, const float *a, int64_t as_, const float *b, int64_t bs, float neg_exp_a,       \
        float dt_bias, int32_t rows
typedef void vb__delta_fn(const vb__delta_block *a);
typedef void vb__delta_gates_fn(VB_DELTA_GATES_ARGS);
vb__delta_fn vb__delta_ref, vb__delta_avx2, vb__delta_avx512;
vb__delta_gates_fn vb__delta_gates_ref, vb__delta_gates_avx2, vb__delta_gates_avx512;

#endif
