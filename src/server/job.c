/* Jobs: their life, their errors, and what the model's thread adds to them. See job.h. */
#include "server/job.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include <microhttpd.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* ---- Life ---------------------------------------------------------------------------------------------------------------- */

vb__job *vb__job_create(vb__server *s) {
    unsigned char r[12];
    vb__job *j = vb__calloc(VB_TAG_SERVER, 1, sizeof *j);
    if (j == NULL) return NULL;
    j->server = s;
    j->refs = 1;
    j->fd = -1;
    j->received = j->last_event = vb__now();
    j->created = (int64_t)time(NULL);
    if (getrandom(r, sizeof r, 0) != (ssize_t)sizeof r) memset(r, 0, sizeof r);
    for (size_t i = 0; i < sizeof r; i++) (void)snprintf(j->id + 2 * i, 3, "%02x", r[i]);
    vb__buffer_init(&j->body, VB_LIMIT_BODY_BYTES);
    vb__buffer_init(&j->out, (size_t)1 << 31);
    pthread_mutex_init(&j->lock, NULL);
    pthread_mutex_lock(&s->lock);
    j->serial = ++s->serial;
    j->next = s->jobs;
    if (s->jobs != NULL) s->jobs->prev = j;
    s->jobs = j;
    s->n_jobs++;
    pthread_mutex_unlock(&s->lock);
    return j;
}

void vb__job_ref(vb__job *j) {
    pthread_mutex_lock(&j->lock);
    j->refs++;
    pthread_mutex_unlock(&j->lock);
}

/* One line for each request: what it was, what it cost, how it ended. Never what it said. */
static void log_job(const vb__job *j) {
    int64_t prompt = 0, cached = 0, out = 0, proposed = 0, accepted = 0;
    const vb__run *first = NULL;
    const char *finish = "-";
    static const char *const names[] = {"stop", "length", "cancelled"};
    if (j->route == VB_ROUTE_HEALTH || j->route == VB_ROUTE_METRICS || j->route == VB_ROUTE_SLOTS) return;
    for (int32_t i = 0; i < j->gen.n_prompts; i++) prompt += j->gen.prompts[i].count;
    for (int32_t i = 0; i < j->n_runs; i++) {
        const vb__run *r = &j->runs[i];
        if (r->failed) finish = "error";
        if (!r->done || r->failed) continue;
        if (first == NULL) {
            first = r;
            finish = names[r->result.finish];
        }
        if (r->index % j->gen.n == 0) cached += r->result.cached_tokens;
        out += r->result.count;
        proposed += r->result.proposed;
        accepted += r->result.accepted;
    }
    double now = vb__now(), per_token = 0, first_s = 0;
    if (first != NULL && first->first > 0) {
        first_s = first->first - j->received;
        if (first->result.count > 1) per_token = (first->last - first->first) / (first->result.count - 1);
    }
    vb__log(VB_LOG_INFO, "request",
            "id=%s call=%s status=%d stream=%d prompt=%lld cached=%lld drafted=%lld accepted=%lld output=%lld queue_s=%.3f prefill_s=%.3f first_token_s=%.3f "
            "token_s=%.4f total_s=%.3f finish=%s%s%s%s", j->id, vb__route_name(j->route), j->status, j->gen.stream, (long long)prompt,
            (long long)cached, (long long)proposed, (long long)accepted, (long long)out, first != NULL ? first->result.queue_s : 0.0,
            first != NULL ? first->result.prefill_s : 0.0, first_s, per_token, now - j->received, finish, j->left_early ? " client=gone" : "",
            j->gen.ignored[0] != '\0' ? " ignored=" : "", j->gen.ignored);
}

static void count_job(vb__job *j) {
    vb__metrics *m = &j->server->metrics;
    if (j->status >= 100 && j->status < 600) vb__metrics_count(&m->requests[j->status / 100], 1);
    if (j->status == 429) vb__metrics_count(&m->refused, 1);
    if (j->left_early) vb__metrics_count(&m->cancelled, 1);
    for (int32_t i = 0; i < j->gen.n_prompts; i++)
        if (j->n_runs > 0) vb__metrics_count(&m->prompt_tokens, (uint64_t)j->gen.prompts[i].count);
    for (int32_t i = 0; i < j->n_runs; i++) {
        const vb__run *r = &j->runs[i];
        vb__metrics_count(&m->finished[!r->done || r->failed ? 3 : r->result.finish], 1);
        if (!r->done || r->failed) continue;
        if (r->index % j->gen.n == 0) vb__metrics_count(&m->cached_tokens, (uint64_t)r->result.cached_tokens);
        vb__metrics_count(&m->output_tokens, (uint64_t)r->result.count);
        vb__metrics_count(&m->drafted_tokens, (uint64_t)r->result.proposed);
        vb__metrics_count(&m->accepted_tokens, (uint64_t)r->result.accepted);
        vb__histogram_add(&m->queue, r->result.queue_s);
        if (r->first > 0) {
            vb__histogram_add(&m->prefill, r->result.prefill_s);
            vb__histogram_add(&m->first_token, r->first - j->received);
            if (r->result.count > 1) vb__histogram_add(&m->per_token, (r->last - r->first) / (r->result.count - 1));
        }
        vb__histogram_add(&m->total, vb__now() - j->received);
    }
}

