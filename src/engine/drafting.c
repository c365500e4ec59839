/* Drafters and what the scheduler asks of them. Per slot: the lookup index, how far MTP and DFlash have seen the
 * sequence, and what was proposed last. Every enabled drafter is shown every committed row, whoever proposes. */
#include "engine/drafting.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "engine/draft_lookup.h"
#include "engine/draft_model.h"
#include "engine/draft_policy.h"
#include "engine/draft_vocab.h"
#include "engine/engine.h"
#include "engine/gate.h"
#include "engine/sample_rows.h"
#include "engine/step_seq.h"
#include "engine/tuned.h"
#include "model/dflash.h"
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { DRAFT_PATH_MAX = 4096 };

struct vb__draft_slot {
    vb__lookup *lookup;
    int32_t mtp_rows;   /* MTP rows in the pages, each from a trunk hidden row and a committed token */
    bool mtp_last;      /* last_hidden is the trunk's hidden row mtp_rows (its token was not known yet) */
    float *last_hidden; /* device [hidden] */
    vb__seq *dseq;      /* DFlash context: one row per committed position */
    vb__seq *mseq;      /* of the draft model; it lags behind */
    bool mtp_broken, dflash_broken; /* rows are missing: no proposals until the sequence starts again */
    vb__draft_beliefs beliefs;
    int32_t kind, width, match; /* of the last proposal */
    bool trims;                 /* its unsure drafts need not be verified: nobody fixed the width */
    int32_t made;               /* drafts made, of which the first were verified, */
    float margins[VB_LIMIT_DRAFT_WIDTH]; /* and how sure each was; with `trims` */
    bool planned;               /* its drafts are not made yet */
};

typedef struct vb__drafting {
    uint32_t loaded;     /* bit mask of the kinds that were loaded at open; never changes, any thread may read it */
    uint32_t kinds;      /* those that have not failed since; all of these are fed */
    uint32_t active;     /* those of them that may propose */
    int32_t fixed_width; /* 0: the policy's choice */
    bool auto_kind;
    vb__dflash *dflash;
    vb__page_pool *dpages;
    vb__draft_model *model;
    float *mtp_in, *mtp_out; /* device (max_rows, hidden), 2 x (VB_LOGIT_ROWS, hidden) */
    float *block_hidden;     /* device (VB_LOGIT_ROWS, hidden) */
    vb__mtp_seq *mtp_rows;       /* [parallel] of a call */
    vb__dflash_seq *dflash_rows; /* [parallel] of a call */
    vb__draft_costs costs;
    vb__draft_sureness sureness;
    vb__draft_beliefs beliefs; /* where a new request starts */
    vb__gate *gate;
    vb__draft_vocab *vocab; /* of MTP and DFlash drafts */
    int32_t tuned[VB_DRAFT_KINDS]; /* widths that `tune` found best; 0: none */
} vb__drafting;

static const char *const kind_names[VB_DRAFT_KINDS] = {"none", "lookup", "mtp", "dflash", "model"};

const char *vb__draft_kind_name(int32_t kind) { return kind >= 0 && kind < VB_DRAFT_KINDS ? kind_names[kind] : "none"; }

int32_t vb__drafting_declined(const vb__engine *e, int32_t out[16]) {
    return e->drafting != NULL && e->drafting->gate != NULL ? vb__gate_declined(e->drafting->gate, out) : 0;
}

vb__gate *vb__drafting_gate(vb__engine *e) { return e->drafting != NULL ? e->drafting->gate : NULL; }
uint32_t vb__drafting_kinds(const vb__engine *e) { return e->drafting != NULL ? e->drafting->loaded : 0; }

int32_t vb__drafting_asked(const vb__engine *e, const vb__req *r) {
    uint32_t kinds = (uint32_t)r->p.draft_kinds;
    if (kinds == 0 && r->p.draft_width != 1 && e->drafting != NULL && !e->drafting->auto_kind) kinds = e->drafting->loaded;
    for (int32_t k = 0; k < VB_DRAFT_KINDS; k++)
        if (kinds == 1u << k) return k;
    return VB_DRAFT_NONE;
}

int32_t vb__draft_kind_parse(const char *name, size_t len) {
    for (int32_t k = 0; k < VB_DRAFT_KINDS; k++)
        if (strlen(kind_names[k]) == len && memcmp(kind_names[k], name, len) == 0) return k;
    return -1;
}

void vb__drafting_set_kinds(vb__engine *e, uint32_t kinds) {
    if (e->drafting != NULL) e->drafting->active = kinds;
}

void vb__drafting_set_width(vb__engine *e, int32_t width) {
    if (e->drafting != NULL) e->drafting->fixed_width = width;
}

struct vb__draft_vocab *vb__drafting_vocab(vb__engine *e) { return e->drafting != NULL ? e->drafting->vocab : NULL; }

/* ---- Open ------------------------------------------------------------------------------------------------------- */

static vb_err device(vb__engine *e, int64_t floats, float **out, vb_error *err) {
    void *p = NULL;
    if (e->be->ops->alloc(e->be, (size_t)floats * sizeof(float), &p) != VB_OK)
        return vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
    *out = p;
    return VB_OK;
}

static vb_err mtp_is_missing(const char *model, const char *tensor, vb_error *err) {
    return vb__fail(err, VB_E_NOT_FOUND, "--draft mtp: %s: tensor %s is missing, expected by mtp_num_hidden_layers", model, tensor);
}

