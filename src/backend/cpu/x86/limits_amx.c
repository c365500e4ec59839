/* Limits of the AMX level: cpu/limits_measure.h. One tile product of 16 rows, 64 k and 16 outputs, and beside it the
 * float operations of its 16 rows from registers. */
#include "backend/cpu/limits_measure.h"
#include "backend/cpu/x86/amx.h"
#include <immintrin.h>

#define OPAQUE(x) __asm__ volatile("" : "+v"(x))

int64_t vb__contract_loop_amx(int32_t iterations) {
    enum { ROWS = 16 };
    vb__tile_config c = {.palette = 1};
    for (int t = 0; t < 8; t++) {
        c.rows[t] = 16;
        c.row_bytes[t] = 64;
    }
    vb__tile_load_config(&c);
    VB_TILE_ZERO(4);
    VB_TILE_ZERO(5);
    __m512i dot = _mm512_set1_epi32(7);
    __m512 scale = _mm512_set1_ps(0.5f), bias = _mm512_set1_ps(0.25f), acc[ROWS];
    for (int r = 0; r < ROWS; r++) acc[r] = _mm512_setzero_ps();
    OPAQUE(scale);
    OPAQUE(bias);
    for (int32_t i = 0; i < iterations; i += 4) {
#define STEP(t)                                                                                              \
    VB_TILE_ZERO(t);                                                                                         \
    VB_TILE_DPBSUD(t, 4, 5);                                                                                 \
    _Pragma("GCC unroll 16") for (int r = 0; r < ROWS; r++) {                                                \
        OPAQUE(dot);                                                                                         \
        OPAQUE(scale); /* else the product is taken once for all */                                          \
        __m512 m = _mm512_mul_ps(scale, bias);                                                               \
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), m, acc[r]);                                        \
        acc[r] = _mm512_fmadd_ps(bias, scale, acc[r]);                                                       \
    }
        STEP(0)
        STEP(1)
        STEP(2)
        STEP(3)
    }
    for (int r = 0; r < ROWS; r++) OPAQUE(acc[r]);
    vb__tile_release();
    return (int64_t)iterations * ROWS * 16 * 64;
}
