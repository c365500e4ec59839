/* Threads of the pool wait on one word, the call: which region it is, and how many threads take part in it. The caller
 * writes a region, then the call, takes part itself, closes the region when no item is left, and waits for the workers
 * that are inside. One that was not scheduled in time finds the region closed and stays out: on a busy machine nobody waits for
 * a thread that has done nothing. A worker spins on the call for a bounded time (a token has hundreds of regions,
 * microseconds apart), then sleeps on a futex: waking costs about 10 us.
 *
 * Threads share as few lines as can be, for each that many of them write costs each of them a tenth of a microsecond in
 * turn: whether a worker is inside stands on a line of its own (its seat), and so does what is left of its part of the items.
 * A region of fewer chunks than threads calls that many threads.
 *
 * Chunks come from one counter, or from each thread's own part as far as others leave it, rather than from a fixed
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

enum { SPIN = 20000, LINE = 64, MAX_THREADS = 4096, MAX_CHUNKS = UINT16_MAX, MANY_CHUNKS = 16 };

/* What is left of a thread's part of a region: low 32 bits of the region's number | its first chunk | the chunk behind its last,
 * 16 bits each. A word of an earlier region stands for a part that nobody has touched. */
typedef struct own_part {
    _Alignas(LINE) _Atomic uint64_t left;
} own_part;
#define PART(region, begin, end) ((uint64_t)(uint32_t)(region) << 32 | (uint64_t)(begin) << 16 | (uint64_t)(end))

/* Where a worker stands: number of the region << 2 | one of these. Written by the worker, but for CLOSED, which is the caller's. */
enum { INSIDE = 1, DONE = 2, CLOSED = 3 };
typedef struct seat {
    _Alignas(LINE) _Atomic uint64_t at;
} seat;
#define SEAT(region, state) ((region) << 2 | (uint64_t)(state))

/* The call: number of the region << 16 | threads that it calls. Its low half, which is the futex word, changes with every region. */
#define CALL(region, threads) ((region) << 16 | (uint64_t)(threads))

/* Number of the first region: soon, and so in every test, words of parts see 32 bits of it come round. */
static const uint64_t FIRST_REGION = (UINT64_C(1) << 32) - VB_POOL_ROUND;

struct vb__pool {
    /* One line: the call, and the region, which the caller writes before the call. */
    _Alignas(LINE) _Atomic uint64_t call;
    vb__pool_fn *fn;
    void *ctx;
    int32_t n_items, grain, chunks, active;
    bool shares; /* every thread has a part of its own */
    /* Set once. */
    _Alignas(LINE) int32_t threads;
    int32_t started;
    bool spin;
    pthread_t *tid; /* [threads - 1] */
    own_part *own;  /* [threads] */
    seat *seats;    /* [threads], the first unused */
    _Alignas(LINE) _Atomic int32_t next; /* first chunk not yet handed out, where threads have no parts */
    _Alignas(LINE) _Atomic int32_t sleepers; /* workers asleep, or about to be, on the call */
    _Atomic bool stop, caller_sleeps;
    _Atomic uint32_t wake; /* futex word of a caller that sleeps */
};

static void futex_wait(void *word, uint32_t expected) {
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}
static void futex_wake(void *word, int n) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, n, NULL, NULL, 0);
}

/* First chunk of a thread's part: as even as can be, the caller never without. */
static uint64_t part_begin(const vb__pool *p, int32_t thread) {
    return ((uint64_t)p->chunks * (uint64_t)thread + (uint64_t)p->active - 1) / (uint64_t)p->active;
}

/* Takes chunks off a thread's part: half of what is left, its owner from the front, others from the end. Of few the owner takes
 * three quarters. (A thread that is slower than the others by a sixth, as some of a shared machine are, keeps them
 * waiting for a twentieth then, where three quarters of many would be a tenth.) False: there are none. */
