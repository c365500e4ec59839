/* Where the time of a forward goes: a table of launchers that time those of a backend, one class each. Put in
 * place for one measured pass and taken away again; nothing is timed otherwise.
 *
 * Every launcher is followed by a sync, so that a device's time lands in the right class; on the CPU that costs
 * nothing. One thread, as for the backend itself. */
#ifndef VB_BACKEND_PROFILE_H
#define VB_BACKEND_PROFILE_H
#include "backend/backend.h"

typedef enum vb__profile_class {
    VB_PROFILE_LINEAR,      /* linear, with the norm and quantisation of its input; mlp, with its swiglu */
    VB_PROFILE_ATTENTION,   /* attention, kv_append */
    VB_PROFILE_DELTA_NET,   /* conv, delta and gated norm; delta_commit */
    VB_PROFILE_ELEMENTWISE, /* embed, norms, rope, swiglu of experts, gather, copies */
    VB_PROFILE_SAMPLING,    /* argmax; the engine's sampler is added by who calls it */
    VB_PROFILE_CLASSES
} vb__profile_class;

typedef struct vb__profile {
    vb__backend_ops ops; /* first: found again from be->ops */
    const vb__backend_ops *real;
    double seconds[VB_PROFILE_CLASSES];
    int64_t calls[VB_PROFILE_CLASSES];
} vb__profile;

/* Replaces the table of `be` until stop; *p must stay where it is. Sums start at 0. Not nested. */
void vb__profile_start(vb__profile *p, vb__backend *be);
void vb__profile_stop(vb__profile *p, vb__backend *be);
const char *vb__profile_class_name(vb__profile_class c); /* "linear", "attention", "delta_net", ...; static */

#endif
