/* Two ways to take drafts back. Keys and values are cut off by length. A recurrent state has no such cut, so
 * drafts stay uncertain rows: every call runs the whole block behind the known tokens again (a few rows more
 * in a pass over the same weights), and settle commits the right number of them through the tape.
 *
 * Models of one family may pad the same vocabulary to different numbers of rows. Rows that only one of them has stand for
 * no token; what is made of them here can cost acceptance, never the text. */
#include "engine/draft_model.h"
#include "base/alloc.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

enum { PADDING_MAX = 256 }; /* rows; vocabularies are padded to multiples of 64 to 256 */
#define NEVER -1e30f        /* a logit that is finite and never chosen */

struct vb__draft_model {
    vb__model *m;
    vb__workspace *ws;
    vb__page_pool *pages;
    float *hidden; /* device [hidden] */
    int32_t *ids;  /* [max_rows] of a call */
    int32_t max_rows;
    int32_t extra; /* rows of the target's vocabulary beyond ours */
    float never[PADDING_MAX];
};

vb_err vb__draft_model_fits(const vb__model_config *drafter, const vb__model_config *target, vb_error *err) {
    int32_t ours = drafter->vocab, theirs = target->vocab;
    if (drafter->arch == VB_ARCH_DFLASH)
        return vb__fail(err, VB_E_MISMATCH, "is a DFlash drafter, expected a model (a drafter goes with --draft dflash:PATH)");
    if (abs(ours - theirs) <= PADDING_MAX && ours <= 2 * theirs) return VB_OK;
    return vb__fail(err, VB_E_MISMATCH, "vocab_size: is %d, expected the target's %d or as much of it padded otherwise (by at most %d rows)", ours,
                    theirs, PADDING_MAX);
}

vb_err vb__draft_model_open(const char *path, const vb__model *target, int32_t max_rows, int32_t n_pages,
                            vb__draft_model **out, vb_error *err) {
    vb__checkpoint *ck;
    vb__weight_source src;
    VB_TRY(vb__checkpoint_open(path, &ck, err));
    vb__checkpoint_source(ck, &src);
    vb__draft_model *d = vb__calloc(VB_TAG_ENGINE, 1, sizeof *d);
    vb_err e = VB_OK;
    void *p = NULL;
    if (d == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
        goto out;
    }
    int32_t ours = src.cfg->vocab, theirs = target->cfg.vocab;
    VB_TRY_OUT(vb__draft_model_fits(src.cfg, &target->cfg, err));
    if (ours != theirs)
        vb__log(VB_LOG_INFO, "draft", "model=%s vocab_size=%d target=%d: taken for the same tokens, padded otherwise", path, ours,
                theirs);
    d->extra = theirs > ours ? theirs - ours : 0;
    for (int32_t i = 0; i < PADDING_MAX; i++) d->never[i] = NEVER;
    d->max_rows = max_rows;
    VB_TRY_OUT(vb__model_load(&src, target->be, NULL, NULL, &d->m, err));
    VB_TRY_OUT(vb__workspace_create(d->m, max_rows, 1, &d->ws, err));
    VB_TRY_OUT(vb__page_pool_create(target->be, d->m->page_bytes > 0 ? d->m->page_bytes : 64, n_pages,
                                    &d->pages, err));
    d->ids = vb__calloc(VB_TAG_ENGINE, (size_t)max_rows, sizeof *d->ids);
    if (d->ids == NULL ||
        target->be->ops->alloc(target->be, (size_t)d->m->cfg.hidden * sizeof(float), &p) != VB_OK) {
        e = vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
        goto out;
    }
    d->hidden = p;
    *out = d;
    d = NULL;
out:
    vb__draft_model_close(d);
    vb__checkpoint_close(ck);
    return e;
}

void vb__draft_model_close(vb__draft_model *d) {
    if (d == NULL) return;
    if (d->m != NULL) d->m->be->ops->free(d->m->be, d->hidden);
    vb__page_pool_destroy(d->pages);
    vb__workspace_destroy(d->ws);
    vb__model_destroy(d->m);
    vb__free(d->ids);
    vb__free(d);
}

