/* The head-chunk plan against its published rule, stated here a second way, over every (rows, heads, KV
 * heads) of a grid, and against the published table for 24 query and 2 KV heads. */
#include "backend/head_chunk.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* Largest chunk that fits, found by counting up rather than by dividing. */
static int32_t largest_chunk(int32_t rows, int32_t gqa) {
    int32_t n = 1;
    while (n + 1 <= gqa && (n + 1) * (rows > 1 ? rows : 1) <= 32) n++;
    return n;
}

static void test_grid(void **state) {
    (void)state;
    int32_t cases = 0, planned = 0;
    for (int32_t rows = 0; rows <= 40; rows++)
        for (int32_t kv = 0; kv <= 8; kv++)
            for (int32_t heads = 0; heads <= 48; heads++) {
                vb__head_chunk p = {-1, -1, -1, -1};
                bool plan = vb__head_chunk_plan(rows, heads, kv, &p);
                cases++;
                bool divides = kv > 0 && heads > 0 && heads / kv * kv == heads;
                bool eligible = divides && rows <= 32 && rows * (heads / kv) > 32;
                assert_int_equal(plan, eligible);
                if (!plan) {
                    assert_int_equal(p.gqa, -1);
                    continue;
                }
                planned++;
                assert_int_equal(p.gqa, heads / kv);
                assert_int_equal(p.heads_per_chunk, largest_chunk(rows, p.gqa));
                /* The chunks, in order, are the heads in order, none twice, none across groups. */
                int32_t next = 0;
                for (int32_t i = 0; i < p.chunks; i++) {
                    int32_t g, first, n;
                    vb__head_chunk_at(&p, i, &g, &first, &n);
                    assert_int_equal(first, next);
                    assert_in_range(n, 1, p.heads_per_chunk);
                    assert_int_equal(first / p.gqa, g);
                    assert_int_equal((first + n - 1) / p.gqa, g);
                    assert_true(rows * n <= 32);
                    /* only the last of a group may be smaller */
                    if (n < p.heads_per_chunk) assert_int_equal((first + n) % p.gqa, 0);
                    next = first + n;
                }
                assert_int_equal(next, heads);
                assert_int_equal(p.chunks, kv * p.per_kv);
            }
    assert_true(cases >= 520);
    assert_true(planned >= 520);
    print_message("%d cases, %d with a plan\n", cases, planned);
}

static void test_table(void **state) {
    (void)state;
    static const struct {
        int32_t rows, per_chunk, chunks;
    } want[] = {
        {3, 10, 4}, {4, 8, 4},  {5, 6, 4},   {6, 5, 6},   {7, 4, 6},   {8, 4, 6},
        {9, 3, 8},  {10, 3, 8}, {11, 2, 12}, {16, 2, 12}, {17, 1, 24}, {32, 1, 24},
    };
    vb__head_chunk p;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        assert_true(vb__head_chunk_plan(want[i].rows, 24, 2, &p));
        assert_int_equal(p.heads_per_chunk, want[i].per_chunk);
        assert_int_equal(p.chunks, want[i].chunks);
    }
    assert_false(vb__head_chunk_plan(1, 24, 2, &p));
    assert_false(vb__head_chunk_plan(2, 24, 2, &p));
    assert_false(vb__head_chunk_plan(33, 24, 2, &p));
    assert_false(vb__head_chunk_plan(8, 24, 0, &p));
    assert_false(vb__head_chunk_plan(8, 24, 5, &p));
    /* the split 5+5+2 */
    assert_true(vb__head_chunk_plan(6, 24, 2, &p));
    static const int32_t split[] = {5, 5, 2, 5, 5, 2};
    for (int32_t i = 0; i < p.chunks; i++) {
        int32_t kv, first, n;
        vb__head_chunk_at(&p, i, &kv, &first, &n);
        assert_int_equal(n, split[i]);
        assert_int_equal(kv, i / 3);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_grid), cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
