/* A set of byte strings, each with a number, searched by prefix. Edges live in one hash table, so a node with
 * thousands of children costs no more than one with two. Immutable after building; any thread may read. */
#ifndef VB_TEXT_BYTE_TRIE_H
#define VB_TEXT_BYTE_TRIE_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vb__byte_trie {
    struct vb__trie_edge {
        uint64_t key; /* node << 8 | byte; UINT64_MAX: free */
        uint32_t node;
    } * edges;
    uint64_t mask;
    int32_t *value; /* of each node, -1: none ends here */
    uint32_t n_nodes, cap_nodes, n_edges;
    uint32_t first[256]; /* children of the root, 0: none */
} vb__byte_trie;

void vb__byte_trie_init(vb__byte_trie *t);
void vb__byte_trie_fini(vb__byte_trie *t);
/* n >= 1, value >= 0; a string given twice keeps its newer value. */
VB_MUST_USE vb_err vb__byte_trie_add(vb__byte_trie *t, const char *s, size_t n, int32_t value);

static inline uint32_t vb__byte_trie_child(const vb__byte_trie *t, uint32_t node, uint8_t byte) {
    if (node == 0) return t->first[byte];
    uint64_t key = (uint64_t)node << 8 | byte, at = (key * 0x9e3779b97f4a7c15u) >> 20 & t->mask;
    for (;; at = (at + 1) & t->mask) {
        if (t->edges[at].key == key) return t->edges[at].node;
        if (t->edges[at].key == UINT64_MAX) return 0;
    }
}

/* The longest string of the set that is a prefix of s; its value, -1 if none; *len its bytes. */
int32_t vb__byte_trie_longest(const vb__byte_trie *t, const char *s, size_t n, size_t *len);

#endif
