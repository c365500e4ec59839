/* kv_append, the reference. Contract: ops/kv_append.h. */
#include "backend/ops/kv_append.h"
#include "base/bf16.h"

bool vb__kv_append_ref(VB_KV_APPEND_ARGS) {
    bool finite = true;
    for (int32_t h = 0; h < kv_heads; h++) {
        uint16_t *kp = (uint16_t *)(void *)(heads + h * vb__kv_head_bytes(dim));
        uint16_t *vp = kp + (int64_t)dim * 64;
        for (int32_t d = 0; d < dim; d++) {
            uint16_t kb = vb__to_bf16(k[(int64_t)h * dim + d]), vb = vb__to_bf16(v[(int64_t)h * dim + d]);
            if (!vb__bf16_finite(kb)) {
                kb = 0;
                finite = false;
            }
            if (!vb__bf16_finite(vb)) {
                vb = 0;
                finite = false;
            }
            kp[vb__kv_k_index(dim, slot, d)] = kb;
            vp[vb__kv_v_index(dim, slot, d)] = vb;
        }
    }
    return finite;
}