static vb_err open_mtp(vb__engine *e, vb_error *err) {
    vb__drafting *d = e->drafting;
    if (e->model->mtp == NULL) {
        if (e->model->mtp_missing[0] != '\0') return mtp_is_missing(e->path, e->model->mtp_missing, err);
        return vb__fail(err, VB_E_MISMATCH, "--draft mtp: %s: the model has 0 MTP layers, expected 1", e->path);
    }
    VB_TRY(device(e, (int64_t)e->max_rows * e->model->cfg.hidden, &d->mtp_in, err));
    VB_TRY(device(e, 2 * VB_LOGIT_ROWS * (int64_t)e->model->cfg.hidden, &d->mtp_out, err));
    d->mtp_rows = vb__calloc(VB_TAG_ENGINE, (size_t)e->parallel, sizeof *d->mtp_rows);
    if (d->mtp_rows == NULL) return vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
    d->kinds |= 1u << VB_DRAFT_MTP;
    return VB_OK;
}

/* Which of two models an error is about must be seen. */
static vb_err drafter_error(int32_t kind, const char *path, vb_err code, vb_error *err) {
    return vb__fail_prefix(err, code, "--draft %s: %s", vb__draft_kind_name(kind), path);
}

static vb_err load_dflash(vb__engine *e, const char *path, vb_error *err) {
    vb__checkpoint *ck;
    vb__weight_source src;
    VB_TRY(vb__checkpoint_open(path, &ck, err));
    vb__checkpoint_source(ck, &src);
    vb_err code = vb__dflash_load(&src, e->model, e->max_rows, e->parallel, &e->drafting->dflash, err);
    vb__checkpoint_close(ck);
    return code;
}

static vb_err open_dflash(vb__engine *e, const char *path, vb_error *err) {
    vb__drafting *d = e->drafting;
    vb_err code = load_dflash(e, path, err);
    if (code != VB_OK) return drafter_error(VB_DRAFT_DFLASH, path, code, err);
    const vb__model *m = vb__dflash_model(d->dflash);
    /* As many pages as the trunk, and a few for the blocks behind full contexts. */
    VB_TRY(vb__page_pool_create(e->be, m->page_bytes, vb__page_pool_count(e->pages) + e->parallel, &d->dpages, err));
    VB_TRY(device(e, (int64_t)e->max_rows * m->cfg.n_taps * m->cfg.hidden, &e->taps, err));
    VB_TRY(device(e, VB_LOGIT_ROWS * (int64_t)m->cfg.hidden, &d->block_hidden, err));
    d->dflash_rows = vb__calloc(VB_TAG_ENGINE, (size_t)e->parallel, sizeof *d->dflash_rows);
    if (d->dflash_rows == NULL) return vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
    d->kinds |= 1u << VB_DRAFT_DFLASH;
    return VB_OK;
}

/* "<model>-dflash" beside the model folder, if there is one. */
static bool sibling(const char *model, char *buf, size_t size) {
    size_t n = strlen(model);
    while (n > 1 && model[n - 1] == '/') n--;
    struct stat st;
    int len = snprintf(buf, size, "%.*s-dflash", (int)n, model);
    return len > 0 && (size_t)len < size && stat(buf, &st) == 0 && S_ISDIR(st.st_mode);
}

void vb__drafting_widen(const char *model, const char *spec, vb__cpu_backend_options *bo) {
    char path[DRAFT_PATH_MAX];
    if (spec == NULL || strcmp(spec, "auto") == 0 || strcmp(spec, "dflash") == 0) {
        if (!sibling(model, path, sizeof path)) return;
        spec = path;
    } else if (strncmp(spec, "model:", 6) == 0 || strncmp(spec, "dflash:", 7) == 0) spec = strchr(spec, ':') + 1;
    else return;
    vb__checkpoint *ck;
    vb_error why;
    if (vb__checkpoint_open(spec, &ck, &why) != VB_OK) return;
    const vb__model_config *c = vb__checkpoint_config(ck);
    int32_t k = vb__model_max_k(c);
    if (k > bo->max_k) bo->max_k = k;
    if (c->heads > bo->max_heads) bo->max_heads = c->heads;
    if (c->head_dim > bo->max_head_dim) bo->max_head_dim = c->head_dim;
    vb__checkpoint_close(ck);
}

enum { AUTO = VB_DRAFT_KINDS };

/* --draft: the kind, or AUTO, and where its files are ("" where it has none). */
static vb_err parse_spec(const char *model, const char *spec, int32_t *kind, char *path, size_t size, vb_error *err) {
    const char *colon = strchr(spec, ':');
    *kind = strcmp(spec, "auto") == 0 ? AUTO : vb__draft_kind_parse(spec, colon != NULL ? (size_t)(colon - spec) : strlen(spec));
    path[0] = '\0';
    bool takes = *kind == VB_DRAFT_DFLASH || *kind == VB_DRAFT_MODEL, needs = *kind == VB_DRAFT_MODEL;
    if (*kind < 0 || (colon == NULL ? needs : !takes || colon[1] == '\0'))
        return vb__fail(err, VB_E_ARGUMENT, "--draft: unknown '%s', expected auto, none, lookup, mtp, dflash[:PATH] or model:PATH", spec);
    if (colon != NULL && (size_t)snprintf(path, size, "%s", colon + 1) >= size)
        return vb__fail(err, VB_E_RANGE, "--draft: a path of %zu bytes, expected less than %zu", strlen(colon + 1), size);
    if (*kind == VB_DRAFT_DFLASH && colon == NULL && !sibling(model, path, size))
        return vb__fail(err, VB_E_NOT_FOUND, "--draft dflash: %s: no such folder, expected a drafter there or dflash:PATH", path);
    return VB_OK;
}

