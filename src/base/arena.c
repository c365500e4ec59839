#include "base/arena.h"
#include <string.h>

typedef struct vb__arena_chunk {
    struct vb__arena_chunk *next;
    size_t used, cap;
    _Alignas(16) char data[];
} chunk;

enum { CHUNK_MIN = 64 * 1024 };

void vb__arena_init(vb__arena *a, vb__tag tag, size_t limit) {
    *a = (vb__arena){.tag = tag, .limit = limit};
}

void *vb__arena_alloc(vb__arena *a, size_t bytes) {
    size_t n;
    if (!vb__add_size(bytes, 15, &n)) return NULL;
    n &= ~(size_t)15;
    if (a->limit != 0 && (n > a->limit || a->used > a->limit - n)) return NULL;
    chunk *c = a->head;
    if (c == NULL || c->cap - c->used < n) {
        size_t cap = n > CHUNK_MIN / 4 ? n : CHUNK_MIN, total;
        if (!vb__add_size(cap, sizeof(chunk), &total)) return NULL;
        c = vb__alloc(a->tag, total);
        if (c == NULL) return NULL;
        c->used = 0;
        c->cap = cap;
        if (cap != CHUNK_MIN && a->head != NULL) { /* a large block does not end the current chunk */
            c->next = a->head->next;
            a->head->next = c;
        } else {
            c->next = a->head;
            a->head = c;
        }
    }
    void *p = c->data + c->used;
    c->used += n;
    a->used += n;
    memset(p, 0, n);
    return p;
}

char *vb__arena_strndup(vb__arena *a, const char *s, size_t n) {
    size_t total;
    if (!vb__add_size(n, 1, &total)) return NULL;
    char *p = vb__arena_alloc(a, total);
    if (p != NULL && n != 0) memcpy(p, s, n);
    return p;
}

void vb__arena_fini(vb__arena *a) {
    for (chunk *c = a->head, *next; c != NULL; c = next) {
        next = c->next;
        vb__free(c);
    }
    *a = (vb__arena){0};
}
