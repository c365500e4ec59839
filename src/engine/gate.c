#include "engine/gate.h"
#include "base/alloc.h"
#include "base/build_id.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/memo.h"
#include "engine/tuned.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { PREFILL = 96, PIECE = 16, CHAIN = 48 };
static const char memo_name[] = "gate.memo";
static const double chain_cheap = 0.5; /* seconds that making a chain again may cost: then its memory is given back */
static const double memory_wait = 1;   /* seconds before a check that found no memory is tried again */

typedef struct hash128 {
    uint8_t b[16];
} hash128;

struct vb__gate {
    struct vb__engine *e;
    vb__gate_state state[VB_LIMIT_DRAFT_WIDTH + 1];
    vb__gate_state memo[VB_LIMIT_DRAFT_WIDTH + 1]; /* what the memo file says of this key */
    char key[256];     /* model, contract, device: one word */
    bool allow_inexact, use_memo;
    bool bypass; /* every width serves: the caller compares for itself */
    double budget_first, budget_share;
    double not_before; /* no work until then: there was no memory for it */
    double opened, spent;
    double chain_s;   /* what the chain that is there has cost */
    double forward_s; /* of one forward of the check, as last seen; 0: none yet */
    char difference[VB_ERROR_TEXT_MAX];
    /* The chain; made once. */
    vb__seq *seq;
    vb__snapshot *start;       /* after the prefill */
    int32_t tokens[CHAIN + 1]; /* tokens[i]: the token fed at chain step i; tokens[0] follows the prefill */
    hash128 logits[CHAIN];     /* of the row of step i */
    hash128 state_after[CHAIN + 1]; /* after i steps */
    int32_t prefilled;         /* rows of the prefill that have run */
    int32_t steps;             /* -1: prefill not finished */
    bool said_waiting;         /* that a width waits for its check */
    /* The width being checked. */
    int32_t width, at, next_accept;
    int32_t wanted; /* the last width that was asked for before its answer was known */
};

static hash128 hash_bytes(const void *p, size_t n) {
    XXH128_canonical_t c;
    hash128 h;
    XXH128_canonicalFromHash(&c, XXH3_128bits(p, n));
    memcpy(h.b, c.digest, 16);
    return h;
}

/* ---- Memo ------------------------------------------------------------------------------------------------------- */

static bool any_fault(void) {
    for (int k = VB_FAULT_NONE + 1; k < VB_FAULTS; k++)
        if (vb__fault_is((vb__fault)k)) return true;
    return false;
}

bool vb__gate_memo_parse(const char *rest, int32_t *width, vb__gate_state *state) {
    int w, used = 0;
    if (sscanf(rest, "%2d%n", &w, &used) != 1 || rest[0] < '1' || rest[0] > '9' || w < 2 || w > VB_LIMIT_DRAFT_WIDTH) return false;
    bool passed = strcmp(rest + used, " passed") == 0;
    if (!passed && strcmp(rest + used, " declined") != 0) return false;
    *width = w;
    *state = passed ? VB_GATE_PASSED : VB_GATE_DECLINED;
    return true;
}

static void memo_line(void *user, const char *rest) {
    vb__gate *g = user;
    int32_t width;
    vb__gate_state state;
    if (vb__gate_memo_parse(rest, &width, &state)) g->memo[width] = state;
}

static void memo_read(vb__gate *g) {
    vb__memo_read(memo_name, g->key, memo_line, g);
    for (int32_t w = 2; w <= VB_LIMIT_DRAFT_WIDTH; w++) g->state[w] = g->memo[w];
}

static void memo_write(vb__gate *g, int32_t width) {
    char line[384];
    vb_error err;
    if (!g->use_memo || g->memo[width] == g->state[width]) return;
    g->memo[width] = g->state[width];
    (void)snprintf(line, sizeof line, "%s %d %s\n", g->key, width, g->state[width] == VB_GATE_PASSED ? "passed" : "declined");
    if (vb__memo_append(memo_name, line, &err) == VB_OK) return;
    vb__log(VB_LOG_INFO, "gate", "memo not written: %s", err.text);
    g->use_memo = false; /* said once is enough */
}

/* ---- Create --------------------------------------------------------------------------------------------------------- */

