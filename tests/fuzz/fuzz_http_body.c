/* server/gen_request: any body gives a request whose numbers are within their bounds, or an error with a sentence. */
#include "server/gen_request.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The model behind it: every text is one token. */
void vb_request_init(vb_request *r) { *r = (vb_request){.max_tokens = -1, .top_logprobs = -1}; }
void vb_ids_free(int32_t *ids) { vb__free(ids); }
vb_err vb_tokenize(const vb_model *m, const char *text, size_t len, bool parse_special, bool parse_added, bool add_special, int32_t **ids,
                   int32_t *count, vb_error *err) {
    (void)m, (void)parse_special, (void)parse_added, (void)add_special, (void)err;
    *ids = vb__calloc(VB_TAG_MISC, 1, sizeof **ids);
    if (*ids == NULL) return VB_E_MEMORY;
    for (size_t i = 0; i < len; i++) **ids ^= text[i];
    *count = len > 0;
    return VB_OK;
}
vb_err vb_apply_template(const vb_model *m, const char *messages, const char *tools, const char *kwargs, bool prompt, char **text, int32_t **ids,
                         int32_t *count, vb_error *err) {
    (void)tools, (void)kwargs, (void)prompt, (void)text;
    return vb_tokenize(m, messages, strlen(messages), true, true, true, ids, count, err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size == 0) return 0;
    json_t *root = NULL;
    vb_error err = {0};
    if (vb__body_parse((const char *)data + 1, size - 1, &root, &err) != VB_OK) {
        if (err.text[0] == '\0' || root != NULL) abort();
        return 0;
    }
    vb__gen g;
    vb_err e = vb__gen_read(&g, root, data[0] & 1, &err);
    if (e == VB_OK) {
        const vb_request *q = &g.request;
        if (g.n < 1 || g.n > VB_GEN_N_MAX || q->n_stops > VB_MAX_STOPS || q->top_logprobs > 20 || q->draft_width > 16 || q->max_tokens < -1) abort();
        if (g.logprobs && q->top_logprobs < 0) abort();
        for (int32_t i = 0; i < q->n_stops; i++)
            if (q->stops[i][0] == '\0') abort();
        e = vb__gen_prompts(&g, NULL, &err);
        if (e == VB_OK && (g.n_prompts < 1 || g.n_prompts > VB_GEN_PROMPTS_MAX)) abort();
    }
    if (e != VB_OK && err.text[0] == '\0') abort();
    vb__gen_fini(&g);
    return 0;
}
