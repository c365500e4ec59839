/* GGUF as a checkpoint: keys to a config, tensor names to canonical ones, the parts of a split file to one set. Value heads
 * of Qwen 3.5 stay in the file's order (lin_modulo_heads); rows of q and k that the llama architecture interleaves are put
 * back by checkpoint.c. */
#include "base/file.h"
#include "base/log.h"
#include "base/vmath.h"
#include "format/gguf_blocks.h"
#include "model/checkpoint_impl.h"
#include <stdio.h>
#include <stdlib.h>

enum { QWEN3_5 = 1, DENSE = 2, BOTH = 3 };

/* Canonical and GGUF names, without "layers.N." and "blk.N.". */
typedef struct pair {
    const char *canon, *gguf;
    int arch;
} pair;

static const pair globals[] = {
    {"embed_tokens.weight", "token_embd.weight", BOTH},
    {"lm_head.weight", "output.weight", BOTH},
    {"norm.weight", "output_norm.weight", BOTH},
};
static const pair mtp_globals[] = {
    {"mtp.fc.weight", "nextn.eh_proj.weight", QWEN3_5},
    {"mtp.pre_fc_norm_embedding.weight", "nextn.enorm.weight", QWEN3_5},
    {"mtp.pre_fc_norm_hidden.weight", "nextn.hnorm.weight", QWEN3_5},
    {"mtp.norm.weight", "nextn.shared_head_norm.weight", QWEN3_5},
};
static const pair in_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", BOTH},
    {"post_attention_layernorm.weight", "ffn_norm.weight", DENSE},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", QWEN3_5},
    {"self_attn.q_proj.weight", "attn_q.weight", BOTH},
    {"self_attn.k_proj.weight", "attn_k.weight", BOTH},
    {"self_attn.v_proj.weight", "attn_v.weight", BOTH},
    {"self_attn.o_proj.weight", "attn_output.weight", BOTH},
    {"self_attn.q_proj.bias", "attn_q.bias", BOTH},
    {"self_attn.k_proj.bias", "attn_k.bias", BOTH},
    {"self_attn.v_proj.bias", "attn_v.bias", BOTH},
    {"self_attn.o_proj.bias", "attn_output.bias", BOTH},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", BOTH},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", BOTH},
    {"mlp.gate_proj.weight", "ffn_gate.weight", BOTH},
    {"mlp.up_proj.weight", "ffn_up.weight", BOTH},
    {"mlp.down_proj.weight", "ffn_down.weight", BOTH},
    {"mlp.gate_proj.bias", "ffn_gate.bias", DENSE},
    {"mlp.up_proj.bias", "ffn_up.bias", DENSE},
    {"mlp.down_proj.bias", "ffn_down.bias", DENSE},
    {"linear_attn.in_proj_qkv.weight", "attn_qkv.weight", QWEN3_5},
    {"linear_attn.in_proj_z.weight", "attn_gate.weight", QWEN3_5},
    {"linear_attn.in_proj_b.weight", "ssm_beta.weight", QWEN3_5},
    {"linear_attn.in_proj_a.weight", "ssm_alpha.weight", QWEN3_5},
    {"linear_attn.conv1d.weight", "ssm_conv1d.weight", QWEN3_5},
    {"linear_attn.A_log", "ssm_a", QWEN3_5},
    {"linear_attn.dt_bias", "ssm_dt.bias", QWEN3_5},
    {"linear_attn.norm.weight", "ssm_norm.weight", QWEN3_5},
    {"linear_attn.out_proj.weight", "ssm_out.weight", QWEN3_5},
    {"mlp.gate.weight", "ffn_gate_inp.weight", QWEN3_5},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight", QWEN3_5},
    {"mlp.switch_mlp.gate_proj.weight", "ffn_gate_exps.weight", QWEN3_5},
    {"mlp.switch_mlp.up_proj.weight", "ffn_up_exps.weight", QWEN3_5},
    {"mlp.switch_mlp.down_proj.weight", "ffn_down_exps.weight", QWEN3_5},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight", QWEN3_5}, /* gate above up, when a converter joins them */
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight", QWEN3_5},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight", QWEN3_5},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight", QWEN3_5},
};
#define COUNT(a) (sizeof(a) / sizeof *(a))

static int family(const vb__checkpoint *c) {
    return c->config.arch == VB_ARCH_QWEN3_5 || c->config.arch == VB_ARCH_QWEN3_5_MOE ? QWEN3_5 : DENSE;
}

