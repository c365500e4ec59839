/* A checkpoint on disk, whatever its layout: config, and tensors by canonical name. Families ask for what
 * their config implies; what nobody asked for is an error at the end. Nothing here runs a model.
 *
 * Canonical module names are those of the Hugging Face text model without its prefix: "embed_tokens", "norm",
 * "lm_head", "layers.3.self_attn.q_proj", "layers.0.linear_attn.in_proj_qkv", "layers.0.linear_attn.conv1d",
 * "layers.0.linear_attn.A_log", "layers.0.linear_attn.dt_bias", "mtp.fc", "mtp.layers.0.mlp.up_proj", ...;
 * biases are vectors "layers.0.self_attn.q_proj.bias". Block drafters: "fc", "hidden_norm", "layers.0...", "norm". */
#ifndef VB_MODEL_CHECKPOINT_H
#define VB_MODEL_CHECKPOINT_H
#include "backend/weight.h"
#include "model/config.h"

typedef struct vb__checkpoint vb__checkpoint;

/* path: a folder (Hugging Face or MLX layout) or a .gguf file (the first, of several). Maps the files, checks every header (names, shapes, offsets,
 * holes, index) and reads the config; reads no tensor data. Errors name file and tensor. */
VB_MUST_USE vb_err vb__checkpoint_open(const char *path, vb__checkpoint **out, vb_error *err);
void vb__checkpoint_close(vb__checkpoint *c); /* unmaps; accepts NULL */
const vb__model_config *vb__checkpoint_config(const vb__checkpoint *c); /* borrowed */
const char *vb__checkpoint_path(const vb__checkpoint *c);

/* The GGUF file behind it, for its tokenizer and template; NULL for a folder. */
const struct vb__gguf *vb__checkpoint_gguf(const vb__checkpoint *c);

bool vb__checkpoint_has(const vb__checkpoint *c, const char *module);
/* Name, as the file would spell it, of the first tensor of the MTP head that is announced but absent; NULL if
 * complete (or not announced). */
const char *vb__checkpoint_missing_mtp(const vb__checkpoint *c);

/* The (n, k) matrix of a module; marks its tensors as used. Pointers stay valid until the next matrix is asked for. */
VB_MUST_USE vb_err vb__checkpoint_matrix(vb__checkpoint *c, const char *module, int32_t n, int32_t k,
                                         vb__matrix *out, vb_error *err);

typedef enum vb__vector_kind {
    VB_VECTOR_PLAIN,
    VB_VECTOR_NORM,       /* zero-centred norms of raw files become 1 + w, rounded once */
    VB_VECTOR_CONV,       /* [C][taps], whatever the layout in the file */
    VB_VECTOR_NEG_EXP     /* A_log becomes -exp(A_log) (GGUF stores that already) */
} vb__vector_kind;
/* n floats (for CONV: n = C*taps) of the tensor `module` (+ ".weight" where files spell it so). */
VB_MUST_USE vb_err vb__checkpoint_vector(vb__checkpoint *c, const char *module, vb__vector_kind kind, int64_t n,
                                         float *out, vb_error *err);
/* After all modules were asked for: an error naming the first tensor left over (vision tensors are skipped
 * with one log line). */
VB_MUST_USE vb_err vb__checkpoint_finish(vb__checkpoint *c, vb_error *err);
VB_MUST_USE vb_err vb__checkpoint_leftover(const vb__checkpoint *c, vb_error *err); /* the same without a log line */

/* Experts are asked for one by one, "layers.0.mlp.experts.7.gate_proj", whether the file numbers them or keeps them
 * in one tensor (experts.gate_up_proj, switch_mlp.gate_proj). */

typedef struct vb__tensor_info { /* for `inspect` */
    const char *name, *dtype, *file; /* borrowed until close */
    int64_t shape[VB_LIMIT_TENSOR_DIMS];
    int32_t dims;
    int64_t bytes;
    const char *canonical; /* with its ending (".weight", ".scales", ...); NULL: no part of the text model */
    const void *data;      /* borrowed until close; any alignment */
} vb__tensor_info;
/* True when zero-centred norms of this tensor (by index) are stored as w, so that 1 + w applies. */
bool vb__checkpoint_norm_is_raw(const vb__checkpoint *c, int32_t i);
int32_t vb__checkpoint_tensor_count(const vb__checkpoint *c);
void vb__checkpoint_tensor(const vb__checkpoint *c, int32_t i, vb__tensor_info *out);
/* XXH3-128 of all tensor data and the config, hex (33 bytes with NUL); reads every byte. */
void vb__checkpoint_fingerprint(const vb__checkpoint *c, char out[33]);

#endif
