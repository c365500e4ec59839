/* The prompt of run and chat. See prompt.h. */
#include "cli/prompt.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/options.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static vb_err read_stdin(vb__buffer *text, vb_error *err) {
    char chunk[4096];
    for (;;) {
        ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return vb__fail(err, VB_E_IO, "standard input: %s, expected a prompt", strerror(errno));
        if (n == 0) return VB_OK;
        vb_err e = vb__buffer_append(text, chunk, (size_t)n);
        if (e == VB_E_LIMIT)
            return vb__fail(err, e, "standard input: a prompt of more than %d bytes, expected less",
                            (int)VB_LIMIT_PROMPT_BYTES);
        if (e != VB_OK) return vb__fail(err, e, "standard input: out of memory");
    }
}

vb_err vb__prompt_read(const vb__prompt_values *v, const char *positional, vb__buffer *text, int32_t **ids,
                       int32_t *count, vb_error *err) {
    int sources = (v->prompt != NULL) + (v->prompt_file != NULL) + (v->ids != NULL) + (positional != NULL);
    if (sources > 1)
        return vb__fail(err, VB_E_ARGUMENT,
                        "prompt: given %d times, expected one of -p, --prompt-file, --ids and an argument",
                        sources);
    if (v->ids && v->system)
        return vb__fail(err, VB_E_ARGUMENT, "--system: given with --ids, which are the whole prompt, expected one of them");
    if (v->ids) return vb__parse_ids("--ids", v->ids, ids, count, err);
    if (v->prompt_file) return vb__file_read(v->prompt_file, VB_LIMIT_PROMPT_BYTES, text, err);
    const char *s = v->prompt ? v->prompt : positional;
    if (s) {
        vb_err e = vb__buffer_puts(text, s);
        return e == VB_OK ? VB_OK : vb__fail(err, e, "prompt: out of memory or too long");
    }
    if (isatty(STDIN_FILENO))
        return vb__fail(err, VB_E_ARGUMENT,
                        "prompt: is missing, expected an argument, -p TEXT, --prompt-file F or --ids");
    return read_stdin(text, err);
}

vb_err vb__messages_add(json_t *messages, const char *role, const char *text, size_t len, vb_error *err) {
    json_t *content = json_stringn(text, len);
    if (!content)
        return vb__fail(err, VB_E_FORMAT, "%s message: is not valid UTF-8, expected UTF-8 text", role);
    json_t *message = json_pack("{s:s, s:o}", "role", role, "content", content);
    if (!message || json_array_append_new(messages, message) != 0)
        return vb__fail(err, VB_E_MEMORY, "messages: out of memory");
    return VB_OK;
}

vb_err vb__prompt_encode(const vb_model *m, const vb__prompt_values *v, const vb__buffer *text, int32_t **ids,
                         int32_t *count, vb_error *err) {
    vb_model_info info;
    vb_model_get_info(m, &info);
    if (v->raw || (info.has_tokenizer && !info.has_chat_template)) {
        if (v->system)
            return vb__fail(err, VB_E_ARGUMENT,
                            "--system: needs a chat template, expected a model with one and no --raw");
        if (!v->raw)
            return vb__fail(err, VB_E_ARGUMENT,
                            "chat_template: the model has none, expected --raw or --chat-template FILE");
        return vb_tokenize(m, vb__buffer_str(text), text->len, true, true, true, ids, count, err);
    }
    json_t *messages = json_array();
    char *json = NULL;
    vb_err e = messages ? VB_OK : vb__fail(err, VB_E_MEMORY, "messages: out of memory");
    if (e == VB_OK && v->system) e = vb__messages_add(messages, "system", v->system, strlen(v->system), err);
    if (e == VB_OK) e = vb__messages_add(messages, "user", vb__buffer_str(text), text->len, err);
    if (e == VB_OK && !(json = json_dumps(messages, JSON_COMPACT)))
        e = vb__fail(err, VB_E_MEMORY, "messages: out of memory");
    if (e == VB_OK) e = vb_apply_template(m, json, NULL, NULL, true, NULL, ids, count, err);
    free(json);
    json_decref(messages);
    return e;
}
