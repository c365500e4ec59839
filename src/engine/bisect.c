#include "engine/bisect.h"
#include "base/alloc.h"
#include <stdio.h>
#include <string.h>

enum { PREFILL = 96, CHAIN = 48 };

typedef struct bisect {
    vb__engine *e;
    vb__seq *seq;
    vb__snapshot *start;
    int32_t layers[VB_LIMIT_LAYERS];
    float *taps;   /* device (PREFILL, layers*hidden) of the last call */
    float *chain;  /* host (CHAIN, layers*hidden) */
    float *prefill; /* host (PREFILL, layers*hidden) */
    float *logits; /* host (CHAIN, vocab) */
    float *host;   /* host (PREFILL, layers*hidden) */
    int32_t tokens[CHAIN + 1];
    uint8_t state[CHAIN + 1][16];
    int64_t row; /* floats of a tap row */
} bisect;

static vb_err run(bisect *b, const int32_t *tokens, int32_t rows, int32_t certain, vb_error *err) {
    vb__engine *e = b->e;
    VB_TRY(vb__seq_reserve(b->seq, b->seq->length + rows));
    const vb__forward_seq fs = {b->seq, rows, certain, tokens};
    int32_t last = rows - 1;
    bool all = rows <= VB_LOGIT_ROWS;
    const vb__forward_args a = {.seqs = &fs, .n_seqs = 1, .hidden_rows = all ? NULL : &last, .n_hidden = all ? rows : 1,
                                .hidden = e->logit_hidden, .tap_layers = b->layers, .n_taps = e->model->cfg.layers, .taps = b->taps};
    VB_TRY(vb__forward(e->model, e->ws, &a, err));
    vb__logits(e->model, e->logit_hidden, a.n_hidden, e->logits);
    e->be->ops->download(e->be, b->host, b->taps, (size_t)rows * (size_t)b->row * sizeof(float));
    return e->be->ops->sync(e->be, err);
}

/* First bit that differs between two rows of floats; -1: none. */
static int64_t first_difference(const float *a, const float *b, int64_t n) {
    if (memcmp(a, b, (size_t)n * sizeof *a) == 0) return -1;
    for (int64_t i = 0; i < n; i++)
        if (memcmp(a + i, b + i, sizeof *a) != 0) return i;
    return -1;
}

static bool compare_row(const bisect *b, const float *want, const float *got, int32_t position, vb__difference *d) {
    int64_t at = first_difference(want, got, b->row);
    if (at < 0) return false;
    const vb__model_config *c = &b->e->model->cfg;
    d->found = true;
    d->position = position;
    d->layer = (int32_t)(at / c->hidden);
    d->element = (int32_t)(at % c->hidden);
    d->want = want[at];
    d->got = got[at];
    (void)snprintf(d->tensor, sizeof d->tensor, "residual after layer %d (%s)", d->layer,
                   c->layer_type[d->layer] == VB_LAYER_LINEAR    ? "delta net"
                   : c->layer_type[d->layer] == VB_LAYER_SLIDING ? "sliding attention"
                                                                 : "full attention");
    return true;
}

static vb_err make_chain(bisect *b, const int32_t *ids, vb__difference *d, vb_error *err) {
    vb__engine *e = b->e;
    int32_t v = e->model->cfg.vocab;
    /* Row by row is the truth for the prefill, too. */
    for (int32_t i = 0; i < PREFILL; i++) {
        VB_TRY(run(b, ids + i, 1, 1, err));
        VB_TRY(vb__seq_commit(b->seq, 1));
        memcpy(b->prefill + i * b->row, b->host, (size_t)b->row * sizeof(float));
    }
    vb__best best;
    e->be->ops->argmax(e->be, e->logits, v, 1, v, &best);
    b->tokens[0] = best.id;
    VB_TRY(vb__seq_save(b->seq, &b->start));
    vb__seq_hash(b->seq, b->state[0]);
    for (int32_t i = 0; i < CHAIN; i++) {
        VB_TRY(run(b, &b->tokens[i], 1, 1, err));
        VB_TRY(vb__seq_commit(b->seq, 1));
        memcpy(b->chain + i * b->row, b->host, (size_t)b->row * sizeof(float));
        memcpy(b->logits + (int64_t)i * v, e->logits, (size_t)v * sizeof(float));
        e->be->ops->argmax(e->be, e->logits, v, 1, v, &best);
        b->tokens[i + 1] = best.id;
        vb__seq_hash(b->seq, b->state[i + 1]);
    }
    /* The prefill in one call. */
    vb__seq_reset(b->seq);
    VB_TRY(run(b, ids, PREFILL, PREFILL, err));
    VB_TRY(vb__seq_commit(b->seq, PREFILL));
    d->width = PREFILL;
    for (int32_t i = 0; i < PREFILL && !d->found; i++) {
        d->row = i;
        (void)compare_row(b, b->prefill + i * b->row, b->host + i * b->row, i, d);
    }
    return VB_OK;
}

