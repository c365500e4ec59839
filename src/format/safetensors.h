/* One safetensors file: u64 header length, a JSON header, then the tensors' bytes without hole, overlap or rest.
 * Everything is checked before anything is handed out. Not here: several files (format/shards.h), meaning. */
#ifndef VB_FORMAT_SAFETENSORS_H
#define VB_FORMAT_SAFETENSORS_H
#include "base/arena.h"
#include "base/limits.h"
#include "format/mapped.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum vb__dtype {
    VB_DTYPE_BOOL,
    VB_DTYPE_U8,
    VB_DTYPE_I8,
    VB_DTYPE_F8_E4M3,
    VB_DTYPE_F8_E5M2,
    VB_DTYPE_U16,
    VB_DTYPE_I16,
    VB_DTYPE_F16,
    VB_DTYPE_BF16,
    VB_DTYPE_U32,
    VB_DTYPE_I32,
    VB_DTYPE_F32,
    VB_DTYPE_U64,
    VB_DTYPE_I64,
    VB_DTYPE_F64,
    VB_DTYPE_COUNT
} vb__dtype;

const char *vb__dtype_name(vb__dtype t); /* as headers spell it; static */
size_t vb__dtype_size(vb__dtype t);

typedef struct vb__st_tensor {
    const char *name;
    vb__dtype dtype;
    int32_t dims; /* 0: a scalar */
    int64_t shape[VB_LIMIT_TENSOR_DIMS];
    const uint8_t *data; /* into the mapping, any alignment */
    uint64_t bytes;
} vb__st_tensor;

typedef struct vb__safetensors {
    vb__mapped map;
    const char *file; /* last path component, for messages */
    vb__st_tensor *tensors; /* in the order of their data */
    int32_t count;
    vb__arena arena;
} vb__safetensors;

/* Checks a file's bytes; `map` is taken over on success only. `file` is copied. Fuzzed. */
VB_MUST_USE vb_err vb__safetensors_parse(const vb__mapped *map, const char *file, vb__safetensors *out, vb_error *err);
VB_MUST_USE vb_err vb__safetensors_open(const char *path, vb__safetensors *out, vb_error *err);
void vb__safetensors_close(vb__safetensors *s); /* a zeroed one too */

#endif
