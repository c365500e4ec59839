/* Drafting cannot change the text: every drafter at every width gives the logits hash of plain decode, greedy and at a
 * temperature; state after blocks of every accept length is the stepped state; the gate passes every width here and declines one
 * when a fault is planted. */
#include "base/clock.h"
#include "base/fault.h"
#include "engine/drafting.h"
#include "engine/gate.h"
#include "engine/model_handle.h"
#include "golden_util.h"

enum { TOKENS = 48 };

static const char *const kinds[] = {"lookup", "mtp", "dflash", "auto"};

/* Prompts of the embedded model as ids: chats that count, list and repeat themselves, and random ones. */
typedef struct prompt {
    int32_t n, ids[64];
} prompt;
static const prompt prompts[] = {
    {14, {16375, 370, 198, 3, 5, 6, 100, 700, 11, 1200, 11, 2056, 11, 1385}},
    {20, {323, 220, 16, 15, 15, 16376, 198, 16374, 16375, 370, 323, 220, 16, 15, 15, 16376, 198, 16374, 16375, 370}},
    {7, {5000, 17, 9000, 250, 3000, 77, 12}},
};
enum { PROMPTS = sizeof prompts / sizeof prompts[0] };

static vb_model *open_model(const char *draft, int32_t width) {
    vb_model_options o = golden_options(draft, 512);
    o.draft_width = width;
    return golden_load(&o);
}

static const vb_result *predicted; /* what coming requests say that their answers will begin with */
static int32_t n_predicted;

static void generate(vb_model *m, const prompt *p, float temperature, uint64_t seed, vb_result *r) {
    vb_request q = golden_request(p->ids, p->n, TOKENS, temperature, seed);
    if (predicted != NULL) {
        q.prediction = predicted->ids;
        q.n_prediction = n_predicted;
    }
    vb__engine_clear(m->engine);
    golden_generate(m, &q, r);
}

static void gate_passes_all(vb_model *m) {
    for (int32_t w = 2; w <= VB_LIMIT_DRAFT_WIDTH; w++) golden_gate_passes(m, w, true);
}

static void every_drafter_and_width(void **state) {
    (void)state;
    char want[PROMPTS][2][65];
    vb_model *plain = open_model("none", 0);
    for (int32_t i = 0; i < PROMPTS; i++)
        for (int t = 0; t < 2; t++) {
            vb_result r;
            generate(plain, &prompts[i], t == 0 ? 0.0f : 0.8f, 11, &r);
            memcpy(want[i][t], r.logits_sha256, 65);
            vb_result_fini(&r);
        }
    vb_model_close(plain);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        vb_model *m = open_model(kinds[k], 16);
        gate_passes_all(m);
        int64_t accepted = 0, proposed = 0;
        for (int32_t w = 1; w <= 16; w++) {
            vb__drafting_set_width(m->engine, w);
            for (int32_t i = 0; i < PROMPTS; i++)
                for (int t = 0; t < 2; t++) {
                    vb_result r;
                    generate(m, &prompts[i], t == 0 ? 0.0f : 0.8f, 11, &r);
                    if (strcmp(r.logits_sha256, want[i][t]) != 0)
                        fail_msg("%s width %d prompt %d temperature %d: another text", kinds[k], w, i, t);
                    assert_int_equal(r.n_declined, 0);
                    accepted += r.accepted;
                    proposed += r.proposed;
                    vb_result_fini(&r);
                }
        }
        printf("%s: %lld of %lld drafts accepted\n", kinds[k], (long long)accepted, (long long)proposed);
        assert_true(accepted > 0);
        vb_model_close(m);
    }
}

