/* Inside of a checkpoint, shared by the files that fill it (checkpoint.c: folders; gguf_model.c: GGUF files). */
#ifndef VB_MODEL_CHECKPOINT_IMPL_H
#define VB_MODEL_CHECKPOINT_IMPL_H
#include "base/buffer.h"
#include "format/gguf.h"
#include "format/shards.h"
#include "model/checkpoint.h"
#include <string.h>

typedef enum vb__ck_role { VB_CK_TEXT, VB_CK_VISION, VB_CK_IGNORED, VB_CK_UNKNOWN } vb__ck_role;

typedef struct vb__ck_tensor {
    const vb__st_tensor *t;
    const char *file;
    const char *canon; /* of folders a suffix of t->name; NULL unless VB_CK_TEXT */
    vb__ck_role role;
    int32_t block; /* vb__gguf_type of a block format; -1: t->dtype says it */
    bool used, mtp_known, raw_norms;
} vb__ck_tensor;

struct vb__checkpoint {
    char *path;
    vb__shards shards; /* of a folder */
    struct json_t *root;
    vb__buffer config_text;
    vb__gguf *ggufs; /* of a GGUF file: its parts */
    int32_t n_ggufs;
    vb__arena names; /* GGUF: tensors and canonical names */
    bool interleaved; /* rows of q and k alternate between the halves of a head (GGUF's llama) */
    const vb__st_tensor *last[3]; /* of the matrix asked for last: weight, scales, biases */
    uint8_t *scratch; /* rows put back in order, for the matrix asked for last */

    vb__model_config config;
    vb__ck_tensor *tensors;
    int32_t count;
    int32_t *by_canon; /* indices of text tensors, sorted by canonical name */
    int32_t n_canon;
    const char *prefix; /* of the text stack, static; GGUF: NULL */
    const char *mtp_prefix, *head_prefix;
    char missing_mtp[VB_LIMIT_TENSOR_NAME + 64];
    int32_t rounded; /* matrices whose values change when rounded to bf16 */
    const char *first_rounded;
};

enum { VB_CK_NAME_MAX = VB_LIMIT_TENSOR_NAME + 64 };

static inline bool vb__starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }
static inline bool vb__ends(const char *s, const char *tail) {
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}

/* Fills config, tensors and their canonical names from the file and its further parts. */
VB_MUST_USE vb_err vb__gguf_model_open(vb__checkpoint *c, const char *path, vb_error *err);
/* vb__checkpoint_open for a GGUF file of any name. */
VB_MUST_USE vb_err vb__checkpoint_open_gguf(const char *path, vb__checkpoint **out, vb_error *err);
/* A canonical name as GGUF spells it, for messages. */
const char *vb__gguf_model_spelled(const vb__checkpoint *c, const char *canon, char buf[VB_CK_NAME_MAX]);

#endif
