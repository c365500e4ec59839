/* The floating-point environment of the numerics contract: FTZ, DAZ, round to nearest even, all exceptions
 * masked. Entered by every public call and every pool thread, and restored on return. */
#ifndef VB_BASE_FP_ENV_H
#define VB_BASE_FP_ENV_H
#include <stdint.h>
#include <xmmintrin.h>

enum { VB_MXCSR = 0x1f80 /* masks */ | 0x8000 /* FTZ */ | 0x0040 /* DAZ */ };

static inline uint32_t vb__fp_enter(void) {
    uint32_t old = _mm_getcsr();
    _mm_setcsr(VB_MXCSR);
    return old;
}
static inline void vb__fp_leave(uint32_t old) { _mm_setcsr(old); }

#endif