static vb_err try_block(bisect *b, int32_t w, int32_t accept, vb__difference *d, vb_error *err) {
    vb__engine *e = b->e;
    int32_t block[VB_LIMIT_DRAFT_WIDTH], v = e->model->cfg.vocab;
    VB_TRY(vb__seq_restore(b->seq, b->start));
    /* Two blocks: what the first leaves behind shows in the second. */
    for (int32_t at = 0, k = 0; k < 2 && at + w <= CHAIN; k++) {
        for (int32_t i = 0; i < w; i++) block[i] = i <= accept ? b->tokens[at + i] : (b->tokens[at + i] + 1) % v;
        VB_TRY(run(b, block, w, 1, err));
        for (int32_t i = 0; i <= accept; i++) {
            d->width = w;
            d->row = i;
            d->accept = accept;
            if (compare_row(b, b->chain + (at + i) * b->row, b->host + i * b->row, PREFILL + at + i, d)) return VB_OK;
            int64_t diff = first_difference(b->logits + (int64_t)(at + i) * v, e->logits + (int64_t)i * v, v);
            if (diff >= 0) {
                d->found = true;
                d->position = PREFILL + at + i;
                d->layer = -1;
                d->element = (int32_t)diff;
                d->want = b->logits[(int64_t)(at + i) * v + diff];
                d->got = e->logits[(int64_t)i * v + diff];
                (void)snprintf(d->tensor, sizeof d->tensor, "logits");
                return VB_OK;
            }
        }
        VB_TRY(vb__seq_commit(b->seq, accept + 1));
        at += accept + 1;
        if (k == 1 || at + w > CHAIN) {
            uint8_t h[16];
            vb__seq_hash(b->seq, h);
            if (memcmp(h, b->state[at], 16) != 0) {
                d->found = true;
                d->position = PREFILL + at;
                d->layer = d->element = -1;
                (void)snprintf(d->tensor, sizeof d->tensor, "state (KV, delta net or conv tail)");
                return VB_OK;
            }
        }
    }
    return VB_OK;
}

vb_err vb__bisect(vb__engine *e, int32_t width, vb__difference *out, vb_error *err) {
    bisect b = {.e = e};
    const vb__model_config *c = &e->model->cfg;
    vb__difference d = {.layer = -1, .element = -1};
    int32_t ids[PREFILL];
    b.row = (int64_t)c->layers * c->hidden;
    for (int32_t i = 0; i < c->layers; i++) b.layers[i] = i;
    for (int32_t i = 0; i < PREFILL; i++) ids[i] = (int32_t)(((uint32_t)i * 2654435761u >> 8) % (uint32_t)(c->vocab < 4096 ? c->vocab : 4096));
    void *p = NULL;
    vb_err code = e->be->ops->alloc(e->be, (size_t)PREFILL * (size_t)b.row * sizeof(float), &p);
    b.taps = p;
    b.chain = vb__alloc(VB_TAG_ENGINE, (size_t)CHAIN * (size_t)b.row * sizeof(float));
    b.prefill = vb__alloc(VB_TAG_ENGINE, (size_t)PREFILL * (size_t)b.row * sizeof(float));
    b.host = vb__alloc(VB_TAG_ENGINE, (size_t)PREFILL * (size_t)b.row * sizeof(float));
    b.logits = vb__alloc(VB_TAG_ENGINE, (size_t)CHAIN * (size_t)c->vocab * sizeof(float));
    if (code != VB_OK || b.chain == NULL || b.prefill == NULL || b.host == NULL || b.logits == NULL) {
        code = vb__fail(err, VB_E_MEMORY, "verify: out of memory");
        goto out;
    }
    code = vb__seq_create(e->model, e->pages, PREFILL + CHAIN + VB_LIMIT_DRAFT_WIDTH + 64, PREFILL, VB_LIMIT_DRAFT_WIDTH, &b.seq, err);
    if (code == VB_OK) code = make_chain(&b, ids, &d, err);
    for (int32_t a = 0; a < width && code == VB_OK && !d.found && width > 1; a++) code = try_block(&b, width, a, &d, err);
    if (code == VB_OK) *out = d;
    else if (err != NULL && err->text[0] == '\0') (void)vb__fail(err, code, "verify: %s", vb_err_message(code));
out:
    vb__snapshot_destroy(b.start);
    vb__seq_destroy(b.seq);
    e->be->ops->free(e->be, b.taps);
    vb__free(b.chain);
    vb__free(b.prefill);
    vb__free(b.host);
    vb__free(b.logits);
    return code;
}
