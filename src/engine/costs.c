#include "engine/costs.h"

static void add(vb__costs *s, const vb__weight *w, int32_t times) {
    if (w == NULL) return;
    s->weight_bytes += w->bytes * times;
    s->body_macs += (int64_t)w->n * w->k * times;
}

static void add_expert(vb__costs *s, const vb__expert *e, int32_t times) {
    add(s, e->gate, times);
    add(s, e->up, times);
    add(s, e->down, times);
}

void vb__costs_of(const vb__model *m, vb__costs *out) {
    const vb__model_config *c = &m->cfg;
    vb__costs s = {.window = c->sliding_window};
    for (int32_t i = 0; i < c->layers; i++) {
        const vb__layer *l = &m->layers[i];
        const vb__weight *const w[] = {l->q, l->k, l->v, l->o, l->qkv, l->z, l->b, l->a, l->out, l->gate, l->up, l->down,
                                       l->router, l->shared_gate};
        for (size_t j = 0; j < sizeof w / sizeof w[0]; j++) add(&s, w[j], 1);
        add_expert(&s, &l->shared, 1);
        if (l->experts != NULL) add_expert(&s, &l->experts[0], c->experts_used); /* a row's own; all are of one size */
        if (l->type == VB_LAYER_LINEAR) continue;
        int64_t kv = (int64_t)l->kv.kv_heads * l->kv.head_dim * 2 * 2; /* K and V, bf16 */
        s.kv_bytes += kv;
        if (l->type == VB_LAYER_SLIDING) s.kv_window_bytes += kv;
    }
    s.weight_bytes += m->head->bytes;
    if (m->embed != m->head) s.weight_bytes += m->embed->bytes / m->embed->n;
    s.head_macs = (int64_t)m->head->n * m->head->k;
    s.state_bytes = 4 * (m->state_floats + m->conv_floats);
    *out = s;
}

int64_t vb__costs_step_bytes(const vb__costs *c, int64_t pos) {
    int64_t seen = pos + 1, near = c->window > 0 && c->window < seen ? c->window : seen;
    return c->weight_bytes + (c->kv_bytes - c->kv_window_bytes) * seen + c->kv_window_bytes * near + 2 * c->state_bytes;
}
