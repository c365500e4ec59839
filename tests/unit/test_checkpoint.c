/* model/checkpoint: every shared model opens and gives what its config implies; each defect is one error that names
 * file and tensor. */
#include "base/buffer.h"
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

/* GGUF files hold the values of the folder beside them: the same matrices, the same vectors. */
static void gguf_files_hold_the_same_values(void **state) {
    (void)state;
    static const char *const folders[] = {"llama-rope3", "qwen35-moe"};
    if (shared_dir() == NULL) skip();
    for (int i = 0; i < 2; i++) {
        char path[600];
        vb_error err = {0};
        walk a = {.err = &err}, b = {.err = &err};
        (void)snprintf(path, sizeof path, "%s/fixtures/tiny/%s", shared_dir(), folders[i]);
        if (vb__checkpoint_open(path, &a.c, &err) != VB_OK || walk_all(&a) != VB_OK) fail_msg("%s", err.text);
        (void)snprintf(path, sizeof path, "%s/fixtures/tiny/%s/model.gguf", shared_dir(), folders[i]);
        if (vb__checkpoint_open(path, &b.c, &err) != VB_OK || walk_all(&b) != VB_OK) fail_msg("%s", err.text);
        assert_int_equal(a.matrices, b.matrices);
        assert_int_equal(a.vectors, b.vectors);
        const vb__model_config *m = vb__checkpoint_config(a.c), *g = vb__checkpoint_config(b.c);
        assert_true(m->vocab == g->vocab && m->layers == g->layers && m->heads == g->heads && m->kv_heads == g->kv_heads);
        assert_true(m->head_dim == g->head_dim && m->eps == g->eps && m->rope.theta == g->rope.theta && m->tied == g->tied);
        assert_true(m->rope.rotated == g->rope.rotated && m->lin_dv == g->lin_dv && m->experts == g->experts);
        assert_memory_equal(m->layer_type, g->layer_type, sizeof m->layer_type);
        static const char *const matrices[] = {"embed_tokens", "layers.1.self_attn.q_proj", "layers.1.self_attn.k_proj",
                                               "layers.1.self_attn.v_proj", "layers.0.mlp.experts.5.down_proj",
                                               "layers.0.mlp.experts.5.up_proj", "layers.0.mlp.down_proj"};
        for (size_t j = 0; j < sizeof matrices / sizeof *matrices; j++) {
            if (!vb__checkpoint_has(a.c, matrices[j])) continue;
            int32_t q = m->heads * m->head_dim * (m->output_gate ? 2 : 1), kv = m->kv_heads * m->head_dim;
            int32_t n = j == 0 ? m->vocab : j == 1 ? q : j < 4 ? kv : j == 5 ? m->expert_intermediate : m->hidden;
            int32_t k = j == 4 ? m->expert_intermediate : j == 6 ? m->intermediate : m->hidden;
            vb__matrix x, y;
            if (vb__checkpoint_matrix(a.c, matrices[j], n, k, &x, &err) != VB_OK) fail_msg("%s", err.text);
            if (vb__checkpoint_matrix(b.c, matrices[j], n, k, &y, &err) != VB_OK) fail_msg("%s", err.text);
            assert_int_equal(y.kind, VB_MATRIX_BF16);
            assert_memory_equal(x.data, y.data, (size_t)n * (size_t)k * 2);
        }
        float x[64], y[64];
        assert_int_equal(vb__checkpoint_vector(a.c, "layers.1.input_layernorm", VB_VECTOR_NORM, 64, x, &err), VB_OK);
        assert_int_equal(vb__checkpoint_vector(b.c, "layers.1.input_layernorm", VB_VECTOR_NORM, 64, y, &err), VB_OK);
        assert_memory_equal(x, y, sizeof x);
        assert_true(vb__checkpoint_gguf(b.c) != NULL && vb__checkpoint_gguf(a.c) == NULL);
        vb__checkpoint_close(a.c);
        vb__checkpoint_close(b.c);
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


/* ---- a model made here, with one defect at a time ------------------------------------------------------- */

/* A tensor of a test model; data: NULL for a pattern. */
typedef struct spec {
    char name[160];
    const char *dtype;
    int64_t shape[4];
    int dims;
    const void *data;
} spec;

typedef struct fake {
    spec t[200];
    int n;
    char config[4000];
} fake;

static testdir dir;
static int make_dir(void **state) {
    (void)state;
    testdir_make(&dir);
    return 0;
}
static int remove_dir(void **state) {
    (void)state;
    testdir_remove(&dir);
    return 0;
}

static int64_t size_of(const char *dtype) {
    return strcmp(dtype, "F32") == 0 || strcmp(dtype, "U32") == 0 ? 4 : strcmp(dtype, "I64") == 0 ? 8 : 2;
}

static spec *add(fake *f, const char *dtype, int dims, int64_t a, int64_t b, int64_t c, const char *fmt, ...) {
    spec *s = &f->t[f->n++];
    va_list ap;
    *s = (spec){.dtype = dtype, .shape = {a, b, c}, .dims = dims};
    va_start(ap, fmt);
    (void)vsnprintf(s->name, sizeof s->name, fmt, ap);
    va_end(ap);
    return s;
}

static spec *get(fake *f, const char *name) {
    for (int i = 0; i < f->n; i++)
        if (strcmp(f->t[i].name, name) == 0) return &f->t[i];
    fail_msg("no %s in the test model", name);
    return NULL;
}

static void drop(fake *f, const char *name) {
    spec *s = get(f, name);
    *s = f->t[--f->n];
}

/* Writes tensors [from, to) as one file. */
static void write_tensors(const fake *f, const char *file, int from, int to) {
    vb__buffer h;
    int64_t at = 0;
    vb__buffer_init(&h, 1 << 20);
    (void)vb__buffer_putc(&h, '{');
    for (int i = from; i < to; i++) {
        const spec *t = &f->t[i];
        int64_t bytes = size_of(t->dtype);
        (void)vb__buffer_printf(&h, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", i == from ? "" : ",", t->name, t->dtype);
        for (int d = 0; d < t->dims; d++) {
            bytes *= t->shape[d];
            (void)vb__buffer_printf(&h, "%s%lld", d == 0 ? "" : ",", (long long)t->shape[d]);
        }
        (void)vb__buffer_printf(&h, "],\"data_offsets\":[%lld,%lld]}", (long long)at, (long long)(at + bytes));
        at += bytes;
    }
    assert_int_equal(vb__buffer_putc(&h, '}'), VB_OK);
    uint8_t *data = calloc(1, (size_t)at + 1);
    int64_t off = 0;
    for (int i = from; i < to; i++) {
        int64_t count = size_of(f->t[i].dtype);
        for (int d = 0; d < f->t[i].dims; d++) count *= f->t[i].shape[d];
        if (f->t[i].data != NULL) memcpy(data + off, f->t[i].data, (size_t)count);
        off += count;
    }
    testdir_safetensors(&dir, file, vb__buffer_str(&h), data, (size_t)at);
    free(data);
    vb__buffer_fini(&h);
}

static void write_model(const fake *f) {
    testdir_clear(dir.path);
    testdir_puts(&dir, "config.json", f->config);
    write_tensors(f, "model.safetensors", 0, f->n);
}

enum { H = 64, V = 32, I = 96, HD = 32, DV = 32, CH = 128 /* 2*1*32 + 2*32 */ };

static void set_config(fake *f, const char *more) {
    (void)snprintf(f->config, sizeof f->config,
                   "{\"model_type\":\"qwen3_5_text\",\"vocab_size\":32,\"hidden_size\":64,\"intermediate_size\":96,"
                   "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"
                   "\"rms_norm_eps\":1e-06,\"max_position_embeddings\":128,\"full_attention_interval\":2,"
                   "\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":32,\"linear_num_key_heads\":1,"
                   "\"linear_num_value_heads\":2,\"linear_value_head_dim\":32,\"rope_theta\":10000%s}",
                   more);
}

static void add_attention(fake *f, const char *p) {
    add(f, "BF16", 2, 2 * 2 * HD, H, 0, "%s.self_attn.q_proj.weight", p);
    add(f, "BF16", 2, HD, H, 0, "%s.self_attn.k_proj.weight", p);
    add(f, "BF16", 2, HD, H, 0, "%s.self_attn.v_proj.weight", p);
    add(f, "BF16", 2, H, 2 * HD, 0, "%s.self_attn.o_proj.weight", p);
    add(f, "BF16", 1, HD, 0, 0, "%s.self_attn.q_norm.weight", p);
    add(f, "BF16", 1, HD, 0, 0, "%s.self_attn.k_norm.weight", p);
}

static void add_rest(fake *f, const char *p) {
    add(f, "BF16", 1, H, 0, 0, "%s.input_layernorm.weight", p);
    add(f, "BF16", 1, H, 0, 0, "%s.post_attention_layernorm.weight", p);
    add(f, "BF16", 2, I, H, 0, "%s.mlp.gate_proj.weight", p);
    add(f, "BF16", 2, I, H, 0, "%s.mlp.up_proj.weight", p);
    add(f, "BF16", 2, H, I, 0, "%s.mlp.down_proj.weight", p);
}

/* A Qwen 3.5 of two layers under a prefix ("model.", "model.language_model.", "language_model.model."). */
static void make_fake(fake *f, const char *prefix) {
    char p[100];
    memset(f, 0, sizeof *f);
    set_config(f, "");
    bool mlx = strncmp(prefix, "language_model.", 15) == 0;
    add(f, "BF16", 2, V, H, 0, "%sembed_tokens.weight", prefix);
    add(f, "BF16", 1, H, 0, 0, "%snorm.weight", prefix);
    (void)snprintf(p, sizeof p, "%slayers.0", prefix);
    add_rest(f, p);
    add(f, "BF16", 2, CH, H, 0, "%s.linear_attn.in_proj_qkv.weight", p);
    add(f, "BF16", 2, 2 * DV, H, 0, "%s.linear_attn.in_proj_z.weight", p);
    add(f, "BF16", 2, 2, H, 0, "%s.linear_attn.in_proj_a.weight", p);
    add(f, "BF16", 2, 2, H, 0, "%s.linear_attn.in_proj_b.weight", p);
    add(f, "BF16", 2, H, 2 * DV, 0, "%s.linear_attn.out_proj.weight", p);
    add(f, "BF16", 3, CH, mlx ? 4 : 1, mlx ? 1 : 4, "%s.linear_attn.conv1d.weight", p);
    add(f, "F32", 1, 2, 0, 0, "%s.linear_attn.A_log", p);
    add(f, "BF16", 1, 2, 0, 0, "%s.linear_attn.dt_bias", p);
    add(f, "F32", 1, DV, 0, 0, "%s.linear_attn.norm.weight", p);
    (void)snprintf(p, sizeof p, "%slayers.1", prefix);
    add_rest(f, p);
    add_attention(f, p);
}

static void add_mtp(fake *f, const char *prefix) {
    char p[100];
    add(f, "BF16", 2, H, 2 * H, 0, "%smtp.fc.weight", prefix);
    add(f, "BF16", 1, H, 0, 0, "%smtp.pre_fc_norm_embedding.weight", prefix);
    add(f, "BF16", 1, H, 0, 0, "%smtp.pre_fc_norm_hidden.weight", prefix);
    add(f, "BF16", 1, H, 0, 0, "%smtp.norm.weight", prefix);
    (void)snprintf(p, sizeof p, "%smtp.layers.0", prefix);
    add_rest(f, p);
    add_attention(f, p);
}

static char last_log[1000];
static int logs;
static void on_log(void *user, vb__log_level level, const char *area, const char *text) {
    (void)user, (void)level, (void)area;
    logs++;
    (void)snprintf(last_log, sizeof last_log, "%s", text);
}

/* Opens and walks the folder; says NULL: must succeed, and the checkpoint is returned if keep. */
static vb__checkpoint *check(const char *says, bool keep) {
    vb_error err = {0};
    walk w = {.err = &err};
    size_t before = vb__alloc_bytes(VB_TAG_FORMAT);
    logs = 0;
    last_log[0] = '\0';
    vb_err e = vb__checkpoint_open(dir.path, &w.c, &err);
    if (e == VB_OK) e = walk_all(&w);
    if (says == NULL && e != VB_OK) fail_msg("%s", err.text);
    if (says != NULL && e == VB_OK) fail_msg("taken, expected \"%s\"", says);
    if (says != NULL && strstr(err.text, says) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.text, says);
    if (keep) return w.c;
    vb__checkpoint_close(w.c);
    assert_int_equal(vb__alloc_bytes(VB_TAG_FORMAT), before);
    return NULL;
}

static void all_layouts_of_names_are_read(void **state) {
    (void)state;
    static const char *const prefixes[] = {"model.", "model.language_model.", "language_model.model.", ""};
    fake f;
    for (int i = 0; i < 4; i++) {
        make_fake(&f, prefixes[i]);
        write_model(&f);
        check(NULL, false);
        add(&f, "BF16", 2, V, H, 0, i == 2 ? "language_model.lm_head.weight" : "lm_head.weight");
        write_model(&f);
        check(NULL, false);
        add(&f, "BF16", 1, 5, 0, 0, i == 2 ? "vision_tower.blocks.0.bias" : "model.visual.blocks.0.bias");
        write_model(&f);
        check(NULL, false);
        assert_int_equal(logs, 1);
        assert_non_null(strstr(last_log, "vision_tensors=1"));
        set_config(&f, ",\"mtp_num_hidden_layers\":1");
        add_mtp(&f, i == 2 ? "language_model." : "");
        write_model(&f);
        vb__checkpoint *c = check(NULL, true);
        assert_null(vb__checkpoint_missing_mtp(c));
        vb__checkpoint_close(c);
    }
}

static void defects_against_the_config_are_named(void **state) {
    (void)state;
    fake f;
#define WITH(change, says)                                                                                   \
    do {                                                                                                     \
        make_fake(&f, "model.");                                                                             \
        change;                                                                                              \
        write_model(&f);                                                                                     \
        check(says, false);                                                                                  \
    } while (0)
    WITH(drop(&f, "model.layers.1.self_attn.k_proj.weight"),
         "model.safetensors: tensor model.layers.1.self_attn.k_proj.weight: is missing, expected shape [32, 64]");
    WITH(drop(&f, "model.layers.0.linear_attn.A_log"), "tensor model.layers.0.linear_attn.A_log: is missing, expected 2 values");
    WITH(drop(&f, "model.norm.weight"), "tensor model.norm.weight: is missing");
    WITH(drop(&f, "model.embed_tokens.weight"), "tensor model.embed_tokens.weight: is missing");
    WITH(add(&f, "BF16", 1, 3, 0, 0, "model.layers.2.extra"), "tensor model.layers.2.extra: (BF16 [3]) has no place in a qwen3_5");
    WITH(add(&f, "BF16", 1, 3, 0, 0, "other.weight"), "tensor other.weight: (BF16 [3]) has no place");
    WITH(add(&f, "BF16", 1, HD, 0, 0, "model.layers.1.self_attn.k_proj.bias"), "k_proj.bias: (BF16 [32]) has no place");
    WITH(get(&f, "model.layers.1.mlp.up_proj.weight")->shape[0]--, "up_proj.weight: has shape [95, 64], expected [96, 64] by config.json");
    WITH(get(&f, "model.layers.1.mlp.up_proj.weight")->dims = 1, "up_proj.weight: has shape [96], expected [96, 64]");
    WITH(get(&f, "model.norm.weight")->shape[0]++, "norm.weight: has shape [65], expected [64]");
    WITH(get(&f, "model.layers.0.linear_attn.conv1d.weight")->shape[2]++, "conv1d.weight: has shape [128, 1, 5], expected [128, 1, 4]");
    WITH(get(&f, "model.norm.weight")->dtype = "I64", "norm.weight: has dtype I64, expected BF16, F16 or F32");
    WITH(get(&f, "model.layers.1.mlp.up_proj.weight")->dtype = "U32", "up_proj.weight: has dtype U32, expected BF16, F16 or F32 (or U32");
    WITH(add(&f, "BF16", 2, V, H, 0, "model.language_model.embed_tokens.weight"), "are both there, expected one");
    WITH((add(&f, "BF16", 2, V, H, 0, "lm_head.weight"), add(&f, "BF16", 2, V, H, 0, "language_model.lm_head.weight")),
         "is the same as");
    WITH(set_config(&f, ",\"attention_bias\":true"), "tensor model.layers.1.self_attn.q_proj.bias: is missing, expected 128 values");
    make_fake(&f, "model.");
    write_model(&f);
    testdir_puts(&dir, "config.json", "{\"model_type\":\"qwen3_5_text\"}");
    check("config.json: vocab_size: is missing", false);
    (void)unlink(testdir_file(&dir, "config.json"));
    check("config.json: cannot be opened", false);
    vb_error err = {0};
    vb__checkpoint *c;
    assert_int_equal(vb__checkpoint_open(testdir_file(&dir, "model.safetensors"), &c, &err), VB_E_UNSUPPORTED);
    assert_int_equal(vb__checkpoint_open(testdir_file(&dir, "nowhere"), &c, &err), VB_E_NOT_FOUND);
}

static void an_absent_mtp_head_is_one_log_line(void **state) {
    (void)state;
    fake f;
    make_fake(&f, "model.");
    set_config(&f, ",\"mtp_num_hidden_layers\":1");
    write_model(&f);
    vb__checkpoint *c = check(NULL, true);
    assert_int_equal(logs, 1);
    assert_string_equal(vb__checkpoint_missing_mtp(c), "mtp.fc.weight");
    vb__checkpoint_close(c);
    /* one tensor short: the others are no error */
    add_mtp(&f, "");
    drop(&f, "mtp.layers.0.self_attn.k_norm.weight");
    write_model(&f);
    c = check(NULL, true);
    assert_string_equal(vb__checkpoint_missing_mtp(c), "mtp.layers.0.self_attn.k_norm.weight");
    vb__checkpoint_close(c);
    /* one too many */
    make_fake(&f, "model.");
    add_mtp(&f, "");
    add(&f, "BF16", 1, 3, 0, 0, "mtp.extra.weight");
    write_model(&f);
    check("tensor mtp.extra.weight: (BF16 [3]) has no place", false);
    /* a config without the key: the file decides */
    f.n--;
    write_model(&f);
    c = check(NULL, true);
    assert_int_equal(vb__checkpoint_config(c)->mtp_layers, 1);
    vb__checkpoint_close(c);
    /* in a file of its own */
    make_fake(&f, "model.");
    int trunk = f.n;
    add_mtp(&f, "");
    write_model(&f);
    write_tensors(&f, "model.safetensors", 0, trunk);
    write_tensors(&f, "mtp.safetensors", trunk, f.n);
    c = check(NULL, true);
    assert_null(vb__checkpoint_missing_mtp(c));
    vb__checkpoint_close(c);
    (void)snprintf(f.t[trunk].name, 160, "lm_head.weight");
    write_tensors(&f, "mtp.safetensors", trunk, f.n);
    check("mtp.safetensors: tensor lm_head.weight: has no place in this file", false);
}

static void norms_conv_and_decay_are_converted(void **state) {
    (void)state;
    static const char *const prefixes[] = {"model.", "language_model.model."};
    for (int mlx = 0; mlx < 2; mlx++) {
        fake f;
        make_fake(&f, prefixes[mlx]);
        add_mtp(&f, "");
        uint16_t norm[H], conv[CH * 4];
        float alog[2] = {0.0f, -1.5f}, gated[DV], out[CH * 4];
        for (int i = 0; i < H; i++) norm[i] = 0x3e00; /* 0.125 */
        for (int i = 0; i < CH * 4; i++) conv[i] = (uint16_t)(0x3f80 + i % 100);
        for (int i = 0; i < DV; i++) gated[i] = 0.3f;
        char name[100];
#define SET(what, v) (snprintf(name, sizeof name, "%s%s", prefixes[mlx], what), get(&f, name)->data = (v))
        SET("norm.weight", norm);
        SET("layers.0.linear_attn.conv1d.weight", conv);
        SET("layers.0.linear_attn.A_log", alog);
        SET("layers.0.linear_attn.norm.weight", gated);
        get(&f, "mtp.norm.weight")->data = norm;
        write_model(&f);
        vb__checkpoint *c = check(NULL, true);
        vb_error err;
        assert_int_equal(vb__checkpoint_vector(c, "norm", VB_VECTOR_NORM, H, out, &err), VB_OK);
        assert_true(out[5] == (mlx ? 0.125f : 1.125f));
        assert_int_equal(vb__checkpoint_vector(c, "norm", VB_VECTOR_PLAIN, H, out, &err), VB_OK);
        assert_true(out[5] == 0.125f);
        assert_int_equal(vb__checkpoint_vector(c, "mtp.norm", VB_VECTOR_NORM, H, out, &err), VB_OK);
        assert_true(out[5] == 1.125f); /* by its spelling, whatever the trunk */
        assert_int_equal(vb__checkpoint_vector(c, "layers.0.linear_attn.norm", VB_VECTOR_PLAIN, DV, out, &err), VB_OK);
        assert_true(out[3] == 0.3f);
        assert_int_equal(vb__checkpoint_vector(c, "layers.0.linear_attn.conv1d", VB_VECTOR_CONV, CH * 4, out, &err), VB_OK);
        assert_true(out[1] > 1.0f && out[1] < 1.01f && out[0] == 1.0f); /* the same order of taps in both */
        assert_int_equal(vb__checkpoint_vector(c, "layers.0.linear_attn.A_log", VB_VECTOR_NEG_EXP, 2, out, &err), VB_OK);
        assert_true(out[0] == -1.0f && out[1] < -0.2231301f && out[1] > -0.2231303f);
        assert_int_equal(vb__checkpoint_vector(c, "norm", VB_VECTOR_NORM, H - 1, out, &err), VB_E_MISMATCH);
        vb__checkpoint_close(c);
    }
}

static void halves_are_widened_and_rounding_is_logged(void **state) {
    (void)state;
    fake f;
    make_fake(&f, "model.");
    float w[HD * H], exact[HD * H];
    uint16_t half[H];
    for (int i = 0; i < HD * H; i++) exact[i] = 0.5f;
    memcpy(w, exact, sizeof w);
    w[HD * H - 1] = 1.0f + 0x1p-12f;
    for (int i = 0; i < H; i++) half[i] = (uint16_t)(i == 0 ? 0x3c00 : i == 1 ? 0x0001 : i == 2 ? 0x83ff : i == 3 ? 0x7bff : 0xb555);
    spec *s = get(&f, "model.layers.1.self_attn.k_proj.weight");
    s->dtype = "F32";
    s->data = exact;
    get(&f, "model.norm.weight")->dtype = "F16";
    get(&f, "model.norm.weight")->data = half;
    write_model(&f);
    vb__checkpoint *c = check(NULL, true);
    assert_int_equal(logs, 0); /* nothing changed */
    float out[H];
    vb_error err;
    assert_int_equal(vb__checkpoint_vector(c, "norm", VB_VECTOR_PLAIN, H, out, &err), VB_OK);
    assert_true(out[0] == 1.0f && out[1] == 0x1p-24f && out[2] == -0x1.ff8p-15f && out[3] == 65504.0f && out[4] == -0.33325195f);
    vb__checkpoint_close(c);
    s->data = w;
    write_model(&f);
    check(NULL, false);
    assert_int_equal(logs, 1);
    assert_non_null(strstr(last_log, "matrices=1 first=model.layers.1.self_attn.k_proj.weight"));
    s->dtype = "F16"; /* 0.5f as two halves: 0x0000 and 0x3f00, both exact in bf16 */
    s->data = exact;
    write_model(&f);
    check(NULL, false);
    assert_int_equal(logs, 0);
}

/* Replaces a matrix by a quantised triple. */
static void quantise_spec(fake *f, const char *module, int bits, int group) {
    char name[160];
    (void)snprintf(name, sizeof name, "%s.weight", module);
    spec *s = get(f, name);
    int64_t n = s->shape[0], k = s->shape[1];
    s->dtype = "U32";
    s->shape[1] = k * bits / 32;
    add(f, "BF16", 2, n, k / group, 0, "%s.scales", module);
    add(f, "BF16", 2, n, k / group, 0, "%s.biases", module);
}

#define Q4 ",\"quantization\":{\"bits\":4,\"group_size\":32}"

static void affine_triples_are_read(void **state) {
    (void)state;
    static const int all_bits[] = {2, 3, 4, 5, 6, 7, 8};
    fake f;
    vb__matrix m;
    vb_error err;
    for (int i = 0; i < 7; i++) {
        char q[100];
        make_fake(&f, "language_model.model.");
        quantise_spec(&f, "language_model.model.layers.1.mlp.down_proj", all_bits[i], 32);
        quantise_spec(&f, "language_model.model.embed_tokens", all_bits[i], 32);
        (void)snprintf(q, sizeof q, ",\"quantization\":{\"bits\":%d,\"group_size\":32,\"mode\":\"affine\"}", all_bits[i]);
        set_config(&f, q);
        write_model(&f);
        vb__checkpoint *c = check(NULL, true);
        assert_int_equal(vb__checkpoint_matrix(c, "layers.1.mlp.down_proj", H, I, &m, &err), VB_OK);
        assert_int_equal(m.kind, VB_MATRIX_AFFINE);
        assert_int_equal(m.bits, all_bits[i]);
        assert_int_equal(m.group, 32);
        assert_int_equal(m.scale_kind, VB_SCALE_BF16);
        assert_int_equal(vb__checkpoint_matrix(c, "layers.1.mlp.up_proj", I, H, &m, &err), VB_OK);
        assert_int_equal(m.kind, VB_MATRIX_BF16);
        vb__checkpoint_close(c);
    }
    /* an override for one module, by its path in the file */
    make_fake(&f, "language_model.model.");
    quantise_spec(&f, "language_model.model.layers.1.mlp.down_proj", 8, 32);
    quantise_spec(&f, "language_model.model.layers.0.mlp.up_proj", 4, 64);
    set_config(&f, ",\"quantization\":{\"bits\":4,\"group_size\":64,\"language_model.model.layers.1.mlp.down_proj\":"
                   "{\"bits\":8,\"group_size\":32},\"language_model.model.layers.1.mlp.up_proj\":false}");
    write_model(&f);
    vb__checkpoint *c = check(NULL, true);
    assert_int_equal(vb__checkpoint_matrix(c, "layers.1.mlp.down_proj", H, I, &m, &err), VB_OK);
    assert_int_equal(m.bits, 8);
    assert_int_equal(vb__checkpoint_matrix(c, "layers.0.mlp.up_proj", I, H, &m, &err), VB_OK);
    assert_int_equal(m.bits, 4);
    assert_int_equal(m.group, 64);
    vb__checkpoint_close(c);
}

static void defects_of_triples_are_named(void **state) {
    (void)state;
    fake f;
#define TRIPLE(config, change, says)                                                                         \
    do {                                                                                                     \
        make_fake(&f, "model.");                                                                             \
        quantise_spec(&f, "model.layers.1.mlp.down_proj", 4, 32);                                            \
        set_config(&f, config);                                                                              \
        change;                                                                                              \
        write_model(&f);                                                                                     \
        check(says, false);                                                                                  \
    } while (0)
    TRIPLE(Q4, (void)0, NULL);
    TRIPLE("", (void)0, "config.json: quantization: is missing, expected it as model.safetensors has tensor model.layers.1.mlp.down_proj.scales");
    TRIPLE(Q4, drop(&f, "model.layers.1.mlp.down_proj.biases"), "down_proj.weight: has .scales but no .biases");
    TRIPLE(Q4, drop(&f, "model.layers.1.mlp.down_proj.scales"), "down_proj.weight: has dtype U32");
    TRIPLE(Q4, get(&f, "model.layers.1.mlp.down_proj.scales")->dtype = "F16", "down_proj.biases: has dtype BF16, expected that of .scales");
    TRIPLE(Q4, get(&f, "model.layers.1.mlp.down_proj.weight")->dtype = "BF16", "down_proj.weight: has dtype BF16, expected U32");
    TRIPLE(Q4, get(&f, "model.layers.1.mlp.down_proj.weight")->shape[1]++, "down_proj.weight: has shape [64, 13], expected [64, 12]");
    TRIPLE(Q4, get(&f, "model.layers.1.mlp.down_proj.scales")->shape[1]++, "down_proj.scales: has shape [64, 4], expected [64, 3]");
    TRIPLE(",\"quantization\":{\"bits\":4,\"group_size\":64}", (void)0, "rows of 96 values, expected a multiple of the group size 64");
    TRIPLE(",\"quantization\":{\"bits\":8,\"group_size\":32}", (void)0, "down_proj.weight: has shape [64, 12], expected [64, 24]");
    TRIPLE(",\"quantization\":{\"bits\":4,\"group_size\":32,\"model.layers.1.mlp.down_proj\":false}", (void)0,
           "quantization.model.layers.1.mlp.down_proj: is false, but");
    TRIPLE(",\"quantization\":{\"bits\":4,\"group_size\":32,\"mode\":\"nvfp4\"}", (void)0, "mode: is \"nvfp4\", expected affine");
}

static void every_shard_byte_counts(void **state) {
    (void)state;
    fake f;
    make_fake(&f, "model.");
    write_model(&f);
    size_t n;
    char *p = testdir_read(testdir_file(&dir, "model.safetensors"), &n);
    testdir_write(&dir, "model.safetensors", p, n - 1);
    check("model.safetensors: tensor model.layers.1.self_attn.k_norm.weight: ends at byte", false);
    p[n] = 0;
    testdir_write(&dir, "model.safetensors", p, n + 1);
    check("model.safetensors: 1 bytes follow the last tensor", false);
    free(p);
}

/* The fingerprint is of names and values: not of the division into files, but of every byte. */
static void the_fingerprint_sees_values_not_files(void **state) {
    (void)state;
    fake f;
    char one[33], two[33], three[33];
    make_fake(&f, "model.");
    write_model(&f);
    vb__checkpoint *c = check(NULL, true);
    vb__checkpoint_fingerprint(c, one);
    vb__checkpoint_close(c);
    vb__buffer index;
    vb__buffer_init(&index, 1 << 20);
    (void)vb__buffer_puts(&index, "{\"weight_map\":{");
    for (int i = 0; i < f.n; i++)
        (void)vb__buffer_printf(&index, "%s\"%s\":\"%s.safetensors\"", i == 0 ? "" : ",", f.t[i].name, i < 9 ? "a" : "b");
    assert_int_equal(vb__buffer_puts(&index, "}}"), VB_OK);
    (void)unlink(testdir_file(&dir, "model.safetensors"));
    testdir_puts(&dir, "model.safetensors.index.json", vb__buffer_str(&index));
    vb__buffer_fini(&index);
    write_tensors(&f, "a.safetensors", 0, 9);
    write_tensors(&f, "b.safetensors", 9, f.n);
    c = check(NULL, true);
    vb__checkpoint_fingerprint(c, two);
    vb__checkpoint_close(c);
    assert_string_equal(one, two);
    static const float alog[2] = {1, 2};
    get(&f, "model.layers.0.linear_attn.A_log")->data = alog;
    write_model(&f);
    c = check(NULL, true);
    vb__checkpoint_fingerprint(c, three);
    vb__checkpoint_close(c);
    assert_string_not_equal(one, three);
}

static void memory_failures_are_errors(void **state) {
    (void)state;
    fake f;
    make_fake(&f, "model.");
    set_config(&f, ",\"mtp_num_hidden_layers\":1");
    write_model(&f);
    for (uint64_t i = 1; i < 200; i++) {
        vb__checkpoint *c = NULL;
        vb_error err = {0};
        size_t before = vb__alloc_bytes(VB_TAG_FORMAT);
        vb__alloc_fail_at(i, false);
        vb_err e = vb__checkpoint_open(dir.path, &c, &err);
        vb__alloc_fail_at(0, false);
        if (e == VB_OK) {
            vb__checkpoint_close(c);
            assert_true(i > 10);
            return;
        }
        assert_int_equal(e, VB_E_MEMORY);
        assert_int_equal(vb__alloc_bytes(VB_TAG_FORMAT), before);
    }
    fail_msg("never opened");
}

int main(void) {
    vb__log_set(on_log, NULL, VB_LOG_INFO);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_models_open_and_are_complete),
        cmocka_unit_test(gguf_files_hold_the_same_values),
        cmocka_unit_test(embedded_models_open_and_are_complete),
        cmocka_unit_test(all_layouts_of_names_are_read),
        cmocka_unit_test(defects_against_the_config_are_named),
        cmocka_unit_test(an_absent_mtp_head_is_one_log_line),
        cmocka_unit_test(norms_conv_and_decay_are_converted),
        cmocka_unit_test(halves_are_widened_and_rounding_is_logged),
        cmocka_unit_test(affine_triples_are_read),
        cmocka_unit_test(defects_of_triples_are_named),
        cmocka_unit_test(every_shard_byte_counts),
        cmocka_unit_test(the_fingerprint_sees_values_not_files),
        cmocka_unit_test(memory_failures_are_errors),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
