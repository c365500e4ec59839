/* engine/trace_lines: any bytes, line by line as replay reads them, give a header or a request within its bounds, or an error with a
 * sentence. */
#include "base/limits.h"
#include "engine/trace_lines.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 300 };

static void must(int holds) {
    if (!holds) abort();
}

static void check_request(const vb__trace_request *r) {
    for (int32_t i = 0; i < r->n_prompt; i++) must(r->prompt[i] >= 0 && r->prompt[i] < VOCAB);
    for (int32_t i = 0; i < r->n_tokens; i++) must(r->tokens[i] >= 0 && r->tokens[i] < VOCAB);
    for (int32_t i = 0; i < r->n_rounds; i++)
        must(r->accepted[i] >= 0 && r->accepted[i] <= r->proposed[i] && r->proposed[i] < VB_LIMIT_DRAFT_WIDTH);
    must(r->q.prompt_ids == r->prompt && r->q.prompt_count == r->n_prompt && r->q.hash_logits && r->q.max_tokens >= -1);
    must(r->q.n_stops >= 0 && r->q.n_stops <= VB_MAX_STOPS && r->q.n_logit_bias >= 0);
    for (int32_t i = 0; i < r->q.n_stops; i++) must(r->q.stops[i] != NULL);
    for (int32_t i = 0; i < r->q.n_logit_bias; i++) must(r->q.logit_bias[i].id >= 0 && r->q.logit_bias[i].id < VOCAB);
    must(strlen(r->sha) == 64);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int32_t vocab = 0;
    for (const char *at = (const char *)data, *end = at + size; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        vb__trace_line l;
        vb_error err = {0};
        if (stop == NULL) stop = end;
        if (vb__trace_line_parse(at, (size_t)(stop - at), "input:1", vocab, &l, &err) != VB_OK) {
            must(err.text[0] != '\0');
        } else {
            if (l.kind == VB_TRACE_REQUEST) check_request(&l.request);
            else {
                must(l.header.path != NULL && l.header.model != NULL && l.header.ctx >= 0 && l.header.ctx <= VB_LIMIT_CONTEXT);
                must(l.header.activations == 8 || l.header.activations == 16);
                vocab = VOCAB;
            }
            vb__trace_line_fini(&l);
        }
        at = stop + 1;
    }
    return 0;
}
