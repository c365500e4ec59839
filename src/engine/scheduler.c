/* The step: rows of all live requests in one forward, then the sampler's choice row by row.
 *
 * A request's tokens are its prompt and its answer so far; `fed` of them the sequence has run. Known tokens not
 * yet run are certain rows; when exactly one is left, a drafter may add a block behind it. The last known row
 * and the drafts are sampled from, in order, while each draft equals the choice before it. Prompt, decode,
 * verify and "computed again after giving way" are all this one rule. */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/gate.h"
#include "engine/sample_rows.h"
#include "engine/step_seq.h"
#include <string.h>

typedef struct vb__step_seq step_seq;

/* ---- Requests come and go -------------------------------------------------------------------------------------- */

static void req_done(vb__engine *e, vb__req *r) {
    (void)e;
    if (r->slot != NULL) r->slot->req = NULL;
    r->slot = NULL;
    r->phase = VB_REQ_DONE;
    r->stats.finished = vb__now();
}

static void req_fail(vb__engine *e, vb__req *r, vb_err code, const char *text) {
    r->error = vb__fail(&r->message, code, "%s", text);
    r->finish = VB_FINISH_CANCELLED;
    if (r->slot != NULL) { /* its sequence may be unusable */
        vb__seq_reset(r->slot->seq);
        vb__drafting_forget(e, r->slot);
    }
    req_done(e, r);
}

