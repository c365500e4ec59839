#include "engine/draft_policy.h"

/* Before anything is seen. A block costs a little more per row than one row; drafters accept as the families' own
 * papers say, roughly. A prior weighs as much as a few observations. */
static const float prior_rate[VB_DRAFT_KINDS] = {0, 0.5f, 0.8f, 0.7f, 0.7f};
static const float prior_lookup[4] = {0.35f, 0.5f, 0.7f, 0.85f};
static const double prior_draft[VB_DRAFT_KINDS] = {0, 0, 0.25, 0.5, 0.3}; /* of a one-row step: per draft (MTP, model), per block (DFlash) */
enum { PRIOR_WEIGHT = 3, WEIGHT_START = 6, WEIGHT_MAX = 24 };
static const double row_prior = 0.05;  /* extra cost of a row */
static const double explore_share = 0.015;
enum { TRY_AGAIN = 16 }; /* rounds before a drafter that looked bad is tried again */

void vb__beliefs_init(vb__draft_beliefs *b) {
    *b = (vb__draft_beliefs){0};
    for (int32_t i = 0; i < VB_DRAFT_ROWS; i++) {
        for (int32_t k = 0; k < VB_DRAFT_KINDS; k++) {
            b->kind[k].rate[i] = prior_rate[k];
            b->kind[k].weight[i] = PRIOR_WEIGHT;
        }
        for (int32_t k = 0; k < 4; k++) {
            b->lookup[k].rate[i] = prior_lookup[k];
            b->lookup[k].weight[i] = PRIOR_WEIGHT;
        }
    }
}

static void soften(vb__acceptance *a) {
    for (int32_t i = 0; i < VB_DRAFT_ROWS; i++)
        if (a->weight[i] > WEIGHT_START) a->weight[i] = WEIGHT_START;
}

void vb__beliefs_soften(vb__draft_beliefs *b) {
    for (int32_t k = 0; k < VB_DRAFT_KINDS; k++) soften(&b->kind[k]);
    for (int32_t k = 0; k < 4; k++) soften(&b->lookup[k]);
}

void vb__acceptance_observe(vb__acceptance *a, int32_t drafts, int32_t accepted) {
    for (int32_t i = 1; i <= drafts && i <= accepted + 1; i++) {
        float w = a->weight[i] < WEIGHT_MAX ? a->weight[i] + 1 : WEIGHT_MAX;
        a->weight[i] = w;
        a->rate[i] += ((i <= accepted ? 1.0f : 0.0f) - a->rate[i]) / w;
    }
    /* Positions not reached follow the last one reached, slowly: a block that fails early says something about them. */
    int32_t last = accepted + 1 <= drafts ? accepted + 1 : drafts;
    for (int32_t i = last + 1; i < VB_DRAFT_ROWS && last >= 1; i++)
        if (a->weight[i] <= PRIOR_WEIGHT) a->rate[i] += (a->rate[last] - a->rate[i]) * 0.1f;
}

static void average(double *mean, double x) { *mean = *mean == 0 ? x : *mean + (x - *mean) * 0.15; }

void vb__costs_observe_step(vb__draft_costs *c, int32_t rows, double seconds) {
    if (rows >= 1 && rows < VB_DRAFT_ROWS) average(&c->step[rows], seconds);
}

void vb__costs_observe_draft(vb__draft_costs *c, int32_t kind, int32_t rows, double seconds) {
    if (rows >= 1 && rows < VB_DRAFT_ROWS) average(&c->draft[kind][rows], seconds);
}

