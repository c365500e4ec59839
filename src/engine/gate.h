/* The exactness gate: before a verify width serves anybody, blocks of that width are compared with one-row decode, bit by bit.
 *
 * One chain of 48 tokens behind a 96-token prefill is the truth for all widths. Blocks propose the chain's own tokens
 * with wrong ids planted, so that every accept length occurs; the logits of every row that counts and the state after
 * each pass must be the chain's. By construction they are; the gate is there for the CPU or compiler that breaks a rule.
 *
 * Work is done a forward at a time within a budget; what was found is remembered in a memo file per model, contract, device
 * and width. */
#ifndef VB_ENGINE_GATE_H
#define VB_ENGINE_GATE_H
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { VB_GATE_PAGES = 5 }; /* of the engine's pool, that the gate takes at most: its sequence and a copied partial page */

struct vb__engine;
typedef struct vb__gate vb__gate;

typedef enum vb__gate_state { VB_GATE_UNKNOWN, VB_GATE_PASSED, VB_GATE_DECLINED } vb__gate_state;

/* What stands behind the key in a line of the memo: "WIDTH passed" or "WIDTH declined". False for anything else. */
bool vb__gate_memo_parse(const char *rest, int32_t *width, vb__gate_state *state);
/* Reads the memo. Allocates what the checks need only when one runs. */
VB_MUST_USE vb_err vb__gate_create(struct vb__engine *e, vb__gate **out, vb_error *err);
void vb__gate_destroy(vb__gate *g);
/* Seconds that checks may take at once, and the share of the time since creation that they may take in all; 2 and 0.02 unless set. */
void vb__gate_budget(vb__gate *g, double first, double share);
/* The largest width not above `width` that may be used now; works on unknown ones (the widest wanted first) while the budget
 * lasts. 1: plain decode. */
int32_t vb__gate_width(vb__gate *g, int32_t width);
vb__gate_state vb__gate_get(const vb__gate *g, int32_t width);
/* Gives back the pages of a check that has begun, for requests that need them; it begins again. True when there were any. */
bool vb__gate_give_back(vb__gate *g);
/* From now on every width may be used, checked or not: for a caller that compares the bits itself. */
void vb__gate_bypass(vb__gate *g);
/* Checks a width to its end, whatever it costs, and without the memo when fresh. An error when that could not be done (memory). */
VB_MUST_USE vb_err vb__gate_check(vb__gate *g, int32_t width, bool fresh, vb__gate_state *out, vb_error *err);
/* Widths declined so far, into out; how many. */
int32_t vb__gate_declined(const vb__gate *g, int32_t out[16]);
/* Where the last difference was: a sentence; "" when none. */
const char *vb__gate_difference(const vb__gate *g);

#endif
