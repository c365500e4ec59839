/* The asynchronous interface: one thread that owns the engine. Others hand in calls through an inbox under a lock; everything
 * that an engine does happens on its thread, between two steps or inside one.
 *
 * lock guards the inbox, the counters and the copies of statistics. It is never held during a step or a callback. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/fp_env.h"
#include "base/log.h"
#include "engine/answer.h"
#include "engine/model_handle.h"
#include "engine/sampling_options.h"
#include "model/sequence.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Calls that were handed in together: they take one place of the queue. */
typedef struct group {
    int32_t left; /* calls not done; lock */
} group;

struct vb_call {
    vb_async *a;
    vb_call_options o; /* request: with our copies */
    group *group;
    vb__answer answer;
    atomic_bool cancel;
    double handed_in;
    vb_call *next; /* in the inbox, then among the live ones */
};

struct vb_async {
    vb__engine *e;
    atomic_int refs; /* the caller's until stop, and one of each call: it may be cancelled until it is released */
    vb__trace *trace;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    vb_call *inbox, **inbox_tail; /* lock */
    bool nudged, stop;            /* lock: a call was cancelled; the end */
    int32_t places, taken;        /* lock: groups that may be unfinished, and are */
    int32_t unfinished;           /* lock: calls */
    vb_async_stats stats;         /* lock */
    vb_slot_info *slots;          /* [parallel]; lock */
    vb_call *live;                /* the thread's: with the engine */
};

static void unref(vb_async *a) {
    if (atomic_fetch_sub(&a->refs, 1) != 1) return;
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->wake);
    vb__free(a->slots);
    vb__free(a);
}

/* ---- Handing in ---------------------------------------------------------------------------------------------------- */

static void call_destroy(vb_call *c) {
    if (c == NULL) return;
    vb__answer_fini(&c->answer);
    for (int32_t i = 0; i < c->o.request.n_stops; i++) vb__free((void *)(uintptr_t)c->o.request.stops[i]);
    vb__free((void *)(uintptr_t)c->o.request.logit_bias);
    vb__free((void *)(uintptr_t)c->o.request.draft);
    unref(c->a);
    vb__free(c);
}

void vb_call_release(vb_call *c) { call_destroy(c); }

static void on_token(void *user, const vb__req_token *t) {
    vb_call *c = user;
    if (c->o.on_token == NULL) return;
    const vb_token_event ev = {.id = t->id, .end = t->end, .text = t->text, .text_len = t->text_len, .logprob = t->logprob,
                               .top = t->top, .n_top = t->n_top};
    c->o.on_token(c->o.user, &ev);
    if (atomic_load(&c->cancel)) c->answer.req->unwanted = true;
}

static vb_err no_memory(vb_error *err) { return vb__fail(err, VB_E_MEMORY, "request: out of memory"); }