/* Between what was seen the cost is a line; beyond it, a line with the prior's slope. Never less than for fewer rows. */
static double step_cost(const vb__draft_costs *c, int32_t rows) {
    int32_t lo = 0, hi = 0;
    for (int32_t i = 1; i <= rows; i++)
        if (c->step[i] > 0) lo = i;
    for (int32_t i = VB_DRAFT_ROWS - 1; i >= rows; i--)
        if (c->step[i] > 0) hi = i;
    if (lo == 0 && hi == 0) return 1.0 + row_prior * (rows - 1);
    double base = c->step[1] > 0 ? c->step[1] : lo != 0 ? c->step[lo] : c->step[hi];
    if (lo == 0) return c->step[hi] - base * row_prior * (hi - rows) * 0.5;
    if (hi == 0) return c->step[lo] + base * row_prior * (rows - lo);
    if (hi == lo) return c->step[lo];
    return c->step[lo] + (c->step[hi] - c->step[lo]) * (rows - lo) / (hi - lo);
}

static double draft_cost(const vb__draft_costs *c, int32_t kind, int32_t rows) {
    if (kind == VB_DRAFT_LOOKUP || rows <= 1) return 0;
    if (c->draft[kind][rows] > 0) return c->draft[kind][rows];
    /* From the nearest width seen: proportional to the drafts for recursive drafters, flat for a block. */
    for (int32_t d = 1; d < VB_DRAFT_ROWS; d++)
        for (int32_t s = -1; s <= 1; s += 2) {
            int32_t i = rows + s * d;
            if (i < 2 || i >= VB_DRAFT_ROWS || c->draft[kind][i] <= 0) continue;
            return kind == VB_DRAFT_DFLASH ? c->draft[kind][i] : c->draft[kind][i] * (rows - 1) / (i - 1);
        }
    double one = step_cost(c, 1) * prior_draft[kind];
    return kind == VB_DRAFT_DFLASH ? one : one * (rows - 1);
}

int32_t vb__policy_width(const vb__draft_costs *c, const vb__acceptance *a, int32_t kind, int32_t max_width, double *best) {
    double expected = 1, chance = 1;
    int32_t width = 1;
    *best = 1.0 / step_cost(c, 1);
    double top = 0;
    for (int32_t w = 2; w <= max_width && w < VB_DRAFT_ROWS; w++) {
        chance *= a->rate[w - 1];
        expected += chance;
        double rate = expected / (step_cost(c, w) + draft_cost(c, kind, w));
        if (rate > top) {
            top = rate;
            width = w;
        }
    }
    if (width > 1) *best = top;
    return width;
}

vb__draft_choice vb__policy_choose(vb__draft_costs *c, vb__draft_beliefs *b, uint32_t kinds, int32_t match,
                                   int32_t max_width) {
    double plain = 1.0 / step_cost(c, 1), best = plain;
    vb__draft_choice choice = {VB_DRAFT_NONE, 1, false};
    int32_t widths[VB_DRAFT_KINDS] = {0};
    double rates[VB_DRAFT_KINDS] = {0};
    for (int32_t k = 1; k < VB_DRAFT_KINDS; k++) {
        b->rounds_since_try[k]++;
        if ((kinds >> k & 1) == 0 || max_width < 2) continue;
        const vb__acceptance *a = k == VB_DRAFT_LOOKUP ? &b->lookup[vb__lookup_class(match)] : &b->kind[k];
        widths[k] = vb__policy_width(c, a, k, max_width, &rates[k]);
        if (widths[k] > 1 && rates[k] > best * (best == plain ? 1.02 : 1.0)) {
            best = rates[k];
            choice = (vb__draft_choice){k, widths[k], false};
        }
    }
    /* A drafter not tried for long is tried with a small block while exploration has cost little. */
    for (int32_t k = 1; k < VB_DRAFT_KINDS; k++) {
        if ((kinds >> k & 1) == 0 || k == choice.kind || b->rounds_since_try[k] < TRY_AGAIN || max_width < 2) continue;
        int32_t w = widths[k] > 1 && widths[k] < 4 ? widths[k] : max_width < 4 ? max_width : 4;
        double loss = step_cost(c, w) + draft_cost(c, k, w) - 1.0 / best;
        if (c->explored + loss > explore_share * c->total) continue;
        c->explored += loss > 0 ? loss : 0;
        choice = (vb__draft_choice){k, w, true};
        break;
    }
    b->rounds_since_try[choice.kind] = 0;
    return choice;
}
