/* Prompt lookup: proposes what followed the latest earlier occurrence of the last few tokens, in prompt and answer.
 * An incremental index over bigrams; O(1) per token, a bounded walk per proposal. */
#ifndef VB_ENGINE_DRAFT_LOOKUP_H
#define VB_ENGINE_DRAFT_LOOKUP_H
#include "base/error.h"
#include <stdint.h>

enum { VB_LOOKUP_MIN = 2, VB_LOOKUP_MAX = 16 }; /* tokens that must match, and that are compared at most */

typedef struct vb__lookup vb__lookup;
VB_MUST_USE vb_err vb__lookup_create(int32_t max_tokens, vb__lookup **out, vb_error *err);
void vb__lookup_destroy(vb__lookup *l);
void vb__lookup_reset(vb__lookup *l);
/* Proposals behind tokens[0..n-1], at most `max`; *match is the length of the matching context. The tokens must extend those of the
 * last call since reset. Allocates nothing. */
int32_t vb__lookup_propose(vb__lookup *l, const int32_t *tokens, int32_t n, int32_t *out, int32_t max, int32_t *match);

/* The same from a text given beforehand: what follows the longest match (at least VB_LOOKUP_MIN tokens; at the very beginning of an answer, its one
 * token) of the answer's end in `given`. answer: its tokens so far. Looks at every position: given is bounded by the caller. */
int32_t vb__lookup_given(const int32_t *given, int32_t n_given, const int32_t *answer, int32_t n, int32_t *out, int32_t max, int32_t *match);

#endif
