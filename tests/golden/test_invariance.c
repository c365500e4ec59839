/* The promise, tried at random: for a model and a prompt there is one logits hash, whatever the rows per call, the
 * threads, the CPU level and the neighbours. Hashes are golden: the same on every machine. A planted kernel that splits
 * K by the number of rows must be caught by the very same test. */
#include "base/clock.h"
#include "base/fault.h"
#include "engine/model_handle.h"
#include "golden_util.h"

enum { PROMPTS = 4, NEW = 8, MAX_PROMPT = 80, CASES = 200 };

static uint64_t rng_state = 20261130;
static uint32_t rnd(uint32_t n) {
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33) % n;
}

typedef struct prompt {
    int32_t ids[MAX_PROMPT], n;
} prompt;

/* Prompts of 3 to 80 ids; the last two cross a page of 64 positions, one in prefill and one while decoding. */
static void make_prompts(prompt *p, int32_t vocab) {
    static const int32_t lengths[PROMPTS] = {3, 17, 80, 60};
    uint64_t save = rng_state;
    for (int32_t i = 0; i < PROMPTS; i++) {
        rng_state = 77u + (uint64_t)i;
        p[i].n = lengths[i];
        for (int32_t k = 0; k < p[i].n; k++) p[i].ids[k] = (int32_t)rnd((uint32_t)vocab);
    }
    rng_state = save;
}

static void set_level(vb__cpu_level level) {
    assert_int_equal(setenv("VERBATIM_CPU", vb__cpu_level_name(level), 1), 0);
}

static vb_model *open_model(const char *path, vb__cpu_level level, int32_t threads, int32_t activations) {
    vb_model_options o = golden_options("none", 256);
    set_level(level);
    o.path = path;
    o.threads = threads;
    o.activations = activations;
    o.parallel = 8;
    return golden_load(&o);
}

static void run_case(vb_model *m, const prompt *p, int32_t chunk, int32_t neighbours, char hash[65]) {
    vb_request q = golden_request(p->ids, p->n, NEW, 0.8f, 5);
    vb_result r;
    m->engine->prefill_chunk = chunk;
    vb__engine_clear(m->engine);
    q.neighbours = neighbours;
    golden_generate(m, &q, &r);
    memcpy(hash, r.logits_sha256, 65);
    assert_int_equal(r.count, NEW);
    vb_result_fini(&r);
}

/* Runs `cases` random cases; returns how many hashes differ from the first of their prompt. */
static int32_t run_cases(const char *path, int32_t activations, int32_t cases, char hash[PROMPTS][65]) {
    static const int32_t thread_counts[] = {1, 2, 3, 5};
    vb__cpu_level best;
    assert_int_equal(vb__cpu_detect(&best, NULL), VB_OK);
    int32_t differ = 0, levels = (int32_t)best + 1, done = 0;
    for (int32_t i = 0; i < PROMPTS; i++) hash[i][0] = '\0';
    for (int32_t t = 0; t < 4; t++)
        for (int32_t l = levels - 1; l >= 0; l--) {
            vb_model *m = open_model(path, (vb__cpu_level)l, thread_counts[t], activations);
            prompt p[PROMPTS];
            make_prompts(p, m->engine->model->cfg.vocab);
            /* The C reference is slow: few cases, short prompts. */
            int32_t n = l == 0 ? 2 : (cases - 8 + 4 * (levels - 1) - 1) / (4 * (levels - 1));
            for (int32_t i = 0; i < n; i++, done++) {
                int32_t which = l == 0 ? (int32_t)rnd(2) : (int32_t)rnd(PROMPTS);
                int32_t chunk = 1 + (int32_t)rnd(64), neighbours = (int32_t)rnd(l == 0 ? 2 : 8);
                char got[65];
                run_case(m, &p[which], chunk, neighbours, got);
                if (hash[which][0] == '\0') memcpy(hash[which], got, 65);
                if (strcmp(hash[which], got) != 0) {
                    if (differ++ == 0)
                        printf("first difference: prompt %d, level %s, threads %d, chunk %d, neighbours %d\n", which,
                               vb__cpu_level_name((vb__cpu_level)l), thread_counts[t], chunk, neighbours);
                }
            }
            vb_model_close(m);
        }
    for (int32_t l = levels; l < VB_CPU_LEVELS; l++) printf("SKIP level %s: this CPU lacks it\n", vb__cpu_level_name((vb__cpu_level)l));
    printf("%d cases, %d levels, %d differ\n", done, levels, differ);
    return differ;
}

typedef struct golden {
    const char *label, *path;
    bool shared;
    int32_t activations;
    const char *hash[PROMPTS];
} golden;

static const golden models[] = {
#include "invariance_hashes.h"
};

static int32_t cases_of(const golden *g) {
    const char *env = getenv("VERBATIM_CASES");
    return env != NULL ? atoi(env) : g->activations == 16 ? CASES / 5 : CASES;
}

static void check(const golden *g) {
    char path[700], hash[PROMPTS][65];
    if (g->shared && golden_shared() == NULL) return;
    (void)snprintf(path, sizeof path, "%s%s", g->shared ? golden_shared() : SOURCE_ROOT, g->path);
    double t0 = vb__now();
    int32_t differ = run_cases(path, g->activations, cases_of(g), hash);
    printf("%s: %.1f s\n", g->label, vb__now() - t0);
    for (int32_t i = 0; i < PROMPTS; i++) printf("    \"%s\",\n", hash[i]);
    assert_int_equal(differ, 0);
    for (int32_t i = 0; i < PROMPTS; i++)
        if (hash[i][0] != '\0') assert_string_equal(hash[i], g->hash[i]);
}

static void bf16_model(void **state) {
    (void)state;
    check(&models[0]);
}
/* Experts see rows together whose other rows differ from case to case. */
static void moe_model(void **state) {
    (void)state;
    check(&models[3]);
}
static void q4_model(void **state) {
    (void)state;
    check(&models[1]);
}
static void q4_model_16_bit_activations(void **state) {
    (void)state;
    check(&models[2]);
}

static void planted_split_is_caught(void **state) {
    (void)state;
    char path[700], hash[PROMPTS][65];
    (void)snprintf(path, sizeof path, "%s%s", SOURCE_ROOT, models[1].path);
    vb__fault_set(VB_FAULT_LINEAR_ROWS);
    int32_t differ = run_cases(path, 8, 40, hash);
    vb__fault_set(VB_FAULT_NONE);
    assert_true(differ > 0);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(q4_model),
        cmocka_unit_test(bf16_model),
        cmocka_unit_test(moe_model),
        cmocka_unit_test(q4_model_16_bit_activations),
        cmocka_unit_test(planted_split_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
