/* Binding a checkpoint's tensors to the layers of a decoder, and the sizes that follow from a config. */
#include "model/model.h"
#include "base/alloc.h"
#include "base/log.h"
#include "model/rope_freqs.h"
#include <stdio.h>
#include <string.h>

/* ---- Sizes --------------------------------------------------------------------------------------------------- */

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

int32_t vb__model_max_k(const vb__model_config *c) {
    int64_t k = max64(c->hidden, c->intermediate);
    k = max64(k, (int64_t)c->heads * c->head_dim);
    k = max64(k, (int64_t)c->lin_nv * c->lin_dv);
    k = max64(k, (int64_t)c->expert_intermediate);
    k = max64(k, (int64_t)c->shared_intermediate);
    k = max64(k, (int64_t)c->n_taps * c->hidden);
    if (c->mtp_layers != 0) k = max64(k, 2 * (int64_t)c->hidden);
    return (int32_t)k;
}

void vb__model_layout(const vb__model_config *c, bool mtp, vb__model *m, vb__layer *layers, vb__layer *mtp_layer) {
    int64_t head_bytes = (int64_t)VB_PAGE_POSITIONS * c->head_dim * 4, page = 0, state = 0, conv = 0, tape = 0;
    int64_t ch = 2 * (int64_t)c->lin_nk * c->lin_dk + (int64_t)c->lin_nv * c->lin_dv;
    for (int32_t i = 0; i < c->layers + (mtp ? 1 : 0); i++) {
        vb__layer *l = i < c->layers ? &layers[i] : mtp_layer;
        l->type = i < c->layers ? (vb__layer_type)c->layer_type[i] : VB_LAYER_FULL;
        if (l->type != VB_LAYER_LINEAR) {
            l->kv = (vb__kv_layout){page, c->kv_heads, c->head_dim};
            page += head_bytes * c->kv_heads;
            continue;
        }
        l->delta = (vb__delta_layout){.nk = c->lin_nk, .nv = c->lin_nv, .dk = c->lin_dk, .dv = c->lin_dv,
                                      .taps = c->lin_taps, .state_off = state, .conv_off = conv, .tape_off = tape,
                                      .modulo_heads = c->lin_modulo_heads};
        state += (int64_t)c->lin_nv * c->lin_dk * c->lin_dv;
        conv += (c->lin_taps - 1) * ch;
        /* decay, k, delta, conv row; each layer's part starts on a cache line */
        tape += (c->lin_nv + (int64_t)c->lin_nk * c->lin_dk + (int64_t)c->lin_nv * c->lin_dv + ch + 15) & ~(int64_t)15;
    }
    for (int32_t i = 0; i < c->layers; i++) layers[i].delta.tape_stride = tape;
    m->page_bytes = (page + 63) & ~(int64_t)63;
    m->state_floats = state;
    m->conv_floats = conv;
    m->tape_stride = tape;
}

static bool source_has(const void *c, const char *module) { return vb__checkpoint_has(c, module); }
static vb_err source_matrix(void *c, const char *module, int32_t n, int32_t k, vb__matrix *out, vb_error *err) {
    return vb__checkpoint_matrix(c, module, n, k, out, err);
}
static vb_err source_vector(void *c, const char *module, vb__vector_kind kind, int64_t n, float *out, vb_error *err) {
    return vb__checkpoint_vector(c, module, kind, n, out, err);
}
static vb_err source_finish(void *c, vb_error *err) { return vb__checkpoint_finish(c, err); }

void vb__checkpoint_source(vb__checkpoint *c, vb__weight_source *out) {
    *out = (vb__weight_source){.self = c, .cfg = vb__checkpoint_config(c), .path = vb__checkpoint_path(c),
                               .missing_mtp = vb__checkpoint_missing_mtp(c), .has = source_has,
                               .matrix = source_matrix, .vector = source_vector, .finish = source_finish};
}

/* ---- Binding ---------------------------------------------------------------------------------------------------- */

typedef struct binder {
    const vb__weight_source *src;
    vb__model *m;
    vb__load_progress *progress;
    void *user;
    int64_t done, total;
    vb_error *err;
} binder;

