/* engine/sampler: any logits, masks and options give an allowed token or an error. The input is a header of
 * options and then the bits of the logits. */
#include "engine/sampler.h"
#include "engine/sampling_options.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADER = 64, MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct {
        float temperature, top_p, min_p, repeat, presence, frequency, bias;
        int32_t top_k;
        uint64_t seed;
        uint32_t position, choice, tokens, grammar;
        int32_t history[2];
    } h;
    _Static_assert(sizeof h == HEADER, "one header");
    if (size < HEADER + 4 || size > HEADER + 4 * MAX) return 0;
    memcpy(&h, data, sizeof h);
    int32_t n = (int32_t)((size - HEADER) / 4);
    float *x = malloc((size_t)n * 4);
    uint32_t *mask = malloc(((size_t)n + 31) / 32 * 8), *grammar = mask + (n + 31) / 32;
    memcpy(x, data + HEADER, (size_t)n * 4);
    for (int32_t i = 0; i < (n + 31) / 32; i++) {
        mask[i] = h.tokens * (uint32_t)(2 * i + 1);
        grammar[i] = h.grammar * (uint32_t)(2 * i + 3);
    }
    vb_sampling o = {0xff,     h.temperature, h.top_k,     h.top_p, h.min_p,
                     h.repeat, h.presence,    h.frequency, h.seed};
    vb_logit_bias bias = {h.history[0] & 0x7fffffff, h.bias};
    bias.id %= n;
    vb_error err;
    vb__token_counts counts;
    vb__sampler *s = NULL;
    if (vb__sampling_check(&o, &err) == VB_OK && isfinite(h.bias) &&
        vb__token_counts_init(&counts, 8, &err) == VB_OK) {
        if (vb__sampler_create(n, &s, &err) != VB_OK) abort();
        for (int i = 0; i < 2; i++) (void)!vb__token_counts_push(&counts, h.history[i] & 0x3fffff);
        vb__sample_row r = {.logits = x,
                            .options = &o,
                            .token_mask = h.tokens ? mask : NULL,
                            .grammar_mask = h.grammar ? grammar : NULL,
                            .bias = &bias,
                            .n_bias = 1,
                            .counts = &counts,
                            .position = h.position,
                            .choice = h.choice,
                            .top_logprobs = 20};
        vb__sample a, b;
        vb_err e = vb__sampler_pick(s, &r, &a, &err);
        if (e == VB_OK) {
            uint32_t bit = 1u << a.id % 32;
            if (a.id < 0 || a.id >= n || a.survivors < 1 || a.survivors > n || a.n_top != (n < 20 ? n : 20))
                abort();
            if ((r.token_mask && !(mask[a.id / 32] & bit)) || (r.grammar_mask && !(grammar[a.id / 32] & bit)))
                abort();
            if (vb__sampler_pick(s, &r, &b, &err) != VB_OK || b.id != a.id || b.survivors != a.survivors)
                abort();
        } else if (e != VB_E_NONFINITE && e != VB_E_NOT_FOUND) {
            abort();
        }
        vb__sampler_destroy(s);
        vb__token_counts_fini(&counts);
    }
    free(x);
    free(mask);
    return 0;
}
