/* Memos: what a damaged, foreign or overgrown one may do, which is nothing but to be passed over; and what the lines of the gate and of
 * tune mean. */
#include "base/build_id.h"
#include "engine/gate.h"
#include "engine/memo.h"
#include "engine/tuned.h"
#include "testdir.h"
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <cmocka.h>

static testdir g_dir;

static int make_home(void **state) {
    (void)state;
    testdir_make(&g_dir);
    return setenv("VERBATIM_HOME", g_dir.path, 1);
}

static int remove_home(void **state) {
    (void)state;
    testdir_remove(&g_dir);
    return unsetenv("VERBATIM_HOME");
}

typedef struct seen {
    int n;
    char last[VB_MEMO_LINE_MAX];
} seen;

static void see(void *user, const char *rest) {
    seen *s = user;
    s->n++;
    (void)snprintf(s->last, sizeof s->last, "%s", rest);
}

static seen scan(const char *text, size_t n) {
    seen s = {0};
    char *exact = malloc(n + 1); /* a sanitizer sees a read past it */
    assert_non_null(exact);
    memcpy(exact, text, n);
    exact = realloc(exact, n == 0 ? 1 : n);
    vb__memo_scan(exact, n, "key", see, &s);
    free(exact);
    return s;
}

static seen read_memo(void) {
    seen s = {0};
    vb__memo_read("m", "key", see, &s);
    return s;
}

#define SCAN(text) scan(text, sizeof text - 1)

static void lines_of_a_key(void **state) {
    (void)state;
    assert_int_equal(SCAN("").n, 0);
    seen s = SCAN("key 1\nother 2\nkey 3\nkey 4");
    assert_int_equal(s.n, 2); /* the last one has no end */
    assert_string_equal(s.last, "3");
    assert_int_equal(SCAN("key\nkey\t1\nkey1 2\n key 3\nxkey 4\n\n\n").n, 0);
    assert_string_equal(SCAN("key \n").last, "");
    assert_int_equal(SCAN("key a\0b\nkey 2\n").n, 1);
    char text[2 * VB_MEMO_LINE_MAX];
    memset(text, 'x', sizeof text);
    memcpy(text, "key ", 4);
    text[VB_MEMO_LINE_MAX] = '\n'; /* one byte too long */
    memcpy(text + VB_MEMO_LINE_MAX + 1, "key 5\n", 6);
    s = scan(text, VB_MEMO_LINE_MAX + 7);
    assert_int_equal(s.n, 1);
    assert_string_equal(s.last, "5");
    text[VB_MEMO_LINE_MAX - 1] = '\n';
    assert_int_equal(scan(text, VB_MEMO_LINE_MAX + 7).n, 2);
}

static void append_and_read(void **state) {
    (void)state;
    vb_error err;
    assert_int_equal(read_memo().n, 0);
    assert_int_equal(vb__memo_append("m", "", &err), VB_OK);
    assert_int_equal(vb__memo_append("m", "key 1\n", &err), VB_OK);
    assert_int_equal(vb__memo_append("m", "key 2\n", &err), VB_OK);
    seen s = read_memo();
    assert_int_equal(s.n, 2);
    assert_string_equal(s.last, "2");
    /* a line that was cut short takes no other with it */
    testdir_puts(&g_dir, "m", "key 1\nkey 2 pas");
    assert_int_equal(vb__memo_append("m", "key 3\n", &err), VB_OK);
    s = read_memo();
    assert_int_equal(s.n, 3);
    assert_string_equal(s.last, "3");
    size_t n;
    char *text = testdir_read(testdir_file(&g_dir, "m"), &n);
    assert_string_equal(text, "key 1\nkey 2 pas\nkey 3\n");
    free(text);
    assert_int_equal(unlink(testdir_file(&g_dir, "m")), 0);
}

