/* The choice of drafter and width, and which of its drafts a block verifies: whatever was observed, choices stay within bounds;
 * what pays is chosen, what does not is left. */
#include "engine/draft_policy.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

static uint64_t g_seed = 7;
static double uniform(void) {
    g_seed = g_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (double)(g_seed >> 40) * 0x1p-24;
}
static int32_t below(int32_t n) { return (int32_t)(uniform() * n); }

/* A step of r rows takes 1 + slope * (r - 1) milliseconds, as often seen as it takes to be believed. */
static vb__draft_costs costs(double slope) {
    vb__draft_costs c = {0};
    for (int32_t r = 1; r < VB_DRAFT_ROWS; r++)
        for (int i = 0; i < 8; i++) vb__costs_observe_step(&c, r, 1e-3 * (1 + slope * (r - 1)));
    return c;
}

static void sure_drafts_are_verified_and_others_are_not(void **state) {
    (void)state;
    vb__draft_sureness s;
    vb__sureness_init(&s);
    const float sure[] = {9, 9, 9, 9, 9}, doubt[] = {9, 9, 0.1f, 9, 9}, never[] = {0, 9, 9, 9, 9};
    vb__draft_costs cheap = costs(0.05), dear = costs(0.5), free_rows = costs(0);
    assert_int_equal(vb__policy_trim(&cheap, &s, VB_DRAFT_DFLASH, sure, 5), 6);
    assert_int_equal(vb__policy_trim(&dear, &s, VB_DRAFT_DFLASH, sure, 5), 6);
    assert_int_equal(vb__policy_trim(&dear, &s, VB_DRAFT_DFLASH, doubt, 5), 3);
    assert_int_equal(vb__policy_trim(&dear, &s, VB_DRAFT_DFLASH, never, 5), 1);
    assert_int_equal(vb__policy_trim(&free_rows, &s, VB_DRAFT_DFLASH, never, 5), 6);
    assert_int_equal(vb__policy_trim(&dear, &s, VB_DRAFT_DFLASH, never, 0), 1);
    const float nan_margin[] = {NAN, INFINITY};
    assert_int_equal(vb__policy_trim(&dear, &s, VB_DRAFT_DFLASH, nan_margin, 2), 1);
    /* Where tokens come fast, a row must be surer to be worth its time. */
    vb__draft_costs fast = costs(0.25);
    const float fair[] = {3.5f, 3.5f};
    assert_int_equal(vb__policy_trim(&fast, &s, VB_DRAFT_MTP, fair, 2), 3);
    for (int i = 0; i < 200; i++) vb__costs_observe_rate(&fast, 7, 2e-3);
    assert_int_equal(vb__policy_trim(&fast, &s, VB_DRAFT_MTP, fair, 2), 1);
}

static void what_is_seen_of_a_margin_counts(void **state) {
    (void)state;
    vb__draft_sureness s;
    vb__sureness_init(&s);
    const float m[] = {9, 0.1f, 5};
    float other = vb__sureness_chance(&s, VB_DRAFT_MTP, 0, 5);
    for (int i = 0; i < 100; i++) vb__sureness_observe(&s, VB_DRAFT_MTP, m, 3, 3, 1);
    assert_true(vb__sureness_chance(&s, VB_DRAFT_MTP, 0, 20) > 0.99f);
    assert_true(vb__sureness_chance(&s, VB_DRAFT_MTP, 1, 0.2f) < 0.01f);
    assert_true(vb__sureness_chance(&s, VB_DRAFT_MTP, 2, 5) == other);    /* never reached */
    assert_true(vb__sureness_chance(&s, VB_DRAFT_DFLASH, 1, 0.2f) > 0.2f); /* another drafter's */
    float low = vb__sureness_chance(&s, VB_DRAFT_MTP, 1, 0.2f);
    for (int i = 0; i < 1000; i++) vb__sureness_observe(&s, VB_DRAFT_MTP, m, 3, 1, 1); /* not verified any more */
    assert_true(vb__sureness_chance(&s, VB_DRAFT_MTP, 1, 0.2f) > low + 0.2f);
    /* Places behind the third are one class. */
    assert_true(vb__sureness_chance(&s, VB_DRAFT_MTP, 3, 5) == vb__sureness_chance(&s, VB_DRAFT_MTP, 14, 5));
}

static void one_draft_after_the_other_stops_in_time(void **state) {
    (void)state;
    vb__draft_sureness s;
    vb__draft_beliefs b;
    vb__sureness_init(&s);
    vb__beliefs_init(&b);
    const float sure[16] = {9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9}, doubt[] = {0.2f};
    vb__draft_costs c = costs(0.05);
    for (int32_t r = 2; r < VB_DRAFT_ROWS; r++) vb__costs_observe_draft(&c, VB_DRAFT_MTP, r, 0.1e-3 * (r - 1));
    assert_true(vb__policy_go_on(&c, &s, &b.kind[VB_DRAFT_MTP], VB_DRAFT_MTP, sure, 1));
    c = costs(0.4);
    for (int32_t r = 2; r < VB_DRAFT_ROWS; r++) vb__costs_observe_draft(&c, VB_DRAFT_MTP, r, 0.1e-3 * (r - 1));
    assert_false(vb__policy_go_on(&c, &s, &b.kind[VB_DRAFT_MTP], VB_DRAFT_MTP, doubt, 1));
    for (int32_t r = 2; r < VB_DRAFT_ROWS; r++) /* drafts as dear as steps never pay twice */
        for (int i = 0; i < 40; i++) vb__costs_observe_draft(&c, VB_DRAFT_MTP, r, 1e-3 * (r - 1));
    assert_false(vb__policy_go_on(&c, &s, &b.kind[VB_DRAFT_MTP], VB_DRAFT_MTP, sure, 1));
    assert_false(vb__policy_go_on(&c, &s, &b.kind[VB_DRAFT_MTP], VB_DRAFT_MTP, sure, VB_DRAFT_ROWS - 2));
}