static vb_err bind_matrix(binder *b, const char *name, int64_t n, int64_t k, vb__weight **out) {
    vb__matrix src;
    VB_TRY(b->src->matrix(b->src->self, name, (int32_t)n, (int32_t)k, &src, b->err));
    VB_TRY(b->m->be->ops->weight_create(b->m->be, &src, out, b->err));
    b->m->weight_bytes += (*out)->bytes;
    b->done += n * k;
    if (b->progress != NULL && !b->progress(b->user, b->done, b->total))
        return vb__fail(b->err, VB_E_CANCELLED, "loading was cancelled");
    return VB_OK;
}

static vb_err bind_vector(binder *b, const char *name, vb__vector_kind kind, int64_t n, float **out) {
    vb__backend *be = b->m->be;
    float *host = vb__calloc(VB_TAG_FORMAT, (size_t)n, sizeof *host);
    void *p = NULL;
    if (host == NULL) return vb__fail(b->err, VB_E_MEMORY, "%s: out of memory", name);
    vb_err e;
    VB_TRY_OUT(b->src->vector(b->src->self, name, kind, n, host, b->err));
    e = be->ops->alloc(be, (size_t)n * sizeof(float), &p);
    if (e != VB_OK) {
        (void)vb__fail(b->err, e, "%s: out of memory", name);
        goto out;
    }
    be->ops->upload(be, p, host, (size_t)n * sizeof(float));
    e = be->ops->sync(be, b->err);
    *out = p;
    b->m->weight_bytes += n * (int64_t)sizeof(float);
out:
    vb__free(host);
    return e;
}

/* "prefix.name" in a static-size buffer; names are ours and short. */
typedef struct name_buf {
    char s[128];
} name_buf;

static const char *name_of(name_buf *b, const char *prefix, const char *name) {
    (void)snprintf(b->s, sizeof b->s, "%s%s", prefix, name);
    return b->s;
}

static vb_err bind_bias(binder *b, const char *prefix, const char *module, int64_t n, float **out) {
    name_buf nb;
    const char *name = name_of(&nb, prefix, module);
    if (!b->src->has(b->src->self, name)) {
        const vb__model_config *c = &b->m->cfg;
        bool needed = strncmp(module, "mlp.", 4) == 0 ? c->mlp_bias : strstr(module, "o_proj") != NULL ? c->o_bias : c->attention_bias;
        if (!needed) return VB_OK; /* else the source says which file lacks it */
    }
    return bind_vector(b, name, VB_VECTOR_PLAIN, n, out);
}

static vb_err bind_attention(binder *b, const char *p, vb__layer *l) {
    const vb__model_config *c = &b->m->cfg;
    name_buf nb;
    int64_t qn = (int64_t)c->heads * c->head_dim, kvn = (int64_t)c->kv_heads * c->head_dim, h = c->hidden;
    int64_t q_rows = c->output_gate ? 2 * qn : qn;
    VB_TRY(bind_matrix(b, name_of(&nb, p, "self_attn.q_proj"), q_rows, h, &l->q));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "self_attn.k_proj"), kvn, h, &l->k));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "self_attn.v_proj"), kvn, h, &l->v));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "self_attn.o_proj"), h, qn, &l->o));
    VB_TRY(bind_bias(b, p, "self_attn.q_proj.bias", q_rows, &l->q_bias));
    VB_TRY(bind_bias(b, p, "self_attn.k_proj.bias", kvn, &l->k_bias));
    VB_TRY(bind_bias(b, p, "self_attn.v_proj.bias", kvn, &l->v_bias));
    if (c->arch != VB_ARCH_QWEN2) VB_TRY(bind_bias(b, p, "self_attn.o_proj.bias", h, &l->o_bias)); /* there it has no place */
    if (c->qk_norm) {
        VB_TRY(bind_vector(b, name_of(&nb, p, "self_attn.q_norm"), VB_VECTOR_NORM, c->head_dim, &l->q_norm));
        VB_TRY(bind_vector(b, name_of(&nb, p, "self_attn.k_norm"), VB_VECTOR_NORM, c->head_dim, &l->k_norm));
    }
    return VB_OK;
}

