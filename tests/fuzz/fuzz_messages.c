/* text/chat_messages: any messages, for a template that can do anything or nothing, become a list of known roles, or an error
 * with a sentence. The first two bytes are the template's abilities. */
#include "base/json.h"
#include "text/chat_messages.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    vb__chat_caps c = {.works = true, .system = data[0] & 1, .system_later = data[0] & 2, .repeated_user = data[0] & 4, .repeated_assistant = data[0] & 8,
                       .null_content = data[0] & 16, .only_parts = data[0] & 32, .tools = true, .tool_calls = true, .tool_results = true,
                       .text_arguments = data[0] & 64, .short_ids = data[0] & 128};
    for (int i = 0; i < VB_ROLE_COUNT; i++) c.parts[i] = data[1] >> i & 1;
    json_t *doc = NULL, *out = NULL;
    vb_error err = {0};
    if (vb__json_parse((const char *)data + 2, size - 2, 1 << 20, "messages", &doc, &err) != VB_OK) return 0;
    if (vb__chat_messages_prepare(doc, &c, &out, &err) != VB_OK) {
        if (err.text[0] == '\0' || out != NULL) abort();
    } else {
        for (size_t i = 0; i < json_array_size(out); i++) {
            const char *role = json_string_value(json_object_get(json_array_get(out, i), "role"));
            if (role == NULL || (strcmp(role, "system") != 0 && strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 && strcmp(role, "tool") != 0)) abort();
            if (json_object_get(json_array_get(out, i), "content") == NULL) abort();
        }
        json_decref(out);
    }
    json_decref(doc);
    return 0;
}
