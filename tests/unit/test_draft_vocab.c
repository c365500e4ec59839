/* The draft vocabulary: what is hot, what is learned and from how much, and ranges that a product accepts. */
#include "engine/draft_vocab.h"
#include "base/alloc.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { V = 20000, UNIT = VB_RANGE_UNIT };

static uint64_t seed = 88172645463325252u;
static uint32_t rng(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return (uint32_t)(seed >> 32);
}

static vb__draft_vocab *make(int32_t vocab, int32_t slots) {
    vb__draft_vocab *v = NULL;
    vb_error err;
    size_t before = vb__alloc_bytes(VB_TAG_ENGINE);
    if (vb__draft_vocab_create(vocab, slots, &v, &err) != VB_OK) fail_msg("%s", err.text);
    assert_true((int64_t)(vb__alloc_bytes(VB_TAG_ENGINE) - before) <= vb__draft_vocab_bytes(vocab, slots) + 256);
    return v;
}

/* Ascending, apart, whole panels, inside; returns the ids in them. */
static int32_t well_formed(const vb__out_range *r, int32_t n, int32_t vocab) {
    int32_t ids = 0;
    assert_true(n >= 0 && n <= VB_RANGES_MAX);
    for (int32_t i = 0; i < n; i++) {
        assert_true(r[i].begin >= 0 && r[i].begin < r[i].end && r[i].end <= vocab && r[i].begin % UNIT == 0);
        assert_true(r[i].end % UNIT == 0 || r[i].end == vocab);
        if (i > 0) assert_true(r[i].begin > r[i - 1].end);
        ids += r[i].end - r[i].begin;
    }
    return ids;
}

static bool hot(const vb__out_range *r, int32_t n, int32_t id) {
    for (int32_t i = 0; i < n; i++)
        if (id >= r[i].begin && id < r[i].end) return true;
    return n == 0;
}

static int32_t ranges_of(vb__draft_vocab *v, int32_t slot, const vb__out_range **r) { return vb__draft_vocab_ranges(v, &slot, 1, r); }

/* Sequences of tokens below `common`, one in `rare` of them spread over all of the vocabulary. */
static void teach(vb__draft_vocab *v, int32_t slot, int32_t vocab, int32_t sequences, int32_t common, int32_t rare) {
    int32_t ids[200];
    for (int32_t s = 0; s < sequences; s++) {
        for (int32_t i = 0; i < 200; i++)
            ids[i] = (int32_t)(rng() % (uint32_t)(rare > 0 && rng() % (uint32_t)rare == 0 ? vocab : common));
        vb__draft_vocab_begin(v, slot, ids, 100, 0);
        vb__draft_vocab_follow(v, slot, ids, 200);
    }
}

static void a_prefix_is_learned(void **state) {
    (void)state;
    const vb__out_range *r;
    vb__draft_vocab *v = make(V, 2);
    assert_int_equal(vb__draft_vocab_prefix(v), V);
    teach(v, 0, V, 20, 5000, 0);
    int32_t p = vb__draft_vocab_prefix(v);
    assert_in_range(p, 4800, 5200); /* to a bucket of 320 ids */
    vb__draft_vocab_begin(v, 1, (const int32_t[]){0}, 1, 1);
    int32_t n = ranges_of(v, 1, &r);
    assert_int_equal(n, 1);
    assert_true(r[0].begin == 0 && r[0].end == p);
    vb__draft_vocab_destroy(v);
}

/* A miss of 1% of the tokens costs what 5% of the head does: tokens all over the vocabulary are worth it when they are a third of
 * all, not when they are a tenth. Those that are always hot are never missed. */
static void misses_against_the_head(void **state) {
    (void)state;
    vb__draft_vocab *v = make(V, 1), *w = make(V, 1);
    int32_t ids[4], end = V - 1;
    vb__draft_vocab_always(v, end);
    for (int32_t i = 0; i < 400; i++) { /* short sequences, each with an end token */
        for (int32_t k = 0; k < 4; k++) ids[k] = k % 2 == 0 ? end - (int32_t)(rng() % UNIT) : (int32_t)(rng() % 100);
        vb__draft_vocab_begin(v, 0, ids, 4, 0);
    }
    assert_in_range(vb__draft_vocab_prefix(v), 1, 320);
    teach(v, 0, V, 80, 3000, 10);
    assert_in_range(vb__draft_vocab_prefix(v), 2500, 3300);
    teach(w, 0, V, 80, 3000, 3);
    assert_int_equal(vb__draft_vocab_prefix(w), V);
    vb__draft_vocab_destroy(v);
    vb__draft_vocab_destroy(w);
}

