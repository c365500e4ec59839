/* Arrays through the vector forms of vmath: one function per level, compiled with that level's flags. n is a
 * multiple of 16. */
#ifndef VB_TEST_VMATH_LEVELS_H
#define VB_TEST_VMATH_LEVELS_H

enum { VMATH_EXP, VMATH_LOG, VMATH_LOG1P, VMATH_SIGMOID, VMATH_SILU, VMATH_SOFTPLUS, VMATH_FUNCTIONS };
void vb__test_vmath_avx2(int function, float *y, const float *x, int n);
void vb__test_vmath_avx512(int function, float *y, const float *x, int n);

#endif
