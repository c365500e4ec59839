#include "engine/footprint.h"
#include "base/alloc.h"
#include "base/cpu.h"
#include "engine/draft_vocab.h"
#include "engine/engine.h"

vb_err vb__footprint_scratch(const vb__model_config *c, int32_t threads, int32_t activations, int64_t *out, vb_error *err) {
    vb__cpu_level level;
    vb__backend *be;
    VB_TRY(vb__cpu_select(&level, err));
    const vb__cpu_backend_options o = {.level = (int32_t)level, .threads = threads > 0 ? threads : vb__cpu_cores(),
                                       .activations = activations, .max_rows = VB_LIMIT_ROWS, .max_k = vb__model_max_k(c),
                                       .max_heads = c->heads, .max_head_dim = c->head_dim > 128 ? c->head_dim : 128};
    size_t before = vb__alloc_bytes(VB_TAG_SCRATCH);
    VB_TRY(vb__cpu_backend_create(&o, &be, err));
    *out = (int64_t)(vb__alloc_bytes(VB_TAG_SCRATCH) - before);
    be->ops->destroy(be);
    return VB_OK;
}

void vb__footprint_of(const vb__model *m, int64_t scratch, vb__footprint *out) {
    const vb__model_config *c = &m->cfg;
    *out = (vb__footprint){
        .weights = m->weight_bytes,
        .kv_per_token = m->page_bytes / VB_PAGE_POSITIONS,
        .page = m->page_bytes,
        .state = 4 * (m->state_floats + m->conv_floats),
        .tapes = 4 * 2 * VB_LIMIT_DRAFT_WIDTH * m->tape_stride,
        .workspace = scratch + vb__workspace_bytes(c, VB_LIMIT_ROWS) + 4 * (int64_t)VB_LIMIT_ROWS * c->hidden +
                     4 * VB_LOGIT_ROWS * ((int64_t)c->vocab + c->hidden) + 24 * (int64_t)c->vocab +
                     vb__draft_vocab_bytes(c->vocab, 1),
    };
}

int64_t vb__footprint_context(const vb__footprint *f, int64_t ctx) {
    return (ctx + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS * f->page + f->state + f->tapes + f->workspace;
}
