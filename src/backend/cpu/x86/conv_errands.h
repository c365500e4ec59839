/* What a conv kernel does for other calls while its silu computes, a little after every few vectors: the raw row goes into the
 * tape, past the caches, and the lines that the next head reads and writes are asked for. Rows lie far apart, half of them
 * in another core's cache, and a core has few buffers for lines on their way: in a burst it would wait for them. */
#ifndef VB_X86_CONV_ERRANDS_H
#define VB_X86_CONV_ERRANDS_H
#include "backend/ops/conv.h"
#include <immintrin.h>

typedef struct vb__conv_errands {
    const float *raw;       /* row of this head, to copy to tape; or NULL */
    float *tape;
    const float *row, *out; /* rows of the next head, to ask for; or NULL */
} vb__conv_errands;

#define VB_CONV_ASK(p) __asm__ volatile("prefetcht0 %0" : : "m"(*(p)))

/* Whether rows of this head can go into the tape by whole lines. */
static inline bool vb__conv_streams(const vb__conv_head *a) {
    return a->tape_out != NULL && a->n % 64 == 0 && ((uintptr_t)a->tape_out & 63) == 0 && a->tape_stride % 16 == 0;
}

/* For row t, one of `rows` that are made together; streams: vb__conv_streams. Asks at once for its share of the next head's weights
 * and tail. */
static inline vb__conv_errands vb__conv_errands_of(const vb__conv_head *a, int64_t t, int32_t rows, bool streams) {
    vb__conv_errands e = {0};
    const float *raw = a->m + t * a->ms;
    if (streams && t >= a->tape_from) {
        e.raw = raw;
        e.tape = a->tape_out + (t - a->tape_from) * a->tape_stride;
    }
    if (a->ask == 0) return e;
    e.row = raw + a->ask;
    if (a->ask_out != NULL) e.out = a->ask_out + t * a->outs;
    if (t >= rows) return e;
    int32_t w_lines = a->taps * a->n / 16, tail_lines = a->n / 16, each = (w_lines + rows - 1) / rows, r = (int32_t)t;
    for (int32_t k = r * each; k < (r + 1) * each && k < w_lines; k++) VB_CONV_ASK(a->w + a->ask * a->taps + 16 * k);
    each = (tail_lines + rows - 1) / rows;
    if (a->keep && a->replay == 0)
        for (int32_t k = r * each; k < (r + 1) * each && k < tail_lines; k++)
            for (int32_t j = 0; j < a->taps - 1; j++) VB_CONV_ASK(a->tail + a->ask + j * a->tail_stride + 16 * k);
    return e;
}

/* The lines of channels i .. i + 16 * lines - 1. */
__attribute__((always_inline)) static inline void vb__conv_errands_run(const vb__conv_errands *e, int32_t i, const int32_t lines) {
#define EACH _Pragma("GCC unroll 4") for (int32_t k = 0; k < lines; k++)
    if (e->raw != NULL) {
#ifdef __AVX512F__
        EACH _mm512_stream_ps(e->tape + i + 16 * k, _mm512_loadu_ps(e->raw + i + 16 * k));
#else
        EACH for (int32_t h = i + 16 * k; h < i + 16 * k + 16; h += 8) _mm256_stream_ps(e->tape + h, _mm256_loadu_ps(e->raw + h));
#endif
    }
    if (e->row != NULL) EACH VB_CONV_ASK(e->row + i + 16 * k);
    if (e->out != NULL) EACH __asm__ volatile("prefetchw %0" : : "m"(*(e->out + i + 16 * k)));
#undef EACH
}

#endif
