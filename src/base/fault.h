/* Faults planted on purpose: VERBATIM_FAULT=KIND, in every build, so that the checks that guard the promise
 * (verify, the exactness gate) can be shown to catch them. Never set in ordinary use. */
#ifndef VB_BASE_FAULT_H
#define VB_BASE_FAULT_H
#include "base/error.h"
#include <stdbool.h>

typedef enum vb__fault {
    VB_FAULT_NONE,
    VB_FAULT_LINEAR_ROWS,    /* a linear splits K by the number of rows */
    VB_FAULT_ATTENTION_ROWS, /* attention folds differently when rows go together */
    VB_FAULT_ROPE_ROWS,      /* rope rounds differently when rows go together */
    VB_FAULT_STATE_COMMIT,   /* one accepted row is missing from the delta-net state */
    VB_FAULT_KV_TRUNCATE,    /* a rejected row stays in the KV cache */
    VB_FAULT_DRAFT_CRASH,    /* a drafter fails in the middle of an answer */
    VB_FAULTS
} vb__fault;

/* VB_E_ARGUMENT when VERBATIM_FAULT names no kind: a check that meant to plant a fault must not pass without one. */
VB_MUST_USE vb_err vb__fault_check(vb_error *err);
/* Whether this fault is planted. The environment is read at the first call (then one warning is logged; an
 * unknown kind is logged and ignored). Any thread; cheap enough for every launch. */
bool vb__fault_is(vb__fault kind);
const char *vb__fault_name(vb__fault kind); /* "linear-rows", ... */
/* For tests: plants a fault, or none, whatever the environment says. */
void vb__fault_set(vb__fault kind);

#endif
