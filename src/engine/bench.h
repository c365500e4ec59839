/* Measuring an engine: one pass of everything `bench` prints, as plain numbers. */
#ifndef VB_ENGINE_BENCH_H
#define VB_ENGINE_BENCH_H
#include "backend/profile.h"
#include "engine/costs.h"
#include "engine/engine.h"

enum { VB_BENCH_WIDTHS = 5, VB_BENCH_REPEATS = 64 };

/* Median of interleaved repeats, and how far they lie apart: (largest - smallest) / median. */
typedef struct vb__measured {
    double median, spread, least;
} vb__measured;

typedef struct vb__bench_result {
    int32_t repeats, depth, prefill_tokens;
    vb__measured read_gb_per_s, contract_gops; /* of all threads; limits, so each repeat is the best of some passes */
    vb__measured step_s;                       /* one decode step at depth */
    int64_t step_bytes;
    int32_t rows[VB_BENCH_WIDTHS];
    vb__measured block_s[VB_BENCH_WIDTHS];     /* a block of rows, its first row certain, one committed */
    vb__measured accepted_s[VB_BENCH_WIDTHS];  /* the same after a block of which every row was accepted */
    int64_t row_macs;                          /* of one row with logits */
    vb__measured prefill_s;
    int64_t prefill_macs;
    double classes[VB_PROFILE_CLASSES];        /* seconds of one decode step, the median of some */
    double classes_16[VB_PROFILE_CLASSES];     /* of one block of 16 rows */
    double classes_prefill[VB_PROFILE_CLASSES];
    uint64_t step_allocations;                 /* allocation calls of 8 decode steps of a request */
    int64_t resident_bytes;                    /* of the process, with the sequence at depth */
} vb__bench_result;

/* The engine must have room for vb__bench_context positions, 1 sequence and verify blocks, and no live request. Its slot is reset.
 * progress may be NULL. */
VB_MUST_USE vb_err vb__bench_run(vb__engine *e, int64_t depth, int32_t prefill_tokens, int32_t repeats,
                                 vb_progress_fn *progress, void *user, vb__bench_result *out, vb_error *err);
int64_t vb__bench_context(int64_t depth, int32_t prefill_tokens);
/* Pages that the pool must have: the sequence and its snapshot share all but the last one. */
int64_t vb__bench_pages(int64_t depth, int32_t prefill_tokens);

/* VmRSS of this process in bytes; 0 when unknown. */
int64_t vb__bench_resident(void);

#endif
