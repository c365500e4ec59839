/* CPU levels. A level is a bundle of instruction sets that CPUID, XGETBV and (for AMX) the kernel's
 * permission call have all granted. Kernels are chosen once, by level. */
#ifndef VB_BASE_CPU_H
#define VB_BASE_CPU_H
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum vb__cpu_level {
    VB_CPU_C,      /* needs FMA3 only */
    VB_CPU_AVX2,   /* + AVX2, F16C; AVX-VNNI where the CPU has it */
    VB_CPU_AVX512, /* + AVX-512 F, BW, DQ, VL, VBMI, VNNI */
    VB_CPU_AMX,    /* + AMX tile, bf16, int8; GFNI, AVX512_BF16 */
    VB_CPU_LEVELS
} vb__cpu_level;

/* What the CPU and the system grant. Asks for AMX permission on its first call, so it must come before
 * threads and signal stacks are made. VB_E_DEVICE without FMA3. */
VB_MUST_USE vb_err vb__cpu_detect(vb__cpu_level *out, vb_error *err);
/* The level to use: VERBATIM_CPU if set (VB_E_ARGUMENT when unknown or above the CPU's), else the best.
 * VB_E_ARGUMENT too for a VERBATIM_VNNI that is neither 0 nor 1. */
VB_MUST_USE vb_err vb__cpu_select(vb__cpu_level *out, vb_error *err);
/* Whether kernels of level AVX2 may use AVX-VNNI: the CPU has it, and VERBATIM_VNNI is not 0. */
bool vb__cpu_vnni(void);
const char *vb__cpu_level_name(vb__cpu_level level); /* "c", "avx2", "avx512", "amx" */
/* CPUs in the affinity mask, but no more than the CPU quota of the process's cgroups; at least 1 (base/cpu_count.h). */
int32_t vb__cpu_count(void);
/* Cores of the CPUs in the affinity mask, with the same bound: how many threads to use when nobody says. */
int32_t vb__cpu_cores(void);
/* Brand string of the CPU, for benchmark records; static. */
const char *vb__cpu_brand(void);

#endif
