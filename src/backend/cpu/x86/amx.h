/* AMX tiles through our own wrappers only. gcc 12's intrinsics have no memory clobber and lose the stores that feed a
 * tile load, so every load and store of a tile clobbers memory. Tiles are released at the end of a region. */
#ifndef VB_BACKEND_X86_AMX_H
#define VB_BACKEND_X86_AMX_H
#include <stdint.h>
#include <string.h>

typedef struct vb__tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16]; /* bytes of a tile row */
    uint8_t rows[16];
} vb__tile_config;

static inline void vb__tile_load_config(const vb__tile_config *c) {
    __asm__ volatile("ldtilecfg %0" : : "m"(*c) : "memory");
}
static inline void vb__tile_release(void) { __asm__ volatile("tilerelease" : : : "memory"); }

#define VB_TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : : :)
#define VB_TILE_LOAD(t, p, stride)                                                                           \
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define VB_TILE_STORE(t, p, stride)                                                                          \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
/* c += a (signed bytes) . b (unsigned bytes); b (signed bytes); bf16 pairs */
#define VB_TILE_DPBSUD(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :)
#define VB_TILE_DPBSSD(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :)
#define VB_TILE_DPBF16(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : : :)

#endif
