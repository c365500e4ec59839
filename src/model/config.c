#include "model/config.h"
#include "base/json.h"
#include <stdio.h>
#include <string.h>

/* Where the keys of a model live: the text config, and the document around it (the same object when flat). */
typedef struct cfg {
    vb__json_at in, top;
    const char *file;
    vb__model_config *m;
    vb_error *err;
} cfg;

static const struct {
    const char *model_type;
    vb__arch arch;
} model_types[] = {
    {"qwen3_5", VB_ARCH_QWEN3_5},           {"qwen3_5_text", VB_ARCH_QWEN3_5},
    {"qwen3_5_moe", VB_ARCH_QWEN3_5_MOE},   {"qwen3_5_moe_text", VB_ARCH_QWEN3_5_MOE},
    {"llama", VB_ARCH_LLAMA},               {"mistral", VB_ARCH_LLAMA},
    {"qwen2", VB_ARCH_QWEN2},               {"qwen3", VB_ARCH_QWEN3},
};

const char *vb__arch_name(vb__arch arch) {
    switch (arch) {
    case VB_ARCH_QWEN3_5: return "qwen3_5";
    case VB_ARCH_QWEN3_5_MOE: return "qwen3_5_moe";
    case VB_ARCH_LLAMA: return "llama";
    case VB_ARCH_QWEN2: return "qwen2";
    case VB_ARCH_QWEN3: return "qwen3";
    case VB_ARCH_DFLASH: return "dflash";
    }
    return "unknown";
}

/* ---- pieces that families share ------------------------------------------------------------------------- */

static vb_err width_fits(cfg *c, const char *what, int64_t a, int64_t b) {
    if (a * b <= VB_LIMIT_WIDTH) return VB_OK; /* both are at most VB_LIMIT_WIDTH */
    return vb__fail(c->err, VB_E_LIMIT, "%s%s: is %lld, expected at most %d", c->in.where, what, (long long)(a * b),
                    VB_LIMIT_WIDTH);
}

static vb_err silu_only(cfg *c) {
    const char *act;
    VB_TRY(vb__json_string_or(c->in, "hidden_act", "silu", &act, c->err));
    if (strcmp(act, "silu") != 0)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%shidden_act: is \"%s\", expected silu", c->in.where, act);
    return VB_OK;
}

static vb_err common(cfg *c, bool need_kv) {
    vb__model_config *m = c->m;
    VB_TRY(vb__json_i32(c->in, "vocab_size", 1, VB_LIMIT_VOCAB, &m->vocab, c->err));
    VB_TRY(vb__json_i32(c->in, "hidden_size", 1, VB_LIMIT_WIDTH, &m->hidden, c->err));
    VB_TRY(vb__json_i32(c->in, "num_hidden_layers", 1, VB_LIMIT_LAYERS, &m->layers, c->err));
    VB_TRY(vb__json_i32(c->in, "num_attention_heads", 1, 65536, &m->heads, c->err));
    if (need_kv) VB_TRY(vb__json_i32(c->in, "num_key_value_heads", 1, 65536, &m->kv_heads, c->err));
    else VB_TRY(vb__json_i32_or(c->in, "num_key_value_heads", 1, 65536, m->heads, &m->kv_heads, c->err));
    if (m->heads % m->kv_heads != 0)
        return vb__fail(c->err, VB_E_FORMAT, "%snum_key_value_heads: is %d, expected a divisor of num_attention_heads %d",
                        c->in.where, m->kv_heads, m->heads);
    return silu_only(c);
}

/* head_dim; fallback 0: a missing one is an error. */
static vb_err head_dim_or(cfg *c, int32_t fallback) {
    vb__model_config *m = c->m;
    if (fallback == 0) VB_TRY(vb__json_i32(c->in, "head_dim", 2, VB_LIMIT_HEAD_DIM, &m->head_dim, c->err));
    else VB_TRY(vb__json_i32_or(c->in, "head_dim", 2, VB_LIMIT_HEAD_DIM, fallback, &m->head_dim, c->err));
    if (m->head_dim < 2 || m->head_dim > VB_LIMIT_HEAD_DIM || m->head_dim % 2 != 0)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%shead_dim: is %d, expected an even number 2..%d", c->in.where, m->head_dim,
                        VB_LIMIT_HEAD_DIM);
    return VB_OK;
}

