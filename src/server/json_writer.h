/* Writing JSON into a buffer: strings that are always valid UTF-8 and valid JSON, numbers that every reader takes. The
 * punctuation between them is the caller's. Errors stick in the buffer (base/buffer.h). */
#ifndef VB_SERVER_JSON_WRITER_H
#define VB_SERVER_JSON_WRITER_H
#include "base/buffer.h"
#include <jansson.h>

/* "text" with quotes. Bytes that are not UTF-8 become U+FFFD, one for each maximal part of a character (as the Unicode
 * standard recommends). */
void vb__jw_string(vb__buffer *b, const char *s, size_t n);
bool vb__jw_is_utf8(const char *s, size_t n);
void vb__jw_text(vb__buffer *b, const char *s); /* NUL-terminated; NULL is null */
/* A number from f32, shortest digits that give it back; null when it is not finite. */
void vb__jw_float(vb__buffer *b, float x);
/* [1,2,255] */
void vb__jw_bytes(vb__buffer *b, const char *s, size_t n);
void vb__jw_value(vb__buffer *b, const json_t *v); /* any JSON value, compact */

#endif
