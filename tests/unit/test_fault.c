/* fault: the environment names at most one planted fault. */
#include "base/fault.h"
#include "base/log.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int g_warnings;
static char g_text[256];
static void count(void *user, vb__log_level level, const char *area, const char *text) {
    (void)user;
    (void)area;
    if (level != VB_LOG_WARN) return;
    g_warnings++;
    strncpy(g_text, text, sizeof g_text - 1);
}

static void the_environment_is_read_once_and_warned_about(void **state) {
    (void)state;
    vb__log_set(count, NULL, VB_LOG_WARN);
    assert_int_equal(setenv("VERBATIM_FAULT", "state-commit", 1), 0);
    assert_true(vb__fault_is(VB_FAULT_STATE_COMMIT));
    assert_false(vb__fault_is(VB_FAULT_ROPE_ROWS));
    assert_false(vb__fault_is(VB_FAULT_NONE));
    assert_int_equal(g_warnings, 1);
    assert_non_null(strstr(g_text, "state-commit"));
    assert_int_equal(setenv("VERBATIM_FAULT", "rope-rows", 1), 0);
    assert_false(vb__fault_is(VB_FAULT_ROPE_ROWS));
    vb__fault_set(VB_FAULT_ROPE_ROWS);
    assert_true(vb__fault_is(VB_FAULT_ROPE_ROWS));
    vb__fault_set(VB_FAULT_NONE);
    assert_false(vb__fault_is(VB_FAULT_ROPE_ROWS));
}

static void every_kind_has_a_name(void **state) {
    (void)state;
    for (int i = 0; i < VB_FAULTS; i++) {
        assert_non_null(vb__fault_name((vb__fault)i));
        for (int j = 0; j < i; j++) assert_string_not_equal(vb__fault_name((vb__fault)i), vb__fault_name((vb__fault)j));
    }
    assert_string_equal(vb__fault_name(VB_FAULTS), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_is_read_once_and_warned_about),
        cmocka_unit_test(every_kind_has_a_name),
    };
    return cmocka_run_group_tests_name("fault", tests, NULL, NULL);
}
