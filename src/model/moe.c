#include "model/moe.h"
#include "base/alloc.h"
#include <string.h>

/* Where a call keeps what lies between its products. With R rows, T experts a row, E experts, H wide: */
typedef struct scratch {
    float *logits;  /* (R, E) router */
    float *weights; /* (R, T) */
    float *gate;    /* (R) raw shared gate */
    float *shared;  /* (R, H) */
    float *in;      /* (R, H) rows of one expert */
    float *out;     /* (R*T, H) what experts gave, by slot */
    float *g, *u;   /* (T, expert width) of a single row */
} scratch;

struct vb__moe_host {
    int32_t *ids;         /* [R*T] the expert of each row and rank */
    int32_t *slot;        /* [R*T] where its output lies */
    int32_t *row;         /* [R*T] by slot: the row */
    int32_t *first;       /* [E + 1] first slot of each expert */
    vb__linear_out *outs; /* [2*T] */
};

static int64_t floats_of(const vb__model_config *c, int64_t rows, float *base, scratch *s) {
    int64_t t = c->experts_used, h = c->hidden;
    const int64_t n[8] = {rows * c->experts,
                          rows * t,
                          rows,
                          rows * h,
                          rows * h,
                          rows * t * h,
                          t * c->expert_intermediate,
                          t * c->expert_intermediate};
    float **const at[8] = {&s->logits, &s->weights, &s->gate, &s->shared, &s->in, &s->out, &s->g, &s->u};
    int64_t sum = 0;
    for (int i = 0; i < 8; i++) {
        if (base != NULL) *at[i] = base + sum;
        sum += (n[i] + 15) & ~(int64_t)15;
    }
    return sum;
}

int64_t vb__moe_floats(const vb__model_config *c, int32_t max_rows) {
    scratch s;
    return c->experts > 0 ? floats_of(c, max_rows, NULL, &s) : 0;
}

vb_err vb__moe_host_create(const vb__model_config *c, int32_t max_rows, struct vb__moe_host **out) {
    *out = NULL;
    if (c->experts == 0) return VB_OK;
    size_t n = (size_t)max_rows * (size_t)c->experts_used;
    struct vb__moe_host *h = vb__calloc(VB_TAG_SCRATCH, 1, sizeof *h);
    if (h == NULL) return VB_E_MEMORY;
    h->ids = vb__calloc(VB_TAG_SCRATCH, n, sizeof *h->ids);
    h->slot = vb__calloc(VB_TAG_SCRATCH, n, sizeof *h->slot);
    h->row = vb__calloc(VB_TAG_SCRATCH, n, sizeof *h->row);
    h->first = vb__calloc(VB_TAG_SCRATCH, (size_t)c->experts + 1, sizeof *h->first);
    h->outs = vb__calloc(VB_TAG_SCRATCH, 2 * (size_t)c->experts_used, sizeof *h->outs);
    if (h->ids == NULL || h->slot == NULL || h->row == NULL || h->first == NULL || h->outs == NULL) {
        vb__moe_host_destroy(h);
        return VB_E_MEMORY;
    }
    *out = h;
    return VB_OK;
}

void vb__moe_host_destroy(struct vb__moe_host *h) {
    if (h == NULL) return;
    vb__free(h->ids);
    vb__free(h->slot);
    vb__free(h->row);
    vb__free(h->first);
    vb__free(h->outs);
    vb__free(h);
}

