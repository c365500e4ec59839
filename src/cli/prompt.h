/* The prompt of run and chat: where it comes from and how it becomes token ids. */
#ifndef VB_CLI_PROMPT_H
#define VB_CLI_PROMPT_H
#include "base/buffer.h"
#include "verbatim/verbatim.h"

typedef struct vb__prompt_values {
    const char *prompt, *prompt_file, *ids, *system;
    bool raw;
} vb__prompt_values;

/* The one source of the prompt: -p, --prompt-file, --ids, the positional argument, or standard input when it
 * is not a terminal. With --ids *ids is set (vb__free) and text stays empty, else text. VB_E_ARGUMENT when
 * there are none or several. */
VB_MUST_USE vb_err vb__prompt_read(const vb__prompt_values *v, const char *positional, vb__buffer *text,
                                   int32_t **ids, int32_t *count, vb_error *err);

/* Text to ids: raw (special tokens in the text are parsed), or as a user message through the chat template.
 * The ids are freed by vb_ids_free. */
VB_MUST_USE vb_err vb__prompt_encode(const vb_model *m, const vb__prompt_values *v, const vb__buffer *text,
                                     int32_t **ids, int32_t *count, vb_error *err);

/* Appends {"role", "content"} to a JSON array (of jansson's json_t). */
struct json_t;
VB_MUST_USE vb_err vb__messages_add(struct json_t *messages, const char *role, const char *text, size_t len,
                                    vb_error *err);

#endif
