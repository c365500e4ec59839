/* linear_bf16, AMX. Contract, order and layout: ops/linear_bf16.h.
 * The panel as packed is a sequence of B tiles and tdpbf16ps is the contract's order, so that a product is loads and
 * tile instructions only. One block of up to 16 rows goes with four panels, to have four accumulators in flight; more
 * rows go two blocks by two panels, so that each tile loaded is used twice. */
#include "backend/cpu/x86/amx.h"
#include "backend/cpu/x86/linear_avx512.h"

enum { TILE = 1024, STEP = 2 * 16 * VB_PANEL /* elements of a B tile: 32 k of a panel */ };

void vb__act_bf16_amx(VB_ACT_BF16_ARGS) {
    for (int32_t r = r0; r < r1; r++) {
        int32_t base = r / VB_ROW_BLOCK * VB_ROW_BLOCK, nb = vb__row_block(b->rows, base);
        uint16_t *to = (uint16_t *)b->x + vb__bact_block(b, base) + (r - base) * 32;
        const float *row = x + r * xs;
        for (int32_t k = 0; k < b->kp; k += 16) {
            int32_t left = b->k - k;
            __mmask16 m = vb__mask16(left);
            __m512i u = _mm512_castps_si512(_mm512_maskz_loadu_ps(m, row + k));
            __m512i a = _mm512_and_si512(u, _mm512_set1_epi32(0x7fffffff)), top = _mm512_srli_epi32(u, 16);
            __m512i v = _mm512_add_epi32(u, _mm512_set1_epi32(0x7fff));
            v = _mm512_srli_epi32(_mm512_add_epi32(v, _mm512_and_si512(top, _mm512_set1_epi32(1))), 16);
            __mmask16 tiny = _mm512_cmplt_epu32_mask(a, _mm512_set1_epi32(0x00800000));
            __mmask16 nan = _mm512_cmpgt_epu32_mask(a, _mm512_set1_epi32(0x7f800000));
            v = _mm512_mask_and_epi32(v, tiny, top, _mm512_set1_epi32(0x8000));
            v = _mm512_mask_mov_epi32(v, nan, _mm512_set1_epi32(0x7fc0));
            _mm256_storeu_si256((__m256i *)(void *)(to + (int64_t)(k / 32) * nb * 32 + k % 32), _mm512_cvtepi32_epi16(v));
        }
    }
}

static void configure(int32_t rows) {
    vb__tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.rows[t] = (uint8_t)(t < 6 ? rows : 16); /* 0-3 products, 4-5 A, 6-7 B */
        c.row_bytes[t] = 64;
    }
    vb__tile_load_config(&c);
}

/* Rows of one tile of products. */
static void store_tile(const vb__linear_bf16_args *g, int32_t p, int32_t r0, int32_t rows, const float *tile) {
    for (int32_t r = r0; r < r0 + rows; r++)
        vb__panel_store(g->y + r * g->ys, p * VB_PANEL, g->w->n, g->bias,
                        g->residual == NULL ? NULL : g->residual + r * g->rs,
                        _mm512_load_ps(tile + (r - r0) * VB_PANEL));
}

VB_INLINE void ahead(const uint16_t *v) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) _mm_prefetch((const char *)v + 2 * VB_AHEAD + 64 * i, _MM_HINT_T0);
}

/* One block of rows, 1 to 4 panels. */
VB_INLINE void block_panels(int NP, const vb__linear_bf16_args *g, int32_t p) {
    const vb__bpanels *w = g->w;
    const uint16_t *x = (const uint16_t *)g->x->x + vb__bact_block(g->x, 0), *v = w->data + p * w->panel_stride;
    const int32_t nb = g->x->rows;
    float *tile = g->scratch;
    VB_TILE_ZERO(0);
    if (NP > 1) VB_TILE_ZERO(1);
    if (NP > 2) VB_TILE_ZERO(2);
    if (NP > 3) VB_TILE_ZERO(3);
    for (int32_t k = 0; k < w->kp; k += 32) {
        VB_TILE_LOAD(4, x, 64);
        ahead(v);
        VB_TILE_LOAD(6, v, 64);
        VB_TILE_DPBF16(0, 4, 6);
        if (NP > 1) {
            ahead(v + w->panel_stride);
            VB_TILE_LOAD(7, v + w->panel_stride, 64);
            VB_TILE_DPBF16(1, 4, 7);
        }
        if (NP > 2) {
            ahead(v + 2 * w->panel_stride);
            VB_TILE_LOAD(6, v + 2 * w->panel_stride, 64);
            VB_TILE_DPBF16(2, 4, 6);
        }
        if (NP > 3) {
            ahead(v + 3 * w->panel_stride);
            VB_TILE_LOAD(7, v + 3 * w->panel_stride, 64);
            VB_TILE_DPBF16(3, 4, 7);
        }
        x += 32 * nb;
        v += STEP;
    }
    VB_TILE_STORE(0, tile, 64);
    if (NP > 1) VB_TILE_STORE(1, tile + 256, 64);
    if (NP > 2) VB_TILE_STORE(2, tile + 512, 64);
    if (NP > 3) VB_TILE_STORE(3, tile + 768, 64);
    for (int i = 0; i < NP; i++) store_tile(g, p + i, 0, nb, tile + 256 * i);
}

