/* The public interface under load and in wrong hands, on the embedded model: too few KV pages, cancelling, calls that outlive their
 * vb_async, arguments that must be refused. */
#include "golden_util.h"
#include <limits.h>
#include <stdatomic.h>
#include <time.h>

enum { REQUESTS = 10, PAGES = 6, CTX = PAGES * 64, TOKENS = 70 };

static vb_model *open_with(int32_t parallel, int64_t pages, int64_t ctx, const char *draft, int32_t width) {
    vb_model_options o = golden_options(draft, ctx);
    o.parallel = parallel;
    o.kv_pages = pages;
    o.draft_width = width;
    return golden_load(&o);
}

/* ---- Calls ------------------------------------------------------------------------------------------------------- */

typedef struct caller {
    int32_t ids[CTX], n;
    vb_result alone, crowd;
    vb_call *call;
    int32_t tokens, cancel_at; /* 0: never */
    atomic_bool done;
} caller;

static caller callers[REQUESTS];

static vb_request request_of(caller *c, int32_t i) {
    c->n = 40 + i * 83 % (CTX - TOKENS - 40);
    for (int32_t k = 0; k < c->n; k++) c->ids[k] = (k % 29 * 131 + i * 977 + 50) % 16000;
    return golden_request(c->ids, c->n, TOKENS, i % 2 == 0 ? 0.8f : 0.0f, (uint64_t)i);
}

static void on_token(void *user, const vb_token_event *t) {
    caller *c = user;
    (void)t;
    if (++c->tokens == c->cancel_at) vb_async_cancel(c->call);
}

static void on_done(void *user, vb_result *result, const vb_error *err) {
    caller *c = user;
    if (result != NULL) c->crowd = *result;
    else printf("%s\n", err->text);
    atomic_store(&c->done, true);
}