/* head_dim with the rule H / Hq where the key is absent. */
static vb_err head_dim(cfg *c) {
    vb__model_config *m = c->m;
    if (vb__json_get(c->in, "head_dim") == NULL && m->hidden % m->heads != 0)
        return vb__fail(c->err, VB_E_FORMAT, "%shead_dim: is missing, expected it as hidden_size %d is no multiple of %d heads",
                        c->in.where, m->hidden, m->heads);
    VB_TRY(head_dim_or(c, m->hidden / m->heads > 0 ? m->hidden / m->heads : 1));
    return width_fits(c, "num_attention_heads * head_dim", m->heads, m->head_dim);
}

static vb_err epsilon(cfg *c, double fallback) {
    double eps;
    if (fallback < 0) VB_TRY(vb__json_number(c->in, "rms_norm_eps", 1e-30, 1.0, &eps, c->err));
    else VB_TRY(vb__json_number_or(c->in, "rms_norm_eps", 1e-30, 1.0, fallback, &eps, c->err));
    c->m->eps = (float)eps;
    return VB_OK;
}

/* An id or a list of ids; the lists of both levels are joined. */
static vb_err end_tokens(cfg *c, vb__json_at at) {
    const json_t *v = vb__json_get(at, "eos_token_id");
    char b[80];
    if (v == NULL) return VB_OK;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= c->m->vocab)
            return vb__fail(c->err, VB_E_FORMAT, "%seos_token_id: %s, expected a token id below %d", at.where,
                            vb__json_is(id, b, sizeof b), c->m->vocab);
        int32_t token = (int32_t)json_integer_value(id), j = 0;
        while (j < c->m->n_eos && c->m->eos[j] != token) j++;
        if (j < c->m->n_eos) continue;
        if (j == VB_MAX_EOS)
            return vb__fail(c->err, VB_E_LIMIT, "%seos_token_id: has more than %d ids", at.where, VB_MAX_EOS);
        c->m->eos[c->m->n_eos++] = token;
    }
    return VB_OK;
}

static vb_err tied(cfg *c) {
    bool outer;
    VB_TRY(vb__json_bool_or(c->top, "tie_word_embeddings", false, &outer, c->err));
    return vb__json_bool_or(c->in, "tie_word_embeddings", outer, &c->m->tied, c->err);
}

/* ---- rope ----------------------------------------------------------------------------------------------- */

typedef struct rope_src {
    vb__json_at at; /* rope_parameters or rope_scaling; obj NULL: neither */
    char where[160];
} rope_src;

static vb_err rope_source(cfg *c, rope_src *s) {
    json_t *par, *scaling;
    VB_TRY(vb__json_object_or(c->in, "rope_parameters", &par, c->err));
    VB_TRY(vb__json_object_or(c->in, "rope_scaling", &scaling, c->err));
    if (par != NULL && scaling != NULL && !json_equal(par, scaling))
        return vb__fail(c->err, VB_E_FORMAT, "%srope_scaling: differs from rope_parameters, expected one of the two",
                        c->in.where);
    (void)snprintf(s->where, sizeof s->where, "%s%s.", c->in.where, par != NULL ? "rope_parameters" : "rope_scaling");
    s->at = (vb__json_at){par != NULL ? par : scaling, s->where};
    return VB_OK;
}

static vb_err rope_type(cfg *c, const rope_src *s, vb__rope_type *out) {
    const char *type, *older;
    VB_TRY(vb__json_string_or(s->at, "type", NULL, &older, c->err));
    VB_TRY(vb__json_string_or(s->at, "rope_type", older != NULL ? older : "default", &type, c->err));
    if (older != NULL && strcmp(type, older) != 0)
        return vb__fail(c->err, VB_E_FORMAT, "%stype: is \"%s\" but rope_type is \"%s\", expected one", s->where, older, type);
    static const char *const names[] = {"default", "linear", "llama3", "yarn"};
    for (int i = 0; i < 4; i++)
        if (strcmp(type, names[i]) == 0) {
            *out = (vb__rope_type)i;
            return VB_OK;
        }
    return vb__fail(c->err, VB_E_UNSUPPORTED, "%srope_type: is \"%s\", expected default, linear, llama3 or yarn", s->where, type);
}

/* The trained length N of scaled rope: beside the object, inside it, else the whole length. */
static vb_err rope_original(cfg *c, const rope_src *s, double *out) {
    const char *key = "original_max_position_embeddings";
    VB_TRY(vb__json_number_or(s->at, key, 1, VB_LIMIT_CONTEXT, c->m->max_position, out, c->err));
    VB_TRY(vb__json_number_or(c->in, key, 1, VB_LIMIT_CONTEXT, *out, out, c->err));
    if (!(*out >= 1))
        return vb__fail(c->err, VB_E_FORMAT, "%s%s: is missing, expected it or max_position_embeddings", s->where, key);
    return VB_OK;
}

