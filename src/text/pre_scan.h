/* Hand-written scanners for the splitting patterns of published models, for words of ASCII characters only. A
 * scanner answers only where no character beyond ASCII could change the answer; elsewhere the regular
 * expression is asked. */
#ifndef VB_TEXT_PRE_SCAN_H
#define VB_TEXT_PRE_SCAN_H
#include "text/pretokenizer.h"

/* The end of the match that begins at text[from] (from < n), or `from` when the scanner does not know. */
size_t vb__pre_scan_next(vb__pre_scan scan, const char *text, size_t n, size_t from);

/* The pattern of the i-th scanner, NULL behind the last; for tests. */
const char *vb__pre_scan_pattern(size_t i);

#endif
