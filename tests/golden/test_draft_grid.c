/* The grid of drafting: 45 prompts, greedy and three seeds at temperature 0.8, every drafter at every width 1..16, 48 tokens each:
 * hash of logits and text equal plain decode, nothing declined. A seeded sample by default; VERBATIM_GRID=full runs all of it on the
 * highest level and 100 cells on each other one, VERBATIM_PART=I/N only the I-th of N parts. */
#include "base/clock.h"
#include "base/json.h"
#include "engine/draft_policy.h"
#include "engine/drafting.h"
#include "engine/model_handle.h"
#include "golden_util.h"

enum { MAX_PROMPTS = 64, TOKENS = 48, SAMPLINGS = 4, KINDS = 4 };

static const int32_t kinds[KINDS] = {VB_DRAFT_LOOKUP, VB_DRAFT_MTP, VB_DRAFT_DFLASH, -1}; /* -1: auto */

typedef struct answer {
    char sha[65], *text;
} answer;

static int32_t *ids[MAX_PROMPTS], n_ids[MAX_PROMPTS], n_prompts;
static answer want[MAX_PROMPTS][SAMPLINGS];
static int64_t cells, declined;

static vb_model *open_model(vb__cpu_level level) {
    vb_model_options o = golden_options(NULL, 1024);
    o.level = vb__cpu_level_name(level);
    return golden_load(&o);
}

static void run(vb_model *m, int32_t prompt, int32_t sampling, int32_t kind, int32_t width, vb_result *r) {
    vb_request q = golden_request(ids[prompt], n_ids[prompt], TOKENS, 0, 0);
    vb__drafting_set_kinds(m->engine, kind < 0 ? UINT32_MAX : 1u << kind);
    vb__drafting_set_width(m->engine, width);
    vb__engine_clear(m->engine);
    q.ignore_eos = false;
    q.sampling = (vb_sampling){.set = VB_SET_TEMPERATURE | VB_SET_SEED, .temperature = sampling == 0 ? 0.0f : 0.8f,
                               .seed = (uint64_t)sampling * 1000003u};
    golden_generate(m, &q, r);
}

static void cell(vb_model *m, vb_model *plain, int32_t prompt, int32_t sampling, int32_t k, int32_t width) {
    answer *w = &want[prompt][sampling];
    vb_result r;
    if (w->text == NULL) {
        run(plain, prompt, sampling, VB_DRAFT_LOOKUP, 1, &r);
        assert_int_equal(r.proposed, 0);
        memcpy(w->sha, r.logits_sha256, 65);
        w->text = strdup(r.text);
        vb_result_fini(&r);
    }
    golden_gate_passes(m, width, false); /* whatever that costs: what serves then is the width asked for */
    run(m, prompt, sampling, kinds[k], width, &r);
    if (strcmp(w->sha, r.logits_sha256) != 0 || strcmp(w->text, r.text) != 0)
        fail_msg("prompt %d sampling %d drafter %s width %d level %s: another text", prompt, sampling,
                 kinds[k] < 0 ? "auto" : vb__draft_kind_name(kinds[k]), width, vb__cpu_level_name(m->engine->level));
    cells++;
    declined += r.n_declined;
    vb_result_fini(&r);
}

static uint32_t next(uint32_t *s, uint32_t n) {
    *s = *s * 1664525u + 1013904223u;
    return (*s >> 8) % n;
}

static void sample(vb_model *m, vb_model *plain, int32_t count, uint32_t seed) {
    for (int32_t i = 0; i < count; i++) {
        int32_t p = (int32_t)next(&seed, (uint32_t)n_prompts), s = (int32_t)next(&seed, SAMPLINGS);
        int32_t k = (int32_t)next(&seed, KINDS), w = 1 + (int32_t)next(&seed, 16);
        cell(m, plain, p, s, k, w);
    }
}

static void load_prompts(vb_model *m) {
    json_t *root;
    vb_error err = {0};
    if (vb__json_read(SOURCE_ROOT "/tests/data/draft_prompts.json", 1 << 20, NULL, &root, &err) != VB_OK) fail_msg("%s", err.text);
    const json_t *a = json_object_get(root, "prompts");
    n_prompts = (int32_t)json_array_size(a);
    assert_true(n_prompts == 45);
    for (int32_t i = 0; i < n_prompts; i++) {
        const char *t = json_string_value(json_array_get(a, (size_t)i));
        if (vb_tokenize(m, t, strlen(t), true, true, false, &ids[i], &n_ids[i], &err) != VB_OK) fail_msg("%s", err.text);
    }
    json_decref(root);
}

static void grid(void **state) {
    (void)state;
    const char *mode = getenv("VERBATIM_GRID"), *part = getenv("VERBATIM_PART");
    bool full = mode != NULL && strcmp(mode, "full") == 0;
    int part_i = 0, part_n = 1;
    if (part != NULL && (sscanf(part, "%d/%d", &part_i, &part_n) != 2 || part_i < 0 || part_i >= part_n)) fail_msg("VERBATIM_PART: %s", part);
    vb__cpu_level best;
    assert_int_equal(vb__cpu_detect(&best, NULL), VB_OK);
    vb_model *top = open_model(best);
    load_prompts(top);
    double t0 = vb__now();
    if (!full) sample(top, top, 60, 1);
    for (int32_t p = part_i; full && p < n_prompts; p += part_n)
        for (int32_t s = 0; s < SAMPLINGS; s++)
            for (int32_t k = 0; k < KINDS; k++)
                for (int32_t w = 1; w <= 16; w++) cell(top, top, p, s, k, w);
    printf("%s: %lld cells, %.0f s\n", vb__cpu_level_name(best), (long long)cells, vb__now() - t0);
    for (int32_t l = (int32_t)best - 1; l >= 0; l--) {
        t0 = vb__now();
        int64_t before = cells;
        vb_model *m = open_model((vb__cpu_level)l);
        sample(m, top, full ? (100 + part_n - 1) / part_n : l == 0 ? 2 : 12, 100u + (uint32_t)(l * 64 + part_i));
        printf("%s: %lld cells, %.0f s\n", vb__cpu_level_name((vb__cpu_level)l), (long long)(cells - before), vb__now() - t0);
        vb_model_close(m);
    }
    for (int32_t l = (int32_t)best + 1; l < VB_CPU_LEVELS; l++) printf("SKIP level %s: this CPU lacks it\n", vb__cpu_level_name((vb__cpu_level)l));
    vb_model_close(top);
    assert_int_equal(declined, 0);
    for (int32_t i = 0; i < n_prompts; i++) {
        vb_ids_free(ids[i]);
        for (int32_t s = 0; s < SAMPLINGS; s++) free(want[i][s].text);
    }
}

int main(void) {
    (void)golden_fresh_home();
    const struct CMUnitTest tests[] = {cmocka_unit_test(grid)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