static vb_err rope_scaled(cfg *c, const rope_src *s, vb__rope_config *r) {
    vb_error *err = c->err;
    if (r->type == VB_ROPE_DEFAULT) return VB_OK;
    if (r->type == VB_ROPE_LINEAR) return vb__json_number(s->at, "factor", 1e-3, 1e6, &r->factor, err);
    VB_TRY(rope_original(c, s, &r->original_max));
    if (r->type == VB_ROPE_LLAMA3) {
        VB_TRY(vb__json_number(s->at, "factor", 1e-3, 1e6, &r->factor, err));
        VB_TRY(vb__json_number(s->at, "low_freq_factor", 1e-3, 1e6, &r->low_freq_factor, err));
        VB_TRY(vb__json_number(s->at, "high_freq_factor", 1e-3, 1e6, &r->high_freq_factor, err));
        if (r->high_freq_factor <= r->low_freq_factor)
            return vb__fail(err, VB_E_FORMAT, "%shigh_freq_factor: is %g, expected more than low_freq_factor %g", s->where,
                            r->high_freq_factor, r->low_freq_factor);
        return VB_OK;
    }
    double whole = c->m->max_position / r->original_max;
    VB_TRY(vb__json_number_or(s->at, "factor", 1e-3, 1e6, whole, &r->factor, err));
    if (!(r->factor >= 1e-3 && r->factor <= 1e6))
        return vb__fail(err, VB_E_FORMAT, "%sfactor: is missing, expected a number", s->where);
    VB_TRY(vb__json_number_or(s->at, "beta_fast", 1e-3, 1e6, 32, &r->beta_fast, err));
    VB_TRY(vb__json_number_or(s->at, "beta_slow", 1e-3, 1e6, 1, &r->beta_slow, err));
    VB_TRY(vb__json_number_or(s->at, "attention_factor", 0, 1e6, -1, &r->attention_factor, err));
    VB_TRY(vb__json_number_or(s->at, "mscale", 0, 1e6, 0, &r->mscale, err));
    VB_TRY(vb__json_number_or(s->at, "mscale_all_dim", 0, 1e6, 0, &r->mscale_all_dim, err));
    return vb__json_bool_or(s->at, "truncate", true, &r->truncate, err);
}

/* theta_fallback < 0: a missing rope_theta is an error. partial: the fraction of head_dim that is rotated. */
static vb_err rope(cfg *c, double theta_fallback, double partial) {
    vb__rope_config *r = &c->m->rope;
    rope_src s = {0};
    VB_TRY(rope_source(c, &s));
    *r = (vb__rope_config){.attention_factor = -1, .truncate = true};
    bool inside = vb__json_get(s.at, "rope_theta") != NULL;
    const vb__json_at theta = inside ? s.at : c->in;
    const double top = 1e15, bottom = 1.0 + 1e-6; /* its logarithm divides */
    if (theta_fallback < 0) VB_TRY(vb__json_number(theta, "rope_theta", bottom, top, &r->theta, c->err));
    else VB_TRY(vb__json_number_or(theta, "rope_theta", bottom, top, theta_fallback, &r->theta, c->err));
    const vb__json_at part = vb__json_get(s.at, "partial_rotary_factor") != NULL ? s.at : c->in;
    VB_TRY(vb__json_number_or(part, "partial_rotary_factor", 0, 1, partial, &partial, c->err));
    r->rotated = (int32_t)(c->m->head_dim * partial);
    if (r->rotated < 2 || r->rotated % 2 != 0)
        return vb__fail(c->err, VB_E_FORMAT, "%spartial_rotary_factor: is %g, which rotates %d of %d dims, expected an even number",
                        part.where, partial, r->rotated, c->m->head_dim);
    VB_TRY(rope_type(c, &s, &r->type));
    return rope_scaled(c, &s, r);
}

/* ---- layer types ---------------------------------------------------------------------------------------- */

