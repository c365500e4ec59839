/* The text side of a GGUF file: its tokenizer and its chat template. */
#ifndef VB_ENGINE_GGUF_TEXT_H
#define VB_ENGINE_GGUF_TEXT_H
#include "format/gguf.h"
#include "text/tokenizer.h"

/* VB_E_NOT_FOUND for a file without tokenizer.ggml keys. The file may be closed afterwards. */
VB_MUST_USE vb_err vb__gguf_tokenizer(const vb__gguf *g, vb__tokenizer **out, vb_error *err);
/* The Jinja text, borrowed from the file. VB_E_NOT_FOUND when it has none. */
VB_MUST_USE vb_err vb__gguf_chat_template(const vb__gguf *g, const char **out, size_t *len, vb_error *err);

#endif
