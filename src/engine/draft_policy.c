#include "engine/draft_policy.h"

/* Before anything is seen. A block costs a little more per row than one row; drafters accept as the families' own
 * papers say, roughly. A prior weighs as much as a few observations. */
static const float prior_rate[VB_DRAFT_KINDS] = {0, 0.5f, 0.8f, 0.7f, 0.7f};
static const float prior_lookup[4] = {0.35f, 0.5f, 0.7f, 0.85f};
static const double prior_draft[VB_DRAFT_KINDS] = {0, 0, 0.25, 0.5, 0.3}; /* of a one-row step: per draft (MTP, model), per block (DFlash) */
enum { PRIOR_WEIGHT = 3, WEIGHT_START = 6, WEIGHT_MAX = 24 };
/* Of rows behind the first wrong draft, and that draft's own, how many are verified all the same: margins tell well, not exactly. */
static const double missed_share = 0.4;
static const double block_share = 0.3; /* what a row costs DFlash, of what it costs the model */
static const double row_prior = 0.05;  /* extra cost of a row */
static const double explore_share = 0.015;
/* Chance of a draft by its margin, before anything is seen; up to these margins. */
static const float margin_end[VB_MARGIN_CLASSES] = {0.5f, 1, 1.5f, 2, 3, 4, 6, 8, __builtin_inff()};
static const float prior_chance[VB_MARGIN_CLASSES] = {0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f, 0.9f, 0.95f, 0.97f};
enum { SURENESS_MAX = 48 };
static const float forgetting = 0.01f; /* of what was seen of a class that is no longer tried */
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

void vb__acceptance_observe_copy(vb__acceptance *a, int32_t drafts, int32_t accepted) {
    vb__acceptance_observe(a, drafts, accepted);
    if (drafts < 1 || accepted < drafts) return;
    for (int32_t i = drafts + 1; i < VB_DRAFT_ROWS; i++)
        if (a->rate[i] < a->rate[drafts]) a->rate[i] += (a->rate[drafts] - a->rate[i]) * 0.1f;
}

void vb__acceptance_guess(vb__acceptance *a, int32_t drafts, float chance) {
    int32_t i = drafts + 1;
    if (i >= VB_DRAFT_ROWS) return;
    float w = a->weight[i] < WEIGHT_MAX ? a->weight[i] + 1 : WEIGHT_MAX;
    a->weight[i] = w;
    a->rate[i] += (chance - a->rate[i]) / w;
}

/* ---- How sure a drafter is --------------------------------------------------------------------------------------------- */

void vb__sureness_init(vb__draft_sureness *s) {
    for (int32_t k = 0; k < VB_DRAFT_KINDS; k++)
        for (int32_t p = 0; p < VB_DRAFT_PLACES; p++)
            for (int32_t c = 0; c < VB_MARGIN_CLASSES; c++) {
                s->rate[k][p][c] = prior_chance[c];
                s->weight[k][p][c] = PRIOR_WEIGHT;
            }
}

static int32_t place_of(int32_t i) { return i < VB_DRAFT_PLACES ? i : VB_DRAFT_PLACES - 1; }

static int32_t margin_class(float margin) {
    int32_t c = 0;
    while (c < VB_MARGIN_CLASSES - 1 && margin >= margin_end[c]) c++;
    return c;
}

float vb__sureness_chance(const vb__draft_sureness *s, int32_t kind, int32_t i, float margin) {
    return s->rate[kind][place_of(i)][margin_class(margin)];
}

void vb__sureness_observe(vb__draft_sureness *s, int32_t kind, const float *margins, int32_t made, int32_t drafts, int32_t accepted) {
    for (int32_t i = 0; i < drafts && i <= accepted; i++) {
        int32_t p = place_of(i), c = margin_class(margins[i]);
        float *w = &s->weight[kind][p][c], *rate = &s->rate[kind][p][c];
        if (*w < SURENESS_MAX) *w += 1;
        *rate += ((i < accepted ? 1.0f : 0.0f) - *rate) / *w;
    }
    if (drafts >= made || accepted < drafts) return;
    /* What is never verified would be thought bad for ever: slowly the prior comes back. */
    int32_t p = place_of(drafts), c = margin_class(margins[drafts]);
    s->rate[kind][p][c] += (prior_chance[c] - s->rate[kind][p][c]) * forgetting;
}

/* ---- Costs --------------------------------------------------------------------------------------------------------------- */

/* The first few times are often slow (memory touched first, caches), and a width that looks slow is not tried again: of these the
 * least counts. */
static void average(double *mean, uint8_t *seen, double x) {
    enum { FEW = 4 };
    if (*seen < FEW) {
        *mean = *seen == 0 || x < *mean ? x : *mean;
        (*seen)++;
    } else *mean += (x - *mean) * 0.15;
}

void vb__costs_observe_step(vb__draft_costs *c, int32_t rows, double seconds) {
    if (rows >= 1 && rows < VB_DRAFT_ROWS) average(&c->step[rows], &c->step_seen[rows], seconds);
}

