/* Sampling: values of the Python oracle (tools/oracle/sampler.py), a plain sorted implementation on random
 * rows, and properties. `--bench` times a large vocabulary. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fp_env.h"
#include "base/json.h"
#include "base/philox.h"
#include "base/vmath.h"
#include "engine/sampler.h"
#include "engine/sampling_options.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const vb_sampling g_plain = {.set = 0xff, .top_p = 1.0f, .repeat_penalty = 1.0f};

static uint64_t g_seed = 12345;
static uint32_t rnd(void) {
    g_seed = g_seed * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(g_seed >> 32);
}
static float uniform(void) {
    return (float)(rnd() >> 8) * 0x1p-24f;
}
static float bell(void) {
    return (uniform() + uniform() + uniform() + uniform() - 2.0f) * 1.7f;
}

static vb__sampler *make(int32_t vocab) {
    vb__sampler *s = NULL;
    assert_int_equal(vb__sampler_create(vocab, &s, NULL), VB_OK);
    return s;
}

static vb__sample pick(vb__sampler *s, vb__sample_row r) {
    vb__sample out;
    vb_error err;
    if (vb__sampler_pick(s, &r, &out, &err) != VB_OK) fail_msg("%s", err.text);
    return out;
}

static void philox_has_the_published_values(void **state) {
    (void)state;
    static const struct {
        uint32_t c[4], k[2], want[4];
    } v[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        uint32_t out[4];
        vb__philox4x32(v[i].c, v[i].k, out);
        assert_memory_equal(out, v[i].want, sizeof out);
    }
}

/* ---- The oracle's cases -------------------------------------------------------------------------------- */

static double number_or(const json_t *o, const char *key, double fallback) {
    const json_t *v = json_object_get(o, key);
    return v ? json_number_value(v) : fallback;
}

static uint32_t *mask_without(const json_t *ids, int32_t vocab) {
    if (!ids) return NULL;
    uint32_t *m = malloc(((size_t)vocab + 31) / 32 * 4);
    memset(m, 0xff, ((size_t)vocab + 31) / 32 * 4);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        int64_t id = json_integer_value(json_array_get(ids, i));
        m[id / 32] &= ~(1u << id % 32);
    }
    return m;
}

