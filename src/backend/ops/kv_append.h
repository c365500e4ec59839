/* kv_append: one row's k and v into a KV page, and the layout of such a page.
 *
 * shapes    k, v (kv_heads, dim) f32, contiguous; page: vb__kv_layout of backend.h. Per KV head, from
 *           page + page_off + head * 64*dim*4 bytes, bf16:
 *             K [4][dim/2][16 keys][2 dims]: position t, dim d at ((t/16 * dim/2 + d/2) * 16 + t%16) * 2 +
 * d%2 V [32 key pairs][dim][2 keys], 64*dim*2 bytes further: at (t/2 * dim + d) * 2 + t%2 so 32 dims of 16
 * keys, and 32 keys of 16 dims, are AMX B tiles as stored (rows of 64 bytes; those of V 4*dim apart), and a
 * vector of 32-bit words has an even k-value in its low halves, an odd one in its high halves. limits    dim
 * even, 2..256; slot = position % 64 values    to_bf16; one that is not finite after it is written as +0, and
 * the function returns false: the launcher marks the row as failed. So pages never hold a value that is not
 * finite. class     cpu: every variant writes the reference's bits threads   rows are items; rows may share a
 * page (they write different elements) cost      reads 8*kv_heads*dim bytes, writes half of that
 */
#ifndef VB_OPS_KV_APPEND_H
#define VB_OPS_KV_APPEND_H
#include <stdbool.h>
#include <stdint.h>

/* In elements from a head's K, V respectively. */
static inline int32_t vb__kv_k_index(int32_t dim, int32_t t, int32_t d) {
    return (((t >> 4) * (dim >> 1) + (d >> 1)) * 16 + (t & 15)) * 2 + (d & 1);
}
static inline int32_t vb__kv_v_index(int32_t dim, int32_t t, int32_t d) {
    return ((t >> 1) * dim + d) * 2 + (t & 1);
}
static inline int64_t vb__kv_head_bytes(int32_t dim) {
    return (int64_t)dim * (64 * 4);
}

/* `heads`: the layer's first head in the page. */
#define VB_KV_APPEND_ARGS                                                                                    \
    uint8_t *heads, int32_t kv_heads, int32_t dim, int32_t slot, const float *k, const float *v
typedef bool vb__kv_append_fn(VB_KV_APPEND_ARGS);
vb__kv_append_fn vb__kv_append_ref, vb__kv_append_avx2;

#endif