static const char *lookup(const pair *t, size_t n, int arch, const char *name, bool from_gguf) {
    for (size_t i = 0; i < n; i++)
        if ((t[i].arch & arch) != 0 && strcmp(from_gguf ? t[i].gguf : t[i].canon, name) == 0)
            return from_gguf ? t[i].canon : t[i].gguf;
    return NULL;
}

/* "blk.12.attn_q.weight": the layer's number, the rest behind it. */
static bool numbered(const char *name, const char *prefix, int32_t *layer, const char **rest) {
    size_t n = strlen(prefix);
    if (strncmp(name, prefix, n) != 0 || name[n] < '0' || name[n] > '9') return false;
    char *end;
    long v = strtol(name + n, &end, 10);
    if (*end != '.' || v > VB_LIMIT_LAYERS) return false;
    *layer = (int32_t)v;
    *rest = end + 1;
    return true;
}

/* NULL: no tensor of the text model. */
static const char *canonical(vb__checkpoint *c, const char *name, bool *memory) {
    const vb__model_config *m = &c->config;
    char full[VB_CK_NAME_MAX];
    int32_t layer;
    const char *rest, *found;
    if (!numbered(name, "blk.", &layer, &rest)) return lookup(globals, COUNT(globals), family(c), name, true);
    if (layer >= m->layers + m->mtp_layers) return NULL;
    if (layer == m->layers) {
        found = lookup(mtp_globals, COUNT(mtp_globals), family(c), rest, true);
        if (found != NULL) return found;
    }
    found = lookup(in_layer, COUNT(in_layer), family(c), rest, true);
    if (found == NULL) return NULL;
    bool mtp = layer >= m->layers;
    int n = snprintf(full, sizeof full, "%slayers.%d.%s", mtp ? "mtp." : "", mtp ? layer - m->layers : layer, found);
    const char *copy = vb__arena_strndup(&c->names, full, (size_t)n);
    *memory = copy != NULL;
    return copy;
}

const char *vb__gguf_model_spelled(const vb__checkpoint *c, const char *canon, char buf[VB_CK_NAME_MAX]) {
    int32_t layer;
    const char *rest, *found;
    bool mtp = vb__starts(canon, "mtp.");
    found = lookup(globals, COUNT(globals), family(c), canon, false);
    if (found != NULL) (void)snprintf(buf, VB_CK_NAME_MAX, "%s", found);
    if (found != NULL) return buf;
    found = lookup(mtp_globals, COUNT(mtp_globals), family(c), canon, false);
    if (found != NULL) (void)snprintf(buf, VB_CK_NAME_MAX, "blk.%d.%s", c->config.layers, found);
    if (found != NULL) return buf;
    if (numbered(canon, mtp ? "mtp.layers." : "layers.", &layer, &rest)) {
        char stack[64];
        int32_t expert;
        const char *projection;
        if (numbered(rest, "mlp.experts.", &expert, &projection)) { /* all experts of a layer are one tensor */
            (void)snprintf(stack, sizeof stack, "mlp.switch_mlp.%.30s", projection);
            rest = stack;
        }
        found = lookup(in_layer, COUNT(in_layer), family(c), rest, false);
        if (found != NULL)
            (void)snprintf(buf, VB_CK_NAME_MAX, "blk.%d.%s", mtp ? layer + c->config.layers : layer, found);
    }
    if (found == NULL) (void)snprintf(buf, VB_CK_NAME_MAX, "%s", canon); /* has no GGUF spelling */
    return buf;
}

/* ---- keys ----------------------------------------------------------------------------------------------- */

typedef struct keys {
    const vb__gguf *g;
    const char *arch; /* prefix of the architecture's keys */
    vb_error *err;
    char name[160];
} keys;

static const char *key(keys *k, const char *what) {
    (void)snprintf(k->name, sizeof k->name, "%.60s.%.90s", k->arch, what);
    return k->name;
}
static bool has(keys *k, const char *what) { return vb__gguf_find(k->g, key(k, what)) != NULL; }
static vb_err get_i32(keys *k, const char *what, int32_t lo, int32_t hi, int32_t *out) {
    return vb__gguf_i32(k->g, key(k, what), lo, hi, out, k->err);
}
static vb_err get_i32_or(keys *k, const char *what, int32_t lo, int32_t hi, int32_t fallback, int32_t *out) {
    *out = fallback;
    return has(k, what) ? get_i32(k, what, lo, hi, out) : VB_OK;
}
static vb_err get_number_or(keys *k, const char *what, double lo, double hi, double fallback, double *out) {
    *out = fallback;
    return has(k, what) ? vb__gguf_number(k->g, key(k, what), lo, hi, out, k->err) : VB_OK;
}

