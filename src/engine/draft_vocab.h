/* The draft vocabulary: which ids an MTP or DFlash draft chooses among. The output head is half to two thirds of what such a draft
 * reads, and nearly all text is made of few ids; a drafter that misses a rare one costs a rejected draft, never the answer.
 *
 * Ids go in panels of VB_RANGE_UNIT, the outputs that a product makes at a time. Hot are the panels
 *  - of a prefix [0, P) of the ids: a tokenizer that merges pairs numbers its tokens in the order of the merges, hence of frequency;
 *  - of every token of the sequence so far, prompt and answer: what was rare elsewhere comes again here;
 *  - of end tokens and added tokens.
 * P is learned, engine-wide, from what was committed (so that no draft can hide what it misses): the tokens that were new to their
 * sequence when they came, by id, say how many would be missed for each P, and P is where the part of the head that is made and the
 * misses together cost least. Old evidence counts half as much every 16384 tokens: a change of language is followed. Without enough
 * evidence, where little would be saved, and for small vocabularies all ids are hot.
 *
 * threads  the engine's own. Nothing is allocated behind create. */
#ifndef VB_ENGINE_DRAFT_VOCAB_H
#define VB_ENGINE_DRAFT_VOCAB_H
#include "backend/backend.h"
#include "base/error.h"
#include <stdint.h>

typedef struct vb__draft_vocab vb__draft_vocab;

enum {
    VB_DRAFT_VOCAB_LEAST = 8192,  /* ids of the smallest vocabulary that is cut */
    VB_DRAFT_VOCAB_KNOWN = 128,   /* tokens counted before P is anything but all, and */
    VB_DRAFT_VOCAB_HALVE = 16384, /*   when they are halved */
    VB_DRAFT_VOCAB_LEARNED = -1   /* for vb__draft_vocab_set */
};

/* For `slots` sequences. `vocab` in 1 .. VB_LIMIT_VOCAB. */
VB_MUST_USE vb_err vb__draft_vocab_create(int32_t vocab, int32_t slots, vb__draft_vocab **out, vb_error *err);
void vb__draft_vocab_destroy(vb__draft_vocab *v); /* accepts NULL */
/* Bytes that it keeps. */
int64_t vb__draft_vocab_bytes(int32_t vocab, int32_t slots);

/* This id is always hot. */
void vb__draft_vocab_always(vb__draft_vocab *v, int32_t id);
/* A sequence begins in a slot and has n tokens, of which the first `old` were counted before (by the sequence it continues). */
void vb__draft_vocab_begin(vb__draft_vocab *v, int32_t slot, const int32_t *tokens, int32_t n, int32_t old);
/* It has n tokens now: those behind the ones seen are news. O(new tokens). */
void vb__draft_vocab_follow(vb__draft_vocab *v, int32_t slot, const int32_t *tokens, int32_t n);
/* This id is hot in the slot's sequence (a bias may make it likely). */
void vb__draft_vocab_add(vb__draft_vocab *v, int32_t slot, int32_t id);

/* Another prefix than the learned one (measurements, tests): ids below `prefix` and those that are always hot, nothing else; all of
 * them from the vocabulary's size on. VB_DRAFT_VOCAB_LEARNED: back to what was learned. */
void vb__draft_vocab_set(vb__draft_vocab *v, int32_t prefix);
/* P that is learned now; the vocabulary's size while all ids are hot. */
int32_t vb__draft_vocab_prefix(const vb__draft_vocab *v);

/* What is hot for the sequences of slots[0..n-1]: ranges for linear_argmax, valid until the next call; 0: all ids. Short gaps are
 * closed. */
int32_t vb__draft_vocab_ranges(vb__draft_vocab *v, const int32_t *slots, int32_t n, const vb__out_range **ranges);

#endif