static vb_err layer_list(cfg *c, const json_t *list) {
    vb__model_config *m = c->m;
    char b[80];
    if (json_array_size(list) != (size_t)m->layers)
        return vb__fail(c->err, VB_E_FORMAT, "%slayer_types: has %zu entries, expected num_hidden_layers %d", c->in.where,
                        json_array_size(list), m->layers);
    for (int32_t i = 0; i < m->layers; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        const char *name = json_is_string(v) ? json_string_value(v) : "";
        if (strcmp(name, "linear_attention") == 0) m->layer_type[i] = VB_LAYER_LINEAR;
        else if (strcmp(name, "full_attention") == 0) m->layer_type[i] = VB_LAYER_FULL;
        else if (strcmp(name, "sliding_attention") == 0) m->layer_type[i] = VB_LAYER_SLIDING;
        else
            return vb__fail(c->err, json_is_string(v) ? VB_E_UNSUPPORTED : VB_E_FORMAT,
                            "%slayer_types[%d]: %s, expected linear_attention, full_attention or sliding_attention", c->in.where,
                            i, vb__json_is(v, b, sizeof b));
    }
    return VB_OK;
}

static vb_err refuse_layer(cfg *c, vb__layer_type type, const char *name) {
    for (int32_t i = 0; i < c->m->layers; i++)
        if (c->m->layer_type[i] == type)
            return vb__fail(c->err, VB_E_UNSUPPORTED, "%slayer_types[%d]: is \"%s\", which %s models do not have", c->in.where, i,
                            name, vb__arch_name(c->m->arch));
    return VB_OK;
}

/* Sliding windows of the Qwen 2 and 3 families: off unless use_sliding_window. */
static vb_err sliding(cfg *c) {
    vb__model_config *m = c->m;
    bool use;
    int32_t window, from;
    json_t *list;
    VB_TRY(vb__json_bool_or(c->in, "use_sliding_window", false, &use, c->err));
    /* a window that is switched on and not named has the stock implementation's numbers; null is none */
    int32_t unsaid = use && json_object_get(c->in.obj, "sliding_window") == NULL ? 4096 : 0;
    VB_TRY(vb__json_i32_or(c->in, "sliding_window", 1, VB_LIMIT_CONTEXT, unsaid, &window, c->err));
    VB_TRY(vb__json_i32_or(c->in, "max_window_layers", 0, INT32_MAX, 28, &from, c->err));
    VB_TRY(vb__json_array_or(c->in, "layer_types", VB_LIMIT_LAYERS, &list, c->err));
    bool on = use && window > 0;
    m->sliding_window = on ? window : 0;
    if (list != NULL) {
        VB_TRY(layer_list(c, list));
        VB_TRY(refuse_layer(c, VB_LAYER_LINEAR, "linear_attention"));
        if (!on) VB_TRY(refuse_layer(c, VB_LAYER_SLIDING, "sliding_attention"));
    } else {
        for (int32_t i = 0; i < m->layers; i++) m->layer_type[i] = on && i >= from ? VB_LAYER_SLIDING : VB_LAYER_FULL;
    }
    return VB_OK;
}

/* ---- Qwen 3.5 ------------------------------------------------------------------------------------------- */

static vb_err qwen3_5_layers(cfg *c) {
    vb__model_config *m = c->m;
    json_t *list;
    VB_TRY(vb__json_array_or(c->in, "layer_types", VB_LIMIT_LAYERS, &list, c->err));
    if (list != NULL) {
        VB_TRY(layer_list(c, list));
        return refuse_layer(c, VB_LAYER_SLIDING, "sliding_attention");
    }
    int32_t every;
    VB_TRY(vb__json_i32(c->in, "full_attention_interval", 1, INT32_MAX, &every, c->err));
    for (int32_t i = 0; i < m->layers; i++)
        m->layer_type[i] = (i + 1) % every == 0 ? VB_LAYER_FULL : VB_LAYER_LINEAR;
    return VB_OK;
}

static vb_err qwen3_5_delta(cfg *c) {
    vb__model_config *m = c->m;
    VB_TRY(vb__json_i32(c->in, "linear_num_key_heads", 1, 65536, &m->lin_nk, c->err));
    VB_TRY(vb__json_i32(c->in, "linear_num_value_heads", 1, 65536, &m->lin_nv, c->err));
    VB_TRY(vb__json_i32(c->in, "linear_key_head_dim", 1, VB_LIMIT_DELTA_HEAD_DIM, &m->lin_dk, c->err));
    VB_TRY(vb__json_i32(c->in, "linear_value_head_dim", 1, VB_LIMIT_DELTA_HEAD_DIM, &m->lin_dv, c->err));
    VB_TRY(vb__json_i32(c->in, "linear_conv_kernel_dim", 2, VB_LIMIT_CONV_TAPS, &m->lin_taps, c->err));
    if (m->lin_nv % m->lin_nk != 0)
        return vb__fail(c->err, VB_E_FORMAT, "%slinear_num_value_heads: is %d, expected a multiple of linear_num_key_heads %d",
                        c->in.where, m->lin_nv, m->lin_nk);
    int64_t kd = (int64_t)m->lin_nk * m->lin_dk, vd = (int64_t)m->lin_nv * m->lin_dv;
    return width_fits(c, "linear conv channels (2*key width + value width)", 2 * kd + vd, 1);
}

