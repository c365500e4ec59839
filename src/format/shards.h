/* The safetensors files of a model folder as one set of tensors: model.safetensors, or the shards that
 * model.safetensors.index.json names, and mtp.safetensors beside them if there is one. Names are unique over all. */
#ifndef VB_FORMAT_SHARDS_H
#define VB_FORMAT_SHARDS_H
#include "format/safetensors.h"

typedef struct vb__shard_tensor {
    const vb__st_tensor *t;
    const char *file;
    bool sidecar; /* from mtp.safetensors that the index does not name */
} vb__shard_tensor;

typedef struct vb__shards {
    vb__safetensors *files;
    int32_t n_files;
    vb__shard_tensor *tensors; /* file by file, in the order of their data */
    int32_t count;
} vb__shards;

/* VB_E_NOT_FOUND when the folder has no model files; VB_E_MISMATCH when index and shards disagree. */
VB_MUST_USE vb_err vb__shards_open(const char *folder, vb__shards *out, vb_error *err);
void vb__shards_close(vb__shards *s); /* a zeroed one too */

#endif
