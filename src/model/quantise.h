/* Affine quantisation: a folder of bf16, f16 or f32 weights becomes one of the MLX layout (affine, 2 to 8 bits). The
 * result depends on the source and the options only, not on threads or machine. */
#ifndef VB_MODEL_QUANTISE_H
#define VB_MODEL_QUANTISE_H
#include "base/pool.h"
#include <stdbool.h>

struct vb__checkpoint;

typedef struct vb__quantise_options {
    int32_t bits;  /* 2 to 8 */
    int32_t group; /* 32, 64 or 128 */
    vb__pool *pool;
    /* Called now and then with source bytes done and in all; false stops the work (VB_E_CANCELLED). May be NULL. */
    bool (*progress)(void *user, int64_t done, int64_t total);
    void *user;
    /* Called with the source before anything is written; an error ends the work. May be NULL. */
    vb_err (*check)(struct vb__checkpoint *c, vb_error *err);
} vb__quantise_options;

typedef struct vb__quantise_result {
    int32_t matrices;          /* quantised; a stack of experts counts as one */
    int64_t weights;           /* values in them */
    int64_t bytes_in, bytes_out; /* tensor data of the text model (and MTP head) */
    double relative_error;     /* sqrt(sum of squared errors / sum of squares) over all quantised values */
} vb__quantise_result;

/* `to` must be absent or an empty folder. Matrices whose width the group divides are quantised (experts in stacks,
 * routers with 8 bits as MLX has it); norms, conv, A_log, dt_bias and biases are kept, zero-centred norms of Qwen 3.5 as
 * f32 1 + w; vision tensors are dropped with one log line; an MTP head goes to mtp.safetensors, as it is, quantised
 * alike. Tokenizer and template files are copied. On failure what was written is removed. */
VB_MUST_USE vb_err vb__quantise_folder(const char *from, const char *to, const vb__quantise_options *o,
                                       vb__quantise_result *out, vb_error *err);

/* One row of k values (a multiple of group and of 32): k*bits/8 bytes of codes, element 0 in the lowest bits of byte 0,
 * and k/group scales and biases as bf16. False when a value is not finite. Adds squared errors and squares to sums[2].
 * Run with the contract's MXCSR. */
bool vb__quantise_row(const float *x, int32_t k, int32_t bits, int32_t group, uint8_t *codes, uint16_t *scales,
                      uint16_t *biases, double sums[2]);

#endif
