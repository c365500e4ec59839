/* The kernel table: one entry per operation, filled for a level: the C reference first, then each level
 * overwrites what it has. No dispatch anywhere else. */
#ifndef VB_BACKEND_CPU_KERNELS_H
#define VB_BACKEND_CPU_KERNELS_H
#include "base/cpu.h"

typedef struct vb__kernels {
    vb__cpu_level level;
    /* linear (cpu_linear.c) */
    /* rowwise (cpu_rowwise.c) */
    /* attention (cpu_attention.c) */
    /* delta net (cpu_delta.c) */
} vb__kernels;

void vb__kernels_init(vb__kernels *k, vb__cpu_level level);

#endif
