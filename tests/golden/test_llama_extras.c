/* What no released file has and the stock implementation takes: biases in llama's MLPs, and a head that is neither there nor
 * tied. One layer whose attention adds nothing, against the formula in f64. */
#include "base/cpu.h"
#include "golden_util.h"
#include "../unit/testdir.h"

enum { H = 64, I = 96, V = 40, HEAD = 32 };

typedef struct file {
    char header[4096];
    float values[65536];
    int n, at; /* values; characters of the header */
} file;

static uint32_t seed;
static float noise(float size) {
    seed = seed * 1664525u + 1013904223u;
    uint32_t u;
    float x = ((float)(seed >> 8) / 16777216.0f - 0.5f) * size;
    memcpy(&u, &x, 4);
    u &= 0xffff0000; /* a bf16 */
    memcpy(&x, &u, 4);
    return x;
}

/* Adds a tensor; its values, for the formula. */
static float *add(file *f, const char *name, int rows, int columns, float size, float centre) {
    int n = rows * (columns == 0 ? 1 : columns), start = f->n;
    for (int i = 0; i < n; i++) f->values[f->n++] = centre + noise(size);
    char shape[32];
    (void)snprintf(shape, sizeof shape, columns == 0 ? "%d" : "%d,%d", rows, columns);
    f->at += snprintf(f->header + f->at, sizeof f->header - (size_t)f->at,
                      "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%d,%d]}", start == 0 ? "{" : ",", name, shape,
                      start * 4, f->n * 4);
    return f->values + start;
}

typedef struct written {
    file f;
    const float *embed, *norm, *norm_post, *gate, *up, *down, *gate_bias, *up_bias, *down_bias;
} written;

static written m;

static void write_model(const testdir *d, int biases, const char *mlp_bias) {
    memset(&m, 0, sizeof m);
    seed = 7;
    file *f = &m.f;
    m.embed = add(f, "model.embed_tokens.weight", V, H, 2, 0);
    m.norm = add(f, "model.norm.weight", H, 0, 1, 1);
    add(f, "model.layers.0.input_layernorm.weight", H, 0, 1, 1);
    m.norm_post = add(f, "model.layers.0.post_attention_layernorm.weight", H, 0, 1, 1);
    add(f, "model.layers.0.self_attn.q_proj.weight", H, H, 0.3f, 0);
    add(f, "model.layers.0.self_attn.k_proj.weight", HEAD, H, 0.3f, 0);
    add(f, "model.layers.0.self_attn.v_proj.weight", HEAD, H, 0.3f, 0);
    add(f, "model.layers.0.self_attn.o_proj.weight", H, H, 0, 0);
    m.gate = add(f, "model.layers.0.mlp.gate_proj.weight", I, H, 0.4f, 0);
    m.up = add(f, "model.layers.0.mlp.up_proj.weight", I, H, 0.4f, 0);
    m.down = add(f, "model.layers.0.mlp.down_proj.weight", H, I, 0.4f, 0);
    if (biases > 0) m.gate_bias = add(f, "model.layers.0.mlp.gate_proj.bias", I, 0, 4, 0);
    if (biases > 1) m.up_bias = add(f, "model.layers.0.mlp.up_proj.bias", I, 0, 4, 0);
    if (biases > 2) m.down_bias = add(f, "model.layers.0.mlp.down_proj.bias", H, 0, 4, 0);
    f->header[f->at] = '}';
    testdir_safetensors(d, "model.safetensors", f->header, f->values, (size_t)f->n * 4);
    char config[600];
    (void)snprintf(config, sizeof config,
                   "{\"model_type\":\"llama\",\"hidden_size\":%d,\"intermediate_size\":%d,\"num_hidden_layers\":1,"
                   "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"vocab_size\":%d,\"max_position_embeddings\":64,"
                   "\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false%s}", H, I, V, mlp_bias);
    testdir_puts(d, "config.json", config);
}

static void normed(const double *x, const float *w, double *y) {
    double s = 0;
    for (int i = 0; i < H; i++) s += x[i] * x[i] / H;
    for (int i = 0; i < H; i++) y[i] = x[i] / sqrt(s + 1e-5) * w[i];
}

static double dot(const float *w, const double *x, int n) {
    double s = 0;
    for (int i = 0; i < n; i++) s += w[i] * x[i];
    return s;
}

static void formula(int id, double logits[V]) {
    double x[H], y[H], a[I];
    for (int i = 0; i < H; i++) x[i] = m.embed[id * H + i];
    normed(x, m.norm_post, y);
    for (int i = 0; i < I; i++) {
        double g = dot(m.gate + i * H, y, H) + (m.gate_bias == NULL ? 0 : m.gate_bias[i]);
        a[i] = g / (1 + exp(-g)) * (dot(m.up + i * H, y, H) + (m.up_bias == NULL ? 0 : m.up_bias[i]));
    }
    for (int i = 0; i < H; i++) x[i] += dot(m.down + i * I, a, I) + (m.down_bias == NULL ? 0 : m.down_bias[i]);
    normed(x, m.norm, y);
    for (int i = 0; i < V; i++) logits[i] = dot(m.embed + i * H, y, H);
}

static void agrees(int biases, const char *mlp_bias) {
    testdir d;
    testdir_make(&d);
    write_model(&d, biases, mlp_bias);
    golden_model g;
    golden_open(&g, d.path, 1, 8);
    testdir_remove(&d);
    static const int32_t ids[5] = {3, 0, 39, 3, 17};
    golden_run(&g, ids, 5);
    double worst = 0, want[V];
    for (int r = 0; r < 5; r++) {
        formula(ids[r], want);
        for (int i = 0; i < V; i++) worst = fmax(worst, fabs(want[i] - (double)g.logits[r * V + i]));
    }
    printf("%d biases: largest difference %.4f\n", biases, worst);
    assert_true(worst < 0.1);
    golden_close(&g);
}

static void refused(int biases, const char *mlp_bias, const char *want) {
    testdir d;
    testdir_make(&d);
    write_model(&d, biases, mlp_bias);
    vb_error err = {0};
    vb__checkpoint *ck = NULL;
    vb__weight_source src;
    vb__backend *be = NULL;
    vb__model *none = NULL;
    const vb__cpu_backend_options bo = {.level = VB_CPU_C, .threads = 1, .activations = 8, .max_rows = 8, .max_k = I, .max_heads = 2,
                                        .max_head_dim = HEAD};
    assert_int_equal(vb__checkpoint_open(d.path, &ck, &err), VB_OK);
    vb__checkpoint_source(ck, &src);
    assert_int_equal(vb__cpu_backend_create(&bo, &be, &err), VB_OK);
    assert_int_not_equal(vb__model_load(&src, be, NULL, NULL, &none, &err), VB_OK);
    if (strstr(err.text, want) == NULL) fail_msg("\"%s\", expected \"%s\"", err.text, want);
    vb__checkpoint_close(ck);
    be->ops->destroy(be);
    testdir_remove(&d);
}

static void biases_of_the_mlp(void **state) {
    (void)state;
    agrees(0, "");
    agrees(3, ",\"mlp_bias\":true");
    agrees(3, ""); /* the file is believed */
    refused(2, ",\"mlp_bias\":true", "layers.0.mlp.down_proj.bias");
    refused(0, ",\"mlp_bias\":true", "layers.0.mlp.gate_proj.bias");
}

int main(void) {
    uint32_t csr = vb__fp_enter();
    const struct CMUnitTest tests[] = {cmocka_unit_test(biases_of_the_mlp)};
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    vb__fp_leave(csr);
    return rc;
}