static bool take_of(vb__pool *p, uint64_t region, int32_t thread, bool owner, int32_t *begin, int32_t *end) {
    own_part *part = &p->own[thread];
    uint64_t left = atomic_load_explicit(&part->left, memory_order_relaxed), then;
    do {
        uint64_t b = left >> 16 & UINT16_MAX, e = left & UINT16_MAX, n, some = 1;
        if ((uint32_t)(left >> 32) != (uint32_t)region) {
            b = part_begin(p, thread);
            e = part_begin(p, thread + 1);
        }
        n = e - b;
        if (n == 0) return false;
        if (n > 1) some = owner && n < MANY_CHUNKS ? n - n / 4 : n / 2;
        *begin = (int32_t)(owner ? b : e - some);
        *end = *begin + (int32_t)some;
        then = owner ? PART(region, b + some, e) : PART(region, b, e - some);
    } while (!atomic_compare_exchange_weak_explicit(&part->left, &left, then, memory_order_relaxed, memory_order_relaxed));
    return true;
}

static void run_chunks(const vb__pool *p, int32_t begin, int32_t end, int32_t thread) {
    int64_t grain = p->grain, last = end * grain;
    p->fn(p->ctx, (int32_t)(begin * grain), (int32_t)(last < p->n_items ? last : p->n_items), thread);
}

