/* model/gguf_model: a llama and a Qwen 3.5 written here as GGUF load, split files too; each defect of keys or tensors against keys
 * is one error that names file and key or tensor. */
#include "base/buffer.h"
#include "base/log.h"
#include "checkpoint_walk.h"
#include "format/gguf.h"
#include "format/gguf_blocks.h"
#include "testdir.h"
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

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

/* ---- a writer of files with changes -------------------------------------------------------------------- */

typedef struct item { /* a key or a tensor */
    char name[112];
    uint32_t type;
    uint64_t value; /* integer, float bits; of a string: a pointer */
    int dims;
    uint64_t ne[4];
} item;

typedef struct file {
    item key[64], tensor[64];
    int n_keys, n_tensors;
} file;

static void u(vb__buffer *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) (void)vb__buffer_putc(b, (char)(uint8_t)(v >> 8 * i));
}
static void str(vb__buffer *b, const char *s) {
    u(b, strlen(s), 8);
    (void)vb__buffer_puts(b, s);
}

static item *find(item *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0) return &list[i];
    return NULL;
}
static void key(file *f, const char *name, uint32_t type, uint64_t value) {
    item *k = find(f->key, f->n_keys, name);
    if (k == NULL) k = &f->key[f->n_keys++];
    *k = (item){.type = type, .value = value};
    (void)snprintf(k->name, sizeof k->name, "%s", name);
}
static void key_string(file *f, const char *name, const char *s) { key(f, name, VB_GGUF_STRING, (uint64_t)(uintptr_t)s); }
/* An array of bools, one for each character. */
static void key_bools(file *f, const char *name, const char *ones) { key(f, name, VB_GGUF_ARRAY, (uint64_t)(uintptr_t)ones); }
static void key_float(file *f, const char *name, float v) {
    uint32_t bits;
    memcpy(&bits, &v, 4);
    key(f, name, VB_GGUF_F32, bits);
}
static void drop_key(file *f, const char *name) { *find(f->key, f->n_keys, name) = f->key[f->n_keys - 1], f->n_keys--; }
static item *tensor(file *f, uint32_t type, int dims, uint64_t a, uint64_t b, const char *fmt, ...) {
    item *t = &f->tensor[f->n_tensors++];
    va_list ap;
    *t = (item){.type = type, .dims = dims, .ne = {a, b, 1, 1}};
    va_start(ap, fmt);
    (void)vsnprintf(t->name, sizeof t->name, fmt, ap);
    va_end(ap);
    return t;
}