static vb_err check_files(const vb__weight_source *model, int32_t kind, const char *path, vb_error *err) {
    vb__checkpoint *ck;
    vb_err code = vb__checkpoint_open(path, &ck, err);
    if (code != VB_OK) return drafter_error(kind, path, code, err);
    const vb__model_config *c = vb__checkpoint_config(ck);
    code = kind == VB_DRAFT_DFLASH ? vb__dflash_fits(c, model->cfg, err) : vb__draft_model_fits(c, model->cfg, err);
    vb__checkpoint_close(ck);
    return code == VB_OK ? VB_OK : drafter_error(kind, path, code, err);
}

vb_err vb__drafting_check(const vb__weight_source *model, const vb_model_options *o, vb_error *err) {
    char path[DRAFT_PATH_MAX];
    int32_t kind;
    if (o->draft_width < 0 || o->draft_width > VB_LIMIT_DRAFT_WIDTH)
        return vb__fail(err, VB_E_RANGE, "--draft-width: %d, expected 1 to %d, or auto", o->draft_width, VB_LIMIT_DRAFT_WIDTH);
    VB_TRY(parse_spec(model->path, o->draft == NULL ? "auto" : o->draft, &kind, path, sizeof path, err));
    if (kind == VB_DRAFT_MTP && model->missing_mtp != NULL) return mtp_is_missing(model->path, model->missing_mtp, err);
    return path[0] != '\0' ? check_files(model, kind, path, err) : VB_OK;
}

static vb_err open_kinds(vb__engine *e, const char *spec, vb_error *err) {
    vb__drafting *d = e->drafting;
    char path[DRAFT_PATH_MAX];
    int32_t kind;
    vb_error why = {0};
    VB_TRY(parse_spec(e->path, spec, &kind, path, sizeof path, err));
    if (kind == VB_DRAFT_MTP) return open_mtp(e, err);
    if (kind == VB_DRAFT_DFLASH) return open_dflash(e, path, err);
    if (kind == VB_DRAFT_MODEL) {
        vb_err code = vb__draft_model_open(path, e->model, e->max_rows, vb__page_pool_count(e->pages) + e->parallel, &d->model, err);
        if (code != VB_OK) return drafter_error(kind, path, code, err);
    }
    if (kind != AUTO) {
        d->kinds |= 1u << kind;
        return VB_OK;
    }
    d->auto_kind = true;
    d->kinds |= 1u << VB_DRAFT_LOOKUP;
    if (e->model->mtp != NULL) VB_TRY(open_mtp(e, err));
    if (sibling(e->path, path, sizeof path) && open_dflash(e, path, &why) != VB_OK)
        vb__log(VB_LOG_WARN, "draft", "auto leaves out dflash: %s", why.text);
    return VB_OK;
}

static vb_err open_slot(vb__engine *e, vb__slot *s, vb_error *err) {
    vb__drafting *d = e->drafting;
    s->draft = vb__calloc(VB_TAG_ENGINE, 1, sizeof *s->draft);
    if (s->draft == NULL) return vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
    vb__beliefs_init(&s->draft->beliefs);
    if (d->kinds >> VB_DRAFT_LOOKUP & 1) VB_TRY(vb__lookup_create(e->ctx, &s->draft->lookup, err));
    if (d->kinds >> VB_DRAFT_MTP & 1) VB_TRY(device(e, e->model->cfg.hidden, &s->draft->last_hidden, err));
    if (d->kinds >> VB_DRAFT_DFLASH & 1)
        VB_TRY(vb__seq_create(vb__dflash_model(d->dflash), d->dpages, e->ctx + VB_LIMIT_DRAFT_WIDTH, e->max_rows, 0,
                              &s->draft->dseq, err));
    if (d->kinds >> VB_DRAFT_MODEL & 1) VB_TRY(vb__draft_model_seq(d->model, e->ctx, &s->draft->mseq, err));
    return VB_OK;
}

static vb_err open_vocab(vb__engine *e, vb_error *err) {
    const int32_t n = e->model->cfg.vocab, named = e->tok != NULL ? vb__tokenizer_id_end(e->tok) : 0;
    VB_TRY(vb__draft_vocab_create(n, e->parallel, &e->drafting->vocab, err));
    for (int32_t i = 0; i < e->n_eos; i++) vb__draft_vocab_always(e->drafting->vocab, e->eos[i]);
    for (int32_t id = 0; id < named && id < n; id++)
        if (vb__tokenizer_is_added(e->tok, id) || vb__tokenizer_is_special(e->tok, id)) vb__draft_vocab_always(e->drafting->vocab, id);
    return VB_OK;
}

vb_err vb__drafting_open(vb__engine *e, const vb_model_options *o, vb_error *err) {
    const char *spec = o->draft == NULL ? "auto" : o->draft;
    if (strcmp(spec, "none") == 0) return VB_OK;
    e->drafting = vb__calloc(VB_TAG_ENGINE, 1, sizeof *e->drafting);
    if (e->drafting == NULL) return vb__fail(err, VB_E_MEMORY, "drafter: out of memory");
    e->drafting->fixed_width = o->draft_width;
    e->drafting->active = UINT32_MAX;
    vb__beliefs_init(&e->drafting->beliefs);
    vb__sureness_init(&e->drafting->sureness);
    VB_TRY(open_kinds(e, spec, err));
    e->drafting->loaded = e->drafting->kinds;
    if ((e->drafting->kinds & (1u << VB_DRAFT_MTP | 1u << VB_DRAFT_DFLASH)) != 0) VB_TRY(open_vocab(e, err));
    for (int32_t i = 0; i < e->parallel; i++) VB_TRY(open_slot(e, &e->slots[i], err));
    vb__tuned_load(e, e->drafting->tuned, VB_DRAFT_KINDS);
    return vb__gate_create(e, &e->drafting->gate, err);
}

