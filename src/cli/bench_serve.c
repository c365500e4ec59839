#include "cli/bench_serve.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "cli/commands.h"
#include "cli/report.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ARMS = 8, MOST = 16, REPEATS_MAX = 32 };

static const char *const prompts[] = {
    "Count from one to twenty.",
    "Write a C function that returns the larger of two integers, and explain each line of it.",
    "Explain what a linked list is.",
    "int main(int argc, char **argv) {\n    for (int i = 1; i < argc; i++) {\n        puts(argv[i]);\n    }\n    return 0;\n}\n\nRepeat this program.",
};

typedef struct one_call {
    struct bench *b;
    double handed_in, first;
    int32_t tokens;
    int64_t proposed, accepted;
    vb_error error;
} one_call;

typedef struct bench {
    vb_async *async;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int32_t left;
    one_call calls[MOST];
} bench;

typedef struct arm {
    int32_t concurrency;
    const char *draft;
    double rate[REPEATS_MAX], first[REPEATS_MAX]; /* tokens per second of all together; mean seconds to the first token */
    int64_t proposed, accepted;
} arm;

static void on_token(void *user, const vb_token_event *t) {
    one_call *c = user;
    (void)t;
    if (c->first == 0) c->first = vb__now();
}

static void on_done(void *user, vb_result *r, const vb_error *err) {
    one_call *c = user;
    if (r != NULL) {
        c->tokens = r->count;
        c->proposed = r->proposed;
        c->accepted = r->accepted;
        vb_result_fini(r);
    } else {
        c->error = *err;
    }
    pthread_mutex_lock(&c->b->lock);
    c->b->left--;
    pthread_cond_signal(&c->b->wake);
    pthread_mutex_unlock(&c->b->lock);
}

typedef struct prompt_ids {
    int32_t *ids, count;
} prompt_ids;

static vb_err run_arm(bench *b, const prompt_ids *p, arm *a, int32_t tokens, int32_t repeat, vb_error *err) {
    vb_call *calls[MOST] = {NULL};
    vb_err e = VB_OK;
    double t0 = vb__now(), first = 0;
    int64_t total = 0;
    int32_t made = 0;
    memset(b->calls, 0, sizeof b->calls);
    b->left = a->concurrency;
    for (; made < a->concurrency; made++) {
        one_call *c = &b->calls[made];
        vb_call_options o = {.on_token = on_token, .on_done = on_done, .user = c};
        vb_request_init(&o.request);
        const prompt_ids *q = &p[(made + repeat) % (int32_t)(sizeof prompts / sizeof prompts[0])];
        o.request.prompt_ids = q->ids;
        o.request.prompt_count = q->count;
        o.request.max_tokens = tokens;
        o.request.ignore_eos = true;
        o.request.draft = a->draft;
        o.request.sampling = (vb_sampling){.set = VB_SET_TEMPERATURE};
        c->b = b;
        c->handed_in = vb__now();
        e = vb_async_submit(b->async, &o, 1, &calls[made], NULL, err);
        if (e != VB_OK) break;
    }
    pthread_mutex_lock(&b->lock);
    b->left -= a->concurrency - made;
    while (b->left > 0) pthread_cond_wait(&b->wake, &b->lock);
    pthread_mutex_unlock(&b->lock);
    double seconds = vb__now() - t0;
    for (int32_t i = 0; i < made; i++) {
        const one_call *c = &b->calls[i];
        vb_call_release(calls[i]);
        if (e == VB_OK && c->error.code != VB_OK) e = vb__fail(err, c->error.code, "%s", c->error.text);
        total += c->tokens;
        first += c->first - c->handed_in;
        a->proposed += c->proposed;
        a->accepted += c->accepted;
    }
    VB_TRY(e);
    a->rate[repeat] = (double)total / seconds;
    a->first[repeat] = first / a->concurrency;
    return VB_OK;
}

static int by_value(const void *x, const void *y) {
    double a = *(const double *)x, b = *(const double *)y;
    return a < b ? -1 : a > b;
}

static double median(const double *v, int32_t n) {
    double s[REPEATS_MAX];
    memcpy(s, v, (size_t)n * sizeof *s);
    qsort(s, (size_t)n, sizeof *s, by_value);
    return n % 2 == 1 ? s[n / 2] : (s[n / 2 - 1] + s[n / 2]) / 2;
}

/* Largest less smallest, as a share of the median. */
static double spread(const double *v, int32_t n) {
    double lo = v[0], hi = v[0];
    for (int32_t i = 1; i < n; i++) {
        lo = v[i] < lo ? v[i] : lo;
        hi = v[i] > hi ? v[i] : hi;
    }
    return (hi - lo) / median(v, n);
}

