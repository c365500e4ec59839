/* A greedy choice that argmax has made already costs nothing; other rows cost up to a millisecond each for a large
 * vocabulary, which is much beside a step that many rows share. Rows go to groups, one sampler (workspace) for each. */
#include "engine/sample_rows.h"
#include <string.h>

vb__sample_row vb__request_row(const vb__engine *e, const vb__req *r, int32_t position, int32_t top_logprobs) {
    return (vb__sample_row){.options = &r->p.sampling, .token_mask = e->token_mask, .bias = r->p.logit_bias,
                            .n_bias = r->p.n_logit_bias, .counts = r->counting ? &r->counts : NULL, .position = position,
                            .choice = r->p.choice, .top_logprobs = top_logprobs};
}

void vb__row_logits_want(vb__row_logits *l, const vb__sample_row *row) {
    if (vb__sampler_wants_best(row)) l->best = true;
    else l->read = true;
}

/* Ids that were not made: finite, and below whatever a bias may add to. */
static void fill_others(const vb__engine *e, const vb__row_logits *l, int32_t rows) {
    const int32_t v = e->model->cfg.vocab;
    for (int32_t r = 0; r < rows; r++) {
        float *row = e->logits + (int64_t)r * v;
        for (int32_t i = 0, at = 0; i <= l->n_ranges; i++) {
            const int32_t until = i < l->n_ranges ? l->ranges[i].begin : v;
            for (; at < until; at++) row[at] = -1e30f;
            if (i < l->n_ranges) at = l->ranges[i].end;
        }
    }
}

vb_err vb__row_logits_make(vb__engine *e, const float *hidden, int32_t rows, vb__row_logits *l, vb_error *err) {
    vb_check(rows <= VB_LOGIT_ROWS);
    memset(l->of, 0, sizeof l->of);
    l->logits = e->logits;
    if (!l->best && l->n_ranges == 0) {
        vb__logits(e->model, hidden, rows, e->logits);
        return e->be->ops->sync(e->be, err);
    }
    vb__logits_best(e->model, hidden, rows, l->read ? e->logits : NULL, l->ranges, l->n_ranges, l->of);
    VB_TRY(e->be->ops->sync(e->be, err));
    if (l->read && l->n_ranges > 0) fill_others(e, l, rows);
    if (l->read) return VB_OK;
    l->logits = NULL;
    for (int32_t i = 0; i < rows && l->logits == NULL; i++) { /* hardly ever: an id without a token, or NaN */
        bool token = e->token_mask == NULL || (e->token_mask[l->of[i].id / 32] >> (l->of[i].id % 32) & 1) != 0;
        if (l->of[i].finite != 0 && token) continue;
        vb__logits(e->model, hidden, rows, e->logits);
        VB_TRY(e->be->ops->sync(e->be, err));
        l->logits = e->logits;
    }
    return VB_OK;
}

void vb__row_logits_take(const vb__engine *e, const vb__row_logits *l, int32_t i, vb__sample_row *row) {
    row->logits = l->logits == NULL ? NULL : l->logits + (int64_t)i * e->model->cfg.vocab;
    row->known_best = l->of[i].finite != 0;
    row->best = row->known_best ? l->of[i].id : 0;
    row->margin = row->known_best ? l->of[i].value - l->of[i].second : 0;
}

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
