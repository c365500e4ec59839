/* Drafts that choose among a part of the vocabulary: nothing but that part is proposed, and the answers are those of plain decode, however
 * small the part. On the embedded model and its DFlash drafter. */
#include "engine/drafting.h"
#include "engine/draft_policy.h"
#include "engine/draft_vocab.h"
#include "engine/model_handle.h"
#include "engine/step_seq.h"
#include "golden_util.h"

enum { REQUESTS = 6, TOKENS = 40, WIDEST = 6, ALL = INT32_MAX };

typedef struct answer {
    int32_t n, ids[2 * TOKENS];
    int64_t proposed, accepted;
} answer;

static vb_model *model;

static int open_model(void **state) {
    (void)state;
    vb_model_options o = golden_options(NULL, 1024);
    o.parallel = REQUESTS;
    model = golden_load(&o);
    golden_gates_pass(model, WIDEST);
    return 0;
}

static int close_model(void **state) {
    (void)state;
    vb_model_close(model);
    return 0;
}

static vb__draft_vocab *vocab(void) { return vb__drafting_vocab(model->engine); }

/* Greedy or sampled; penalties in some; prompts of several lengths. kind VB_DRAFT_NONE: plain decode. */
static vb__req *make_request(int32_t i, int32_t kind, int32_t width, float temperature) {
    int32_t ids[100], n = 5 + i * i * 3;
    vb__req *r;
    vb_error err;
    for (int32_t k = 0; k < n; k++) ids[k] = (k % 11 * 131 + i * 977 + 50) % 16000;
    vb__req_params p = {.prompt = ids, .n_prompt = n, .max_tokens = TOKENS + i, .ignore_eos = true, .no_text = true, .no_reuse = true,
                        .sampling = {.temperature = temperature, .top_p = 1.0f, .top_k = i % 3 == 2 ? 40 : 0,
                                     .repeat_penalty = i % 4 == 3 ? 1.2f : 1.0f, .seed = 7 + (uint64_t)i},
                        .top_logprobs = -1, .draft_width = 1};
    if (kind != VB_DRAFT_NONE) {
        p.draft_width = width;
        p.draft_kinds = 1 << kind;
    }
    if (vb__req_create(model->engine, &p, &r, &err) != VB_OK) fail_msg("%s", err.text);
    return r;
}

static bool hot(const vb__out_range *r, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (id >= r[i].begin && id < r[i].end) return true;
    return n == 0;
}

/* Steps until all are done. With `only` every draft must be among what that is for no sequence at all (a set prefix). */
static void run(vb__req **r, answer *a, int32_t n, bool only) {
    vb__engine *e = model->engine;
    vb_error err;
    bool worked = true;
    const vb__out_range *ranges = NULL;
    int32_t n_ranges = only ? vb__draft_vocab_ranges(vocab(), NULL, 0, &ranges) : 0;
    vb__engine_clear(e);
    for (int32_t i = 0; i < n; i++)
        if (vb__engine_submit(e, r[i], &err) != VB_OK) fail_msg("%s", err.text);
    while (worked) {
        int32_t seqs = 0;
        memset(e->fseqs, 0, (size_t)e->parallel * sizeof *e->fseqs);
        if (vb__engine_step(e, &worked, &err) != VB_OK) fail_msg("%s", err.text);
        while (seqs < e->parallel && e->fseqs[seqs].rows > 0) seqs++;
        for (int32_t k = 0; k < seqs; k++)
            for (int32_t i = 0; i < e->plan[k].drafts; i++)
                if (!hot(ranges, n_ranges, e->row_tokens[e->plan[k].row0 + e->plan[k].known + i])) fail_msg("a draft is none of the part");
    }
    memset(a, 0, (size_t)n * sizeof *a);
    for (int32_t i = 0; i < n; i++) {
        assert_int_equal(r[i]->phase, VB_REQ_DONE);
        assert_int_equal(r[i]->error, VB_OK);
        a[i].n = vb__req_count(r[i]);
        a[i].proposed = r[i]->stats.proposed;
        a[i].accepted = r[i]->stats.accepted;
        memcpy(a[i].ids, r[i]->tokens + r[i]->n_prompt, (size_t)a[i].n * sizeof(int32_t));
        vb__req_destroy(r[i]);
    }
}

