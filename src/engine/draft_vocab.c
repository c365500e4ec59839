#include "engine/draft_vocab.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

enum {
    BUCKETS = 64,     /* of the ids, for what is learned */
    MISS_COST = 5,    /* of a missed token, in heads: see the rule below */
    GAP = 2,          /* panels between two ranges that are made all the same: they cost less than another start */
    ONE = 256,        /* token in the counts: halved many times before it is lost */
    SLOTS_MOST = 4096
};

struct vb__draft_vocab {
    int32_t vocab, panels, words, slots;
    int32_t bucket; /* ids of one */
    int32_t forced; /* the prefix in place of the learned one, or VB_DRAFT_VOCAB_LEARNED */
    int32_t total, fresh[BUCKETS]; /* tokens counted; those of them that were new, by id; in units of 1 / ONE */
    int32_t *seen;    /* [slots] tokens of the slot's sequence that are in its set */
    uint64_t *always; /* [words], bit: panel */
    uint64_t *hot;    /* [words] scratch */
    uint64_t *sets;   /* [slots][words] */
    vb__out_range ranges[VB_RANGES_MAX];
};

static int32_t panels_of(int32_t vocab) { return (vocab + VB_RANGE_UNIT - 1) / VB_RANGE_UNIT; }
static int32_t words_of(int32_t vocab) { return (panels_of(vocab) + 63) / 64; }

int64_t vb__draft_vocab_bytes(int32_t vocab, int32_t slots) {
    return (int64_t)sizeof(vb__draft_vocab) + slots * (int64_t)sizeof(int32_t) + (int64_t)(slots + 2) * words_of(vocab) * (int64_t)sizeof(uint64_t);
}

vb_err vb__draft_vocab_create(int32_t vocab, int32_t slots, vb__draft_vocab **out, vb_error *err) {
    if (vocab < 1 || vocab > VB_LIMIT_VOCAB || slots < 1 || slots > SLOTS_MOST)
        return vb__fail(err, VB_E_RANGE, "draft vocabulary: %d ids and %d slots, expected 1 to %d and 1 to %d", vocab, slots,
                        (int)VB_LIMIT_VOCAB, SLOTS_MOST);
    vb__draft_vocab *v = vb__calloc(VB_TAG_ENGINE, 1, sizeof *v);
    if (v == NULL) return vb__fail(err, VB_E_MEMORY, "draft vocabulary: out of memory");
    v->vocab = vocab;
    v->slots = slots;
    v->panels = panels_of(vocab);
    v->words = words_of(vocab);
    v->bucket = (v->panels + BUCKETS - 1) / BUCKETS * VB_RANGE_UNIT;
    v->forced = VB_DRAFT_VOCAB_LEARNED;
    size_t words = (size_t)v->words;
    v->seen = vb__calloc(VB_TAG_ENGINE, (size_t)slots, sizeof *v->seen);
    v->always = vb__calloc(VB_TAG_ENGINE, ((size_t)slots + 2) * words, sizeof *v->always);
    if (v->seen == NULL || v->always == NULL) {
        vb__draft_vocab_destroy(v);
        return vb__fail(err, VB_E_MEMORY, "draft vocabulary: out of memory for %d sequences", slots);
    }
    v->hot = v->always + words;
    v->sets = v->hot + words;
    *out = v;
    return VB_OK;
}

void vb__draft_vocab_destroy(vb__draft_vocab *v) {
    if (v == NULL) return;
    vb__free(v->seen);
    vb__free(v->always);
    vb__free(v);
}

/* ---- Evidence ---------------------------------------------------------------------------------------------------- */

static uint64_t *set_of(vb__draft_vocab *v, int32_t slot) {
    vb_check(slot >= 0 && slot < v->slots);
    return v->sets + (size_t)slot * (size_t)v->words;
}

static bool holds(const uint64_t *set, int32_t id) {
    return (set[id / VB_RANGE_UNIT / 64] >> (id / VB_RANGE_UNIT % 64) & 1) != 0;
}

/* True when its panel was not there. */
static bool put(const vb__draft_vocab *v, uint64_t *set, int32_t id) {
    vb_check(id >= 0 && id < v->vocab);
    int32_t panel = id / VB_RANGE_UNIT;
    uint64_t bit = (uint64_t)1 << (panel % 64), *word = &set[panel / 64];
    bool fresh = (*word & bit) == 0;
    *word |= bit;
    return fresh;
}

/* One more token; a fresh one would have been missed, were it not in the prefix or always hot. */
static void count(vb__draft_vocab *v, int32_t id, bool fresh) {
    v->total += ONE;
    if (fresh && !holds(v->always, id)) v->fresh[id / v->bucket] += ONE;
    if (v->total < VB_DRAFT_VOCAB_HALVE * ONE) return;
    v->total /= 2;
    for (int32_t i = 0; i < BUCKETS; i++) v->fresh[i] /= 2;
}

