#include "server/metrics.h"

static const double bounds[VB_METRIC_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60};

void vb__metrics_count(atomic_ullong *c, uint64_t n) { atomic_fetch_add_explicit(c, n, memory_order_relaxed); }

void vb__histogram_add(vb__histogram *h, double seconds) {
    int i = 0;
    if (!(seconds >= 0)) seconds = 0;
    while (i < VB_METRIC_BUCKETS && seconds > bounds[i]) i++;
    vb__metrics_count(&h->bucket[i], 1);
    vb__metrics_count(&h->microseconds, (uint64_t)(seconds * 1e6));
    vb__metrics_count(&h->count, 1);
}

static unsigned long long get(const atomic_ullong *c) { return atomic_load_explicit(c, memory_order_relaxed); }

static void head(vb__buffer *b, const char *name, const char *kind, const char *help) {
    vb__buffer_printf(b, "# HELP verbatim_%s %s\n# TYPE verbatim_%s %s\n", name, help, name, kind);
}

static void one(vb__buffer *b, const char *name, const char *kind, const char *help, long long value) {
    head(b, name, kind, help);
    vb__buffer_printf(b, "verbatim_%s %lld\n", name, value);
}

static void histogram(vb__buffer *b, const char *name, const char *help, const vb__histogram *h) {
    unsigned long long sum = 0;
    head(b, name, "histogram", help);
    for (int i = 0; i < VB_METRIC_BUCKETS; i++) {
        sum += get(&h->bucket[i]);
        vb__buffer_printf(b, "verbatim_%s_bucket{le=\"%g\"} %llu\n", name, bounds[i], sum);
    }
    sum += get(&h->bucket[VB_METRIC_BUCKETS]);
    vb__buffer_printf(b, "verbatim_%s_bucket{le=\"+Inf\"} %llu\nverbatim_%s_sum %.6f\nverbatim_%s_count %llu\n", name, sum, name,
                      (double)get(&h->microseconds) * 1e-6, name, sum);
}

void vb__metrics_write(const vb__metrics *m, const vb_async_stats *s, int32_t connections, vb__buffer *b) {
    head(b, "requests_total", "counter", "Requests answered, by status.");
    for (int i = 1; i < 6; i++) vb__buffer_printf(b, "verbatim_requests_total{status=\"%dxx\"} %llu\n", i, get(&m->requests[i]));
    one(b, "requests_cancelled_total", "counter", "Requests whose client went away, or did not read, before the answer's end.", (long long)get(&m->cancelled));
    one(b, "requests_refused_total", "counter", "Requests refused because the queue was full.", (long long)get(&m->refused));
    static const char *const ends[] = {"stop", "length", "cancelled", "error"};
    head(b, "answers_total", "counter", "Answers that ended, by how they did; n of one request are n.");
    for (int i = 0; i < 4; i++) vb__buffer_printf(b, "verbatim_answers_total{finish=\"%s\"} %llu\n", ends[i], get(&m->finished[i]));
    one(b, "prompt_tokens_total", "counter", "Tokens of prompts, cached ones included.", (long long)get(&m->prompt_tokens));
    one(b, "cached_tokens_total", "counter", "Tokens of prompts that were not run again.", (long long)get(&m->cached_tokens));
    one(b, "output_tokens_total", "counter", "Tokens of answers.", (long long)get(&m->output_tokens));
    one(b, "drafted_tokens_total", "counter", "Tokens that drafters proposed.", (long long)get(&m->drafted_tokens));
    one(b, "accepted_tokens_total", "counter", "Proposed tokens that were right.", (long long)get(&m->accepted_tokens));
    one(b, "steps_total", "counter", "Forward calls.", s->steps);
    one(b, "rows_total", "counter", "Rows of forward calls.", s->rows);
    one(b, "gave_way_total", "counter", "Times that a request gave up its pages to be computed again.", s->gave_way);
    one(b, "requests_live", "gauge", "Answers that have a slot.", s->live);
    one(b, "requests_waiting", "gauge", "Answers that wait for a slot.", s->waiting);
    one(b, "slots", "gauge", "Slots.", s->slots);
    one(b, "kv_pages", "gauge", "KV pages of 64 tokens.", s->kv_pages);
    one(b, "kv_pages_free", "gauge", "KV pages that nobody holds.", s->kv_pages_free);
    one(b, "connections", "gauge", "Open connections.", connections);
    histogram(b, "queue_seconds", "From being received to having a slot.", &m->queue);
    histogram(b, "prefill_seconds", "From having a slot to the first token.", &m->prefill);
    histogram(b, "first_token_seconds", "From being received to the first token.", &m->first_token);
    histogram(b, "token_seconds", "Mean time of a token behind the first, by request.", &m->per_token);
    histogram(b, "request_seconds", "From being received to the end of the answer.", &m->total);
}