/* One row: its experts share one input, so that gate and up of all of them are one call. */
static void one_row(const vb__model *m, const vb__layer *l, vb__workspace *ws, const scratch *s) {
    vb__backend *be = m->be;
    struct vb__moe_host *h = ws->moe_host;
    const vb__model_config *c = &m->cfg;
    int64_t n = c->expert_intermediate, t = c->experts_used;
    for (int64_t i = 0; i < t; i++) {
        const vb__expert *e = &l->experts[h->ids[i]];
        h->outs[2 * i] = (vb__linear_out){e->gate, NULL, NULL, 0, s->g + i * n, n};
        h->outs[2 * i + 1] = (vb__linear_out){e->up, NULL, NULL, 0, s->u + i * n, n};
        h->slot[i] = (int32_t)i;
    }
    be->ops->linear(be, ws->h, c->hidden, 1, h->outs, 2 * c->experts_used);
    be->ops->swiglu(be, s->g, n, s->g, n, s->u, n, c->experts_used, c->expert_intermediate);
    for (int64_t i = 0; i < t; i++) {
        const vb__linear_out down = {l->experts[h->ids[i]].down, NULL,     NULL, 0,
                                     s->out + i * c->hidden,     c->hidden};
        be->ops->linear(be, s->g + i * n, n, 1, &down, 1);
    }
}

/* Rows sorted by expert, ascending rows within one: slots. */
static void sort_rows(const vb__model_config *c, struct vb__moe_host *h, int32_t rows) {
    int32_t all = rows * c->experts_used, at = 0;
    memset(h->first, 0, ((size_t)c->experts + 1) * sizeof *h->first);
    for (int32_t i = 0; i < all; i++) h->first[h->ids[i]]++;
    for (int32_t e = 0; e <= c->experts;
         e++) { /* counts become ends, and filling backwards makes them starts */
        at += h->first[e];
        h->first[e] = at;
    }
    for (int32_t i = all - 1; i >= 0; i--) {
        int32_t slot = --h->first[h->ids[i]];
        h->slot[i] = slot;
        h->row[slot] = i / c->experts_used;
    }
}

static void many_rows(const vb__model *m, const vb__layer *l, vb__workspace *ws, const scratch *s,
                      int32_t rows) {
    vb__backend *be = m->be;
    struct vb__moe_host *h = ws->moe_host;
    const vb__model_config *c = &m->cfg;
    int64_t hid = c->hidden;
    sort_rows(c, h, rows);
    for (int32_t e = 0; e < c->experts; e++) {
        const vb__expert *x = &l->experts[e];
        int32_t first = h->first[e], count = h->first[e + 1] - first;
        if (count == 0) continue;
        be->ops->gather_rows(be, s->in, hid, ws->h, hid, h->row + first, count, c->hidden);
        const vb__mlp_args a = {x->gate, x->up, NULL, NULL, NULL, {x->down, NULL, NULL, 0, s->out + first * hid, hid}};
        be->ops->mlp(be, s->in, hid, count, &a);
    }
}

void vb__moe_forward(const vb__model *m, const vb__layer *l, vb__workspace *ws, int32_t rows) {
    vb__backend *be = m->be;
    const vb__model_config *c = &m->cfg;
    int64_t hid = c->hidden;
    scratch s;
    (void)floats_of(c, rows, ws->moe, &s);
    const vb__linear_out in[2] = {{l->router, NULL, NULL, 0, s.logits, c->experts},
                                  {l->shared_gate, NULL, NULL, 0, s.gate, 1}};
    be->ops->linear(be, ws->h, hid, rows, in, 2);
    const vb__mlp_args shared = {l->shared.gate, l->shared.up, NULL, NULL, NULL, {l->shared.down, NULL, NULL, 0, s.shared, hid}};
    be->ops->mlp(be, ws->h, hid, rows, &shared);
    be->ops->route(be, s.logits, c->experts, rows, c->experts, c->experts_used, ws->moe_host->ids, s.weights);
    if (rows == 1) one_row(m, l, ws, &s);
    else many_rows(m, l, ws, &s, rows);
    const vb__combine_args a = {.y = ws->x,
                                .ys = hid,
                                .experts = s.out,
                                .es = hid,
                                .slot = ws->moe_host->slot,
                                .w = s.weights,
                                .shared = s.shared,
                                .ss = hid,
                                .gate = s.gate,
                                .residual = ws->x,
                                .rs = hid,
                                .rows = rows,
                                .n = c->hidden,
                                .used = c->experts_used};
    be->ops->combine(be, &a);
}
