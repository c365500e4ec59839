/* linear_q, AVX2. vpmaddubsw multiplies 8 outputs x 4 codes (0..15, unsigned) with four activations broadcast from memory and adds
 * neighbours in int16; eight such steps (15 * 128 * 2 * 8 = 30720) fit, then vpmaddwd widens. 8-bit codes go as two
 * nibbles: dot = dot(low) + 16 * dot(high), which no value of an activation can saturate; those for more than one pass are
 * unpacked before. What bounds it are the three vector ports (74 operations a row and segment of 64). */
#define VB_VNNI 0
#define VB_KERNEL vb__linear_q_avx2
#include "backend/cpu/x86/linear_q_ymm.h"
