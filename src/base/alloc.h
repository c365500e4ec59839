/* The only place that calls malloc. Every block is counted under a tag, so that memory can be reported, a
 * test can assert that a decode step allocates nothing, and allocation can be made to fail on purpose. */
#ifndef VB_BASE_ALLOC_H
#define VB_BASE_ALLOC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum vb__tag {
    VB_TAG_MISC,
    VB_TAG_TEXT,    /* tokenizer, templates */
    VB_TAG_FORMAT,  /* file headers, JSON */
    VB_TAG_WEIGHTS, /* packed weights */
    VB_TAG_STATE,   /* KV pages, delta-net states */
    VB_TAG_SCRATCH, /* workspaces of forward */
    VB_TAG_ENGINE,
    VB_TAG_SERVER,
    VB_TAG_COUNT
} vb__tag;

/* NULL when out of memory (or told to fail); a size of 0 gives a valid pointer. Any thread. Contents of
 * vb__alloc are undefined, of vb__calloc zero. vb__calloc and vb__realloc_array check the product. */
void *vb__alloc(vb__tag tag, size_t bytes) __attribute__((malloc, alloc_size(2)));
void *vb__calloc(vb__tag tag, size_t count, size_t bytes) __attribute__((malloc, alloc_size(2, 3)));
void *vb__realloc_array(vb__tag tag, void *p, size_t count, size_t bytes) __attribute__((alloc_size(3, 4)));
/* 64-byte aligned, zeroed, on huge pages where the system allows it when 4 MiB or larger. Freed with vb__free. */
void *vb__alloc_aligned(vb__tag tag, size_t bytes) __attribute__((malloc, alloc_size(2)));
char *vb__strdup(vb__tag tag, const char *s) __attribute__((malloc));
char *vb__strndup(vb__tag tag, const char *s, size_t n) __attribute__((malloc));
/* Accepts NULL. */
void vb__free(void *p);

/* Bytes in use under a tag; number of allocation calls since start (all tags). */
size_t vb__alloc_bytes(vb__tag tag);
uint64_t vb__alloc_calls(void);
/* The n-th call from now (1 = next) fails, once, or from then on always; 0 turns it off. Tests only. */
void vb__alloc_fail_at(uint64_t n, bool always);

/* a*b and a+b in size_t; false when they overflow (out is then SIZE_MAX). */
static inline bool vb__mul_size(size_t a, size_t b, size_t *out) {
    if (__builtin_mul_overflow(a, b, out)) { *out = SIZE_MAX; return false; }
    return true;
}
static inline bool vb__add_size(size_t a, size_t b, size_t *out) {
    if (__builtin_add_overflow(a, b, out)) { *out = SIZE_MAX; return false; }
    return true;
}

#endif
