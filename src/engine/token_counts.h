/* How often each token occurs in the history of one request: what repetition, presence and frequency
 * penalties need. The history of row i of a verify block is the committed tokens and the choices of the rows
 * before it, so a block pushes its choices one by one and pops those that are not committed, last first.
 *
 * Not thread-safe. Push and pop are O(1) and allocate nothing: all memory is taken by init. */
#ifndef VB_ENGINE_TOKEN_COUNTS_H
#define VB_ENGINE_TOKEN_COUNTS_H
#include "base/error.h"
#include <stdint.h>

typedef struct vb__token_count {
    int32_t id;
    uint32_t prompt, answer; /* occurrences in the prompt and in the answer so far */
} vb__token_count;

typedef struct vb__token_counts {
    vb__token_count *entries; /* [n] distinct tokens, in order of first occurrence */
    uint32_t *slots;          /* [mask + 1] index of an entry + 1, or 0; open addressing */
    uint32_t n, max, mask;
} vb__token_counts;

/* Room for `max_distinct` different tokens: min(vocabulary, prompt + new tokens + block width) is always
 * enough. */
VB_MUST_USE vb_err vb__token_counts_init(vb__token_counts *c, int64_t max_distinct, vb_error *err);
void vb__token_counts_fini(vb__token_counts *c); /* accepts a zeroed struct */
void vb__token_counts_clear(vb__token_counts *c);

/* ids >= 0. Prompt tokens come before any push. VB_E_LIMIT when there is no room (nothing is changed then).
 */
VB_MUST_USE vb_err vb__token_counts_prompt(vb__token_counts *c, const int32_t *ids, int64_t n);
VB_MUST_USE vb_err vb__token_counts_push(vb__token_counts *c, int32_t id);
/* Takes back the last push that was not taken back yet; `id` is the token of that push. */
void vb__token_counts_pop(vb__token_counts *c, int32_t id);
/* NULL when the token has not occurred; borrowed, valid until the next change. */
const vb__token_count *vb__token_counts_find(const vb__token_counts *c, int32_t id);

#endif
