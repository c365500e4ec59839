/* The measurements. All figures of one run are interleaved: every repeat takes the read limit, the contract's
 * limit, a prefill, decode steps and blocks of every width one after the other, and the medians over repeats are
 * compared; what disturbs the machine for a while then disturbs all of them alike. Calls are those of the scheduler:
 * forward, logits of the wanted rows, the sampler's choice for each, commit. */
#include "engine/bench.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/limits_measure.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/sample_rows.h"
#include "engine/sampling_options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    DECODE_STEPS = 8,    /* of one repeat */
    PREFILL_REPEATS = 3, /* at most; a prefill takes as long as many steps */
    CLASS_STEPS = 7,
    REPEAT_POSITIONS = 1 + DECODE_STEPS + 5 * 2 + 31, /* that one repeat adds behind depth */
    SECONDS_ENOUGH = 150, /* no further repeat after this time */
};

static const int32_t widths[VB_BENCH_WIDTHS] = {1, 2, 4, 8, 16};

typedef struct series {
    double v[VB_BENCH_REPEATS * DECODE_STEPS];
    int32_t n;
} series;

typedef struct bench {
    vb__engine *e;
    vb__seq *seq;
    int32_t ids[VB_LIMIT_ROWS];
    uint32_t *mask;      /* every id has a token, as with a tokenizer */
    vb_sampling greedy;
    double sampling_s;   /* spent in the sampler, summed */
    series read, contract, step, block[VB_BENCH_WIDTHS], accepted[VB_BENCH_WIDTHS], prefill;
} bench;

static void add(series *s, double v) { s->v[s->n++] = v; }

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static vb__measured measured(series *s) {
    if (s->n == 0) return (vb__measured){0};
    qsort(s->v, (size_t)s->n, sizeof s->v[0], ascending);
    double m = (s->v[(s->n - 1) / 2] + s->v[s->n / 2]) / 2;
    return (vb__measured){m, m > 0 ? (s->v[s->n - 1] - s->v[0]) / m : 0, s->v[0]};
}

int64_t vb__bench_resident(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    long long size = 0, resident = 0;
    if (f == NULL) return 0;
    int n = fscanf(f, "%lld %lld", &size, &resident);
    (void)fclose(f);
    return n == 2 ? (int64_t)resident * 4096 : 0;
}

int64_t vb__bench_context(int64_t depth, int32_t prefill_tokens) {
    int64_t deep = depth + REPEAT_POSITIONS + VB_PAGE_POSITIONS;
    return deep > prefill_tokens ? deep : prefill_tokens;
}

