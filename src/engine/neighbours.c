#include "engine/neighbours.h"
#include "base/alloc.h"

struct vb__neighbours {
    int32_t count;
    vb__req *reqs[];
};

static uint64_t next(uint64_t *s) { /* splitmix64 */
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

vb_err vb__neighbours_start(vb__engine *e, int32_t count, int32_t n_prompt, vb__neighbours **out, vb_error *err) {
    if (count == 0) return VB_OK;
    vb__neighbours *n = vb__calloc(VB_TAG_ENGINE, 1, sizeof *n + (size_t)count * sizeof n->reqs[0]);
    int32_t *ids = vb__alloc(VB_TAG_ENGINE, (size_t)e->ctx * sizeof *ids);
    vb_err code = VB_OK;
    if (n == NULL || ids == NULL) code = vb__fail(err, VB_E_MEMORY, "neighbours: out of memory");
    for (int32_t i = 0; i < count && code == VB_OK; i++) {
        uint64_t s = 0x5eed0000u + (uint64_t)i;
        int32_t len = 1 + (int32_t)(next(&s) % (uint64_t)(2 * n_prompt));
        if (len > e->ctx / 2) len = e->ctx / 2;
        if (len < 1) len = 1;
        for (int32_t k = 0; k < len; k++) ids[k] = (int32_t)(next(&s) % (uint64_t)e->model->cfg.vocab);
        const vb__req_params p = {.prompt = ids, .n_prompt = len, .max_tokens = -1, .ignore_eos = true, .no_text = true,
                                  .no_reuse = true, .top_logprobs = -1,
                                  .sampling = {.temperature = 1.0f, .top_p = 1.0f, .repeat_penalty = 1.0f, .seed = s}};
        code = vb__req_create(e, &p, &n->reqs[i], err);
        if (code == VB_OK) {
            n->count = i + 1;
            code = vb__engine_submit(e, n->reqs[i], err);
        }
    }
    vb__free(ids);
    if (code != VB_OK) {
        vb__neighbours_stop(e, n);
        return code;
    }
    *out = n;
    return VB_OK;
}

void vb__neighbours_stop(vb__engine *e, vb__neighbours *n) {
    if (n == NULL) return;
    for (int32_t i = 0; i < n->count; i++) {
        vb__engine_cancel(e, n->reqs[i]);
        if (n->reqs[i]->phase == VB_REQ_NEW) n->reqs[i]->phase = VB_REQ_DONE;
        vb__req_destroy(n->reqs[i]);
    }
    vb__free(n);
}
