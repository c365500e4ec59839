/* A model as drafter: the text of plain decode at every width, with and without recurrent state on either
 * side; drafting for itself everything is accepted, also in a second turn on the same sequence; another
 * vocabulary is refused. */
#include "engine/drafting.h"
#include "engine/model_handle.h"
#include "golden_util.h"

enum { TOKENS = 40 };

static vb_model *open_model(const char *path, const char *drafter, int32_t width) {
    char spec[800];
    (void)snprintf(spec, sizeof spec, "model:%s", drafter == NULL ? "" : drafter);
    vb_model_options o = golden_options(drafter == NULL ? "none" : spec, 512);
    o.path = path;
    o.draft_width = width;
    return golden_load(&o);
}

/* Two turns: a prompt, then that prompt, its answer and a few ids more. Hashes of both, drafts of both. */
typedef struct turns {
    char hash[2][65];
    int64_t accepted, proposed;
    int32_t cached;
} turns;

static void talk(vb_model *m, uint32_t salt, float temperature, turns *t) {
    int32_t ids[256], n = 0, vocab = m->engine->model->cfg.vocab;
    vb_result r;
    for (; n < 70; n++) ids[n] = (int32_t)((uint32_t)n * 7919u * (salt + 1) % 97u + 3) % vocab;
    *t = (turns){.cached = 0};
    vb__engine_clear(m->engine);
    for (int turn = 0; turn < 2; turn++) {
        vb_request q = golden_request(ids, n, TOKENS, temperature, 3);
        golden_generate(m, &q, &r);
        memcpy(t->hash[turn], r.logits_sha256, 65);
        t->accepted += r.accepted;
        t->proposed += r.proposed;
        t->cached = r.cached_tokens;
        for (int32_t i = 0; i < r.count; i++) ids[n++] = r.ids[i];
        for (int32_t i = 0; i < 5; i++) ids[n++] = 40 + i;
        vb_result_fini(&r);
    }
}

static void pair(const char *label, const char *target, const char *drafter, const int32_t *widths,
                 int32_t n_widths, double least) {
    turns want[2][2], got;
    vb_model *m = open_model(target, NULL, 0);
    for (int k = 0; k < 4; k++) talk(m, (uint32_t)k / 2, k % 2 == 0 ? 0 : 0.8f, &want[k / 2][k % 2]);
    vb_model_close(m);
    m = open_model(target, drafter, 16);
    for (int32_t i = 0; i < n_widths; i++) {
        int64_t accepted = 0, proposed = 0;
        golden_gate_passes(m, widths[i], true);
        vb__drafting_set_width(m->engine, widths[i]);
        for (int k = 0; k < 4; k++) {
            talk(m, (uint32_t)k / 2, k % 2 == 0 ? 0 : 0.8f, &got);
            for (int turn = 0; turn < 2; turn++)
                assert_string_equal(got.hash[turn], want[k / 2][k % 2].hash[turn]);
            assert_true(got.cached > 0);
            accepted += got.accepted;
            proposed += got.proposed;
        }
        printf("%s, width %d: %lld of %lld accepted\n", label, widths[i], (long long)accepted,
               (long long)proposed);
        assert_true(proposed > 0 && (double)accepted >= least * (double)proposed);
    }
    vb_model_close(m);
}

static void for_itself(void **state) {
    (void)state;
    static const int32_t widths[] = {2, 5, 16};
    pair("atto for itself", GOLDEN_EMBEDDED, GOLDEN_EMBEDDED, widths, 3, 1.0);
}

static const char *tiny(const char *name) {
    char path[200];
    (void)snprintf(path, sizeof path, "fixtures/tiny/%s", name);
    return golden_file(path);
}

static void with_and_without_recurrent_state(void **state) {
    (void)state;
    static const int32_t widths[] = {2, 3, 4, 8, 16};
    if (golden_shared() == NULL) skip();
    pair("qwen3 for itself", tiny("qwen3"), tiny("qwen3"), widths, 5, 1.0);
    pair("qwen35 for itself", tiny("qwen35"), tiny("qwen35"), widths, 5, 1.0);
    pair("qwen3 for qwen35", tiny("qwen35"), tiny("qwen3"), widths, 5, 0.0);
    pair("qwen35 for qwen3", tiny("qwen3"), tiny("qwen35"), widths, 5, 0.0);
    pair("llama (wider) for qwen2", tiny("qwen2"), tiny("llama-default"), widths, 5, 0.0);
    pair("288 rows for 256", tiny("qwen35-moe"), tiny("qwen3"), widths, 5, 0.0);
    pair("256 rows for 288", tiny("qwen3"), tiny("qwen35-moe"), widths, 5, 0.0);
    pair("experts for themselves", tiny("qwen35-moe"), tiny("qwen35-moe"), widths, 5, 1.0);
}

static void misfits(void **state) {
    (void)state;
    static const struct {
        const char *spec, *want;
    } cases[] = {{"model:" SOURCE_ROOT "/models/atto-dflash", NULL},
                 {"model:/nowhere", NULL},
                 {"model:", "--draft: unknown 'model:'"},
                 {"model", "--draft: unknown 'model'"}};
    vb_model_options o = golden_options(NULL, 256);
    vb_model *m;
    vb_error err;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        o.draft = cases[i].spec;
        assert_true(vb_model_open(&o, &m, &err) != VB_OK);
        printf("%s\n", err.text);
        if (cases[i].want != NULL) assert_non_null(strstr(err.text, cases[i].want));
    }
    if (golden_shared() == NULL) return;
    char spec[800];
    (void)snprintf(spec, sizeof spec, "model:%s", tiny("qwen3"));
    o.draft = spec;
    assert_int_equal(vb_model_open(&o, &m, &err), VB_E_MISMATCH);
    printf("%s\n", err.text);
    assert_non_null(strstr(err.text, "vocab_size: is 288, expected the target's "));
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    (void)golden_fresh_home();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misfits),
        cmocka_unit_test(with_and_without_recurrent_state),
        cmocka_unit_test(for_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