static void one_case(const json_t *c, const json_t *rows) {
    const char *hex = json_string_value(json_array_get(rows, (size_t)number_or(c, "row", 0)));
    int32_t vocab = (int32_t)(strlen(hex) / 8);
    float *x = malloc((size_t)vocab * sizeof *x); /* exact size: a read past the end is an error under ASan */
    for (int32_t i = 0; i < vocab; i++) {
        char one[9] = {0};
        memcpy(one, hex + 8 * (size_t)i, 8);
        x[i] = vb__float32((uint32_t)strtoul(one, NULL, 16));
    }
    vb_sampling o = g_plain;
    o.temperature = (float)number_or(c, "temperature", 0);
    o.top_k = (int32_t)number_or(c, "top_k", 0);
    o.top_p = (float)number_or(c, "top_p", 1);
    o.min_p = (float)number_or(c, "min_p", 0);
    o.repeat_penalty = (float)number_or(c, "repeat_penalty", 1);
    o.presence_penalty = (float)number_or(c, "presence_penalty", 0);
    o.frequency_penalty = (float)number_or(c, "frequency_penalty", 0);
    o.seed = (uint64_t)json_integer_value(json_object_get(c, "seed"));
    vb__token_counts counts;
    assert_int_equal(vb__token_counts_init(&counts, vocab, NULL), VB_OK);
    size_t i;
    json_t *v;
    json_array_foreach(json_object_get(c, "prompt"), i, v) {
        int32_t id = (int32_t)json_integer_value(v);
        assert_int_equal(vb__token_counts_prompt(&counts, &id, 1), VB_OK);
    }
    json_array_foreach(json_object_get(c, "answer"), i, v)
        assert_int_equal(vb__token_counts_push(&counts, (int32_t)json_integer_value(v)), VB_OK);
    vb_logit_bias bias[8];
    int32_t n_bias = 0;
    json_array_foreach(json_object_get(c, "bias"), i, v) bias[n_bias++] = (vb_logit_bias){
        (int32_t)json_integer_value(json_array_get(v, 0)), (float)json_number_value(json_array_get(v, 1))};
    uint32_t *tokens = mask_without(json_object_get(c, "no_token"), vocab);
    uint32_t *grammar = mask_without(json_object_get(c, "forbidden"), vocab);
    vb__sampler *s = make(vocab);
    vb__sample got = pick(s, (vb__sample_row){.logits = x,
                                              .options = &o,
                                              .token_mask = tokens,
                                              .grammar_mask = grammar,
                                              .bias = bias,
                                              .n_bias = n_bias,
                                              .counts = &counts,
                                              .position = (int64_t)number_or(c, "position", 0),
                                              .choice = (uint32_t)number_or(c, "choice", 0),
                                              .top_logprobs = (int32_t)number_or(c, "top_logprobs", 0)});
    const json_t *want = json_object_get(c, "want"), *top = json_object_get(want, "top");
    bool same = got.id == (int32_t)number_or(want, "id", -1) &&
                got.survivors == (int32_t)number_or(want, "survivors", -1) &&
                (double)vb__bits32(got.logprob) == number_or(want, "logprob", -1) &&
                (size_t)got.n_top == json_array_size(top);
    for (int32_t k = 0; same && k < got.n_top; k++) {
        const json_t *t = json_array_get(top, (size_t)k);
        same = got.top[k].id == json_integer_value(json_array_get(t, 0)) &&
               vb__bits32(got.top[k].logprob) == (uint32_t)json_integer_value(json_array_get(t, 1));
    }
    if (!same) {
        char *text = json_dumps(c, 0);
        fail_msg("id %d survivors %d logprob %u n_top %d in %s", got.id, got.survivors,
                 vb__bits32(got.logprob), got.n_top, text);
    }
    vb__sampler_destroy(s);
    vb__token_counts_fini(&counts);
    free(tokens);
    free(grammar);
    free(x);
}

static void the_oracle_agrees(void **state) {
    (void)state;
    json_t *root = NULL;
    vb_error err;
    if (vb__json_read(SOURCE_ROOT "/tests/data/sampler_cases.json", 64 << 20, NULL, &root, &err) != VB_OK)
        fail_msg("%s", err.text);
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(root, "cases"), i, c) one_case(c, json_object_get(root, "rows"));
    assert_true(i >= 200);
    json_decref(root);
}

/* ---- Large rows against a sort --------------------------------------------------------------------------
 */

static const float *g_order;
static int best_first(const void *a, const void *b) {
    int32_t i = *(const int32_t *)a, j = *(const int32_t *)b;
    if (g_order[i] != g_order[j]) return g_order[i] > g_order[j] ? -1 : 1;
    return i < j ? -1 : 1;
}

/* The contract with a sort, no masks or penalties. */
static int32_t by_sorting(const float *x, int32_t n, const vb_sampling *o, int64_t position,
                          int32_t *survivors, float *margin) {
    float *z = malloc((size_t)n * sizeof *z);
    int32_t *id = malloc((size_t)n * sizeof *id);
    for (int32_t i = 0; i < n; i++) z[i] = x[i] / o->temperature, id[i] = i;
    g_order = z;
    qsort(id, (size_t)n, sizeof *id, best_first);
    int32_t left = o->top_k > 0 && o->top_k < n ? o->top_k : n;
    float max = z[id[0]];
    if (o->top_p < 1.0f) {
        uint64_t sum = 0, cum = 0;
        for (int32_t i = 0; i < left; i++) sum += (uint64_t)llrint((double)vb__expf(z[id[i]] - max) * 0x1p40);
        for (int32_t i = 0; i < left; i++) {
            cum += (uint64_t)llrint((double)vb__expf(z[id[i]] - max) * 0x1p40);
            if ((double)cum >= (double)o->top_p * (double)sum) {
                left = i + 1;
                break;
            }
        }
    }
    while (left > 0 && vb__expf(z[id[left - 1]] - max) < o->min_p) left--;
    int32_t best = -1;
    float score = 0, second = -INFINITY;
    for (int32_t i = 0; i < left; i++) {
        uint32_t w[4];
        vb__philox4x32((uint32_t[]){(uint32_t)id[i] >> 2, (uint32_t)(position + 1), 0, 0},
                       (uint32_t[]){(uint32_t)o->seed, (uint32_t)(o->seed >> 32)}, w);
        uint32_t r = w[id[i] & 3];
        float v = fmaf((float)(r >> 16), 0x1p-16f, ((float)(r & 0xffff) + 0.5f) * 0x1p-32f);
        float g = z[id[i]] - vb__logf(-vb__log1pf(-v));
        if (best < 0) best = id[i], score = g;
        else if (g > score || (g == score && id[i] < best)) best = id[i], second = score, score = g;
        else if (g > second) second = g;
    }
    *margin = score - second;
    *survivors = left;
    free(z);
    free(id);
    return best;
}

