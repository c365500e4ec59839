/* Neighbours: other sequences of seeded random ids that take rows in the same forward calls as a request, in prefill
 * and decode, so that anybody can see that they change nothing. */
#ifndef VB_ENGINE_NEIGHBOURS_H
#define VB_ENGINE_NEIGHBOURS_H
#include "engine/engine.h"

typedef struct vb__neighbours vb__neighbours;
/* `count` of them beside a request whose prompt has n_prompt tokens; their prompts differ in length, some shorter, some
 * longer. *out is NULL for 0. */
VB_MUST_USE vb_err vb__neighbours_start(vb__engine *e, int32_t count, int32_t n_prompt, vb__neighbours **out,
                                        vb_error *err);
void vb__neighbours_stop(vb__engine *e, vb__neighbours *n); /* cancels them; accepts NULL */

#endif
