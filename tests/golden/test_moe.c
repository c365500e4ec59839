/* Mixtures of experts beyond the fixtures: an MTP head with experts (fused and numbered give the same bits,
 * and drafting with it the text of plain decode), and a quantised copy with its 8-bit routers. */
#include "../unit/testdir.h"
#include "engine/drafting.h"
#include "engine/model_handle.h"
#include "golden_util.h"
#include "model/quantise.h"
#include <errno.h>

enum { N = 37, H = 64, E = 8, IE = 24 };

#define SOURCE "fixtures/tiny/qwen35-moe"

/* ---- A head made of the trunk's own tensors --------------------------------------------------------------------------- */

typedef struct writer {
    char header[65536];
    size_t h, at;
    uint8_t *data;
} writer;

static void add(writer *w, const char *name, const char *shape, const void *data, size_t n) {
    w->h += (size_t)snprintf(w->header + w->h, sizeof w->header - w->h,
                             "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                             w->h > 1 ? "," : "", name, shape, w->at, w->at + n);
    memcpy(w->data + w->at, data, n);
    w->at += n;
}

static void add_copy(writer *w, const vb__safetensors *s, const char *to, const char *from) {
    char name[200], shape[64];
    (void)snprintf(name, sizeof name, "model.language_model.%s", from);
    const vb__st_tensor *t = golden_tensor(s, name);
    int n = 0;
    for (int32_t d = 0; d < t->dims; d++)
        n +=
            snprintf(shape + n, sizeof shape - (size_t)n, "%s%lld", d > 0 ? "," : "", (long long)t->shape[d]);
    (void)snprintf(name, sizeof name, "mtp.%s", to);
    add(w, name, shape, t->data, t->bytes);
}

static void add_experts(writer *w, const vb__safetensors *s, bool numbered) {
    static const char *const fused[2] = {"mlp.experts.gate_up_proj", "mlp.experts.down_proj"};
    char from[200], to[200];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(from, sizeof from, "layers.1.%s", fused[i]);
        (void)snprintf(to, sizeof to, "layers.0.%s", fused[i]);
        if (!numbered) {
            add_copy(w, s, to, from);
            continue;
        }
        (void)snprintf(from, sizeof from, "model.language_model.layers.1.%s", fused[i]);
        const uint8_t *p = golden_tensor(s, from)->data;
        size_t one = (size_t)H * IE * 2; /* bytes of one projection of one expert */
        for (int e = 0; e < E; e++)
            for (int half = 0; half < 2 - i; half++, p += one) {
                (void)snprintf(to, sizeof to, "mtp.layers.0.mlp.experts.%d.%s", e,
                               i == 1      ? "down_proj.weight"
                               : half == 0 ? "gate_proj.weight"
                                           : "up_proj.weight");
                add(w, to, i == 1 ? "64,24" : "24,64", p, one);
            }
    }
}

static void make_model(const testdir *d, bool numbered) {
    static const char *const copied[] = {"input_layernorm.weight",
                                         "post_attention_layernorm.weight",
                                         "self_attn.q_proj.weight",
                                         "self_attn.k_proj.weight",
                                         "self_attn.v_proj.weight",
                                         "self_attn.o_proj.weight",
                                         "self_attn.q_norm.weight",
                                         "self_attn.k_norm.weight",
                                         "mlp.gate.weight",
                                         "mlp.shared_expert.gate_proj.weight",
                                         "mlp.shared_expert.up_proj.weight",
                                         "mlp.shared_expert.down_proj.weight",
                                         "mlp.shared_expert_gate.weight"};
    static const char *const norms[] = {"norm.weight", "pre_fc_norm_embedding.weight",
                                        "pre_fc_norm_hidden.weight"};
    char from[200], to[200];
    vb__safetensors s;
    const char *path = golden_file(SOURCE "/model.safetensors");
    golden_tensors(&s, path);
    assert_int_equal(symlink(path, testdir_file(d, "model.safetensors")), 0);
    static writer w;
    w = (writer){.header = "{", .h = 1, .data = calloc(1, 1 << 20)};
    for (size_t i = 0; i < sizeof copied / sizeof *copied; i++) {
        (void)snprintf(from, sizeof from, "layers.1.%s", copied[i]);
        (void)snprintf(to, sizeof to, "layers.0.%s", copied[i]);
        add_copy(&w, &s, to, from);
    }
    for (int i = 0; i < 3; i++) add_copy(&w, &s, norms[i], "norm.weight");
    add_experts(&w, &s, numbered);
    uint16_t fc[H * 2 * H];
    uint32_t r = 1;
    for (int i = 0; i < H * 2 * H; i++) {
        r = r * 1664525u + 1013904223u;
        fc[i] = (uint16_t)((r >> 16 & 0x8000) | (0x3d80 + (r >> 8 & 0x7f))); /* +-0.06 .. 0.12 */
    }
    add(&w, "mtp.fc.weight", "64,128", fc, sizeof fc);
    w.header[w.h] = '}';
    testdir_safetensors(d, "mtp.safetensors", w.header, w.data, w.at);
    free(w.data);
    vb__safetensors_close(&s);
    size_t n;
    char *config = testdir_read(golden_file(SOURCE "/config.json"), &n), *at = strstr(config, "\"num_experts\"");
    FILE *f = fopen(testdir_file(d, "config.json"), "wb");
    assert_true(f != NULL && at != NULL);
    (void)fprintf(f, "%.*s\"mtp_num_hidden_layers\": 1, %s", (int)(at - config), config, at);
    assert_int_equal(fclose(f), 0);
    free(config);
}