/* Chunks as they come; or a thread's own part first, then what the others have not come to. */
static void take_part(vb__pool *p, uint64_t region, int32_t thread) {
    int32_t begin, end;
    if (!p->shares) {
        while ((begin = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->chunks) run_chunks(p, begin, begin + 1, thread);
        return;
    }
    for (int32_t i = 0, t = thread; i < p->active; i++, t = t + 1 < p->active ? t + 1 : 0)
        while (take_of(p, region, t, i == 0, &begin, &end)) run_chunks(p, begin, end, thread);
}

typedef struct worker_arg {
    vb__pool *pool;
    int32_t thread;
} worker_arg;

static void *worker(void *arg) {
    worker_arg w = *(worker_arg *)arg;
    vb__free(arg);
    vb__pool *p = w.pool;
    _Atomic uint64_t *at = &p->seats[w.thread].at;
    (void)vb__fp_enter();
    uint64_t seen = CALL(FIRST_REGION - 1, 0);
    for (;;) {
        uint64_t now = atomic_load_explicit(&p->call, memory_order_acquire);
        for (int i = 0; now == seen && p->spin && i < SPIN; i++) {
            _mm_pause();
            now = atomic_load_explicit(&p->call, memory_order_acquire);
        }
        while (now == seen) {
            atomic_fetch_add(&p->sleepers, 1);
            futex_wait(&p->call, (uint32_t)seen);
            atomic_fetch_sub(&p->sleepers, 1);
            now = atomic_load_explicit(&p->call, memory_order_acquire);
        }
        seen = now;
        if (atomic_load_explicit(&p->stop, memory_order_acquire)) return NULL;
        uint64_t region = now >> 16, then = atomic_load_explicit(at, memory_order_relaxed);
        if ((uint64_t)w.thread >= (now & UINT16_MAX)) continue;
        /* Closed, or so long ago that a later one is. */
        if (then >> 2 >= region || !atomic_compare_exchange_strong(at, &then, SEAT(region, INSIDE))) continue;
        take_part(p, region, w.thread);
        atomic_store(at, SEAT(region, DONE));
        if (atomic_load(&p->caller_sleeps)) {
            atomic_fetch_add(&p->wake, 1);
            futex_wake(&p->wake, 1);
        }
    }
}

/* The number of the region that `threads` threads are called to. */
static uint64_t publish(vb__pool *p, int32_t threads) {
    uint64_t region = (atomic_load_explicit(&p->call, memory_order_relaxed) >> 16) + 1; /* one caller: nobody else writes it */
    /* Words of parts know 32 bits of the number: none may grow so old that it comes round. */
    if ((region & INT32_MAX) == 0)
        for (int32_t t = 0; t < p->threads; t++) atomic_store_explicit(&p->own[t].left, PART(region - 1, 0, 0), memory_order_relaxed);
    atomic_store(&p->call, CALL(region, threads));
    if (atomic_load(&p->sleepers) > 0) futex_wake(&p->call, INT32_MAX);
    return region;
}

/* Closes a region for the workers that are not in it. False: worker t is. */
static bool is_out(vb__pool *p, uint64_t region, int32_t t) {
    _Atomic uint64_t *at = &p->seats[t].at;
    uint64_t s = atomic_load_explicit(at, memory_order_acquire);
    while (s >> 2 != region)
        if (atomic_compare_exchange_weak(at, &s, SEAT(region, CLOSED))) return true;
    return (s & 3) != INSIDE;
}

static void free_pool(vb__pool *p) {
    vb__free(p->tid);
    vb__free(p->own);
    vb__free(p->seats);
    vb__free(p);
}

vb_err vb__pool_create(int32_t threads, vb__pool **out, vb_error *err) {
    if (threads < 1 || threads > MAX_THREADS)
        return vb__fail(err, VB_E_RANGE, "threads: %d, expected 1 to %d", threads, MAX_THREADS);
    vb__pool *p = vb__alloc_aligned(VB_TAG_ENGINE, sizeof *p);
    if (p == NULL) return vb__fail(err, VB_E_MEMORY, "threads: out of memory for a pool of %d", threads);
    atomic_init(&p->call, CALL(FIRST_REGION - 1, 0));
    p->threads = threads;
    p->spin = threads <= vb__cpu_count();
    p->tid = vb__calloc(VB_TAG_ENGINE, (size_t)threads, sizeof *p->tid);
    p->own = vb__alloc_aligned(VB_TAG_ENGINE, (size_t)threads * sizeof *p->own);
    p->seats = vb__alloc_aligned(VB_TAG_ENGINE, (size_t)threads * sizeof *p->seats);
    if (p->tid == NULL || p->own == NULL || p->seats == NULL) {
        free_pool(p);
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
    (void)publish(p, 0);
    for (int32_t i = 0; i < p->started; i++) (void)pthread_join(p->tid[i], NULL);
    free_pool(p);
}

int32_t vb__pool_threads(const vb__pool *p) { return p->threads; }

static void region(vb__pool *p, int32_t n_items, int32_t grain, bool shares, vb__pool_fn *fn, void *ctx) {
    if (n_items <= 0) return;
    vb_assert(grain >= 1);
    if (p->threads == 1 || n_items <= grain) {
        fn(ctx, 0, n_items, 0);
        return;
    }
    while (n_items / grain >= MAX_CHUNKS) grain *= 2;
    p->fn = fn;
    p->ctx = ctx;
    p->n_items = n_items;
    p->grain = grain;
    p->chunks = n_items / grain + (n_items % grain != 0);
    p->active = p->chunks < p->threads ? p->chunks : p->threads;
    p->shares = shares;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    uint64_t number = publish(p, p->active);
    take_part(p, number, 0);
    int32_t t = 1, out = 0;
    for (int32_t i = 1; i < p->active; i++) out += is_out(p, number, i); /* side by side: each is a line of another core */
    if (out == p->active - 1) return;
    for (int i = 0; t < p->active && p->spin && i < SPIN; i++) {
        while (t < p->active && is_out(p, number, t)) t++;
        if (t < p->active) _mm_pause();
    }
    if (t == p->active) return;
    atomic_store(&p->caller_sleeps, true);
    while (t < p->active) {
        uint32_t woken = atomic_load(&p->wake);
        while (t < p->active && is_out(p, number, t)) t++;
        if (t < p->active) futex_wait(&p->wake, woken);
    }
    atomic_store(&p->caller_sleeps, false);
}

void vb__parallel_for(vb__pool *p, int32_t n_items, int32_t grain, vb__pool_fn *fn, void *ctx) {
    region(p, n_items, grain, false, fn, ctx);
}

void vb__parallel_shares(vb__pool *p, int32_t n_items, int32_t grain, vb__pool_fn *fn, void *ctx) {
    region(p, n_items, grain, true, fn, ctx);
}