static const vb__gguf_tensor *tensor_of(const vb__checkpoint *c, const char *name) {
    for (int32_t p = 0; p < c->n_ggufs; p++)
        for (int32_t i = 0; i < c->ggufs[p].n_tensors; i++)
            if (strcmp(c->ggufs[p].tensors[i].name, name) == 0) return &c->ggufs[p].tensors[i];
    return NULL;
}

/* Whether any layer has a tensor of this name: then all need it, and binding says which one lacks it. */
static bool any_layer_has(const vb__checkpoint *c, const char *rest) {
    int32_t layer;
    const char *at;
    for (int32_t p = 0; p < c->n_ggufs; p++)
        for (int32_t i = 0; i < c->ggufs[p].n_tensors; i++)
            if (numbered(c->ggufs[p].tensors[i].name, "blk.", &layer, &at) && strcmp(at, rest) == 0) return true;
    return false;
}

static vb_err find_arch(keys *k, vb__arch *out, char arch[64]) {
    static const struct {
        const char *name;
        vb__arch arch;
    } known[] = {{"llama", VB_ARCH_LLAMA},   {"qwen2", VB_ARCH_QWEN2},     {"qwen3", VB_ARCH_QWEN3},
                 {"qwen35", VB_ARCH_QWEN3_5}, {"qwen35moe", VB_ARCH_QWEN3_5_MOE}};
    const char *s;
    size_t n;
    VB_TRY(vb__gguf_bytes(k->g, "general.architecture", &s, &n, k->err));
    for (size_t i = 0; i < COUNT(known); i++)
        if (strlen(known[i].name) == n && memcmp(known[i].name, s, n) == 0) {
            *out = known[i].arch;
            (void)snprintf(arch, 64, "%s", known[i].name);
            return VB_OK;
        }
    return vb__fail(k->err, VB_E_UNSUPPORTED, "%s: key general.architecture: is \"%.*s\", expected llama, qwen2, qwen3, qwen35 or "
                    "qwen35moe", k->g->file, n > 60 ? 60 : (int)n, s);
}

static vb_err too_wide(keys *k, const char *what, int64_t width) {
    if (width <= VB_LIMIT_WIDTH) return VB_OK;
    return vb__fail(k->err, VB_E_LIMIT, "%s: %s: is %lld, expected at most %d", k->g->file, what, (long long)width, VB_LIMIT_WIDTH);
}

/* ---- rope ----------------------------------------------------------------------------------------------- */

static vb_err rope_scaling(keys *k, vb__rope_config *r, int32_t max_position) {
    const char *s = "none";
    size_t n = 4;
    if (has(k, "rope.scaling.type")) VB_TRY(vb__gguf_bytes(k->g, key(k, "rope.scaling.type"), &s, &n, k->err));
    bool linear = n == 6 && memcmp(s, "linear", 6) == 0, yarn = n == 4 && memcmp(s, "yarn", 4) == 0;
    if (!linear && !yarn && !(n == 4 && memcmp(s, "none", 4) == 0))
        return vb__fail(k->err, VB_E_UNSUPPORTED, "%s: key %s: is \"%.*s\", expected none, linear or yarn", k->g->file, k->name,
                        n > 60 ? 60 : (int)n, s);
    /* a factor without a type is a linear one, under its name of today or its oldest */
    const char *factor = has(k, "rope.scaling.factor") || !has(k, "rope.scale_linear") ? "rope.scaling.factor" : "rope.scale_linear";
    bool bare = !has(k, "rope.scaling.type") && has(k, factor);
    if (linear || bare) {
        r->type = VB_ROPE_LINEAR;
        return vb__gguf_number(k->g, key(k, factor), 1e-3, 1e6, &r->factor, k->err);
    }
    if (!yarn) return VB_OK;
    static const struct {
        const char *key;
        double neutral;
    } others[] = {{"rope.scaling.yarn_ext_factor", 1}, {"rope.scaling.yarn_attn_factor", 1}, {"rope.scaling.yarn_log_multiplier", 0}};
    double extra;
    for (size_t i = 0; i < COUNT(others); i++) {
        VB_TRY(get_number_or(k, others[i].key, -1e6, 1e6, others[i].neutral, &extra));
        if (extra != others[i].neutral)
            return vb__fail(k->err, VB_E_UNSUPPORTED, "%s: key %s: is %g, expected %g or no such key", k->g->file, k->name, extra,
                            others[i].neutral);
    }
    r->type = VB_ROPE_YARN;
    VB_TRY(get_number_or(k, "rope.scaling.original_context_length", 1, VB_LIMIT_CONTEXT, max_position, &r->original_max));
    VB_TRY(get_number_or(k, "rope.scaling.factor", 1e-3, 1e6, max_position / r->original_max, &r->factor));
    VB_TRY(get_number_or(k, "rope.scaling.yarn_beta_fast", 1e-3, 1e6, 32, &r->beta_fast));
    VB_TRY(get_number_or(k, "rope.scaling.yarn_beta_slow", 1e-3, 1e6, 1, &r->beta_slow));
    VB_TRY(get_number_or(k, "rope.scaling.attn_factor", 1e-3, 1e3, 1, &extra));
    /* an extra factor on m, where the config files know only m itself */
    if (extra != 1.0) r->attention_factor = extra * (r->factor <= 1.0 ? 1.0 : 0.1 * vb__log64(r->factor) + 1.0);
    return VB_OK;
}

