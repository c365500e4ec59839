#include "base/alloc.h"
#include "base/error.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Each block is preceded by a 64-byte header, so that aligned and plain blocks share one free. */
typedef struct block {
    size_t bytes;      /* as asked for */
    size_t mapped;     /* length of the mapping, 0 when the block came from malloc */
    void *base;        /* what free or munmap takes */
    uint32_t tag, magic;
    bool aligned; /* came from vb__alloc_aligned */
    char pad[64 - 3 * sizeof(size_t) - 9];
} block;

enum { BLOCK_MAGIC = 0x76624d21, HUGE_FROM = 4u << 20, HUGE_PAGE = 2u << 20 };

static _Atomic size_t bytes_in_use[VB_TAG_COUNT];
static _Atomic uint64_t calls;
static _Atomic uint64_t fail_at;
static _Atomic bool fail_always;

static bool must_fail(void) {
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    uint64_t n = atomic_load_explicit(&fail_at, memory_order_relaxed);
    if (n == 0) return false;
    if (n == 1) {
        if (!atomic_load_explicit(&fail_always, memory_order_relaxed)) atomic_store(&fail_at, 0);
        return true;
    }
    atomic_store_explicit(&fail_at, n - 1, memory_order_relaxed);
    return false;
}

static void *block_start(block *b, vb__tag tag, size_t bytes, size_t mapped, void *base) {
    b->bytes = bytes;
    b->mapped = mapped;
    b->base = base;
    b->tag = (uint32_t)tag;
    b->magic = BLOCK_MAGIC;
    b->aligned = false;
    atomic_fetch_add_explicit(&bytes_in_use[tag], bytes, memory_order_relaxed);
    return b + 1;
}

static void *aligned_start(block *b, vb__tag tag, size_t bytes, size_t mapped, void *base) {
    void *p = block_start(b, tag, bytes, mapped, base);
    b->aligned = true;
    return p;
}

void *vb__alloc(vb__tag tag, size_t bytes) {
    size_t total;
    if (must_fail() || !vb__add_size(bytes, sizeof(block), &total)) return NULL;
    block *b = malloc(total);
    return b == NULL ? NULL : block_start(b, tag, bytes, 0, b);
}

void *vb__calloc(vb__tag tag, size_t count, size_t bytes) {
    size_t n, total;
    if (must_fail() || !vb__mul_size(count, bytes, &n) || !vb__add_size(n, sizeof(block), &total)) return NULL;
    block *b = calloc(1, total);
    return b == NULL ? NULL : block_start(b, tag, n, 0, b);
}

void *vb__realloc_array(vb__tag tag, void *p, size_t count, size_t bytes) {
    size_t n;
    if (!vb__mul_size(count, bytes, &n)) return NULL;
    if (p == NULL) return vb__alloc(tag, n);
    block *b = (block *)p - 1;
    vb_check(b->magic == BLOCK_MAGIC);
    if (b->aligned) {
        void *q = vb__alloc_aligned(tag, n);
        if (q == NULL) return NULL;
        memcpy(q, p, b->bytes < n ? b->bytes : n);
        vb__free(p);
        return q;
    }
    size_t total, old = b->bytes;
    uint32_t old_tag = b->tag;
    if (must_fail() || !vb__add_size(n, sizeof(block), &total)) return NULL;
    b = realloc(b, total);
    if (b == NULL) return NULL;
    atomic_fetch_sub_explicit(&bytes_in_use[old_tag], old, memory_order_relaxed);
    return block_start(b, tag, n, 0, b);
}

void *vb__alloc_aligned(vb__tag tag, size_t bytes) {
    size_t total;
    if (must_fail() || !vb__add_size(bytes, sizeof(block) + 64, &total)) return NULL;
    if (total >= HUGE_FROM) {
        /* The data starts on a huge-page boundary (its header on the page before), so that a later madvise
         * covers all of it. */
        if (!vb__add_size(bytes, 2 * (size_t)HUGE_PAGE, &total)) return NULL;
        char *base = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (base == MAP_FAILED) return NULL;
        char *data = base + HUGE_PAGE - (uintptr_t)base % HUGE_PAGE;
        (void)madvise(data, bytes, MADV_HUGEPAGE);
        return aligned_start((block *)(void *)data - 1, tag, bytes, total, base);
    }
    char *base = calloc(1, total);
    if (base == NULL) return NULL;
    char *data = base + sizeof(block);
    data += (64 - (uintptr_t)data % 64) % 64;
    return aligned_start((block *)(void *)data - 1, tag, bytes, 0, base);
}

char *vb__strndup(vb__tag tag, const char *s, size_t n) {
    char *p = vb__alloc(tag, n + 1);
    if (p == NULL) return NULL;
    memcpy(p, s, n);
    p[n] = '\0';
    return p;
}

char *vb__strdup(vb__tag tag, const char *s) { return vb__strndup(tag, s, strlen(s)); }

void vb__free(void *p) {
    if (p == NULL) return;
    block *b = (block *)p - 1;
    vb_check(b->magic == BLOCK_MAGIC);
    b->magic = 0;
    atomic_fetch_sub_explicit(&bytes_in_use[b->tag], b->bytes, memory_order_relaxed);
    if (b->mapped != 0) (void)munmap(b->base, b->mapped);
    else free(b->base);
}

size_t vb__alloc_bytes(vb__tag tag) { return atomic_load_explicit(&bytes_in_use[tag], memory_order_relaxed); }
uint64_t vb__alloc_calls(void) { return atomic_load_explicit(&calls, memory_order_relaxed); }
void vb__alloc_fail_at(uint64_t n, bool always) {
    atomic_store(&fail_always, always);
    atomic_store(&fail_at, n);
}
