/* The thread pool. A region is n items; every item is computed whole by one thread, and which thread does
 * not matter to any result. No reduction ever crosses items. */
#ifndef VB_BASE_POOL_H
#define VB_BASE_POOL_H
#include "base/error.h"
#include <stdint.h>

typedef struct vb__pool vb__pool;

/* For tests: the region of this number (from 0) is the first whose number has 32 low bits of 0. */
enum { VB_POOL_ROUND = 1000 };

/* Items begin..end-1. `thread` is 0..threads-1 and unique among the calls running at one time: an index for
 * per-thread scratch. Runs with the contract's MXCSR. Must not start a region itself. */
typedef void vb__pool_fn(void *ctx, int32_t begin, int32_t end, int32_t thread);

/* A pool of exactly `threads` >= 1 threads, the caller of vb__parallel_for being one of them. Workers spin
 * for a bounded time between regions if there are no more of them than CPUs allowed, else sleep at once.
 * Call vb__cpu_detect first (AMX permission is inherited by threads made later). */
VB_MUST_USE vb_err vb__pool_create(int32_t threads, vb__pool **out, vb_error *err);
void vb__pool_destroy(vb__pool *p); /* accepts NULL */
int32_t vb__pool_threads(const vb__pool *p);

/* Runs fn over 0..n_items-1 in chunks of `grain` (>= 1) items (of more where there would be over 65,534 chunks), handed out in
 * ascending order, so that neighbours run at the same time; returns when all are done. One region at a time (one calling thread).
 * No more threads than chunks take part; n_items <= grain runs on the caller alone. */
void vb__parallel_for(vb__pool *p, int32_t n_items, int32_t grain, vb__pool_fn *fn, void *ctx);

/* The same for items that stream from memory, where every call of fn has a cost to start and what a thread has touched before lies
 * in its cache: thread t begins with part t of the items, takes many chunks at once, one at the end, and then helps
 * the others from the ends of their parts. */
void vb__parallel_shares(vb__pool *p, int32_t n_items, int32_t grain, vb__pool_fn *fn, void *ctx);

#endif