/* Too little evidence, a small vocabulary, or a prefix that would spare little: all ids. */
static void without_evidence_all_are_hot(void **state) {
    (void)state;
    const vb__out_range *r;
    int32_t ids[VB_DRAFT_VOCAB_KNOWN];
    for (int32_t i = 0; i < VB_DRAFT_VOCAB_KNOWN; i++) ids[i] = i % 50;
    vb__draft_vocab *v = make(V, 1), *small = make(VB_DRAFT_VOCAB_LEAST - 1, 1), *wide = make(V, 1);
    vb__draft_vocab_begin(v, 0, ids, VB_DRAFT_VOCAB_KNOWN - 1, 0);
    assert_int_equal(vb__draft_vocab_prefix(v), V);
    assert_int_equal(ranges_of(v, 0, &r), 0);
    vb__draft_vocab_follow(v, 0, ids, VB_DRAFT_VOCAB_KNOWN);
    assert_true(vb__draft_vocab_prefix(v) < V);
    assert_true(ranges_of(v, 0, &r) > 0);
    teach(small, 0, VB_DRAFT_VOCAB_LEAST - 1, 20, 100, 0);
    assert_int_equal(ranges_of(small, 0, &r), 0);
    teach(wide, 0, V, 20, V * 4 / 5, 0);
    assert_int_equal(vb__draft_vocab_prefix(wide), V);
    assert_int_equal(ranges_of(wide, 0, &r), 0);
    vb__draft_vocab_destroy(v);
    vb__draft_vocab_destroy(small);
    vb__draft_vocab_destroy(wide);
}

/* Tokens that a sequence has counted before are in its set, but no evidence. */
static void old_tokens_are_no_evidence(void **state) {
    (void)state;
    const vb__out_range *r;
    int32_t ids[1000];
    for (int32_t i = 0; i < 1000; i++) ids[i] = 15000 + i % 400;
    vb__draft_vocab *v = make(V, 1);
    vb__draft_vocab_begin(v, 0, ids, 1000, 1000);
    assert_int_equal(vb__draft_vocab_prefix(v), V);
    teach(v, 0, V, 4, 1000, 0);
    vb__draft_vocab_begin(v, 0, ids, 1000, 1000);
    assert_true(vb__draft_vocab_prefix(v) < 1500);
    int32_t n = ranges_of(v, 0, &r);
    for (int32_t i = 0; i < 1000; i++) assert_true(hot(r, n, ids[i]));
    vb__draft_vocab_begin(v, 0, ids, 1000, 0); /* counted, but each of their panels is news once */
    assert_true(vb__draft_vocab_prefix(v) < 1500);
    vb__draft_vocab_destroy(v);
}

static void seen_tokens_are_hot_in_their_sequence(void **state) {
    (void)state;
    const vb__out_range *r;
    vb__draft_vocab *v = make(V + 5, 3); /* the last panel has 5 ids */
    vb__draft_vocab_always(v, V + 4);
    vb__draft_vocab_always(v, 12000);
    teach(v, 2, V, 20, 1000, 0);
    const int32_t a[] = {7, 9000, 17000, 3}, b[] = {8, 15000};
    vb__draft_vocab_begin(v, 0, a, 2, 0);
    vb__draft_vocab_begin(v, 1, b, 2, 0);
    int32_t n = ranges_of(v, 0, &r);
    (void)well_formed(r, n, V + 5);
    assert_true(hot(r, n, 9000) && hot(r, n, 9007) && hot(r, n, 12000) && hot(r, n, V + 4) && hot(r, n, 5));
    assert_false(hot(r, n, 17000) || hot(r, n, 15000) || hot(r, n, 9100));
    vb__draft_vocab_follow(v, 0, a, 4);
    n = ranges_of(v, 0, &r);
    assert_true(hot(r, n, 17000) && hot(r, n, 9000));
    n = vb__draft_vocab_ranges(v, (const int32_t[]){0, 1}, 2, &r);
    assert_true(hot(r, n, 17000) && hot(r, n, 15000));
    vb__draft_vocab_add(v, 1, 18888);
    n = ranges_of(v, 1, &r);
    assert_true(hot(r, n, 18888) && hot(r, n, 15000));
    assert_false(hot(r, n, 17000));
    vb__draft_vocab_begin(v, 1, b, 1, 0); /* another sequence: what the one before had is forgotten */
    n = ranges_of(v, 1, &r);
    assert_false(hot(r, n, 18888) || hot(r, n, 15000));
    assert_true(hot(r, n, 12000) && hot(r, n, V + 4));
    vb__draft_vocab_destroy(v);
}