/* Blocks of w rows with every accept length against one-row steps: everything the next step can read. */
static void rollback_at_every_accept_length(void **state) {
    (void)state;
    vb_model *m = open_model("none", 0), *with_tape = open_model("lookup", 16);
    vb__engine *e = with_tape->engine;
    vb_model_close(m);
    vb__seq *a, *b;
    vb_error err;
    assert_int_equal(vb__seq_create(e->model, e->pages, 256, 128, 16, &a, &err), VB_OK);
    assert_int_equal(vb__seq_create(e->model, e->pages, 256, 128, 16, &b, &err), VB_OK);
    int32_t ids[160];
    for (int32_t i = 0; i < 160; i++) ids[i] = (i * 7919 + 13) % 16000;
    for (int32_t w = 1; w <= 16; w++)
        for (int32_t accept = 0; accept < w; accept++) {
            vb__seq *const both[2] = {a, b};
            uint8_t hash[2][16];
            for (int k = 0; k < 2; k++) {
                vb__seq *s = both[k];
                vb__seq_reset(s);
                int32_t n = 50 + w; /* crosses a page boundary for large w */
                assert_int_equal(vb__seq_reserve(s, n + 40), VB_OK);
                vb__forward_seq fs = {s, n, n, ids};
                vb__forward_args fa = {.seqs = &fs, .n_seqs = 1};
                assert_int_equal(vb__forward(e->model, e->ws, &fa, &err), VB_OK);
                assert_int_equal(vb__seq_commit(s, n), VB_OK);
                if (k == 0) {
                    for (int32_t i = 0; i <= accept; i++) {
                        fs = (vb__forward_seq){s, 1, 1, ids + n + i};
                        assert_int_equal(vb__forward(e->model, e->ws, &fa, &err), VB_OK);
                        assert_int_equal(vb__seq_commit(s, 1), VB_OK);
                    }
                } else { /* a block whose rows behind the accepted ones are wrong */
                    int32_t block[16];
                    for (int32_t i = 0; i < w; i++) block[i] = ids[n + i] + (i > accept ? 1 : 0);
                    fs = (vb__forward_seq){s, w, 1, block};
                    assert_int_equal(vb__forward(e->model, e->ws, &fa, &err), VB_OK);
                    assert_int_equal(vb__seq_commit(s, accept + 1), VB_OK);
                }
                /* One more row: it reads the state through the tape. */
                fs = (vb__forward_seq){s, 1, 1, ids + n + accept + 1};
                assert_int_equal(vb__forward(e->model, e->ws, &fa, &err), VB_OK);
                assert_int_equal(vb__seq_commit(s, 1), VB_OK);
                vb__seq_hash(s, hash[k]);
            }
            if (memcmp(hash[0], hash[1], 16) != 0) fail_msg("width %d accept %d: state differs", w, accept);
        }
    vb__seq_destroy(a);
    vb__seq_destroy(b);
    vb_model_close(with_tape);
}

static void gate_catches_planted_faults(void **state) {
    (void)state;
    static const vb__fault faults[] = {VB_FAULT_LINEAR_ROWS, VB_FAULT_ATTENTION_ROWS, VB_FAULT_ROPE_ROWS,
                                       VB_FAULT_STATE_COMMIT, VB_FAULT_KV_TRUNCATE};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        vb__fault_set(faults[i]);
        vb_model *m = open_model("mtp", 8);
        vb__gate_state s;
        vb_error err;
        assert_int_equal(vb__gate_check(vb__drafting_gate(m->engine), 8, true, &s, &err), VB_OK);
        printf("%s: %s\n", vb__fault_name(faults[i]), vb__gate_difference(vb__drafting_gate(m->engine)));
        vb_model_close(m);
        vb__fault_set(VB_FAULT_NONE);
        if (s != VB_GATE_DECLINED) fail_msg("%s was not caught", vb__fault_name(faults[i]));
    }
}

static const char *home; /* whose memo fills; tests of how the gate works begin without one */

static void home_again(void) { assert_int_equal(setenv("VERBATIM_HOME", home, 1), 0); }

/* On a slow machine the first budget is soon spent; then the check goes on in its share of the time, and keeps what it has. */
static void gate_goes_on_where_it_stopped(void **state) {
    (void)state;
    (void)golden_fresh_home();
    vb_model *m = open_model("mtp", 8);
    vb__gate *g = vb__drafting_gate(m->engine);
    vb__gate_budget(g, 0, 0.2);
    double t0 = vb__now();
    assert_int_equal(vb__gate_width(g, 8), 1); /* one piece of work */
    int32_t calls = 1;
    while (vb__gate_width(g, 8) != 8) {
        if (vb__now() - t0 > 10) fail_msg("no answer after %d calls", calls);
        calls++;
    }
    printf("width 8 after %d calls, %.2f s\n", calls, vb__now() - t0);
    assert_int_equal(vb__gate_get(g, 7), VB_GATE_UNKNOWN);
    vb_model_close(m);
    home_again();
}

/* A block has as many rows as drafts were found, and as its drafter was sure of: that width must have been checked, not the one
 * that was planned. */
static void every_width_that_is_verified_was_checked(void **state) {
    (void)state;
    (void)golden_fresh_home();
    int64_t blocks = 0;
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        vb_model *m = open_model(kinds[k], 0);
        vb__gate *g = vb__drafting_gate(m->engine);
        vb__gate_state s;
        for (int32_t w = 4; w <= 8; w += 4) assert_int_equal(vb__gate_check(g, w, true, &s, NULL), VB_OK);
        vb__gate_budget(g, 0, 0); /* no others */
        vb_result guess;
        generate(m, &prompts[0], 0, 0, &guess);
        for (int32_t i = 0; i < 4 * PROMPTS; i++) {
            vb_result r;
            predicted = i % PROMPTS == 0 ? &guess : NULL; /* lookup then finds the answer, and little of it at its end */
            n_predicted = 16 + i;
            generate(m, &prompts[i % PROMPTS], i % PROMPTS == 0 || i % 2 == 0 ? 0.0f : 0.8f, (uint64_t)i, &r);
            for (int32_t w = 2; w <= 16; w++) {
                int64_t n = r.proposed_at[w - 2] - (w < 16 ? r.proposed_at[w - 1] : 0);
                blocks += n;
                if (n != 0 && vb__gate_get(g, w) != VB_GATE_PASSED) fail_msg("%s: %d blocks of width %d, which was not checked", kinds[k], (int)n, w);
            }
            vb_result_fini(&r);
        }
        predicted = NULL;
        vb_result_fini(&guess);
        vb_model_close(m);
    }
    assert_true(blocks > 0);
    home_again();
}

