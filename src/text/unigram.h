/* Unigram: the segmentation with the highest sum of scores, found left to right (Viterbi) in double
 * precision, ties to the segmentation found first, as the stock library does it. */
#ifndef VB_TEXT_UNIGRAM_H
#define VB_TEXT_UNIGRAM_H
#include "text/byte_trie.h"
#include "text/vocabulary.h"

typedef struct vb__unigram {
    vb__byte_trie trie; /* values are ids */
    double *scores;     /* of each id */
    int32_t n_scores;
    int32_t unk;      /* or VB_NO_TOKEN: an unknown character is then an error */
    double unk_score; /* lowest score - 10 */
    bool byte_fallback;
    int32_t byte_ids[256];
    bool has_all_bytes;
} vb__unigram;

typedef struct vb__unigram_scratch { /* one per thread; zero-initialised */
    struct vb__unigram_node {
        double score;
        uint32_t start; /* UINT32_MAX: not reached */
        int32_t id;
    } * nodes;
    size_t cap;
} vb__unigram_scratch;

/* Once scores (allocated, all finite), n_scores, unk and byte_fallback are set and v holds the strings;
 * hidden ones will not come out of text. */
VB_MUST_USE vb_err vb__unigram_prepare(vb__unigram *u, const vb__vocabulary *v);
void vb__unigram_fini(vb__unigram *u);
void vb__unigram_scratch_fini(vb__unigram_scratch *s);
/* Appends the ids of one piece of valid UTF-8. `hidden`: ids that must not come out (but the unknown and byte
 * tokens may); NULL: none. */
VB_MUST_USE vb_err vb__unigram_encode(const vb__unigram *u, const vb__vocabulary *v, vb__unigram_scratch *s,
                                      const uint64_t *hidden, const char *text, size_t n, vb__ids *out,
                                      vb_error *err);

#endif
