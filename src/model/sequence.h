/* Sequences: the state of one token sequence on a device, and the pool of KV pages that sequences share.
 *
 * A sequence is at a committed length n: KV of positions 0..n-1 in pages, the recurrent state after n tokens
 * (with up to 16 accepted tape rows still to be applied), and the conv tails. forward runs rows at positions
 * n, n+1, ...; commit then says how many of them became part of the sequence. Rows beyond the length may be
 * left in pages; they are never visible and count as zero when state is hashed or saved. */
#ifndef VB_MODEL_SEQUENCE_H
#define VB_MODEL_SEQUENCE_H
#include "backend/backend.h"
#include "model/model.h"

/* The page pool. One thread at a time. Pages are zero when handed out. */
typedef struct vb__page_pool vb__page_pool;
VB_MUST_USE vb_err vb__page_pool_create(vb__backend *be, int64_t page_bytes, int32_t n_pages, vb__page_pool **out,
                                        vb_error *err);
void vb__page_pool_destroy(vb__page_pool *p);
int32_t vb__page_pool_free_count(const vb__page_pool *p);
int32_t vb__page_pool_count(const vb__page_pool *p);

typedef struct vb__seq {
    const vb__model *model;
    vb__page_pool *pool;
    int32_t length;     /* committed positions */
    int32_t max_pages;
    int32_t n_pages;
    uint8_t **pages;    /* [max_pages] device pointers, for launchers */
    int32_t *page_ids;  /* [max_pages] */
    float *state, *conv_tail; /* device */
    float *tape[2];     /* device, tape_rows rows each, or NULL when tape_rows is 0 */
    int32_t tape_rows;
    int32_t cur;        /* the tape that the last forward wrote */
    int32_t replay;     /* accepted rows of tape[cur] not yet in state */
    int32_t ran, certain; /* rows of the last forward, 0 when committed */
    uint8_t *failed;    /* [max_rows] of the last forward */
    int32_t max_rows;
} vb__seq;

/* max_length positions, calls of at most max_rows rows, of which at most tape_rows uncertain ones. */
VB_MUST_USE vb_err vb__seq_create(const vb__model *m, vb__page_pool *pool, int32_t max_length, int32_t max_rows,
                                  int32_t tape_rows, vb__seq **out, vb_error *err);
void vb__seq_destroy(vb__seq *s); /* gives its pages back; accepts NULL */
/* Length 0, state zero, pages given back. */
void vb__seq_reset(vb__seq *s);
/* Makes pages for positions below `length` exist and be writable (a shared page is copied). VB_E_CONTEXT_FULL when
 * `length` is beyond max_length, VB_E_MEMORY when the pool is out of pages (nothing is lost then). */
VB_MUST_USE vb_err vb__seq_reserve(vb__seq *s, int32_t length);
/* After forward: the first n of the rows that ran (certain <= n <= ran) become part of the sequence. VB_E_NONFINITE when one of
 * them had a k or v that is not finite; the sequence is then unusable until reset. */
VB_MUST_USE vb_err vb__seq_commit(vb__seq *s, int32_t n);
/* Applies accepted tape rows, so that state and conv_tail are those of `length`. */
void vb__seq_flush(vb__seq *s);
/* Forgets positions from `length` on in KV only (for layers without recurrent state: drafters). */
void vb__seq_truncate_kv(vb__seq *s, int32_t length);

/* A copy of a sequence at its length (pages shared, reference-counted; a partial page is copied). */
typedef struct vb__snapshot vb__snapshot;
VB_MUST_USE vb_err vb__seq_save(vb__seq *s, vb__snapshot **out);
VB_MUST_USE vb_err vb__seq_restore(vb__seq *s, const vb__snapshot *snap); /* s keeps its own buffers */
void vb__snapshot_destroy(vb__snapshot *snap);
int32_t vb__snapshot_length(const vb__snapshot *snap);

/* XXH3-128 of everything the next forward can read (KV below length, state, tails), after a flush. */
void vb__seq_hash(vb__seq *s, uint8_t out[16]);

#endif
