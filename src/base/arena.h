/* An arena: many small allocations that die together. Not for blocks that are freed one by one. Not
 * thread-safe. */
#ifndef VB_BASE_ARENA_H
#define VB_BASE_ARENA_H
#include "base/alloc.h"

typedef struct vb__arena {
    struct vb__arena_chunk *head;
    vb__tag tag;
    size_t used, limit; /* bytes handed out so far; hard limit (0: none) */
} vb__arena;

void vb__arena_init(vb__arena *a, vb__tag tag, size_t limit);
/* 16-byte aligned, zeroed; NULL when out of memory or over the limit. */
void *vb__arena_alloc(vb__arena *a, size_t bytes);
char *vb__arena_strndup(vb__arena *a, const char *s, size_t n);
void vb__arena_fini(vb__arena *a);

#endif