vb_err vb__gate_create(struct vb__engine *e, vb__gate **out, vb_error *err) {
    vb__gate *g = vb__calloc(VB_TAG_ENGINE, 1, sizeof *g);
    if (g == NULL) return vb__fail(err, VB_E_MEMORY, "gate: out of memory");
    g->e = e;
    g->steps = -1;
    g->state[0] = g->state[1] = VB_GATE_PASSED; /* one row is what blocks are compared with */
    vb__gate_budget(g, 2.0, 0.02);
    g->opened = vb__now();
    const char *allow = getenv("VERBATIM_ALLOW_INEXACT");
    g->allow_inexact = allow != NULL && strcmp(allow, "1") == 0;
    if (g->allow_inexact)
        vb__log(VB_LOG_WARN, "gate", "VERBATIM_ALLOW_INEXACT=1: widths that fail the gate are used; the guarantee is forfeited");
    /* Another build may break what this one keeps, also one of the same version and compiler. */
    vb__device_key(e, g->key, sizeof g->key);
    size_t len = strlen(g->key);
    (void)snprintf(g->key + len, sizeof g->key - len, "/%s%s", vb__build_id(), e->model->head_chunk ? "" : "/whole-heads");
    g->use_memo = !any_fault() && e->fingerprint[0] != '\0';
    if (g->use_memo) memo_read(g);
    *out = g;
    return VB_OK;
}

static void chain_free(vb__gate *g) {
    vb__snapshot_destroy(g->start);
    vb__seq_destroy(g->seq);
    g->start = NULL;
    g->seq = NULL;
    g->prefilled = 0;
    g->steps = -1;
    g->width = 0;
    g->chain_s = 0;
}

void vb__gate_budget(vb__gate *g, double first, double share) {
    g->budget_first = first;
    g->budget_share = share;
}

bool vb__gate_give_back(vb__gate *g) {
    bool held = g->seq != NULL;
    chain_free(g);
    return held;
}

void vb__gate_bypass(vb__gate *g) { g->bypass = true; }

void vb__gate_destroy(vb__gate *g) {
    if (g == NULL) return;
    chain_free(g);
    vb__free(g);
}

/* ---- Work, a forward at a time ------------------------------------------------------------------------------------------ */

/* Runs rows on g->seq, `certain` of them for good, and leaves the logits of all of them or, where all are certain, of the last one
 * in e->logits. */
static vb_err run_rows(vb__gate *g, const int32_t *tokens, int32_t rows, int32_t certain, vb_error *err) {
    struct vb__engine *e = g->e;
    VB_TRY(vb__seq_reserve(g->seq, g->seq->length + rows));
    const vb__forward_seq fs = {g->seq, rows, certain, tokens};
    int32_t last = rows - 1;
    bool all = rows > certain;
    const vb__forward_args a = {.seqs = &fs, .n_seqs = 1, .hidden_rows = all ? NULL : &last, .n_hidden = all ? rows : 1,
                                .hidden = e->logit_hidden};
    VB_TRY(vb__forward(e->model, e->ws, &a, err));
    vb__logits(e->model, e->logit_hidden, a.n_hidden, e->logits);
    return e->be->ops->sync(e->be, err);
}

static int32_t argmax_row(const struct vb__engine *e, int32_t row) {
    vb__best best;
    int32_t v = e->model->cfg.vocab;
    e->be->ops->argmax(e->be, e->logits + (int64_t)row * v, v, 1, v, &best);
    return best.id;
}

static hash128 hash_row(const struct vb__engine *e, int32_t row) {
    size_t v = (size_t)e->model->cfg.vocab;
    return hash_bytes(e->logits + (size_t)row * v, v * sizeof(float));
}

/* One piece of the prefill: the first one tells what a forward costs here, before much is spent. */
static vb_err prefill_step(vb__gate *g, vb_error *err) {
    struct vb__engine *e = g->e;
    int32_t ids[PREFILL];
    uint32_t s = 12345;
    for (int32_t i = 0; i < PREFILL; i++) { /* any tokens do; they are the same on every machine */
        s = s * 1664525u + 1013904223u;
        ids[i] = (int32_t)((s >> 8) % (uint32_t)(e->model->cfg.vocab < 4096 ? e->model->cfg.vocab : 4096));
    }
    if (g->seq == NULL)
        VB_TRY(vb__seq_create(e->model, e->pages, PREFILL + CHAIN + VB_LIMIT_DRAFT_WIDTH + 64, PREFILL, VB_LIMIT_DRAFT_WIDTH,
                              &g->seq, err));
    VB_TRY(run_rows(g, ids + g->prefilled, PIECE, PIECE, err));
    VB_TRY(vb__seq_commit(g->seq, PIECE));
    g->prefilled += PIECE;
    if (g->prefilled < PREFILL) return VB_OK;
    g->tokens[0] = argmax_row(e, 0);
    VB_TRY(vb__seq_save(g->seq, &g->start));
    vb__seq_hash(g->seq, g->state_after[0].b);
    g->steps = 0;
    return VB_OK;
}

