#include "engine/footprint.h"
#include "engine/engine.h"

void vb__footprint_of(const vb__model *m, bool drafts, vb__footprint *out) {
    const vb__model_config *c = &m->cfg;
    *out = (vb__footprint){
        .weights = m->weight_bytes,
        .kv_per_token = m->page_bytes / VB_PAGE_POSITIONS,
        .page = m->page_bytes,
        .state = 4 * (m->state_floats + m->conv_floats),
        .tapes = drafts ? 4 * 2 * VB_LIMIT_DRAFT_WIDTH * m->tape_stride : 0,
        .workspace = vb__workspace_bytes(c, VB_LIMIT_ROWS) + 4 * (int64_t)VB_LIMIT_ROWS * c->hidden +
                     4 * VB_LOGIT_ROWS * ((int64_t)c->vocab + c->hidden) + 24 * (int64_t)c->vocab,
    };
}

int64_t vb__footprint_context(const vb__footprint *f, int64_t ctx) {
    return (ctx + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS * f->page + f->state + f->tapes + f->workspace;
}
