/* The forward pass of a decoder: layers of attention or gated delta net, each followed by an MLP, written as a
 * sequence of calls on a backend. Residual sums are the epilogue of the last product of each half layer. */
#include "model/decoder.h"
#include "base/alloc.h"
#include "model/moe.h"
#include <string.h>

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static void workspace_widths(const vb__model_config *c, int64_t *wide, int64_t *wide2, int64_t *mix) {
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim;
    int64_t vd = (int64_t)c->lin_nv * c->lin_dv, ch = 2 * (int64_t)c->lin_nk * c->lin_dk + vd;
    int64_t mlp = max64(c->intermediate, max64(c->expert_intermediate, c->shared_intermediate));
    *wide = max64(max64((c->output_gate ? 2 * q : q) + 2 * kv, ch + vd + 2 * (int64_t)c->lin_nv), mlp);
    *wide2 = max64(max64(q, ch), mlp);
    *mix = max64(vd, 1);
}

int64_t vb__workspace_bytes(const vb__model_config *c, int32_t max_rows) {
    int64_t wide, wide2, mix;
    workspace_widths(c, &wide, &wide2, &mix);
    int64_t row = 2 * (int64_t)c->hidden + wide + wide2 + mix + (c->mtp_layers != 0 ? 2 * (int64_t)c->hidden : 0) +
                  c->rope.rotated;
    return (row * max_rows + vb__moe_floats(c, max_rows)) * (int64_t)sizeof(float);
}

static vb_err take(vb__backend *be, int64_t floats, float **out) {
    void *p = NULL;
    VB_TRY(be->ops->alloc(be, (size_t)floats * sizeof(float), &p));
    *out = p;
    return VB_OK;
}

vb_err vb__workspace_create(const vb__model *m, int32_t max_rows, int32_t max_seqs, vb__workspace **out,
                            vb_error *err) {
    vb__workspace *ws = vb__calloc(VB_TAG_SCRATCH, 1, sizeof *ws);
    if (ws == NULL) return vb__fail(err, VB_E_MEMORY, "workspace: out of memory");
    const vb__model_config *c = &m->cfg;
    ws->be = m->be;
    ws->max_rows = max_rows;
    ws->max_seqs = max_seqs;
    workspace_widths(c, &ws->wide_n, &ws->wide2_n, &ws->mix_n);
    ws->rope.r = c->rope.rotated;
    vb_err e;
    VB_TRY_OUT(take(m->be, (int64_t)max_rows * c->hidden, &ws->x));
    VB_TRY_OUT(take(m->be, (int64_t)max_rows * c->hidden, &ws->h));
    VB_TRY_OUT(take(m->be, max_rows * ws->wide_n, &ws->wide));
    VB_TRY_OUT(take(m->be, max_rows * ws->wide2_n, &ws->wide2));
    VB_TRY_OUT(take(m->be, max_rows * ws->mix_n, &ws->mix));
    if (m->mtp != NULL) VB_TRY_OUT(take(m->be, 2 * (int64_t)max_rows * c->hidden, &ws->pair));
    VB_TRY_OUT(take(m->be, (int64_t)max_rows * (c->rope.rotated / 2), &ws->rope.cos));
    VB_TRY_OUT(take(m->be, (int64_t)max_rows * (c->rope.rotated / 2), &ws->rope.sin));
    if (c->experts > 0) VB_TRY_OUT(take(m->be, vb__moe_floats(c, max_rows), &ws->moe));
    VB_TRY_OUT(vb__moe_host_create(c, max_rows, &ws->moe_host));
    ws->seqs = vb__calloc(VB_TAG_SCRATCH, (size_t)max_seqs, sizeof *ws->seqs);
    ws->ids = vb__calloc(VB_TAG_SCRATCH, (size_t)max_rows, sizeof *ws->ids);
    ws->pos = vb__calloc(VB_TAG_SCRATCH, (size_t)max_rows, sizeof *ws->pos);
    if (ws->seqs == NULL || ws->ids == NULL || ws->pos == NULL) {
        e = VB_E_MEMORY;
        goto out;
    }
    *out = ws;
    return VB_OK;
out:
    vb__workspace_destroy(ws);
    return vb__fail(err, e, "workspace: out of memory for %d rows (%lld bytes)", max_rows,
                    (long long)vb__workspace_bytes(c, max_rows));
}

void vb__workspace_destroy(vb__workspace *ws) {
    if (ws == NULL) return;
    vb__backend *be = ws->be;
    float *const bufs[] = {ws->x, ws->h, ws->wide, ws->wide2, ws->mix, ws->pair, ws->moe, ws->rope.cos, ws->rope.sin};
    for (size_t i = 0; i < sizeof bufs / sizeof bufs[0]; i++) be->ops->free(be, bufs[i]);
    vb__moe_host_destroy(ws->moe_host);
    vb__free(ws->seqs);
    vb__free(ws->ids);
    vb__free(ws->pos);
    vb__free(ws);
}

