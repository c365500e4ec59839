/* What a model and its context need, and what the machine has. */
#ifndef VB_ENGINE_MEMORY_H
#define VB_ENGINE_MEMORY_H
#include "model/model.h"

/* Bytes that the system can give without swapping (MemAvailable, lowered to what the process's cgroups leave); a large
 * number when unknown. */
int64_t vb__memory_available(void);
/* What the memory limits of the process's cgroup and those above it leave, version 2 or 1; `root`: base/cgroup.h. */
int64_t vb__memory_left(const char *root);
/* Fixed bytes of one sequence: recurrent state, conv tails and, with drafts, the two tapes and the draft vocabulary. */
int64_t vb__memory_sequence(const vb__model *m, bool drafts);
/* Positions (a multiple of 64) whose pages fit into `bytes`. */
int64_t vb__memory_fits(int64_t page_bytes, int64_t bytes);

#endif