static vb_err qwen3_5_moe(cfg *c) {
    vb__model_config *m = c->m;
    bool normed;
    int32_t step;
    json_t *only;
    VB_TRY(vb__json_i32(c->in, "num_experts", 1, VB_LIMIT_EXPERTS, &m->experts, c->err));
    VB_TRY(vb__json_i32(c->in, "num_experts_per_tok", 1, m->experts, &m->experts_used, c->err));
    VB_TRY(vb__json_i32(c->in, "moe_intermediate_size", 1, VB_LIMIT_WIDTH / 2, &m->expert_intermediate, c->err));
    VB_TRY(vb__json_i32(c->in, "shared_expert_intermediate_size", 1, VB_LIMIT_WIDTH, &m->shared_intermediate, c->err));
    VB_TRY(vb__json_bool_or(c->in, "norm_topk_prob", true, &normed, c->err));
    if (!normed)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%snorm_topk_prob: is false, expected true or no such key", c->in.where);
    VB_TRY(vb__json_i32_or(c->in, "decoder_sparse_step", 1, INT32_MAX, 1, &step, c->err));
    VB_TRY(vb__json_array_or(c->in, "mlp_only_layers", VB_LIMIT_LAYERS, &only, c->err));
    if (step != 1 || json_array_size(only) != 0)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%s%s: makes some layers dense, expected every layer to have experts",
                        c->in.where, step != 1 ? "decoder_sparse_step" : "mlp_only_layers");
    return VB_OK;
}

static vb_err parse_qwen3_5(cfg *c) {
    vb__model_config *m = c->m;
    bool gate;
    VB_TRY(common(c, true));
    VB_TRY(head_dim_or(c, 0));
    VB_TRY(width_fits(c, "2 * num_attention_heads * head_dim", 2 * (int64_t)m->heads, m->head_dim));
    if (m->arch == VB_ARCH_QWEN3_5_MOE) VB_TRY(qwen3_5_moe(c));
    else VB_TRY(vb__json_i32(c->in, "intermediate_size", 1, VB_LIMIT_WIDTH, &m->intermediate, c->err));
    VB_TRY(vb__json_i32(c->in, "max_position_embeddings", 1, VB_LIMIT_CONTEXT, &m->max_position, c->err));
    VB_TRY(epsilon(c, -1));
    VB_TRY(qwen3_5_layers(c));
    VB_TRY(qwen3_5_delta(c));
    VB_TRY(rope(c, -1, 0.25));
    VB_TRY(vb__json_bool_or(c->in, "attention_bias", false, &m->attention_bias, c->err));
    m->o_bias = m->attention_bias;
    VB_TRY(vb__json_bool_or(c->in, "attn_output_gate", true, &gate, c->err));
    if (!gate)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%sattn_output_gate: is false, expected true (the gate is structural)",
                        c->in.where);
    bool dedicated;
    m->mtp_silent = vb__json_get(c->in, "mtp_num_hidden_layers") == NULL;
    VB_TRY(vb__json_i32_or(c->in, "mtp_num_hidden_layers", 0, 16, 0, &m->mtp_layers, c->err));
    VB_TRY(vb__json_bool_or(c->in, "mtp_use_dedicated_embeddings", false, &dedicated, c->err));
    if (dedicated)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%smtp_use_dedicated_embeddings: is true, expected false", c->in.where);
    m->qk_norm = m->output_gate = m->zero_centred_norms = true;
    return tied(c);
}

/* ---- Llama, Qwen 2, Qwen 3 ------------------------------------------------------------------------------ */

/* llama has no windows; one that use_sliding_window switches off is left over from another family. mistral's window is that
 * of every layer. */