/* Another language takes over: its panels come in after one halving or two, and the old one's do not last. */
static void a_change_is_followed(void **state) {
    (void)state;
    vb__draft_vocab *v = make(V, 1);
    teach(v, 0, V, 400, 2000, 0);
    assert_in_range(vb__draft_vocab_prefix(v), 1000, 2300);
    teach(v, 0, V, 400, 9000, 0);
    assert_in_range(vb__draft_vocab_prefix(v), 8000, 9300);
    int32_t more = 0;
    while (vb__draft_vocab_prefix(v) > 2300 && more < 1000) {
        teach(v, 0, V, 10, 2000, 0);
        more += 10;
    }
    printf("back after %d tokens\n", more * 200);
    assert_true(more * 200 <= 8 * VB_DRAFT_VOCAB_HALVE);
    vb__draft_vocab_destroy(v);
}

static void a_prefix_can_be_set(void **state) {
    (void)state;
    const vb__out_range *r;
    vb__draft_vocab *v = make(5000, 1);
    vb__draft_vocab_always(v, 4000);
    vb__draft_vocab_begin(v, 0, (const int32_t[]){2000, 3}, 2, 0);
    vb__draft_vocab_set(v, 33);
    int32_t n = ranges_of(v, 0, &r);
    assert_int_equal(well_formed(r, n, 5000), 4 * UNIT);
    assert_true(hot(r, n, 47) && hot(r, n, 4000));
    assert_false(hot(r, n, 2000));
    vb__draft_vocab_set(v, 5000);
    assert_int_equal(ranges_of(v, 0, &r), 0);
    vb__draft_vocab_set(v, VB_DRAFT_VOCAB_LEARNED);
    assert_int_equal(ranges_of(v, 0, &r), 0);
    vb__draft_vocab_destroy(v);
}

/* Whatever is seen: ranges that a product takes, with everything hot in them, and as few as it wants. */
static void random_sets(void **state) {
    (void)state;
    static const int32_t sizes[] = {VB_DRAFT_VOCAB_LEAST, 8193, 16384, 50003, 248320};
    static int32_t ids[60000];
    int32_t longest = 0, cut = 0;
    for (int32_t round = 0; round < 200; round++) {
        int32_t vocab = sizes[round % 5], n = 1 + (int32_t)(rng() % (round % 3 == 2 ? 60000 : round % 3 == 1 ? 1500 : 300)), steps = round % 4;
        const vb__out_range *r;
        vb__draft_vocab *v = make(vocab, 2);
        vb__draft_vocab_always(v, vocab - 1);
        teach(v, 1, vocab, 4, 1 + (int32_t)(rng() % 3000), 0);
        for (int32_t i = 0; i < n; i++)
            ids[i] = (int32_t)(steps == 0 ? (int64_t)i * 48 % vocab : rng() % (uint32_t)vocab);
        vb__draft_vocab_begin(v, 0, ids, n, n);
        int32_t count = ranges_of(v, 0, &r), inside = well_formed(r, count, vocab);
        longest = count > longest ? count : longest;
        cut += count > 0;
        if (count > 0) assert_true((int64_t)inside * 4 <= (int64_t)vocab * 3);
        for (int32_t i = 0; i < n; i++) assert_true(hot(r, count, ids[i]));
        assert_true(hot(r, count, vocab - 1));
        vb__draft_vocab_destroy(v);
    }
    printf("%d of 200 cut, at most %d ranges\n", cut, longest);
    assert_true(cut > 40 && longest > 250);
}

static void no_memory(void **state) {
    (void)state;
    size_t before = vb__alloc_bytes(VB_TAG_ENGINE);
    vb__draft_vocab *v;
    vb_error err;
    for (uint64_t i = 1; i <= 3; i++) {
        vb__alloc_fail_at(i, false);
        assert_int_equal(vb__draft_vocab_create(V, 4, &v, &err), VB_E_MEMORY);
    }
    vb__alloc_fail_at(0, false);
    assert_int_equal(vb__draft_vocab_create(0, 4, &v, &err), VB_E_RANGE);
    assert_int_equal(vb__draft_vocab_create(V, 0, &v, &err), VB_E_RANGE);
    assert_int_equal(vb__alloc_bytes(VB_TAG_ENGINE), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prefix_is_learned),
        cmocka_unit_test(misses_against_the_head),
        cmocka_unit_test(without_evidence_all_are_hot),
        cmocka_unit_test(old_tokens_are_no_evidence),
        cmocka_unit_test(seen_tokens_are_hot_in_their_sequence),
        cmocka_unit_test(a_change_is_followed),
        cmocka_unit_test(a_prefix_can_be_set),
        cmocka_unit_test(random_sets),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
