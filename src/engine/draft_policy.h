/* Which drafter at which width: what a step costs by its rows, what a draft costs, and how often drafts are accepted,
 * all as observed. No choice here can change the text; a wrong one only costs time. */
#ifndef VB_ENGINE_DRAFT_POLICY_H
#define VB_ENGINE_DRAFT_POLICY_H
#include <stdbool.h>
#include <stdint.h>

enum { VB_DRAFT_NONE, VB_DRAFT_LOOKUP, VB_DRAFT_MTP, VB_DRAFT_DFLASH, VB_DRAFT_MODEL, VB_DRAFT_KINDS };
enum { VB_DRAFT_ROWS = 17 }; /* index: rows of a block, 1..16 */

/* Acceptance of the i-th draft given that those before it were accepted; moving averages. */
typedef struct vb__acceptance {
    float rate[VB_DRAFT_ROWS];
    float weight[VB_DRAFT_ROWS]; /* how much was seen, at most a cap */
} vb__acceptance;

typedef struct vb__draft_costs {
    double step[VB_DRAFT_ROWS];                 /* seconds of a verify step with that many rows, 0: not seen */
    double draft[VB_DRAFT_KINDS][VB_DRAFT_ROWS]; /* seconds of drafting a block with that many rows */
    double total, explored;                     /* seconds decoded in all, and lost to exploration */
} vb__draft_costs;

/* Per request (reset from the engine's on begin) and per engine. Lookup is kept by length of the match. */
typedef struct vb__draft_beliefs {
    vb__acceptance kind[VB_DRAFT_KINDS];
    vb__acceptance lookup[4]; /* matches of 2, 3..4, 5..8, 9 and more */
    int32_t rounds_since_try[VB_DRAFT_KINDS];
} vb__draft_beliefs;

void vb__beliefs_init(vb__draft_beliefs *b);
/* For a new request: what others were like is a start that a few rounds of its own outweigh. */
void vb__beliefs_soften(vb__draft_beliefs *b);
static inline int32_t vb__lookup_class(int32_t match) { return match <= 2 ? 0 : match <= 4 ? 1 : match <= 8 ? 2 : 3; }
void vb__acceptance_observe(vb__acceptance *a, int32_t drafts, int32_t accepted);
void vb__costs_observe_step(vb__draft_costs *c, int32_t rows, double seconds);
void vb__costs_observe_draft(vb__draft_costs *c, int32_t kind, int32_t rows, double seconds);

typedef struct vb__draft_choice {
    int32_t kind, width;
    bool explores; /* expected to be slower than plain decode: tried to learn */
} vb__draft_choice;

/* kinds: bit mask of those that can propose now; match: of the lookup; max_width rows at most. */
vb__draft_choice vb__policy_choose(vb__draft_costs *c, vb__draft_beliefs *b, uint32_t kinds, int32_t match,
                                   int32_t max_width);
/* The best width for one kind. */
int32_t vb__policy_width(const vb__draft_costs *c, const vb__acceptance *a, int32_t kind, int32_t max_width, double *tokens_per_s);

#endif