void vb__draft_vocab_always(vb__draft_vocab *v, int32_t id) { (void)put(v, v->always, id); }

void vb__draft_vocab_add(vb__draft_vocab *v, int32_t slot, int32_t id) { (void)put(v, set_of(v, slot), id); }

void vb__draft_vocab_begin(vb__draft_vocab *v, int32_t slot, const int32_t *tokens, int32_t n, int32_t old) {
    uint64_t *set = set_of(v, slot);
    memset(set, 0, (size_t)v->words * sizeof *set);
    for (int32_t i = 0; i < old && i < n; i++) (void)put(v, set, tokens[i]);
    v->seen[slot] = old < n ? old : n;
    vb__draft_vocab_follow(v, slot, tokens, n);
}

void vb__draft_vocab_follow(vb__draft_vocab *v, int32_t slot, const int32_t *tokens, int32_t n) {
    uint64_t *set = set_of(v, slot);
    for (int32_t i = v->seen[slot]; i < n; i++) count(v, tokens[i], put(v, set, tokens[i]));
    if (v->seen[slot] < n) v->seen[slot] = n;
}

void vb__draft_vocab_set(vb__draft_vocab *v, int32_t prefix) { v->forced = prefix < 0 ? VB_DRAFT_VOCAB_LEARNED : prefix; }

int32_t vb__draft_vocab_prefix(const vb__draft_vocab *v) {
    if (v->vocab < VB_DRAFT_VOCAB_LEAST || v->total < VB_DRAFT_VOCAB_KNOWN * ONE) return v->vocab;
    /* What a prefix costs: its part of the head, and MISS_COST times the part of the tokens that it misses. Where an MTP draft is a fifth of
     * the time for its head, and half of the rare tokens would have been drafted and carried another draft, a miss of 1% of the
     * tokens loses about what 5% of the head takes. */
    int64_t tail = 0, prefix = v->vocab, least = prefix * v->total;
    for (int32_t i = BUCKETS; i-- > 0;) {
        tail += v->fresh[i];
        int64_t cost = (int64_t)i * v->bucket * v->total + MISS_COST * tail * v->vocab;
        if (cost >= least) continue;
        least = cost;
        prefix = (int64_t)i * v->bucket;
    }
    return prefix * 4 > (int64_t)v->vocab * 3 ? v->vocab : (int32_t)prefix;
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------- */

/* The first bit from `from` on that is set (other = 0) or clear (all ones); words * 64 when there is none. */
static int32_t next_bit(const uint64_t *set, int32_t words, int32_t from, uint64_t other) {
    for (int32_t w = from / 64; w < words; w++, from = w * 64) {
        uint64_t bits = (set[w] ^ other) >> (from % 64);
        if (bits != 0) return from + __builtin_ctzll(bits);
    }
    return words * 64;
}

/* Runs of hot panels, those less than `gap` + 1 apart as one; -1 when there are too many. */
static int32_t runs(vb__draft_vocab *v, int32_t gap) {
    int32_t n = 0, last = 0; /* panel behind the last run */
    for (int32_t at = next_bit(v->hot, v->words, 0, 0), end; at < v->panels; at = next_bit(v->hot, v->words, end, 0)) {
        end = next_bit(v->hot, v->words, at, UINT64_MAX);
        if (n == 0 || at - last > gap) {
            if (n == VB_RANGES_MAX) return -1;
            v->ranges[n++].begin = at * VB_RANGE_UNIT;
        }
        v->ranges[n - 1].end = end * VB_RANGE_UNIT < v->vocab ? end * VB_RANGE_UNIT : v->vocab;
        last = end;
    }
    return n;
}

int32_t vb__draft_vocab_ranges(vb__draft_vocab *v, const int32_t *slots, int32_t n, const vb__out_range **ranges) {
    bool learned = v->forced == VB_DRAFT_VOCAB_LEARNED;
    int32_t prefix = learned ? vb__draft_vocab_prefix(v) : v->forced, whole = panels_of(prefix < v->vocab ? prefix : v->vocab);
    *ranges = v->ranges;
    if (prefix >= v->vocab) return 0;
    memcpy(v->hot, v->always, (size_t)v->words * sizeof *v->hot);
    for (int32_t i = 0; i < n && learned; i++) {
        const uint64_t *set = set_of(v, slots[i]);
        for (int32_t w = 0; w < v->words; w++) v->hot[w] |= set[w];
    }
    memset(v->hot, 0xff, (size_t)(whole / 64) * sizeof *v->hot);
    if (whole % 64 != 0) v->hot[whole / 64] |= ((uint64_t)1 << (whole % 64)) - 1;
    int32_t count = -1;
    for (int32_t gap = GAP; count < 0; gap *= 2) count = runs(v, gap);
    int64_t made = 0;
    for (int32_t i = 0; i < count; i++) made += v->ranges[i].end - v->ranges[i].begin;
    return learned && made * 4 > (int64_t)v->vocab * 3 ? 0 : count;
}