/* rope_freqs.weight: a divisor for every frequency (this is how llama3 scaling is stored). */
static vb_err rope_divisors(keys *k, vb__checkpoint *c) {
    vb__rope_config *r = &c->config.rope;
    const vb__gguf_tensor *t = tensor_of(c, "rope_freqs.weight");
    if (t == NULL) return VB_OK;
    if (r->type != VB_ROPE_DEFAULT || t->type != VB_GGUF_TYPE_F32 || t->dims != 1 || t->ne[0] != r->rotated / 2 ||
        t->ne[0] > VB_MAX_ROPE_DIVISORS)
        return vb__fail(k->err, VB_E_MISMATCH, "%s: tensor rope_freqs.weight: has %lld values or meets another rope scaling, "
                        "expected %d F32 and no other", k->g->file, (long long)t->ne[0], r->rotated / 2);
    memcpy(r->divisors, t->data, (size_t)t->ne[0] * sizeof(float));
    for (int32_t i = 0; i < r->rotated / 2; i++)
        if (!(r->divisors[i] > 1e-6f && r->divisors[i] < 1e9f))
            return vb__fail(k->err, VB_E_FORMAT, "%s: tensor rope_freqs.weight: value %d is %g, expected a positive divisor",
                            k->g->file, i, (double)r->divisors[i]);
    r->type = VB_ROPE_DIVISORS;
    return VB_OK;
}

static vb_err rope(keys *k, vb__checkpoint *c) {
    vb__model_config *m = &c->config;
    vb__rope_config *r = &m->rope;
    r->attention_factor = -1;
    r->truncate = true;
    if (family(c) == QWEN3_5) { /* has no default that would be right */
        VB_TRY(vb__gguf_number(k->g, key(k, "rope.freq_base"), 1.0 + 1e-6, 1e15, &r->theta, k->err));
        VB_TRY(get_i32(k, "rope.dimension_count", 2, m->head_dim, &r->rotated));
    } else {
        VB_TRY(get_number_or(k, "rope.freq_base", 1.0 + 1e-6, 1e15, 10000, &r->theta));
        VB_TRY(get_i32_or(k, "rope.dimension_count", 2, m->head_dim, m->head_dim, &r->rotated));
    }
    if (r->rotated % 2 != 0 || (c->interleaved && r->rotated != m->head_dim))
        return vb__fail(k->err, VB_E_UNSUPPORTED, "%s: key %s.rope.dimension_count: is %d, expected an even number (the whole head "
                        "width %d for llama)", k->g->file, k->arch, r->rotated, m->head_dim);
    VB_TRY(rope_scaling(k, r, m->max_position));
    return rope_divisors(k, c);
}

/* ---- config --------------------------------------------------------------------------------------------- */