static void a_greedy_margin_is_that_to_the_second(void **state) {
    (void)state;
    for (int round = 0; round < 200; round++) {
        int32_t n = 1 + (int32_t)(rnd() % 300), best = 0;
        float *x = malloc((size_t)n * sizeof *x), second = -INFINITY;
        for (int32_t i = 0; i < n; i++) {
            x[i] = floorf(bell() * 40.0f) * 0.25f; /* ties */
            if (x[i] > x[best]) best = i;
        }
        for (int32_t i = 0; i < n; i++)
            if (i != best && x[i] > second) second = x[i];
        vb_sampling o = g_plain;
        o.temperature = 0;
        vb__sampler *s = make(n);
        vb__sample got = pick(s, (vb__sample_row){.logits = x, .options = &o, .top_logprobs = -1, .wants_margin = true});
        assert_int_equal(got.id, best);
        assert_true(got.margin == x[best] - second);
        got = pick(s, (vb__sample_row){.options = &o, .top_logprobs = -1, .known_best = true, .best = 3, .margin = 1.5f});
        assert_true(got.id == 3 && got.margin == 1.5f);
        vb__sampler_destroy(s);
        free(x);
    }
}

static void large_rows_agree_with_a_sort(void **state) {
    (void)state;
    uint32_t csr = vb__fp_enter();
    static const int32_t sizes[] = {63, 64, 65, 1000, 4096, 20011};
    for (int round = 0; round < 150; round++) {
        int32_t n = sizes[round % 6];
        float *x = malloc((size_t)n * sizeof *x);
        int shape = (int)(rnd() % 6);
        for (int32_t i = 0; i < n; i++) {
            x[i] = shape == 0   ? bell() * 3.0f
                   : shape == 1 ? floorf(bell() * 4.0f)  /* many ties */
                   : shape == 2 ? (float)i * 0.001f      /* ascending */
                   : shape == 3 ? (float)(n - i) * 0.01f /* descending */
                   : shape == 4 ? (rnd() % 50 ? -20.0f : bell())
                                : -0.0f * uniform();
        }
        vb_sampling o = g_plain;
        o.temperature = 0.3f + uniform() * 1.5f;
        if (rnd() & 1) o.top_k = (int32_t)(rnd() % (rnd() & 1 ? 64 : (uint32_t)n + 2));
        if (rnd() & 1) o.top_p = uniform();
        if (rnd() % 3 == 0) o.min_p = uniform() * 0.2f;
        o.seed = (uint64_t)rnd() << 32 | rnd();
        vb__sampler *s = make(n);
        float margin;
        vb__sample got =
            pick(s, (vb__sample_row){.logits = x, .options = &o, .position = round, .top_logprobs = -1});
        vb__sample sure = pick(s, (vb__sample_row){.logits = x, .options = &o, .position = round, .top_logprobs = -1, .wants_margin = true});
        int32_t survivors, want = by_sorting(x, n, &o, round, &survivors, &margin);
        if (sure.id != got.id || sure.margin != margin)
            fail_msg("round %d n %d shape %d: id %d margin %a, want %d %a", round, n, shape, sure.id, (double)sure.margin, got.id, (double)margin);
        if (got.id != want || got.survivors != survivors)
            fail_msg("round %d n %d shape %d k %d p %a min %a: id %d of %d, want %d of %d", round, n, shape,
                     o.top_k, (double)o.top_p, (double)o.min_p, got.id, got.survivors, want, survivors);
        vb__sampler_destroy(s);
        free(x);
    }
    vb__fp_leave(csr);
}

