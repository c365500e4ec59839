/* The chat template of a model about to be opened, wherever it lies. */
#ifndef VB_ENGINE_CHAT_LOAD_H
#define VB_ENGINE_CHAT_LOAD_H
#include "format/gguf.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

/* file: --chat-template or NULL; else the GGUF file's (g, NULL for a folder) or the folder's own. *out is NULL when there is none.
 * A template of the model's own that cannot be used is a warning, since raw prompts and --chat-template remain; one that
 * was asked for is an error. */
VB_MUST_USE vb_err vb__chat_load(const char *path, const char *file, const vb__gguf *g, const vb__tokenizer *tok,
                                 vb__chat_template **out, vb_error *err);

#endif