/* Everything but the prompt, which the engine's request copies. */
static vb_err call_create(vb_async *a, const vb_call_options *o, const vb_sampling *sampling, vb_call **out, vb_error *err) {
    vb_call *c = vb__calloc(VB_TAG_ENGINE, 1, sizeof *c);
    if (c == NULL) return no_memory(err);
    vb_request *q = &c->o.request;
    c->a = a;
    atomic_fetch_add(&a->refs, 1);
    c->o = *o;
    c->handed_in = vb__now();
    q->logits_row = NULL;
    q->on_text = NULL;
    q->progress = NULL;
    q->trace_path = NULL;
    q->neighbours = 0;
    q->n_accepts = 0;
    q->n_stops = 0;
    q->logit_bias = NULL;
    q->draft = NULL;
    vb_err code = VB_OK;
    if (o->on_done == NULL) code = vb__fail(err, VB_E_ARGUMENT, "request: without on_done");
    else if (o->request.n_stops < 0 || o->request.n_stops > VB_MAX_STOPS)
        code = vb__fail(err, VB_E_RANGE, "stop: %d strings, expected at most %d", o->request.n_stops, VB_MAX_STOPS);
    else code = vb__logit_bias_check(o->request.logit_bias, o->request.n_logit_bias, a->e->model->cfg.vocab, err);
    for (int32_t i = 0; code == VB_OK && i < o->request.n_stops; i++) {
        if (o->request.stops[i] == NULL) {
            code = vb__fail(err, VB_E_ARGUMENT, "stop: string %d is missing", i);
            break;
        }
        q->stops[i] = vb__strdup(VB_TAG_ENGINE, o->request.stops[i]);
        if (q->stops[i] == NULL) code = no_memory(err);
        else q->n_stops++;
    }
    if (code == VB_OK && o->request.draft != NULL && (q->draft = vb__strdup(VB_TAG_ENGINE, o->request.draft)) == NULL)
        code = no_memory(err);
    if (code == VB_OK && o->request.n_logit_bias > 0) {
        size_t n = (size_t)o->request.n_logit_bias;
        vb_logit_bias *b = vb__calloc(VB_TAG_ENGINE, n, sizeof *b);
        if (b == NULL) code = no_memory(err);
        else memcpy(b, o->request.logit_bias, n * sizeof *b);
        q->logit_bias = b;
    }
    uint32_t flags = a->trace != NULL ? VB_ANSWER_ROUNDS | VB_ANSWER_HASH : q->hash_logits ? VB_ANSWER_HASH : 0;
    if (code == VB_OK) code = vb__answer_begin(&c->answer, a->e, q, sampling, NULL, flags, err);
    if (code == VB_OK) {
        /* What can never fit is refused here, with both numbers. */
        int64_t positions = (int64_t)o->request.prompt_count + (o->request.max_tokens != 0);
        int64_t pages = (positions + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS;
        if (pages > a->stats.kv_pages)
            code = vb__fail(err, VB_E_CONTEXT_FULL, "prompt is too long: %d tokens > %lld maximum", o->request.prompt_count,
                            (long long)a->stats.kv_pages * VB_PAGE_POSITIONS - (o->request.max_tokens != 0));
    }
    q->prompt_ids = q->prediction = NULL; /* the engine's request has copies */
    if (code != VB_OK) {
        call_destroy(c);
        return code;
    }
    c->answer.on_token = on_token;
    c->answer.user = c;
    *out = c;
    return VB_OK;
}

vb_err vb_async_submit(vb_async *a, const vb_call_options *o, int32_t n, vb_call **calls, vb_sampling *sampling, vb_error *err) {
    vb_sampling first = {0};
    if (n < 1) return vb__fail(err, VB_E_ARGUMENT, "request: without any call");
    group *g = vb__calloc(VB_TAG_ENGINE, 1, sizeof *g);
    if (g == NULL) return no_memory(err);
    vb_err code = VB_OK;
    int32_t made = 0;
    for (; code == VB_OK && made < n; made++) {
        vb_sampling s, given = o[made].request.sampling;
        if (made > 0 && (given.set & VB_SET_SEED) == 0) {
            given.seed = first.seed;
            given.set |= VB_SET_SEED;
        }
        code = vb__sampling_resolve(&given, NULL, &a->e->defaults, &s, err);
        if (made == 0) first = s;
        if (code == VB_OK) code = call_create(a, &o[made], &s, &calls[made], err);
        if (code != VB_OK) break;
        calls[made]->group = g;
    }
    if (code == VB_OK) {
        pthread_mutex_lock(&a->lock);
        if (a->stop) code = vb__fail(err, VB_E_CANCELLED, "server: is stopping");
        else if (a->taken >= a->places)
            code = vb__fail(err, VB_E_BUSY, "queue: %d requests are running or waiting, expected at most %d", a->taken, a->places);
        if (code == VB_OK) {
            g->left = n;
            a->taken++;
            a->unfinished += n;
            for (int32_t i = 0; i < n; i++) {
                *a->inbox_tail = calls[i];
                a->inbox_tail = &calls[i]->next;
            }
            pthread_cond_signal(&a->wake);
        }
        pthread_mutex_unlock(&a->lock);
    }
    if (code != VB_OK) {
        for (int32_t i = 0; i < made; i++) call_destroy(calls[i]);
        vb__free(g);
        return code;
    }
    if (sampling != NULL) *sampling = first;
    return VB_OK;
}

void vb_async_cancel(vb_call *c) {
    vb_async *a = c->a;
    if (atomic_exchange(&c->cancel, true)) return;
    pthread_mutex_lock(&a->lock);
    a->nudged = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
}

/* ---- The thread ------------------------------------------------------------------------------------------------------ */

/* The last that is heard of a call; it may be gone afterwards. */
static void finish(vb_async *a, vb_call *c, vb_err code, vb_error *why) {
    vb_result r = {0};
    vb__req *q = c->answer.req;
    group *g = c->group;
    if (code == VB_OK && q->error != VB_OK) {
        code = q->error;
        *why = q->message;
    }
    if (code == VB_OK) code = vb__answer_result(&c->answer, &r, why);
    if (code == VB_OK) {
        r.queue_s = (q->stats.started > 0 ? q->stats.started : q->stats.finished > 0 ? q->stats.finished : vb__now()) - c->handed_in;
        if (a->trace != NULL && r.finish != VB_FINISH_CANCELLED) {
            vb_error lost;
            if (vb__trace_write(a->trace, q, &c->answer.rounds, r.logits_sha256, &lost) != VB_OK)
                vb__log(VB_LOG_ERROR, "trace", "%s", lost.text);
        }
    }
    pthread_mutex_lock(&a->lock);
    a->unfinished--;
    if (--g->left == 0) a->taken--;
    bool last = g->left == 0;
    pthread_mutex_unlock(&a->lock);
    if (last) vb__free(g);
    c->o.on_done(c->o.user, code == VB_OK ? &r : NULL, code == VB_OK ? NULL : why);
}

static void take_inbox(vb_async *a) {
    pthread_mutex_lock(&a->lock);
    while (a->inbox == NULL && a->live == NULL && !a->stop) pthread_cond_wait(&a->wake, &a->lock);
    vb_call *in = a->inbox;
    a->inbox = NULL;
    a->inbox_tail = &a->inbox;
    a->nudged = false;
    bool stop = a->stop;
    pthread_mutex_unlock(&a->lock);
    vb_call **tail = &a->live;
    while (*tail != NULL) tail = &(*tail)->next;
    while (in != NULL) {
        vb_call *c = in;
        vb_error why = {0};
        in = c->next;
        c->next = NULL;
        vb_err code = vb__engine_submit(a->e, c->answer.req, &why);
        if (code != VB_OK) {
            finish(a, c, code, &why);
            continue;
        }
        *tail = c;
        tail = &c->next;
    }
    for (vb_call *c = a->live; c != NULL; c = c->next)
        if (stop || atomic_load(&c->cancel)) vb__engine_cancel(a->e, c->answer.req);
}

static void publish(vb_async *a) {
    vb__engine *e = a->e;
    pthread_mutex_lock(&a->lock);
    vb_async_stats *s = &a->stats;
    s->steps = e->stats.steps;
    s->rows = e->stats.rows;
    s->gave_way = e->stats.gave_way;
    s->live = 0;
    s->kv_pages_free = vb__page_pool_free_count(e->pages);
    for (int32_t i = 0; i < e->parallel; i++) {
        const vb__slot *t = &e->slots[i];
        const vb__req *r = t->req;
        s->live += r != NULL;
        a->slots[i].state = r == NULL ? VB_SLOT_IDLE : vb__req_count(r) > 0 ? VB_SLOT_DECODE : VB_SLOT_PREFILL;
        a->slots[i].tokens = t->seq->length;
    }
    s->waiting = a->unfinished - s->live;
    pthread_mutex_unlock(&a->lock);
}

static void collect_done(vb_async *a, vb_err code, vb_error *why) {
    vb_call *done = NULL, **done_tail = &done;
    for (vb_call **p = &a->live; *p != NULL;) {
        vb_call *c = *p;
        if (c->answer.req->phase != VB_REQ_DONE) {
            p = &c->next;
            continue;
        }
        *p = c->next;
        c->next = NULL;
        *done_tail = c;
        done_tail = &c->next;
    }
    publish(a); /* whoever hears of an end sees the slot free */
    while (done != NULL) {
        vb_call *c = done;
        done = c->next;
        vb_error mine = *why;
        finish(a, c, code, &mine);
    }
}

/* A step that failed is the device's failure: every request ends with it, and what slots hold is not used again. */
static void fail_all(vb_async *a, vb_err code, vb_error *why) {
    vb__log(VB_LOG_ERROR, "engine", "a step failed: %s", why->text);
    for (vb_call *c = a->live; c != NULL; c = c->next) vb__engine_cancel(a->e, c->answer.req);
    vb__engine_clear(a->e);
    collect_done(a, code, why);
}

static void *engine_thread(void *user) {
    vb_async *a = user;
    uint32_t csr = vb__fp_enter();
    int32_t idle = 0;
    for (;;) {
        vb_error why = {0};
        bool worked = false;
        take_inbox(a);
        collect_done(a, VB_OK, &why);
        if (a->live == NULL) {
            pthread_mutex_lock(&a->lock);
            bool end = a->stop && a->inbox == NULL;
            pthread_mutex_unlock(&a->lock);
            if (end) break;
            continue;
        }
        vb_err code = vb__engine_step(a->e, &worked, &why);
        if (code == VB_OK && !worked && ++idle > 1000) code = vb__fail(&why, VB_E_INTERNAL, "engine: requests wait and nothing can run");
        if (worked) idle = 0;
        else if (code == VB_OK) (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
        if (code != VB_OK) {
            fail_all(a, code, &why);
            idle = 0;
        }
    }
    vb__fp_leave(csr);
    return NULL;
}

/* ---- Start, stop, questions ------------------------------------------------------------------------------------------ */

vb_err vb_async_start(vb_model *m, const vb_async_options *o, vb_async **out, vb_error *err) {
    vb__engine *e = m->engine;
    vb_async *a = vb__calloc(VB_TAG_ENGINE, 1, sizeof *a);
    if (a == NULL) return no_memory(err);
    a->e = e;
    a->inbox_tail = &a->inbox;
    atomic_init(&a->refs, 1);
    a->places = e->parallel + (o->queue > 0 ? o->queue : 0);
    a->stats.slots = e->parallel;
    a->stats.kv_pages = a->stats.kv_pages_free = vb__page_pool_count(e->pages);
    a->slots = vb__calloc(VB_TAG_ENGINE, (size_t)e->parallel, sizeof *a->slots);
    vb_err code = a->slots == NULL ? no_memory(err) : VB_OK;
    if (code == VB_OK && o->trace_path != NULL) code = vb__trace_open(o->trace_path, e, &a->trace, err);
    if (code == VB_OK) {
        pthread_mutex_init(&a->lock, NULL);
        pthread_cond_init(&a->wake, NULL);
        if (pthread_create(&a->thread, NULL, engine_thread, a) != 0) {
            pthread_mutex_destroy(&a->lock);
            pthread_cond_destroy(&a->wake);
            code = vb__fail(err, VB_E_MEMORY, "engine: its thread could not be started");
        }
    }
    if (code != VB_OK) {
        vb__trace_close(a->trace);
        vb__free(a->slots);
        vb__free(a);
        return code;
    }
    *out = a;
    return VB_OK;
}

void vb_async_stop(vb_async *a) {
    if (a == NULL) return;
    pthread_mutex_lock(&a->lock);
    a->stop = true;
    pthread_cond_signal(&a->wake);
    pthread_mutex_unlock(&a->lock);
    (void)pthread_join(a->thread, NULL);
    vb__trace_close(a->trace);
    unref(a);
}

void vb_async_get_stats(vb_async *a, vb_async_stats *out) {
    pthread_mutex_lock(&a->lock);
    *out = a->stats;
    out->waiting = a->unfinished - out->live > 0 ? a->unfinished - out->live : 0;
    pthread_mutex_unlock(&a->lock);
}

int32_t vb_async_get_slots(vb_async *a, vb_slot_info *out, int32_t n) {
    pthread_mutex_lock(&a->lock);
    int32_t count = a->stats.slots;
    for (int32_t i = 0; i < n && i < count; i++) out[i] = a->slots[i];
    pthread_mutex_unlock(&a->lock);
    return count;
}
