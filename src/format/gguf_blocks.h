/* The tensor types of GGUF: block sizes, and what a row decodes to, as codes with scales and biases and as f32.
 * Source of the layouts: the published format (docs/formats.md restates them); MXFP4 exponents below 2 give scale +0. */
#ifndef VB_FORMAT_GGUF_BLOCKS_H
#define VB_FORMAT_GGUF_BLOCKS_H
#include <stdbool.h>
#include <stdint.h>

typedef enum vb__gguf_type { /* the numbers of the format */
    VB_GGUF_TYPE_F32 = 0,
    VB_GGUF_TYPE_F16 = 1,
    VB_GGUF_TYPE_Q4_0 = 2,
    VB_GGUF_TYPE_Q4_1 = 3,
    VB_GGUF_TYPE_Q5_0 = 6,
    VB_GGUF_TYPE_Q5_1 = 7,
    VB_GGUF_TYPE_Q8_0 = 8,
    VB_GGUF_TYPE_Q4_K = 12,
    VB_GGUF_TYPE_Q5_K = 13,
    VB_GGUF_TYPE_Q6_K = 14,
    VB_GGUF_TYPE_IQ4_NL = 20,
    VB_GGUF_TYPE_BF16 = 30,
    VB_GGUF_TYPE_MXFP4 = 39
} vb__gguf_type;

typedef struct vb__gguf_type_info {
    const char *name;
    int32_t block; /* elements */
    int32_t bytes; /* of a block */
    int32_t group; /* elements that share a scale; 0: a float type */
    bool bias;
} vb__gguf_type_info;

/* NULL for a type that is not supported (or none). */
const vb__gguf_type_info *vb__gguf_type_get(uint32_t type);
/* What the format calls a type, also one that is not supported, or was removed from it; NULL for a number that it does not have. */
const char *vb__gguf_type_name(uint32_t type);

/* One row of k elements (a multiple of the block) of a quantised type: value i is scales[i/group] * codes[i] (+
 * biases[i/group]), the product and the sum each rounded (docs/numerics.md fuses them in linear_q). codes: k; scales,
 * biases: k/group (biases may be NULL for a type without). */
void vb__gguf_codes(vb__gguf_type type, const uint8_t *row, int64_t k, int8_t *codes, float *scales, float *biases);
/* The same as f32 values, also for F32, F16 and BF16. */
void vb__gguf_decode(vb__gguf_type type, const uint8_t *row, int64_t k, float *out);

#endif