/* ---- Properties -----------------------------------------------------------------------------------------
 */

static void edges(void **state) {
    (void)state;
    float x[70];
    for (int i = 0; i < 70; i++) x[i] = (float)(i % 7);
    vb__sampler *s = make(70);
    vb_sampling o = g_plain;
    vb__sample_row r = {.logits = x, .options = &o, .top_logprobs = -1};
    assert_int_equal(pick(s, r).id, 6); /* greedy, ties to the lower id */
    /* a known argmax is believed only where it decides: the row holds another one to tell */
    r.known_best = true;
    r.best = 13;
    assert_int_equal(pick(s, r).id, 13);
    uint32_t no13[3] = {~(1u << 13), ~0u, ~0u};
    r.token_mask = no13;
    assert_int_equal(pick(s, r).id, 6);
    r.token_mask = NULL;
    r.grammar_mask = no13;
    assert_int_equal(pick(s, r).id, 6);
    r.grammar_mask = NULL;
    r.top_logprobs = 1;
    assert_int_equal(pick(s, r).n_top, 1);
    r.top_logprobs = -1;
    vb_logit_bias up = {20, 1.0f};
    r.bias = &up;
    r.n_bias = 1;
    assert_int_equal(pick(s, r).id, 20);
    r.n_bias = 0;
    r.known_best = false;
    o.temperature = 1.0f;
    assert_int_equal(pick(s, r).survivors, 70);
    o.top_k = 12;
    assert_int_equal(pick(s, r).survivors, 12);
    o.top_k = -5;
    o.top_p = 0.0f;
    assert_int_equal(pick(s, r).survivors, 1);
    assert_int_equal(pick(s, r).id, 6);
    o.top_p = 1.0f;
    o.min_p = 1.0f;
    assert_int_equal(pick(s, r).survivors, 10); /* all that tie with the best */
    o.min_p = 0.0f;
    uint32_t mask[3] = {0, 1u << 3, 0};
    r.grammar_mask = mask;
    assert_int_equal(pick(s, r).id, 35); /* sole survivor */
    assert_int_equal(pick(s, r).survivors, 1);
    mask[1] = 0;
    vb__sample out;
    vb_error err;
    assert_int_equal(vb__sampler_pick(s, &r, &out, &err), VB_E_NOT_FOUND);
    r.grammar_mask = NULL;
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        for (int i = 0; i < 70; i += 23) {
            float old = x[i];
            x[i] = bad[k];
            o.temperature = (float)(k & 1);
            assert_int_equal(vb__sampler_pick(s, &r, &out, &err), VB_E_NONFINITE);
            x[i] = old;
        }
    }
    o.temperature = 1e-3f;
    x[5] = 3e38f;
    assert_int_equal(vb__sampler_pick(s, &r, &out, &err), VB_E_NONFINITE); /* left the range on the way */
    vb__sampler_destroy(s);
    assert_int_equal(vb__sampler_create(0, &s, &err), VB_E_RANGE);
    assert_int_equal(vb__sampler_create((1 << 22) + 1, &s, &err), VB_E_RANGE);
    for (uint64_t n = 1; n <= 7; n++) {
        vb__alloc_fail_at(n, false);
        assert_int_equal(vb__sampler_create(100, &s, &err), VB_E_MEMORY);
        vb__alloc_fail_at(0, false);
    }
}

