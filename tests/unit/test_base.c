/* base: errors, allocation, arena, buffer, CPU levels, thread pool. */
#include "base/alloc.h"
#include "base/arena.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/error.h"
#include "base/fp_env.h"
#include "base/pool.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static void errors_keep_both_ends(void **state) {
    (void)state;
    vb_error err;
    char longer[600];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    assert_int_equal(vb__fail(&err, VB_E_FORMAT, "head %s tail\n", longer), VB_E_FORMAT);
    assert_int_equal(strlen(err.text), VB_ERROR_TEXT_MAX - 1);
    assert_memory_equal(err.text, "head ", 5);
    assert_string_equal(err.text + strlen(err.text) - 6, " tail?");
    assert_int_equal(vb__fail(&err, VB_E_FORMAT, "b"), VB_E_FORMAT);
    assert_int_equal(vb__fail_prefix(&err, VB_E_FORMAT, "a %d", 1), VB_E_FORMAT);
    assert_string_equal(err.text, "a 1: b");
    assert_int_equal(vb_err_exit_code(VB_E_MEMORY), 4);
    assert_string_equal(vb_err_name(VB_E_RANGE), "VB_E_RANGE");
}

static void allocation_counts_and_fails_on_request(void **state) {
    (void)state;
    size_t before = vb__alloc_bytes(VB_TAG_STATE);
    void *big = vb__alloc_aligned(VB_TAG_STATE, 5u << 20), *small = vb__alloc_aligned(VB_TAG_STATE, 100);
    assert_non_null(big);
    assert_non_null(small);
    assert_int_equal((uintptr_t)big % 64, 0);
    assert_int_equal((uintptr_t)small % 64, 0);
    assert_int_equal(vb__alloc_bytes(VB_TAG_STATE) - before, (5u << 20) + 100);
    ((char *)small)[99] = 7;
    small = vb__realloc_array(VB_TAG_STATE, small, 1000, 3);
    assert_int_equal(((char *)small)[99], 7);
    assert_int_equal((uintptr_t)small % 64, 0);
    vb__free(big);
    vb__free(small);
    assert_int_equal(vb__alloc_bytes(VB_TAG_STATE), before);
    vb__alloc_fail_at(2, false);
    void *p = vb__alloc(VB_TAG_MISC, 1);
    assert_non_null(p);
    assert_null(vb__alloc(VB_TAG_MISC, 1));
    vb__free(p);
    p = vb__alloc(VB_TAG_MISC, 1);
    assert_non_null(p);
    vb__free(p);
    volatile size_t half = SIZE_MAX / 2; /* volatile: the compiler would refuse to compile it */
    assert_null(vb__calloc(VB_TAG_MISC, half, 3));
}

static void arena_and_buffer_hold_their_limits(void **state) {
    (void)state;
    vb__arena a;
    vb__arena_init(&a, VB_TAG_MISC, 1000);
    assert_non_null(vb__arena_alloc(&a, 900));
    assert_null(vb__arena_alloc(&a, 200));
    assert_non_null(vb__arena_alloc(&a, 16));
    vb__arena_fini(&a);
    vb__buffer b;
    vb__buffer_init(&b, 8);
    assert_int_equal(vb__buffer_puts(&b, "12345"), VB_OK);
    assert_int_equal(vb__buffer_printf(&b, "%d", 1234), VB_E_LIMIT);
    assert_int_equal(vb__buffer_putc(&b, '6'), VB_E_LIMIT);
    assert_string_equal(vb__buffer_str(&b), "12345");
    vb__buffer_fini(&b);
}

typedef struct sums {
    _Atomic int32_t seen[10000];
    _Atomic int bad;
} sums;

static void touch(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    sums *s = ctx;
    if (thread < 0 || thread > 6 || _mm_getcsr() != VB_MXCSR) s->bad = 1;
    for (int32_t i = begin; i < end; i++) s->seen[i]++;
}