/* Rounds that want now this width, now that one: both have their answer in the end. */
static void gate_ends_what_it_began(void **state) {
    (void)state;
    (void)golden_fresh_home();
    vb_model *m = open_model("mtp", 8);
    vb__gate *g = vb__drafting_gate(m->engine);
    vb__gate_budget(g, 0, 1e9); /* every call is one piece of work */
    for (int32_t i = 0; vb__gate_get(g, 8) != VB_GATE_PASSED || vb__gate_get(g, 5) != VB_GATE_PASSED; i++)
        if (i > 200) fail_msg("no answer after %d calls", i);
        else (void)vb__gate_width(g, i % 2 == 0 ? 8 : 5);
    vb__gate_bypass(g);
    assert_int_equal(vb__gate_width(g, 16), 16);
    assert_int_equal(vb__gate_get(g, 16), VB_GATE_UNKNOWN);
    vb_model_close(m);
    home_again();
}

/* Pages: a request takes those of a check that has begun; a check that finds none waits, and is no difference. */
static void gate_and_requests_share_pages(void **state) {
    (void)state;
    (void)golden_fresh_home();
    vb_error err;
    vb_result want, got;
    vb_model *m = open_model("none", 0);
    generate(m, &prompts[1], 0, 1, &want);
    vb_model_close(m);
    m = open_model("mtp", 8);
    vb__engine *e = m->engine;
    vb__gate *g = vb__drafting_gate(e);
    vb__gate_budget(g, 0, 1e-9);
    assert_int_equal(vb__gate_width(g, 8), 1); /* one piece: it has a page now */
    int32_t free_pages = vb__page_pool_free_count(e->pages);
    assert_int_equal(free_pages, vb__page_pool_count(e->pages) - 1);
    vb__seq *hog;
    assert_int_equal(vb__seq_create(e->model, e->pages, 64 * free_pages, 64, 0, &hog, &err), VB_OK);
    assert_int_equal(vb__seq_reserve(hog, 64 * (free_pages - 1)), VB_OK); /* one page is left; the request needs two */
    generate(m, &prompts[1], 0, 1, &got);
    assert_string_equal(want.logits_sha256, got.logits_sha256);
    vb_result_fini(&got);
    vb__engine_clear(e);
    assert_int_equal(vb__seq_reserve(hog, 64 * free_pages), VB_OK);
    vb__seq *more;
    assert_int_equal(vb__seq_create(e->model, e->pages, 64, 64, 0, &more, &err), VB_OK);
    assert_int_equal(vb__seq_reserve(more, 64), VB_OK); /* nothing is left */
    vb__gate_state s;
    assert_int_equal(vb__gate_check(g, 8, true, &s, &err), VB_E_MEMORY);
    vb__gate_budget(g, 100, 1);
    assert_int_equal(vb__gate_width(g, 8), 1);
    assert_int_equal(vb__gate_get(g, 8), VB_GATE_UNKNOWN);
    vb__seq_destroy(more);
    vb__seq_destroy(hog);
    for (double t0 = vb__now(); vb__gate_width(g, 8) != 8;)
        if (vb__now() - t0 > 20) fail_msg("the gate did not try again");
    vb_result_fini(&want);
    vb_model_close(m);
    home_again();
}

static void a_failing_drafter_costs_no_text(void **state) {
    (void)state;
    vb_result want, got;
    vb_model *m = open_model("none", 0);
    generate(m, &prompts[0], 0, 1, &want);
    vb_model_close(m);
    vb__fault_set(VB_FAULT_DRAFT_CRASH);
    m = open_model("mtp", 4);
    gate_passes_all(m);
    generate(m, &prompts[0], 0, 1, &got);
    vb__fault_set(VB_FAULT_NONE);
    assert_string_equal(want.logits_sha256, got.logits_sha256);
    vb_result_fini(&want);
    vb_result_fini(&got);
    vb_model_close(m);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    home = golden_fresh_home();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rollback_at_every_accept_length),
        cmocka_unit_test(every_drafter_and_width),
        cmocka_unit_test(gate_catches_planted_faults),
        cmocka_unit_test(gate_goes_on_where_it_stopped),
        cmocka_unit_test(gate_ends_what_it_began),
        cmocka_unit_test(every_width_that_is_verified_was_checked),
        cmocka_unit_test(gate_and_requests_share_pages),
        cmocka_unit_test(a_failing_drafter_costs_no_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