/* One forward of the chain. */
static vb_err chain_step(vb__gate *g, vb_error *err) {
    struct vb__engine *e = g->e;
    if (g->steps < 0) return prefill_step(g, err);
    VB_TRY(run_rows(g, &g->tokens[g->steps], 1, 1, err));
    VB_TRY(vb__seq_commit(g->seq, 1));
    g->logits[g->steps] = hash_row(e, 0);
    g->tokens[g->steps + 1] = argmax_row(e, 0);
    g->steps++;
    vb__seq_hash(g->seq, g->state_after[g->steps].b);
    return VB_OK;
}

static void settle_width(vb__gate *g, vb__gate_state s) {
    int32_t w = g->width;
    g->state[w] = s;
    g->width = 0;
    if (s == VB_GATE_DECLINED)
        vb__log(VB_LOG_WARN, "gate", "width=%d declined: %s", w, g->difference);
    memo_write(g, w);
}

/* One forward of the width being checked: a block with accept length next_accept, or the start of another pass. */
static vb_err width_step(vb__gate *g, vb_error *err) {
    struct vb__engine *e = g->e;
    int32_t w = g->width, accept = g->next_accept;
    bool done = accept >= w;
    if (done || g->at + accept + 1 > CHAIN || g->at + w > CHAIN + 1) {
        /* The pass ends: state must be the chain's. */
        if (g->at > 0) {
            hash128 h;
            vb__seq_hash(g->seq, h.b);
            if (memcmp(h.b, g->state_after[g->at].b, 16) != 0) {
                (void)snprintf(g->difference, sizeof g->difference,
                               "state after %d tokens differs between blocks of %d rows and one-row steps", g->at, w);
                settle_width(g, VB_GATE_DECLINED);
                return VB_OK;
            }
        }
        if (done) {
            settle_width(g, VB_GATE_PASSED);
            return VB_OK;
        }
        VB_TRY(vb__seq_restore(g->seq, g->start));
        g->at = 0;
    }
    int32_t block[VB_LIMIT_DRAFT_WIDTH];
    for (int32_t i = 0; i < w; i++) block[i] = g->tokens[g->at + i < CHAIN ? g->at + i : CHAIN];
    if (accept + 1 < w) { /* plant a wrong id behind the accepted ones */
        int32_t wrong = block[accept + 1] + 1;
        block[accept + 1] = wrong < e->model->cfg.vocab ? wrong : 0;
    }
    VB_TRY(run_rows(g, block, w, 1, err));
    for (int32_t i = 0; i <= accept; i++) {
        hash128 h = hash_row(e, i);
        if (memcmp(h.b, g->logits[g->at + i].b, 16) == 0) continue;
        (void)snprintf(g->difference, sizeof g->difference,
                       "logits at position %d (row %d of a block of %d, accept length %d) differ from one-row decode",
                       PREFILL + g->at + i, i, w, accept);
        settle_width(g, VB_GATE_DECLINED);
        return VB_OK;
    }
    VB_TRY(vb__seq_commit(g->seq, accept + 1));
    g->at += accept + 1;
    g->next_accept++;
    return VB_OK;
}

/* One piece of work for `width`. Without memory it stays open, for requests may have all pages for a while; another error declines it for
 * this run. */
static vb_err work(vb__gate *g, int32_t width, vb_error *out) {
    vb_error err = {0};
    vb_err code;
    double t0 = vb__now();
    bool chain = g->steps < CHAIN;
    if (chain) {
        code = chain_step(g, &err);
    } else {
        if (g->width != width) {
            g->width = width;
            g->at = CHAIN + 1; /* forces a restore */
            g->next_accept = 0;
        }
        if (g->at > CHAIN) { /* a fresh pass */
            code = vb__seq_restore(g->seq, g->start);
            g->at = 0;
        } else code = VB_OK;
        if (code == VB_OK) code = width_step(g, &err);
    }
    double took = vb__now() - t0;
    g->spent += took;
    g->forward_s = took;
    if (chain) g->chain_s += took;
    if (code != VB_OK) {
        const char *why = err.text[0] != '\0' ? err.text : vb_err_message(code);
        if (code != VB_E_MEMORY) g->state[width] = VB_GATE_DECLINED;
        if (code != VB_E_MEMORY || g->not_before == 0) vb__log(VB_LOG_WARN, "gate", "width=%d not checked: %s", width, why);
        if (code == VB_E_MEMORY) g->not_before = vb__now() + memory_wait;
        chain_free(g);
        return vb__fail(out, code, "gate: width %d could not be checked: %s", width, why);
    }
    return VB_OK;
}

