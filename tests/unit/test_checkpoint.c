/* model/checkpoint: every shared model opens and gives what its config implies; each defect is one error that names
 * file and tensor. */
#include "base/alloc.h"
#include "base/log.h"
#include "checkpoint_walk.h"
#include "testdir.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

static void shared_models_open_and_are_complete(void **state) {
    (void)state;
    static const char *const folders[] = {
        "models/atto", "models/atto-dflash", "fixtures/tiny/qwen35", "fixtures/tiny/qwen35-mtp", "fixtures/tiny/qwen35-moe",
        "fixtures/tiny/qwen35-moe-text", "fixtures/tiny/llama-default", "fixtures/tiny/llama-linear",
        "fixtures/tiny/llama-rope3", "fixtures/tiny/llama-yarn", "fixtures/tiny/qwen2", "fixtures/tiny/qwen3"};
    if (shared_dir() == NULL) skip();
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[600];
        (void)snprintf(path, sizeof path, "%s/%s", shared_dir(), folders[i]);
        vb_error err = {0};
        walk w = {.err = &err};
        if (vb__checkpoint_open(path, &w.c, &err) != VB_OK) fail_msg("%s: %s", folders[i], err.text);
        if (walk_all(&w) != VB_OK) fail_msg("%s: %s", folders[i], err.text);
        char print[33];
        vb__checkpoint_fingerprint(w.c, print);
        print_message("%s: %d matrices, %d vectors, mtp %s, %s\n", folders[i], w.matrices, w.vectors,
                      vb__checkpoint_config(w.c)->mtp_layers == 0 ? "none" : "announced", print);
        vb__checkpoint_close(w.c);
    }
}

static void embedded_models_open_and_are_complete(void **state) {
    (void)state;
    static const char *const folders[] = {"models/atto", "models/atto-dflash"};
    static const int matrices[] = {102, 22};
    for (int i = 0; i < 2; i++) {
        char path[600];
        (void)snprintf(path, sizeof path, "%s/%s", SOURCE_ROOT, folders[i]);
        vb_error err = {0};
        walk w = {.err = &err};
        if (vb__checkpoint_open(path, &w.c, &err) != VB_OK) fail_msg("%s: %s", folders[i], err.text);
        assert_null(vb__checkpoint_missing_mtp(w.c));
        if (walk_all(&w) != VB_OK) fail_msg("%s: %s", folders[i], err.text);
        assert_int_equal(w.matrices, matrices[i]);
        assert_int_equal(w.affine, matrices[i]);
        vb__checkpoint_close(w.c);
    }
}

int main(void) {
    vb__log_set(NULL, NULL, VB_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_models_open_and_are_complete),
        cmocka_unit_test(embedded_models_open_and_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
