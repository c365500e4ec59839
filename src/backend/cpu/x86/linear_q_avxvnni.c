/* linear_q, AVX2 with AVX-VNNI (client CPUs since 2021, which have no AVX-512). vpdpbusd multiplies 8 outputs x 4 codes of either
 * width with four activations broadcast from memory and adds them up in int32. Six rows are the most whose sums fit beside two
 * vectors of codes and a broadcast; fewer than five leave the multipliers waiting for one another (5 cycles, 2 a cycle) unless
 * the next segment comes in time. */
#define VB_VNNI 1
#define VB_KERNEL vb__linear_q_avxvnni
#include "backend/cpu/x86/linear_q_ymm.h"
