/* The MTP head against its fixtures: logits and hidden rows of the tiny model, the recursive draft of depth 4, and the trained
 * model's top-1 predictions along its reference texts, with the share that the text confirms. */
#include "golden_util.h"

/* MTP rows pos0..pos0+n-1 on g->seq; logits in g->logits, rows after mtp.norm in out. */
static void mtp_rows(golden_model *g, const int32_t *tokens, const float *hidden, int32_t pos0, int32_t n, float *out) {
    vb_error err = {0};
    const vb__mtp_seq row = {g->seq, n, pos0, tokens, hidden};
    if (vb__mtp_forward(g->m, g->ws, &row, 1, out, &err) != VB_OK) fail_msg("%s", err.text);
    vb__logits(g->m, out, n, g->logits);
}

static void tiny_head(void **state) {
    (void)state;
    golden_model g;
    golden_open(&g, golden_file("fixtures/tiny/qwen35-mtp"), 1, 8);
    vb__safetensors s;
    golden_tensors(&s, golden_file("fixtures/tiny/qwen35-mtp/expected.safetensors"));
    int32_t ids[64], v = g.m->cfg.vocab, h = g.m->cfg.hidden;
    memcpy(ids, golden_tensor(&s, "short.input_ids")->data, 37 * 4);
    golden_run(&g, ids, 37);
    int32_t pending = golden_argmax(g.logits + 36 * v, v);
    void *p;
    assert_int_equal(g.be->ops->alloc(g.be, (size_t)64 * (size_t)h * 4, &p), VB_OK);
    float *out = p;
    mtp_rows(&g, ids + 1, g.hidden, 0, 36, out);
    const float *want = (const float *)(const void *)golden_tensor(&s, "short.mtp_logits")->data;
    double sum = 0, kl = 0;
    for (int64_t i = 0; i < 36 * (int64_t)v; i++) sum += ((double)g.logits[i] - want[i]) * ((double)g.logits[i] - want[i]);
    for (int32_t i = 0; i < 36; i++) kl += golden_kl(want + (int64_t)i * v, g.logits + (int64_t)i * v, v) / 36;
    printf("tiny MTP: rms %.4f kl %.2e\n", sqrt(sum / (36.0 * v)), kl);
    assert_true(sqrt(sum / (36.0 * v)) <= 0.06 && kl <= 1.5e-3);
    /* Depth 4 by recursion behind the trunk's own next token. */
    const int32_t *draft = (const int32_t *)(const void *)golden_tensor(&s, "short.draft_ids")->data;
    const float *hidden = g.hidden + 36 * h;
    assert_int_equal(vb__seq_reserve(g.seq, 48), VB_OK);
    for (int32_t i = 0; i < 4; i++) {
        mtp_rows(&g, &pending, hidden, 36 + i, 1, out + i * h);
        pending = golden_argmax(g.logits, v);
        assert_int_equal(pending, draft[i]);
        hidden = out + i * h;
    }
    g.be->ops->free(g.be, out);
    vb__safetensors_close(&s);
    golden_close(&g);
}

static void trained_head(void **state) {
    (void)state;
    golden_model g;
    golden_open(&g, golden_file("models/atto"), 2, 8);
    json_t *root = golden_json("fixtures/reference.json");
    void *p;
    assert_int_equal(g.be->ops->alloc(g.be, (size_t)g.max_rows * (size_t)g.m->cfg.hidden * 4, &p), VB_OK);
    int32_t v = g.m->cfg.vocab, rows = 0, differ = 0;
    double accept_sum = 0, want_sum = 0;
    for (size_t k = 0; k < json_array_size(root); k++) {
        const json_t *c = json_array_get(root, k), *top1 = json_object_get(c, "mtp_top1");
        int32_t ids[1024], n_prompt = golden_ids(json_object_get(c, "prompt_ids"), ids);
        int32_t n = n_prompt + golden_ids(json_object_get(c, "greedy_ids"), ids + n_prompt), accepted = 0, greedy = 0;
        vb__seq_reset(g.seq);
        golden_run(&g, ids, n - 1);
        mtp_rows(&g, ids + 1, g.hidden, 0, n - 1, p);
        for (int32_t i = 0; i < n - 1 && i < (int32_t)json_array_size(top1); i++) {
            int32_t got = golden_argmax(g.logits + (int64_t)i * v, v);
            rows++;
            differ += got != json_integer_value(json_array_get(top1, (size_t)i));
            if (i + 2 >= n_prompt + 1 && i + 2 < n) { /* predicts token i+2, a greedy one behind the first */
                greedy++;
                accepted += got == ids[i + 2];
            }
        }
        accept_sum += (double)accepted / greedy;
        want_sum += json_number_value(json_object_get(c, "mtp_accept"));
    }
    double n = (double)json_array_size(root);
    printf("trained MTP: %d of %d top-1 predictions differ; mean accept %.4f, reference %.4f\n", differ, rows, accept_sum / n, want_sum / n);
    assert_true(differ * 50 <= rows); /* ties and near-ties only */
    assert_true(accept_sum / n >= want_sum / n - 0.02);
    g.be->ops->free(g.be, p);
    json_decref(root);
    golden_close(&g);
}

int main(void) {
    uint32_t csr = vb__fp_enter();
    if (golden_shared() == NULL) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_head), cmocka_unit_test(trained_head)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    vb__fp_leave(csr);
    return rc;
}
