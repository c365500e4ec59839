/* Lines of a trace (engine/trace.h), read again. They may be anybody's: every number is within bounds, or the line is refused with its
 * field named. */
#ifndef VB_ENGINE_TRACE_LINES_H
#define VB_ENGINE_TRACE_LINES_H
#include "verbatim/verbatim.h"
#include <jansson.h>

typedef struct vb__trace_header {
    const char *path, *model; /* the fingerprint; both are the line's */
    int32_t contract, activations;
    int64_t ctx; /* 0: not said */
    bool head_chunk;
} vb__trace_header;

typedef struct vb__trace_request {
    int32_t *prompt, *tokens, *proposed, *accepted; /* ids below the vocabulary; [n_rounds]: accepted <= proposed <= 15 */
    int32_t n_prompt, n_tokens, n_rounds;
    vb_request q;    /* to run it again: prompt, ends, sampling, bias; with a hash */
    vb_logit_bias *bias;
    const char *sha; /* 64 hexadecimal digits; the line's, as are the stop strings */
} vb__trace_request;

typedef enum vb__trace_kind { VB_TRACE_HEADER, VB_TRACE_REQUEST } vb__trace_kind;

typedef struct vb__trace_line {
    vb__trace_kind kind;
    json_t *root;
    vb__trace_header header;
    vb__trace_request request;
} vb__trace_line;

/* One line without its end. `where`, "FILE:NUMBER", begins every error. vocab: of the header before it; 0 where there was none, then
 * a request is refused. Freed by fini, which accepts a zeroed line. */
VB_MUST_USE vb_err vb__trace_line_parse(const char *text, size_t n, const char *where, int32_t vocab, vb__trace_line *out, vb_error *err);
void vb__trace_line_fini(vb__trace_line *l);

#endif
