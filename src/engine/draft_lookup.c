#include "engine/draft_lookup.h"
#include "base/alloc.h"
#include <string.h>

/* head[hash of (t[i-1], t[i])] is the latest i+1 with that hash (0: none); prev[i+1] the one before it. A
 * candidate is checked token by token, so a hash collision costs time only. */
struct vb__lookup {
    int32_t *head, *prev;
    uint32_t mask;
    int32_t max, indexed; /* tokens whose bigram is indexed */
};

enum { WALK = 64 };

static uint32_t slot_of(const vb__lookup *l, int32_t a, int32_t b) {
    uint64_t h = ((uint64_t)(uint32_t)a << 32 | (uint32_t)b) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(h >> 32) & l->mask;
}

vb_err vb__lookup_create(int32_t max_tokens, vb__lookup **out, vb_error *err) {
    vb__lookup *l = vb__calloc(VB_TAG_ENGINE, 1, sizeof *l);
    if (l == NULL) return vb__fail(err, VB_E_MEMORY, "lookup: out of memory");
    uint32_t size = 1024;
    while (size < (uint32_t)max_tokens && size < 1u << 30) size *= 2;
    l->mask = size - 1;
    l->max = max_tokens;
    l->head = vb__calloc(VB_TAG_ENGINE, size, sizeof *l->head);
    l->prev = vb__calloc(VB_TAG_ENGINE, (size_t)max_tokens + 1, sizeof *l->prev);
    if (l->head == NULL || l->prev == NULL) {
        vb__lookup_destroy(l);
        return vb__fail(err, VB_E_MEMORY, "lookup: out of memory for %d tokens", max_tokens);
    }
    *out = l;
    return VB_OK;
}

void vb__lookup_destroy(vb__lookup *l) {
    if (l == NULL) return;
    vb__free(l->head);
    vb__free(l->prev);
    vb__free(l);
}

void vb__lookup_reset(vb__lookup *l) {
    if (l->indexed == 0) return;
    memset(l->head, 0, ((size_t)l->mask + 1) * sizeof *l->head);
    l->indexed = 0;
}

int32_t vb__lookup_propose(vb__lookup *l, const int32_t *tokens, int32_t n, int32_t *out, int32_t max, int32_t *match) {
    *match = 0;
    if (n > l->max || n < VB_LOOKUP_MIN + 1) return 0;
    /* Everything but the last bigram, which is what is looked for. */
    for (int32_t i = l->indexed > 1 ? l->indexed : 1; i < n - 1; i++) {
        uint32_t s = slot_of(l, tokens[i - 1], tokens[i]);
        l->prev[i + 1] = l->head[s];
        l->head[s] = i + 1;
    }
    l->indexed = n - 1;
    int32_t best = 0, best_at = 0;
    int32_t at = l->head[slot_of(l, tokens[n - 2], tokens[n - 1])];
    for (int32_t step = 0; at != 0 && step < WALK; at = l->prev[at], step++) {
        int32_t len = 0; /* tokens[at-1-len] against tokens[n-1-len] */
        while (len < VB_LOOKUP_MAX && len < at && tokens[at - 1 - len] == tokens[n - 1 - len]) len++;
        if (len > best) {
            best = len;
            best_at = at;
        }
        if (best == VB_LOOKUP_MAX) break;
    }
    if (best < VB_LOOKUP_MIN) return 0;
    *match = best;
    int32_t count = 0;
    /* The continuation may run into the context itself: then it repeats with that period. */
    int32_t period = n - best_at;
    for (; count < max; count++) out[count] = tokens[best_at + count % period];
    return count;
}

int32_t vb__lookup_given(const int32_t *given, int32_t n_given, const int32_t *answer, int32_t n, int32_t *out, int32_t max, int32_t *match) {
    int32_t best = 0, at = 0;
    *match = 0;
    if (n < 1) return 0;
    for (int32_t i = 0; i + 1 < n_given; i++) { /* given[i] against the answer's last token */
        if (given[i] != answer[n - 1]) continue;
        int32_t len = 1;
        while (len < VB_LOOKUP_MAX && len <= i && len < n && given[i - len] == answer[n - 1 - len]) len++;
        if (len > best || (len == best && best > 0 && i + 1 == n)) { /* the same place as in the answer is the likeliest */
            best = len;
            at = i + 1;
        }
    }
    if (best < VB_LOOKUP_MIN && !(n == 1 && at == 1)) return 0;
    *match = best < VB_LOOKUP_MIN ? VB_LOOKUP_MIN : best;
    int32_t count = 0;
    for (; count < max && at + count < n_given; count++) out[count] = given[at + count];
    return count;
}