static vb_err common(keys *k, vb__checkpoint *c) {
    vb__model_config *m = &c->config;
    double eps;
    int32_t blocks, value_dim, declared;
    const vb__gguf_tensor *e = tensor_of(c, "token_embd.weight");
    VB_TRY(get_i32(k, "block_count", 1, VB_LIMIT_LAYERS, &blocks));
    VB_TRY(get_i32_or(k, "nextn_predict_layers", 0, blocks - 1, 0, &m->mtp_layers));
    m->layers = blocks - m->mtp_layers;
    VB_TRY(get_i32(k, "embedding_length", 1, VB_LIMIT_WIDTH, &m->hidden));
    VB_TRY(get_i32(k, "context_length", 1, VB_LIMIT_CONTEXT, &m->max_position));
    VB_TRY(get_i32(k, "attention.head_count", 1, 65536, &m->heads));
    VB_TRY(get_i32_or(k, "attention.head_count_kv", 1, 65536, m->heads, &m->kv_heads));
    if (m->heads % m->kv_heads != 0)
        return vb__fail(k->err, VB_E_FORMAT, "%s: key %s.attention.head_count_kv: is %d, expected a divisor of %d heads", k->g->file,
                        k->arch, m->kv_heads, m->heads);
    if (!has(k, "attention.key_length") && m->hidden % m->heads != 0)
        return vb__fail(k->err, VB_E_FORMAT, "%s: key %s: is missing, expected it as %d is no multiple of %d heads", k->g->file, k->name,
                        m->hidden, m->heads);
    VB_TRY(get_i32_or(k, "attention.key_length", 2, VB_LIMIT_HEAD_DIM, m->hidden / m->heads, &m->head_dim));
    if (m->head_dim < 2 || m->head_dim > VB_LIMIT_HEAD_DIM || m->head_dim % 2 != 0)
        return vb__fail(k->err, VB_E_UNSUPPORTED, "%s: key %s: is %d, expected an even number 2..%d", k->g->file, k->name, m->head_dim,
                        VB_LIMIT_HEAD_DIM);
    VB_TRY(get_i32_or(k, "attention.value_length", 1, 65536, m->head_dim, &value_dim));
    if (value_dim != m->head_dim)
        return vb__fail(k->err, VB_E_UNSUPPORTED, "%s: key %s: is %d, expected the key length %d", k->g->file, k->name, value_dim,
                        m->head_dim);
    VB_TRY(too_wide(k, "attention.head_count * key_length", 2 * (int64_t)m->heads * m->head_dim));
    VB_TRY(vb__gguf_number(k->g, key(k, "attention.layer_norm_rms_epsilon"), 1e-30, 1, &eps, k->err));
    m->eps = (float)eps;
    if (e == NULL || e->dims != 2 || e->ne[1] > VB_LIMIT_VOCAB)
        return vb__fail(k->err, VB_E_MISMATCH, "%s: tensor token_embd.weight: is missing or has no [vocabulary, width], expected it with "
                        "at most %d rows", k->g->file, VB_LIMIT_VOCAB);
    m->vocab = (int32_t)e->ne[1];
    VB_TRY(get_i32_or(k, "vocab_size", 1, VB_LIMIT_VOCAB, m->vocab, &declared));
    if (declared != m->vocab)
        return vb__fail(k->err, VB_E_MISMATCH, "%s: key %s: is %d, but tensor token_embd.weight has %d rows", k->g->file, k->name,
                        declared, m->vocab);
    m->tied = tensor_of(c, "output.weight") == NULL;
    m->attention_bias = m->arch == VB_ARCH_QWEN2 || any_layer_has(c, "attn_q.bias") || any_layer_has(c, "attn_k.bias") ||
                        any_layer_has(c, "attn_v.bias") || any_layer_has(c, "attn_qkv.bias");
    m->o_bias = any_layer_has(c, "attn_output.bias");
    m->mlp_bias = any_layer_has(c, "ffn_gate.bias") || any_layer_has(c, "ffn_up.bias") || any_layer_has(c, "ffn_down.bias");
    return VB_OK;
}

/* Keys that would make attention another one than ours. */
static vb_err plain_attention(keys *k, const vb__model_config *m) {
    int32_t window;
    bool causal = true;
    VB_TRY(get_i32_or(k, "attention.sliding_window", 0, INT32_MAX, 0, &window));
    if (window > 0 && window < m->max_position)
        return vb__fail(k->err, VB_E_UNSUPPORTED, "%s: key %s: is %d, expected none or the context length %d", k->g->file, k->name,
                        window, m->max_position);
    if (has(k, "attention.causal")) VB_TRY(vb__gguf_bool(k->g, key(k, "attention.causal"), &causal, k->err));
    if (!causal)
        return vb__fail(k->err, VB_E_UNSUPPORTED, "%s: key %s: is false, expected true or no such key", k->g->file, k->name);
    return VB_OK;
}

