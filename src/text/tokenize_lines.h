/* One line of `tokenize --stdin-jsonl`: a JSON object in, a JSON object out. */
#ifndef VB_TEXT_TOKENIZE_LINES_H
#define VB_TEXT_TOKENIZE_LINES_H
#include "text/tokenizer.h"

/* Encoding: {"text", "parse_special": true, "add_special": false} -> {"ids": [...]}; decoding: {"ids",
 * "skip_special": false} -> {"text"}. A line that is wrong gives {"error": "..."}. The answer, with a
 * newline, is appended to *out. Only VB_E_MEMORY and VB_E_LIMIT (of *out) are errors. `line` is without its
 * newline. */
VB_MUST_USE vb_err vb__tokenize_line(const vb__tokenizer *t, bool decode, const char *line, size_t n,
                                     vb__buffer *out, vb_error *err);
/* Appends a JSON string, quotes included; valid UTF-8; control characters escaped; errors stick in *out. */
vb_err vb__json_put_string(vb__buffer *out, const char *s, size_t n);

#endif
