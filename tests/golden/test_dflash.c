/* The DFlash drafter against its fixtures: one block of 16 behind each reference prompt, anchored at the first greedy token;
 * its 15 ids, and how many of them the text confirms. */
#include "golden_util.h"
#include "model/dflash.h"

static void reference_blocks(void **state) {
    (void)state;
    golden_model g;
    vb_error err = {0};
    golden_open(&g, golden_file("models/atto"), 2, 8);
    vb__checkpoint *ck;
    vb__weight_source src;
    vb__dflash *d;
    if (vb__checkpoint_open(golden_file("models/atto-dflash"), &ck, &err) != VB_OK) fail_msg("%s", err.text);
    vb__checkpoint_source(ck, &src);
    if (vb__dflash_load(&src, g.m, g.max_rows, 1, &d, &err) != VB_OK) fail_msg("%s", err.text);
    vb__checkpoint_close(ck);
    const vb__model *dm = vb__dflash_model(d);
    vb__page_pool *pool;
    vb__seq *ds;
    assert_int_equal(vb__page_pool_create(g.be, dm->page_bytes, 32, &pool, NULL), VB_OK);
    assert_int_equal(vb__seq_create(dm, pool, 1200, g.max_rows, 0, &ds, NULL), VB_OK);
    void *p;
    int32_t h = g.m->cfg.hidden, v = g.m->cfg.vocab, taps_n = dm->cfg.n_taps;
    assert_int_equal(g.be->ops->alloc(g.be, (size_t)g.max_rows * (size_t)(taps_n * h) * 4, &p), VB_OK);
    float *taps = p;
    json_t *root = golden_json("fixtures/reference.json");
    int32_t same = 0, all = 0;
    double mean = 0, want_mean = 0;
    for (size_t k = 0; k < json_array_size(root); k++) {
        const json_t *c = json_array_get(root, k);
        int32_t ids[1024], greedy[256], block[16], n = golden_ids(json_object_get(c, "prompt_ids"), ids);
        int32_t n_greedy = golden_ids(json_object_get(c, "greedy_ids"), greedy), n_block = golden_ids(json_object_get(c, "dflash_block"), block);
        vb__seq_reset(g.seq);
        vb__seq_reset(ds);
        assert_int_equal(vb__seq_reserve(g.seq, n), VB_OK);
        const vb__forward_seq fs = {g.seq, n, n, ids};
        const vb__forward_args a = {.seqs = &fs, .n_seqs = 1, .tap_layers = dm->cfg.taps, .n_taps = taps_n, .taps = taps};
        assert_int_equal(vb__forward(g.m, g.ws, &a, &err), VB_OK);
        assert_int_equal(vb__seq_commit(g.seq, n), VB_OK);
        /* The context in two parts, as chunks of a prompt would come. */
        int32_t first = n / 2;
        assert_int_equal(vb__seq_reserve(ds, n + 16), VB_OK);
        vb__dflash_seq one = {ds, first, 0};
        if (first > 0) assert_int_equal(vb__dflash_context(d, &one, 1, taps, NULL), VB_OK);
        one.rows = n - first;
        assert_int_equal(vb__dflash_context(d, &one, 1, taps + (int64_t)first * taps_n * h, NULL), VB_OK);
        one = (vb__dflash_seq){ds, 16, greedy[0]};
        assert_int_equal(vb__dflash_block(d, &one, 1, g.hidden, NULL), VB_OK);
        vb__logits(g.m, g.hidden + h, 15, g.logits);
        int32_t accepted = 0;
        bool going = true;
        for (int32_t i = 0; i < 15 && i < n_block; i++) {
            int32_t got = golden_argmax(g.logits + (int64_t)i * v, v);
            all++;
            same += got == block[i];
            going = going && i + 1 < n_greedy && got == greedy[i + 1];
            accepted += going;
        }
        mean += accepted;
        want_mean += json_number_value(json_object_get(c, "dflash_accept"));
    }
    double n = (double)json_array_size(root);
    printf("DFlash: %d of %d block ids as expected; mean accept %.3f, reference %.3f\n", same, all, mean / n, want_mean / n);
    assert_true(same * 100 >= all * 95);
    assert_true(mean / n >= want_mean / n - 0.3);
    json_decref(root);
    g.be->ops->free(g.be, taps);
    vb__seq_destroy(ds);
    vb__page_pool_destroy(pool);
    vb__dflash_destroy(d);
    golden_close(&g);
}

/* A drafter for another target is refused with both numbers. */
static void misfits_are_refused(void **state) {
    (void)state;
    golden_model g;
    vb__checkpoint *ck;
    vb__weight_source src;
    vb__dflash *d;
    vb_error err = {0};
    golden_open(&g, golden_file("fixtures/tiny/qwen35"), 1, 8);
    assert_int_equal(vb__checkpoint_open(golden_file("models/atto-dflash"), &ck, &err), VB_OK);
    vb__checkpoint_source(ck, &src);
    assert_int_equal(vb__dflash_load(&src, g.m, g.max_rows, 1, &d, &err), VB_E_MISMATCH);
    assert_non_null(strstr(err.text, "512"));
    assert_non_null(strstr(err.text, "64"));
    vb__checkpoint_close(ck);
    golden_close(&g);
}

int main(void) {
    uint32_t csr = vb__fp_enter();
    if (golden_shared() == NULL) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(reference_blocks), cmocka_unit_test(misfits_are_refused)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    vb__fp_leave(csr);
    return rc;
}