/* ---- Half layers ------------------------------------------------------------------------------------------ */

static vb__norm norm_of(const vb__model *m, const vb__workspace *ws, const float *w) {
    return (vb__norm){ws->x, m->cfg.hidden, w, m->cfg.eps};
}

static void mixer_attention(const vb__model *m, const vb__layer *l, vb__workspace *ws, int32_t rows,
                            int32_t n_seqs, bool head_chunk) {
    vb__backend *be = m->be;
    const vb__model_config *c = &m->cfg;
    int64_t d = c->head_dim, qh = c->output_gate ? 2 * d : d, qn = c->heads * qh, kvn = c->kv_heads * d;
    float *q = ws->wide, *k = q + rows * qn, *v = k + rows * kvn, *o = ws->wide2;
    const vb__linear_out qkv[3] = {{l->q, l->q_bias, NULL, 0, q, qn},
                                   {l->k, l->k_bias, NULL, 0, k, kvn},
                                   {l->v, l->v_bias, NULL, 0, v, kvn}};
    const vb__norm norm = norm_of(m, ws, l->norm_in);
    be->ops->norm_linear(be, &norm, ws->h, c->hidden, rows, qkv, 3);
    if (l->q_norm != NULL) {
        be->ops->rmsnorm(be, q, qh, q, qh, l->q_norm, rows * c->heads, c->head_dim, c->eps);
        be->ops->rmsnorm(be, k, d, k, d, l->k_norm, rows * c->kv_heads, c->head_dim, c->eps);
    }
    be->ops->rope(be, q, qn, qh, rows, c->heads, &ws->rope);
    be->ops->rope(be, k, kvn, d, rows, c->kv_heads, &ws->rope);
    be->ops->kv_append(be, &l->kv, k, kvn, v, kvn, ws->seqs, n_seqs);
    const vb__attention_args a = {
        .q = q, .qs = qn, .qh = qh,
        .gate = c->output_gate ? q + d : NULL, .gs = qn, .gh = qh,
        .o = o, .os = c->heads * d,
        .kv = l->kv, .heads = c->heads, .scale = m->attention_scale,
        .window = l->type == VB_LAYER_SLIDING ? c->sliding_window : 0,
        .head_chunk = head_chunk, .seqs = ws->seqs, .n_seqs = n_seqs,
    };
    be->ops->attention(be, &a);
    const vb__linear_out out = {l->o, l->o_bias, ws->x, c->hidden, ws->x, c->hidden};
    be->ops->linear(be, o, c->heads * d, rows, &out, 1);
}

static void mixer_delta(const vb__model *m, const vb__layer *l, vb__workspace *ws, int32_t rows, int32_t n_seqs) {
    vb__backend *be = m->be;
    const vb__model_config *c = &m->cfg;
    int64_t vd = (int64_t)c->lin_nv * c->lin_dv, ch = 2 * (int64_t)c->lin_nk * c->lin_dk + vd, nv = c->lin_nv;
    float *raw = ws->wide, *z = raw + rows * ch, *b = z + rows * vd, *a = b + rows * nv;
    const vb__linear_out in[4] = {{l->qkv, NULL, NULL, 0, raw, ch},
                                  {l->z, NULL, NULL, 0, z, vd},
                                  {l->b, NULL, NULL, 0, b, nv},
                                  {l->a, NULL, NULL, 0, a, nv}};
    const vb__norm norm = norm_of(m, ws, l->norm_in);
    be->ops->norm_linear(be, &norm, ws->h, c->hidden, rows, in, 4);
    const vb__delta_net_args net = {
        .conv = {.lay = l->delta, .m = raw, .ms = ch, .w = l->conv, .out = ws->wide2, .outs = ch, .seqs = ws->seqs,
                 .n_seqs = n_seqs},
        .delta = {.lay = l->delta, .qkv = ws->wide2, .qkvs = ch, .a = a, .b = b, .as_ = nv, .bs = nv,
                  .neg_exp_a = l->neg_exp_a, .dt_bias = l->dt_bias, .o = ws->mix, .os = vd, .seqs = ws->seqs,
                  .n_seqs = n_seqs},
        .z = z, .zs = vd, .norm = l->gated_norm, .eps = c->eps,
    };
    be->ops->delta_net(be, &net);
    const vb__linear_out out = {l->out, NULL, ws->x, c->hidden, ws->x, c->hidden};
    be->ops->linear(be, ws->mix, vd, rows, &out, 1);
}