static vb_err llama_layers(cfg *c) {
    vb__model_config *m = c->m;
    const char *type;
    bool use;
    json_t *list;
    VB_TRY(vb__json_string(c->top, "model_type", &type, c->err));
    VB_TRY(vb__json_i32_or(c->in, "sliding_window", 1, VB_LIMIT_CONTEXT, 0, &m->sliding_window, c->err));
    if (strcmp(type, "mistral") != 0) {
        VB_TRY(vb__json_bool_or(c->in, "use_sliding_window", true, &use, c->err));
        if (use && m->sliding_window > 0)
            return vb__fail(c->err, VB_E_UNSUPPORTED, "%ssliding_window: is set, expected null for this architecture", c->in.where);
        m->sliding_window = 0;
    }
    vb__layer_type all = m->sliding_window > 0 ? VB_LAYER_SLIDING : VB_LAYER_FULL;
    VB_TRY(vb__json_array_or(c->in, "layer_types", VB_LIMIT_LAYERS, &list, c->err));
    if (list != NULL) VB_TRY(layer_list(c, list));
    for (int32_t i = 0; i < m->layers; i++) {
        if (list != NULL && m->layer_type[i] != all)
            return vb__fail(c->err, VB_E_UNSUPPORTED, "%slayer_types[%d]: is \"%s\", expected %s_attention %s", c->in.where, i,
                            json_string_value(json_array_get(list, (size_t)i)), all == VB_LAYER_FULL ? "full" : "sliding",
                            all == VB_LAYER_FULL ? "as there is no sliding_window" : "as sliding_window is set");
        m->layer_type[i] = (uint8_t)all;
    }
    return VB_OK;
}

static vb_err parse_dense(cfg *c) {
    vb__model_config *m = c->m;
    VB_TRY(common(c, false));
    VB_TRY(vb__json_i32(c->in, "intermediate_size", 1, VB_LIMIT_WIDTH, &m->intermediate, c->err));
    VB_TRY(vb__json_i32(c->in, "max_position_embeddings", 1, VB_LIMIT_CONTEXT, &m->max_position, c->err));
    VB_TRY(epsilon(c, 1e-6));
    if (m->arch == VB_ARCH_QWEN3) {
        VB_TRY(head_dim_or(c, 128));
        VB_TRY(width_fits(c, "num_attention_heads * head_dim", m->heads, m->head_dim));
    } else {
        VB_TRY(head_dim(c));
    }
    VB_TRY(rope(c, 1e4, 1.0));
    if (m->rope.rotated != m->head_dim) /* the stock implementation of these does not read the key, and rotates all */
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%spartial_rotary_factor: leaves %d of %d dims unrotated, expected 1 or no such key",
                        c->in.where, m->head_dim - m->rope.rotated, m->head_dim);
    if (m->arch == VB_ARCH_QWEN2) {
        m->attention_bias = true;
    } else {
        VB_TRY(vb__json_bool_or(c->in, "attention_bias", false, &m->attention_bias, c->err));
        m->o_bias = m->attention_bias;
    }
    if (m->arch == VB_ARCH_LLAMA) {
        VB_TRY(vb__json_bool_or(c->in, "mlp_bias", false, &m->mlp_bias, c->err));
        VB_TRY(llama_layers(c));
    } else {
        VB_TRY(sliding(c));
    }
    m->qk_norm = m->arch == VB_ARCH_QWEN3;
    return tied(c);
}

/* ---- DFlash block drafters ------------------------------------------------------------------------------ */

static const char *const derivative_keys[] = {
    "markov_rank",      "markov_head_type", "enable_confidence_head", "confidence_head_with_markov", "runtime_block_size",
    "rope_is_neox_style", "conv_kernel_size", "conv_group_size",      "selector_rank",               "selector_top_k",
    "draft_vocab_size", "target_hidden_size",
};
static const char *const dflash_keys[] = {"mask_token_id", "target_layer_ids", "block_size", "num_target_layers", "causal"};

static vb_err dflash_refuse(cfg *c, const json_t *block) {
    for (size_t i = 0; i < sizeof derivative_keys / sizeof *derivative_keys; i++)
        if (vb__json_get(c->in, derivative_keys[i]) != NULL)
            return vb__fail(c->err, VB_E_UNSUPPORTED, "%s%s: belongs to a derivative of DFlash that is not supported",
                            c->in.where, derivative_keys[i]);
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)block, key, v) {
        bool known = false;
        for (size_t i = 0; i < sizeof dflash_keys / sizeof *dflash_keys; i++) known = known || strcmp(key, dflash_keys[i]) == 0;
        if (!known)
            return vb__fail(c->err, VB_E_UNSUPPORTED, "%sdflash_config.%s: is not supported, expected mask_token_id, "
                            "target_layer_ids, block_size, num_target_layers or causal", c->in.where, key);
    }
    return VB_OK;
}