/* Tensors from..to-1 with all keys. */
static void write_part(const file *f, const char *name, int from, int to, int split, int splits) {
    vb__buffer b;
    vb__buffer_init(&b, 1 << 22);
    (void)vb__buffer_append(&b, "GGUF", 4);
    u(&b, 3, 4), u(&b, (uint64_t)(to - from), 8), u(&b, (uint64_t)(f->n_keys + (splits > 0 ? 3 : 0)), 8);
    for (int i = 0; i < f->n_keys; i++) {
        static const int size[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
        str(&b, f->key[i].name), u(&b, f->key[i].type, 4);
        if (f->key[i].type == VB_GGUF_STRING) str(&b, (const char *)(uintptr_t)f->key[i].value);
        else if (f->key[i].type == VB_GGUF_ARRAY) {
            const char *ones = (const char *)(uintptr_t)f->key[i].value;
            u(&b, VB_GGUF_BOOL, 4), u(&b, strlen(ones), 8);
            for (; *ones != '\0'; ones++) u(&b, *ones == '1', 1);
        }
        else u(&b, f->key[i].value, size[f->key[i].type]);
    }
    if (splits > 0) {
        str(&b, "split.no"), u(&b, VB_GGUF_U16, 4), u(&b, (uint64_t)split, 2);
        str(&b, "split.count"), u(&b, VB_GGUF_U16, 4), u(&b, (uint64_t)splits, 2);
        str(&b, "split.tensors.count"), u(&b, VB_GGUF_I32, 4), u(&b, (uint64_t)f->n_tensors, 4);
    }
    uint64_t at = 0, bytes[64];
    for (int i = from; i < to; i++) {
        const item *t = &f->tensor[i];
        const vb__gguf_type_info *info = vb__gguf_type_get(t->type);
        str(&b, t->name), u(&b, (uint64_t)t->dims, 4);
        for (int d = 0; d < t->dims; d++) u(&b, t->ne[d], 8);
        u(&b, t->type, 4), u(&b, at, 8);
        bytes[i] = t->ne[0] * t->ne[1] * t->ne[2] / (uint64_t)info->block * (uint64_t)info->bytes;
        at += (bytes[i] + 31) / 32 * 32;
    }
    while (b.len % 32 != 0) u(&b, 0, 1);
    for (int i = from; i < to; i++) {
        for (uint64_t k = 0; k < bytes[i]; k++) /* ones as f32, small numbers as blocks */
            u(&b, f->tensor[i].type == VB_GGUF_TYPE_F32 ? 0x3f800000u >> 8 * (k % 4) & 255 : k % 64, 1);
        while (b.len % 32 != 0) u(&b, 0, 1);
    }
    testdir_write(&dir, name, vb__buffer_str(&b), b.len);
    vb__buffer_fini(&b);
}

static void layer_rest(file *f, int l, const char *post) {
    tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.%d.attn_norm.weight", l);
    tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.%d.%s.weight", l, post);
    tensor(f, VB_GGUF_TYPE_Q4_0, 2, 64, 96, "blk.%d.ffn_gate.weight", l);
    tensor(f, VB_GGUF_TYPE_Q8_0, 2, 64, 96, "blk.%d.ffn_up.weight", l);
    tensor(f, VB_GGUF_TYPE_Q5_1, 2, 96, 64, "blk.%d.ffn_down.weight", l);
}
static void attention(file *f, int l, uint64_t q_rows) {
    tensor(f, VB_GGUF_TYPE_Q4_1, 2, 64, q_rows, "blk.%d.attn_q.weight", l);
    tensor(f, VB_GGUF_TYPE_F16, 2, 64, 32, "blk.%d.attn_k.weight", l);
    tensor(f, VB_GGUF_TYPE_IQ4_NL, 2, 64, 32, "blk.%d.attn_v.weight", l);
    tensor(f, VB_GGUF_TYPE_MXFP4, 2, 64, 64, "blk.%d.attn_output.weight", l);
}

static void common_keys(file *f, const char *arch) {
    char k[100];
    memset(f, 0, sizeof *f);
    key_string(f, "general.architecture", arch);
#define KEY(name) (snprintf(k, sizeof k, "%s.%s", arch, name), k)
    key(f, KEY("block_count"), VB_GGUF_U32, 2);
    key(f, KEY("embedding_length"), VB_GGUF_U32, 64);
    key(f, KEY("feed_forward_length"), VB_GGUF_U32, 96);
    key(f, KEY("context_length"), VB_GGUF_U32, 128);
    key(f, KEY("attention.head_count"), VB_GGUF_U32, 2);
    key(f, KEY("attention.head_count_kv"), VB_GGUF_U32, 1);
    key_float(f, KEY("attention.layer_norm_rms_epsilon"), 1e-6f);
    tensor(f, VB_GGUF_TYPE_Q5_0, 2, 64, 40, "token_embd.weight");
    tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "output_norm.weight");
}

static void llama(file *f) {
    common_keys(f, "llama");
    key(f, "tokenizer.ggml.eos_token_id", VB_GGUF_U32, 7);
    key(f, "tokenizer.ggml.eot_token_id", VB_GGUF_U32, 9);
    for (int l = 0; l < 2; l++) layer_rest(f, l, "ffn_norm"), attention(f, l, 64);
}

static void bias(file *f, int l, const char *name, uint64_t n) { tensor(f, VB_GGUF_TYPE_F32, 1, n, 1, "blk.%d.%s.bias", l, name); }
static void qwen2(file *f) {
    common_keys(f, "qwen2");
    for (int l = 0; l < 2; l++) {
        layer_rest(f, l, "ffn_norm"), attention(f, l, 64);
        bias(f, l, "attn_q", 64), bias(f, l, "attn_k", 32), bias(f, l, "attn_v", 32);
    }
}
static void drop_tensor(file *f, const char *name) { *find(f->tensor, f->n_tensors, name) = f->tensor[f->n_tensors - 1], f->n_tensors--; }