static void wait_for(caller *c) {
    for (int32_t i = 0; i < 60000 && !atomic_load(&c->done); i++) (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_true(atomic_load(&c->done));
}

/* Each request wants most of the pool: the bytes are those of each alone, and what is computed twice stays little. */
static void few_pages(void **state) {
    (void)state;
    vb_error err = {0};
    vb_call_options o[REQUESTS];
    vb_call *calls[REQUESTS];
    vb_async *a;
    vb_async_stats s;
    int64_t needed = 0;
    memset(callers, 0, sizeof callers);
    vb_model *m = open_with(1, PAGES, CTX, "none", 0);
    for (int32_t i = 0; i < REQUESTS; i++) {
        o[i] = (vb_call_options){.request = request_of(&callers[i], i), .on_token = on_token, .on_done = on_done, .user = &callers[i]};
        assert_int_equal(vb_generate(m, &o[i].request, &callers[i].alone, &err), VB_OK);
        needed += callers[i].n + TOKENS;
    }
    vb_model_close(m);
    m = open_with(REQUESTS, PAGES, CTX, "none", 0);
    const vb_async_options ao = {.queue = 0};
    assert_int_equal(vb_async_start(m, &ao, &a, &err), VB_OK);
    assert_int_equal(vb_async_submit(a, o, REQUESTS, calls, NULL, &err), VB_OK);
    for (int32_t i = 0; i < REQUESTS; i++) {
        wait_for(&callers[i]);
        assert_int_equal(callers[i].crowd.count, TOKENS);
        assert_memory_equal(callers[i].crowd.ids, callers[i].alone.ids, TOKENS * sizeof(int32_t));
        assert_string_equal(callers[i].crowd.logits_sha256, callers[i].alone.logits_sha256);
    }
    vb_async_get_stats(a, &s);
    printf("%lld rows run, %lld needed, gave way %lld times\n", (long long)s.rows, (long long)needed, (long long)s.gave_way);
    assert_true(s.rows <= needed + needed / 2);
    assert_true(s.gave_way <= 2 * REQUESTS);
    vb_async_stop(a);
    for (int32_t i = 0; i < REQUESTS; i++) {
        vb_async_cancel(calls[i]); /* any time until it is released */
        vb_call_release(calls[i]);
        vb_result_fini(&callers[i].alone);
        vb_result_fini(&callers[i].crowd);
    }
    vb_model_close(m);
}

/* ---- Cancelling --------------------------------------------------------------------------------------------------- */

typedef struct reader {
    int32_t calls, last;
} reader;

static bool on_text(void *user, const char *text, size_t len) {
    reader *r = user;
    (void)text;
    (void)len;
    return ++r->calls < r->last;
}

/* How much there is does not depend on how many drafts were right when the reader had enough. */
static void cancelled_at_a_token(void **state) {
    (void)state;
    static const char text[] = "int a = 1; int b = 2; int c = 3; int d = 4; int e = 5; int a = 1; int b = 2;";
    static const char *const drafts[] = {"none", "dflash", "lookup"};
    vb_error err = {0};
    int32_t count[3], *ids, n;
    for (int32_t k = 0; k < 3; k++) {
        vb_model *m = open_with(1, 0, CTX, drafts[k], k == 0 ? 0 : 16);
        assert_int_equal(vb_tokenize(m, text, sizeof text - 1, true, true, false, &ids, &n, &err), VB_OK);
        reader who = {.last = 3};
        vb_request r;
        vb_request_init(&r);
        r.prompt_ids = ids;
        r.prompt_count = n;
        r.max_tokens = 40;
        r.on_text = on_text;
        r.user = &who;
        vb_result result;
        assert_int_equal(vb_generate(m, &r, &result, &err), VB_OK);
        assert_int_equal(result.finish, VB_FINISH_CANCELLED);
        assert_int_equal(who.calls, 3);
        count[k] = result.count;
        vb_result_fini(&result);
        vb_async *a;
        const vb_async_options ao = {.queue = 0};
        caller c = {.cancel_at = 3};
        r.on_text = NULL;
        const vb_call_options o = {.request = r, .on_token = on_token, .on_done = on_done, .user = &c};
        assert_int_equal(vb_async_start(m, &ao, &a, &err), VB_OK);
        assert_int_equal(vb_async_submit(a, &o, 1, &c.call, NULL, &err), VB_OK);
        wait_for(&c);
        assert_int_equal(c.crowd.finish, VB_FINISH_CANCELLED);
        assert_int_equal(c.crowd.count, 3);
        assert_int_equal(c.tokens, 3);
        vb_async_stop(a);
        vb_call_release(c.call);
        vb_result_fini(&c.crowd);
        vb_model_close(m);
        vb_ids_free(ids);
    }
    assert_int_equal(count[1], count[0]);
    assert_int_equal(count[2], count[0]);
}

/* ---- Arguments ----------------------------------------------------------------------------------------------------- */

static void refuse(vb_model *m, const vb_request *r, vb_err code, const char *says) {
    vb_error err = {0};
    vb_result result = {0};
    vb_err got = vb_generate(m, r, &result, &err);
    if (got != code || strstr(err.text, says) == NULL) fail_msg("%d %s, expected %d ...%s...", (int)got, err.text, (int)code, says);
    vb_async *a;
    const vb_async_options ao = {.queue = 0};
    assert_int_equal(vb_async_start(m, &ao, &a, &err), VB_OK);
    const vb_call_options o = {.request = *r, .on_done = on_done};
    vb_call *call;
    got = vb_async_submit(a, &o, 1, &call, NULL, &err);
    if (got != code || strstr(err.text, says) == NULL) fail_msg("async: %d %s, expected %d ...%s...", (int)got, err.text, (int)code, says);
    vb_async_stop(a);
}

static void wrong_arguments(void **state) {
    (void)state;
    int32_t ids[65];
    for (int32_t i = 0; i < 65; i++) ids[i] = 100 + i;
    vb_model *m = open_with(1, 1, 64, "none", 0);
    vb_logit_bias bias = {16384, 1.0f};
    vb_request good, r;
    vb_request_init(&good);
    good.prompt_ids = ids;
    good.prompt_count = 8;
    good.max_tokens = 1;
    r = good, r.prompt_ids = NULL, refuse(m, &r, VB_E_ARGUMENT, "prompt");
    r = good, r.prompt_count = 0, refuse(m, &r, VB_E_ARGUMENT, "prompt");
    r = good, r.prompt_count = 64, refuse(m, &r, VB_E_CONTEXT_FULL, "64 tokens > 63 maximum");
    r = good, r.prompt_count = INT_MAX, refuse(m, &r, VB_E_CONTEXT_FULL, "> 63 maximum");
    r = good, r.prompt_count = 65, r.max_tokens = 0, refuse(m, &r, VB_E_CONTEXT_FULL, "65 tokens > 64 maximum");
    r = good, r.n_logit_bias = -1, refuse(m, &r, VB_E_ARGUMENT, "logit_bias");
    r = good, r.n_logit_bias = 1, refuse(m, &r, VB_E_ARGUMENT, "logit_bias");
    r.logit_bias = &bias, refuse(m, &r, VB_E_RANGE, "logit_bias");
    r = good, r.n_prediction = -1, refuse(m, &r, VB_E_ARGUMENT, "prediction");
    r = good, r.n_stops = 1, refuse(m, &r, VB_E_ARGUMENT, "stop");
    r.stops[0] = "", refuse(m, &r, VB_E_ARGUMENT, "stop");
    r = good, r.n_stops = VB_MAX_STOPS + 1, refuse(m, &r, VB_E_RANGE, "stop");
    r = good, r.top_logprobs = 21, refuse(m, &r, VB_E_RANGE, "top_logprobs");
    r = good, r.sampling.set = VB_SET_TEMPERATURE, r.sampling.temperature = NAN, refuse(m, &r, VB_E_RANGE, "temperature");
    /* A prompt as long as the context, and as the pool, runs when nothing shall follow it. */
    vb_error err = {0};
    vb_result result;
    r = good, r.prompt_count = 64, r.max_tokens = 0;
    if (vb_generate(m, &r, &result, &err) != VB_OK) fail_msg("%s", err.text);
    assert_int_equal(result.count, 0);
    vb_result_fini(&result);
    vb_model_close(m);
    vb_model_options o = golden_options(NULL, 0);
    o.kv_pages = INT64_MAX;
    assert_int_equal(vb_model_open(&o, &m, &err), VB_E_RANGE);
    o.kv_pages = -1;
    assert_int_equal(vb_model_open(&o, &m, &err), VB_E_RANGE);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(few_pages), cmocka_unit_test(cancelled_at_a_token), cmocka_unit_test(wrong_arguments)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
