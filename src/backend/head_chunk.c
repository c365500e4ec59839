#include "backend/head_chunk.h"

bool vb__head_chunk_plan(int32_t rows, int32_t heads, int32_t kv_heads, vb__head_chunk *out) {
    if (kv_heads <= 0 || heads <= 0 || heads % kv_heads != 0) return false;
    int32_t gqa = heads / kv_heads;
    if (rows > VB_HEAD_CHUNK_LIMIT || rows * (int64_t)gqa <= VB_HEAD_CHUNK_LIMIT) return false;
    int32_t hpc = VB_HEAD_CHUNK_LIMIT / (rows > 1 ? rows : 1);
    if (hpc > gqa) hpc = gqa;
    if (hpc < 1) hpc = 1;
    int32_t per_kv = (gqa + hpc - 1) / hpc;
    *out =
        (vb__head_chunk){.gqa = gqa, .heads_per_chunk = hpc, .per_kv = per_kv, .chunks = kv_heads * per_kv};
    return true;
}

void vb__head_chunk_at(const vb__head_chunk *p, int32_t i, int32_t *kv, int32_t *first, int32_t *n) {
    int32_t in_group = i % p->per_kv * p->heads_per_chunk;
    int32_t left = p->gqa - in_group;
    *kv = i / p->per_kv;
    *first = *kv * p->gqa + in_group;
    *n = left < p->heads_per_chunk ? left : p->heads_per_chunk;
}
