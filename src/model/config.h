/* What a model is: the numbers of its config.json, checked and complete. One struct for all families; fields
 * that a family does not have are 0. */
#ifndef VB_MODEL_CONFIG_H
#define VB_MODEL_CONFIG_H
#include "base/error.h"
#include "base/limits.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum vb__arch {
    VB_ARCH_QWEN3_5, /* gated delta net + gated full attention, dense MLP */
    VB_ARCH_QWEN3_5_MOE,
    VB_ARCH_LLAMA,
    VB_ARCH_QWEN2,
    VB_ARCH_QWEN3,
    VB_ARCH_DFLASH
} vb__arch;

typedef enum vb__layer_type { VB_LAYER_LINEAR, VB_LAYER_FULL, VB_LAYER_SLIDING } vb__layer_type;
typedef enum vb__rope_type {
    VB_ROPE_DEFAULT,
    VB_ROPE_LINEAR,
    VB_ROPE_LLAMA3,
    VB_ROPE_YARN,
    VB_ROPE_DIVISORS /* GGUF: every frequency has a divisor of its own */
} vb__rope_type;

enum { VB_MAX_ROPE_DIVISORS = 512 };

typedef struct vb__rope_config {
    vb__rope_type type;
    double theta;
    int32_t rotated; /* dims R, even */
    double factor, low_freq_factor, high_freq_factor, original_max; /* linear: factor; llama3: all; yarn: factor, original_max */
    double beta_fast, beta_slow, attention_factor; /* yarn; attention_factor < 0: absent */
    double mscale, mscale_all_dim;                 /* yarn; 0: absent */
    bool truncate;                                 /* yarn, default true */
    float divisors[VB_MAX_ROPE_DIVISORS];          /* divisors: [rotated/2], positive */
} vb__rope_config;

enum { VB_MAX_EOS = 16, VB_MAX_TAPS = 64 };

typedef struct vb__model_config {
    vb__arch arch;
    int32_t vocab, hidden, intermediate, layers;
    uint8_t layer_type[VB_LIMIT_LAYERS]; /* vb__layer_type */
    int32_t heads, kv_heads, head_dim;
    bool attention_bias; /* on q, k and v */
    bool o_bias, mlp_bias; /* on o_proj; on gate, up and down */
    bool qk_norm, output_gate;
    bool zero_centred_norms; /* the architecture's norms multiply by 1 + w */
    float eps;
    int32_t max_position;
    vb__rope_config rope;
    int32_t sliding_window; /* 0: none */
    /* delta net */
    int32_t lin_nk, lin_nv, lin_dk, lin_dv, lin_taps;
    bool lin_modulo_heads;
    /* mixture of experts */
    int32_t experts, experts_used, expert_intermediate, shared_intermediate;
    bool tied; /* as the config says; the file's lm_head wins */
    int32_t mtp_layers; /* as announced; the file may lack them (vb__checkpoint_missing_mtp) */
    bool mtp_silent;    /* the config has no key for it: the file decides */
    /* block drafter */
    int32_t block_size, target_layers, mask_token, n_taps;
    int32_t taps[VB_MAX_TAPS];
    int32_t causal; /* of every layer: 1, 0; -1: the config is silent (causal exactly in sliding layers) */
    int32_t eos[VB_MAX_EOS], n_eos; /* of config.json only */
} vb__model_config;

/* From the text of a config.json; `file` names it in errors. Every key that the architecture needs must be there
 * and in range; values that we do not implement are refused by name. Fuzzed. */
VB_MUST_USE vb_err vb__config_parse(const char *text, size_t len, const char *file, vb__model_config *out,
                                    vb_error *err);
struct json_t;
/* The same from a parsed document. */
VB_MUST_USE vb_err vb__config_from_json(const struct json_t *root, const char *file, vb__model_config *out,
                                        vb_error *err);
const char *vb__arch_name(vb__arch arch); /* "qwen3_5", ...; static */

#endif
