/* Drafts of many sequences come from one pass of the drafter: the same tokens, round by round, as of each sequence alone, and the
 * same answers. On the embedded model and its DFlash drafter. */
#include "engine/drafting.h"
#include "engine/draft_policy.h"
#include "engine/draft_vocab.h"
#include "engine/model_handle.h"
#include "engine/step_seq.h"
#include "golden_util.h"

enum { REQUESTS = 8, TOKENS = 40, ROUNDS = TOKENS, WIDEST = 8 };

/* What was proposed behind each known length. */
typedef struct history {
    int32_t n[512], drafts[512][WIDEST];
    int32_t rounds, answer[TOKENS], count;
} history;

static vb_model *model;

static int open_model(void **state) {
    (void)state;
    vb_model_options o = golden_options(NULL, 512);
    o.parallel = REQUESTS;
    model = golden_load(&o);
    golden_gates_pass(model, WIDEST);
    /* Which ids drafts choose among depends on the neighbours and on what was seen before; here only what one pass gives counts. */
    vb__draft_vocab_set(vb__drafting_vocab(model->engine), INT32_MAX);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    vb_model_close(model);
    return 0;
}

static vb__req *make_request(int32_t i, int32_t kind, int32_t width, float temperature) {
    int32_t ids[200], n = 5 + i * i * 3; /* 5 to 152 tokens: prompts end in different steps */
    vb__req *r;
    vb_error err;
    for (int32_t k = 0; k < n; k++) ids[k] = (k % 23 * 131 + i * 977 + 50) % 16000;
    const vb__req_params p = {.prompt = ids, .n_prompt = n, .max_tokens = TOKENS - i, .ignore_eos = true, .no_text = true, .no_reuse = true,
                              .sampling = {.temperature = i % 2 == 0 ? 0.0f : temperature, .top_p = 1.0f, .repeat_penalty = i % 4 == 3 ? 1.2f : 1.0f,
                                           .seed = 7 + (uint64_t)i},
                              .top_logprobs = -1, .draft_width = width, .draft_kinds = 1 << kind};
    if (vb__req_create(model->engine, &p, &r, &err) != VB_OK) fail_msg("%s", err.text);
    return r;
}

/* Runs them together and writes down what was proposed. */
static void run(vb__req **r, history *const *h, int32_t n) {
    vb__engine *e = model->engine;
    vb_error err;
    bool worked = true;
    vb__engine_clear(e);
    for (int32_t i = 0; i < n; i++)
        if (vb__engine_submit(e, r[i], &err) != VB_OK) fail_msg("%s", err.text);
    while (worked) {
        int32_t fed[REQUESTS];
        const vb__slot *slot[REQUESTS];
        for (int32_t i = 0; i < n; i++) {
            fed[i] = r[i]->fed;
            slot[i] = r[i]->slot;
        }
        int64_t steps = e->stats.steps;
        if (vb__engine_step(e, &worked, &err) != VB_OK) fail_msg("%s", err.text);
        if (e->stats.steps == steps) break;
        int32_t seqs = 0;
        while (seqs < e->parallel && e->fseqs[seqs].rows > 0) seqs++;
        for (int32_t k = 0; k < seqs; k++) {
            const vb__step_seq *s = &e->plan[k];
            for (int32_t i = 0; i < n; i++) {
                if (slot[i] != s->slot || s->drafts == 0) continue;
                int32_t at = fed[i] + s->known;
                h[i]->n[at] = s->drafts;
                h[i]->rounds++;
                memcpy(h[i]->drafts[at], e->row_tokens + s->row0 + s->known, (size_t)s->drafts * sizeof(int32_t));
            }
        }
        memset(e->fseqs, 0, (size_t)e->parallel * sizeof *e->fseqs);
    }
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(r[i]->phase, VB_REQ_DONE);
        assert_int_equal(r[i]->error, VB_OK);
        h[i]->count = vb__req_count(r[i]);
        memcpy(h[i]->answer, r[i]->tokens + r[i]->n_prompt, (size_t)h[i]->count * sizeof(int32_t));
        vb__req_destroy(r[i]);
    }
}

static void same_drafts(int32_t kind, int32_t requests, int32_t width) {
    static history together[REQUESTS], alone;
    vb__req *r[REQUESTS];
    history *h[REQUESTS];
    int32_t rounds = 0;
    memset(together, 0, sizeof together);
    for (int32_t i = 0; i < requests; i++) {
        r[i] = make_request(i, kind, width, 0.8f);
        h[i] = &together[i];
    }
    run(r, h, requests);
    for (int32_t i = 0; i < requests; i++) {
        vb__req *one = make_request(i, kind, width, 0.8f);
        history *p = &alone;
        memset(&alone, 0, sizeof alone);
        run(&one, &p, 1);
        assert_true(alone.rounds > 0);
        rounds += alone.rounds;
        assert_int_equal(alone.count, TOKENS - i);
        assert_memory_equal(&together[i], &alone, sizeof alone);
    }
    printf("%s, %d requests, blocks of %d: the same drafts in %d rounds\n", vb__draft_kind_name(kind), requests, width, rounds);
}

static void mtp(void **state) {
    (void)state;
    same_drafts(VB_DRAFT_MTP, 8, 2);
    same_drafts(VB_DRAFT_MTP, 5, 3);
    same_drafts(VB_DRAFT_MTP, 2, 8);
}

static void dflash(void **state) {
    (void)state;
    same_drafts(VB_DRAFT_DFLASH, 8, 2);
    same_drafts(VB_DRAFT_DFLASH, 4, 4);
    same_drafts(VB_DRAFT_DFLASH, 2, 8);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(mtp), cmocka_unit_test(dflash)};
    return cmocka_run_group_tests(tests, open_model, close_model);
}
