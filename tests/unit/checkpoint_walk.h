/* Test helper: asks a checkpoint for every module that its config implies, as a model would. */
#ifndef VB_TESTS_UNIT_CHECKPOINT_WALK_H
#define VB_TESTS_UNIT_CHECKPOINT_WALK_H
#include "model/checkpoint.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct walk {
    vb__checkpoint *c;
    vb_error *err;
    int matrices, vectors, affine;
} walk;

static inline vb_err walk_matrix(walk *w, int64_t n, int64_t k, const char *fmt, ...) {
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    vb__matrix m;
    VB_TRY(vb__checkpoint_matrix(w->c, name, (int32_t)n, (int32_t)k, &m, w->err));
    w->matrices++;
    w->affine += m.kind == VB_MATRIX_AFFINE;
    return VB_OK;
}

static inline vb_err walk_vector(walk *w, vb__vector_kind kind, int64_t n, const char *fmt, ...) {
    char name[256];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(name, sizeof name, fmt, ap);
    va_end(ap);
    float *v = malloc((size_t)n * sizeof *v);
    if (v == NULL) abort();
    vb_err e = vb__checkpoint_vector(w->c, name, kind, n, v, w->err);
    free(v);
    w->vectors++;
    return e;
}

static inline vb_err walk_linear(walk *w, bool bias, int64_t n, int64_t k, const char *prefix, const char *what) {
    VB_TRY(walk_matrix(w, n, k, "%s.%s", prefix, what));
    return bias ? walk_vector(w, VB_VECTOR_PLAIN, n, "%s.%s.bias", prefix, what) : VB_OK;
}

static inline vb_err walk_mlp(walk *w, const char *p, int64_t inner) {
    const vb__model_config *m = vb__checkpoint_config(w->c);
    VB_TRY(walk_linear(w, m->mlp_bias, inner, m->hidden, p, "gate_proj"));
    VB_TRY(walk_linear(w, m->mlp_bias, inner, m->hidden, p, "up_proj"));
    return walk_linear(w, m->mlp_bias, m->hidden, inner, p, "down_proj");
}

static inline vb_err walk_layer(walk *w, const char *p, bool linear) {
    const vb__model_config *m = vb__checkpoint_config(w->c);
    char sub[200];
    int64_t h = m->hidden, q = (int64_t)m->heads * m->head_dim, kv = (int64_t)m->kv_heads * m->head_dim;
    VB_TRY(walk_vector(w, VB_VECTOR_NORM, h, "%s.input_layernorm", p));
    VB_TRY(walk_vector(w, VB_VECTOR_NORM, h, "%s.post_attention_layernorm", p));
    if (linear) {
        int64_t vd = (int64_t)m->lin_nv * m->lin_dv, c = 2 * (int64_t)m->lin_nk * m->lin_dk + vd;
        (void)snprintf(sub, sizeof sub, "%s.linear_attn", p);
        VB_TRY(walk_linear(w, false, c, h, sub, "in_proj_qkv"));
        VB_TRY(walk_linear(w, false, vd, h, sub, "in_proj_z"));
        VB_TRY(walk_linear(w, false, m->lin_nv, h, sub, "in_proj_a"));
        VB_TRY(walk_linear(w, false, m->lin_nv, h, sub, "in_proj_b"));
        VB_TRY(walk_linear(w, false, h, vd, sub, "out_proj"));
        VB_TRY(walk_vector(w, VB_VECTOR_CONV, c * m->lin_taps, "%s.conv1d", sub));
        VB_TRY(walk_vector(w, VB_VECTOR_NEG_EXP, m->lin_nv, "%s.A_log", sub));
        VB_TRY(walk_vector(w, VB_VECTOR_PLAIN, m->lin_nv, "%s.dt_bias", sub));
        VB_TRY(walk_vector(w, VB_VECTOR_PLAIN, m->lin_dv, "%s.norm", sub));
    } else {
        (void)snprintf(sub, sizeof sub, "%s.self_attn", p);
        VB_TRY(walk_linear(w, m->attention_bias, m->output_gate ? 2 * q : q, h, sub, "q_proj"));
        VB_TRY(walk_linear(w, m->attention_bias, kv, h, sub, "k_proj"));
        VB_TRY(walk_linear(w, m->attention_bias, kv, h, sub, "v_proj"));
        VB_TRY(walk_linear(w, m->o_bias, h, q, sub, "o_proj"));
        if (m->qk_norm) VB_TRY(walk_vector(w, VB_VECTOR_NORM, m->head_dim, "%s.q_norm", sub));
        if (m->qk_norm) VB_TRY(walk_vector(w, VB_VECTOR_NORM, m->head_dim, "%s.k_norm", sub));
    }
    (void)snprintf(sub, sizeof sub, "%s.mlp", p);
    if (m->experts == 0) return walk_mlp(w, sub, m->intermediate);
    VB_TRY(walk_linear(w, false, m->experts, h, sub, "gate"));
    VB_TRY(walk_linear(w, false, 1, h, sub, "shared_expert_gate"));
    for (int e = 0; e < m->experts; e++) {
        (void)snprintf(sub, sizeof sub, "%s.mlp.experts.%d", p, e);
        VB_TRY(walk_mlp(w, sub, m->expert_intermediate));
    }
    (void)snprintf(sub, sizeof sub, "%s.mlp.shared_expert", p);
    return walk_mlp(w, sub, m->shared_intermediate);
}

static inline vb_err walk_all(walk *w) {
    const vb__model_config *m = vb__checkpoint_config(w->c);
    char p[64];
    if (m->arch == VB_ARCH_DFLASH) {
        VB_TRY(walk_matrix(w, m->hidden, (int64_t)m->hidden * m->n_taps, "fc"));
        VB_TRY(walk_vector(w, VB_VECTOR_NORM, m->hidden, "hidden_norm"));
    } else {
        VB_TRY(walk_matrix(w, m->vocab, m->hidden, "embed_tokens"));
    }
    if (vb__checkpoint_has(w->c, "lm_head")) VB_TRY(walk_matrix(w, m->vocab, m->hidden, "lm_head"));
    VB_TRY(walk_vector(w, VB_VECTOR_NORM, m->hidden, "norm"));
    for (int i = 0; i < m->layers; i++) {
        (void)snprintf(p, sizeof p, "layers.%d", i);
        VB_TRY(walk_layer(w, p, m->layer_type[i] == VB_LAYER_LINEAR));
    }
    for (int i = 0; i < m->mtp_layers && vb__checkpoint_missing_mtp(w->c) == NULL; i++) {
        if (i == 0) {
            VB_TRY(walk_matrix(w, m->hidden, 2 * (int64_t)m->hidden, "mtp.fc"));
            VB_TRY(walk_vector(w, VB_VECTOR_NORM, m->hidden, "mtp.pre_fc_norm_embedding"));
            VB_TRY(walk_vector(w, VB_VECTOR_NORM, m->hidden, "mtp.pre_fc_norm_hidden"));
            VB_TRY(walk_vector(w, VB_VECTOR_NORM, m->hidden, "mtp.norm"));
        }
        (void)snprintf(p, sizeof p, "mtp.layers.%d", i);
        VB_TRY(walk_layer(w, p, false));
    }
    return vb__checkpoint_finish(w->c, w->err);
}

#endif
