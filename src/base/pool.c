/* Threads of the pool wait on one generation counter. The caller publishes a region, bumps the generation,
 * takes part itself, closes the region when no item is left, and waits for the workers that are inside. One
 * that was not scheduled in time finds the region closed and stays out: on a busy machine nobody waits for a
 * thread that has done nothing. A worker spins on the counter for a bounded time (a token has hundreds of regions,
 * microseconds apart), then sleeps on a futex: waking costs about 10 us.
 *
 * Chunks come from one atomic counter, or from each thread's own part as far as others leave it, rather than from a fixed
 * partition, since on a shared machine one thread may lose its CPU for a while; the results cannot tell the difference. */
#include "base/pool.h"
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/fp_env.h"
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPIN = 20000, LINE = 64 };
static const uint64_t CLOSED = 1u << 31, INSIDE = (1u << 31) - 1;

/* What is left of a thread's part of a region: its first item << 32 | the item behind its last. */
typedef struct own_part {
    _Alignas(LINE) _Atomic uint64_t left;
} own_part;
#define PART(begin, end) ((uint64_t)(begin) << 32 | (uint64_t)(end))

struct vb__pool {
    /* The region; written by the caller before the generation is bumped. */
    vb__pool_fn *fn;
    void *ctx;
    int32_t n_items, grain;
    bool shares; /* every thread has a part of its own */
    int32_t threads, started;
    bool spin;
    pthread_t *tid; /* [threads - 1] */
    own_part *own;  /* [threads] */
    _Alignas(LINE) _Atomic uint32_t generation; /* futex word: bumped once per region and at the end */
    _Alignas(LINE) _Atomic int32_t next;        /* first item not yet handed out */
    _Alignas(LINE) _Atomic uint64_t gate;       /* generation << 32 | CLOSED | workers inside; its low half is a futex word */
    _Alignas(LINE) _Atomic int32_t sleepers;    /* workers asleep, or about to be, on generation */
    _Atomic bool stop, caller_sleeps;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}
static void futex_wake(_Atomic uint32_t *word, int n) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* The low half of the gate (x86 is little-endian). */
static _Atomic uint32_t *gate_word(vb__pool *p) { return (_Atomic uint32_t *)(void *)&p->gate; }

/* Takes items off a thread's part: its owner three quarters of what is left, from the front; others half of it, from the
 * end. False: there are none. */
static bool take_of(own_part *part, int32_t grain, bool owner, int32_t *begin, int32_t *end) {
    uint64_t left = atomic_load_explicit(&part->left, memory_order_relaxed), then;
    do {
        int32_t b = (int32_t)(left >> 32), e = (int32_t)(left & UINT32_MAX), n = e - b;
        if (n <= 0) return false;
        int32_t some = owner ? (n - n / 4 + grain - 1) / grain * grain : n / 2 / grain * grain;
        if (some < grain) some = grain;
        if (some > n) some = n;
        *begin = owner ? b : e - some;
        *end = *begin + some;
        then = owner ? PART(*end, e) : PART(b, *begin);
    } while (!atomic_compare_exchange_weak_explicit(&part->left, &left, then, memory_order_relaxed, memory_order_relaxed));
    return true;
}

/* A thread's own part first, then what the others have not come to. */
static void take_shares(vb__pool *p, int32_t thread) {
    for (int32_t i = 0, begin, end; i < p->threads; i++) {
        own_part *part = &p->own[(thread + i) % p->threads];
        while (take_of(part, p->grain, i == 0, &begin, &end)) p->fn(p->ctx, begin, end, thread);
    }
}

/* Parts of whole grains, as even as can be. */
static void cut_parts(vb__pool *p) {
    int64_t grains = (p->n_items + (int64_t)p->grain - 1) / p->grain;
    for (int32_t t = 0, begin = 0, end; t < p->threads; t++, begin = end) {
        end = t + 1 < p->threads ? (int32_t)(grains * (t + 1) / p->threads * p->grain) : p->n_items;
        atomic_store_explicit(&p->own[t].left, PART(begin, end), memory_order_relaxed);
    }
}

static void take_part(vb__pool *p, int32_t thread) {
    int32_t n = p->n_items, grain = p->grain;
    if (p->shares) {
        take_shares(p, thread);
        return;
    }
    for (;;) {
        int32_t begin = atomic_fetch_add_explicit(&p->next, grain, memory_order_relaxed);
        if (begin >= n) return;
        p->fn(p->ctx, begin, begin + grain < n ? begin + grain : n, thread);
    }
}

typedef struct worker_arg {
    vb__pool *pool;
    int32_t thread;
} worker_arg;