/* Logits of the head's rows, all at once or one by one. */
static float *head_logits(const char *path, int32_t step) {
    golden_model g;
    golden_open(&g, path, 2, 8);
    assert_non_null(g.m->mtp);
    int32_t ids[N], v = g.m->cfg.vocab;
    for (int32_t i = 0; i < N; i++) ids[i] = (i * 31 + 7) % v;
    golden_run(&g, ids, N);
    float *out = calloc((size_t)(N - 1) * (size_t)v, sizeof *out), *rows;
    void *p;
    assert_int_equal(g.be->ops->alloc(g.be, (size_t)N * H * 4, &p), VB_OK);
    rows = p;
    for (int32_t at = 0; at < N - 1; at += step) {
        int32_t n = N - 1 - at < step ? N - 1 - at : step;
        const vb__mtp_seq row = {g.seq, n, at, ids + at + 1, g.hidden + at * H};
        assert_int_equal(vb__mtp_forward(g.m, g.ws, &row, 1, rows, NULL), VB_OK);
        vb__logits(g.m, rows, n, out + (int64_t)at * v);
    }
    for (int32_t i = 0; i < (N - 1) * v; i++) assert_true(isfinite(out[i]));
    g.be->ops->free(g.be, p);
    golden_close(&g);
    return out;
}

static void generate(const char *path, const char *draft, int32_t width, vb_result *r) {
    vb_model_options o = golden_options(draft, 256);
    o.path = path;
    o.draft_width = width;
    vb_model *m = golden_load(&o);
    golden_gates_pass(m, width);
    int32_t ids[20];
    for (int32_t i = 0; i < 20; i++) ids[i] = 20 + i * i % 50;
    vb_request q = golden_request(ids, 20, 40, 0, 0);
    golden_generate(m, &q, r);
    vb_model_close(m);
}

static void heads_with_experts(void **state) {
    (void)state;
    testdir fused, numbered;
    testdir_make(&fused);
    testdir_make(&numbered);
    make_model(&fused, false);
    make_model(&numbered, true);
    float *a = head_logits(fused.path, N), *b = head_logits(numbered.path, 1);
    assert_memory_equal(a, b, (size_t)(N - 1) * 256 * sizeof *a);
    free(a);
    free(b);
    vb_result plain, drafted;
    generate(numbered.path, "none", 0, &plain);
    static const int32_t widths[] = {2, 5, 16};
    for (int i = 0; i < 3; i++) {
        generate(i == 1 ? fused.path : numbered.path, "mtp", widths[i], &drafted);
        printf("mtp width %d: %lld of %lld accepted\n", widths[i], (long long)drafted.accepted,
               (long long)drafted.proposed);
        assert_true(drafted.proposed > 0);
        assert_string_equal(drafted.logits_sha256, plain.logits_sha256);
        vb_result_fini(&drafted);
    }
    vb_result_fini(&plain);
    testdir_remove(&fused);
    testdir_remove(&numbered);
}

/* ---- Quantised ----------------------------------------------------------------------------------------------------------- */

static void quantised_copy(void **state) {
    (void)state;
    testdir d;
    testdir_make(&d);
    char out[128];
    (void)snprintf(out, sizeof out, "%s/q8", d.path);
    vb__pool *pool;
    vb__quantise_result res;
    vb_error err;
    assert_int_equal(vb__pool_create(2, &pool, NULL), VB_OK);
    const vb__quantise_options qo = {.bits = 8, .group = 32, .pool = pool};
    if (vb__quantise_folder(golden_file(SOURCE), out, &qo, &res, &err) != VB_OK) fail_msg("%s", err.text);
    vb__pool_destroy(pool);
    golden_model g;
    golden_open(&g, out, 2, 16);
    const vb__layer *l = &g.m->layers[0];
    assert_true(l->router->quantised && l->router->bits == 8 && l->experts[3].gate->quantised &&
                !l->experts[3].down->quantised);
    vb__safetensors s;
    golden_tensors(&s, golden_file(SOURCE "/expected.safetensors"));
    int32_t ids[N], v = g.m->cfg.vocab;
    memcpy(ids, golden_tensor(&s, "short.input_ids")->data, sizeof ids);
    const float *want = (const float *)(const void *)golden_tensor(&s, "short.logits")->data;
    golden_run(&g, ids, N);
    /* The weights' error costs about 2e-3; single rows where another expert is chosen, or the gated norm
     * amplifies, more. */
    double kl = 0;
    int32_t far = 0;
    for (int32_t i = 0; i < N; i++) {
        double one = golden_kl(want + i * v, g.logits + i * v, v);
        kl += one / N;
        far += one > 6e-3;
    }
    printf("8 bits: relative error %.4f, kl %.2e, %d rows above 6e-3\n", res.relative_error, kl, far);
    assert_true(kl < 3e-2 && far < N / 3);
    /* One by one: the same bits. */
    float *all = calloc((size_t)(N * v), sizeof *all);
    memcpy(all, g.logits, (size_t)(N * v) * sizeof *all);
    vb__seq_reset(g.seq);
    for (int32_t i = 0; i < N; i++) {
        golden_run(&g, ids + i, 1);
        assert_memory_equal(g.logits, all + i * v, (size_t)v * sizeof *all);
    }
    free(all);
    vb__safetensors_close(&s);
    golden_close(&g);
    testdir_remove(&d);
}

int main(int argc, char **argv) {
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    if (golden_shared() == NULL) return 77;
    (void)golden_fresh_home();
    uint32_t csr = vb__fp_enter();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_with_experts),
        cmocka_unit_test(quantised_copy),
    };
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    vb__fp_leave(csr);
    return rc;
}