static void nothing_is_allocated_per_token(void **state) {
    (void)state;
    enum { V = 5000 };
    static float x[V];
    for (int i = 0; i < V; i++) x[i] = bell() * 3;
    vb__sampler *s = make(V);
    vb__token_counts c;
    assert_int_equal(vb__token_counts_init(&c, 400, NULL), VB_OK);
    vb_sampling o = g_plain;
    o.temperature = 1.0f;
    o.top_p = 0.9f;
    o.presence_penalty = 0.3f;
    o.repeat_penalty = 1.1f;
    uint64_t before = vb__alloc_calls();
    for (int i = 0; i < 200; i++) {
        o.top_k = i & 1 ? 20 : 0;
        vb__sample v = pick(
            s, (vb__sample_row){.logits = x, .options = &o, .counts = &c, .position = i, .top_logprobs = 20});
        assert_int_equal(vb__token_counts_push(&c, v.id), VB_OK);
    }
    assert_true(vb__alloc_calls() == before);
    vb__token_counts_fini(&c);
    vb__sampler_destroy(s);
}

/* A block that evaluates guesses and takes them back leaves the history as plain decoding would have it. */
static void a_block_rolls_back(void **state) {
    (void)state;
    enum { V = 50, N = 4000 };
    vb__token_counts a, b;
    assert_int_equal(vb__token_counts_init(&a, V, NULL), VB_OK);
    assert_int_equal(vb__token_counts_init(&b, V, NULL), VB_OK);
    int32_t prompt[30];
    for (int i = 0; i < 30; i++) prompt[i] = (int32_t)(rnd() % 20);
    assert_int_equal(vb__token_counts_prompt(&a, prompt, 30), VB_OK);
    assert_int_equal(vb__token_counts_prompt(&b, prompt, 30), VB_OK);
    for (int k = 0; k < N; k++) {
        int32_t block[8], n = (int32_t)(rnd() % 9);
        for (int i = 0; i < n; i++) {
            block[i] = (int32_t)(rnd() % V);
            assert_int_equal(vb__token_counts_push(&a, block[i]), VB_OK);
        }
        int32_t keep = n ? (int32_t)(rnd() % (uint32_t)(n + 1)) : 0;
        if (k % 3) keep = 0;
        for (int i = n; i-- > keep;) vb__token_counts_pop(&a, block[i]);
        for (int i = 0; i < keep; i++) assert_int_equal(vb__token_counts_push(&b, block[i]), VB_OK);
        for (int32_t id = 0; id < V; id++) {
            const vb__token_count *p = vb__token_counts_find(&a, id), *q = vb__token_counts_find(&b, id);
            assert_true(!p == !q);
            if (p) assert_true(p->prompt == q->prompt && p->answer == q->answer);
        }
    }
    assert_true(a.n == b.n);
    vb__token_counts_clear(&a);
    assert_null(vb__token_counts_find(&a, 3));
    vb__token_counts_fini(&a);
    vb__token_counts_fini(&b);
    assert_int_equal(vb__token_counts_init(&a, 2, NULL), VB_OK);
    assert_int_equal(vb__token_counts_push(&a, 7), VB_OK);
    assert_int_equal(vb__token_counts_push(&a, 9), VB_OK);
    assert_int_equal(vb__token_counts_push(&a, 7), VB_OK);
    assert_int_equal(vb__token_counts_push(&a, 8), VB_E_LIMIT);
    vb__token_counts_fini(&a);
}

/* Draws follow the softmax: chi-square over 12 tokens and 20000 positions at a fixed seed, 11 degrees of
 * freedom (31.3 is passed with probability 0.001). The next seed and the next choice draw other tokens. */
