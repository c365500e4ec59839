/* attention: one query row and head over the visible keys of its sequence.
 *
 * shapes    q, gate, o: dim values f32 per (row, head); K and V bf16 in pages (ops/kv_append.h)
 * limits    dim even, 2..256; any context; scale f32
 * visible   row at position p sees keys lo <= key < hi: hi = visible_end, or p+1 when that is 0;
 *           lo = max(0, p-window+1), or 0 when window is 0
 * order     q to_bf16. Block b is positions 64b..64b+63; blocks without a visible key are skipped. In a
 * block: dot(q, k) in linear_bf16 order over dim: per 32 k-values (dim padded with zeros) the even and the
 * odd products run in two fma chains from +0, k ascending; the chains are added; that sum is added to the
 * accumulator, which starts at +0 s = dot * scale for visible keys; m_b = the largest visible s that is not a
 * NaN, -inf if none p = to_bf16(exp(s - m_b)), p = +0 for masked keys l_b = sum of p, o_b[d] = sum of p *
 * v[d], both in linear_bf16 order over all 64 keys (l_b: v = 1) Blocks fold, ascending, within a span of 1024
 * positions (from position 0): M = max(m, m_b), alpha = exp(m - M), beta = exp(m_b - M), l = fma(l, alpha,
 * l_b * beta), o likewise, m = M. The first block with a visible key of a span is copied. Spans fold the same
 * way, ascending; the first copied. Result r = o / l + (+0), or +0 for a row that sees no key; with a gate r
 * * (1 / (1 + exp(-gate))), every operation rounded. class     cpu: every variant returns the reference's
 * bits; a NaN result is a NaN (payload unspecified)
 *
 * Why the other rows of a page cannot matter. Rows beyond a sequence's length, or beyond this row's own
 * position, hold zeros, rejected drafts or later rows of the same call: finite always (kv_append). Their p is
 * +0.
 *   - fma(+0, v, c) = c for every c that is not a zero, and a zero otherwise. So such a row can at most
 *     decide the sign of a zero c: a chain starts at +0 and stays +0 through such terms (+0 + -0 = +0), but
 * one that a negative underflow has flushed to -0 comes out as +0 or -0, after the sign of v.
 *   - A zero of either sign, as a term, gives the same sum with anything that is not a zero. So that
 * difference stays one in the sign of a zero through chains, blocks, folds and the division, and the addition
 * of +0 at the end removes it (-0 + +0 = +0): the result does not depend on it. The same argument covers
 * zeros in scores (s - m_b and exp take both zeros alike), so zeros of either sign may pad dim, and maxima
 * may return either zero. NaN: pages are finite, so a score is a NaN only through q (a value that is not
 * finite, or an overflow). Then that key's p is NaN, l_b, l and so all of r are NaN; the same where the
 * largest score is an infinity.
 *
 * threads   (sequence, KV head, lanes, spans) are items; within a block a lane is never split
 * cost      a lane and visible block: 64*dim*4 FLOPs of dot products, each for q and p; K and V are 64*dim*4
 * bytes
 */
#ifndef VB_OPS_ATTENTION_H
#define VB_OPS_ATTENTION_H
#include "base/limits.h"
#include <stdbool.h>
#include <stdint.h>

enum {
    VB_ATTN_BLOCK = 64,
    VB_ATTN_SPAN_BLOCKS = 16,
    VB_ATTN_LANES = 64, /* (row, head) pairs of a tile */
    VB_ATTN_DIM = VB_LIMIT_HEAD_DIM, /* largest dim */
    /* Bytes of scratch that a tile kernel may use (64-byte aligned). */
    VB_ATTN_SCRATCH = 256 * 1024
};

/* Lanes that share K and V: `heads` query heads of one KV head, for `rows` consecutive rows of one sequence.
 * Lane r*heads + h is row r, head h. */
typedef struct vb__attn_tile {
    const float *q; /* row r, head h at q + r*qs + h*qh */
    int64_t qs, qh;
    int32_t rows, heads; /* rows * heads <= VB_ATTN_LANES */
    int32_t dim;
    float scale;
    uint8_t *const *pages; /* page i holds positions 64i.. */
    int64_t k_off;         /* bytes from a page to the KV head's K; V follows it */
    int32_t pos0;          /* position of row 0 */
    int32_t visible_end, window;
    int32_t key_lo, key_hi; /* key_hi > 0: only keys key_lo..key_hi-1 (the planted fault) */
    void *scratch;
} vb__attn_tile;

/* Visible keys lo..hi-1 of a row of the tile (lo >= hi: none). */
static inline void vb__attn_visible(const vb__attn_tile *t, int32_t row, int32_t *lo, int32_t *hi) {
    int32_t p = t->pos0 + row;
    *hi = t->visible_end > 0 ? t->visible_end : p + 1;
    *lo = t->window > 0 && p - t->window + 1 > 0 ? p - t->window + 1 : 0;
    if (t->key_hi == 0) return;
    if (*lo < t->key_lo) *lo = t->key_lo;
    if (*hi > t->key_hi) *hi = t->key_hi;
}

/* A partial result, (m, l, o) of every lane of a tile: floats m[L], l[L], o[lanes][O]; L is lanes rounded up
 * to 16, O dim rounded up to 16 and 16 more, so that the rows of a tile do not fall on the same cache sets. l
 * == 0 says that the lane has seen no key yet (else l >= 1, or a NaN). 64-byte aligned. Elements beyond lanes
 * and dim are unspecified. */
static inline int32_t vb__attn_round16(int32_t n) {
    return (n + 15) & ~15;
}
static inline int32_t vb__attn_o_stride(int32_t dim) {
    return vb__attn_round16(dim) + 16;
}
static inline int64_t vb__attn_part_floats(int32_t lanes, int32_t dim) {
    return 2 * vb__attn_round16(lanes) + (int64_t)lanes * vb__attn_o_stride(dim);
}
static inline float *vb__attn_part_o(float *part, int32_t lanes, int32_t lane, int32_t dim) {
    return part + 2 * vb__attn_round16(lanes) + (int64_t)lane * vb__attn_o_stride(dim);
}

/* Blocks b0..b1-1, all of one span. each: one partial per block, at part, part + vb__attn_part_floats, ...;
 * else the fold of them all. */
typedef void vb__attn_blocks_fn(const vb__attn_tile *t, int32_t b0, int32_t b1, bool each, float *part);
/* Folds partial `b` into `a`, lanes lane0..lane1-1: a copy where a has seen nothing; b unchanged where b has
 * not. */
#define VB_ATTN_FOLD_ARGS float *a, const float *b, int32_t lanes, int32_t lane0, int32_t lane1, int32_t dim
typedef void vb__attn_fold_fn(VB_ATTN_FOLD_ARGS);
/* One lane's result, o[0..dim-1]; gate may be NULL. */
#define VB_ATTN_FINISH_ARGS float *o, const float *po, float l, const float *gate, int32_t dim
typedef void vb__attn_finish_fn(VB_ATTN_FINISH_ARGS);

vb__attn_blocks_fn vb__attn_blocks_ref, vb__attn_blocks_avx2, vb__attn_blocks_avx512, vb__attn_blocks_amx;
vb__attn_fold_fn vb__attn_fold_ref, vb__attn_fold_avx2, vb__attn_fold_avx512;
vb__attn_finish_fn vb__attn_finish_ref, vb__attn_finish_avx2, vb__attn_finish_avx512;

/* The whole of one row and head, literally: the judge of tests. The tile has one lane; gate may be NULL. */
void vb__attn_row_ref(const vb__attn_tile *t, const float *gate, float *o);

#endif
