/* A model on a device: weights bound to one backend, and the one forward pass over rows.
 *
 * A decoder of the supported families is a list of layers; each has a mixer (full attention or gated delta
 * net) and an MLP. Nothing here knows what rows are for: decode, verify, prefill and batches are all rows.
 * Formulas: docs/numerics.md; tensor names: docs/models.md. */
#ifndef VB_MODEL_MODEL_H
#define VB_MODEL_MODEL_H
#include "backend/backend.h"
#include "model/checkpoint.h"
#include "model/config.h"

/* One expert, or the shared one. */
typedef struct vb__expert {
    vb__weight *gate, *up, *down; /* (width, hidden) x 2, (hidden, width) */
} vb__expert;

/* Mixer and MLP weights of one layer. Pointers that a kind does not use are NULL. Vectors are device f32. */
typedef struct vb__layer {
    vb__layer_type type;
    float *norm_in, *norm_post; /* [hidden] */
    /* full attention */
    vb__weight *q, *k, *v, *o;            /* q: (heads*head_dim [*2 when gated], hidden) */
    float *q_bias, *k_bias, *v_bias, *o_bias;
    float *q_norm, *k_norm;               /* [head_dim] */
    vb__kv_layout kv;
    /* gated delta net */
    vb__weight *qkv, *z, *b, *a, *out;    /* (c, hidden), (nv*dv, hidden), (nv, hidden) x 2, (hidden, nv*dv) */
    float *conv;                          /* [c][taps] */
    float *neg_exp_a, *dt_bias;           /* [nv] */
    float *gated_norm;                    /* [dv] */
    vb__delta_layout delta;
    /* dense MLP */
    vb__weight *gate, *up, *down;         /* (intermediate, hidden) x 2, (hidden, intermediate) */
    float *gate_bias, *up_bias, *down_bias;
    /* mixture of experts */
    vb__weight *router;      /* (experts, hidden) */
    vb__expert *experts;     /* [cfg.experts] */
    vb__expert shared;
    vb__weight *shared_gate; /* (1, hidden) */
} vb__layer;

/* The MTP head: one full-attention layer behind a projection of [embedding ; hidden]. */
typedef struct vb__mtp {
    float *norm_embedding, *norm_hidden, *norm; /* [hidden] */
    vb__weight *fc;                             /* (hidden, 2*hidden) */
    vb__layer layer;
} vb__mtp;

typedef struct vb__model {
    vb__backend *be;   /* borrowed; outlives the model */
    vb__model_config cfg;
    vb__weight *embed; /* (vocab, hidden) */
    vb__weight *head;  /* (vocab, hidden); the embedding itself when tied */
    float *norm;       /* [hidden] */
    vb__layer *layers; /* [cfg.layers] */
    vb__mtp *mtp;      /* NULL: none */
    char mtp_missing[256]; /* first tensor of an announced MTP head that the file lacks; "" */
    float *rope_freqs; /* [rotated/2] */
    float rope_m;      /* factor on cos and sin */
    float attention_scale; /* head_dim^-1/2, computed in f64 and rounded once */
    bool head_chunk;   /* the head-chunk plan: tiles only, never bits */
    /* Sizes of a sequence. */
    int64_t page_bytes;   /* all attention layers (with MTP's), 64 positions */
    int64_t state_floats, conv_floats, tape_stride; /* tape_stride: floats of one tape row, all layers */
    int64_t weight_bytes; /* packed */
} vb__model;

/* Where weights come from: a checkpoint, or random numbers (benchmarks). The functions are those of
 * checkpoint.h; what they return stays valid until the next call of matrix. */
typedef struct vb__weight_source {
    void *self;
    const vb__model_config *cfg;
    const char *path;
    const char *missing_mtp; /* first tensor of an announced MTP head that is absent; NULL */
    bool (*has)(const void *self, const char *module);
    vb_err (*matrix)(void *self, const char *module, int32_t n, int32_t k, vb__matrix *out, vb_error *err);
    vb_err (*vector)(void *self, const char *module, vb__vector_kind kind, int64_t n, float *out, vb_error *err);
    vb_err (*finish)(void *self, vb_error *err);
} vb__weight_source;

void vb__checkpoint_source(vb__checkpoint *c, vb__weight_source *out);
/* Random weights of a named geometry ("qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-4b"; kind "q4", "q8", "bf16"), seeded, scaled so that
 * activations keep their size. Destroy with vb__random_source_fini. */
VB_MUST_USE vb_err vb__random_source_init(const char *geometry, const char *kind, vb__weight_source *out, vb_error *err);
void vb__random_source_fini(vb__weight_source *s);

/* Reads all weights of the source onto the backend; afterwards the source may be closed. progress may be NULL;
 * it returns false to cancel. */
typedef bool vb__load_progress(void *user, int64_t done, int64_t total);
VB_MUST_USE vb_err vb__model_load(const vb__weight_source *src, vb__backend *be, vb__load_progress *progress, void *user,
                                  vb__model **out, vb_error *err);
/* A block drafter into *m (zeroed by the caller): its own layers and norm, no embedding or head. On error the caller
 * still ends *m with vb__model_fini. */
VB_MUST_USE vb_err vb__model_load_drafter(const vb__weight_source *src, vb__backend *be, vb__model *m, vb__weight **fc,
                                          float **hidden_norm, vb_error *err);
void vb__model_fini(vb__model *m); /* a zeroed one too */
void vb__model_destroy(vb__model *m); /* accepts NULL */

/* Sizes that follow from a config alone (page, state, conv, tape); used by load and by `inspect`. */
void vb__model_layout(const vb__model_config *cfg, bool mtp, vb__model *sizes, vb__layer *layers, vb__layer *mtp_layer);

/* The widest input of any linear, for the backend's scratch. */
int32_t vb__model_max_k(const vb__model_config *cfg);

#endif