static vb_err bind_delta(binder *b, const char *p, vb__layer *l) {
    const vb__model_config *c = &b->m->cfg;
    name_buf nb;
    int64_t vd = (int64_t)c->lin_nv * c->lin_dv, ch = 2 * (int64_t)c->lin_nk * c->lin_dk + vd, h = c->hidden;
    VB_TRY(bind_matrix(b, name_of(&nb, p, "linear_attn.in_proj_qkv"), ch, h, &l->qkv));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "linear_attn.in_proj_z"), vd, h, &l->z));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "linear_attn.in_proj_b"), c->lin_nv, h, &l->b));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "linear_attn.in_proj_a"), c->lin_nv, h, &l->a));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "linear_attn.out_proj"), h, vd, &l->out));
    VB_TRY(bind_vector(b, name_of(&nb, p, "linear_attn.conv1d"), VB_VECTOR_CONV, ch * c->lin_taps, &l->conv));
    VB_TRY(bind_vector(b, name_of(&nb, p, "linear_attn.A_log"), VB_VECTOR_NEG_EXP, c->lin_nv, &l->neg_exp_a));
    VB_TRY(bind_vector(b, name_of(&nb, p, "linear_attn.dt_bias"), VB_VECTOR_PLAIN, c->lin_nv, &l->dt_bias));
    return bind_vector(b, name_of(&nb, p, "linear_attn.norm"), VB_VECTOR_PLAIN, c->lin_dv, &l->gated_norm);
}

static vb_err bind_expert(binder *b, const char *p, int64_t width, vb__expert *e) {
    int64_t h = b->m->cfg.hidden;
    name_buf nb;
    VB_TRY(bind_matrix(b, name_of(&nb, p, "gate_proj"), width, h, &e->gate));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "up_proj"), width, h, &e->up));
    return bind_matrix(b, name_of(&nb, p, "down_proj"), h, width, &e->down);
}

static vb_err bind_moe(binder *b, const char *p, vb__layer *l) {
    const vb__model_config *c = &b->m->cfg;
    name_buf nb;
    VB_TRY(bind_matrix(b, name_of(&nb, p, "mlp.gate"), c->experts, c->hidden, &l->router));
    l->experts = vb__calloc(VB_TAG_ENGINE, (size_t)c->experts, sizeof *l->experts);
    if (l->experts == NULL) return vb__fail(b->err, VB_E_MEMORY, "model: out of memory");
    for (int32_t e = 0; e < c->experts; e++) {
        name_buf one;
        (void)snprintf(one.s, sizeof one.s, "%smlp.experts.%d.", p, e);
        VB_TRY(bind_expert(b, one.s, c->expert_intermediate, &l->experts[e]));
    }
    VB_TRY(bind_expert(b, name_of(&nb, p, "mlp.shared_expert."), c->shared_intermediate, &l->shared));
    return bind_matrix(b, name_of(&nb, p, "mlp.shared_expert_gate"), 1, c->hidden, &l->shared_gate);
}

static vb_err bind_layer(binder *b, const char *p, vb__layer *l) {
    const vb__model_config *c = &b->m->cfg;
    name_buf nb;
    VB_TRY(bind_vector(b, name_of(&nb, p, "input_layernorm"), VB_VECTOR_NORM, c->hidden, &l->norm_in));
    VB_TRY(bind_vector(b, name_of(&nb, p, "post_attention_layernorm"), VB_VECTOR_NORM, c->hidden, &l->norm_post));
    if (l->type == VB_LAYER_LINEAR) VB_TRY(bind_delta(b, p, l));
    else VB_TRY(bind_attention(b, p, l));
    if (c->experts > 0) return bind_moe(b, p, l);
    VB_TRY(bind_matrix(b, name_of(&nb, p, "mlp.gate_proj"), c->intermediate, c->hidden, &l->gate));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "mlp.up_proj"), c->intermediate, c->hidden, &l->up));
    VB_TRY(bind_matrix(b, name_of(&nb, p, "mlp.down_proj"), c->hidden, c->intermediate, &l->down));
    if (c->arch != VB_ARCH_LLAMA) return VB_OK; /* only there a bias has a place */
    VB_TRY(bind_bias(b, p, "mlp.gate_proj.bias", c->intermediate, &l->gate_bias));
    VB_TRY(bind_bias(b, p, "mlp.up_proj.bias", c->intermediate, &l->up_bias));
    return bind_bias(b, p, "mlp.down_proj.bias", c->hidden, &l->down_bias);
}

