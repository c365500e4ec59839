/* What all vector variants of attention share: the lanes of a tile. Static inline only, no vector code. */
#ifndef VB_X86_ATTENTION_LANES_H
#define VB_X86_ATTENTION_LANES_H
#include "backend/ops/attention.h"

/* Per lane of a tile: its visible keys, and the state of the fold. m and l live in the partial. */
typedef struct attn_lanes {
    int32_t lo[VB_ATTN_LANES], hi[VB_ATTN_LANES];
    _Alignas(64) float mb[VB_ATTN_LANES];
    _Alignas(64) float lb[VB_ATTN_LANES];
    _Alignas(64) float alpha[VB_ATTN_LANES];
    _Alignas(64) float beta[VB_ATTN_LANES];
    uint64_t seen[VB_ATTN_LANES]; /* visible keys of the block, bit j key j */
    int32_t all_lo, all_hi;       /* keys that every lane sees */
    bool all;                     /* seen is all ones in every lane */
    int32_t end;                  /* keys of the block behind the last one that a lane sees: their p are +0, and what is not
                                   * added for them changes at most the sign of a zero (ops/attention.h) */
} attn_lanes;

/* Scores are multiplied by a scale that is positive and normal: then the largest score is the product of the largest dot,
 * because rounding keeps order. Any other scale is applied here to the dots, 64 a lane; returns what is left to multiply by. */
static inline float attn_apply_scale(float *s, int32_t stride, int32_t lanes, float scale) {
    if (scale >= 0x1p-126f && scale < __builtin_inff()) return scale;
    for (int32_t i = 0; i < lanes; i++)
        for (int32_t j = 0; j < VB_ATTN_BLOCK; j++) s[i * stride + j] *= scale;
    return 1.0f;
}

static inline void attn_lanes_open(const vb__attn_tile *t, attn_lanes *s) {
    for (int32_t r = 0, i = 0; r < t->rows; r++)
        for (int32_t h = 0; h < t->heads; h++, i++) vb__attn_visible(t, r, &s->lo[i], &s->hi[i]);
    s->all_lo = s->lo[0];
    s->all_hi = s->hi[0];
    for (int32_t i = t->heads; i < t->rows * t->heads; i += t->heads) {
        if (s->lo[i] > s->all_lo) s->all_lo = s->lo[i];
        if (s->hi[i] < s->all_hi) s->all_hi = s->hi[i];
    }
    s->all = false;
}

/* Fills seen for block b; false when no lane sees a key. */
static inline bool attn_lanes_block(attn_lanes *s, int32_t lanes, int32_t b) {
    uint64_t any = 0;
    bool all = s->all_lo <= b * VB_ATTN_BLOCK && s->all_hi >= (b + 1) * VB_ATTN_BLOCK;
    if (all && s->all) return true;
    s->all = all;
    s->end = 0;
    for (int32_t i = 0; i < lanes; i++) {
        int32_t lo = s->lo[i] - b * VB_ATTN_BLOCK, hi = s->hi[i] - b * VB_ATTN_BLOCK;
        uint64_t above = hi >= 64 ? ~0ull : hi <= 0 ? 0 : (1ull << hi) - 1;
        uint64_t below = lo >= 64 ? ~0ull : lo <= 0 ? 0 : (1ull << lo) - 1;
        s->seen[i] = above & ~below;
        if (hi > s->end) s->end = hi < VB_ATTN_BLOCK ? hi : VB_ATTN_BLOCK;
        any |= s->seen[i];
    }
    return any != 0;
}

#endif
