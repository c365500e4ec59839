#include "text/byte_trie.h"
#include "base/alloc.h"
#include <string.h>

void vb__byte_trie_init(vb__byte_trie *t) { *t = (vb__byte_trie){.n_nodes = 1}; }

void vb__byte_trie_fini(vb__byte_trie *t) {
    vb__free(t->edges);
    vb__free(t->value);
    *t = (vb__byte_trie){.n_nodes = 1};
}

static void put_edge(struct vb__trie_edge *edges, uint64_t mask, struct vb__trie_edge e) {
    uint64_t at = (e.key * 0x9e3779b97f4a7c15u) >> 20 & mask;
    while (edges[at].key != UINT64_MAX) at = (at + 1) & mask;
    edges[at] = e;
}

static vb_err grow(vb__byte_trie *t) {
    if (t->n_nodes >= t->cap_nodes) {
        uint32_t cap = t->cap_nodes < 256 ? 256 : t->cap_nodes * 2;
        if (cap < t->cap_nodes) return VB_E_LIMIT;
        int32_t *value = vb__realloc_array(VB_TAG_TEXT, t->value, cap, sizeof *value);
        if (value == NULL) return VB_E_MEMORY;
        if (t->cap_nodes == 0) value[0] = -1;
        t->value = value;
        t->cap_nodes = cap;
    }
    if (t->edges == NULL || 2 * ((uint64_t)t->n_edges + 1) > t->mask) {
        uint64_t cap = t->edges == NULL ? 256 : 2 * (t->mask + 1);
        struct vb__trie_edge *edges = vb__realloc_array(VB_TAG_TEXT, NULL, cap, sizeof *edges);
        if (edges == NULL) return VB_E_MEMORY;
        for (uint64_t i = 0; i < cap; i++) edges[i] = (struct vb__trie_edge){UINT64_MAX, 0};
        for (uint64_t i = 0; t->edges != NULL && i <= t->mask; i++)
            if (t->edges[i].key != UINT64_MAX) put_edge(edges, cap - 1, t->edges[i]);
        vb__free(t->edges);
        t->edges = edges;
        t->mask = cap - 1;
    }
    return VB_OK;
}

vb_err vb__byte_trie_add(vb__byte_trie *t, const char *s, size_t n, int32_t value) {
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        VB_TRY(grow(t));
        uint8_t byte = (uint8_t)s[i];
        uint32_t next = vb__byte_trie_child(t, node, byte);
        if (next == 0) {
            next = t->n_nodes++;
            t->value[next] = -1;
            if (node == 0) t->first[byte] = next;
            else {
                put_edge(t->edges, t->mask, (struct vb__trie_edge){(uint64_t)node << 8 | byte, next});
                t->n_edges++;
            }
        }
        node = next;
    }
    t->value[node] = value;
    return VB_OK;
}

int32_t vb__byte_trie_longest(const vb__byte_trie *t, const char *s, size_t n, size_t *len) {
    int32_t best = -1;
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        node = vb__byte_trie_child(t, node, (uint8_t)s[i]);
        if (node == 0) break;
        if (t->value[node] >= 0) {
            best = t->value[node];
            *len = i + 1;
        }
    }
    return best;
}