static void job_destroy(vb__job *j) {
    vb__server *s = j->server;
    pthread_mutex_lock(&s->lock); /* first: whoever walks the list holds this lock and may lock the job */
    if (j->prev != NULL) j->prev->next = j->next;
    else s->jobs = j->next;
    if (j->next != NULL) j->next->prev = j->prev;
    pthread_mutex_unlock(&s->lock);
    log_job(j);
    count_job(j);
    for (int32_t i = 0; i < j->n_runs; i++) {
        vb_call_release(j->runs[i].call);
        vb_result_fini(&j->runs[i].result);
    }
    vb__free(j->runs);
    vb__gen_fini(&j->gen);
    vb__buffer_fini(&j->body);
    vb__buffer_fini(&j->out);
    atomic_fetch_sub(&s->body_bytes, j->counted);
    pthread_mutex_destroy(&j->lock);
    pthread_mutex_lock(&s->lock);
    s->n_jobs--;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    vb__free(j);
}

void vb__job_unref(vb__job *j) {
    pthread_mutex_lock(&j->lock);
    bool last = --j->refs == 0;
    pthread_mutex_unlock(&j->lock);
    if (last) job_destroy(j);
}

/* ---- Responses -------------------------------------------------------------------------------------------------------------- */

void vb__job_wake_locked(vb__job *j) {
    if (!j->suspended) return;
    j->suspended = false;
    MHD_resume_connection(j->conn);
}

void vb__job_ready_locked(vb__job *j, int status, const char *content_type) {
    j->state = VB_JOB_READY;
    j->status = status;
    j->content_type = content_type;
    if (j->out.error != VB_OK) { /* no memory for the answer */
        vb__buffer_clear(&j->out);
        vb__answer_error(&j->out, "api_error", NULL, NULL, "out of memory");
        j->status = 500;
    }
    vb__job_wake_locked(j);
}

static void error_locked(vb__job *j, int status, const char *type, const char *param, const char *code, const char *message) {
    if (j->state == VB_JOB_STREAM) {
        if (j->stream_end) return;
        vb__buffer_puts(&j->out, "data: ");
        vb__answer_error(&j->out, type, param, code, message);
        vb__buffer_puts(&j->out, "\n\n");
        j->stream_end = true;
        vb__job_wake_locked(j);
        return;
    }
    vb__buffer_clear(&j->out);
    vb__answer_error(&j->out, type, param, code, message);
    vb__buffer_putc(&j->out, '\n');
    vb__job_ready_locked(j, status, "application/json");
}

void vb__job_error(vb__job *j, int status, const char *type, const char *param, const char *code, const char *message) {
    pthread_mutex_lock(&j->lock);
    error_locked(j, status, type, param, code, message);
    pthread_mutex_unlock(&j->lock);
}

/* The field that an error's sentence begins with, if it does. */
static bool field_of(const char *text, char out[96]) {
    size_t n = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.[]");
    if (n == 0 || n >= 96 || text[n] != ':' || strncmp(text, "request:", 8) == 0) return false;
    memcpy(out, text, n);
    out[n] = '\0';
    return true;
}

static void fail_locked(vb__job *j, const vb_error *err) {
    char field[96];
    const char *param = field_of(err->text, field) ? field : NULL;
    switch (err->code) {
    case VB_E_ARGUMENT:
    case VB_E_RANGE:
    case VB_E_FORMAT:
    case VB_E_LIMIT:
    case VB_E_NOT_FOUND:
    case VB_E_UNSUPPORTED: error_locked(j, 400, "invalid_request_error", param, NULL, err->text); break;
    case VB_E_CONTEXT_FULL:
        error_locked(j, 400, "invalid_request_error", j->route == VB_ROUTE_COMPLETIONS ? "prompt" : "messages", "context_length_exceeded", err->text);
        break;
    case VB_E_BUSY: {
        vb_async_stats s;
        vb_async_get_stats(j->server->async, &s);
        int32_t wait = 1 + s.waiting / (s.slots > 0 ? s.slots : 1);
        j->retry_after = wait < 60 ? wait : 60;
        error_locked(j, 429, "rate_limit_error", NULL, "queue_full", err->text);
        break;
    }
    case VB_E_CANCELLED:
    case VB_E_MEMORY:
        j->retry_after = 1;
        error_locked(j, 503, "api_error", NULL, NULL, err->text);
        break;
    default: error_locked(j, 500, "api_error", NULL, NULL, err->text);
    }
}