void vb__drafting_close(vb__engine *e) {
    vb__drafting *d = e->drafting;
    if (d == NULL) return;
    for (int32_t i = 0; e->slots != NULL && i < e->parallel; i++) {
        struct vb__draft_slot *s = e->slots[i].draft;
        if (s == NULL) continue;
        vb__lookup_destroy(s->lookup);
        e->be->ops->free(e->be, s->last_hidden);
        vb__seq_destroy(s->dseq);
        vb__seq_destroy(s->mseq);
        vb__free(s);
        e->slots[i].draft = NULL;
    }
    vb__gate_destroy(d->gate);
    vb__draft_vocab_destroy(d->vocab);
    e->be->ops->free(e->be, d->mtp_in);
    e->be->ops->free(e->be, d->mtp_out);
    e->be->ops->free(e->be, d->block_hidden);
    vb__free(d->mtp_rows);
    vb__free(d->dflash_rows);
    vb__page_pool_destroy(d->dpages);
    vb__dflash_destroy(d->dflash);
    vb__draft_model_close(d->model);
    vb__free(d);
    e->drafting = NULL;
}

/* ---- Life of a slot ------------------------------------------------------------------------------------------------ */

static int32_t slot_index(const vb__engine *e, const vb__slot *s) { return (int32_t)(s - e->slots); }

void vb__drafting_begin(vb__engine *e, vb__slot *s) {
    struct vb__draft_slot *ds = s->draft;
    if (ds == NULL) return;
    ds->beliefs = e->drafting->beliefs;
    vb__beliefs_soften(&ds->beliefs);
    ds->kind = VB_DRAFT_NONE;
    ds->width = 0;
    ds->planned = false;
    if (ds->lookup != NULL) vb__lookup_reset(ds->lookup);
    vb__draft_vocab *v = e->drafting->vocab;
    if (v == NULL) return;
    const vb__req *r = s->req;
    vb__draft_vocab_begin(v, slot_index(e, s), r->tokens, r->n_tokens, r->fed);
    for (int32_t i = 0; i < r->p.n_logit_bias; i++)
        if (r->p.logit_bias[i].bias > 0) vb__draft_vocab_add(v, slot_index(e, s), r->p.logit_bias[i].id);
}

void vb__drafting_forget(vb__engine *e, vb__slot *s) {
    (void)e;
    struct vb__draft_slot *ds = s->draft;
    if (ds == NULL) return;
    ds->mtp_rows = 0;
    ds->mtp_last = ds->mtp_broken = ds->dflash_broken = false;
    if (ds->lookup != NULL) vb__lookup_reset(ds->lookup);
    if (ds->dseq != NULL) vb__seq_reset(ds->dseq);
    if (ds->mseq != NULL) vb__seq_reset(ds->mseq);
}

bool vb__drafting_wants_hidden(const vb__engine *e) {
    return e->drafting != NULL && (e->drafting->kinds >> VB_DRAFT_MTP & 1) != 0;
}

const int32_t *vb__drafting_taps(const vb__engine *e, int32_t *n) {
    *n = 0;
    if (e->drafting == NULL || (e->drafting->kinds >> VB_DRAFT_DFLASH & 1) == 0) return NULL; /* also where auto left it out half made */
    const vb__model_config *c = &vb__dflash_model(e->drafting->dflash)->cfg;
    *n = c->n_taps;
    return c->taps;
}

/* ---- Proposals ------------------------------------------------------------------------------------------------------ */

/* The drafter's choice from its own logits: the target's rule and noise at that position, which keeps acceptance high. Row i of
 * e->logits belongs to slot of[i] of the plan, behind depth[i] drafts. */
typedef struct draft_rows {
    int32_t of[VB_LOGIT_ROWS], depth[VB_LOGIT_ROWS], n;
} draft_rows;

static void add_row(draft_rows *d, int32_t of, int32_t depth) {
    vb_check(d->n < VB_LOGIT_ROWS);
    d->of[d->n] = of;
    d->depth[d->n++] = depth;
}

/* Row i of the drafter's for the sampler, without its logits. */
static vb__sample_row draft_row(const vb__engine *e, vb__step_seq *const *plan, const draft_rows *d, int32_t i) {
    const vb__req *r = plan[d->of[i]]->slot->req;
    vb__sample_row row = vb__request_row(e, r, r->fed + d->depth[i], -1);
    row.wants_margin = plan[d->of[i]]->slot->draft->trims;
    return row;
}

static vb_err choose_drafts(vb__engine *e, vb__step_seq *const *plan, const draft_rows *d, const vb__row_logits *l) {
    vb__sample_row rows[VB_LOGIT_ROWS];
    vb__sample made[VB_LOGIT_ROWS];
    vb_error why[VB_LOGIT_ROWS];
    for (int32_t i = 0; i < d->n; i++) {
        rows[i] = draft_row(e, plan, d, i);
        vb__row_logits_take(e, l, i, &rows[i]);
    }
    vb__sample_rows(e, rows, d->n, made, why);
    for (int32_t i = 0; i < d->n; i++) {
        VB_TRY(why[i].code);
        e->row_tokens[plan[d->of[i]]->row0 + 1 + d->depth[i]] = made[i].id;
        plan[d->of[i]]->slot->draft->margins[d->depth[i]] = made[i].margin;
    }
    return VB_OK;
}