static void draws_follow_the_distribution(void **state) {
    (void)state;
    enum { V = 12, N = 20000 };
    float x[V];
    double p[V], sum = 0, count[V] = {0}, chi = 0;
    for (int i = 0; i < V; i++) x[i] = (float)((i * 5) % 12) * 0.3f;
    for (int i = 0; i < V; i++) sum += p[i] = exp((double)x[i] / 0.8);
    vb__sampler *s = make(V);
    vb_sampling o = g_plain;
    o.temperature = 0.8f;
    o.seed = 42;
    int other_seed = 0, other_choice = 0;
    for (int k = 0; k < N; k++) {
        vb__sample_row r = {.logits = x, .options = &o, .position = k, .top_logprobs = -1};
        int32_t id = pick(s, r).id;
        count[id] += 1;
        assert_int_equal(pick(s, r).id, id);
        r.choice = 1;
        other_choice += pick(s, r).id != id;
        r.choice = 0;
        o.seed = 43;
        other_seed += pick(s, r).id != id;
        o.seed = 42;
    }
    for (int i = 0; i < V; i++)
        chi += (count[i] - N * p[i] / sum) * (count[i] - N * p[i] / sum) / (N * p[i] / sum);
    printf("sampler: chi-square %.1f with 11 degrees of freedom\n", chi);
    assert_true(chi < 31.3);
    assert_true(other_seed > N / 2 && other_choice > N / 2);
    vb__sampler_destroy(s);
}

static void logprobs_are_of_the_raw_row(void **state) {
    (void)state;
    enum { V = 1000 };
    static float x[V];
    double sum = 0;
    for (int i = 0; i < V; i++) x[i] = bell() * 4;
    for (int i = 0; i < V; i++) sum += exp((double)x[i]);
    vb__sampler *s = make(V);
    vb_sampling o = g_plain;
    vb_logit_bias bias = {17, 100.0f};
    vb__sample v =
        pick(s, (vb__sample_row){.logits = x, .options = &o, .bias = &bias, .n_bias = 1, .top_logprobs = 20});
    assert_int_equal(v.id, 17);
    assert_true(fabs((double)v.logprob - ((double)x[17] - log(sum))) < 1e-5);
    assert_int_equal(v.n_top, 20);
    for (int i = 1; i < 20; i++) assert_true(v.top[i - 1].logprob >= v.top[i].logprob);
    assert_true(vb__bits32(x[17] - vb__log_normaliser(x, V)) == vb__bits32(v.logprob));
    vb__sampler_destroy(s);
}

static void options_resolve_one_by_one(void **state) {
    (void)state;
    vb_error err;
    static const char text[] = "{\"do_sample\": true, \"temperature\": 0.7, \"top_p\": 0.95, \"top_k\": 20, "
                               "\"eos_token_id\": [5, 7],"
                               "\"repetition_penalty\": 1.05, \"other\": null}";
    vb__generation_config g;
    assert_int_equal(vb__generation_config_parse(text, strlen(text), "g.json", &g, &err), VB_OK);
    assert_true(g.n_eos == 2 && g.eos[0] == 5 && g.eos[1] == 7 && g.sampling.top_k == 20);
    vb_sampling flags = {.set = VB_SET_TOP_K, .top_k = 7},
                request = {.set = VB_SET_TEMPERATURE | VB_SET_SEED, .temperature = 0.2f, .seed = 9}, out;
    assert_int_equal(vb__sampling_resolve(&request, &flags, &g.sampling, &out, &err), VB_OK);
    assert_true(out.temperature == 0.2f && out.top_k == 7 && out.top_p == 0.95f && out.min_p == 0.0f);
    assert_true(out.repeat_penalty == 1.05f && out.presence_penalty == 0.0f && out.seed == 9 &&
                out.set == 0xff);
    assert_int_equal(vb__sampling_resolve(NULL, NULL, NULL, &out, &err), VB_OK);
    assert_true(out.temperature == 0.0f && out.top_k == 0 && out.top_p == 1.0f && out.repeat_penalty == 1.0f);
    uint64_t seed = out.seed;
    assert_int_equal(vb__sampling_resolve(NULL, NULL, NULL, &out, &err), VB_OK);
    assert_true(out.seed != seed && out.seed < 1ull << 53);
    request = (vb_sampling){.set = VB_SET_TOP_P, .top_p = NAN};
    assert_int_equal(vb__sampling_resolve(&request, NULL, NULL, &out, &err), VB_E_RANGE);
    assert_non_null(strstr(err.text, "top_p"));
    static const struct {
        const char *text, *field;
        float temperature;
    } v[] = {{"{}", NULL, 0},
             {"{\"do_sample\": false, \"temperature\": 0.9}", NULL, 0},
             {"{\"do_sample\": true}", NULL, 1},
             {"{\"temperature\": \"hot\"}", "temperature", 0},
             {"{\"top_k\": 1.5}", "top_k", 0},
             {"{\"top_p\": 2}", "top_p", 0},
             {"{\"eos_token_id\": [1, -1]}", "eos_token_id[1]", 0},
             {"{\"eos_token_id\": \"x\"}", "eos_token_id", 0},
             {"[]", "g.json", 0},
             {"{\"eos_token_id\": 12}", NULL, 0}};
    for (size_t i = 0; i < sizeof v / sizeof v[0]; i++) {
        vb_err e = vb__generation_config_parse(v[i].text, strlen(v[i].text), "g.json", &g, &err);
        if (v[i].field) {
            assert_int_not_equal(e, VB_OK);
            assert_non_null(strstr(err.text, v[i].field));
        } else {
            assert_int_equal(e, VB_OK);
            assert_int_equal(vb__sampling_resolve(NULL, NULL, &g.sampling, &out, &err), VB_OK);
            assert_true(out.temperature == v[i].temperature);
        }
    }
    assert_int_equal(vb__generation_config_read("/nonexistent", &g, &err), VB_OK);
    assert_true(g.sampling.set == 0 && g.n_eos == 0);
    vb_logit_bias b = {100, 1.0f};
    assert_int_equal(vb__logit_bias_check(&b, 1, 101, &err), VB_OK);
    assert_int_equal(vb__logit_bias_check(&b, 1, 100, &err), VB_E_RANGE);
    b.bias = INFINITY;
    assert_int_equal(vb__logit_bias_check(&b, 1, 101, &err), VB_E_RANGE);
}