static void stack(file *f, int l, const char *name, uint64_t in, uint64_t out) {
    item *t = tensor(f, VB_GGUF_TYPE_Q8_0, 3, in, out, "blk.%d.%s.weight", l, name);
    t->ne[2] = 4;
}
/* Attention in every layer, four experts. */
static void qwen35moe(file *f) {
    common_keys(f, "qwen35moe");
    static const struct {
        const char *name;
        int value;
    } keys[] = {{"attention.key_length", 32},   {"rope.dimension_count", 8},       {"full_attention_interval", 1},
                {"ssm.conv_kernel", 4},         {"ssm.state_size", 32},            {"ssm.group_count", 1},
                {"ssm.time_step_rank", 2},      {"ssm.inner_size", 64},            {"expert_count", 4},
                {"expert_used_count", 2},       {"expert_feed_forward_length", 96}, {"expert_shared_feed_forward_length", 32}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char name[100];
        (void)snprintf(name, sizeof name, "qwen35moe.%s", keys[i].name);
        key(f, name, VB_GGUF_U32, (uint64_t)keys[i].value);
    }
    key_float(f, "qwen35moe.rope.freq_base", 1e7f);
    for (int l = 0; l < 2; l++) {
        tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.%d.attn_norm.weight", l);
        tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.%d.post_attention_norm.weight", l);
        attention(f, l, 128);
        tensor(f, VB_GGUF_TYPE_F32, 1, 32, 1, "blk.%d.attn_q_norm.weight", l);
        tensor(f, VB_GGUF_TYPE_F32, 1, 32, 1, "blk.%d.attn_k_norm.weight", l);
        tensor(f, VB_GGUF_TYPE_F32, 2, 64, 4, "blk.%d.ffn_gate_inp.weight", l);
        tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.%d.ffn_gate_inp_shexp.weight", l);
        stack(f, l, "ffn_gate_exps", 64, 96), stack(f, l, "ffn_up_exps", 64, 96), stack(f, l, "ffn_down_exps", 96, 64);
        tensor(f, VB_GGUF_TYPE_Q8_0, 2, 64, 32, "blk.%d.ffn_gate_shexp.weight", l);
        tensor(f, VB_GGUF_TYPE_Q8_0, 2, 64, 32, "blk.%d.ffn_up_shexp.weight", l);
        tensor(f, VB_GGUF_TYPE_Q8_0, 2, 32, 64, "blk.%d.ffn_down_shexp.weight", l);
    }
}