static void a_file_of_any_size(void **state) {
    (void)state;
    vb_error err;
    const char *path = testdir_file(&g_dir, "m");
    /* the end of one that is too long is what counts, and it does not grow for ever */
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "key first\n");
    for (int i = 0; i < VB_MEMO_MAX / 8; i++) fprintf(f, "other %04d\n", i % 10000);
    fclose(f);
    assert_int_equal(read_memo().n, 0);
    assert_int_equal(vb__memo_append("m", "key last\n", &err), VB_OK);
    seen s = read_memo();
    assert_int_equal(s.n, 1);
    assert_string_equal(s.last, "last");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_in_range(st.st_size, VB_MEMO_MAX / 2 - 16, VB_MEMO_MAX / 2);
    size_t n;
    char *text = testdir_read(path, &n);
    assert_memory_equal(text, "other ", 6); /* from the beginning of a line */
    free(text);
    /* one of NULs without an end */
    f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(ftruncate(fileno(f), (off_t)1 << 40), 0);
    fclose(f);
    assert_int_equal(read_memo().n, 0);
    assert_int_equal(vb__memo_append("m", "key 1\n", &err), VB_OK);
    assert_int_equal(read_memo().n, 1);
    assert_int_equal(stat(path, &st), 0);
    assert_in_range(st.st_size, 0, VB_MEMO_MAX);
    assert_int_equal(unlink(path), 0);
}

static void what_is_no_file(void **state) {
    (void)state;
    vb_error err;
    const char *path = testdir_file(&g_dir, "m");
    alarm(20); /* a pipe must not be waited for */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_memo().n, 0);
    assert_int_equal(vb__memo_append("m", "key 1\n", &err), VB_E_IO);
    int fd = open(path, O_RDWR); /* with somebody at the other end */
    assert_true(fd >= 0);
    assert_int_equal(read_memo().n, 0);
    assert_int_equal(vb__memo_append("m", "key 1\n", &err), VB_E_IO);
    assert_non_null(strstr(err.text, "/m: is not a regular file"));
    close(fd);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/dev/zero", path), 0);
    assert_int_equal(read_memo().n, 0);
    assert_int_equal(vb__memo_append("m", "key 1\n", &err), VB_E_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(read_memo().n, 0);
    assert_int_equal(vb__memo_append("m", "key 1\n", &err), VB_E_IO);
    assert_int_equal(rmdir(path), 0);
    alarm(0);
}

static void lines_of_the_gate(void **state) {
    (void)state;
    int32_t width;
    vb__gate_state s;
    assert_true(vb__gate_memo_parse("2 passed", &width, &s));
    assert_true(width == 2 && s == VB_GATE_PASSED);
    assert_true(vb__gate_memo_parse("16 declined", &width, &s));
    assert_true(width == 16 && s == VB_GATE_DECLINED);
    static const char *const bad[] = {"", "2", "2 ", "2 pass", "2 passed ", "2 passedx", "2passed", " 2 passed", "+2 passed", "0 passed", "1 passed",
                                      "17 passed", "116 passed", "-2 passed", "2.0 passed", "2  passed", "4294967298 passed", "x passed"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(vb__gate_memo_parse(bad[i], &width, &s));
}

static void lines_of_tune(void **state) {
    (void)state;
    int32_t threads, kind, width;
    assert_true(vb__tuned_parse("t2 mtp 4 1.500", &threads, &kind, &width));
    assert_true(threads == 2 && width == 4);
    static const char *const bad[] = {"", "t2", "t2 mtp 4", "t2 mtp 4 ", "t2 mtp 4 1.5 x", "t0 mtp 4 1.5", "t-2 mtp 4 1.5", "t2 none 4 1.5",
                                      "t2 mtpp 4 1.5", "t2 auto 4 1.5", "t2 mtp 1 1.5", "t2 mtp 17 1.5", "t2 mtp 4 fast", "2 mtp 4 1.5"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(vb__tuned_parse(bad[i], &threads, &kind, &width));
}

static void the_build(void **state) {
    (void)state;
    print_message("build %s %s\n", vb__build_compiler(), vb__build_id());
    size_t n = strlen(vb__build_id());
    assert_true(n == 16 || n == 0); /* 0: a linker that gives none */
    assert_int_equal(strspn(vb__build_id(), "0123456789abcdef"), n);
    assert_null(strchr(vb__build_compiler(), ' '));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_of_a_key),  cmocka_unit_test(append_and_read),  cmocka_unit_test(a_file_of_any_size),
        cmocka_unit_test(what_is_no_file), cmocka_unit_test(lines_of_the_gate), cmocka_unit_test(lines_of_tune),
        cmocka_unit_test(the_build),
    };
    return cmocka_run_group_tests(tests, make_home, remove_home);
}