static void *worker(void *arg) {
    worker_arg w = *(worker_arg *)arg;
    vb__free(arg);
    vb__pool *p = w.pool;
    (void)vb__fp_enter();
    uint32_t seen = 0;
    for (;;) {
        uint32_t now = atomic_load_explicit(&p->generation, memory_order_acquire);
        for (int i = 0; now == seen && p->spin && i < SPIN; i++) {
            _mm_pause();
            now = atomic_load_explicit(&p->generation, memory_order_acquire);
        }
        while (now == seen) {
            atomic_fetch_add(&p->sleepers, 1);
            futex_wait(&p->generation, seen);
            atomic_fetch_sub(&p->sleepers, 1);
            now = atomic_load_explicit(&p->generation, memory_order_acquire);
        }
        seen = now;
        if (atomic_load_explicit(&p->stop, memory_order_acquire)) return NULL;
        uint64_t g = atomic_load_explicit(&p->gate, memory_order_acquire);
        bool inside = false;
        while (!inside && g >> 32 == now && (g & CLOSED) == 0) inside = atomic_compare_exchange_weak(&p->gate, &g, g + 1);
        if (!inside) continue;
        take_part(p, w.thread);
        if ((atomic_fetch_sub(&p->gate, 1) & INSIDE) == 1 && atomic_load(&p->caller_sleeps)) futex_wake(gate_word(p), 1);
    }
}

static void publish(vb__pool *p) {
    uint32_t g = atomic_load_explicit(&p->generation, memory_order_relaxed) + 1; /* one caller: nobody else bumps it */
    atomic_store(&p->gate, (uint64_t)g << 32);
    atomic_store(&p->generation, g);
    if (atomic_load(&p->sleepers) > 0) futex_wake(&p->generation, INT32_MAX);
}

vb_err vb__pool_create(int32_t threads, vb__pool **out, vb_error *err) {
    if (threads < 1 || threads > 4096)
        return vb__fail(err, VB_E_RANGE, "threads: %d, expected 1 to 4096", threads);
    vb__pool *p = vb__alloc_aligned(VB_TAG_ENGINE, sizeof *p);
    if (p == NULL) return vb__fail(err, VB_E_MEMORY, "threads: out of memory for a pool of %d", threads);
    p->threads = threads;
    p->spin = threads <= vb__cpu_count();
    p->tid = vb__calloc(VB_TAG_ENGINE, (size_t)threads, sizeof *p->tid);
    p->own = vb__alloc_aligned(VB_TAG_ENGINE, (size_t)threads * sizeof *p->own);
    if (p->tid == NULL || p->own == NULL) {
        vb__free(p->tid);
        vb__free(p->own);
        vb__free(p);
        return vb__fail(err, VB_E_MEMORY, "threads: out of memory for a pool of %d", threads);
    }
    sigset_t all, old; /* workers take no signals: those belong to the application's own threads */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = 0;
    for (int32_t t = 1; t < threads; t++) {
        worker_arg *w = vb__alloc(VB_TAG_ENGINE, sizeof *w);
        if (w == NULL) {
            rc = ENOMEM;
            break;
        }
        *w = (worker_arg){p, t};
        rc = pthread_create(&p->tid[t - 1], NULL, worker, w);
        if (rc != 0) {
            vb__free(w);
            break;
        }
        p->started++;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc != 0) {
        int32_t got = p->started + 1;
        vb__pool_destroy(p);
        return vb__fail(err, VB_E_MEMORY, "threads: the system gave %d of %d threads (%s)", got, threads,
                        strerror(rc));
    }
    *out = p;
    return VB_OK;
}

void vb__pool_destroy(vb__pool *p) {
    if (p == NULL) return;
    atomic_store_explicit(&p->stop, true, memory_order_release);
    publish(p);
    for (int32_t i = 0; i < p->started; i++) (void)pthread_join(p->tid[i], NULL);
    vb__free(p->tid);
    vb__free(p->own);
    vb__free(p);
}

int32_t vb__pool_threads(const vb__pool *p) { return p->threads; }

static void region(vb__pool *p, int32_t n_items, int32_t grain, bool shares, vb__pool_fn *fn, void *ctx) {
    if (n_items <= 0) return;
    vb_assert(grain >= 1);
    if (p->threads == 1 || n_items <= grain) {
        fn(ctx, 0, n_items, 0);
        return;
    }
    p->fn = fn;
    p->ctx = ctx;
    p->n_items = n_items;
    p->grain = grain;
    p->shares = shares;
    if (shares) cut_parts(p);
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    publish(p);
    take_part(p, 0);
    uint64_t left = atomic_fetch_or(&p->gate, CLOSED) & INSIDE;
    for (int i = 0; i < SPIN && left != 0 && p->spin; i++) {
        _mm_pause();
        left = atomic_load_explicit(&p->gate, memory_order_acquire) & INSIDE;
    }
    if (left == 0) return;
    atomic_store(&p->caller_sleeps, true);
    for (uint64_t g; ((g = atomic_load(&p->gate)) & INSIDE) != 0;) futex_wait(gate_word(p), (uint32_t)g);
    atomic_store(&p->caller_sleeps, false);
}

void vb__parallel_for(vb__pool *p, int32_t n_items, int32_t grain, vb__pool_fn *fn, void *ctx) {
    region(p, n_items, grain, false, fn, ctx);
}

void vb__parallel_shares(vb__pool *p, int32_t n_items, int32_t grain, vb__pool_fn *fn, void *ctx) {
    region(p, n_items, grain, true, fn, ctx);
}