static void qwen35(file *f) {
    common_keys(f, "qwen35");
    key(f, "qwen35.block_count", VB_GGUF_U32, 3);
    key(f, "qwen35.nextn_predict_layers", VB_GGUF_U32, 1);
    key(f, "qwen35.attention.key_length", VB_GGUF_U32, 32);
    key(f, "qwen35.rope.dimension_count", VB_GGUF_U32, 8);
    key_float(f, "qwen35.rope.freq_base", 1e7f);
    key(f, "qwen35.full_attention_interval", VB_GGUF_U32, 2);
    key(f, "qwen35.ssm.conv_kernel", VB_GGUF_U32, 4);
    key(f, "qwen35.ssm.state_size", VB_GGUF_U32, 32);
    key(f, "qwen35.ssm.group_count", VB_GGUF_U32, 1);
    key(f, "qwen35.ssm.time_step_rank", VB_GGUF_U32, 2);
    key(f, "qwen35.ssm.inner_size", VB_GGUF_U32, 64);
    for (int l = 0; l < 3; l++) {
        layer_rest(f, l, "post_attention_norm");
        if (l == 0) {
            tensor(f, VB_GGUF_TYPE_Q8_0, 2, 64, 128, "blk.0.attn_qkv.weight");
            tensor(f, VB_GGUF_TYPE_Q8_0, 2, 64, 64, "blk.0.attn_gate.weight");
            tensor(f, VB_GGUF_TYPE_F32, 2, 64, 2, "blk.0.ssm_beta.weight");
            tensor(f, VB_GGUF_TYPE_F32, 2, 64, 2, "blk.0.ssm_alpha.weight");
            tensor(f, VB_GGUF_TYPE_F32, 2, 4, 128, "blk.0.ssm_conv1d.weight");
            tensor(f, VB_GGUF_TYPE_F32, 1, 2, 1, "blk.0.ssm_a");
            tensor(f, VB_GGUF_TYPE_F32, 1, 2, 1, "blk.0.ssm_dt.bias");
            tensor(f, VB_GGUF_TYPE_F32, 1, 32, 1, "blk.0.ssm_norm.weight");
            tensor(f, VB_GGUF_TYPE_Q8_0, 2, 64, 64, "blk.0.ssm_out.weight");
            continue;
        }
        attention(f, l, 128);
        tensor(f, VB_GGUF_TYPE_F32, 1, 32, 1, "blk.%d.attn_q_norm.weight", l);
        tensor(f, VB_GGUF_TYPE_F32, 1, 32, 1, "blk.%d.attn_k_norm.weight", l);
    }
    tensor(f, VB_GGUF_TYPE_BF16, 2, 128, 64, "blk.2.nextn.eh_proj.weight");
    tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.2.nextn.enorm.weight");
    tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.2.nextn.hnorm.weight");
    tensor(f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.2.nextn.shared_head_norm.weight");
}

static vb__checkpoint *check(const char *name, const char *says) {
    vb_error err = {0};
    walk w = {.err = &err};
    vb_err e = vb__checkpoint_open(testdir_file(&dir, name), &w.c, &err);
    if (e == VB_OK) e = walk_all(&w);
    if (says == NULL && e != VB_OK) fail_msg("%s", err.text);
    if (says == NULL) return w.c;
    if (e == VB_OK) fail_msg("taken, expected \"%s\"", says);
    if (strstr(err.text, says) == NULL || strstr(err.text, "x") == NULL) fail_msg("\"%s\" lacks \"%s\"", err.text, says);
    vb__checkpoint_close(w.c);
    return NULL;
}

static void good_files_load(void **state) {
    (void)state;
    static file f;
    llama(&f);
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    vb__checkpoint *c = check("x.gguf", NULL);
    const vb__model_config *m = vb__checkpoint_config(c);
    assert_true(m->arch == VB_ARCH_LLAMA && m->head_dim == 32 && m->vocab == 40 && m->tied && m->n_eos == 2 && m->eos[1] == 9);
    assert_true(m->rope.theta == 1e4 && m->rope.type == VB_ROPE_DEFAULT && m->rope.rotated == 32);
    vb__matrix w;
    vb_error err;
    assert_int_equal(vb__checkpoint_matrix(c, "layers.0.mlp.up_proj", 96, 64, &w, &err), VB_OK);
    assert_true(w.kind == VB_MATRIX_BLOCKS && w.bits == 8 && w.offset == 128 && w.group == 32 && !w.has_bias && w.row_bytes == 68);
    vb__checkpoint_close(c);

    write_part(&f, "x-00001-of-00003.gguf", 0, 9, 0, 3);
    write_part(&f, "x-00002-of-00003.gguf", 9, 10, 1, 3);
    write_part(&f, "x-00003-of-00003.gguf", 10, f.n_tensors, 2, 3);
    vb__checkpoint_close(check("x-00001-of-00003.gguf", NULL));
    write_part(&f, "x-00002-of-00003.gguf", 9, 10, 2, 3);
    check("x-00001-of-00003.gguf", "x-00002-of-00003.gguf: key split.no: is 2, expected an integer 1..1");
    write_part(&f, "x-00002-of-00003.gguf", 9, 9, 1, 3);
    check("x-00001-of-00003.gguf", "key split.tensors.count: differs by 1");
    (void)unlink(testdir_file(&dir, "x-00002-of-00003.gguf"));
    check("x-00001-of-00003.gguf", "x-00002-of-00003.gguf: cannot be opened");
    check("x-00003-of-00003.gguf", "x-00003-of-00003.gguf: is part 3 of 3, expected the first, which ends in -00001-of-00003.gguf");
    write_part(&f, "xy.gguf", 0, 9, 0, 3);
    check("xy.gguf", "key split.count: is 3, expected a name that ends in -00001-of-00003.gguf");

    qwen2(&f);
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    vb__checkpoint_close(check("x.gguf", NULL));
    qwen35moe(&f);
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    vb__checkpoint_close(check("x.gguf", NULL));

    qwen35(&f);
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    c = check("x.gguf", NULL);
    m = vb__checkpoint_config(c);
    assert_true(m->arch == VB_ARCH_QWEN3_5 && m->layers == 2 && m->mtp_layers == 1 && m->lin_modulo_heads && m->lin_dv == 32);
    assert_true(m->layer_type[0] == VB_LAYER_LINEAR && m->layer_type[1] == VB_LAYER_FULL && m->rope.rotated == 8);
    assert_null(vb__checkpoint_missing_mtp(c));
    float v[64];
    assert_int_equal(vb__checkpoint_vector(c, "norm", VB_VECTOR_NORM, 64, v, &err), VB_OK);
    assert_true(v[0] == 1.0f); /* stored as 1 + w */
    assert_int_equal(vb__checkpoint_vector(c, "layers.0.linear_attn.A_log", VB_VECTOR_NEG_EXP, 2, v, &err), VB_OK);
    assert_true(v[0] == 1.0f); /* stored as -exp */
    vb__checkpoint_close(c);
    f.n_tensors--; /* the MTP head's last norm */
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    c = check("x.gguf", NULL);
    assert_string_equal(vb__checkpoint_missing_mtp(c), "blk.2.nextn.shared_head_norm.weight");
    vb__checkpoint_close(c);
}

static void defects_are_named(void **state) {
    (void)state;
    static file f;
#define WITH(make, change, says)                                                                             \
    do {                                                                                                     \
        make(&f);                                                                                            \
        change;                                                                                              \
        write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);                                                      \
        vb__checkpoint_close(check("x.gguf", says));                                                         \
    } while (0)
    WITH(llama, key_string(&f, "general.architecture", "bert"), "key general.architecture: is \"bert\", expected llama");
    WITH(llama, drop_key(&f, "general.architecture"), "key general.architecture: is missing");
    WITH(llama, key(&f, "general.architecture", VB_GGUF_U32, 1), "key general.architecture: is u32, expected a string");
    static const char *const required[] = {"block_count", "embedding_length", "feed_forward_length", "context_length",
                                           "attention.head_count", "attention.layer_norm_rms_epsilon"};
    for (int i = 0; i < 6; i++) {
        char k[100], says[160];
        (void)snprintf(k, sizeof k, "llama.%s", required[i]);
        (void)snprintf(says, sizeof says, "x.gguf: key %s: is missing, expected", k);
        WITH(llama, drop_key(&f, k), says);
        (void)snprintf(says, sizeof says, "x.gguf: key %s: is string, expected", k);
        WITH(llama, key_string(&f, k, "1"), says);
        (void)snprintf(says, sizeof says, "x.gguf: key %s: is ", k);
        WITH(llama, key(&f, k, VB_GGUF_I32, 0xffffffff), says);
    }
    WITH(llama, key(&f, "llama.block_count", VB_GGUF_U32, 3), "tensor blk.2.attn_norm.weight: is missing, expected 64 values");
    WITH(llama, key(&f, "llama.block_count", VB_GGUF_U32, 1), "tensor blk.1.attn_norm.weight: (F32 [64]) has no place in a llama");
    WITH(llama, key(&f, "llama.block_count", VB_GGUF_U64, 1ull << 40), "key llama.block_count: is 1099511627776");
    WITH(llama, key(&f, "llama.attention.head_count_kv", VB_GGUF_U32, 3), "head_count_kv: is 3, expected a divisor");
    WITH(llama, key(&f, "llama.attention.head_count", VB_GGUF_U32, 3), "key llama.attention.key_length: is missing, expected it as 64");
    WITH(llama, key(&f, "llama.attention.key_length", VB_GGUF_U32, 16), "tensor blk.0.attn_q.weight: has shape [64, 64], expected [32, 64]");
    WITH(llama, key(&f, "llama.attention.value_length", VB_GGUF_U32, 16), "key llama.attention.value_length: is 16");
    WITH(llama, key(&f, "llama.rope.dimension_count", VB_GGUF_U32, 16), "rope.dimension_count: is 16");
    WITH(llama, key(&f, "llama.vocab_size", VB_GGUF_U32, 41), "key llama.vocab_size: is 41, but tensor token_embd.weight has 40 rows");
    WITH(llama, key(&f, "llama.expert_count", VB_GGUF_U32, 8), "key llama.expert_count: is set");
    WITH(llama, key(&f, "tokenizer.ggml.eos_token_id", VB_GGUF_U32, 40), "key tokenizer.ggml.eos_token_id: is 40");
    WITH(llama, key_string(&f, "llama.rope.scaling.type", "longrope"), "rope.scaling.type: is \"longrope\"");
    WITH(llama, key_string(&f, "llama.rope.scaling.type", "linear"), "key llama.rope.scaling.factor: is missing");
    WITH(llama, tensor(&f, VB_GGUF_TYPE_F32, 1, 15, 1, "rope_freqs.weight"), "tensor rope_freqs.weight: has 15 values");
    WITH(llama, tensor(&f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.0.extra.weight"), "tensor blk.0.extra.weight: (F32 [64]) has no place");
    WITH(llama, tensor(&f, VB_GGUF_TYPE_F32, 1, 64, 1, "blk.99999999999.attn_norm.weight"), "has no place");
    WITH(llama, find(f.tensor, f.n_tensors, "output_norm.weight")->type = VB_GGUF_TYPE_Q4_0, "output_norm.weight: is in a block format");
    WITH(llama, (find(f.tensor, f.n_tensors, "token_embd.weight")->dims = 1, find(f.tensor, f.n_tensors, "token_embd.weight")->ne[1] = 1),
         "tensor token_embd.weight: is missing or has no");
    WITH(llama, find(f.tensor, f.n_tensors, "blk.1.ffn_up.weight")->ne[1] = 95, "blk.1.ffn_up.weight: has shape [95, 64], expected [96, 64]");
    WITH(qwen35, drop_key(&f, "qwen35.ssm.state_size"), "key qwen35.ssm.state_size: is missing");
    WITH(qwen35, drop_key(&f, "qwen35.full_attention_interval"), "key qwen35.full_attention_interval: is missing");
    WITH(qwen35, key(&f, "qwen35.ssm.inner_size", VB_GGUF_U32, 63), "key qwen35.ssm.inner_size: is 63 with 2 value");
    WITH(qwen35, key(&f, "qwen35.nextn_predict_layers", VB_GGUF_U32, 3), "key qwen35.nextn_predict_layers: is 3, expected an integer 0..2");
    WITH(qwen35, find(f.tensor, f.n_tensors, "blk.0.ssm_conv1d.weight")->ne[0] = 5,
         "blk.0.ssm_conv1d.weight: has shape [128, 5], expected [128, 4] by the file's keys");
    /* what kernels have no room for */
    WITH(qwen35, key(&f, "qwen35.ssm.conv_kernel", VB_GGUF_U32, 9), "key qwen35.ssm.conv_kernel: is 9, expected an integer 2..8");
    WITH(qwen35, key(&f, "qwen35.ssm.state_size", VB_GGUF_U32, 513), "key qwen35.ssm.state_size: is 513, expected an integer 1..512");
    WITH(qwen35, key(&f, "qwen35.ssm.inner_size", VB_GGUF_U32, 1026), "key qwen35.ssm.inner_size: is 1026 for 2 heads, expected at most 512");
    WITH(llama, key(&f, "llama.attention.key_length", VB_GGUF_U32, 258), "key llama.attention.key_length: is 258, expected an integer 2..256");
    WITH(qwen35, key(&f, "qwen35.attention.key_length", VB_GGUF_U32, 33), "key qwen35.attention.key_length: is 33, expected an even number");
    WITH(llama, (key(&f, "llama.embedding_length", VB_GGUF_U32, 1024)), "key llama.attention.key_length: is 512, expected an even number 2..256");
    /* what would be another model without a word */
    WITH(qwen35, drop_key(&f, "qwen35.rope.freq_base"), "key qwen35.rope.freq_base: is missing");
    WITH(qwen35, drop_key(&f, "qwen35.rope.dimension_count"), "key qwen35.rope.dimension_count: is missing");
    WITH(llama, key(&f, "llama.attention.sliding_window", VB_GGUF_U32, 127), "key llama.attention.sliding_window: is 127, expected none");
    WITH(llama, key(&f, "llama.attention.causal", VB_GGUF_BOOL, 0), "key llama.attention.causal: is false");
    WITH(qwen2, drop_tensor(&f, "blk.0.attn_q.bias"), "tensor blk.0.attn_q.bias: is missing, expected 64 values");
    WITH(qwen2, drop_tensor(&f, "blk.1.attn_v.bias"), "tensor blk.1.attn_v.bias: is missing, expected 32 values");
    WITH(llama, bias(&f, 1, "attn_k", 32), "tensor blk.0.attn_q.bias: is missing, expected 64 values");
    WITH(llama, bias(&f, 1, "attn_output", 64), "tensor blk.0.attn_output.bias: is missing, expected 64 values");
    WITH(llama, bias(&f, 1, "ffn_up", 96), "tensor blk.0.ffn_gate.bias: is missing, expected 96 values");
    WITH(qwen35moe, drop_tensor(&f, "blk.1.ffn_up_exps.weight"), "tensor blk.1.ffn_up_exps.weight: is missing");
    WITH(qwen35moe, find(f.tensor, f.n_tensors, "blk.1.ffn_down_exps.weight")->ne[2] = 5,
         "tensor blk.1.ffn_down_exps.weight: has shape [5, 64, 96], expected [4, 64, 96] by the file's keys");
    WITH(llama, (key_string(&f, "llama.rope.scaling.type", "yarn"), key_float(&f, "llama.rope.scaling.yarn_attn_factor", 0.5f)),
         "key llama.rope.scaling.yarn_attn_factor: is 0.5, expected 1 or no such key");
    /* ... and what would not */
    WITH(llama, key(&f, "llama.attention.sliding_window", VB_GGUF_U32, 128), NULL);
    WITH(llama, key(&f, "llama.expert_count", VB_GGUF_U32, 0), NULL);
}

static void rope_keys_are_read(void **state) {
    (void)state;
    static file f;
    vb__checkpoint *c;
#define ROPE(change, test)                                                                                   \
    do {                                                                                                     \
        llama(&f);                                                                                           \
        change;                                                                                              \
        write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);                                                      \
        c = check("x.gguf", NULL);                                                                           \
        const vb__rope_config *r = &vb__checkpoint_config(c)->rope;                                          \
        assert_true(test);                                                                                   \
        vb__checkpoint_close(c);                                                                             \
    } while (0)
    ROPE(key_float(&f, "llama.rope.freq_base", 5e5f), r->theta == 5e5);
    ROPE((key_string(&f, "llama.rope.scaling.type", "linear"), key_float(&f, "llama.rope.scaling.factor", 2.5f)),
         r->type == VB_ROPE_LINEAR && r->factor == 2.5);
    ROPE(key_float(&f, "llama.rope.scale_linear", 4.0f), r->type == VB_ROPE_LINEAR && r->factor == 4);
    ROPE((key_string(&f, "llama.rope.scaling.type", "yarn"), key_float(&f, "llama.rope.scaling.factor", 4.0f),
          key(&f, "llama.rope.scaling.original_context_length", VB_GGUF_U32, 32)),
         r->type == VB_ROPE_YARN && r->factor == 4 && r->original_max == 32 && r->attention_factor < 0);
    ROPE((key_string(&f, "llama.rope.scaling.type", "yarn"), key_float(&f, "llama.rope.scaling.factor", 1.0f),
          key_float(&f, "llama.rope.scaling.attn_factor", 0.5f)),
         r->attention_factor == 0.5);
    ROPE(key_float(&f, "llama.rope.scaling.factor", 4.0f), r->type == VB_ROPE_LINEAR && r->factor == 4);
    ROPE((key_string(&f, "llama.rope.scaling.type", "none"), key_float(&f, "llama.rope.scaling.factor", 4.0f)), r->type == VB_ROPE_DEFAULT);
    ROPE(tensor(&f, VB_GGUF_TYPE_F32, 1, 16, 1, "rope_freqs.weight"), r->type == VB_ROPE_DIVISORS && r->divisors[15] == 1.0f);
}

/* Rows of q, k and v in one tensor, as a converter joins them on request: the same bytes and names as apart. */
static void joined_tensors_are_divided(void **state) {
    (void)state;
    static file f;
    qwen2(&f);
    for (int l = 0; l < 2; l++) {
        char name[64];
        static const char *const apart[] = {"attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_q.bias", "attn_k.bias", "attn_v.bias"};
        for (int i = 0; i < 6; i++) {
            (void)snprintf(name, sizeof name, "blk.%d.%s", l, apart[i]);
            drop_tensor(&f, name);
        }
        tensor(&f, VB_GGUF_TYPE_Q8_0, 2, 64, 128, "blk.%d.attn_qkv.weight", l);
        bias(&f, l, "attn_qkv", 128);
    }
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    vb__checkpoint *c = check("x.gguf", NULL);
    vb_error err;
    vb__matrix q, k, v;
    assert_true(vb__checkpoint_config(c)->attention_bias);
    assert_int_equal(vb__checkpoint_matrix(c, "layers.1.self_attn.q_proj", 64, 64, &q, &err), VB_OK);
    assert_int_equal(vb__checkpoint_matrix(c, "layers.1.self_attn.k_proj", 32, 64, &k, &err), VB_OK);
    assert_int_equal(vb__checkpoint_matrix(c, "layers.1.self_attn.v_proj", 32, 64, &v, &err), VB_OK);
    assert_ptr_equal(k.data, (const uint8_t *)q.data + 64 * 68);
    assert_ptr_equal(v.data, (const uint8_t *)q.data + 96 * 68);
    assert_string_equal(k.name, "blk.1.attn_qkv.weight (k)");
    vb__checkpoint_close(c);
    find(f.tensor, f.n_tensors, "blk.1.attn_qkv.weight")->ne[1] = 127;
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    check("x.gguf", "tensor blk.1.attn_q.weight: is missing, expected shape [64, 64]");
    qwen2(&f);
    f.n_tensors--; /* blk.1.attn_v.bias; the rest are apart */
    bias(&f, 1, "attn_qkv", 128);
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    check("x.gguf", "blk.1.attn_qkv.bias (k): is the same as blk.1.attn_k.bias in x.gguf");

    qwen35moe(&f);
    for (int l = 0; l < 2; l++) {
        char name[64];
        static const char *const apart[] = {"attn_q", "attn_k", "attn_v", "ffn_gate_exps", "ffn_up_exps"};
        for (int i = 0; i < 5; i++) {
            (void)snprintf(name, sizeof name, "blk.%d.%s.weight", l, apart[i]);
            drop_tensor(&f, name);
        }
        tensor(&f, VB_GGUF_TYPE_BF16, 2, 64, 192, "blk.%d.attn_qkv.weight", l); /* q with its gate */
        stack(&f, l, "ffn_gate_up_exps", 64, 192);
    }
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    c = check("x.gguf", NULL);
    assert_int_equal(vb__checkpoint_matrix(c, "layers.1.mlp.experts.2.gate_proj", 96, 64, &q, &err), VB_OK);
    assert_int_equal(vb__checkpoint_matrix(c, "layers.1.mlp.experts.2.up_proj", 96, 64, &k, &err), VB_OK);
    assert_ptr_equal(k.data, (const uint8_t *)q.data + 96 * 68);
    vb__checkpoint_close(c);
}

static void recurrent_layers_are_said_or_follow(void **state) {
    (void)state;
    static file f;
    qwen35(&f);
    key_bools(&f, "qwen35.attention.recurrent_layers", "100"); /* the MTP block counts */
    key(&f, "qwen35.full_attention_interval", VB_GGUF_U32, 1); /* would be two layers of attention */
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    vb__checkpoint *c = check("x.gguf", NULL);
    const vb__model_config *m = vb__checkpoint_config(c);
    assert_true(m->layer_type[0] == VB_LAYER_LINEAR && m->layer_type[1] == VB_LAYER_FULL);
    vb__checkpoint_close(c);
    key_bools(&f, "qwen35.attention.recurrent_layers", "10");
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    check("x.gguf", "key qwen35.attention.recurrent_layers: has 2 values, expected one for each of 3 blocks");
    key(&f, "qwen35.attention.recurrent_layers", VB_GGUF_U32, 1);
    write_part(&f, "x.gguf", 0, f.n_tensors, 0, 0);
    check("x.gguf", "key qwen35.attention.recurrent_layers: is u32, expected an array of bool");
}

int main(void) {
    vb__log_set(NULL, NULL, VB_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_files_load),
        cmocka_unit_test(defects_are_named),
        cmocka_unit_test(rope_keys_are_read),
        cmocka_unit_test(joined_tensors_are_divided),
        cmocka_unit_test(recurrent_layers_are_said_or_follow),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
