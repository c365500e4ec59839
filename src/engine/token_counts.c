/* Token counts of one request. See token_counts.h. */
#include "engine/token_counts.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

vb_err vb__token_counts_init(vb__token_counts *c, int64_t max_distinct, vb_error *err) {
    memset(c, 0, sizeof *c);
    if (max_distinct < 1 || max_distinct > VB_LIMIT_VOCAB)
        return vb__fail(err, VB_E_RANGE, "token counts: room for %lld tokens, expected 1 to %d",
                        (long long)max_distinct, (int)VB_LIMIT_VOCAB);
    uint32_t slots = 16;
    while (slots < 2 * (uint64_t)max_distinct) slots *= 2;
    c->entries = vb__calloc(VB_TAG_ENGINE, (size_t)max_distinct, sizeof *c->entries);
    c->slots = vb__calloc(VB_TAG_ENGINE, slots, sizeof *c->slots);
    if (!c->entries || !c->slots) {
        vb__token_counts_fini(c);
        return vb__fail(err, VB_E_MEMORY, "token counts: out of memory for %lld tokens",
                        (long long)max_distinct);
    }
    c->max = (uint32_t)max_distinct;
    c->mask = slots - 1;
    return VB_OK;
}

void vb__token_counts_fini(vb__token_counts *c) {
    vb__free(c->entries);
    vb__free(c->slots);
    memset(c, 0, sizeof *c);
}

/* The slot that holds `id`, or the empty one where it belongs. The table is never more than half full. */
static uint32_t slot_of(const vb__token_counts *c, int32_t id) {
    uint32_t s = ((uint32_t)id * 0x9E3779B1u) >> 7 & c->mask;
    while (c->slots[s] && c->entries[c->slots[s] - 1].id != id) s = (s + 1) & c->mask;
    return s;
}

void vb__token_counts_clear(vb__token_counts *c) {
    /* last first: see pop */
    while (c->n) {
        c->slots[slot_of(c, c->entries[c->n - 1].id)] = 0;
        c->n--;
    }
}

static vb__token_count *find_or_add(vb__token_counts *c, int32_t id) {
    uint32_t s = slot_of(c, id);
    if (!c->slots[s]) {
        if (c->n == c->max) return NULL;
        c->entries[c->n] = (vb__token_count){.id = id};
        c->slots[s] = ++c->n;
    }
    return &c->entries[c->slots[s] - 1];
}

vb_err vb__token_counts_prompt(vb__token_counts *c, const int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        vb__token_count *t = find_or_add(c, ids[i]);
        if (!t) {
            vb__token_counts_clear(c);
            return VB_E_LIMIT;
        }
        t->prompt++;
    }
    return VB_OK;
}

vb_err vb__token_counts_push(vb__token_counts *c, int32_t id) {
    vb__token_count *t = find_or_add(c, id);
    if (!t) return VB_E_LIMIT;
    t->answer++;
    return VB_OK;
}

void vb__token_counts_pop(vb__token_counts *c, int32_t id) {
    uint32_t s = slot_of(c, id);
    vb_check(c->slots[s] && c->entries[c->slots[s] - 1].answer > 0);
    vb__token_count *t = &c->entries[c->slots[s] - 1];
    t->answer--;
    if (t->answer == 0 && t->prompt == 0) {
        /* Pushes are taken back in reverse order, so this entry is the youngest: no other probe sequence runs
         * over its slot, and emptying it breaks none. */
        vb_check(c->slots[s] == c->n);
        c->slots[s] = 0;
        c->n--;
    }
}

const vb__token_count *vb__token_counts_find(const vb__token_counts *c, int32_t id) {
    uint32_t s = slot_of(c, id);
    return c->slots[s] ? &c->entries[c->slots[s] - 1] : NULL;
}
