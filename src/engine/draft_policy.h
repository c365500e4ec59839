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

/* Acceptance by how sure the drafter was: by place in the block (0, 1, 2, 3 and more) and by the margin of its choice over the
 * second best (sampler.h), which says far more than the place alone. Per engine: it is a property of the drafter. */
enum { VB_DRAFT_PLACES = 4, VB_MARGIN_CLASSES = 9 };
typedef struct vb__draft_sureness {
    float rate[VB_DRAFT_KINDS][VB_DRAFT_PLACES][VB_MARGIN_CLASSES];
    float weight[VB_DRAFT_KINDS][VB_DRAFT_PLACES][VB_MARGIN_CLASSES];
} vb__draft_sureness;

typedef struct vb__draft_costs {
    double step[VB_DRAFT_ROWS];                 /* seconds of a verify step with that many rows, 0: not seen */
    double draft[VB_DRAFT_KINDS][VB_DRAFT_ROWS]; /* seconds of drafting a block with that many rows */
    uint8_t step_seen[VB_DRAFT_ROWS], draft_seen[VB_DRAFT_KINDS][VB_DRAFT_ROWS]; /* the first few times */
    double total, explored;                     /* seconds decoded in all, and lost to exploration */
    double tokens, seconds;                     /* of a decoding step, moving averages: what a second is worth */
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
/* The same for lookup, whose drafts are as good far behind the match as near it: places that short blocks do not reach follow. */
void vb__acceptance_observe_copy(vb__acceptance *a, int32_t drafts, int32_t accepted);
/* All drafts were accepted, and the next one, which was not verified, would have been with this chance. */
void vb__acceptance_guess(vb__acceptance *a, int32_t drafts, float chance);
void vb__sureness_init(vb__draft_sureness *s);
/* Chance of draft i (from 0) of a block, given that those before it are accepted. */
float vb__sureness_chance(const vb__draft_sureness *s, int32_t kind, int32_t i, float margin);
/* margins[made]; the first `drafts` of them were verified, `accepted` of these accepted. */
void vb__sureness_observe(vb__draft_sureness *s, int32_t kind, const float *margins, int32_t made, int32_t drafts, int32_t accepted);
void vb__costs_observe_step(vb__draft_costs *c, int32_t rows, double seconds);
/* A step that decoded `tokens` for one or several requests, drafting included. */
void vb__costs_observe_rate(vb__draft_costs *c, int32_t tokens, double seconds);
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
/* Rows of a block worth verifying, once `drafts` drafts are made: as long as a row's chance is worth more than the time it
 * takes, at the rate tokens come. 1: none of the drafts. */
int32_t vb__policy_trim(const vb__draft_costs *c, const vb__draft_sureness *s, int32_t kind, const float *margins, int32_t drafts);
/* Whether a drafter that makes one draft after the other should make another one behind `drafts` of them. */
bool vb__policy_go_on(const vb__draft_costs *c, const vb__draft_sureness *s, const vb__acceptance *a, int32_t kind, const float *margins,
                      int32_t drafts);

#endif