/* One tap per drafter layer: N/2 for one layer, else round-half-even(1 + i*(N-4)/(D-1)), in integers. */
static vb_err dflash_default_taps(cfg *c) {
    vb__model_config *m = c->m;
    int32_t n = m->target_layers, d = m->layers;
    if (d > VB_MAX_TAPS || (d > 1 && n < d + 3))
        return vb__fail(c->err, VB_E_FORMAT, "%sdflash_config.target_layer_ids: is missing, expected it as %d layers of a target "
                        "with %d have no default", c->in.where, d, n);
    m->n_taps = d;
    if (d == 1) m->taps[0] = n / 2;
    for (int32_t i = 0; d > 1 && i < d; i++) {
        int32_t num = i * (n - 4), q = num / (d - 1), twice = 2 * (num % (d - 1));
        if (twice > d - 1 || (twice == d - 1 && (q + 1) % 2 != 0)) q++; /* the tie goes to an even 1 + q */
        m->taps[i] = 1 + q;
    }
    return VB_OK;
}

static vb_err dflash_taps(cfg *c, vb__json_at at) {
    vb__model_config *m = c->m;
    json_t *list;
    char b[80];
    VB_TRY(vb__json_array_or(at, "target_layer_ids", VB_MAX_TAPS, &list, c->err));
    if (list == NULL) return dflash_default_taps(c);
    m->n_taps = (int32_t)json_array_size(list);
    if (m->n_taps == 0)
        return vb__fail(c->err, VB_E_FORMAT, "%starget_layer_ids: is empty, expected 1..%d layers", at.where, VB_MAX_TAPS);
    for (int32_t i = 0; i < m->n_taps; i++) {
        const json_t *v = json_array_get(list, (size_t)i);
        int32_t lo = i == 0 ? 0 : m->taps[i - 1] + 1;
        if (!json_is_integer(v) || json_integer_value(v) < lo || json_integer_value(v) >= m->target_layers)
            return vb__fail(c->err, VB_E_FORMAT, "%starget_layer_ids[%d]: %s, expected strictly ascending layers below %d",
                            at.where, i, vb__json_is(v, b, sizeof b), m->target_layers);
        m->taps[i] = (int32_t)json_integer_value(v);
    }
    return VB_OK;
}

static vb_err dflash_layers(cfg *c) {
    vb__model_config *m = c->m;
    json_t *list;
    int32_t sliding_layers = 0;
    VB_TRY(vb__json_array_or(c->in, "layer_types", VB_LIMIT_LAYERS, &list, c->err));
    for (int32_t i = 0; i < m->layers; i++) m->layer_type[i] = VB_LAYER_FULL;
    if (list != NULL) VB_TRY(layer_list(c, list));
    VB_TRY(refuse_layer(c, VB_LAYER_LINEAR, "linear_attention"));
    for (int32_t i = 0; i < m->layers; i++) sliding_layers += m->layer_type[i] == VB_LAYER_SLIDING;
    if (sliding_layers == 0) return VB_OK;
    return vb__json_i32(c->in, "sliding_window", 1, VB_LIMIT_CONTEXT, &m->sliding_window, c->err);
}

/* A key that may sit inside dflash_config or beside it. */
static vb__json_at either(cfg *c, vb__json_at block, const char *key) {
    return vb__json_get(block, key) != NULL ? block : c->in;
}

static vb_err parse_dflash(cfg *c) {
    vb__model_config *m = c->m;
    json_t *block;
    char where[160];
    VB_TRY(vb__json_object_or(c->in, "dflash_config", &block, c->err));
    VB_TRY(dflash_refuse(c, block));
    (void)snprintf(where, sizeof where, "%sdflash_config.", c->in.where);
    vb__json_at at = {block, where};
    VB_TRY(common(c, true));
    VB_TRY(vb__json_i32(c->in, "intermediate_size", 1, VB_LIMIT_WIDTH, &m->intermediate, c->err));
    VB_TRY(head_dim(c));
    VB_TRY(epsilon(c, 1e-6));
    VB_TRY(vb__json_i32_or(c->in, "max_position_embeddings", 1, VB_LIMIT_CONTEXT, 0, &m->max_position, c->err));
    VB_TRY(vb__json_i32_or(either(c, at, "block_size"), "block_size", 2, 256, 16, &m->block_size, c->err));
    VB_TRY(vb__json_i32(either(c, at, "num_target_layers"), "num_target_layers", 1, VB_LIMIT_LAYERS, &m->target_layers, c->err));
    VB_TRY(vb__json_i32(at, "mask_token_id", 0, m->vocab - 1, &m->mask_token, c->err));
    VB_TRY(dflash_taps(c, at));
    VB_TRY(width_fits(c, "hidden_size * captured layers", m->hidden, m->n_taps));
    VB_TRY(dflash_layers(c));
    VB_TRY(rope(c, -1, 1.0));
    VB_TRY(vb__json_bool_or(c->in, "attention_bias", false, &m->attention_bias, c->err));
    m->o_bias = m->attention_bias;
    vb__json_at causal = vb__json_get(c->in, "is_causal") != NULL ? c->in : at;
    const char *key = causal.obj == c->in.obj ? "is_causal" : "causal";
    m->causal = -1;
    if (vb__json_get(causal, key) != NULL) {
        bool v;
        VB_TRY(vb__json_bool(causal, key, &v, c->err));
        m->causal = v;
    }
    m->qk_norm = true;
    return VB_OK;
}

