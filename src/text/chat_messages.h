/* Messages of a request made ready for a chat template: one shape of content, system texts where the template
 * takes them, tool calls as it reads them. On JSON values (jansson); nothing here renders or tokenizes. */
#ifndef VB_TEXT_CHAT_MESSAGES_H
#define VB_TEXT_CHAT_MESSAGES_H
#include "base/error.h"
#include <jansson.h>
#include <stdbool.h>

typedef enum vb__chat_role {
    VB_ROLE_SYSTEM,
    VB_ROLE_USER,
    VB_ROLE_ASSISTANT,
    VB_ROLE_TOOL,
    VB_ROLE_COUNT
} vb__chat_role;

/* What a template does with messages, found by rendering probes when it is loaded (chat_template.c). */
typedef struct vb__chat_caps {
    bool works;                /* renders one user message */
    bool system;               /* renders a leading system message */
    bool system_later;         /* and one further down */
    bool repeated_user;        /* two user messages in a row */
    bool repeated_assistant;   /* two assistant messages in a row */
    bool null_content;         /* an assistant's content may be null (beside tool calls) */
    bool parts[VB_ROLE_COUNT]; /* content of this role may be a list of text parts */
    bool only_parts;           /* a user's content must be a list of parts */
    bool tools;                /* uses the list of tools */
    bool tool_calls;           /* renders tool calls in the history */
    bool tool_results;         /* renders messages of role tool */
    bool text_arguments;       /* wants a call's arguments as JSON text, not as an object */
    bool short_ids;            /* refuses call ids that are not nine letters and digits */
    bool thinking_control;     /* enable_thinking changes the prompt */
    bool thinking_default;     /* without it, the same as enable_thinking = true */
    bool reasoning_effort;     /* reasoning_effort changes the prompt */
} vb__chat_caps;

/* *out: a new array for the template. The rules:
 *   role       developer is system, function is tool; others than system, user, assistant, tool are refused
 *   null       a key that is null counts as absent
 *   content    null or absent becomes "" (null is kept where the template knows it); text parts (text,
 * input_text, output_text, refusal) are joined, or kept where the template reads parts; other parts are
 * refused system     leading ones become one, joined by a blank line; put in front of the first user message
 * when the template has no place for it; a later one stays where the template renders it, else it becomes a
 *              user message <system-reminder>\n...\n</system-reminder>. Text that begins with
 *              x-anthropic-billing-header: is dropped
 *   neighbours of role user or assistant are joined by a blank line when the template refuses them
 *   reasoning  reasoning, thinking and reasoning_content are one field, given as reasoning_content and
 * thinking tool_calls arguments become an object (or text, where the template wants that) VB_E_ARGUMENT
 * naming messages[i] and the field; VB_E_MEMORY. */
VB_MUST_USE vb_err vb__chat_messages_prepare(const json_t *messages, const vb__chat_caps *caps, json_t **out,
                                             vb_error *err);

#endif