static void pool_runs_every_item_once(void **state) {
    (void)state;
    static sums s;
    uint32_t old = vb__fp_enter();
    for (int32_t threads = 1; threads <= 7; threads += 2) {
        vb__pool *p;
        assert_int_equal(vb__pool_create(threads, &p, NULL), VB_OK);
        memset(&s, 0, sizeof s);
        int32_t n = 0, rounds = 0;
        for (n = 1; n <= 10000; n = n * 3 + 1)
            for (int k = 0; k < 20; k++, rounds++) {
                memset(&s, 0, sizeof s);
                if (k % 2 == 0) vb__parallel_for(p, n, k + 1, touch, &s);
                else vb__parallel_shares(p, n, k, touch, &s);
                for (int32_t i = 0; i < n; i++) assert_int_equal(s.seen[i], 1);
                assert_int_equal(s.bad, 0);
            }
        vb__pool_destroy(p);
    }
    vb__fp_leave(old);
    vb_error err;
    assert_int_equal(vb__pool_create(0, &(vb__pool *){NULL}, &err), VB_E_RANGE);
}

typedef struct firsts {
    _Atomic int32_t inside, begin[2], end[2];
} firsts;

/* Holds a thread at its first items until the other has some too. */
static void meet(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    firsts *f = ctx;
    if (f->end[thread] != 0) return;
    f->begin[thread] = begin;
    f->end[thread] = end;
    f->inside++;
    for (time_t late = time(NULL) + 20; f->inside < 2 && time(NULL) < late;) _mm_pause();
}

static void pool_thread_begins_with_its_own_part(void **state) {
    (void)state;
    uint32_t old = vb__fp_enter();
    vb__pool *p;
    assert_int_equal(vb__pool_create(2, &p, NULL), VB_OK);
    for (int i = 0; i < 50; i++) {
        firsts f = {0};
        vb__parallel_shares(p, 30, 4, meet, &f);
        assert_int_equal(f.inside, 2); /* 30 items are 8 grains: 16 for the first thread, 14 for the other; three quarters at once */
        assert_int_equal(f.begin[0], 0);
        assert_int_equal(f.end[0], 12);
        assert_int_equal(f.begin[1], 16);
        assert_int_equal(f.end[1], 28);
    }
    vb__pool_destroy(p);
    vb__fp_leave(old);
}

typedef struct takers {
    _Atomic int32_t seen[16], highest;
    int pauses; /* that an item takes, for other threads to come */
} takers;

static void note_taker(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    takers *t = ctx;
    for (int32_t i = begin; i < end; i++) t->seen[i]++;
    int32_t high = t->highest;
    while (thread > high && !atomic_compare_exchange_weak(&t->highest, &high, thread)) continue;
    for (int i = 0; i < t->pauses; i++) _mm_pause();
}

static void region(vb__pool *p, bool shares, int32_t n, takers *t) {
    memset(t->seen, 0, sizeof t->seen);
    t->highest = 0;
    if (shares) vb__parallel_shares(p, n, 1, note_taker, t);
    else vb__parallel_for(p, n, 1, note_taker, t);
    for (int32_t i = 0; i < n; i++) assert_int_equal(t->seen[i], 1);
}

static void pool_calls_no_more_threads_than_chunks(void **state) {
    (void)state;
    vb__pool *p;
    takers t = {.pauses = 1000};
    assert_int_equal(vb__pool_create(6, &p, NULL), VB_OK);
    for (int i = 0; i < 300; i++) {
        region(p, i % 2, 2 + i % 3, &t);
        assert_in_range(t.highest, 0, 1 + i % 3);
    }
    vb__pool_destroy(p);
}

/* Parts that no thread has touched when the count of regions comes round are as new. */
static void pool_counts_past_its_words(void **state) {
    (void)state;
    takers t = {.pauses = 0};
    for (int before = VB_POOL_ROUND - 3; before <= VB_POOL_ROUND + 3; before++) {
        vb__pool *p;
        assert_int_equal(vb__pool_create(4, &p, NULL), VB_OK);
        for (int i = 0; i < before; i++) region(p, true, 2, &t);
        region(p, true, 16, &t);
        vb__pool_destroy(p);
    }
}