/* ---- the document --------------------------------------------------------------------------------------- */

static bool is_dflash(cfg *c, const char **other) {
    const json_t *list = vb__json_get(c->top, "architectures");
    const char *first = json_string_value(json_array_get(list, 0));
    *other = NULL;
    if (first != NULL && strcmp(first, "DFlashDraftModel") == 0) return true;
    if (first != NULL && (strstr(first, "DFlash") != NULL || strstr(first, "DSpark") != NULL)) *other = first;
    return vb__json_get(c->top, "dflash_config") != NULL;
}

static vb_err find_arch(cfg *c) {
    const char *type, *other;
    bool drafter = is_dflash(c, &other);
    if (other != NULL)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%sarchitectures: is \"%s\", expected DFlashDraftModel", c->top.where, other);
    if (drafter) {
        c->m->arch = VB_ARCH_DFLASH;
        return VB_OK;
    }
    VB_TRY(vb__json_string(c->top, "model_type", &type, c->err));
    for (size_t i = 0; i < sizeof model_types / sizeof *model_types; i++)
        if (strcmp(type, model_types[i].model_type) == 0) {
            c->m->arch = model_types[i].arch;
            return VB_OK;
        }
    return vb__fail(c->err, VB_E_UNSUPPORTED, "%smodel_type: is \"%s\", expected qwen3_5, qwen3_5_moe, llama, mistral, qwen2, "
                    "qwen3 or a DFlash drafter", c->top.where, type);
}

vb_err vb__config_from_json(const struct json_t *root, const char *file, vb__model_config *out, vb_error *err) {
    vb__model_config m = {0};
    char top[128], inner[144];
    (void)snprintf(top, sizeof top, "%.100s: ", file);
    (void)snprintf(inner, sizeof inner, "%.100s: text_config.", file);
    cfg c = {.top = {root, top}, .in = {root, top}, .file = file, .m = &m, .err = err};
    if (!json_is_object(root)) return vb__fail(err, VB_E_FORMAT, "%s: is no object, expected one", file);
    VB_TRY(find_arch(&c));
    bool nests = m.arch == VB_ARCH_QWEN3_5 || m.arch == VB_ARCH_QWEN3_5_MOE;
    json_t *text = NULL;
    if (nests) VB_TRY(vb__json_object_or(c.top, "text_config", &text, err));
    if (text != NULL) {
        c.in = (vb__json_at){text, inner};
        const char *type;
        VB_TRY(vb__json_string_or(c.in, "model_type", NULL, &type, err));
        if (type != NULL && strcmp(type, m.arch == VB_ARCH_QWEN3_5 ? "qwen3_5_text" : "qwen3_5_moe_text") != 0)
            return vb__fail(err, VB_E_MISMATCH, "%smodel_type: is \"%s\", expected %s_text", inner, type, vb__arch_name(m.arch));
    }
    if (nests) VB_TRY(parse_qwen3_5(&c));
    else if (m.arch == VB_ARCH_DFLASH) VB_TRY(parse_dflash(&c));
    else VB_TRY(parse_dense(&c));
    if (m.arch != VB_ARCH_DFLASH) VB_TRY(end_tokens(&c, c.in));
    if (m.arch != VB_ARCH_DFLASH && text != NULL) VB_TRY(end_tokens(&c, c.top));
    *out = m;
    return VB_OK;
}

vb_err vb__config_parse(const char *text, size_t len, const char *file, vb__model_config *out, vb_error *err) {
    json_t *root;
    VB_TRY(vb__json_parse(text, len, VB_LIMIT_JSON_BYTES, file, &root, err));
    vb_err e = vb__config_from_json(root, file, out, err);
    json_decref(root);
    return e;
}
