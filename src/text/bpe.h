/* Byte-pair encoding of one word: symbols are merged, lowest rank first, leftmost among equals, until no pair
 * of neighbours has a rule. Short words by scanning, long ones with a queue: O(n log n) for n symbols. */
#ifndef VB_TEXT_BPE_H
#define VB_TEXT_BPE_H
#include "text/vocabulary.h"

enum { VB_UNK_MISSING = -2 }; /* unk_token names no token: an unknown character is an error */

typedef struct vb__bpe {
    /* options, set before vb__bpe_prepare; strings are owned */
    bool byte_level;    /* the word is raw bytes; each stands for one character of vb__byte_char */
    bool byte_fallback; /* an unknown character becomes its bytes, tokens <0x00>..<0xFF> */
    bool fuse_unk, ignore_merges;
    int32_t unk; /* id for characters without a token; VB_NO_TOKEN: they are dropped; VB_UNK_MISSING */
    char *prefix, *suffix; /* of characters inside a word, of the last one; NULL or not empty */
    /* the rules */
    struct vb__merge {
        uint64_t key; /* left << 32 | right; UINT64_MAX: free */
        uint32_t rank;
        int32_t id;
    } * merges;
    uint64_t mask;
    size_t n_merges;
    /* made by vb__bpe_prepare */
    int32_t byte_ids[256]; /* tokens of the bytes (byte_level: as characters; else <0x..>) */
    bool has_all_bytes;
    int32_t *char_ids; /* of U+0000..U+FFFF, not for byte_level */
    uint64_t *joined;  /* bit set over hashes of character pairs that stand side by side inside some
                          mergeable token; NULL when words must not be cut */
} vb__bpe;

typedef struct vb__bpe_scratch { /* one per thread; zero-initialised */
    struct vb__bpe_symbol {
        int32_t id, prev, next;
    } * symbols;
    uint64_t *heap;
    size_t cap_symbols, n_heap, cap_heap;
} vb__bpe_scratch;

void vb__bpe_init(vb__bpe *b);
void vb__bpe_fini(vb__bpe *b);
/* Adds the rule left + right -> id; a rule given twice keeps its later rank. `expected`: hint for the table.
 */
VB_MUST_USE vb_err vb__bpe_add_merge(vb__bpe *b, int32_t left, int32_t right, uint32_t rank, int32_t id,
                                     size_t expected);
/* Call once after all rules are there. */
VB_MUST_USE vb_err vb__bpe_prepare(vb__bpe *b, const vb__vocabulary *v);
void vb__bpe_scratch_fini(vb__bpe_scratch *s);
/* Appends the ids of one word (valid UTF-8, or raw bytes when byte_level). VB_E_MEMORY; VB_E_FORMAT for
 * an unknown character and VB_UNK_MISSING; VB_E_LIMIT for a word
 * of more than VB_LIMIT_WORD_SYMBOLS symbols that cannot be cut. `hidden`: ids that must not come out (but
 * the unknown and byte tokens may); NULL: none. */
VB_MUST_USE vb_err vb__bpe_encode(const vb__bpe *b, const vb__vocabulary *v, vb__bpe_scratch *s,
                                  const uint64_t *hidden, const char *word, size_t n, vb__ids *out);
/* Where a word can be cut: the first place in (0, n] that no merge can cross; n when none is known. Both
 * parts encoded one after the other give the ids of the whole. */
size_t vb__bpe_next_cut(const vb__bpe *b, const vb__vocabulary *v, const char *word, size_t n);

#endif
