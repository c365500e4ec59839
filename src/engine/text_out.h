/* Text of an answer as it grows: tokens in, whole UTF-8 out, cut exactly before a stop string. */
#ifndef VB_ENGINE_TEXT_OUT_H
#define VB_ENGINE_TEXT_OUT_H
#include "base/error.h"
#include "text/tokenizer.h"

typedef struct vb__text_out vb__text_out;
VB_MUST_USE vb_err vb__text_out_create(const vb__tokenizer *tok, const char *const *stops, int32_t n_stops,
                                       vb__text_out **out, vb_error *err);
void vb__text_out_destroy(vb__text_out *t);
/* Adds a token. *text is what became final (borrowed until the next call). *stop is the stop string that now ends the
 * answer (as given), or NULL; nothing more may be pushed then. */
VB_MUST_USE vb_err vb__text_out_push(vb__text_out *t, int32_t id, const char **text, size_t *len, const char **stop);
/* The rest: held-back text, U+FFFD for an unfinished character. */
VB_MUST_USE vb_err vb__text_out_end(vb__text_out *t, const char **text, size_t *len);

#endif
