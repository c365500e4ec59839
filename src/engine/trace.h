/* Traces: one JSON line per finished request, with all that is needed to run it again with the same round structure and to
 * compare bits. A header line says what the requests behind it, up to the next header, ran with. Prompts are in it: 0600, no
 * symbolic link.
 *
 * Several programs may write one file at a time: every line is whole, and a program whose last line is not the end of the file writes its
 * header again. */
#ifndef VB_ENGINE_TRACE_H
#define VB_ENGINE_TRACE_H
#include "engine/engine.h"

enum { VB_TRACE_FORMAT = 1 }; /* "trace" of a header */

/* Rounds of one request as they happen. */
typedef struct vb__rounds {
    int32_t *proposed, *accepted; /* [n], in room for cap */
    int32_t n, cap;
    bool lost; /* out of memory: the record is incomplete and is not written */
} vb__rounds;
void vb__rounds_add(vb__rounds *r, int32_t proposed, int32_t accepted);
void vb__rounds_fini(vb__rounds *r);

typedef struct vb__trace vb__trace;
/* A new file, or one that is a trace already: its last line is dropped where it was cut short, another file is left as it is. */
VB_MUST_USE vb_err vb__trace_open(const char *path, const vb__engine *e, vb__trace **out, vb_error *err);
void vb__trace_close(vb__trace *t); /* accepts NULL */
/* Appends a finished request, whole or not at all. */
VB_MUST_USE vb_err vb__trace_write(vb__trace *t, const vb__req *r, const vb__rounds *rounds, const char *sha256, vb_error *err);

#endif