/* Every drafter, greedy and not, alone and with others: plain decode's tokens for every part, and all of the drafts among it. */
static void text_is_plain(void **state) {
    (void)state;
    static const int32_t parts[] = {ALL, 4096, 256, 16, VB_DRAFT_VOCAB_LEARNED}, kinds[] = {VB_DRAFT_MTP, VB_DRAFT_DFLASH};
    static const float temperatures[] = {0.0f, 0.8f};
    for (int32_t t = 0; t < 2; t++) {
        answer plain[REQUESTS], got[REQUESTS];
        vb__req *r[REQUESTS];
        for (int32_t i = 0; i < REQUESTS; i++) r[i] = make_request(i, VB_DRAFT_NONE, 1, temperatures[t]);
        run(r, plain, REQUESTS, false);
        for (int32_t k = 0; k < 2; k++) {
            int64_t whole = 0;
            for (size_t p = 0; p < sizeof parts / sizeof *parts; p++)
                for (int32_t together = 1; together <= REQUESTS; together += REQUESTS - 1) {
                    int64_t proposed = 0, accepted = 0;
                    vb__draft_vocab_set(vocab(), parts[p]);
                    for (int32_t at = 0; at < REQUESTS; at += together) {
                        for (int32_t i = 0; i < together; i++) r[i] = make_request(at + i, kinds[k], together == 1 ? WIDEST : 3, temperatures[t]);
                        run(r, got, together, parts[p] != VB_DRAFT_VOCAB_LEARNED);
                        for (int32_t i = 0; i < together; i++) {
                            assert_int_equal(got[i].n, plain[at + i].n);
                            assert_memory_equal(got[i].ids, plain[at + i].ids, (size_t)got[i].n * sizeof(int32_t));
                            assert_int_equal(plain[at + i].proposed, 0);
                            proposed += got[i].proposed;
                            accepted += got[i].accepted;
                        }
                    }
                    assert_true(proposed > 0);
                    if (parts[p] == ALL && together == 1) whole = accepted;
                    if (parts[p] == 16 && together == 1) assert_true(accepted * 2 < whole); /* most are wrong, then */
                    printf("%s, temperature %.1f, part %d, %d together: %lld of %lld drafts accepted\n", vb__draft_kind_name(kinds[k]),
                           (double)temperatures[t], parts[p], together, (long long)accepted, (long long)proposed);
                }
        }
    }
    assert_true(vb__draft_vocab_prefix(vocab()) < model->engine->model->cfg.vocab); /* and something was learned meanwhile */
}

/* A bias makes two ids likely that were never seen, a penalty has them take turns: the second is drafted before it has come. */
static void biased_ids_are_hot(void **state) {
    (void)state;
    static const vb_logit_bias bias[] = {{15003, 99.0f}, {14003, 95.0f}, {13003, -1.0f}};
    const vb__req_params p = {.prompt = (const int32_t[]){5, 6, 7}, .n_prompt = 3, .max_tokens = 8, .ignore_eos = true, .no_text = true,
                              .no_reuse = true, .top_logprobs = -1, .draft_width = 2, .draft_kinds = 1 << VB_DRAFT_MTP, .logit_bias = bias,
                              .n_logit_bias = 3, .sampling = {.top_p = 1.0f, .repeat_penalty = 1.0f, .presence_penalty = 40.0f}};
    vb__req *r;
    vb_error err;
    bool worked = true;
    vb__engine *e = model->engine;
    const vb__out_range *ranges;
    vb__draft_vocab_set(vocab(), VB_DRAFT_VOCAB_LEARNED);
    assert_true(vb__draft_vocab_prefix(vocab()) < 13000);
    vb__engine_clear(e);
    if (vb__req_create(e, &p, &r, &err) != VB_OK || vb__engine_submit(e, r, &err) != VB_OK) fail_msg("%s", err.text);
    while (r->n_tokens == r->n_prompt)
        if (vb__engine_step(e, &worked, &err) != VB_OK) fail_msg("%s", err.text);
    assert_int_equal(r->tokens[r->n_prompt], 15003);
    int32_t slot = (int32_t)(r->slot - e->slots), n = vb__draft_vocab_ranges(vocab(), &slot, 1, &ranges);
    assert_true(n > 0 && hot(ranges, n, 15003) && hot(ranges, n, 14003) && !hot(ranges, n, 13003));
    if (vb__engine_step(e, &worked, &err) != VB_OK) fail_msg("%s", err.text);
    assert_int_equal(e->plan[0].drafts, 1);
    assert_int_equal(e->row_tokens[e->plan[0].row0 + 1], 14003);
    vb__engine_cancel(e, r);
    vb__req_destroy(r);
}

/* What a request brought is hot for it: its prompt, its answer, the end tokens. */
static void seen_tokens_are_hot(void **state) {
    (void)state;
    vb__engine *e = model->engine;
    vb_error err;
    const vb__out_range *ranges;
    bool worked;
    vb__req *r = make_request(4, VB_DRAFT_DFLASH, WIDEST, 0.8f);
    vb__engine_clear(e);
    if (vb__engine_submit(e, r, &err) != VB_OK) fail_msg("%s", err.text);
    for (int32_t step = 0; r->phase != VB_REQ_DONE; step++) {
        if (vb__engine_step(e, &worked, &err) != VB_OK) fail_msg("%s", err.text);
        if (r->slot == NULL) break;
        int32_t slot = (int32_t)(r->slot - e->slots), n = vb__draft_vocab_ranges(vocab(), &slot, 1, &ranges);
        assert_true(n > 0);
        for (int32_t i = 0; i < r->n_tokens; i++) assert_true(hot(ranges, n, r->tokens[i]));
        for (int32_t i = 0; i < e->n_eos; i++) assert_true(hot(ranges, n, e->eos[i]));
    }
    vb__req_destroy(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_plain),
        cmocka_unit_test(biased_ids_are_hot),
        cmocka_unit_test(seen_tokens_are_hot),
    };
    return cmocka_run_group_tests(tests, open_model, close_model);
}
