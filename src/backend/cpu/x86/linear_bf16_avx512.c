/* linear_bf16, AVX-512. Contract, order and layout: ops/linear_bf16.h.
 * A vector of the panel holds a pair of k-values of 16 outputs: shifted left it is the even value as f32, masked the odd
 * one. Two panels share each broadcast; the even and odd chains of a block of 32 k are registers, accumulators memory. */
#include "backend/cpu/x86/linear_avx512.h"

enum { GROUP = 6 }; /* rows of a pass */

VB_INLINE void rows_of(int NP, int R, const vb__linear_bf16_args *g, int32_t p, int32_t r0, const float *x, int32_t nb,
                       int fetch) {
    const vb__bpanels *w = g->w;
    float acc[2 * GROUP][VB_PANEL] __attribute__((aligned(64)));
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
#pragma GCC unroll 12
    for (int i = 0; i < NP * R; i++) _mm512_store_ps(acc[i], _mm512_setzero_ps());
    const uint16_t *v = w->data + p * w->panel_stride;
    for (int32_t k = 0; k < w->kp; k += 32) {
        __m512 even[2 * GROUP], odd[2 * GROUP];
#pragma GCC unroll 12
        for (int i = 0; i < NP * R; i++) even[i] = odd[i] = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int j = 0; j < 16; j++) {
            __m512 e[2], o[2];
#pragma GCC unroll 2
            for (int i = 0; i < NP; i++) {
                const uint16_t *at = v + i * w->panel_stride;
                __m512i pair = _mm512_loadu_si512(at);
                if (fetch) _mm_prefetch((const char *)at + VB_AHEAD, _MM_HINT_T0);
                e[i] = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
                o[i] = _mm512_castsi512_ps(_mm512_and_si512(pair, high));
            }
#pragma GCC unroll 6
            for (int r = 0; r < R; r++) {
                __m512 xe = _mm512_set1_ps(x[r]), xo = _mm512_set1_ps(x[nb + r]);
#pragma GCC unroll 2
                for (int i = 0; i < NP; i++) {
                    even[i * R + r] = _mm512_fmadd_ps(e[i], xe, even[i * R + r]);
                    odd[i * R + r] = _mm512_fmadd_ps(o[i], xo, odd[i * R + r]);
                }
            }
            v += 2 * VB_PANEL;
            x += 2 * nb;
        }
#pragma GCC unroll 12
        for (int i = 0; i < NP * R; i++)
            _mm512_store_ps(acc[i], _mm512_add_ps(_mm512_load_ps(acc[i]), _mm512_add_ps(even[i], odd[i])));
    }
    for (int i = 0; i < NP * R; i++) {
        int32_t r = r0 + i % R;
        vb__panel_store(g->y + r * g->ys, (p + i / R) * VB_PANEL, w->n, g->bias,
                        g->residual == NULL ? NULL : g->residual + r * g->rs, _mm512_load_ps(acc[i]));
    }
}

typedef void rows_fn(const vb__linear_bf16_args *g, int32_t p, int32_t r0, const float *x, int32_t nb, int fetch);
#define ROWS(NP, R)                                                                                          \
    static __attribute__((noinline)) void rows_##NP##_##R(const vb__linear_bf16_args *g, int32_t p, int32_t r0, \
                                                          const float *x, int32_t nb, int fetch) {           \
        if (fetch) rows_of(NP, R, g, p, r0, x, nb, 1);                                                       \
        else rows_of(NP, R, g, p, r0, x, nb, 0);                                                             \
    }
ROWS(1, 1)
ROWS(1, 2)
ROWS(1, 3)
ROWS(1, 4)
ROWS(1, 5)
ROWS(1, 6)
ROWS(2, 1)
ROWS(2, 2)
ROWS(2, 3)
ROWS(2, 4)
ROWS(2, 5)
ROWS(2, 6)

void vb__linear_bf16_avx512(VB_LINEAR_BF16_ARGS) {
    static rows_fn *const fn[2][GROUP] = {{rows_1_1, rows_1_2, rows_1_3, rows_1_4, rows_1_5, rows_1_6},
                                          {rows_2_1, rows_2_2, rows_2_3, rows_2_4, rows_2_5, rows_2_6}};
    const vb__bact *x = g->x;
    for (int32_t p = p0, np; p < p1; p += np) {
        np = p1 - p < 2 ? 1 : 2;
        for (int32_t b = 0; b < x->rows; b += VB_ROW_BLOCK) {
            int32_t nb = vb__row_block(x->rows, b);
            const float *at = (const float *)x->x + vb__bact_block(x, b);
            for (int32_t r = 0, n; r < nb; r += n) {
                int32_t left = nb - r, groups = (left + GROUP - 1) / GROUP;
                n = (left + groups - 1) / groups;
                fn[np - 1][n - 1](g, p, b + r, at + r, nb, b + r == 0);
            }
        }
    }
}