static vb_err bind_mtp(binder *b) {
    const vb__model_config *c = &b->m->cfg;
    vb__mtp *t = b->m->mtp;
    VB_TRY(bind_vector(b, "mtp.pre_fc_norm_embedding", VB_VECTOR_NORM, c->hidden, &t->norm_embedding));
    VB_TRY(bind_vector(b, "mtp.pre_fc_norm_hidden", VB_VECTOR_NORM, c->hidden, &t->norm_hidden));
    VB_TRY(bind_vector(b, "mtp.norm", VB_VECTOR_NORM, c->hidden, &t->norm));
    VB_TRY(bind_matrix(b, "mtp.fc", c->hidden, 2 * (int64_t)c->hidden, &t->fc));
    return bind_layer(b, "mtp.layers.0.", &t->layer);
}

static vb_err bind_all(binder *b) {
    vb__model *m = b->m;
    const vb__model_config *c = &m->cfg;
    VB_TRY(bind_matrix(b, "embed_tokens", c->vocab, c->hidden, &m->embed));
    /* The file's own head wins over what the config says about tying. */
    if (b->src->has(b->src->self, "lm_head")) VB_TRY(bind_matrix(b, "lm_head", c->vocab, c->hidden, &m->head));
    else {
        if (!c->tied)
            vb__log(VB_LOG_WARN, "load", "model=%s head=absent tie_word_embeddings=false: the embedding serves as the head",
                    b->src->path);
        m->head = m->embed;
    }
    VB_TRY(bind_vector(b, "norm", VB_VECTOR_NORM, c->hidden, &m->norm));
    for (int32_t i = 0; i < c->layers; i++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "layers.%d.", i);
        VB_TRY(bind_layer(b, prefix, &m->layers[i]));
    }
    return m->mtp != NULL ? bind_mtp(b) : VB_OK;
}

static int64_t total_elements(const vb__model_config *c) {
    int64_t h = c->hidden, vd = (int64_t)c->lin_nv * c->lin_dv, ch = 2 * (int64_t)c->lin_nk * c->lin_dk + vd;
    int64_t q = (int64_t)c->heads * c->head_dim, kv = (int64_t)c->kv_heads * c->head_dim, sum = c->vocab * h;
    for (int32_t i = 0; i < c->layers; i++) {
        sum += 3 * h * (c->intermediate + c->shared_intermediate + (int64_t)c->experts * c->expert_intermediate);
        if (c->layer_type[i] == VB_LAYER_LINEAR) sum += h * (ch + 2 * vd + 2 * (int64_t)c->lin_nv);
        else sum += h * ((c->output_gate ? 3 : 2) * q + 2 * kv);
    }
    return sum;
}

/* What trunk and drafters have in common, before any tensor is read. */
static vb_err model_init(vb__model *m, const vb__model_config *cfg, vb__backend *be, bool mtp, vb_error *err) {
    m->be = be;
    m->cfg = *cfg;
    const vb__model_config *c = &m->cfg;
    float *freqs = vb__calloc(VB_TAG_ENGINE, (size_t)c->rope.rotated / 2 + 1, sizeof *freqs);
    m->layers = vb__calloc(VB_TAG_ENGINE, (size_t)c->layers, sizeof *m->layers);
    if (mtp) m->mtp = vb__calloc(VB_TAG_ENGINE, 1, sizeof *m->mtp);
    vb_err e = VB_OK;
    if (m->layers == NULL || (mtp && m->mtp == NULL) || freqs == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "model: out of memory");
        goto out;
    }
    vb__model_layout(c, mtp, m, m->layers, mtp ? &m->mtp->layer : NULL);
    m->attention_scale = (float)(1.0 / __builtin_sqrt((double)c->head_dim));
    m->head_chunk = true;
    VB_TRY_OUT(vb__rope_freqs(&c->rope, freqs, &m->rope_m, err));
    void *p = NULL;
    size_t bytes = (size_t)(c->rope.rotated / 2) * sizeof(float);
    e = be->ops->alloc(be, bytes + sizeof(float), &p);
    if (e != VB_OK) {
        (void)vb__fail(err, e, "model: out of memory");
        goto out;
    }
    m->rope_freqs = p;
    be->ops->upload(be, p, freqs, bytes);
    e = be->ops->sync(be, err);
out:
    vb__free(freqs);
    return e;
}

/* What files may say and this decoder does not do; in words, before a tensor seems to be missing. */
static vb_err refuse_unsupported(const vb__weight_source *src, vb_error *err) {
    const vb__model_config *c = src->cfg;
    if (c->arch == VB_ARCH_DFLASH)
        return vb__fail(err, VB_E_UNSUPPORTED, "%s: is a DFlash drafter, expected a model (a drafter goes with --draft dflash:PATH)",
                        src->path);
    return VB_OK;
}

