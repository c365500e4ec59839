/* The server's pure parts: who may ask, and JSON text. */
#include "server/guard.h"
#include "server/job.h"
#include "server/json_writer.h"
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void hosts(void **state) {
    (void)state;
    const char *const extra[] = {"box.example"};
    const vb__serve_options o = {.host = "myname", .hosts = extra, .n_hosts = 1};
    static const char *const good[] = {"localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:9", "localhost.", "MYNAME:3", "box.example"};
    static const char *const bad[] = {"", ":", "evil", "localhost:x", "localhost:123456", "[::1", "[::1]x", "[]", "[127.0.0.1]", "[localhost]", "127.0.0.1.evil", "box.example.evil", "a@localhost"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) assert_true(vb__guard_host(&o, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) assert_false(vb__guard_host(&o, bad[i]));
}

static void targets(void **state) {
    (void)state;
    static const struct {
        const char *target;
        size_t start, authority;
    } cases[] = {{"/v1/models", 0, 0}, {"", 0, 0}, {"*", 0, 0}, {"http:/x", 0, 0}, {"/http://h/", 0, 0}, {"ftp://h/x", 0, 0}, {"http://h", 8, 1},
                 {"HTTP://h:80/x", 11, 4}, {"https://[::1]:9?x", 15, 7}, {"http://", 7, 0}, {"http:///x", 7, 0}, {"http://a@b#c/", 10, 3}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = 99;
        assert_int_equal(vb__guard_authority(cases[i].target, &n), cases[i].start);
        assert_int_equal(n, cases[i].authority);
    }
    static const char *const same[][3] = {{"h", "H", "80"}, {"h:80", "h", "80"}, {"h", "h:443", "443"}, {"h:", "h", "80"}, {"[::1]:1", "[::1]:1", "80"}, {"[::1]", "[::1]:80", "80"}};
    static const char *const other[][3] = {{"h", "i", "80"}, {"h:81", "h", "80"}, {"h:80", "h", "443"}, {"h", "h.", "80"}, {"[::1]", "[::2]", "80"}, {"h:8", "h:80", "80"}, {"h", "hh", "80"}};
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) assert_true(vb__guard_same_host(same[i][0], strlen(same[i][0]), same[i][1], same[i][2]));
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) assert_false(vb__guard_same_host(other[i][0], strlen(other[i][0]), other[i][1], other[i][2]));
}

static void origins_and_keys(void **state) {
    (void)state;
    const char *const origins[] = {"http://page.example"}, *const keys[] = {"one", "two"}, *const any[] = {"*"};
    const vb__serve_options o = {.host = "h", .origins = origins, .n_origins = 1, .keys = keys, .n_keys = 2};
    assert_true(vb__guard_origin(&o, NULL, NULL, "h:1") && vb__guard_origin(&o, "http://h:1", NULL, "h:1"));
    assert_true(vb__guard_origin(&o, "http://page.example", "cross-site", "h:1"));
    assert_false(vb__guard_origin(&o, NULL, "cross-site", "h:1") || vb__guard_origin(&o, "null", NULL, "h:1"));
    assert_false(vb__guard_origin(&o, "http://h:1", "cross-site", "h:1"));
    assert_false(vb__guard_origin(&o, "http://h:2", NULL, "h:1") || vb__guard_origin(&o, "ftp://h:1", NULL, "h:1"));
    const vb__serve_options all = {.host = "h", .origins = any, .n_origins = 1};
    assert_true(vb__guard_origin(&all, "http://x", NULL, "h") && vb__guard_key(&all, NULL, NULL));
    assert_true(vb__guard_key(&o, "Bearer one", NULL) && vb__guard_key(&o, "bearer  two", NULL) && vb__guard_key(&o, NULL, "two"));
    assert_true(vb__guard_key(&o, "Bearer one \t", NULL) && vb__guard_key(&o, NULL, "two "));
    assert_false(vb__guard_key(&o, NULL, NULL) || vb__guard_key(&o, "one", NULL) || vb__guard_key(&o, "Bearer on", "") || vb__guard_key(&o, "Bearer ", NULL));
}

static void strings(void **state) {
    (void)state;
    static const struct {
        const char *in, *out;
        size_t n;
    } cases[] = {{"a\"\\\n\t\r\x01\x7f", "\"a\\\"\\\\\\n\\t\\r\\u0001\\u007f\"", 8},
                 {"\0x", "\"\\u0000x\"", 2},
                 {"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"", 9},
                 {"\xff\xe2\x82", "\"\xef\xbf\xbd\xef\xbf\xbd\"", 3},
                 {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", 3},
                 {"\xc0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\"", 2},
                 {"\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vb__buffer b;
        vb__buffer_init(&b, 1000);
        vb__jw_string(&b, cases[i].in, cases[i].n);
        assert_string_equal(vb__buffer_str(&b), cases[i].out);
        assert_int_equal(vb__jw_is_utf8(cases[i].in, cases[i].n), strstr(cases[i].out, "\xef\xbf\xbd") == NULL);
        json_t *v = json_loads(vb__buffer_str(&b), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL); /* and it is JSON */
        assert_non_null(v);
        json_decref(v);
        vb__buffer_fini(&b);
    }
}

static void numbers(void **state) {
    (void)state;
    static const float xs[] = {0, -0.0f, 1, -1.5f, 0.1f, 1e-30f, 3.4e38f, FLT_MIN / 8, -1.5258789e-05f, 16777216.0f};
    for (size_t i = 0; i < sizeof xs / sizeof *xs; i++) {
        vb__buffer b;
        vb__buffer_init(&b, 100);
        vb__jw_float(&b, xs[i]);
        float back = strtof(vb__buffer_str(&b), NULL);
        assert_memory_equal(&back, &xs[i], sizeof back);
        vb__buffer_clear(&b);
        vb__jw_float(&b, INFINITY);
        assert_string_equal(vb__buffer_str(&b), "null");
        vb__buffer_fini(&b);
    }
}

/* Behind the finish_reason of a choice nothing may come of it. */
static void heartbeats(void **state) {
    (void)state;
    static vb__server s;
    vb__run runs[3] = {{.index = 0, .done = true}, {.index = 1, .done = true}, {.index = 2}};
    vb__job j = {.server = &s, .state = VB_JOB_STREAM, .runs = runs, .n_runs = 3, .left = 1};
    pthread_mutex_init(&j.lock, NULL);
    vb__buffer_init(&j.out, 10000);
    vb__job_heartbeat(&j, 4);
    assert_int_equal(j.out.len, 0);
    vb__job_heartbeat(&j, 6);
    assert_non_null(strstr(vb__buffer_str(&j.out), "\"choices\":[{\"index\":2,"));
    vb__buffer_fini(&j.out);
    pthread_mutex_destroy(&j.lock);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(hosts), cmocka_unit_test(targets), cmocka_unit_test(origins_and_keys), cmocka_unit_test(strings), cmocka_unit_test(numbers),
                                       cmocka_unit_test(heartbeats)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
