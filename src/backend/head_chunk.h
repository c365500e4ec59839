/* The head-chunk plan: how the query heads of one KV head's group share a call when a few rows attend
 * together (a verify block, a short prefill tail). A pure function of three counts. It only chooses tiles:
 * each head's arithmetic does not depend on the heads beside it, so a plan changes no bit. */
#ifndef VB_BACKEND_HEAD_CHUNK_H
#define VB_BACKEND_HEAD_CHUNK_H
#include <stdbool.h>
#include <stdint.h>

enum { VB_HEAD_CHUNK_LIMIT = 32 }; /* (row, head) pairs of a chunk, at most */

typedef struct vb__head_chunk {
    int32_t gqa;             /* query heads of a KV head */
    int32_t heads_per_chunk; /* of every chunk but the last of a group, which has what is left */
    int32_t per_kv;          /* chunks of a group */
    int32_t chunks;          /* of all groups */
} vb__head_chunk;

/* False, and *out untouched, where the whole head set goes in one call: the heads do not divide among the KV
 * heads, the group already fits (rows * gqa <= 32), or there are more than 32 rows (a wide prefill).
 * All counts >= 0. */
bool vb__head_chunk_plan(int32_t rows, int32_t heads, int32_t kv_heads, vb__head_chunk *out);

/* Chunk i in order (ascending KV head, then ascending query head): KV head kv, query heads first..first+n-1.
 * A chunk never spans two KV heads. */
void vb__head_chunk_at(const vb__head_chunk *p, int32_t i, int32_t *kv, int32_t *first, int32_t *n);

#endif