/* The same from final-normed hidden rows. */
static vb_err choose_from_hidden(vb__engine *e, vb__step_seq *const *plan, const draft_rows *d, const float *hidden) {
    vb__row_logits l = {0};
    int32_t slots[VB_LOGIT_ROWS], n = 0;
    for (int32_t i = 0; i < d->n; i++) {
        const vb__sample_row row = draft_row(e, plan, d, i);
        vb__row_logits_want(&l, &row);
        if (i == 0 || d->of[i] != d->of[i - 1]) slots[n++] = slot_index(e, plan[d->of[i]]->slot);
    }
    l.n_ranges = vb__draft_vocab_ranges(e->drafting->vocab, slots, n, &l.ranges);
    VB_TRY(vb__row_logits_make(e, hidden, d->n, &l, NULL));
    return choose_drafts(e, plan, d, &l);
}

/* Whether a planned slot of the round is the given kind's. */
static bool planned(const vb__step_seq *p, int32_t kind) {
    return p->drafts > 0 && p->slot->draft != NULL && p->slot->draft->planned && p->slot->draft->kind == kind;
}

/* Whether a drafter that makes one after the other makes another draft behind the slot's first n. */
static bool go_on(const vb__drafting *d, const struct vb__draft_slot *ds, int32_t kind, int32_t n) {
    return !ds->trims || vb__policy_go_on(&d->costs, &d->sureness, &ds->beliefs.kind[kind], kind, ds->margins, n);
}

/* MTP: depth by recursion. Pass i runs one row of every sequence that wants more than i drafts: (h, pending), then (own
 * output, own draft). Only the first row stays. At most VB_LOGIT_ROWS sequences. */
static vb_err propose_mtp(vb__engine *e, vb__step_seq *const *plan, int32_t n) {
    vb__drafting *d = e->drafting;
    const vb__model *m = e->model;
    const int32_t *token[VB_LOGIT_ROWS];
    const float *hidden[VB_LOGIT_ROWS];
    vb_check(n <= VB_LOGIT_ROWS);
    for (int32_t k = 0; k < n; k++) {
        const vb__req *r = plan[k]->slot->req;
        token[k] = &r->tokens[r->fed];
        hidden[k] = plan[k]->slot->draft->last_hidden;
    }
    for (int32_t i = 0;; i++) {
        float *out = d->mtp_out + (int64_t)(i % 2) * VB_LOGIT_ROWS * m->cfg.hidden;
        draft_rows rows = {.n = 0};
        for (int32_t k = 0; k < n; k++) {
            const vb__slot *s = plan[k]->slot;
            if (plan[k]->drafts > i && i > 0 && !go_on(d, s->draft, VB_DRAFT_MTP, i)) plan[k]->drafts = i;
            if (plan[k]->drafts <= i) continue;
            d->mtp_rows[rows.n] = (vb__mtp_seq){s->seq, 1, s->req->fed - 1 + i, token[k], hidden[k]};
            token[k] = &e->row_tokens[plan[k]->row0 + 1 + i]; /* where its draft will be */
            hidden[k] = out + (int64_t)rows.n * m->cfg.hidden;
            add_row(&rows, k, i);
        }
        if (rows.n == 0) return VB_OK;
        VB_TRY(vb__mtp_forward(m, e->ws, d->mtp_rows, rows.n, out, NULL));
        for (int32_t k = 0; k < n && i == 0; k++) {
            plan[k]->slot->draft->mtp_rows = plan[k]->slot->req->fed;
            plan[k]->slot->draft->mtp_last = false;
        }
        VB_TRY(choose_from_hidden(e, plan, &rows, out));
    }
}

/* DFlash: the blocks of all sequences in one pass, at most VB_LOGIT_ROWS rows. */
static vb_err propose_dflash(vb__engine *e, vb__step_seq *const *plan, int32_t n) {
    vb__drafting *d = e->drafting;
    int32_t h = e->model->cfg.hidden, rows = 0, idx[VB_LOGIT_ROWS];
    draft_rows wanted = {.n = 0};
    for (int32_t k = 0; k < n; k++) {
        const vb__req *r = plan[k]->slot->req;
        d->dflash_rows[k] = (vb__dflash_seq){plan[k]->slot->draft->dseq, plan[k]->drafts + 1, r->tokens[r->fed]};
        vb_check(rows + plan[k]->drafts + 1 <= VB_LOGIT_ROWS);
        for (int32_t i = 0; i < plan[k]->drafts; i++) {
            idx[wanted.n] = rows + 1 + i; /* nobody reads the anchor's row */
            add_row(&wanted, k, i);
        }
        rows += plan[k]->drafts + 1;
    }
    VB_TRY(vb__dflash_block(d->dflash, d->dflash_rows, n, d->block_hidden, NULL));
    e->be->ops->gather_rows(e->be, e->logit_hidden, h, d->block_hidden, h, idx, wanted.n, h);
    return choose_from_hidden(e, plan, &wanted, e->logit_hidden);
}

/* A whole model runs one sequence at a time: each lags behind by a length of its own. */
static vb_err propose_model(vb__engine *e, vb__step_seq *const *plan, int32_t n) {
    for (int32_t k = 0; k < n; k++) {
        const vb__req *r = plan[k]->slot->req;
        for (int32_t i = 0; i < plan[k]->drafts; i++) {
            if (i > 0 && !go_on(e->drafting, plan[k]->slot->draft, VB_DRAFT_MODEL, i)) {
                plan[k]->drafts = i;
                break;
            }
            draft_rows row = {.of = {k}, .depth = {i}, .n = 1};
            VB_TRY(vb__draft_model_next(e->drafting->model, plan[k]->slot->draft->mseq, r->tokens, r->fed + 1,
                                        e->row_tokens + plan[k]->row0 + 1, i, e->logits, NULL));
            int32_t v = e->model->cfg.vocab;
            vb__row_logits l = {.logits = e->logits};
            e->be->ops->argmax(e->be, e->logits, v, 1, v, l.of);
            VB_TRY(e->be->ops->sync(e->be, NULL));
            VB_TRY(choose_drafts(e, plan, &row, &l));
        }
    }
    return VB_OK;
}

