#include "backend/cpu/kernels.h"

void vb__kernels_init(vb__kernels *k, vb__cpu_level level) {
    *k = (vb__kernels){.level = level};
    /* C reference */
    if (level < VB_CPU_AVX2) return;
    /* AVX2 */
    if (level < VB_CPU_AVX512) return;
    /* AVX-512 */
    if (level < VB_CPU_AMX) return;
    /* AMX */
}