/* Which layers have a recurrent state: one bool for each block where the file says it, else the interval. */
static vb_err qwen3_5_layers(keys *k, vb__model_config *m) {
    int32_t every, blocks = m->layers + m->mtp_layers;
    if (!has(k, "attention.recurrent_layers")) {
        VB_TRY(get_i32(k, "full_attention_interval", 1, INT32_MAX, &every));
        for (int32_t i = 0; i < m->layers; i++) m->layer_type[i] = (i + 1) % every == 0 ? VB_LAYER_FULL : VB_LAYER_LINEAR;
        return VB_OK;
    }
    const vb__gguf_key *list;
    VB_TRY(vb__gguf_array(k->g, key(k, "attention.recurrent_layers"), VB_GGUF_BOOL, VB_LIMIT_LAYERS, &list, k->err));
    if (list->count != (uint64_t)blocks)
        return vb__fail(k->err, VB_E_MISMATCH, "%s: key %s: has %llu values, expected one for each of %d blocks", k->g->file, k->name,
                        (unsigned long long)list->count, blocks);
    for (int32_t i = 0; i < m->layers; i++) m->layer_type[i] = list->data[i] != 0 ? VB_LAYER_LINEAR : VB_LAYER_FULL;
    return VB_OK;
}

static vb_err qwen3_5(keys *k, vb__checkpoint *c) {
    vb__model_config *m = &c->config;
    int32_t inner;
    VB_TRY(qwen3_5_layers(k, m));
    VB_TRY(get_i32(k, "ssm.conv_kernel", 2, VB_LIMIT_CONV_TAPS, &m->lin_taps));
    VB_TRY(get_i32(k, "ssm.state_size", 1, VB_LIMIT_DELTA_HEAD_DIM, &m->lin_dk));
    VB_TRY(get_i32(k, "ssm.group_count", 1, 65536, &m->lin_nk));
    VB_TRY(get_i32(k, "ssm.time_step_rank", 1, 65536, &m->lin_nv));
    VB_TRY(get_i32(k, "ssm.inner_size", 1, VB_LIMIT_WIDTH, &inner));
    if (m->lin_nv % m->lin_nk != 0 || inner % m->lin_nv != 0)
        return vb__fail(k->err, VB_E_FORMAT, "%s: key %s: is %d with %d value and %d key heads, expected multiples", k->g->file, k->name,
                        inner, m->lin_nv, m->lin_nk);
    m->lin_dv = inner / m->lin_nv;
    if (m->lin_dv > VB_LIMIT_DELTA_HEAD_DIM)
        return vb__fail(k->err, VB_E_LIMIT, "%s: key %s: is %d for %d heads, expected at most %d a head", k->g->file, k->name, inner,
                        m->lin_nv, VB_LIMIT_DELTA_HEAD_DIM);
    VB_TRY(too_wide(k, "the conv's channels", 2 * (int64_t)m->lin_nk * m->lin_dk + inner));
    m->lin_modulo_heads = true;
    m->qk_norm = m->output_gate = m->zero_centred_norms = true;
    if (m->arch == VB_ARCH_QWEN3_5) return get_i32(k, "feed_forward_length", 1, VB_LIMIT_WIDTH, &m->intermediate);
    VB_TRY(get_i32(k, "expert_count", 1, VB_LIMIT_EXPERTS, &m->experts));
    VB_TRY(get_i32(k, "expert_used_count", 1, m->experts, &m->experts_used));
    VB_TRY(get_i32(k, "expert_feed_forward_length", 1, VB_LIMIT_WIDTH / 2, &m->expert_intermediate));
    return get_i32(k, "expert_shared_feed_forward_length", 1, VB_LIMIT_WIDTH, &m->shared_intermediate);
}