/* Forwards still to come before a width has its answer: the rest of the prefill and of the chain, then its blocks. */
static double forwards_left(const vb__gate *g, int32_t width) {
    int32_t blocks = width - (g->width == width ? g->next_accept : 0);
    return (PREFILL - g->prefilled) / PIECE + (CHAIN - (g->steps < 0 ? 0 : g->steps)) + 1.5 * blocks;
}

/* The first budget is only spent on a check that it can finish: an answer on a slow machine should not pay for nothing. */
static bool in_budget(const vb__gate *g, int32_t width) {
    if (g->spent < g->budget_share * (vb__now() - g->opened)) return true;
    return g->spent + forwards_left(g, width) * g->forward_s < g->budget_first;
}

static bool usable(const vb__gate *g, int32_t w) {
    return g->state[w] == VB_GATE_PASSED || (g->state[w] == VB_GATE_DECLINED && g->allow_inexact);
}

/* Said once: a drafter that was asked for does not stay away in silence. */
static void say_waiting(vb__gate *g, int32_t width) {
    if (g->said_waiting) return;
    g->said_waiting = true;
    vb__log(VB_LOG_INFO, "gate", "width=%d waits for its check, about %.0f s of work in %.0f%% of the time: narrower blocks serve until then; "
            "verbatim tune or verify checks every width at once", width, forwards_left(g, width) * g->forward_s, 100 * g->budget_share);
}

/* Pages and states of the check are given back when no width needs them, or when no answer is awaited and they are soon made again. */
static void give_back(vb__gate *g) {
    bool open = false, awaited = g->width != 0 || g->state[g->wanted] == VB_GATE_UNKNOWN;
    for (int32_t w = 2; w <= VB_LIMIT_DRAFT_WIDTH; w++) open = open || g->state[w] == VB_GATE_UNKNOWN;
    if (g->seq != NULL && (!open || (!awaited && g->chain_s < chain_cheap && !in_budget(g, VB_LIMIT_DRAFT_WIDTH)))) chain_free(g);
}

int32_t vb__gate_width(vb__gate *g, int32_t width) {
    if (g->bypass) return width;
    if (width > 1 && g->state[width] == VB_GATE_UNKNOWN) g->wanted = width;
    /* Behind the first budget a piece at a time, however long the engine was idle before: a round waits for one forward more. */
    bool more = true;
    while (more && width > 1 && g->state[width] == VB_GATE_UNKNOWN && vb__now() >= g->not_before) {
        /* A check that has begun is ended first: rounds that want now this width, now that one would never have an answer. */
        int32_t w = g->width != 0 ? g->width : width;
        if (!in_budget(g, w)) break;
        (void)!work(g, w, NULL);
        more = g->spent < g->budget_first;
    }
    if (width > 1 && g->state[width] == VB_GATE_UNKNOWN) say_waiting(g, width);
    give_back(g);
    while (width > 1 && !usable(g, width)) width--;
    return width;
}

vb__gate_state vb__gate_get(const vb__gate *g, int32_t width) { return g->state[width]; }

vb_err vb__gate_check(vb__gate *g, int32_t width, bool fresh, vb__gate_state *out, vb_error *err) {
    if (width < 2 || width > VB_LIMIT_DRAFT_WIDTH)
        return vb__fail(err, VB_E_RANGE, "gate: width %d, expected 2 to %d", width, VB_LIMIT_DRAFT_WIDTH);
    if (fresh) g->state[width] = VB_GATE_UNKNOWN;
    while (g->state[width] == VB_GATE_UNKNOWN) VB_TRY(work(g, width, err));
    *out = g->state[width];
    return VB_OK;
}

int32_t vb__gate_declined(const vb__gate *g, int32_t out[16]) {
    int32_t n = 0;
    for (int32_t w = 2; w <= VB_LIMIT_DRAFT_WIDTH && n < 16; w++)
        if (g->state[w] == VB_GATE_DECLINED) out[n++] = w;
    return n;
}

const char *vb__gate_difference(const vb__gate *g) { return g->difference; }
