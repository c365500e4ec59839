/* Memory and allocation of a running model: a decode step allocates nothing, and the process keeps no more than the
 * packed weights and what inspect states for the context. On the embedded model, which is always there. */
#include "base/alloc.h"
#include "engine/bench.h"
#include "engine/engine.h"
#include "golden_util.h"

static vb__engine *open_engine(const char *draft, int64_t ctx) {
    vb_model_options o = golden_options(draft, ctx);
    vb__engine *e = NULL;
    vb_error err = {0};
    if (vb__engine_open(&o, &e, &err) != VB_OK) fail_msg("%s", err.text);
    return e;
}

/* Allocation calls between the 4th and the last but one new token of a request. */
static uint64_t allocations(vb__engine *e, vb__req_params p, int32_t n) {
    int32_t prompt[64];
    for (int32_t i = 0; i < 64; i++) prompt[i] = 100 + i % 8; /* repeats, so that lookup has something to propose */
    p.prompt = prompt;
    p.n_prompt = 64;
    p.max_tokens = n;
    p.ignore_eos = true;
    vb__req *r;
    vb_error err = {0};
    if (vb__req_create(e, &p, &r, &err) != VB_OK || vb__engine_submit(e, r, &err) != VB_OK) fail_msg("%s", err.text);
    uint64_t before = 0, after = 0;
    while (r->phase != VB_REQ_DONE) {
        bool worked;
        if (vb__engine_step(e, &worked, &err) != VB_OK) fail_msg("step: %s", err.text);
        if (!worked && r->phase != VB_REQ_DONE) fail_msg("%d of %d tokens, and nothing works", vb__req_count(r), n);
        if (vb__req_count(r) < 4) before = vb__alloc_calls();
        if (vb__req_count(r) < n) after = vb__alloc_calls();
    }
    if (r->error != VB_OK) fail_msg("%d of %d tokens: %s", vb__req_count(r), n, r->message.text);
    assert_int_equal(vb__req_count(r), n);
    vb__req_destroy(r);
    return after - before;
}

static const vb_sampling greedy = {.set = 0xff, .top_p = 1, .repeat_penalty = 1, .seed = 1};

static void step_allocates_nothing(void **state) {
    (void)state;
    static const char *const drafts[] = {"none", "lookup", "mtp"};
    for (size_t i = 0; i < sizeof drafts / sizeof drafts[0]; i++) {
        vb__engine *e = open_engine(drafts[i], 512);
        vb__req_params p = {.sampling = greedy, .top_logprobs = -1};
        (void)allocations(e, p, 48); /* the gate runs at the first use of a width */
        uint64_t n = allocations(e, p, 48);
        printf("drafts %s: %llu allocations in 44 tokens\n", drafts[i], (unsigned long long)n);
        assert_int_equal(n, 0);
        vb__engine_close(e);
    }
}

static void sampled_step_allocates_nothing(void **state) {
    (void)state;
    vb__engine *e = open_engine("none", 512);
    vb__req_params p = {.sampling = greedy, .top_logprobs = 5};
    p.sampling.temperature = 0.8f;
    p.sampling.top_k = 40;
    p.sampling.top_p = 0.95f;
    p.sampling.repeat_penalty = 1.1f;
    p.sampling.presence_penalty = 0.5f;
    assert_int_equal(allocations(e, p, 48), 0);
    vb__engine_close(e);
}

static int64_t field(const json_t *j, const char *key) { return json_integer_value(json_object_get(j, key)); }

static void memory_is_as_inspect_states(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    printf("SKIP: a sanitizer keeps memory of its own\n");
    skip();
#endif
    enum { CTX = 1024 };
    char *text;
    vb_error err = {0};
    if (vb_inspect_json(GOLDEN_EMBEDDED, CTX, &text, &err) != VB_OK) fail_msg("%s", err.text);
    json_t *j = json_loads(text, 0, NULL);
    assert_non_null(j);
    vb_string_free(text);
    vb__engine *e = open_engine("lookup", CTX);
    assert_int_equal(field(j, "weight_bytes"), e->model->weight_bytes);
    assert_int_equal(field(j, "kv_bytes_per_token"), e->model->page_bytes / VB_PAGE_POSITIONS);
    const vb__req_params p = {.sampling = greedy, .top_logprobs = -1};
    (void)allocations(e, p, CTX - 64 - 1);
    int64_t resident = vb__bench_resident(), packed = field(j, "weight_bytes"), context = field(j, "context_bytes");
    printf("resident %lld, packed %lld, context %lld: %.3f of the packed weights behind the context\n", (long long)resident,
           (long long)packed, (long long)context, (double)(resident - context) / (double)packed);
    assert_true(resident > 0);
    assert_true((double)resident <= 1.1 * (double)packed + (double)context);
    json_decref(j);
    vb__engine_close(e);
}

int main(void) {
    uint32_t csr = vb__fp_enter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_inspect_states),
        cmocka_unit_test(step_allocates_nothing),
        cmocka_unit_test(sampled_step_allocates_nothing),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    vb__fp_leave(csr);
    return rc;
}