vb_err vb__model_load(const vb__weight_source *src, vb__backend *be, vb__load_progress *progress, void *user,
                      vb__model **out, vb_error *err) {
    VB_TRY(refuse_unsupported(src, err));
    vb__model *m = vb__calloc(VB_TAG_ENGINE, 1, sizeof *m);
    if (m == NULL) return vb__fail(err, VB_E_MEMORY, "model: out of memory");
    vb_err e;
    if (src->missing_mtp != NULL) (void)snprintf(m->mtp_missing, sizeof m->mtp_missing, "%s", src->missing_mtp);
    VB_TRY_OUT(model_init(m, src->cfg, be, src->cfg->mtp_layers != 0 && src->missing_mtp == NULL, err));
    binder b = {.src = src, .m = m, .progress = progress, .user = user, .total = total_elements(&m->cfg), .err = err};
    VB_TRY_OUT(bind_all(&b));
    VB_TRY_OUT(src->finish(src->self, err));
    *out = m;
    return VB_OK;
out:
    vb__model_destroy(m);
    return e;
}

vb_err vb__model_load_drafter(const vb__weight_source *src, vb__backend *be, vb__model *m, vb__weight **fc,
                              float **hidden_norm, vb_error *err) {
    VB_TRY(model_init(m, src->cfg, be, false, err));
    const vb__model_config *c = &m->cfg;
    binder b = {.src = src, .m = m, .err = err};
    VB_TRY(bind_matrix(&b, "fc", c->hidden, (int64_t)c->n_taps * c->hidden, fc));
    VB_TRY(bind_vector(&b, "hidden_norm", VB_VECTOR_NORM, c->hidden, hidden_norm));
    VB_TRY(bind_vector(&b, "norm", VB_VECTOR_NORM, c->hidden, &m->norm));
    for (int32_t i = 0; i < c->layers; i++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "layers.%d.", i);
        VB_TRY(bind_layer(&b, prefix, &m->layers[i]));
    }
    return src->finish(src->self, err);
}

static void expert_destroy(vb__backend *be, const vb__expert *e) {
    be->ops->weight_destroy(be, e->gate);
    be->ops->weight_destroy(be, e->up);
    be->ops->weight_destroy(be, e->down);
}

static void layer_destroy(vb__backend *be, vb__layer *l, int32_t experts) {
    vb__weight *const w[] = {l->q, l->k, l->v, l->o, l->qkv, l->z, l->b, l->a, l->out, l->gate, l->up, l->down, l->router,
                             l->shared_gate};
    float *const f[] = {l->norm_in, l->norm_post, l->q_bias, l->k_bias, l->v_bias, l->o_bias, l->q_norm,
                        l->k_norm, l->conv, l->neg_exp_a, l->dt_bias, l->gated_norm, l->gate_bias, l->up_bias, l->down_bias};
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++) be->ops->weight_destroy(be, w[i]);
    for (size_t i = 0; i < sizeof f / sizeof f[0]; i++) be->ops->free(be, f[i]);
    expert_destroy(be, &l->shared);
    for (int32_t e = 0; l->experts != NULL && e < experts; e++) expert_destroy(be, &l->experts[e]);
    vb__free(l->experts);
}

void vb__model_destroy(vb__model *m) {
    if (m == NULL) return;
    vb__model_fini(m);
    vb__free(m);
}

void vb__model_fini(vb__model *m) {
    vb__backend *be = m->be;
    if (be == NULL) return;
    for (int32_t i = 0; m->layers != NULL && i < m->cfg.layers; i++) layer_destroy(be, &m->layers[i], m->cfg.experts);
    if (m->mtp != NULL) {
        be->ops->free(be, m->mtp->norm_embedding);
        be->ops->free(be, m->mtp->norm_hidden);
        be->ops->free(be, m->mtp->norm);
        be->ops->weight_destroy(be, m->mtp->fc);
        layer_destroy(be, &m->mtp->layer, m->cfg.experts);
    }
    if (m->head != m->embed) be->ops->weight_destroy(be, m->head);
    be->ops->weight_destroy(be, m->embed);
    be->ops->free(be, m->norm);
    be->ops->free(be, m->rope_freqs);
    vb__free(m->layers);
    vb__free(m->mtp);
    *m = (vb__model){0};
}