/* Kinds that could propose now. */
static uint32_t ready_kinds(const vb__engine *e, const vb__slot *s) {
    const struct vb__draft_slot *ds = s->draft;
    uint32_t kinds = e->drafting->kinds & e->drafting->active;
    if (s->req->p.draft_kinds != 0) kinds &= (uint32_t)s->req->p.draft_kinds;
    if (ds->mtp_broken || !ds->mtp_last || ds->mtp_rows != s->req->fed - 1) kinds &= ~(1u << VB_DRAFT_MTP);
    if (ds->dflash_broken || ds->dseq == NULL || ds->dseq->length != s->req->fed) kinds &= ~(1u << VB_DRAFT_DFLASH);
    return kinds;
}

/* A script's proposals for the coming round: right tokens, then wrong ones. */
static int32_t propose_script(const vb__engine *e, const vb__req *r, int32_t *out, int32_t max) {
    const vb__draft_script *sc = r->p.script;
    int32_t at = vb__req_count(r), vocab = e->model->cfg.vocab, n = 0;
    if (r->round >= sc->n_rounds || at >= sc->n_tokens) return 0;
    int32_t right = sc->accepted[r->round], all = sc->proposed != NULL ? sc->proposed[r->round] : right + 1;
    if (all > VB_LIMIT_DRAFT_WIDTH - 1) all = VB_LIMIT_DRAFT_WIDTH - 1;
    if (all > max) all = max;
    for (; n < all; n++) {
        int32_t id = at + n < sc->n_tokens ? sc->tokens[at + n] : 0;
        out[n] = n < right ? id : (id + 1) % vocab;
    }
    return n;
}

int32_t vb__drafting_plan(vb__engine *e, vb__slot *s, int32_t *out, int32_t max) {
    vb__drafting *d = e->drafting;
    struct vb__draft_slot *ds = s->draft;
    vb__req *r = s->req;
    if (ds != NULL) {
        ds->kind = VB_DRAFT_NONE;
        ds->width = 1;
        ds->planned = false;
    }
    if (r->p.script != NULL) {
        if (r->p.max_tokens >= 0 && max > r->p.max_tokens - vb__req_count(r) - 1)
            max = (int32_t)(r->p.max_tokens - vb__req_count(r) - 1);
        return propose_script(e, r, out, max < s->seq->tape_rows ? max : s->seq->tape_rows);
    }
    if (d == NULL || r->p.draft_width == 1) return 0;
    int32_t rows = max + 1, want = d->fixed_width;
    if (r->p.max_tokens >= 0 && rows > r->p.max_tokens - vb__req_count(r)) rows = (int32_t)(r->p.max_tokens - vb__req_count(r));
    if (want > 0 && rows > want) rows = want;
    if (r->p.draft_width > 0 && rows > r->p.draft_width) rows = r->p.draft_width;
    if (rows > VB_LIMIT_DRAFT_WIDTH) rows = VB_LIMIT_DRAFT_WIDTH;
    if (rows < 2) return 0;
    uint32_t kinds = ready_kinds(e, s);
    int32_t found[VB_LIMIT_DRAFT_WIDTH], n_found = 0, match = 0;
    if (kinds >> VB_DRAFT_LOOKUP & 1) {
        n_found = vb__lookup_propose(ds->lookup, r->tokens, r->n_tokens, found, rows - 1, &match);
        if (r->prediction != NULL && match < VB_LOOKUP_MAX) {
            int32_t given[VB_LIMIT_DRAFT_WIDTH], given_match = 0;
            int32_t n_given = vb__lookup_given(r->prediction, r->p.n_prediction, r->tokens + r->n_prompt, vb__req_count(r), given, rows - 1, &given_match);
            if (n_given > 0 && given_match > match) {
                memcpy(found, given, (size_t)n_given * sizeof *found);
                n_found = n_given;
                match = given_match;
            }
        }
        if (n_found == 0) kinds &= ~(1u << VB_DRAFT_LOOKUP);
    }
    if (kinds == 0) return 0;
    bool one = (kinds & (kinds - 1)) == 0, fixed = want > 0 || r->p.draft_width > 1;
    vb__draft_choice c;
    if (one && fixed) c = (vb__draft_choice){(int32_t)__builtin_ctz(kinds), rows, false};
    else {
        c = vb__policy_choose(&d->costs, &ds->beliefs, kinds, match, rows);
        /* Until a step of the tuned width was seen, its cost is what tune measured, not what the prior says. */
        if (one && !fixed) {
            int32_t kind = (int32_t)__builtin_ctz(kinds), w = d->tuned[kind];
            if (w >= 2 && w <= rows && d->costs.step[w] <= 0) c = (vb__draft_choice){kind, w, false};
        }
        if (fixed && c.kind != VB_DRAFT_NONE) c.width = rows;
    }
    if (c.kind == VB_DRAFT_NONE) return 0;
    if (c.kind == VB_DRAFT_DFLASH) { /* a block wider than those it was trained with is guesswork */
        int32_t trained = vb__dflash_model(d->dflash)->cfg.block_size;
        if (c.width > trained) c.width = trained;
    }
    if (c.kind == VB_DRAFT_LOOKUP && c.width > n_found + 1) c.width = n_found + 1;
    int32_t width = d->gate != NULL ? vb__gate_width(d->gate, c.width) : c.width;
    if (width < 2) return 0;
    /* MTP writes rows behind the committed ones; the pages must be there. */
    if (vb__seq_reserve(s->seq, s->seq->length + width) != VB_OK) return 0;
    if (c.kind == VB_DRAFT_DFLASH && vb__seq_reserve(ds->dseq, ds->dseq->length + width) != VB_OK) return 0;
    ds->kind = c.kind;
    ds->width = width;
    ds->match = match;
    if (c.kind == VB_DRAFT_LOOKUP) memcpy(out, found, (size_t)(width - 1) * sizeof *out);
    ds->trims = c.kind != VB_DRAFT_LOOKUP && !fixed;
    ds->made = 0;
    ds->planned = true;
    return ds->width - 1;
}

