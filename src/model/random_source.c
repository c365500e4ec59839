/* Random weights of a named geometry, so that speed can be measured without a download. The numbers mean
 * nothing; their sizes, types and magnitudes are those of a real checkpoint. */
#include "base/alloc.h"
#include "model/model.h"
#include <stdio.h>
#include <string.h>

typedef struct geometry {
    const char *name;
    int32_t layers, hidden, intermediate, heads, kv_heads, nv;
} geometry;

/* Sizes of the released models (docs/models.md); head_dim 256, 16 key heads of 128, tied embeddings. */
static const geometry geometries[] = {
    {"qwen3.5-0.8b", 24, 1024, 3584, 8, 2, 16},
    {"qwen3.5-2b", 24, 2048, 6144, 8, 2, 16},
    {"qwen3.5-4b", 32, 2560, 9216, 16, 4, 32},
};

typedef struct random_source {
    vb__model_config cfg;
    int32_t bits; /* 4, 8 or 0 for bf16 */
    uint64_t state;
    uint8_t *data; /* of the last matrix, reused */
    size_t cap;
} random_source;

static uint64_t next(uint64_t *s) { /* splitmix64 */
    uint64_t z = (*s += 0x9e3779b97f4a7c15u);
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static uint16_t bf16_bits(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)(u >> 16);
}

static bool random_has(const void *self, const char *module) {
    (void)self;
    return strstr(module, ".bias") == NULL && strcmp(module, "lm_head") != 0 && strncmp(module, "mtp.", 4) != 0;
}

static vb_err random_matrix(void *self, const char *module, int32_t n, int32_t k, vb__matrix *out, vb_error *err) {
    random_source *r = self;
    const int32_t group = 64;
    size_t elements = (size_t)n * (size_t)k, codes = r->bits != 0 ? elements * (size_t)r->bits / 8 : elements * 2;
    size_t scales = r->bits != 0 ? elements / (size_t)group * 2 : 0, need = codes + 2 * scales + 16;
    if (need > r->cap) {
        vb__free(r->data);
        r->data = vb__alloc_aligned(VB_TAG_FORMAT, need);
        r->cap = r->data == NULL ? 0 : need;
        if (r->data == NULL) return vb__fail(err, VB_E_MEMORY, "%s: out of memory for random weights", module);
    }
    float unit = 1.0f / (float)__builtin_sqrt((double)k); /* standard deviation of a weight */
    if (r->bits == 0) {
        uint16_t *w = (uint16_t *)(void *)r->data;
        uint16_t top = bf16_bits(unit);
        for (size_t i = 0; i < elements; i += 4) { /* magnitudes in [1, 2) * unit, random sign */
            uint64_t z = next(&r->state);
            for (size_t j = 0; j < 4 && i + j < elements; j++, z >>= 16)
                w[i + j] = (uint16_t)(((top & 0x7f80) | (z & 0x7f)) | (z & 0x8000));
        }
        *out = (vb__matrix){.kind = VB_MATRIX_BF16, .n = n, .k = k, .data = w, .name = module};
        return VB_OK;
    }
    for (size_t i = 0; i < codes; i += 8) {
        uint64_t z = next(&r->state);
        memcpy(r->data + i, &z, 8);
    }
    float levels = (float)((1 << r->bits) - 1), scale = unit * 3.46f / levels; /* uniform: deviation = range / 3.46 */
    uint16_t *sc = (uint16_t *)(void *)(r->data + codes), *bi = (uint16_t *)(void *)(r->data + codes + scales);
    for (size_t i = 0; i < scales / 2; i++) {
        sc[i] = bf16_bits(scale);
        bi[i] = bf16_bits(-scale * levels / 2);
    }
    *out = (vb__matrix){.kind = VB_MATRIX_AFFINE, .n = n, .k = k, .data = r->data, .bits = r->bits, .group = group,
                        .scale_kind = VB_SCALE_BF16, .scales = sc, .biases = bi, .name = module};
    return VB_OK;
}

static vb_err random_vector(void *self, const char *module, vb__vector_kind kind, int64_t n, float *out, vb_error *err) {
    (void)module;
    (void)err;
    random_source *r = self;
    for (int64_t i = 0; i < n; i++) {
        float u = (float)(next(&r->state) >> 40) * 0x1p-24f; /* [0, 1) */
        switch (kind) {
        case VB_VECTOR_NORM: out[i] = 0.75f + 0.5f * u; break;
        case VB_VECTOR_CONV: out[i] = u - 0.5f; break;
        case VB_VECTOR_NEG_EXP: out[i] = -0.1f - u; break;
        case VB_VECTOR_PLAIN: out[i] = 0.5f + 0.5f * u; break;
        }
    }
    return VB_OK;
}

static vb_err random_finish(void *self, vb_error *err) {
    (void)self;
    (void)err;
    return VB_OK;
}

vb_err vb__random_source_init(const char *name, const char *kind, vb__weight_source *out, vb_error *err) {
    const geometry *g = NULL;
    for (size_t i = 0; i < sizeof geometries / sizeof geometries[0]; i++)
        if (strcmp(geometries[i].name, name) == 0) g = &geometries[i];
    if (g == NULL)
        return vb__fail(err, VB_E_ARGUMENT, "--geometry: unknown '%s', expected qwen3.5-0.8b, qwen3.5-2b or qwen3.5-4b", name);
    int32_t bits = strcmp(kind, "q4") == 0 ? 4 : strcmp(kind, "q8") == 0 ? 8 : strcmp(kind, "bf16") == 0 ? 0 : -1;
    if (bits < 0) return vb__fail(err, VB_E_ARGUMENT, "--weights: unknown '%s', expected q4, q8 or bf16", kind);
    random_source *r = vb__calloc(VB_TAG_ENGINE, 1, sizeof *r);
    if (r == NULL) return vb__fail(err, VB_E_MEMORY, "random weights: out of memory");
    r->bits = bits;
    r->state = 1;
    vb__model_config *c = &r->cfg;
    c->arch = VB_ARCH_QWEN3_5;
    c->vocab = 248320;
    c->hidden = g->hidden;
    c->intermediate = g->intermediate;
    c->layers = g->layers;
    for (int32_t i = 0; i < g->layers; i++)
        c->layer_type[i] = (i + 1) % 4 == 0 ? VB_LAYER_FULL : VB_LAYER_LINEAR;
    c->heads = g->heads;
    c->kv_heads = g->kv_heads;
    c->head_dim = 256;
    c->qk_norm = c->output_gate = c->zero_centred_norms = c->tied = true;
    c->eps = 1e-6f;
    c->max_position = 262144;
    c->rope = (vb__rope_config){.type = VB_ROPE_DEFAULT, .theta = 1e7, .rotated = 64};
    c->lin_nk = 16;
    c->lin_nv = g->nv;
    c->lin_dk = c->lin_dv = 128;
    c->lin_taps = 4;
    *out = (vb__weight_source){.self = r, .cfg = c, .path = g->name, .has = random_has, .matrix = random_matrix,
                               .vector = random_vector, .finish = random_finish};
    return VB_OK;
}

void vb__random_source_fini(vb__weight_source *s) {
    random_source *r = s->self;
    if (r == NULL) return;
    vb__free(r->data);
    vb__free(r);
    s->self = NULL;
}