void vb__costs_observe_rate(vb__draft_costs *c, int32_t tokens, double seconds) {
    /* Slowly: what a row is worth does not change with every round. */
    c->tokens = c->seconds == 0 ? tokens : c->tokens + (tokens - c->tokens) * 0.04;
    c->seconds = c->seconds == 0 ? seconds : c->seconds + (seconds - c->seconds) * 0.04;
}

void vb__costs_observe_draft(vb__draft_costs *c, int32_t kind, int32_t rows, double seconds) {
    if (rows >= 1 && rows < VB_DRAFT_ROWS) average(&c->draft[kind][rows], &c->draft_seen[kind][rows], seconds);
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
    /* A block between two widths seen: on the line. Else from the nearest width seen: proportional to the drafts for recursive
     * drafters; a block's rows cost a part of what the model's do. */
    int32_t lo = rows - 1, hi = rows + 1;
    while (lo >= 2 && c->draft[kind][lo] <= 0) lo--;
    while (hi < VB_DRAFT_ROWS && c->draft[kind][hi] <= 0) hi++;
    if (kind == VB_DRAFT_DFLASH && lo >= 2 && hi < VB_DRAFT_ROWS)
        return c->draft[kind][lo] + (c->draft[kind][hi] - c->draft[kind][lo]) * (rows - lo) / (hi - lo);
    for (int32_t d = 1; d < VB_DRAFT_ROWS; d++)
        for (int32_t s = -1; s <= 1; s += 2) {
            int32_t i = rows + s * d;
            if (i < 2 || i >= VB_DRAFT_ROWS || c->draft[kind][i] <= 0) continue;
            if (kind != VB_DRAFT_DFLASH) return c->draft[kind][i] * (rows - 1) / (i - 1);
            double cost = c->draft[kind][i] + block_share * (step_cost(c, rows) - step_cost(c, i));
            return cost > 0 ? cost : 0;
        }
    double one = step_cost(c, 1) * prior_draft[kind];
    return kind == VB_DRAFT_DFLASH ? one : one * (rows - 1);
}

/* Tokens a second as of late. */
static double token_rate(const vb__draft_costs *c) { return c->seconds > 0 ? c->tokens / c->seconds : 1.0 / step_cost(c, 1); }

/* What row `rows` of a block adds to it; over a few rows, since single measurements are noisy. */
static double row_cost(const vb__draft_costs *c, int32_t rows) {
    int32_t lo = rows > 3 ? rows - 2 : 1, hi = rows + 2 < VB_DRAFT_ROWS ? rows + 2 : VB_DRAFT_ROWS - 1;
    double cost = (step_cost(c, hi) - step_cost(c, lo)) / (hi - lo);
    return cost > 0 ? cost : 0;
}

int32_t vb__policy_trim(const vb__draft_costs *c, const vb__draft_sureness *s, int32_t kind, const float *margins, int32_t drafts) {
    double chance = 1, rate = token_rate(c);
    int32_t rows = 1;
    for (; rows <= drafts && rows < VB_DRAFT_ROWS - 1; rows++) {
        chance *= vb__sureness_chance(s, kind, rows - 1, margins[rows - 1]);
        if (chance < rate * row_cost(c, rows + 1)) break;
    }
    return rows;
}

bool vb__policy_go_on(const vb__draft_costs *c, const vb__draft_sureness *s, const vb__acceptance *a, int32_t kind, const float *margins,
                      int32_t drafts) {
    if (vb__policy_trim(c, s, kind, margins, drafts) <= drafts || drafts + 2 >= VB_DRAFT_ROWS) return false;
    double chance = a->rate[drafts + 1];
    for (int32_t i = 0; i < drafts; i++) chance *= vb__sureness_chance(s, kind, i, margins[i]);
    double one = draft_cost(c, kind, drafts + 2) - draft_cost(c, kind, drafts + 1);
    return chance > token_rate(c) * (row_cost(c, drafts + 2) + (one > 0 ? one : 0));
}

int32_t vb__policy_width(const vb__draft_costs *c, const vb__acceptance *a, int32_t kind, int32_t max_width, double *best) {
    double expected = 1, chance = 1, verified = 1;
    int32_t width = 1;
    *best = 1.0 / step_cost(c, 1);
    double top = 0, step = step_cost(c, 1), drafting = 0;
    for (int32_t w = 2; w <= max_width && w < VB_DRAFT_ROWS; w++) {
        /* MTP and a draft model stop where they are no longer sure. */
        double one = draft_cost(c, kind, w) - draft_cost(c, kind, w - 1);
        drafting += kind == VB_DRAFT_DFLASH ? one : one * verified;
        chance *= a->rate[w - 1];
        expected += chance;
        verified = kind == VB_DRAFT_LOOKUP ? 1 : chance + missed_share * (verified - chance);
        step += (step_cost(c, w) - step_cost(c, w - 1)) * verified;
        double rate = expected / (step + drafting);
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
