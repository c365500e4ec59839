/* A greedy choice that argmax has made already costs nothing; other rows cost up to a millisecond each for a large
 * vocabulary, which is much beside a step that many rows share. Rows go to groups, one sampler (workspace) for each. */
#include "engine/sample_rows.h"

typedef struct pick_ctx {
    vb__engine *e;
    const vb__sample_row *rows;
    vb__sample *out;
    vb_error *why;
    int32_t n, groups;
    int32_t todo[VB_LOGIT_ROWS]; /* n rows that need work */
} pick_ctx;

static void pick(const pick_ctx *c, vb__sampler *s, int32_t i) {
    vb_error err = {0};
    vb_err code = vb__sampler_pick(s, &c->rows[i], &c->out[i], &err);
    if (code != VB_OK) c->why[i] = err;
    c->why[i].code = code;
}

static void pick_groups(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const pick_ctx *c = ctx;
    (void)thread;
    for (int32_t g = begin; g < end; g++)
        for (int32_t i = g; i < c->n; i += c->groups) pick(c, c->e->samplers[g], c->todo[i]);
}

void vb__sample_rows(vb__engine *e, const vb__sample_row *rows, int32_t n, vb__sample *out, vb_error *why) {
    pick_ctx c = {.e = e, .rows = rows, .out = out, .why = why};
    vb_check(n <= VB_LOGIT_ROWS);
    for (int32_t i = 0; i < n; i++)
        if (vb__sampler_known(&rows[i])) pick(&c, e->samplers[0], i);
        else c.todo[c.n++] = i;
    c.groups = c.n < e->n_samplers ? c.n : e->n_samplers;
    if (c.groups > 1) e->be->ops->host_items(e->be, c.groups, pick_groups, &c);
    else pick_groups(&c, 0, c.groups, 0);
}