void vb__job_fail(vb__job *j, const vb_error *err) {
    pthread_mutex_lock(&j->lock);
    fail_locked(j, err);
    pthread_mutex_unlock(&j->lock);
}

static void cancel_locked(vb__job *j) {
    for (int32_t i = 0; i < j->n_runs; i++)
        if (j->runs[i].call != NULL && !j->runs[i].done) vb_async_cancel(j->runs[i].call);
}

void vb__job_cancel(vb__job *j, bool gone) {
    pthread_mutex_lock(&j->lock);
    if (gone) {
        /* A response that is complete may still be on its way; libmicrohttpd will notice by itself. */
        if (j->state != VB_JOB_READY) {
            j->gone = true;
            vb__job_wake_locked(j);
        }
    }
    cancel_locked(j);
    pthread_mutex_unlock(&j->lock);
}

void vb__job_left(vb__job *j) {
    pthread_mutex_lock(&j->lock);
    if (j->state != VB_JOB_READY && !j->stream_end) j->left_early = true;
    pthread_mutex_unlock(&j->lock);
}

/* ---- What the model's thread says ---------------------------------------------------------------------------------------- */

/* A reader that does not read must not fill the memory. */
static void grown_locked(vb__job *j) {
    j->last_event = vb__now();
    if (j->out.len - j->out_at > VB_LIMIT_STREAM_BYTES || j->out.error != VB_OK) {
        vb__log(VB_LOG_WARN, "request", "id=%s the client reads too slowly: cancelled", j->id);
        j->gone = j->left_early = true;
        cancel_locked(j);
    }
    vb__job_wake_locked(j);
}

void vb__run_on_token(void *user, const vb_token_event *t) {
    vb__run *r = user;
    vb__job *j = r->job;
    double now = vb__now();
    pthread_mutex_lock(&j->lock);
    if (r->tokens++ == 0) r->first = now;
    r->last = now;
    if (j->state == VB_JOB_STREAM && !j->gone && !j->stream_end) {
        size_t before = j->out.len;
        vb__chunk_token(j, r, t, &j->out);
        if (j->out.len != before || j->out.error != VB_OK) grown_locked(j);
    }
    pthread_mutex_unlock(&j->lock);
}

static void end_stream_locked(vb__job *j) {
    if (j->stream_end) return;
    if (j->gen.include_usage) vb__chunk_usage(j, &j->out);
    vb__buffer_puts(&j->out, "data: [DONE]\n\n");
    j->stream_end = true;
}

bool vb__job_is_long(const vb__job *j) {
    enum { ENTRIES = 4096, TEXT = 1 << 20 }; /* some ms */
    int64_t entries = 0, text = 0;
    for (int32_t i = 0; i < j->n_runs; i++) {
        entries += j->gen.logprobs ? (int64_t)j->runs[i].result.count * (1 + j->gen.request.top_logprobs) : 0;
        text += (int64_t)j->runs[i].result.text_len;
    }
    return entries > ENTRIES || text > TEXT;
}

void vb__run_on_done(void *user, vb_result *result, const vb_error *err) {
    vb__run *r = user;
    vb__job *j = r->job;
    pthread_mutex_lock(&j->lock);
    r->done = true;
    r->failed = result == NULL;
    if (result != NULL) r->result = *result;
    else r->error = *err;
    j->left--;
    bool to_write = false, stopped = result != NULL && result->finish == VB_FINISH_CANCELLED && !j->gone;
    static const vb_error stopping = {.code = VB_E_CANCELLED, .text = "the server is stopping"};
    if (j->state == VB_JOB_STREAM) {
        if (r->failed || stopped) {
            fail_locked(j, r->failed ? &r->error : &stopping);
            cancel_locked(j);
        } else if (!j->gone && !j->stream_end) {
            vb__chunk_last(j, r, &j->out);
            if (j->left == 0) end_stream_locked(j);
            grown_locked(j);
        }
    } else if (j->state == VB_JOB_RUN && (r->failed || stopped)) {
        fail_locked(j, r->failed ? &r->error : &stopping); /* the first failure is the answer */
        cancel_locked(j);
    } else if (j->state == VB_JOB_RUN && j->left == 0) {
        to_write = vb__job_is_long(j) && !j->gone;
        if (!to_write) vb__job_wake_locked(j); /* the HTTP thread writes it */
    }
    pthread_mutex_unlock(&j->lock);
    if (to_write) vb__prepare_push(j);
    vb__job_unref(j);
}

void vb__job_heartbeat(vb__job *j, double now) {
    pthread_mutex_lock(&j->lock);
    if (j->state == VB_JOB_STREAM && !j->gone && !j->stream_end && now - j->last_event >= 5.0) {
        const vb__run *r = j->runs; /* one that goes on: nothing may come of a choice behind its finish_reason */
        while (r->done && r < j->runs + j->n_runs - 1) r++;
        vb__chunk_empty(j, r, &j->out);
        grown_locked(j);
    }
    pthread_mutex_unlock(&j->lock);
}
