/* Logits are kept only where somebody reads them; the choices are the same either way. On the embedded model: random hidden rows,
 * among them one whose best id has no token and one that is not finite. */
#include "engine/model_handle.h"
#include "engine/sample_rows.h"
#include "golden_util.h"

enum { ROWS = 7 };

static vb_model *model;
static float *hidden;

static int open_model(void **state) {
    (void)state;
    vb_model_options o = golden_options(NULL, 128);
    model = golden_load(&o);
    int32_t n = model->engine->model->cfg.hidden;
    hidden = malloc(ROWS * (size_t)n * sizeof *hidden);
    uint32_t z = 7;
    for (int32_t i = 0; i < ROWS * n; i++) {
        z = z * 1664525u + 1013904223u;
        hidden[i] = (float)(int32_t)z * 0x1p-31f;
    }
    return 0;
}

static int close_model(void **state) {
    (void)state;
    free(hidden);
    vb_model_close(model);
    return 0;
}

static vb__row_logits make(bool read, bool best) {
    vb__row_logits l = {.read = read, .best = best};
    vb_error err = {0};
    if (vb__row_logits_make(model->engine, hidden, ROWS, &l, &err) != VB_OK) fail_msg("%s", err.text);
    return l;
}

/* What a greedy request gets from them. */
static void choose(const vb__row_logits *l, vb__sample *made, vb_error *why) {
    static const vb_sampling greedy = {.temperature = 0, .top_p = 1, .repeat_penalty = 1};
    vb__sample_row rows[ROWS];
    for (int32_t i = 0; i < ROWS; i++) {
        rows[i] = (vb__sample_row){.options = &greedy, .token_mask = model->engine->token_mask, .top_logprobs = -1, .position = i};
        vb__row_logits_take(model->engine, l, i, &rows[i]);
    }
    vb__sample_rows(model->engine, rows, ROWS, made, why);
}

static void compare(const vb__row_logits *a, const vb__row_logits *b) {
    vb__sample made[2][ROWS];
    vb_error why[2][ROWS];
    choose(a, made[0], why[0]);
    choose(b, made[1], why[1]);
    for (int32_t i = 0; i < ROWS; i++) {
        assert_int_equal(why[0][i].code, why[1][i].code);
        if (why[0][i].code == VB_OK) assert_int_equal(made[0][i].id, made[1][i].id);
        else assert_string_equal(why[0][i].text, why[1][i].text);
    }
}

static void all_the_same(const char *what, bool kept) {
    vb__row_logits all = make(true, false), both = make(true, true);
    assert_non_null(all.logits);
    assert_non_null(both.logits);
    compare(&all, &both);
    vb__row_logits best = make(false, true);
    if (kept != (best.logits != NULL)) fail_msg("%s: logits are%s kept", what, best.logits != NULL ? "" : " not");
    compare(&all, &best);
}

static void choices_do_not_depend_on_what_is_kept(void **state) {
    (void)state;
    vb__engine *e = model->engine;
    all_the_same("plain rows", false);
    vb__row_logits l = make(false, true);
    uint32_t *word = &e->token_mask[l.of[3].id / 32], old = *word;
    *word &= ~(1u << (l.of[3].id % 32)); /* the best id of one row has no token */
    all_the_same("an id without a token", true);
    *word = old;
    float value = hidden[5];
    hidden[5] = NAN;
    all_the_same("a row that is not finite", true);
    hidden[5] = value;
    all_the_same("plain rows again", false);
}

/* Which rows need their logits. */
static void who_reads(void **state) {
    (void)state;
    const vb_sampling greedy = {.temperature = 0, .top_p = 1, .repeat_penalty = 1}, warm = {.temperature = 0.7f, .top_p = 1, .repeat_penalty = 1};
    const vb_logit_bias bias = {5, 1.0f};
    const vb__sample_row rows[] = {
        {.options = &greedy, .top_logprobs = -1},
        {.options = &warm, .top_logprobs = -1},
        {.options = &greedy, .top_logprobs = 0},
        {.options = &greedy, .top_logprobs = -1, .bias = &bias, .n_bias = 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        vb__row_logits l = {0};
        vb__row_logits_want(&l, &rows[i]);
        assert_true(l.best == (i == 0) && l.read == (i != 0));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(choices_do_not_depend_on_what_is_kept),
        cmocka_unit_test(who_reads),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
