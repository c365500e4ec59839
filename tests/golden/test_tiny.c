/* The tiny random models: logits and hidden rows against the stock implementation's in f32, within what bf16
 * inputs of linears may cost (the models' README: stock bf16, rms and KL); greedy ids equal. */
#include "golden_util.h"

typedef struct tiny {
    const char *name;
    double rms, kl;   /* of stock bf16: we must not be worse */
    const char *file; /* in the folder; NULL: the folder itself */
} tiny;

static const tiny qwen35[] = {{"qwen35", 0.065, 2.0e-3, NULL}, {"qwen35-mtp", 0.041, 7.4e-4, NULL}};
static const tiny dense[] = {{"llama-default", 0.036, 5.9e-4, NULL}, {"llama-rope3", 0.031, 4.4e-4, NULL},
                             {"llama-yarn", 0.048, 1.2e-3, NULL},    {"llama-linear", 0.024, 3.1e-4, NULL},
                             {"qwen2", 0.032, 4.5e-4, NULL},         {"qwen3", 0.018, 1.6e-4, NULL}};
static const tiny moe[] = {{"qwen35-moe", 0.039, 7.9e-4, NULL}, {"qwen35-moe-text", 0.039, 7.9e-4, NULL}};
static const tiny gguf[] = {{"llama-rope3", 0.031, 4.4e-4, "model.gguf"}, {"qwen35-moe", 0.039, 7.9e-4, "model.gguf"}};

static void compare(const vb__safetensors *s, const char *name, const float *got, int32_t rows, int32_t n, double *rms,
                    double *kl, double *max) {
    const vb__st_tensor *t = golden_tensor(s, name);
    assert_int_equal(t->shape[0], rows);
    assert_int_equal(t->shape[1], n);
    const float *want = (const float *)(const void *)t->data;
    double sum = 0;
    *kl = *max = 0;
    for (int64_t i = 0; i < (int64_t)rows * n; i++) {
        double d = (double)got[i] - want[i];
        sum += d * d;
        *max = fmax(*max, fabs(d));
    }
    for (int32_t r = 0; r < rows; r++) *kl += golden_kl(want + (int64_t)r * n, got + (int64_t)r * n, n) / rows;
    *rms = sqrt(sum / ((double)rows * n));
}

static void check_model(const tiny *t) {
    char path[200];
    (void)snprintf(path, sizeof path, "fixtures/tiny/%s%s%s", t->name, t->file == NULL ? "" : "/", t->file == NULL ? "" : t->file);
    golden_model g;
    golden_open(&g, golden_file(path), 2, 8);
    (void)snprintf(path, sizeof path, "fixtures/tiny/%s/expected.safetensors", t->name);
    vb__safetensors s;
    golden_tensors(&s, golden_file(path));
    int32_t v = g.m->cfg.vocab;
    double rms, kl, max;
    int32_t ids[256];
    memcpy(ids, golden_tensor(&s, "short.input_ids")->data, 37 * 4);
    golden_run(&g, ids, 37);
    compare(&s, "short.logits", g.logits, 37, v, &rms, &kl, &max);
    printf("%s short: max %.4f rms %.4f kl %.2e\n", t->name, max, rms, kl);
    assert_true(rms <= t->rms && kl <= t->kl);
    /* Greedy continuation, one row at a time. */
    const int32_t *greedy = (const int32_t *)(const void *)golden_tensor(&s, "short.greedy_ids")->data;
    int32_t id = golden_argmax(g.logits + 36 * v, v);
    for (int32_t i = 0; i < 16; i++) {
        assert_int_equal(id, greedy[i]);
        golden_run(&g, &id, 1);
        id = golden_argmax(g.logits, v);
    }
    /* The long prompt, in two calls. */
    vb__seq_reset(g.seq);
    memcpy(ids, golden_tensor(&s, "long.input_ids")->data, 150 * 4);
    golden_run(&g, ids, 70);
    golden_run(&g, ids + 70, 80);
    compare(&s, "long.logits", g.logits + 72 * v, 8, v, &rms, &kl, &max);
    printf("%s long: max %.4f rms %.4f kl %.2e\n", t->name, max, rms, kl);
    assert_true(rms <= t->rms && kl <= t->kl);
    vb__safetensors_close(&s);
    golden_close(&g);
}

static void qwen35_models(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof qwen35 / sizeof *qwen35; i++) check_model(&qwen35[i]);
}

static void dense_models(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++) check_model(&dense[i]);
}

static void moe_models(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof moe / sizeof *moe; i++) check_model(&moe[i]);
}

static void gguf_models(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof gguf / sizeof *gguf; i++) check_model(&gguf[i]);
}

int main(void) {
    uint32_t csr = vb__fp_enter();
    if (golden_shared() == NULL) return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen35_models),
        cmocka_unit_test(dense_models),
        cmocka_unit_test(moe_models),
        cmocka_unit_test(gguf_models),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    vb__fp_leave(csr);
    return rc;
}