int64_t vb__bench_pages(int64_t depth, int32_t prefill_tokens) {
    /* A prefill runs while the snapshot holds the pages of depth. */
    int64_t own = (vb__bench_context(depth, prefill_tokens) + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS;
    return own + (depth + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS + 2;
}

/* ---- Calls as the scheduler makes them ------------------------------------------------------------------------ */

/* Rows of random ids at the end of the sequence; logits and a choice for the last `logits` of them; keep rows stay. */
static vb_err call(bench *b, int32_t rows, int32_t certain, int32_t logits, int32_t keep, vb_error *err) {
    vb__engine *e = b->e;
    const vb__model *m = e->model;
    int32_t hidden = m->cfg.hidden, pos0 = b->seq->length;
    if (vb__seq_reserve(b->seq, pos0 + rows) != VB_OK)
        return vb__fail(err, VB_E_CONTEXT_FULL, "bench: no pages for %d positions", pos0 + rows);
    for (int32_t i = 0; i < logits; i++) e->hidden_rows[i] = rows - logits + i;
    const vb__forward_seq fs = {b->seq, rows, certain, b->ids};
    const vb__forward_args a = {.seqs = &fs, .n_seqs = 1, .hidden_rows = e->hidden_rows, .n_hidden = logits,
                                .hidden = e->hidden};
    VB_TRY(vb__forward(m, e->ws, &a, err));
    if (logits > 0) {
        for (int32_t i = 0; i < logits; i++) e->hidden_rows[i] = i;
        m->be->ops->gather_rows(m->be, e->logit_hidden, hidden, e->hidden, hidden, e->hidden_rows, logits, hidden);
        vb__row_logits l = {.best = true}; /* a greedy answer whose logits nobody asked for */
        VB_TRY(vb__row_logits_make(e, e->logit_hidden, logits, &l, err));
        double t0 = vb__now();
        for (int32_t i = 0; i < logits; i++) {
            vb__sample c;
            vb__sample_row row = {.options = &b->greedy, .token_mask = b->mask, .position = pos0 + rows - logits + i,
                                  .top_logprobs = -1};
            vb__row_logits_take(e, &l, i, &row);
            VB_TRY(vb__sampler_pick(e->samplers[0], &row, &c, err));
            b->ids[i] = c.id;
        }
        b->sampling_s += vb__now() - t0;
    }
    vb_err code = vb__seq_commit(b->seq, keep);
    return code == VB_OK ? VB_OK : vb__fail(err, code, "bench: a key or value is not finite");
}

static vb_err timed_call(bench *b, int32_t rows, int32_t certain, int32_t logits, int32_t keep, double *s, vb_error *err) {
    double t0 = vb__now();
    VB_TRY(call(b, rows, certain, logits, keep, err));
    *s = vb__now() - t0;
    return VB_OK;
}

/* n prompt tokens in the engine's chunks; the last row is sampled from when asked for. */
static vb_err prefill(bench *b, int64_t n, bool sample, vb_error *err) {
    while (n > 0) {
        int32_t rows = n < b->e->prefill_chunk ? (int32_t)n : b->e->prefill_chunk;
        n -= rows;
        VB_TRY(call(b, rows, rows, sample && n == 0 ? 1 : 0, rows, err));
    }
    return VB_OK;
}

/* ---- One repeat ------------------------------------------------------------------------------------------------- */

static vb_err to_depth(bench *b, const vb__snapshot *snap, vb_error *err) {
    vb_err code = vb__seq_restore(b->seq, snap);
    if (code != VB_OK) return vb__fail(err, code, "bench: could not go back to the context's depth");
    return call(b, 1, 1, 1, 1, err); /* brings weights and state back to where a decode finds them */
}

static void limits(bench *b) {
    vb__pool *pool = vb__cpu_of(b->e->be)->pool;
    double read = vb__read_bandwidth(pool), gops = vb__contract_gops(b->e->level, pool);
    if (read > 0) add(&b->read, read);
    add(&b->contract, gops);
}

static vb_err repeat(bench *b, const vb__snapshot *snap, int32_t prefill_tokens, vb_error *err) {
    double t;
    limits(b);
    if (b->prefill.n < PREFILL_REPEATS && prefill_tokens > 0) {
        vb__seq_reset(b->seq);
        double t0 = vb__now();
        VB_TRY(prefill(b, prefill_tokens, true, err));
        add(&b->prefill, vb__now() - t0);
    }
    VB_TRY(to_depth(b, snap, err));
    for (int32_t i = 0; i < DECODE_STEPS; i++) {
        VB_TRY(timed_call(b, 1, 1, 1, 1, &t, err));
        add(&b->step, t);
    }
    for (int32_t i = 0; i < VB_BENCH_WIDTHS; i++) {
        int32_t w = widths[i];
        VB_TRY(timed_call(b, w, 1, w, 1, &t, err));
        add(&b->block[i], t);
        VB_TRY(timed_call(b, w, 1, w, w, &t, err));
        add(&b->block[i], t);
        VB_TRY(timed_call(b, w, 1, w, 1, &t, err));
        add(&b->accepted[i], t);
    }
    return VB_OK;
}

/* ---- Time per class ----------------------------------------------------------------------------------------------- */

/* One step under the profile; its time by class. */
static vb_err profiled(bench *b, int32_t rows, int64_t prefill_tokens, double *out, vb_error *err) {
    vb__profile p;
    b->sampling_s = 0;
    vb__profile_start(&p, b->e->be);
    vb_err code = prefill_tokens > 0 ? prefill(b, prefill_tokens, true, err) : call(b, rows, 1, rows, 1, err);
    vb__profile_stop(&p, b->e->be);
    memcpy(out, p.seconds, sizeof p.seconds);
    out[VB_PROFILE_SAMPLING] += b->sampling_s;
    return code;
}

/* Of some steps, the one with the median sum. */
static vb_err median_step(bench *b, int32_t rows, double *out, vb_error *err) {
    double c[CLASS_STEPS][VB_PROFILE_CLASSES], sum[CLASS_STEPS], order[CLASS_STEPS];
    for (int32_t i = 0; i < CLASS_STEPS; i++) {
        VB_TRY(profiled(b, rows, 0, c[i], err));
        sum[i] = 0;
        for (int32_t k = 0; k < VB_PROFILE_CLASSES; k++) sum[i] += c[i][k];
        order[i] = sum[i];
    }
    qsort(order, CLASS_STEPS, sizeof order[0], ascending);
    for (int32_t i = 0; i < CLASS_STEPS; i++)
        if (sum[i] == order[CLASS_STEPS / 2]) memcpy(out, c[i], sizeof c[i]);
    return VB_OK;
}

static vb_err classes(bench *b, const vb__snapshot *snap, int32_t prefill_tokens, vb__bench_result *r, vb_error *err) {
    VB_TRY(to_depth(b, snap, err));
    VB_TRY(median_step(b, 1, r->classes, err));
    VB_TRY(median_step(b, 16, r->classes_16, err));
    vb__seq_reset(b->seq);
    return profiled(b, 0, prefill_tokens, r->classes_prefill, err);
}

/* ---- Allocation ------------------------------------------------------------------------------------------------------ */

/* Allocation calls of 8 decode steps of an ordinary request. */
static vb_err step_allocations(bench *b, uint64_t *out, vb_error *err) {
    vb__engine *e = b->e;
    vb__seq_reset(b->seq);
    vb__req *r;
    const vb__req_params p = {.prompt = b->ids, .n_prompt = 16, .max_tokens = 16, .ignore_eos = true, .no_text = true,
                              .no_reuse = true, .draft_width = 1, .sampling = b->greedy, .top_logprobs = -1};
    VB_TRY(vb__req_create(e, &p, &r, err));
    vb_err code = vb__engine_submit(e, r, err);
    bool worked = true;
    while (code == VB_OK && worked && vb__req_count(r) < 4) code = vb__engine_step(e, &worked, err);
    uint64_t before = vb__alloc_calls();
    for (int32_t i = 0; code == VB_OK && i < 8; i++) code = vb__engine_step(e, &worked, err);
    *out = vb__alloc_calls() - before;
    if (code == VB_OK && (r->error != VB_OK || vb__req_count(r) < 12))
        code = vb__fail(err, VB_E_INTERNAL, "bench: a request of 16 tokens did not run: %s", r->message.text);
    vb__engine_cancel(e, r);
    vb__req_destroy(r);
    vb__engine_clear(e);
    return code;
}

/* ---- The run ------------------------------------------------------------------------------------------------------------ */

static vb_err make_ids(bench *b, vb_error *err) {
    uint64_t z = 1;
    for (int32_t i = 0; i < VB_LIMIT_ROWS; i++) {
        z = z * 6364136223846793005u + 1442695040888963407u;
        b->ids[i] = (int32_t)((z >> 33) % (uint64_t)b->e->model->cfg.vocab);
    }
    size_t words = ((size_t)b->e->model->cfg.vocab + 31) / 32;
    b->mask = vb__alloc(VB_TAG_ENGINE, words * sizeof *b->mask);
    if (b->mask == NULL) return vb__fail(err, VB_E_MEMORY, "bench: out of memory");
    memset(b->mask, 0xff, words * sizeof *b->mask);
    const vb_sampling greedy = {.set = VB_SET_TEMPERATURE | VB_SET_SEED, .seed = 1};
    return vb__sampling_resolve(&greedy, NULL, NULL, &b->greedy, err);
}

static vb_err run(bench *b, int64_t depth, int32_t prefill_tokens, int32_t repeats, vb_progress_fn *progress, void *user,
                  vb__bench_result *r, vb_error *err) {
    vb__snapshot *snap = NULL;
    double t0 = vb__now();
    vb_err code = VB_OK;
    VB_TRY(make_ids(b, err));
    VB_TRY(step_allocations(b, &r->step_allocations, err));
    vb__seq_reset(b->seq);
    VB_TRY(prefill(b, depth, false, err));
    r->resident_bytes = vb__bench_resident();
    if (vb__seq_save(b->seq, &snap) != VB_OK) return vb__fail(err, VB_E_MEMORY, "bench: out of memory");
    for (int32_t i = 0; code == VB_OK && i < repeats && (i == 0 || vb__now() - t0 < SECONDS_ENOUGH); i++) {
        if (progress != NULL && !progress(user, "bench", i, repeats)) code = vb__fail(err, VB_E_CANCELLED, "bench was cancelled");
        if (code == VB_OK) code = repeat(b, snap, prefill_tokens, err);
        if (code == VB_OK) r->repeats = i + 1;
    }
    if (code == VB_OK) limits(b);
    if (code == VB_OK) code = classes(b, snap, prefill_tokens, r, err);
    if (code == VB_OK && progress != NULL) (void)progress(user, "bench", repeats, repeats);
    vb__snapshot_destroy(snap);
    return code;
}

vb_err vb__bench_run(vb__engine *e, int64_t depth, int32_t prefill_tokens, int32_t repeats, vb_progress_fn *progress,
                     void *user, vb__bench_result *out, vb_error *err) {
    vb_check(e->slots[0].req == NULL && repeats >= 1 && repeats <= VB_BENCH_REPEATS - 1 && depth >= 1);
    bench *b = vb__calloc(VB_TAG_ENGINE, 1, sizeof *b);
    if (b == NULL) return vb__fail(err, VB_E_MEMORY, "bench: out of memory");
    b->e = e;
    b->seq = e->slots[0].seq;
    vb__costs costs;
    vb__costs_of(e->model, &costs);
    vb__bench_result r = {.depth = (int32_t)depth, .prefill_tokens = prefill_tokens};
    vb_err code = run(b, depth, prefill_tokens, repeats, progress, user, &r, err);
    if (code == VB_OK) {
        r.read_gb_per_s = measured(&b->read);
        r.contract_gops = measured(&b->contract);
        r.step_s = measured(&b->step);
        r.prefill_s = measured(&b->prefill);
        for (int32_t i = 0; i < VB_BENCH_WIDTHS; i++) {
            r.rows[i] = widths[i];
            r.block_s[i] = measured(&b->block[i]);
            r.accepted_s[i] = measured(&b->accepted[i]);
        }
        r.step_bytes = vb__costs_step_bytes(&costs, depth + 1 + DECODE_STEPS / 2);
        r.row_macs = costs.body_macs + costs.head_macs;
        r.prefill_macs = costs.body_macs * prefill_tokens + costs.head_macs;
        *out = r;
    }
    vb__seq_reset(b->seq);
    vb__engine_clear(e);
    vb__free(b->mask);
    vb__free(b);
    return code;
}
