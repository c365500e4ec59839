/* A GGUF file, version 2 or 3, little-endian: typed keys, then tensors. Everything is checked before anything is handed
 * out: lengths, types, dimension products, alignment, places in the data. Not here: what keys mean, and what blocks
 * decode to (format/gguf_blocks.h). */
#ifndef VB_FORMAT_GGUF_H
#define VB_FORMAT_GGUF_H
#include "base/arena.h"
#include "format/mapped.h"
#include <stdbool.h>
#include <stddef.h>

typedef enum vb__gguf_kind { /* the numbers of the format */
    VB_GGUF_U8,
    VB_GGUF_I8,
    VB_GGUF_U16,
    VB_GGUF_I16,
    VB_GGUF_U32,
    VB_GGUF_I32,
    VB_GGUF_F32,
    VB_GGUF_BOOL,
    VB_GGUF_STRING,
    VB_GGUF_ARRAY,
    VB_GGUF_U64,
    VB_GGUF_I64,
    VB_GGUF_F64,
    VB_GGUF_KINDS
} vb__gguf_kind;

typedef struct vb__gguf_key {
    const char *name; /* NUL-terminated */
    vb__gguf_kind kind;
    vb__gguf_kind element; /* of an array; arrays of arrays are refused */
    uint64_t count;        /* elements of an array; bytes of a string */
    const uint8_t *data;   /* into the mapping: the scalar, the string's bytes, the array's first element */
} vb__gguf_key;

enum { VB_GGUF_DIMS = 4 };

typedef struct vb__gguf_tensor {
    const char *name; /* NUL-terminated */
    int32_t type;     /* vb__gguf_type of format/gguf_blocks.h */
    int32_t dims;
    int64_t ne[VB_GGUF_DIMS]; /* innermost first: [out, in] is ne = {in, out}; 1 beyond dims */
    const uint8_t *data;
    uint64_t bytes;
} vb__gguf_tensor;

typedef struct vb__gguf {
    vb__mapped map;
    const char *file; /* last path component, for messages */
    uint32_t version, alignment;
    vb__gguf_key *keys; /* in the order of their names */
    int32_t n_keys;
    vb__gguf_tensor *tensors; /* in the order of their data */
    int32_t n_tensors;
    vb__arena arena;
} vb__gguf;

/* `map` is taken over on success only. Fuzzed. */
VB_MUST_USE vb_err vb__gguf_parse(const vb__mapped *map, const char *file, vb__gguf *out, vb_error *err);
VB_MUST_USE vb_err vb__gguf_open(const char *path, vb__gguf *out, vb_error *err);
void vb__gguf_close(vb__gguf *g); /* a zeroed one too */

const vb__gguf_key *vb__gguf_find(const vb__gguf *g, const char *name); /* NULL when absent */

/* Required keys: absent, of another kind or out of range is an error "FILE: key NAME: is ..., expected ...". Any integer
 * kind will do for an integer, any number for a number. */
VB_MUST_USE vb_err vb__gguf_int(const vb__gguf *g, const char *name, int64_t lo, int64_t hi, int64_t *out, vb_error *err);
VB_MUST_USE vb_err vb__gguf_i32(const vb__gguf *g, const char *name, int32_t lo, int32_t hi, int32_t *out, vb_error *err);
VB_MUST_USE vb_err vb__gguf_number(const vb__gguf *g, const char *name, double lo, double hi, double *out, vb_error *err);
VB_MUST_USE vb_err vb__gguf_bool(const vb__gguf *g, const char *name, bool *out, vb_error *err);
/* Bytes of the file, not NUL-terminated. */
VB_MUST_USE vb_err vb__gguf_bytes(const vb__gguf *g, const char *name, const char **out, size_t *len, vb_error *err);
/* An array of this element kind with at most max elements. */
VB_MUST_USE vb_err vb__gguf_array(const vb__gguf *g, const char *name, vb__gguf_kind element, uint64_t max,
                                  const vb__gguf_key **out, vb_error *err);
/* Walks a checked array of strings: *at starts at key->data and moves on. */
const char *vb__gguf_next_string(const uint8_t **at, size_t *len);

#endif
