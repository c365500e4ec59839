/* Matrices: as a file stores them (vb__matrix, borrowed) and as a device holds them (vb__weight, opaque to
 * models). Packing changes layout, never values. */
#ifndef VB_BACKEND_WEIGHT_H
#define VB_BACKEND_WEIGHT_H
#include <stdint.h>

typedef enum vb__matrix_kind {
    VB_MATRIX_BF16, /* data: n rows of k bf16 */
    VB_MATRIX_F16,  /* rounded once to bf16 when packed */
    VB_MATRIX_F32,  /* the same */
    VB_MATRIX_AFFINE, /* MLX: data u32 words [n][k*bits/32], element 0 in the lowest bits; scales, biases per group */
    VB_MATRIX_BLOCKS, /* rows of a block format that the backend does not know: unpack turns a row into codes */
    VB_MATRIX_KINDS
} vb__matrix_kind;

typedef enum vb__scale_kind { VB_SCALE_BF16, VB_SCALE_F16, VB_SCALE_F32 } vb__scale_kind;

/* (n, k): n output rows of k inputs, row-major as in the file. Pointers may be unaligned. */
typedef struct vb__matrix {
    vb__matrix_kind kind;
    int32_t n, k;
    const void *data;
    int32_t bits, group;        /* AFFINE: 2,3,4,5,6,8 and 32, 64 or 128 */
    vb__scale_kind scale_kind;  /* AFFINE, BLOCKS */
    const void *scales, *biases; /* AFFINE: [n][k/group] each */
    const char *name;           /* for error messages */
    /* BLOCKS: row o at data + o*row_bytes gives k codes, and k/group scales and (has_bias) biases; group may be 16 as well.
     * Codes lie in -offset .. 2^bits - 1 - offset; scale_kind names a type that holds scales and biases exactly. */
    int64_t row_bytes;
    int32_t format, offset; /* format: passed through to unpack */
    int32_t has_bias;
    void (*unpack)(int32_t format, const void *row, int32_t k, int8_t *codes, float *scales, float *biases);
} vb__matrix;

typedef struct vb__weight {
    int32_t n, k;
    int32_t quantised; /* 0: linear_bf16; 1: linear_q */
    int32_t bits, group;
    int64_t bytes;     /* packed bytes: what a product must read */
    /* The rest belongs to the device that packed it. */
} vb__weight;

#endif
