/* A model's chat template: where it is found, what it can do with messages (found by rendering probes when it
 * is loaded), and conversations rendered to text whose origin is known. Turning that text into ids, with
 * control tokens only where the text is the template's, is the tokenizer's part (the runs say which bytes
 * those are). */
#ifndef VB_TEXT_CHAT_TEMPLATE_H
#define VB_TEXT_CHAT_TEMPLATE_H
#include "text/chat_messages.h"
#include "text/jinja.h"

typedef struct vb__chat_template vb__chat_template; /* immutable; any number of threads */

/* The first found of: `file` (--chat-template; NULL: not given), and in `folder` (may be NULL)
 * chat_template.jinja, chat_template.json, chat_template in tokenizer_config.json. The last two hold a string
 * or a list of {"name", "template"} (or an object of names): `tool_use` serves requests with tools, `default`
 * the others. Token texts (bos_token and so on) come from the folder's tokenizer_config.json, then
 * special_tokens_map.json. VB_E_NOT_FOUND when there is no template; errors begin with the file's name. */
VB_MUST_USE vb_err vb__chat_template_open(const char *folder, const char *file, vb__chat_template **out,
                                          vb_error *err);

/* From texts in memory (GGUF). tool_source may be NULL. `tokens`: an object of token texts ("bos_token":
 * "<s>"), may be NULL, copied. `name` is used in errors and kept. */
VB_MUST_USE vb_err vb__chat_template_create(const char *source, size_t len, const char *tool_source,
                                            size_t tool_len, const json_t *tokens, const char *name,
                                            vb__chat_template **out, vb_error *err);
void vb__chat_template_destroy(vb__chat_template *t); /* accepts NULL */

/* Of the template that serves requests with tools, or without. Borrowed. */
const vb__chat_caps *vb__chat_template_caps(const vb__chat_template *t, bool tools);
const char *vb__chat_template_source(const vb__chat_template *t, bool tools);

typedef struct vb__chat_input {
    const json_t *messages; /* array, as in a request (chat_messages.h makes them ready) */
    const json_t *tools;    /* array in the form of OpenAI's API; NULL, null or empty: none */
    const json_t *kwargs;   /* chat_template_kwargs: an object or NULL */
    bool add_generation_prompt;
    int8_t thinking;              /* enable_thinking: -1 not said, 0 off, 1 on; kwargs win */
    const char *reasoning_effort; /* given to the template when low, medium or high; NULL */
    int64_t now;                  /* strftime_now, seconds since 1970, shown in local time; 0: the clock */
} vb__chat_input;

/* VB_E_ARGUMENT: a message or another field is at fault, tools for a template without, kwargs that may not be
 * set; VB_E_FORMAT: the template failed, or raised (then out->raised and out->message is its text). `out` is
 * for vb__jinja_result_fini in any case. Any thread. */
VB_MUST_USE vb_err vb__chat_template_render(const vb__chat_template *t, const vb__chat_input *in,
                                            vb__jinja_result *out, vb_error *err);

/* The same for a JSON document: an array of messages, or an object with "messages" and perhaps "tools",
 * "chat_template_kwargs", "add_generation_prompt" (default true) and further variables of the template. */
VB_MUST_USE vb_err vb__chat_template_render_json(const vb__chat_template *t, const char *json, size_t len,
                                                 vb__jinja_result *out, vb_error *err);

#endif
