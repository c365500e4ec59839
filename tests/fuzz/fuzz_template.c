/* text/jinja: any source compiles or gives an error with a sentence, and what compiles renders or gives one.
 */
#include "text/jinja.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char CONTEXT[] =
    "{\"s\": \"a text\", \"u\": \"Gr\\u00fc\\u00dfe \\ud83d\\udc4d\", \"n\": 7, \"f\": 2.5, \"t\": true, "
    "\"nul\": null, \"l\": [3, 1, 2], \"d\": {\"b\": 2, \"a\": [1]},"
    " \"messages\": [{\"role\": \"user\", \"content\": \"hi\"}, {\"role\": \"assistant\", \"content\": "
    "\"<think>x</think>y\","
    " \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"a\": 1}}}]}], \"tools\": "
    "[{\"function\": {\"name\": \"f\"}}]}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static json_t *context;
    if (context == NULL) context = json_loads(CONTEXT, 0, NULL);
    vb__jinja *t = NULL;
    vb_error err = {0};
    if (vb__jinja_compile((const char *)data, size, &t, &err) != VB_OK) {
        if (strncmp(err.text, "template", 8) != 0) abort();
        return 0;
    }
    vb__jinja_result res;
    if (vb__jinja_render(t, context, NULL, NULL, &res, &err) != VB_OK) {
        if (strncmp(err.text, "template line", 13) != 0 || res.message == NULL) abort();
    } else {
        size_t sum = 0;
        for (size_t i = 0; i < res.n_runs; i++) sum += res.runs[i].bytes;
        if (sum != res.len || res.text[res.len] != '\0') abort();
    }
    vb__jinja_result_fini(&res);
    vb__jinja_destroy(t);
    return 0;
}