/* Drafts of one kind for the slots of plan[0..n-1]. A drafter that fails costs speed, never the answer. */
static void run_kind(vb__engine *e, int32_t kind, vb__step_seq *const *plan, int32_t n) {
    vb__drafting *d = e->drafting;
    vb_err code = VB_OK;
    /* The prompt is no part of what a draft costs. */
    for (int32_t k = 0; k < n && kind == VB_DRAFT_MODEL && code == VB_OK; k++) {
        const vb__req *r = plan[k]->slot->req;
        if (plan[k]->slot->draft->mseq->length + VB_LIMIT_DRAFT_WIDTH < r->fed)
            code = vb__draft_model_catch_up(d->model, plan[k]->slot->draft->mseq, r->tokens, r->fed + 1, NULL);
    }
    double t0 = vb__now();
    if (code == VB_OK)
        code = kind == VB_DRAFT_MTP ? propose_mtp(e, plan, n) : kind == VB_DRAFT_DFLASH ? propose_dflash(e, plan, n) :
               kind == VB_DRAFT_MODEL ? propose_model(e, plan, n) : VB_OK;
    double seconds = vb__now() - t0;
    for (int32_t k = 0; k < n; k++)
        if (vb__fault_is(VB_FAULT_DRAFT_CRASH) && vb__req_count(plan[k]->slot->req) >= 4) code = VB_E_INTERNAL;
    if (code != VB_OK) {
        vb__log(VB_LOG_WARN, "draft", "kind=%s failed (%s); decoding goes on without it", vb__draft_kind_name(kind), vb_err_message(code));
        d->kinds &= ~(1u << kind);
    }
    for (int32_t k = 0; k < n; k++) {
        struct vb__draft_slot *ds = plan[k]->slot->draft;
        vb__req *r = plan[k]->slot->req;
        ds->planned = false;
        if (code != VB_OK) {
            plan[k]->drafts = 0;
            ds->kind = VB_DRAFT_NONE;
            ds->mtp_broken = ds->mtp_broken || kind == VB_DRAFT_MTP;
            continue;
        }
        ds->made = plan[k]->drafts;
        /* A pass over several sequences costs each of them about what it would cost alone, if they share it: no news, unless there is none. */
        if (n == 1 || d->costs.draft[kind][ds->made + 1] <= 0) vb__costs_observe_draft(&d->costs, kind, ds->made + 1, seconds);
        if (ds->trims) {
            int32_t rows = vb__policy_trim(&d->costs, &d->sureness, kind, ds->margins, ds->made);
            plan[k]->drafts = (d->gate != NULL && rows > 1 ? vb__gate_width(d->gate, rows) : rows) - 1;
        }
        ds->width = plan[k]->drafts + 1;
        if (r->stats.draft_kind == VB_DRAFT_NONE || r->stats.draft_width < ds->width) r->stats.draft_width = ds->width;
        r->stats.draft_kind = kind;
    }
}

void vb__drafting_run(vb__engine *e, vb__step_seq *plan, int32_t n) {
    vb__step_seq *some[VB_LOGIT_ROWS];
    if (e->drafting == NULL) return;
    for (int32_t kind = VB_DRAFT_LOOKUP; kind < VB_DRAFT_KINDS; kind++) {
        int32_t count = 0, rows = 0;
        for (int32_t i = 0; i < n; i++) {
            if (!planned(&plan[i], kind)) continue;
            if (rows + plan[i].drafts + 1 > VB_LOGIT_ROWS || count == VB_LOGIT_ROWS) {
                run_kind(e, kind, some, count);
                count = rows = 0;
            }
            some[count++] = &plan[i];
            rows += plan[i].drafts + 1;
        }
        if (count > 0) run_kind(e, kind, some, count);
    }
}

/* ---- What became of them ---------------------------------------------------------------------------------------------- */

/* MTP rows of committed positions: K and V from trunk hidden rows. The last committed row's token may still change hands
 * (the next request's), so it is kept for the first draft step, or for the next call here. */