static vb_err print(const vb_model *m, const arm *arms, int32_t repeats, int32_t tokens, bool json, vb_error *err) {
    vb_model_info info;
    vb_model_get_info(m, &info);
    json_t *rows = json_array();
    double one = median(arms[0].rate, repeats), eight = 0;
    if (!json)
        printf("%-12s %-8s %10s %8s %8s %14s %10s\n", "at a time", "drafters", "tokens/s", "spread", "ratio", "first token", "accepted");
    for (int32_t i = 0; i < ARMS; i++) {
        const arm *a = &arms[i];
        double rate = median(a->rate, repeats), first = median(a->first, repeats);
        double accepted = a->proposed > 0 ? (double)a->accepted / (double)a->proposed : 0;
        if (a->concurrency == 8 && strcmp(a->draft, "none") == 0) eight = rate;
        if (!json)
            printf("%-12d %-8s %10.1f %7.0f%% %7.2fx %12.0fms %9.0f%%\n", a->concurrency, a->draft, rate, 100 * spread(a->rate, repeats), rate / one,
                   1000 * first, 100 * accepted);
        json_array_append_new(rows, json_pack("{s:i, s:s, s:f, s:f, s:f, s:f, s:f}", "concurrency", (int)a->concurrency, "draft", a->draft,
                                              "tokens_per_s", rate, "spread", spread(a->rate, repeats), "ratio", rate / one, "first_token_s", first,
                                              "accepted", accepted));
    }
    if (!json) printf("eight requests together: %.2f times the tokens per second of one (medians of %d)\n", eight / one, repeats);
    if (!json) {
        json_decref(rows);
        return VB_OK;
    }
    return vb__print_json(json_pack("{s:s, s:b, s:o, s:i, s:i, s:f}", "level", info.level, "vnni", info.vnni, "arms", rows, "tokens", (int)tokens, "repeats", (int)repeats, "eight_to_one", eight / one), err);
}

vb_err vb__bench_serve(const vb_model_options *given, int32_t tokens, int32_t repeats, bool json, vb_error *err) {
    static const int32_t concurrency[ARMS / 2] = {1, 4, 8, 16};
    enum { PROMPTS = sizeof prompts / sizeof prompts[0] };
    prompt_ids ids[PROMPTS] = {{NULL, 0}};
    vb_model *m = NULL;
    vb_model_options o = *given;
    bench b = {.left = 0};
    vb_err e = VB_OK;
    if (tokens <= 0) tokens = 128;
    if (repeats <= 0) repeats = 3;
    if (repeats > REPEATS_MAX) repeats = REPEATS_MAX;
    o.parallel = MOST;
    if (o.ctx == 0) o.ctx = 512 + tokens;
    arm *arms = vb__calloc(VB_TAG_MISC, ARMS, sizeof *arms);
    if (arms == NULL) return vb__fail(err, VB_E_MEMORY, "bench: out of memory");
    for (int32_t i = 0; i < ARMS; i++) {
        arms[i].concurrency = concurrency[i / 2];
        arms[i].draft = i % 2 == 0 ? "none" : "auto";
    }
    pthread_mutex_init(&b.lock, NULL);
    pthread_cond_init(&b.wake, NULL);
    VB_TRY_OUT(vb_model_open(&o, &m, err));
    for (int32_t i = 0; i < PROMPTS; i++)
        VB_TRY_OUT(vb_tokenize(m, prompts[i], strlen(prompts[i]), true, true, true, &ids[i].ids, &ids[i].count, err));
    const vb_async_options ao = {.queue = MOST};
    VB_TRY_OUT(vb_async_start(m, &ao, &b.async, err));
    /* The first round warms caches and lets the gate finish; it does not count. */
    for (int32_t r = -1; r < repeats; r++)
        for (int32_t i = 0; i < ARMS; i++) {
            (void)vb__cli_progress(NULL, "measure", (int64_t)(r + 1) * ARMS + i, (int64_t)(repeats + 1) * ARMS);
            VB_TRY_OUT(run_arm(&b, ids, &arms[i], tokens, r < 0 ? 0 : r, err));
            if (r < 0) arms[i].proposed = arms[i].accepted = 0;
        }
    vb__cli_progress_clear();
    e = print(m, arms, repeats, tokens, json, err);
out:
    vb__cli_progress_clear();
    vb_async_stop(b.async);
    for (int32_t i = 0; i < PROMPTS; i++) vb_ids_free(ids[i].ids);
    vb_model_close(m);
    pthread_cond_destroy(&b.wake);
    pthread_mutex_destroy(&b.lock);
    vb__free(arms);
    return e;
}