static void a_slow_first_time_is_forgotten(void **state) {
    (void)state;
    vb__draft_costs c = costs(0.1);
    vb__draft_costs once = {0};
    vb__costs_observe_step(&once, 1, 1e-3);
    vb__costs_observe_step(&once, 16, 90e-3); /* pages touched first */
    vb__costs_observe_step(&once, 16, 2.5e-3);
    vb__draft_beliefs b;
    vb__beliefs_init(&b);
    for (int i = 0; i < 30; i++) vb__acceptance_observe_copy(&b.lookup[3], 15, 15);
    vb__draft_choice choice = vb__policy_choose(&once, &b, 1u << VB_DRAFT_LOOKUP, 16, 16);
    assert_true(choice.kind == VB_DRAFT_LOOKUP && choice.width == 16);
    for (int i = 0; i < 60; i++) vb__costs_observe_step(&c, 16, 90e-3); /* really slow */
    choice = vb__policy_choose(&c, &b, 1u << VB_DRAFT_LOOKUP, 16, 16);
    assert_true(choice.width < 16);
}

static void copies_are_as_good_far_behind_the_match(void **state) {
    (void)state;
    vb__draft_beliefs b;
    vb__beliefs_init(&b);
    for (int i = 0; i < 60; i++) vb__acceptance_observe_copy(&b.lookup[3], 3, 3);
    assert_true(b.lookup[3].rate[15] > 0.95f);
    vb__acceptance before = b.lookup[3];
    vb__acceptance_observe_copy(&b.lookup[3], 3, 1);
    assert_true(b.lookup[3].rate[15] <= before.rate[15] && b.lookup[3].rate[2] < before.rate[2]);
}

static void blocks_between_seen_widths_lie_on_the_line(void **state) {
    (void)state;
    vb__draft_costs c = costs(0.1);
    vb__draft_beliefs b;
    vb__beliefs_init(&b);
    double rate;
    for (int i = 0; i < 30; i++) vb__acceptance_observe(&b.kind[VB_DRAFT_DFLASH], 15, 15);
    vb__costs_observe_draft(&c, VB_DRAFT_DFLASH, 4, 0.1e-3);
    vb__costs_observe_draft(&c, VB_DRAFT_DFLASH, 16, 40e-3); /* from here on nothing pays */
    int32_t w = vb__policy_width(&c, &b.kind[VB_DRAFT_DFLASH], VB_DRAFT_DFLASH, 16, &rate);
    assert_true(w >= 2 && w <= 5);
}

/* Nothing that machines can measure leads out of bounds. */
static void bounds_hold_for_anything_observed(void **state) {
    (void)state;
    for (int round = 0; round < 3000; round++) {
        vb__draft_costs c = {0};
        vb__draft_beliefs b;
        vb__draft_sureness s;
        vb__beliefs_init(&b);
        vb__sureness_init(&s);
        float margins[16];
        for (int i = 0; i < 40; i++) {
            double seconds = below(5) ? pow(10, -6 + 6 * uniform()) : 0;
            int32_t kind = 1 + below(4), rows = 1 + below(16), drafts = below(16), accepted = below(drafts + 1);
            vb__costs_observe_step(&c, rows, seconds);
            vb__costs_observe_draft(&c, kind, rows, seconds);
            vb__costs_observe_rate(&c, 1 + accepted, seconds);
            for (int k = 0; k < 16; k++) margins[k] = below(8) ? (float)(uniform() * 12) : below(2) ? INFINITY : NAN;
            vb__acceptance_observe(&b.kind[kind], drafts, accepted);
            vb__acceptance_observe_copy(&b.lookup[below(4)], drafts, accepted);
            vb__acceptance_guess(&b.kind[kind], drafts, (float)uniform());
            vb__sureness_observe(&s, kind, margins, 15, drafts, accepted);
            c.total += seconds;
            int32_t max = 1 + below(16), made = below(16);
            vb__draft_choice choice = vb__policy_choose(&c, &b, (uint32_t)below(32), below(17), max);
            assert_true(choice.width >= 1 && choice.width <= max && choice.kind >= 0 && choice.kind < VB_DRAFT_KINDS);
            assert_true((choice.kind == VB_DRAFT_NONE) == (choice.width == 1));
            int32_t keep = vb__policy_trim(&c, &s, kind, margins, made);
            assert_true(keep >= 1 && keep <= made + 1);
            if (made > 0 && vb__policy_go_on(&c, &s, &b.kind[kind], kind, margins, made)) assert_true(made + 2 < VB_DRAFT_ROWS);
            for (int k = 1; k < VB_DRAFT_ROWS; k++) assert_true(b.kind[kind].rate[k] >= 0 && b.kind[kind].rate[k] <= 1);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sure_drafts_are_verified_and_others_are_not),
        cmocka_unit_test(what_is_seen_of_a_margin_counts),
        cmocka_unit_test(one_draft_after_the_other_stops_in_time),
        cmocka_unit_test(a_slow_first_time_is_forgotten),
        cmocka_unit_test(copies_are_as_good_far_behind_the_match),
        cmocka_unit_test(blocks_between_seen_widths_lie_on_the_line),
        cmocka_unit_test(bounds_hold_for_anything_observed),
    };
    return cmocka_run_group_tests_name("draft_policy", tests, NULL, NULL);
}