static void mlp_dense(const vb__model *m, const vb__layer *l, vb__workspace *ws, int32_t rows) {
    vb__backend *be = m->be;
    const vb__model_config *c = &m->cfg;
    const vb__norm norm = norm_of(m, ws, l->norm_post);
    const vb__mlp_args a = {l->gate, l->up, l->gate_bias, l->up_bias, &norm, {l->down, l->down_bias, ws->x, c->hidden, ws->x, c->hidden}};
    be->ops->mlp(be, ws->h, c->hidden, rows, &a);
}

void vb__layer_forward(const vb__model *m, const vb__layer *l, vb__workspace *ws, int32_t rows, int32_t n_seqs) {
    vb__backend *be = m->be;
    const vb__model_config *c = &m->cfg;
    if (l->type == VB_LAYER_LINEAR) mixer_delta(m, l, ws, rows, n_seqs);
    else mixer_attention(m, l, ws, rows, n_seqs, m->head_chunk);
    if (l->experts == NULL) {
        mlp_dense(m, l, ws, rows);
        return;
    }
    be->ops->rmsnorm(be, ws->h, c->hidden, ws->x, c->hidden, l->norm_post, rows, c->hidden, c->eps);
    vb__moe_forward(m, l, ws, rows);
}

/* ---- The call ------------------------------------------------------------------------------------------------ */

/* Row bookkeeping shared by the trunk and MTP: one entry of ws->seqs, positions, ids. */
void vb__rows_begin(vb__workspace *ws, int32_t i, vb__seq *s, int32_t row0, int32_t rows, int32_t certain,
                       int32_t pos0, const int32_t *tokens) {
    vb__seq_rows *r = &ws->seqs[i];
    *r = (vb__seq_rows){
        .row0 = row0, .rows = rows, .certain = certain, .pos0 = pos0, .pages = s->pages, .failed = s->failed,
        .state = s->state, .conv_tail = s->conv_tail, .tape_in = s->tape[s->cur], .replay = s->replay,
        .tape_out = s->tape[1 - s->cur],
    };
    for (int32_t j = 0; j < rows; j++) {
        ws->pos[row0 + j] = pos0 + j;
        ws->ids[row0 + j] = tokens[j];
    }
}

static vb_err check_ids(const vb__model *m, const int32_t *ids, int32_t n, vb_error *err) {
    for (int32_t j = 0; j < n; j++)
        if (ids[j] < 0 || ids[j] >= m->cfg.vocab)
            return vb__fail(err, VB_E_RANGE, "token id: %d, expected 0 to %d", ids[j], m->cfg.vocab - 1);
    return VB_OK;
}

