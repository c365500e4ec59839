/* linear_bf16, AVX2. Contract, order and layout: ops/linear_bf16.h.
 * A vector of the panel holds a pair of k-values of 8 outputs: shifted left it is the even value as f32, masked the odd
 * one. Three rows share a pass over the panel: 12 chains in registers, accumulators in memory. */
#include "backend/cpu/x86/linear_slice.h"
#include <immintrin.h>

enum { GROUP = 3 };

/* Keeps the order of a step, so that gcc does not spill chains. */
#define PIN(v) __asm__ volatile("" : "+x"(v))

VB_INLINE __m256 bcast(const float *x) {
    __m256 v;
    __asm__ volatile("vbroadcastss %1, %0" : "=x"(v) : "m"(*x));
    return v;
}

static void store_row(const vb__linear_bf16_args *g, int32_t r, int32_t o, const float *acc) {
    float *y = g->y + r * g->ys;
    int32_t n = g->w->n - o < VB_PANEL ? g->w->n - o : VB_PANEL;
    for (int32_t i = 0; i < n; i++) {
        float v = acc[i];
        if (g->bias != NULL) v = v + g->bias[o + i];
        if (g->residual != NULL) v = v + g->residual[r * g->rs + o + i];
        y[o + i] = v;
    }
}

VB_INLINE void rows_of(int R, const vb__linear_bf16_args *g, int32_t p, int32_t r0, const float *x, int32_t nb,
                       int fetch) {
    const vb__bpanels *w = g->w;
    float acc[GROUP][VB_PANEL] __attribute__((aligned(32)));
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    for (int r = 0; r < R; r++)
        for (int h = 0; h < 2; h++) _mm256_store_ps(acc[r] + 8 * h, _mm256_setzero_ps());
    const uint16_t *v = w->data + p * w->panel_stride;
    for (int32_t k = 0; k < w->kp; k += 32) {
        __m256 even[2 * GROUP], odd[2 * GROUP];
#pragma GCC unroll 6
        for (int i = 0; i < 2 * R; i++) even[i] = odd[i] = _mm256_setzero_ps();
#pragma GCC unroll 4
        for (int j = 0; j < 16; j++) {
            if (fetch) _mm_prefetch((const char *)v + VB_AHEAD, _MM_HINT_T0);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i pair = _mm256_loadu_si256((const __m256i *)(const void *)(v + 16 * h));
                __m256 e = _mm256_castsi256_ps(_mm256_slli_epi32(pair, 16));
                __m256 o = _mm256_castsi256_ps(_mm256_and_si256(pair, high));
#pragma GCC unroll 3
                for (int r = 0; r < R; r++) {
                    even[2 * r + h] = _mm256_fmadd_ps(e, bcast(x + r), even[2 * r + h]);
                    odd[2 * r + h] = _mm256_fmadd_ps(o, bcast(x + nb + r), odd[2 * r + h]);
                    PIN(even[2 * r + h]);
                    PIN(odd[2 * r + h]);
                }
            }
            v += 2 * VB_PANEL;
            x += 2 * nb;
        }
#pragma GCC unroll 6
        for (int i = 0; i < 2 * R; i++) {
            float *a = acc[i / 2] + 8 * (i % 2);
            _mm256_store_ps(a, _mm256_add_ps(_mm256_load_ps(a), _mm256_add_ps(even[i], odd[i])));
        }
    }
    for (int r = 0; r < R; r++) store_row(g, r0 + r, p * VB_PANEL, acc[r]);
}

typedef void rows_fn(const vb__linear_bf16_args *g, int32_t p, int32_t r0, const float *x, int32_t nb, int fetch);
#define ROWS(R)                                                                                              \
    static __attribute__((noinline)) void rows_##R(const vb__linear_bf16_args *g, int32_t p, int32_t r0, const float *x, \
                                                   int32_t nb, int fetch) {                                  \
        if (fetch) rows_of(R, g, p, r0, x, nb, 1);                                                           \
        else rows_of(R, g, p, r0, x, nb, 0);                                                                 \
    }
ROWS(1)
ROWS(2)
ROWS(3)

void vb__linear_bf16_avx2(VB_LINEAR_BF16_ARGS) {
    static rows_fn *const fn[GROUP] = {rows_1, rows_2, rows_3};
    const vb__bact *x = g->x;
    for (int32_t p = p0; p < p1; p++)
        for (int32_t b = 0; b < x->rows; b += VB_ROW_BLOCK) {
            int32_t nb = vb__row_block(x->rows, b);
            const float *at = (const float *)x->x + vb__bact_block(x, b);
            for (int32_t r = 0, n; r < nb; r += n) {
                int32_t left = nb - r, groups = (left + GROUP - 1) / GROUP;
                n = (left + groups - 1) / groups;
                fn[n - 1](g, p, b + r, at + r, nb, b + r == 0);
            }
        }
}