/* Two blocks of rows from r0 on (the second may be absent) by NP panels. */
VB_INLINE void square(int NB, int NP, const vb__linear_bf16_args *g, int32_t p, int32_t r0) {
    const vb__bpanels *w = g->w;
    const int32_t nb0 = vb__row_block(g->x->rows, r0), nb1 = NB == 2 ? vb__row_block(g->x->rows, r0 + VB_ROW_BLOCK) : 0;
    const uint16_t *x0 = (const uint16_t *)g->x->x + vb__bact_block(g->x, r0), *x1 = x0;
    if (NB == 2) x1 = (const uint16_t *)g->x->x + vb__bact_block(g->x, r0 + VB_ROW_BLOCK);
    const uint16_t *v0 = w->data + p * w->panel_stride, *v1 = v0 + (NP == 2 ? w->panel_stride : 0);
    float *tile = g->scratch;
    VB_TILE_ZERO(0);
    VB_TILE_ZERO(1);
    VB_TILE_ZERO(2);
    VB_TILE_ZERO(3);
    const float *y = g->y + r0 * g->ys + p * VB_PANEL;
    for (int32_t k = 0; k < w->kp; k += 32) {
        if (k / 32 < nb0 + nb1) { /* the lines that this row will be stored to */
            __asm__ volatile("prefetchw %0" : : "m"(*y));
            __asm__ volatile("prefetchw %0" : : "m"(*(y + (NP - 1) * VB_PANEL)));
            y += g->ys;
        }
        VB_TILE_LOAD(4, x0, 64);
        VB_TILE_LOAD(6, v0, 64);
        VB_TILE_DPBF16(0, 4, 6);
        if (NP == 2) {
            VB_TILE_LOAD(7, v1, 64);
            VB_TILE_DPBF16(1, 4, 7);
        }
        if (NB == 2) {
            VB_TILE_LOAD(5, x1, 64);
            VB_TILE_DPBF16(2, 5, 6);
            if (NP == 2) VB_TILE_DPBF16(3, 5, 7);
        }
        x0 += 32 * nb0;
        x1 += 32 * nb1;
        v0 += STEP;
        v1 += STEP;
    }
    VB_TILE_STORE(0, tile, 64);
    store_tile(g, p, r0, nb0, tile);
    if (NP == 2) {
        VB_TILE_STORE(1, tile + 256, 64);
        store_tile(g, p + 1, r0, nb0, tile + 256);
    }
    if (NB < 2) return;
    VB_TILE_STORE(2, tile + 512, 64);
    store_tile(g, p, r0 + VB_ROW_BLOCK, nb1, tile + 512);
    if (NP == 2) {
        VB_TILE_STORE(3, tile + 768, 64);
        store_tile(g, p + 1, r0 + VB_ROW_BLOCK, nb1, tile + 768);
    }
}

void vb__linear_bf16_amx(VB_LINEAR_BF16_ARGS) {
    int32_t rows = g->x->rows;
    configure(rows < VB_ROW_BLOCK ? rows : VB_ROW_BLOCK);
    if (rows <= VB_ROW_BLOCK) {
        int32_t p = p0;
        for (; p + 4 <= p1; p += 4) block_panels(4, g, p);
        for (; p < p1; p++) block_panels(1, g, p);
    } else {
        for (int32_t p = p0; p < p1; p += 2)
            for (int32_t r = 0; r < rows; r += 2 * VB_ROW_BLOCK) {
                if (p1 - p > 1) {
                    if (rows - r > VB_ROW_BLOCK) square(2, 2, g, p, r);
                    else square(1, 2, g, p, r);
                } else {
                    if (rows - r > VB_ROW_BLOCK) square(2, 1, g, p, r);
                    else square(1, 1, g, p, r);
                }
            }
    }
    vb__tile_release();
}