static void reserved_buffer_is_a_text(void **state) {
    (void)state;
    for (int i = 0; i < 64; i++) { /* blocks that were in use before */
        vb__buffer b;
        vb__buffer_init(&b, 1000);
        assert_int_equal(vb__buffer_reserve(&b, 0), VB_OK);
        assert_string_equal(vb__buffer_str(&b), "");
        assert_int_equal(vb__buffer_puts(&b, "0123456789012345678901234567890123456789"), VB_OK);
        assert_int_equal(vb__buffer_reserve(&b, 500), VB_OK);
        assert_int_equal(strlen(vb__buffer_str(&b)), 40);
        vb__buffer_fini(&b);
    }
}

static void cpu_level_can_be_lowered_only(void **state) {
    (void)state;
    vb__cpu_level best, got;
    vb_error err;
    assert_int_equal(vb__cpu_detect(&best, &err), VB_OK);
    assert_int_equal(setenv("VERBATIM_CPU", "c", 1), 0);
    assert_int_equal(vb__cpu_select(&got, &err), VB_OK);
    assert_int_equal(got, VB_CPU_C);
    assert_int_equal(setenv("VERBATIM_CPU", "sse", 1), 0);
    assert_int_equal(vb__cpu_select(&got, &err), VB_E_ARGUMENT);
    if (best < VB_CPU_AMX) {
        assert_int_equal(setenv("VERBATIM_CPU", "amx", 1), 0);
        assert_int_equal(vb__cpu_select(&got, &err), VB_E_ARGUMENT);
    }
    assert_int_equal(unsetenv("VERBATIM_CPU"), 0);
    assert_int_equal(vb__cpu_select(&got, &err), VB_OK);
    assert_int_equal(got, best);
}

/* test_base --bench THREADS: microseconds of a region in which nothing is done, 64 items a thread in chunks of 4. */
static void no_work(void *ctx, int32_t begin, int32_t end, int32_t thread) { (void)ctx, (void)begin, (void)end, (void)thread; }

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int bench(int32_t most) {
    enum { REGIONS = 3001 };
    static double us[REGIONS];
    uint32_t old = vb__fp_enter();
    for (int32_t threads = 2; threads <= most; threads *= 2) {
        vb__pool *p;
        if (vb__pool_create(threads, &p, NULL) != VB_OK) return 1;
        for (int i = 0; i < REGIONS; i++) {
            double begin = vb__now();
            vb__parallel_shares(p, 64 * threads, 4, no_work, NULL);
            us[i] = (vb__now() - begin) * 1e6;
            for (double end = vb__now() + 2e-6; vb__now() < end;) continue; /* workers are back at their watch by then */
        }
        vb__pool_destroy(p);
        qsort(us, REGIONS, sizeof us[0], ascending);
        printf("pool of %d: an empty region takes %.2f us (median of %d; a quarter takes more than %.2f)\n", threads, us[REGIONS / 2], (int)REGIONS,
               us[REGIONS / 4 * 3]);
    }
    vb__fp_leave(old);
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench(argc > 2 ? atoi(argv[2]) : 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_keep_both_ends),
        cmocka_unit_test(allocation_counts_and_fails_on_request),
        cmocka_unit_test(arena_and_buffer_hold_their_limits),
        cmocka_unit_test(pool_runs_every_item_once),
        cmocka_unit_test(pool_thread_begins_with_its_own_part),
        cmocka_unit_test(pool_calls_no_more_threads_than_chunks),
        cmocka_unit_test(pool_counts_past_its_words),
        cmocka_unit_test(reserved_buffer_is_a_text),
        cmocka_unit_test(cpu_level_can_be_lowered_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