/* End tokens that the file names: of text, of a turn, of a message. */
static vb_err end_tokens(keys *k, vb__model_config *m) {
    static const char *const names[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    for (size_t i = 0; i < COUNT(names); i++) {
        int32_t id, j = 0;
        if (vb__gguf_find(k->g, names[i]) == NULL) continue;
        VB_TRY(vb__gguf_i32(k->g, names[i], 0, m->vocab - 1, &id, k->err));
        while (j < m->n_eos && m->eos[j] != id) j++;
        if (j == m->n_eos) m->eos[m->n_eos++] = id;
    }
    return VB_OK;
}

static vb_err read_config(vb__checkpoint *c, vb_error *err) {
    vb__model_config *m = &c->config;
    char arch[64];
    keys k = {.g = &c->ggufs[0], .arch = arch, .err = err};
    VB_TRY(find_arch(&k, &m->arch, arch));
    c->interleaved = m->arch == VB_ARCH_LLAMA;
    VB_TRY(common(&k, c));
    VB_TRY(plain_attention(&k, m));
    if (family(c) == QWEN3_5) {
        VB_TRY(qwen3_5(&k, c));
    } else {
        VB_TRY(get_i32(&k, "feed_forward_length", 1, VB_LIMIT_WIDTH, &m->intermediate));
        for (int32_t i = 0; i < m->layers; i++) m->layer_type[i] = VB_LAYER_FULL;
        m->qk_norm = m->arch == VB_ARCH_QWEN3;
        int32_t experts;
        VB_TRY(get_i32_or(&k, "expert_count", 0, INT32_MAX, 0, &experts));
        if (m->mtp_layers > 0 || experts > 0)
            return vb__fail(err, VB_E_UNSUPPORTED, "%s: key %s: is set, which a dense %s does not have", c->ggufs[0].file,
                            m->mtp_layers > 0 ? key(&k, "nextn_predict_layers") : k.name, arch);
    }
    VB_TRY(rope(&k, c));
    return end_tokens(&k, m);
}

/* ---- files ---------------------------------------------------------------------------------------------- */

/* The k-th of n parts beside the first: NAME-00001-of-0000N.gguf. NULL when out of memory or not named so. */
static char *part_path(const char *first, int32_t part, int32_t parts) {
    char tail[40], one[40];
    (void)snprintf(one, sizeof one, "-00001-of-%05d.gguf", parts);
    (void)snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", part + 1, parts);
    if (!vb__ends(first, one)) return NULL;
    char *p = vb__strdup(VB_TAG_FORMAT, first);
    if (p != NULL) memcpy(p + strlen(p) - strlen(tail), tail, strlen(tail));
    return p;
}

static vb_err open_parts(vb__checkpoint *c, const char *path, vb_error *err) {
    int64_t parts = 1, tensors = 0, number;
    c->ggufs = vb__calloc(VB_TAG_FORMAT, 1, sizeof *c->ggufs);
    if (c->ggufs == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory", path);
    VB_TRY(vb__gguf_open(path, &c->ggufs[0], err));
    c->n_ggufs = 1;
    if (vb__gguf_find(&c->ggufs[0], "split.count") == NULL) return VB_OK;
    VB_TRY(vb__gguf_int(&c->ggufs[0], "split.count", 1, VB_LIMIT_SHARDS, &parts, err));
    VB_TRY(vb__gguf_int(&c->ggufs[0], "split.no", 0, parts - 1, &number, err));
    if (number != 0)
        return vb__fail(err, VB_E_MISMATCH, "%s: is part %d of %d, expected the first, which ends in -00001-of-%05d.gguf",
                        c->ggufs[0].file, (int)number + 1, (int)parts, (int)parts);
    VB_TRY(vb__gguf_int(&c->ggufs[0], "split.tensors.count", 0, VB_LIMIT_TENSORS, &tensors, err));
    vb__gguf *all = vb__realloc_array(VB_TAG_FORMAT, c->ggufs, (size_t)parts, sizeof *all);
    if (all == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory", path);
    c->ggufs = all;
    for (int32_t i = 1; i < parts; i++) {
        char *next = part_path(path, i, (int32_t)parts);
        if (next == NULL)
            return vb__fail(err, VB_E_FORMAT, "%s: key split.count: is %d, expected a name that ends in -00001-of-%05d.gguf",
                            c->ggufs[0].file, (int)parts, (int)parts);
        vb_err e = vb__gguf_open(next, &c->ggufs[i], err);
        vb__free(next);
        VB_TRY(e);
        c->n_ggufs = i + 1;
        VB_TRY(vb__gguf_int(&c->ggufs[i], "split.no", i, i, &number, err));
        VB_TRY(vb__gguf_int(&c->ggufs[i], "split.count", parts, parts, &number, err));
    }
    for (int32_t i = 0; i < parts; i++) tensors -= c->ggufs[i].n_tensors;
    if (tensors != 0)
        return vb__fail(err, VB_E_MISMATCH, "%s: key split.tensors.count: differs by %lld from the tensors in all %d parts",
                        c->ggufs[0].file, (long long)tensors, (int)parts);
    return VB_OK;
}

/* Rows of q, k and v that a converter joined as attn_qkv (weight or bias) become three tensors over the same bytes; their
 * names say which part they are. False: it is no such tensor, or has other rows, and stays what it is. */
static bool divide_qkv(const vb__checkpoint *c, const vb__gguf_tensor *t, vb__gguf_tensor part[3], const char *name[3]) {
    static const char *const q_k_v[] = {"q", "k", "v"};
    const vb__model_config *m = &c->config;
    int32_t layer;
    const char *rest;
    if (!numbered(t->name, "blk.", &layer, &rest) || strncmp(rest, "attn_qkv.", 9) != 0) return false;
    if (layer < m->layers && m->layer_type[layer] == VB_LAYER_LINEAR) return false; /* there it is a tensor of its own right */
    bool bias = strcmp(rest + 9, "bias") == 0;
    int64_t q = (int64_t)m->heads * m->head_dim * (m->output_gate ? 2 : 1), kv = (int64_t)m->kv_heads * m->head_dim, at = 0;
    if (t->dims != (bias ? 1 : 2) || t->ne[t->dims - 1] != q + 2 * kv) return false;
    const vb__gguf_type_info *info = vb__gguf_type_get((uint32_t)t->type);
    if (bias && info->group != 0) return false; /* rows would not be whole blocks */
    uint64_t row = t->bytes / (uint64_t)(q + 2 * kv);
    for (int i = 0; i < 3; i++) {
        int64_t rows = i == 0 ? q : kv;
        part[i] = *t;
        part[i].ne[t->dims - 1] = rows;
        part[i].data = t->data + (uint64_t)at * row;
        part[i].bytes = (uint64_t)rows * row;
        name[i] = q_k_v[i];
        at += rows;
    }
    return true;
}

static vb_err add_tensor(vb__checkpoint *c, const vb__gguf *g, const vb__gguf_tensor *t, const char *as, vb_error *err) {
    vb__st_tensor *s = vb__arena_alloc(&c->names, sizeof *s);
    bool memory = true;
    const char *canon = canonical(c, as, &memory);
    if (s == NULL || !memory) return vb__fail(err, VB_E_MEMORY, "%s: no memory for its tensors", g->file);
    const vb__gguf_type_info *info = vb__gguf_type_get((uint32_t)t->type);
    *s = (vb__st_tensor){.name = t->name, .dims = t->dims, .data = t->data, .bytes = t->bytes, .dtype = VB_DTYPE_U8};
    if (t->type == VB_GGUF_TYPE_F32) s->dtype = VB_DTYPE_F32;
    if (t->type == VB_GGUF_TYPE_F16) s->dtype = VB_DTYPE_F16;
    if (t->type == VB_GGUF_TYPE_BF16) s->dtype = VB_DTYPE_BF16;
    for (int32_t i = 0; i < t->dims; i++) s->shape[i] = t->ne[t->dims - 1 - i]; /* outermost first */
    vb__ck_tensor *o = &c->tensors[c->count++];
    *o = (vb__ck_tensor){.t = s, .file = g->file, .canon = canon, .block = info->group == 0 ? -1 : t->type};
    o->role = canon != NULL ? VB_CK_TEXT : strcmp(t->name, "rope_freqs.weight") == 0 ? VB_CK_IGNORED : VB_CK_UNKNOWN;
    return VB_OK;
}

static vb_err add_or_divide(vb__checkpoint *c, const vb__gguf *g, const vb__gguf_tensor *t, vb_error *err) {
    vb__gguf_tensor part[3];
    const char *which[3];
    if (!divide_qkv(c, t, part, which)) return add_tensor(c, g, t, t->name, err);
    const char *tail = strrchr(t->name, '.'); /* .weight or .bias */
    int stem = (int)(tail - t->name) - 3;     /* without the qkv */
    for (int i = 0; i < 3; i++) {
        char as[VB_CK_NAME_MAX], name[VB_CK_NAME_MAX];
        (void)snprintf(as, sizeof as, "%.*s%s%s", stem, t->name, which[i], tail);
        int n = snprintf(name, sizeof name, "%s (%s)", t->name, which[i]);
        part[i].name = vb__arena_strndup(&c->names, name, (size_t)n);
        if (part[i].name == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory for its tensors", g->file);
        VB_TRY(add_tensor(c, g, &part[i], as, err));
    }
    return VB_OK;
}

vb_err vb__gguf_model_open(vb__checkpoint *c, const char *path, vb_error *err) {
    VB_TRY(open_parts(c, path, err));
    VB_TRY(read_config(c, err));
    size_t n = 0;
    for (int32_t p = 0; p < c->n_ggufs; p++) n += (size_t)c->ggufs[p].n_tensors;
    if (n > VB_LIMIT_TENSORS)
        return vb__fail(err, VB_E_LIMIT, "%s: the parts hold %zu tensors, expected at most %d", c->ggufs[0].file, n, VB_LIMIT_TENSORS);
    c->tensors = vb__calloc(VB_TAG_FORMAT, 3 * n, sizeof *c->tensors); /* a joined one counts for three */
    if (c->tensors == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory for its tensors", path);
    for (int32_t p = 0; p < c->n_ggufs; p++)
        for (int32_t i = 0; i < c->ggufs[p].n_tensors; i++) VB_TRY(add_or_divide(c, &c->ggufs[p], &c->ggufs[p].tensors[i], err));
    return VB_OK;
}
