/* attention, the reference. Contract and order: ops/attention.h. */
#include "backend/ops/attention.h"
#include "backend/ops/kv_append.h"
#include "base/bf16.h"
#include "base/vmath.h"
#include <math.h>

enum { BLOCK = VB_ATTN_BLOCK, DIM = VB_ATTN_DIM };

/* The sum of a[i] * b[i] in linear_bf16 order; n is padded to a multiple of 32 with zeros. */
static float dot_bf16(const float *a, const float *b, int32_t n) {
    float acc = 0.0f;
    for (int32_t k = 0; k < n; k += 32) {
        float even = 0.0f, odd = 0.0f;
        for (int32_t i = k; i < k + 32; i += 2) {
            even = fmaf(i < n ? a[i] : 0.0f, i < n ? b[i] : 0.0f, even);
            odd = fmaf(i + 1 < n ? a[i + 1] : 0.0f, i + 1 < n ? b[i + 1] : 0.0f, odd);
        }
        acc = acc + (even + odd);
    }
    return acc;
}

/* (m_b, l_b, o_b) of block b for a lane with visible keys lo..hi-1, at least one of them in the block. */
static void block_ref(const vb__attn_tile *t, const float *q, int32_t b, int32_t lo, int32_t hi, float *m,
                      float *l, float *o) {
    int32_t dim = t->dim;
    const uint16_t *kp = (const uint16_t *)(const void *)(t->pages[b] + t->k_off);
    const uint16_t *vp = kp + BLOCK * dim;
    float s[BLOCK], p[BLOCK], x[DIM];
    *m = -INFINITY;
    for (int32_t j = 0; j < BLOCK; j++) {
        int32_t key = b * BLOCK + j;
        if (key < lo || key >= hi) continue;
        for (int32_t d = 0; d < dim; d++) x[d] = vb__from_bf16(kp[vb__kv_k_index(dim, j, d)]);
        s[j] = dot_bf16(q, x, dim) * t->scale;
        if (s[j] > *m) *m = s[j];
    }
    for (int32_t j = 0; j < BLOCK; j++) {
        int32_t key = b * BLOCK + j;
        p[j] = key < lo || key >= hi ? 0.0f : vb__from_bf16(vb__to_bf16(vb__expf(s[j] - *m)));
    }
    for (int32_t j = 0; j < BLOCK; j++) x[j] = 1.0f;
    *l = dot_bf16(p, x, BLOCK);
    for (int32_t d = 0; d < dim; d++) {
        for (int32_t j = 0; j < BLOCK; j++) x[j] = vb__from_bf16(vp[vb__kv_v_index(dim, j, d)]);
        o[d] = dot_bf16(p, x, BLOCK);
    }
}

/* Folds (mb, lb, ob) into (m, l, o); a copy while l is 0, nothing while lb is 0. */
static void fold_ref(float *m, float *l, float *o, float mb, float lb, const float *ob, int32_t dim) {
    if (lb == 0.0f) return;
    if (*l == 0.0f) {
        *m = mb;
        *l = lb;
        for (int32_t d = 0; d < dim; d++) o[d] = ob[d];
        return;
    }
    float big = mb > *m ? mb : *m;
    float alpha = vb__expf(*m - big), beta = vb__expf(mb - big);
    *m = big;
    *l = fmaf(*l, alpha, lb * beta);
    for (int32_t d = 0; d < dim; d++) o[d] = fmaf(o[d], alpha, ob[d] * beta);
}

static void round_query(const vb__attn_tile *t, int32_t lane, float *q) {
    const float *src = t->q + lane / t->heads * t->qs + lane % t->heads * t->qh;
    for (int32_t d = 0; d < t->dim; d++) q[d] = vb__from_bf16(vb__to_bf16(src[d]));
}

static bool block_visible(int32_t b, int32_t lo, int32_t hi) {
    int32_t first = b * BLOCK > lo ? b * BLOCK : lo, end = (b + 1) * BLOCK < hi ? (b + 1) * BLOCK : hi;
    return first < end;
}

void vb__attn_blocks_ref(const vb__attn_tile *t, int32_t b0, int32_t b1, bool each, float *part) {
    int32_t lanes = t->rows * t->heads, lp = vb__attn_round16(lanes);
    float q[DIM], ob[DIM], mb, lb;
    int32_t n = each ? b1 - b0 : 1;
    for (int32_t lane = 0; lane < lanes; lane++) {
        int32_t lo, hi;
        vb__attn_visible(t, lane / t->heads, &lo, &hi);
        round_query(t, lane, q);
        float *out = part;
        for (int32_t i = 0; i < n; i++, out += vb__attn_part_floats(lanes, t->dim)) out[lp + lane] = 0.0f;
        out = part;
        for (int32_t b = b0; b < b1; b++) {
            if (block_visible(b, lo, hi)) {
                block_ref(t, q, b, lo, hi, &mb, &lb, ob);
                fold_ref(&out[lane], &out[lp + lane], vb__attn_part_o(out, lanes, lane, t->dim), mb, lb, ob,
                         t->dim);
            }
            if (each) out += vb__attn_part_floats(lanes, t->dim);
        }
    }
}

void vb__attn_fold_ref(VB_ATTN_FOLD_ARGS) {
    int32_t lp = vb__attn_round16(lanes);
    int64_t o0 = 2 * lp, os = vb__attn_o_stride(dim);
    for (int32_t i = lane0; i < lane1; i++)
        fold_ref(&a[i], &a[lp + i], a + o0 + i * os, b[i], b[lp + i], b + o0 + i * os, dim);
}

void vb__attn_finish_ref(VB_ATTN_FINISH_ARGS) {
    for (int32_t d = 0; d < dim; d++) {
        float r = l == 0.0f ? 0.0f : po[d] / l + 0.0f;
        o[d] = gate == NULL ? r : r * vb__sigmoidf(gate[d]);
    }
}

void vb__attn_row_ref(const vb__attn_tile *t, const float *gate, float *o) {
    float q[DIM], ob[DIM], so[DIM], ro[DIM];
    float mb, lb, sm = 0.0f, sl = 0.0f, rm = 0.0f, rl = 0.0f;
    int32_t lo, hi;
    vb__attn_visible(t, 0, &lo, &hi);
    round_query(t, 0, q);
    for (int32_t b = 0; b * BLOCK < hi; b++) {
        if (b % VB_ATTN_SPAN_BLOCKS == 0) { /* a span ends: into the result */
            fold_ref(&rm, &rl, ro, sm, sl, so, t->dim);
            sl = 0.0f;
        }
        if (!block_visible(b, lo, hi)) continue;
        block_ref(t, q, b, lo, hi, &mb, &lb, ob);
        fold_ref(&sm, &sl, so, mb, lb, ob, t->dim);
    }
    fold_ref(&rm, &rl, ro, sm, sl, so, t->dim);
    vb__attn_finish_ref(o, ro, rl, gate, t->dim);
}
