/* The table of token strings: text to id and id to text. Built once, then immutable; any thread may read. */
#ifndef VB_TEXT_VOCABULARY_H
#define VB_TEXT_VOCABULARY_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VB_NO_TOKEN = -1 };

/* A growing list of token ids; zero-initialised; freed by vb__ids_fini. */
typedef struct vb__ids {
    int32_t *data;
    size_t len, cap;
} vb__ids;
VB_MUST_USE vb_err vb__ids_reserve(vb__ids *l, size_t more);
static inline vb_err vb__ids_push(vb__ids *l, int32_t id) {
    if (l->len == l->cap) VB_TRY(vb__ids_reserve(l, 1));
    l->data[l->len++] = id;
    return VB_OK;
}
void vb__ids_fini(vb__ids *l);

/* A set of ids, as bits; NULL is the empty set. */
static inline bool vb__id_set_has(const uint64_t *set, int32_t id) {
    return set != NULL && (set[id >> 6] >> (id & 63) & 1) != 0;
}

typedef struct vb__vocabulary {
    char *bytes; /* all strings, one behind the other, in order of insertion */
    size_t n_bytes, cap_bytes;
    struct vb__vocab_entry {
        uint32_t offset;
        uint32_t len; /* UINT32_MAX: no token has this id */
    } * by_id;
    int32_t n_ids, cap_ids; /* ids are 0..n_ids-1, possibly with holes */
    int32_t count;          /* tokens */
    struct vb__vocab_slot { /* open addressing */
        int32_t id;         /* VB_NO_TOKEN: free */
        uint32_t tag;       /* upper half of the hash */
    } * slots;
    uint32_t mask;
    uint32_t longest; /* bytes of the longest string */
} vb__vocabulary;

/* Room for about `count` tokens of `bytes` bytes in all; both only hints. */
VB_MUST_USE vb_err vb__vocabulary_init(vb__vocabulary *v, size_t count, size_t bytes);
void vb__vocabulary_fini(vb__vocabulary *v);
/* VB_E_RANGE: id outside 0..VB_LIMIT_VOCAB-1; VB_E_MISMATCH: the id has another string; VB_E_LIMIT: a string
 * longer than VB_LIMIT_TOKEN_BYTES or too many bytes. Where the string exists already: VB_E_FORMAT if
 * `unique`, else vb__vocabulary_find returns the newer id from then on. */
VB_MUST_USE vb_err vb__vocabulary_add(vb__vocabulary *v, const char *s, size_t n, int32_t id, bool unique);
int32_t vb__vocabulary_find(const vb__vocabulary *v, const char *s, size_t n); /* or VB_NO_TOKEN */
/* The string of an id, NULL when there is none; not NUL-terminated; borrowed. */
static inline const char *vb__vocabulary_text(const vb__vocabulary *v, int32_t id, size_t *n) {
    if (id < 0 || id >= v->n_ids || v->by_id[id].len == UINT32_MAX) return NULL;
    *n = v->by_id[id].len;
    return v->bytes + v->by_id[id].offset;
}

/* GPT-2's bijection between bytes and printable characters: all in U+0000..U+0143. */
uint32_t vb__byte_char(unsigned byte);
int vb__char_byte(uint32_t c); /* -1 when c stands for no byte */
/* The byte of "<0x41>", else -1. */
int vb__byte_token(const char *s, size_t n);

#endif
