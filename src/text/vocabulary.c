#include "text/vocabulary.h"
#include "base/alloc.h"
#include "base/limits.h"
#define XXH_INLINE_ALL
#include <string.h>
#include <xxhash.h>

vb_err vb__ids_reserve(vb__ids *l, size_t more) {
    if (l->cap - l->len >= more) return VB_OK;
    size_t cap = l->cap < 64 ? 64 : l->cap * 2;
    if (cap < l->len + more) cap = l->len + more;
    int32_t *p = vb__realloc_array(VB_TAG_TEXT, l->data, cap, sizeof *p);
    if (p == NULL) return VB_E_MEMORY;
    l->data = p;
    l->cap = cap;
    return VB_OK;
}

void vb__ids_fini(vb__ids *l) {
    vb__free(l->data);
    *l = (vb__ids){0};
}

/* ---- the table ---- */

static vb_err slots_resize(vb__vocabulary *v, size_t slots) {
    struct vb__vocab_slot *s = vb__realloc_array(VB_TAG_TEXT, NULL, slots, sizeof *s);
    if (s == NULL) return VB_E_MEMORY;
    memset(s, 0xff, slots * sizeof *s);
    uint32_t mask = (uint32_t)slots - 1;
    for (size_t i = 0; v->slots != NULL && i <= v->mask; i++) {
        if (v->slots[i].id < 0) continue;
        const struct vb__vocab_entry *e = &v->by_id[v->slots[i].id];
        uint32_t at = (uint32_t)XXH3_64bits(v->bytes + e->offset, e->len) & mask;
        while (s[at].id >= 0) at = (at + 1) & mask;
        s[at] = v->slots[i];
    }
    vb__free(v->slots);
    v->slots = s;
    v->mask = mask;
    return VB_OK;
}

vb_err vb__vocabulary_init(vb__vocabulary *v, size_t count, size_t bytes) {
    *v = (vb__vocabulary){0};
    size_t slots = 1024;
    while (slots < 2 * count && slots < (size_t)2 * VB_LIMIT_VOCAB) slots *= 2;
    v->cap_bytes = bytes + 64 < VB_LIMIT_JSON_BYTES ? bytes + 64 : VB_LIMIT_JSON_BYTES;
    v->bytes = vb__alloc(VB_TAG_TEXT, v->cap_bytes);
    if (v->bytes == NULL) return VB_E_MEMORY;
    return slots_resize(v, slots);
}

void vb__vocabulary_fini(vb__vocabulary *v) {
    vb__free(v->bytes);
    vb__free(v->by_id);
    vb__free(v->slots);
    *v = (vb__vocabulary){0};
}

static vb_err make_room(vb__vocabulary *v, size_t n, int32_t id) {
    if (n > (size_t)VB_LIMIT_JSON_BYTES - v->n_bytes) return VB_E_LIMIT;
    if (v->n_bytes + n > v->cap_bytes) {
        size_t cap = 2 * v->cap_bytes > v->n_bytes + n ? 2 * v->cap_bytes : v->n_bytes + n;
        char *p = vb__realloc_array(VB_TAG_TEXT, v->bytes, cap, 1);
        if (p == NULL) return VB_E_MEMORY;
        v->bytes = p;
        v->cap_bytes = cap;
    }
    if (id >= v->cap_ids) {
        int32_t cap = v->cap_ids < 512 ? 1024 : v->cap_ids * 2;
        if (cap <= id) cap = id + 1;
        struct vb__vocab_entry *p = vb__realloc_array(VB_TAG_TEXT, v->by_id, (size_t)cap, sizeof *p);
        if (p == NULL) return VB_E_MEMORY;
        v->by_id = p;
        v->cap_ids = cap;
    }
    if ((uint64_t)v->count * 2 >= v->mask) return slots_resize(v, 2 * ((size_t)v->mask + 1));
    return VB_OK;
}

/* The slot that holds the string, or the free one where it would go. */
static uint32_t slot_of(const vb__vocabulary *v, const char *s, size_t n, uint64_t hash) {
    uint32_t at = (uint32_t)hash & v->mask, tag = (uint32_t)(hash >> 32);
    for (; v->slots[at].id >= 0; at = (at + 1) & v->mask) {
        if (v->slots[at].tag != tag) continue;
        const struct vb__vocab_entry *e = &v->by_id[v->slots[at].id];
        if (e->len == n && memcmp(v->bytes + e->offset, s, n) == 0) break;
    }
    return at;
}

vb_err vb__vocabulary_add(vb__vocabulary *v, const char *s, size_t n, int32_t id, bool unique) {
    if (id < 0 || id >= VB_LIMIT_VOCAB) return VB_E_RANGE;
    if (n > VB_LIMIT_TOKEN_BYTES) return VB_E_LIMIT;
    size_t old;
    const char *text = vb__vocabulary_text(v, id, &old);
    if (text != NULL && (old != n || memcmp(text, s, n) != 0)) return VB_E_MISMATCH;
    if (text != NULL) return unique ? VB_E_FORMAT : VB_OK;
    VB_TRY(make_room(v, n, id));
    for (; v->n_ids <= id; v->n_ids++) v->by_id[v->n_ids] = (struct vb__vocab_entry){0, UINT32_MAX};
    uint64_t hash = XXH3_64bits(s, n);
    uint32_t at = slot_of(v, s, n, hash);
    if (unique && v->slots[at].id >= 0) return VB_E_FORMAT;
    memcpy(v->bytes + v->n_bytes, s, n);
    v->by_id[id] = (struct vb__vocab_entry){(uint32_t)v->n_bytes, (uint32_t)n};
    v->n_bytes += n;
    v->slots[at] = (struct vb__vocab_slot){id, (uint32_t)(hash >> 32)};
    v->count++;
    if (n > v->longest) v->longest = (uint32_t)n;
    return VB_OK;
}

int32_t vb__vocabulary_find(const vb__vocabulary *v, const char *s, size_t n) {
    return n > v->longest || v->slots == NULL ? VB_NO_TOKEN
                                              : v->slots[slot_of(v, s, n, XXH3_64bits(s, n))].id;
}

/* ---- bytes as characters ---- */

static int shown_as_itself(unsigned b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; }

/* The other 68 bytes, in order, are U+0100 and up: 0..32, 127..160, 173. */
uint32_t vb__byte_char(unsigned byte) {
    if (shown_as_itself(byte)) return byte;
    return byte <= 32 ? 256 + byte : byte == 173 ? 256 + 67 : 256 + 33 + (byte - 127);
}

int vb__char_byte(uint32_t c) {
    if (c < 256) return shown_as_itself(c) ? (int)c : -1;
    if (c < 256 + 33) return (int)(c - 256);
    if (c < 256 + 67) return (int)(c - 256 - 33 + 127);
    return c == 256 + 67 ? 173 : -1;
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

int vb__byte_token(const char *s, size_t n) {
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>') return -1;
    int a = hex(s[3]), b = hex(s[4]);
    return a < 0 || b < 0 ? -1 : 16 * a + b;
}
