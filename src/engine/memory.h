/* What a model and its context need, and what the machine has. */
#ifndef VB_ENGINE_MEMORY_H
#define VB_ENGINE_MEMORY_H
#include "model/model.h"

/* Bytes that the system can give without swapping (MemAvailable, lowered to a cgroup's limit); a large number
 * when unknown. */
int64_t vb__memory_available(void);
/* Fixed bytes of one sequence: recurrent state, conv tails and, with drafts, the two tapes. */
int64_t vb__memory_sequence(const vb__model *m, bool drafts);
/* Positions (a multiple of 64) whose pages fit into `bytes`. */
int64_t vb__memory_fits(int64_t page_bytes, int64_t bytes);

#endif