static void bench(void) {
    enum { V = 248320 };
    float *x = malloc(V * sizeof *x);
    for (int i = 0; i < V; i++) x[i] = bell() * 3;
    vb__sampler *s = make(V);
    static uint32_t mask[V / 32];
    memset(mask, 0xff, sizeof mask - 32);
    static const struct {
        const char *name;
        float t;
        int32_t k;
        float p, min_p;
        int32_t lp;
    } v[] = {{"greedy", 0, 0, 1, 0, -1},
             {"temp 0.8 top-k 20 top-p 0.95", 0.8f, 20, 0.95f, 0, -1},
             {"temp 0.8 top-p 0.95", 0.8f, 0, 0.95f, 0, -1},
             {"temp 0.8 min-p 0.05", 0.8f, 0, 1, 0.05f, -1},
             {"temp 1", 1, 0, 1, 0, -1},
             {"greedy, 20 logprobs", 0, 0, 1, 0, 20},
             {"temp 0.8 top-k 5000", 0.8f, 5000, 1, 0, -1}};
    for (size_t c = 0; c < sizeof v / sizeof v[0]; c++) {
        vb_sampling o = g_plain;
        o.temperature = v[c].t;
        o.top_k = v[c].k;
        o.top_p = v[c].p;
        o.min_p = v[c].min_p;
        double best = 1e9;
        for (int i = 0; i < 60; i++) {
            double t = vb__now();
            (void)pick(
                s,
                (vb__sample_row){
                    .logits = x, .options = &o, .token_mask = mask, .position = i, .top_logprobs = v[c].lp});
            t = vb__now() - t;
            if (t < best) best = t;
        }
        printf("%-30s %7.1f us of %d logits\n", v[c].name, best * 1e6, (int)V);
    }
    vb__sampler_destroy(s);
    free(x);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) {
        bench();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_has_the_published_values), cmocka_unit_test(the_oracle_agrees),
        cmocka_unit_test(a_greedy_margin_is_that_to_the_second),
        cmocka_unit_test(large_rows_agree_with_a_sort), cmocka_unit_test(edges),
        cmocka_unit_test(nothing_is_allocated_per_token),  cmocka_unit_test(a_block_rolls_back),
        cmocka_unit_test(draws_follow_the_distribution),   cmocka_unit_test(logprobs_are_of_the_raw_row),
        cmocka_unit_test(options_resolve_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
