/* Traces: one JSON line per finished request, with all that is needed to run it again with the same round structure and to
 * compare bits. The file begins with a header line per writer. Prompts are in it: 0600, no symbolic link. */
#ifndef VB_ENGINE_TRACE_H
#define VB_ENGINE_TRACE_H
#include "engine/engine.h"

/* Rounds of one request as they happen. */
typedef struct vb__rounds {
    int32_t *proposed, *accepted; /* [n], in room for cap */
    int32_t n, cap;
    bool lost; /* out of memory: the record is incomplete and is not written */
} vb__rounds;
void vb__rounds_add(vb__rounds *r, int32_t proposed, int32_t accepted);
void vb__rounds_fini(vb__rounds *r);

typedef struct vb__trace vb__trace;
VB_MUST_USE vb_err vb__trace_open(const char *path, const vb__engine *e, vb__trace **out, vb_error *err);
void vb__trace_close(vb__trace *t); /* accepts NULL */
/* Appends a finished request, whole or not at all. */
VB_MUST_USE vb_err vb__trace_write(vb__trace *t, const vb__req *r, const vb__rounds *rounds, const char *sha256, vb_error *err);

#endif
