/* `verbatim template --stdin-jsonl --json`, line by line: {"template": source, "context": {variables}, "now":
 * epoch seconds} to {"text": ...} or {"error": ...}. The context is all there is; nothing is added. */
#ifndef VB_TEXT_TEMPLATE_LINES_H
#define VB_TEXT_TEMPLATE_LINES_H
#include "base/buffer.h"
#include <stdint.h>

/* Appends one line of JSON (with its \n) for the line given (with or without its own). A line that is at
 * fault gives an "error" line and VB_OK; only being out of memory or of room in `out` is an error. `now`
 * stands in for a line without "now". */
VB_MUST_USE vb_err vb__template_line(const char *line, size_t len, int64_t now, vb__buffer *out,
                                     vb_error *err);

#endif
