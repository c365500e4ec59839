/* The trained model in bf16 against the stock implementation in f32: argmax at every position whose margin is 0.05 or
 * more (teacher forced; so greedy text agrees up to the first smaller margin), and the distance of the logits. */
#include "golden_util.h"

enum { MAX_IDS = 1024 };

static const float *expected(const vb__safetensors *s, int32_t prompt, const char *what, int32_t v, int32_t *rows) {
    char name[64];
    (void)snprintf(name, sizeof name, "prompt%d.%s", prompt, what);
    for (int32_t i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0) {
            *rows = (int32_t)(s->tensors[i].bytes / 4 / (uint64_t)v);
            return (const float *)(const void *)s->tensors[i].data;
        }
    return NULL;
}

typedef struct distance {
    double max, kl;
    int32_t rows;
} distance;

static void add_row(distance *d, const float *want, const float *got, int32_t v) {
    for (int32_t i = 0; i < v; i++) d->max = fmax(d->max, fabs((double)want[i] - got[i]));
    d->kl += golden_kl(want, got, v);
    d->rows++;
}

static void reference_prompts(void **state) {
    (void)state;
    json_t *root = golden_json("fixtures/reference.json");
    vb__safetensors st;
    golden_model g;
    golden_tensors(&st, golden_file("fixtures/reference.safetensors"));
    golden_open(&g, golden_file("models/atto"), 2, 8);
    int32_t v = g.m->cfg.vocab, positions = 0, close = 0;
    distance d = {0};
    for (size_t p = 0; p < json_array_size(root); p++) {
        const json_t *c = json_array_get(root, p), *top4 = json_object_get(c, "top4");
        int32_t ids[MAX_IDS], n_prompt = golden_ids(json_object_get(c, "prompt_ids"), ids);
        int32_t n = n_prompt + golden_ids(json_object_get(c, "greedy_ids"), ids + n_prompt);
        int32_t rows;
        vb__seq_reset(g.seq);
        golden_run(&g, ids, n - 1);
        const float *first = g.logits + (int64_t)(n_prompt - 1) * v;
        for (int32_t i = 0; i < n - n_prompt; i++) {
            const json_t *best = json_array_get(json_array_get(top4, (size_t)i), 0);
            const json_t *second = json_array_get(json_array_get(top4, (size_t)i), 1);
            double margin = json_number_value(json_array_get(best, 1)) - json_number_value(json_array_get(second, 1));
            if (margin < 0.05) {
                close++;
                continue;
            }
            if (golden_argmax(first + (int64_t)i * v, v) != ids[n_prompt + i])
                fail_msg("prompt %zu position %d: argmax differs, margin %.3f", p, i, margin);
            positions++;
        }
        const float *want = expected(&st, (int32_t)p, "logits", v, &rows);
        if (want != NULL) add_row(&d, want, first, v);
        want = expected(&st, (int32_t)p, "all_logits_last16", v, &rows);
        for (int32_t i = 0; want != NULL && i < rows; i++)
            add_row(&d, want + (int64_t)(rows - i - 1) * v, first - (int64_t)i * v, v);
    }
    d.kl /= d.rows;
    printf("argmax equal at %d positions (%d of a margin under 0.05 left out); %d rows: max |difference| %.4f, mean KL %.2e\n",
           positions, close, d.rows, d.max, d.kl);
    assert_true(d.rows >= 15);
    assert_true(d.max <= 0.13);
    assert_true(d.kl <= 3e-5);
    json_decref(root);
    vb__safetensors_close(&st);
    golden_close(&g);
}

int main(void) {
    uint32_t csr = vb__fp_enter();
    if (golden_shared() == NULL) return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(reference_prompts)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    vb__fp_leave(csr);
    return rc;
}
