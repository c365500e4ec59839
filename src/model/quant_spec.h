/* The `quantization` block of MLX config files: bits and group of every module. */
#ifndef VB_MODEL_QUANT_SPEC_H
#define VB_MODEL_QUANT_SPEC_H
#include "base/error.h"
#include <stdbool.h>
#include <stdint.h>

struct json_t;

typedef struct vb__quant_spec {
    bool given;         /* false: the config has no such block */
    bool off;           /* the block says false for this module */
    int32_t bits, group;
} vb__quant_spec;

/* Checks the whole block (bits 2 to 8; group 32, 64, 128; mode affine; overrides) and a quantization_config
 * beside it: equal, or alone and of the same form; other methods are refused by name. `file` for messages. */
VB_MUST_USE vb_err vb__quant_spec_check(const struct json_t *root, const char *file, vb_error *err);
/* For a module by its path in the file ("language_model.model.layers.0.mlp.gate"). After a successful check. */
vb__quant_spec vb__quant_spec_of(const struct json_t *root, const char *module);

#endif