vb_err vb__forward(const vb__model *m, vb__workspace *ws, const vb__forward_args *a, vb_error *err) {
    vb__backend *be = m->be;
    const vb__model_config *c = &m->cfg;
    int32_t rows = 0;
    vb_check(a->n_seqs >= 1 && a->n_seqs <= ws->max_seqs);
    for (int32_t i = 0; i < a->n_seqs; i++) {
        const vb__forward_seq *f = &a->seqs[i];
        vb_check(f->rows >= 1 && f->certain >= 0 && f->certain <= f->rows && f->rows <= f->seq->max_rows);
        vb_check(f->rows - f->certain <= f->seq->tape_rows && rows + f->rows <= ws->max_rows);
        vb_check(((int64_t)f->seq->length + f->rows + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS <= f->seq->n_pages);
        VB_TRY(check_ids(m, f->tokens, f->rows, err));
        rows += f->rows;
    }
    for (int32_t i = 0, row0 = 0; i < a->n_seqs; row0 += a->seqs[i].rows, i++) {
        const vb__forward_seq *f = &a->seqs[i];
        memset(f->seq->failed, 0, (size_t)f->rows);
        vb__rows_begin(ws, i, f->seq, row0, f->rows, f->certain, f->seq->length, f->tokens);
    }
    be->ops->embed(be, m->embed, ws->ids, rows, ws->x, c->hidden);
    be->ops->rope_table(be, &ws->rope, ws->pos, rows, m->rope_freqs, m->rope_m);
    for (int32_t i = 0, tap = 0; i < c->layers; i++) {
        vb__layer_forward(m, &m->layers[i], ws, rows, a->n_seqs);
        if (tap < a->n_taps && a->tap_layers[tap] == i) {
            be->ops->gather_rows(be, a->taps + (int64_t)tap * c->hidden, (int64_t)a->n_taps * c->hidden, ws->x,
                                 c->hidden, NULL, rows, c->hidden);
            tap++;
        }
    }
    if (a->n_hidden > 0) {
        const float *x = ws->x;
        if (a->hidden_rows != NULL) {
            be->ops->gather_rows(be, ws->h, c->hidden, ws->x, c->hidden, a->hidden_rows, a->n_hidden, c->hidden);
            x = ws->h;
        }
        be->ops->rmsnorm(be, a->hidden, c->hidden, x, c->hidden, m->norm, a->n_hidden, c->hidden, c->eps);
    }
    VB_TRY(be->ops->sync(be, err));
    for (int32_t i = 0; i < a->n_seqs; i++) {
        vb__seq *s = a->seqs[i].seq;
        s->ran = a->seqs[i].rows;
        s->certain = a->seqs[i].certain;
        s->replay = 0; /* applied by this call */
        s->cur = 1 - s->cur;
    }
    return VB_OK;
}

void vb__logits(const vb__model *m, const float *hidden, int32_t rows, float *logits) {
    const vb__linear_out out = {m->head, NULL, NULL, 0, logits, m->cfg.vocab};
    m->be->ops->linear(m->be, hidden, m->cfg.hidden, rows, &out, 1);
}

void vb__logits_best(const vb__model *m, const float *hidden, int32_t rows, float *logits, const vb__out_range *ranges,
                     int32_t n_ranges, vb__best *best) {
    const vb__linear_out out = {m->head, NULL, NULL, 0, logits, m->cfg.vocab};
    m->be->ops->linear_argmax(m->be, hidden, m->cfg.hidden, rows, &out, ranges, n_ranges, best);
}

void vb__layer_kv_only(const vb__model *m, const vb__layer *l, vb__workspace *ws, const float *x, int32_t rows,
                       int32_t n_seqs) {
    vb__backend *be = m->be;
    const vb__model_config *c = &m->cfg;
    int64_t kvn = (int64_t)c->kv_heads * c->head_dim;
    float *k = ws->wide, *v = k + rows * kvn;
    const vb__linear_out kv[2] = {{l->k, l->k_bias, NULL, 0, k, kvn}, {l->v, l->v_bias, NULL, 0, v, kvn}};
    be->ops->linear(be, x, c->hidden, rows, kv, 2);
    if (l->k_norm != NULL)
        be->ops->rmsnorm(be, k, c->head_dim, k, c->head_dim, l->k_norm, rows * c->kv_heads, c->head_dim, c->eps);
    be->ops->rope(be, k, kvn, c->head_dim, rows, c->kv_heads, &ws->rope);
    be->ops->kv_append(be, &l->kv, k, kvn, v, kvn, ws->seqs, n_seqs);
}

vb_err vb__mtp_forward(const vb__model *m, vb__workspace *ws, const vb__mtp_seq *seqs, int32_t n_seqs, float *out,
                       vb_error *err) {
    vb__backend *be = m->be;
    const vb__model_config *c = &m->cfg;
    const vb__mtp *mtp = m->mtp;
    int64_t h = c->hidden;
    int32_t rows = 0;
    vb_check(mtp != NULL && n_seqs <= ws->max_seqs);
    for (int32_t i = 0; i < n_seqs; i++) {
        vb_check(rows + seqs[i].rows <= ws->max_rows);
        VB_TRY(check_ids(m, seqs[i].tokens, seqs[i].rows, err));
        vb__rows_begin(ws, i, seqs[i].seq, rows, seqs[i].rows, seqs[i].rows, seqs[i].pos0, seqs[i].tokens);
        rows += seqs[i].rows;
    }
    for (int32_t i = 0, row0 = 0, n; i < n_seqs; row0 += n) { /* one call where inputs lie one behind the other */
        const float *in = seqs[i].hidden;
        for (n = 0; i < n_seqs && seqs[i].hidden == in + n * h; i++) n += seqs[i].rows;
        be->ops->rmsnorm(be, ws->pair + row0 * 2 * h + h, 2 * h, in, h, mtp->norm_hidden, n, c->hidden, c->eps);
    }
    be->ops->embed(be, m->embed, ws->ids, rows, ws->x, h);
    be->ops->rmsnorm(be, ws->pair, 2 * h, ws->x, h, mtp->norm_embedding, rows, c->hidden, c->eps);
    const vb__linear_out fc = {mtp->fc, NULL, NULL, 0, ws->x, h};
    be->ops->linear(be, ws->pair, 2 * h, rows, &fc, 1);
    be->ops->rope_table(be, &ws->rope, ws->pos, rows, m->rope_freqs, m->rope_m);
    if (out == NULL) { /* only K and V matter for rows that nobody reads */
        be->ops->rmsnorm(be, ws->h, h, ws->x, h, mtp->layer.norm_in, rows, c->hidden, c->eps);
        vb__layer_kv_only(m, &mtp->layer, ws, ws->h, rows, n_seqs);
    } else {
        vb__layer_forward(m, &mtp->layer, ws, rows, n_seqs);
        be->ops->rmsnorm(be, out, h, ws->x, h, mtp->norm, rows, c->hidden, c->eps);
    }
    return be->ops->sync(be, err);
}
