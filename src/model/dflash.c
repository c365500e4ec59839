#include "model/dflash.h"
#include "base/alloc.h"
#include "model/decoder.h"
#include "model/rope_freqs.h"
#include <string.h>

struct vb__dflash {
    vb__model m; /* layers and norm are its own; embed and head stay NULL: the target's are used */
    const vb__model *target;
    vb__weight *fc;      /* (hidden, n_taps*hidden) */
    float *hidden_norm;  /* [hidden] */
    vb__workspace *ws;
    int32_t *ids;        /* [max_rows] block ids; context rows have none */
    int32_t max_rows;
};

const vb__model *vb__dflash_model(const vb__dflash *d) { return &d->m; }

vb_err vb__dflash_fits(const vb__model_config *c, const vb__model_config *t, vb_error *err) {
    if (c->arch != VB_ARCH_DFLASH)
        return vb__fail(err, VB_E_MISMATCH, "is no DFlash drafter (%s), expected DFlashDraftModel", vb__arch_name(c->arch));
    if (c->hidden != t->hidden)
        return vb__fail(err, VB_E_MISMATCH, "hidden_size: is %d, expected the target's %d", c->hidden, t->hidden);
    if (c->vocab != t->vocab)
        return vb__fail(err, VB_E_MISMATCH, "vocab_size: is %d, expected the target's %d", c->vocab, t->vocab);
    if (c->target_layers != 0 && c->target_layers != t->layers)
        return vb__fail(err, VB_E_MISMATCH, "num_target_layers: is %d, expected the target's %d", c->target_layers, t->layers);
    for (int32_t i = 0; i < c->n_taps; i++)
        if (c->taps[i] >= t->layers)
            return vb__fail(err, VB_E_MISMATCH, "target_layer_ids: %d, expected ids below the target's %d layers", c->taps[i], t->layers);
    return VB_OK;
}

vb_err vb__dflash_load(const vb__weight_source *src, const vb__model *target, int32_t max_rows, int32_t max_seqs,
                       vb__dflash **out, vb_error *err) {
    VB_TRY(vb__dflash_fits(src->cfg, &target->cfg, err));
    vb__dflash *d = vb__calloc(VB_TAG_ENGINE, 1, sizeof *d);
    if (d == NULL) return vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
    d->target = target;
    d->max_rows = max_rows;
    vb_err e;
    VB_TRY_OUT(vb__model_load_drafter(src, target->be, &d->m, &d->fc, &d->hidden_norm, err));
    VB_TRY_OUT(vb__workspace_create(&d->m, max_rows, max_seqs, &d->ws, err));
    d->ids = vb__calloc(VB_TAG_ENGINE, (size_t)max_rows, sizeof *d->ids);
    if (d->ids == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
        goto out;
    }
    *out = d;
    return VB_OK;
out:
    vb__dflash_destroy(d);
    return e;
}

void vb__dflash_destroy(vb__dflash *d) {
    if (d == NULL) return;
    vb__backend *be = d->target->be;
    vb__workspace_destroy(d->ws);
    be->ops->weight_destroy(be, d->fc);
    be->ops->free(be, d->hidden_norm);
    vb__model_fini(&d->m);
    vb__free(d->ids);
    vb__free(d);
}

/* Rows of the call; positions and ids are in the workspace. */
static int32_t begin(vb__dflash *d, const vb__dflash_seq *seqs, int32_t n_seqs, bool block) {
    int32_t rows = 0;
    vb_check(n_seqs >= 1 && n_seqs <= d->ws->max_seqs);
    for (int32_t i = 0; i < n_seqs; i++) {
        const vb__dflash_seq *s = &seqs[i];
        int32_t *ids = d->ids + rows;
        vb_check(s->rows >= 1 && s->rows <= s->seq->max_rows && rows + s->rows <= d->max_rows);
        for (int32_t j = 0; j < s->rows; j++) ids[j] = !block ? 0 : j == 0 ? s->anchor : d->m.cfg.mask_token;
        memset(s->seq->failed, 0, (size_t)s->rows);
        vb__rows_begin(d->ws, i, s->seq, rows, s->rows, s->rows, s->seq->length, ids);
        rows += s->rows;
    }
    d->target->be->ops->rope_table(d->target->be, &d->ws->rope, d->ws->pos, rows, d->m.rope_freqs, d->m.rope_m);
    return rows;
}

vb_err vb__dflash_context(vb__dflash *d, const vb__dflash_seq *seqs, int32_t n_seqs, const float *taps, vb_error *err) {
    const vb__model *m = &d->m;
    vb__backend *be = d->target->be;
    const vb__model_config *c = &m->cfg;
    vb__workspace *ws = d->ws;
    int32_t rows = begin(d, seqs, n_seqs, false);
    const vb__linear_out fc = {d->fc, NULL, NULL, 0, ws->x, c->hidden};
    be->ops->linear(be, taps, (int64_t)c->n_taps * c->hidden, rows, &fc, 1);
    be->ops->rmsnorm(be, ws->h, c->hidden, ws->x, c->hidden, d->hidden_norm, rows, c->hidden, c->eps);
    for (int32_t i = 0; i < c->layers; i++) vb__layer_kv_only(m, &m->layers[i], ws, ws->h, rows, n_seqs);
    VB_TRY(be->ops->sync(be, err));
    for (int32_t i = 0; i < n_seqs; i++) seqs[i].seq->length += seqs[i].rows;
    return VB_OK;
}

vb_err vb__dflash_block(vb__dflash *d, const vb__dflash_seq *seqs, int32_t n_seqs, float *out, vb_error *err) {
    const vb__model *m = &d->m;
    vb__backend *be = d->target->be;
    const vb__model_config *c = &m->cfg;
    vb__workspace *ws = d->ws;
    int32_t rows = begin(d, seqs, n_seqs, true);
    be->ops->embed(be, d->target->embed, ws->ids, rows, ws->x, c->hidden);
    for (int32_t i = 0; i < c->layers; i++) {
        /* Full layers see the whole block; sliding ones are causal inside it unless the config says otherwise. */
        bool causal = c->causal > 0 || (c->causal < 0 && m->layers[i].type == VB_LAYER_SLIDING);
        for (int32_t k = 0; k < n_seqs; k++) ws->seqs[k].visible_end = causal ? 0 : seqs[k].seq->length + seqs[k].rows;
        vb__layer_forward(m, &m->layers[i], ws, rows, n_seqs);
    }
    be->ops->rmsnorm(be, out, c->hidden, ws->x, c->hidden, m->norm, rows, c->hidden, c->eps);
    return be->ops->sync(be, err); /* the blocks' keys and values lie beyond the lengths: nobody will see them */
}