vb_err vb__draft_model_seq(const vb__draft_model *d, int32_t max_length, vb__seq **out, vb_error *err) {
    return vb__seq_create(d->m, d->pages, max_length + VB_LIMIT_DRAFT_WIDTH, d->max_rows,
                          VB_LIMIT_DRAFT_WIDTH, out, err);
}

/* A token as the drafter can read it. */
static int32_t readable(const vb__draft_model *d, int32_t id) { return id < d->m->cfg.vocab ? id : 0; }

static bool recurrent(const vb__model *m) {
    return m->state_floats > 0;
}

/* d->ids[0..rows-1] behind the sequence; the first `certain` become part of it. hidden: of the last row, or
 * NULL. */
static vb_err run(vb__draft_model *d, vb__seq *s, int32_t rows, int32_t certain, float *hidden,
                  vb_error *err) {
    const int32_t last = rows - 1;
    const vb__forward_seq fs = {s, rows, certain, d->ids};
    const vb__forward_args a = {
        .seqs = &fs, .n_seqs = 1, .hidden_rows = &last, .n_hidden = hidden != NULL ? 1 : 0, .hidden = hidden};
    VB_TRY(vb__seq_reserve(s, s->length + rows));
    return vb__forward(d->m, d->ws, &a, err);
}

vb_err vb__draft_model_catch_up(vb__draft_model *d, vb__seq *s, const int32_t *known, int32_t n_known,
                                vb_error *err) {
    vb__draft_model_settle(s, n_known - 1);
    while (s->length < n_known - 1) {
        int32_t n = n_known - 1 - s->length;
        if (n > d->max_rows) n = d->max_rows;
        for (int32_t i = 0; i < n; i++) d->ids[i] = readable(d, known[s->length + i]);
        VB_TRY(run(d, s, n, n, NULL, err));
        VB_TRY(vb__seq_commit(s, n));
    }
    return VB_OK;
}

vb_err vb__draft_model_next(vb__draft_model *d, vb__seq *s, const int32_t *known, int32_t n_known,
                            const int32_t *drafts, int32_t n_drafts, float *logits, vb_error *err) {
    int32_t n = n_known + n_drafts;
    if (n_drafts == 0) vb__draft_model_settle(s, n_known - 1); /* proposals that never became a step */
    if (s->ran > 0) VB_TRY(vb__seq_commit(s, s->certain));
    if (n - s->length > d->max_rows) VB_TRY(vb__draft_model_catch_up(d, s, known, n_known, err));
    int32_t rows = n - s->length, certain = recurrent(d->m) ? n_known - 1 - s->length : rows;
    for (int32_t i = 0; i < rows; i++) {
        int32_t at = s->length + i;
        d->ids[i] = readable(d, at < n_known ? known[at] : drafts[at - n_known]);
    }
    VB_TRY(run(d, s, rows, certain, d->hidden, err));
    if (!recurrent(d->m)) VB_TRY(vb__seq_commit(s, rows));
    vb__logits(d->m, d->hidden, 1, logits);
    if (d->extra > 0)
        d->m->be->ops->upload(d->m->be, logits + d->m->cfg.vocab, d->never, (size_t)d->extra * sizeof(float));
    return d->m->be->ops->sync(d->m->be, err);
}

void vb__draft_model_settle(vb__seq *s, int32_t n) {
    vb_err e = VB_OK;
    if (s->ran > 0) {
        int32_t keep = n - s->length;
        keep = keep < s->certain ? s->certain : keep > s->ran ? s->ran : keep;
        e = vb__seq_commit(s, keep);
    }
    if (!recurrent(s->model) && s->length > n) vb__seq_truncate_kv(s, n);
    if (e != VB_OK || s->length > n) vb__seq_reset(s); /* unusable: from the start, when it is asked again */
}