static vb_err commit_mtp(vb__engine *e, vb__step_seq *plan, int32_t n) {
    vb__drafting *d = e->drafting;
    const vb__model *m = e->model;
    int64_t h = m->cfg.hidden;
    int32_t calls = 0, copied = 0;
    for (int32_t i = 0; i < n; i++) {
        struct vb__draft_slot *ds = plan[i].slot->draft;
        const vb__req *r = plan[i].slot->req;
        if (r == NULL || ds->mtp_broken) continue;
        const float *in = e->hidden + plan[i].hidden0 * h;
        int32_t keep = plan[i].keep, first = r->fed - keep; /* position of the first row of the step */
        vb_check(plan[i].hidden_first == 0);
        if (!(ds->mtp_rows == first && !ds->mtp_last) && !(ds->mtp_rows == first - 1 && ds->mtp_last)) {
            ds->mtp_broken = true; /* rows are missing: a slot that was fed without this drafter */
            continue;
        }
        int32_t lead = ds->mtp_last ? 1 : 0, rows = lead + keep - 1;
        if (rows == 0) continue;
        if (rows == 1 && lead == 1) in = ds->last_hidden;
        else if (lead == 1) {
            float *joined = d->mtp_in + copied * h;
            e->be->ops->copy(e->be, joined, ds->last_hidden, (size_t)h * sizeof(float));
            e->be->ops->copy(e->be, joined + h, in, (size_t)(keep - 1) * (size_t)h * sizeof(float));
            copied += rows;
            in = joined;
        }
        d->mtp_rows[calls++] = (vb__mtp_seq){plan[i].slot->seq, rows, first - lead, r->tokens + first - lead + 1, in};
    }
    if (calls > 0) VB_TRY(vb__mtp_forward(m, e->ws, d->mtp_rows, calls, NULL, NULL));
    for (int32_t i = 0; i < n; i++) {
        struct vb__draft_slot *ds = plan[i].slot->draft;
        if (plan[i].slot->req == NULL || ds->mtp_broken) continue;
        e->be->ops->copy(e->be, ds->last_hidden, e->hidden + (plan[i].hidden0 + plan[i].keep - 1) * h, (size_t)h * sizeof(float));
        ds->mtp_rows = plan[i].slot->req->fed - 1;
        ds->mtp_last = true;
    }
    return VB_OK;
}

static vb_err commit_dflash(vb__engine *e, vb__step_seq *plan, int32_t n) {
    vb__drafting *d = e->drafting;
    const vb__model_config *c = &vb__dflash_model(d->dflash)->cfg;
    int64_t width = (int64_t)c->n_taps * c->hidden;
    int32_t calls = 0, rows = 0;
    for (int32_t i = 0; i < n; i++) {
        struct vb__draft_slot *ds = plan[i].slot->draft;
        const vb__req *r = plan[i].slot->req;
        int32_t keep = plan[i].keep;
        if (r == NULL || ds->dflash_broken) continue;
        if (ds->dseq->length != r->fed - keep || vb__seq_reserve(ds->dseq, r->fed) != VB_OK) {
            ds->dflash_broken = true;
            continue;
        }
        /* The call's rows are dense; those of rejected drafts lie between the committed ones. Row by row, for places overlap. */
        for (int32_t k = 0; k < keep && rows != plan[i].row0; k++)
            e->be->ops->copy(e->be, e->taps + (rows + k) * width, e->taps + (plan[i].row0 + k) * width, (size_t)width * sizeof(float));
        d->dflash_rows[calls++] = (vb__dflash_seq){ds->dseq, keep, 0};
        rows += keep;
    }
    return calls > 0 ? vb__dflash_context(d->dflash, d->dflash_rows, calls, e->taps, NULL) : VB_OK;
}

/* How often drafts are accepted, for the slot's request and for requests to come. */
static void observe(vb__drafting *d, const vb__step_seq *s) {
    struct vb__draft_slot *ds = s->slot->draft;
    if (ds->kind == VB_DRAFT_NONE || (s->drafts == 0 && !ds->trims)) return;
    if (ds->kind == VB_DRAFT_LOOKUP) {
        int32_t c = vb__lookup_class(ds->match);
        vb__acceptance_observe_copy(&ds->beliefs.lookup[c], s->drafts, s->accepted);
        vb__acceptance_observe_copy(&d->beliefs.lookup[c], s->drafts, s->accepted);
        return;
    }
    vb__acceptance *own = &ds->beliefs.kind[ds->kind], *all = &d->beliefs.kind[ds->kind];
    vb__acceptance_observe(own, s->drafts, s->accepted);
    vb__acceptance_observe(all, s->drafts, s->accepted);
    if (!ds->trims) return;
    if (s->accepted == s->drafts && s->drafts < ds->made) {
        float chance = vb__sureness_chance(&d->sureness, ds->kind, s->drafts, ds->margins[s->drafts]);
        vb__acceptance_guess(own, s->drafts, chance);
        vb__acceptance_guess(all, s->drafts, chance);
    }
    vb__sureness_observe(&d->sureness, ds->kind, ds->margins, ds->made, s->drafts, s->accepted);
}

void vb__drafting_commit(vb__engine *e, vb__step_seq *plan, int32_t n) {
    vb__drafting *d = e->drafting;
    if (d == NULL) return;
    bool mtp = (d->kinds >> VB_DRAFT_MTP & 1) == 0 || commit_mtp(e, plan, n) == VB_OK;
    bool dflash = (d->kinds >> VB_DRAFT_DFLASH & 1) == 0 || commit_dflash(e, plan, n) == VB_OK;
    for (int32_t i = 0; i < n; i++) {
        struct vb__draft_slot *ds = plan[i].slot->draft;
        if (plan[i].slot->req == NULL) continue;
        observe(d, &plan[i]);
        const vb__req *r = plan[i].slot->req;
        if (d->vocab != NULL) vb__draft_vocab_follow(d->vocab, slot_index(e, plan[i].slot), r->tokens, r->n_tokens);
        ds->mtp_broken = ds->mtp_broken || !mtp;
        ds->dflash_broken = ds->dflash_broken || !dflash;
        if (ds->mseq != NULL) vb__draft_model_settle(ds->mseq, plan[i].slot->req->fed);
    }
}

void vb__drafting_observe(vb__engine *e, int32_t n_seqs, int32_t rows, int32_t tokens, double draft_s, double verify_s) {
    if (e->drafting == NULL) return;
    vb__costs_observe_rate(&e->drafting->costs, tokens, draft_s + verify_s);
    if (n_seqs != 1 || rows > VB_LIMIT_DRAFT_WIDTH) return;
    vb__costs_observe_step(&e->drafting->costs, rows, verify_s);
    e->drafting->costs.total += draft_s + verify_s;
}