static int32_t pages_of(int32_t positions) { return (positions + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS; }

vb_err vb__engine_submit(vb__engine *e, vb__req *r, vb_error *err) {
    vb_check(r->phase == VB_REQ_NEW);
    int32_t pages = pages_of(r->n_prompt + (r->p.max_tokens != 0));
    if (pages > vb__page_pool_count(e->pages))
        return vb__fail(err, VB_E_CONTEXT_FULL,
                        "prompt: needs %d KV pages of 64 tokens, expected at most the pool's %d", pages,
                        vb__page_pool_count(e->pages));
    r->serial = e->serial++;
    r->phase = VB_REQ_QUEUED;
    r->next = NULL;
    *e->queue_tail = r;
    e->queue_tail = &r->next;
    r->stats.submitted = vb__now();
    return VB_OK;
}

static void unqueue(vb__engine *e, vb__req *r) {
    for (vb__req **p = &e->queue; *p != NULL; p = &(*p)->next)
        if (*p == r) {
            *p = r->next;
            if (e->queue_tail == &r->next) e->queue_tail = p;
            return;
        }
}

void vb__engine_cancel(vb__engine *e, vb__req *r) {
    if (r->phase == VB_REQ_QUEUED) unqueue(e, r);
    if (r->phase == VB_REQ_QUEUED || r->phase == VB_REQ_LIVE) {
        r->finish = VB_FINISH_CANCELLED;
        req_done(e, r);
    }
}

void vb__engine_clear(vb__engine *e) {
    for (int32_t i = 0; i < e->parallel; i++)
        if (e->slots[i].req == NULL) {
            vb__seq_reset(e->slots[i].seq);
            vb__drafting_forget(e, &e->slots[i]);
        }
}

/* Tokens of a free slot that this request can go on from: all of them, or none (a recurrent state has one
 * length), and at least one token must be left to run. */
static int32_t reusable(const vb__slot *s, const vb__req *r) {
    int32_t n = s->seq->length;
    if (r->p.no_reuse || r->p.all_logits || n == 0 || n >= r->n_tokens) return 0;
    return memcmp(s->tokens, r->tokens, (size_t)n * sizeof *s->tokens) == 0 ? n : 0;
}

/* Whether the pool has pages for what is known of a request, beside what is known of the live ones. A request that came in without
 * would be computed only to give way, over and over. Where nothing is live it comes in: then it can have all pages. */
static bool has_pages(const vb__engine *e, const vb__req *r) {
    int64_t room = vb__page_pool_free_count(e->pages);
    bool live = false;
    for (int32_t i = 0; i < e->parallel; i++) {
        const vb__slot *s = &e->slots[i];
        int32_t more = s->req == NULL ? 0 : pages_of(s->req->n_tokens + 1) - s->seq->n_pages;
        if (s->req == NULL) room += s->seq->n_pages; /* it only remembers */
        else if (more > 0) room -= more;
        live = live || s->req != NULL;
    }
    return !live || pages_of(r->n_tokens + 1) <= room;
}

static void admit(vb__engine *e) {
    while (e->queue != NULL && has_pages(e, e->queue)) {
        vb__req *r = e->queue;
        vb__slot *best = NULL;
        int32_t best_n = -1;
        for (int32_t i = 0; i < e->parallel; i++) {
            vb__slot *s = &e->slots[i];
            if (s->req != NULL) continue;
            int32_t n = reusable(s, r);
            /* Prefer the longest match; among slots without one, an empty slot. */
            int32_t score = n > 0 ? 2 * n + 1 : s->seq->length == 0 ? 1 : 0;
            if (score > best_n) {
                best = s;
                best_n = score;
            }
        }
        if (best == NULL) return;
        unqueue(e, r);
        int32_t n = reusable(best, r);
        if (n == 0) {
            vb__seq_reset(best->seq);
            vb__drafting_forget(e, best);
        }
        r->fed = n;
        r->stats.cached = n < r->n_prompt ? n : r->n_prompt;
        r->slot = best;
        r->phase = VB_REQ_LIVE;
        best->req = r;
        if (r->stats.started == 0) r->stats.started = vb__now();
        vb__drafting_begin(e, best);
    }
}

/* The pool is out of pages: slots that only remember are emptied first, then the gate's check, then the newest live request gives way and
 * will be computed again. False when `needy` itself is the newest and nobody else can give. */
static bool make_room(vb__engine *e, const vb__slot *needy) {
    vb__slot *newest = NULL;
    for (int32_t i = 0; i < e->parallel; i++) {
        vb__slot *s = &e->slots[i];
        if (s->req == NULL && s->seq->length > 0) {
            vb__seq_reset(s->seq);
            vb__drafting_forget(e, s);
            return true;
        }
        if (s->req != NULL && (newest == NULL || s->req->serial > newest->req->serial)) newest = s;
    }
    if (vb__drafting_gate(e) != NULL && vb__gate_give_back(vb__drafting_gate(e))) return true;
    if (newest == NULL || newest == needy) return false;
    vb__req *r = newest->req;
    vb__seq_reset(newest->seq);
    vb__drafting_forget(e, newest);
    newest->req = NULL;
    r->slot = NULL;
    r->fed = 0;
    e->stats.gave_way++;
    r->phase = VB_REQ_QUEUED; /* to the front: it was admitted before anything that waits */
    r->next = e->queue;
    if (e->queue == NULL) e->queue_tail = &r->next;
    e->queue = r;
    return true;
}

/* ---- Planning --------------------------------------------------------------------------------------------------- */

static bool decoding(const vb__req *r) { return r->n_tokens - r->fed == 1 && vb__req_count(r) > 0; }

static bool alone(const vb__engine *e, const vb__slot *s) {
    for (int32_t i = 0; i < e->parallel; i++)
        if (&e->slots[i] != s && e->slots[i].req != NULL) return false;
    return true;
}

/* Reserves pages for `rows` more rows of a slot. False: the slot takes no part in this step (its request may have
 * failed or given way). */
static bool reserve(vb__engine *e, vb__slot *s, int32_t rows) {
    for (;;) {
        vb_err code = vb__seq_reserve(s->seq, s->seq->length + rows);
        if (code == VB_OK) return true;
        if (code == VB_E_MEMORY && make_room(e, s)) {
            if (s->req == NULL) return false;
            continue;
        }
        /* The newest request waits for the others to end; alone, it can wait for nobody. */
        if (code != VB_E_MEMORY || (rows == 1 && alone(e, s)))
            req_fail(e, s->req, VB_E_CONTEXT_FULL, "KV pages: the pool is full");
        return false;
    }
}

static int32_t plan_step(vb__engine *e, step_seq *plan, int32_t *n_rows) {
    int32_t n = 0, rows = 0, decoders = 0;
    bool busy = false;
    for (int32_t i = 0; i < e->parallel; i++) decoders += e->slots[i].req != NULL && decoding(e->slots[i].req);
    /* Rows are nearly free up to a tile of 16: those that decode share them. Alone, a request has them all. */
    int32_t share = decoders > 1 ? VB_TILE_ROWS / decoders : VB_LIMIT_DRAFT_WIDTH;
    if (share < 1) share = 1;
    /* Those that decode come first; each gets its block. */
    for (int32_t i = 0; i < e->parallel; i++) {
        vb__slot *s = &e->slots[i];
        if (s->req == NULL || !decoding(s->req) || rows >= e->max_rows) continue;
        busy = true;
        int32_t room = e->max_rows - rows, left = e->ctx - s->req->n_tokens;
        int32_t *row = e->row_tokens + rows;
        row[0] = s->req->tokens[s->req->fed];
        int32_t most = room - 1 < left ? room - 1 : left;
        int32_t drafts = vb__drafting_plan(e, s, row + 1, most < share - 1 ? most : share - 1);
        while (drafts > 0 && vb__seq_reserve(s->seq, s->seq->length + 1 + drafts) != VB_OK) drafts = 0;
        if (drafts == 0 && !reserve(e, s, 1)) continue;
        plan[n++] = (step_seq){.slot = s, .row0 = rows, .known = 1, .drafts = drafts, .samples = true};
        rows += 1 + drafts;
    }
    /* Then prompts, oldest request first, under the row budget: each may have its part of what is left, so that a short one does not
     * wait for a long one. */
    int32_t budget = busy ? VB_PREFILL_ROWS_BUSY : e->max_rows;
    if (budget > e->max_rows - rows) budget = e->max_rows - rows;
    uint64_t after = 0;
    int32_t prompts = 0;
    for (int32_t i = 0; i < e->parallel; i++) prompts += e->slots[i].req != NULL && !decoding(e->slots[i].req);
    while (budget > 0) {
        vb__slot *s = NULL;
        for (int32_t i = 0; i < e->parallel; i++) {
            vb__req *r = e->slots[i].req;
            if (r == NULL || decoding(r) || r->serial < after) continue;
            if (s == NULL || r->serial < s->req->serial) s = &e->slots[i];
        }
        if (s == NULL) break;
        after = s->req->serial + 1;
        vb__req *r = s->req;
        int32_t known = r->n_tokens - r->fed, chunk = known;
        if (chunk > e->prefill_chunk) chunk = e->prefill_chunk;
        int32_t part = prompts > 1 ? budget / prompts : budget;
        if (part < VB_PREFILL_ROWS_LEAST) part = VB_PREFILL_ROWS_LEAST;
        if (part > budget) part = budget;
        if (chunk > part) chunk = part;
        prompts--;
        if (!reserve(e, s, chunk)) continue;
        if (s->req == NULL) continue;
        memcpy(e->row_tokens + rows, r->tokens + r->fed, (size_t)chunk * sizeof *r->tokens);
        plan[n++] = (step_seq){.slot = s, .row0 = rows, .known = chunk, .samples = chunk == known && r->p.max_tokens != 0};
        rows += chunk;
        budget -= chunk;
    }
    /* A request planned early may have given way to a later one. */
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (plan[i].slot->req != NULL) plan[kept++] = plan[i];
    vb__drafting_run(e, plan, kept);
    *n_rows = rows;
    return kept;
}

/* ---- Choices ------------------------------------------------------------------------------------------------------ */

static void report_logits(vb__req *r, const float *logits, int32_t vocab, int32_t position) {
    if (r->p.on_logits == NULL) return;
    double t0 = vb__now();
    vb_err code = r->p.on_logits(r->p.user, logits, vocab, position);
    r->stats.logits_s += vb__now() - t0;
    if (code != VB_OK && r->error == VB_OK) r->error = vb__fail(&r->message, code, "logits: could not be written");
}

/* Adds a chosen token; true when it ends the answer. */
static bool accept_token(vb__engine *e, vb__req *r, const vb__sample *c) {
    int32_t id = c->id;
    r->tokens[r->n_tokens++] = id;
    if (r->counting && vb__token_counts_push(&r->counts, id) != VB_OK) {
        r->error = vb__fail(&r->message, VB_E_INTERNAL, "penalties: no room for another token");
        return true;
    }
    if (vb__req_count(r) == 1) r->stats.first_token = vb__now();
    bool end = false;
    for (int32_t i = 0; i < e->n_eos && !r->p.ignore_eos; i++) end = end || e->eos[i] == id;
    vb__req_token t = {.id = id, .end = end, .text = "", .logprob = c->logprob, .top = c->top, .n_top = c->n_top};
    const char *stop = NULL;
    if (r->text != NULL && !end) {
        if (vb__text_out_push(r->text, id, &t.text, &t.text_len, &stop) != VB_OK) {
            r->error = vb__fail(&r->message, VB_E_MEMORY, "text: out of memory");
            return true;
        }
    }
    bool length = !end && stop == NULL &&
                  ((r->p.max_tokens >= 0 && vb__req_count(r) >= r->p.max_tokens) || r->n_tokens >= e->ctx);
    if (end || stop != NULL || length) {
        r->finish = end || stop != NULL ? VB_FINISH_STOP : VB_FINISH_LENGTH;
        r->stop = stop;
    }
    if (r->p.on_token != NULL) r->p.on_token(r->p.user, &t);
    if (r->unwanted) { /* here and not at the end of the step, so that drafts do not decide how much there is */
        r->finish = VB_FINISH_CANCELLED;
        r->stop = NULL;
    }
    return end || stop != NULL || length || r->unwanted;
}

/* Row `i` of a request's block, behind i accepted drafts, for the sampler; its logits are row `k`. False when it will not be sampled from. */
static bool ready_row(vb__engine *e, step_seq *s, int32_t i, const vb__row_logits *l, int32_t k, vb__sample_row *row) {
    const vb__req *r = s->slot->req;
    *row = vb__request_row(e, r, r->fed + s->known - 1 + i, r->p.top_logprobs);
    vb__row_logits_take(e, l, k, row);
    report_logits(s->slot->req, row->logits, e->model->cfg.vocab, (int32_t)row->position);
    s->over = r->error != VB_OK;
    return !s->over;
}

static void take_choice(vb__engine *e, step_seq *s, int32_t i, const vb__sample *c, const vb_error *why) {
    vb__req *r = s->slot->req;
    if (why->code != VB_OK) {
        r->error = why->code;
        r->message = *why;
        s->over = true;
        return;
    }
    s->keep = s->known + i;
    bool last = accept_token(e, r, c);
    if (r->error != VB_OK || last) {
        s->over = s->ended = true;
        return;
    }
    bool more = i < s->drafts && e->row_tokens[s->row0 + s->known + i] == c->id;
    if (more) s->accepted++;
    else s->over = true;
}

/* A row whose logits are wanted: row `row` of plan[seq]. Rows of one request lie together, in order. */
typedef struct wanted_row {
    int32_t seq, row;
} wanted_row;

/* Rows in rounds: the next one of every request, which waits for the choice at the one before it. */
static void sample(vb__engine *e, step_seq *plan, const wanted_row *todo, int32_t count, const vb__row_logits *l) {
    vb__sample_row rows[VB_LOGIT_ROWS];
    vb__sample made[VB_LOGIT_ROWS];
    vb_error why[VB_LOGIT_ROWS];
    int32_t of[VB_LOGIT_ROWS], vocab = e->model->cfg.vocab;
    bool done[VB_LOGIT_ROWS] = {false};
    for (int32_t left = count; left > 0;) {
        int32_t n = 0, seq = -1;
        for (int32_t k = 0; k < count; k++) {
            step_seq *s = &plan[todo[k].seq];
            if (done[k] || todo[k].seq == seq) continue;
            done[k] = true;
            left--;
            if (s->over) continue;
            int32_t behind = todo[k].row - (s->known - 1), position = s->slot->req->fed + todo[k].row;
            if (!s->samples || behind < 0) {
                if (position >= s->slot->req->logits_from && l->logits != NULL)
                    report_logits(s->slot->req, l->logits + (int64_t)k * vocab, vocab, position);
                continue;
            }
            seq = todo[k].seq;
            of[n] = k;
            n += ready_row(e, s, behind, l, k, &rows[n]);
        }
        vb__sample_rows(e, rows, n, made, why);
        for (int32_t i = 0; i < n; i++) {
            step_seq *s = &plan[todo[of[i]].seq];
            take_choice(e, s, todo[of[i]].row - (s->known - 1), &made[i], &why[i]);
        }
    }
}

/* Logits of the wanted rows, at most VB_LOGIT_ROWS at a time, each handed on in order. */
static vb_err choose(vb__engine *e, step_seq *plan, int32_t n, vb_error *err) {
    const vb__model *m = e->model;
    wanted_row todo[VB_LOGIT_ROWS];
    int32_t idx[VB_LOGIT_ROWS], count = 0;
    vb__row_logits logits = {0};
    int32_t i = 0, row = -1;
    for (;;) {
        /* The next wanted row; rows of a request that is over are left out. */
        bool more = false;
        while (i < n) {
            step_seq *s = &plan[i];
            vb__req *r = s->slot->req;
            int32_t first = r->p.all_logits ? 0 : s->samples ? s->known - 1 : s->known;
            if (row < first) row = first;
            int32_t end = s->samples ? s->known + s->drafts : r->p.all_logits ? s->known : 0;
            if (row < end && !s->over) {
                todo[count] = (wanted_row){i, row};
                idx[count++] = s->hidden0 + row - s->hidden_first;
                const vb__sample_row as = vb__request_row(e, r, 0, r->p.top_logprobs);
                vb__row_logits_want(&logits, &as);
                if (r->p.on_logits != NULL) logits.read = true;
                row++;
                more = true;
                break;
            }
            i++;
            row = -1;
        }
        if (count == VB_LOGIT_ROWS || (!more && count > 0)) {
            m->be->ops->gather_rows(m->be, e->logit_hidden, m->cfg.hidden, e->hidden, m->cfg.hidden, idx, count,
                                    m->cfg.hidden);
            VB_TRY(vb__row_logits_make(e, e->logit_hidden, count, &logits, err));
            sample(e, plan, todo, count, &logits);
            logits = (vb__row_logits){0};
            count = 0;
        }
        if (!more) return VB_OK;
    }
}

/* ---- The step ------------------------------------------------------------------------------------------------------ */

/* The rows to keep become part of the sequence. A request that fails here leaves its slot. */
static void settle(vb__engine *e, step_seq *s) {
    vb__slot *slot = s->slot;
    vb__req *r = slot->req;
    int32_t fed = r->fed, keep = s->samples && s->keep > s->known ? s->keep : s->known;
    s->keep = keep;
    vb_err code = vb__seq_commit(slot->seq, keep);
    if (code != VB_OK || r->error != VB_OK) {
        if (r->error == VB_OK) req_fail(e, r, code, "attention: a key or value is not finite");
        else req_fail(e, r, r->error, r->message.text);
        return;
    }
    memcpy(slot->tokens + fed, r->tokens + fed, (size_t)keep * sizeof *r->tokens);
    r->fed = fed + keep;
    if (r->p.all_logits && r->logits_from < r->fed) r->logits_from = r->fed;
    if (!s->samples && r->p.on_prefill != NULL) r->p.on_prefill(r->p.user, r->fed, r->n_prompt);
    /* Computed again after giving way, the pending token comes with others: a round without drafts. */
    if (s->samples && vb__req_count(r) > 1) {
        r->stats.rounds++;
        r->stats.proposed += s->drafts;
        r->stats.accepted += s->accepted;
        for (int32_t i = 0; i < s->drafts; i++) r->stats.proposed_at[i]++;
        for (int32_t i = 0; i < s->accepted; i++) r->stats.accepted_at[i]++;
        if (r->p.on_round != NULL) r->p.on_round(r->p.user, s->drafts, s->accepted);
        r->round++;
    }
    if (r->p.max_tokens == 0 && r->fed == r->n_prompt) {
        r->finish = VB_FINISH_LENGTH;
        s->ended = true;
    }
}

vb_err vb__engine_step(vb__engine *e, bool *worked, vb_error *err) {
    admit(e);
    int32_t rows = 0, total = 0, n_hidden = 0;
    double t0 = vb__now();
    step_seq *plan = e->plan;
    int32_t n = plan_step(e, plan, &total);
    *worked = n > 0;
    if (n == 0) return VB_OK;
    double t1 = vb__now();
    bool taps = false, all_hidden = vb__drafting_wants_hidden(e);
    for (int32_t i = 0; i < n; i++) {
        step_seq *s = &plan[i];
        vb__req *r = s->slot->req;
        int32_t want = s->known + s->drafts;
        e->fseqs[i] = (vb__forward_seq){s->slot->seq, want, s->known, e->row_tokens + s->row0};
        s->row0 = rows; /* rows of the call are dense even where a planned request dropped out */
        s->hidden0 = n_hidden;
        s->hidden_first = all_hidden || r->p.all_logits ? 0 : s->samples ? s->known - 1 : want;
        for (int32_t row = s->hidden_first; row < want; row++) e->hidden_rows[n_hidden++] = rows + row;
        rows += want;
    }
    vb__forward_args a = {.seqs = e->fseqs, .n_seqs = n, .hidden_rows = e->hidden_rows, .n_hidden = n_hidden,
                          .hidden = e->hidden};
    a.tap_layers = vb__drafting_taps(e, &a.n_taps);
    taps = a.n_taps > 0;
    if (taps) a.taps = e->taps;
    VB_TRY(vb__forward(e->model, e->ws, &a, err));
    /* row_tokens follow the dense rows from here on */
    for (int32_t i = 0; i < n; i++)
        if (e->fseqs[i].tokens != e->row_tokens + plan[i].row0)
            memmove(e->row_tokens + plan[i].row0, e->fseqs[i].tokens, (size_t)e->fseqs[i].rows * sizeof *e->row_tokens);
    VB_TRY(choose(e, plan, n, err));
    double t2 = vb__now();
    for (int32_t i = 0; i < n; i++) settle(e, &plan[i]);
    vb__drafting_commit(e, plan, n);
    double t3 = vb__now();
    int32_t tokens = 0;
    bool prompts = false;
    for (int32_t i = 0; i < n; i++) {
        vb__req *r = plan[i].slot->req;
        prompts = prompts || !plan[i].samples || plan[i].known != 1;
        tokens += plan[i].keep;
        if (r == NULL) continue;
        if (plan[i].samples && plan[i].known == 1) {
            r->stats.draft_s += (t1 - t0) / n;
            r->stats.verify_s += (t2 - t1) / n;
            r->stats.commit_s += (t3 - t2) / n;
        }
        if (plan[i].ended) req_done(e, r);
    }
    if (!prompts) vb__drafting_observe(e, n, rows, tokens, t1 - t0, t2 - t1);
    e->stats.steps++;
    e->stats.rows += rows;
    return VB_OK;
}
