/* Streams of tokens: text comes out as soon as it is certain, in whole characters, and equals the decoding of
 * all ids at once. Stop strings are found across tokens and cut exactly. One thread per object. */
#ifndef VB_TEXT_DETOKENIZER_H
#define VB_TEXT_DETOKENIZER_H
#include "text/tokenizer.h"

typedef struct vb__detokenizer vb__detokenizer;

VB_MUST_USE vb_err vb__detokenizer_create(const vb__tokenizer *t, bool skip_special, vb__detokenizer **out,
                                          vb_error *err);
void vb__detokenizer_destroy(vb__detokenizer *d); /* accepts NULL */
void vb__detokenizer_reset(vb__detokenizer *d);
/* The text that became certain: valid UTF-8, borrowed until the next call, possibly empty. An id without a
 * token gives nothing and breaks nothing. Allocates only while its buffers grow to the longest token. */
VB_MUST_USE vb_err vb__detokenizer_push(vb__detokenizer *d, int32_t id, const char **text, size_t *n,
                                        vb_error *err);
/* What was held back; an unfinished character is U+FFFD. The stream is at its beginning again afterwards. */
VB_MUST_USE vb_err vb__detokenizer_end(vb__detokenizer *d, const char **text, size_t *n, vb_error *err);

/* ---- stop strings ---- */

typedef struct vb__stop_matcher vb__stop_matcher;

/* Copies the strings (not empty, valid UTF-8; at most VB_LIMIT_STOP_STRINGS of VB_LIMIT_STOP_BYTES): else
 * VB_E_ARGUMENT or VB_E_LIMIT. n = 0 is legal: everything passes. */
VB_MUST_USE vb_err vb__stop_create(const char *const *strings, const size_t *lengths, size_t n,
                                   vb__stop_matcher **out, vb_error *err);
void vb__stop_destroy(vb__stop_matcher *m); /* accepts NULL */
void vb__stop_reset(vb__stop_matcher *m);
/* Takes a piece of text; hands out what can no longer be part of a stop string, borrowed until the next call.
 * The stop string that is complete first counts (of several at one place the longest): *match is its index,
 * and the text ends right before it; nothing passes after that. *match is -1 otherwise. */
VB_MUST_USE vb_err vb__stop_push(vb__stop_matcher *m, const char *text, size_t n, const char **out,
                                 size_t *n_out, int32_t *match);
/* What was held back, when the stream ends without a match. */
void vb__stop_end(vb__stop_matcher *m, const char **out, size_t *n_out);

#endif
