#include "model/quant_spec.h"
#include "base/json.h"
#include "base/limits.h"
#include <stdio.h>
#include <string.h>

static const json_t *block_of(const json_t *root) {
    const json_t *q = json_object_get(root, "quantization");
    return json_is_object(q) ? q : json_object_get(root, "quantization_config");
}

/* bits, group_size and mode of the block itself or of one override. */
static vb_err check_numbers(vb__json_at at, vb_error *err) {
    int32_t bits, group;
    const char *mode;
    VB_TRY(vb__json_string_or(at, "mode", "affine", &mode, err));
    if (strcmp(mode, "affine") != 0)
        return vb__fail(err, VB_E_UNSUPPORTED, "%smode: is \"%s\", expected affine", at.where, mode);
    VB_TRY(vb__json_i32(at, "bits", 2, 8, &bits, err));
    VB_TRY(vb__json_i32(at, "group_size", 32, 128, &group, err));
    if (group != 32 && group != 64 && group != 128)
        return vb__fail(err, VB_E_UNSUPPORTED, "%sgroup_size: is %d, expected 32, 64 or 128", at.where, group);
    return VB_OK;
}

/* Of the vision tower, which is skipped: anything may be said of it. */
static bool of_vision(const char *key) {
    return strstr(key, "vision_tower.") != NULL || strncmp(key, "visual.", 7) == 0 || strncmp(key, "model.visual.", 13) == 0;
}

static vb_err check_overrides(vb__json_at at, vb_error *err) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)at.obj, key, v) {
        if (!json_is_object(v) || of_vision(key)) continue; /* true: the numbers of the block */
        char where[400];
        (void)snprintf(where, sizeof where, "%s%.150s.", at.where, key);
        VB_TRY(check_numbers((vb__json_at){v, where}, err));
    }
    return VB_OK;
}

vb_err vb__quant_spec_check(const struct json_t *root, const char *file, vb_error *err) {
    char top[128], where[160];
    (void)snprintf(top, sizeof top, "%.100s: ", file);
    json_t *q, *qc;
    vb__json_at at = {root, top};
    VB_TRY(vb__json_object_or(at, "quantization", &q, err));
    VB_TRY(vb__json_object_or(at, "quantization_config", &qc, err));
    if (q == NULL && qc == NULL) return VB_OK;
    const json_t *method = json_object_get(qc, "quant_method");
    if (method != NULL)
        return vb__fail(err, VB_E_UNSUPPORTED, "%squantization_config.quant_method: is \"%s\", expected MLX affine quantisation",
                        top, json_is_string(method) ? json_string_value(method) : "?");
    if (q != NULL && qc != NULL && !json_equal(q, qc))
        return vb__fail(err, VB_E_MISMATCH, "%squantization_config: differs from quantization, expected the same", top);
    (void)snprintf(where, sizeof where, "%s%s.", top, q != NULL ? "quantization" : "quantization_config");
    at = (vb__json_at){q != NULL ? q : qc, where};
    VB_TRY(check_numbers(at, err));
    return check_overrides(at, err);
}

/* The entry of a module. Tools that rename tensors may leave the keys as they were, so that the other prefixes of the text
 * model are tried behind the file's own; the tensors' shapes must agree in any case. */
static const json_t *entry_of(const json_t *block, const char *module) {
    static const char *const prefixes[] = {"model.language_model.", "language_model.model.", "language_model.", "model.", ""};
    enum { N = sizeof prefixes / sizeof *prefixes };
    const json_t *own = json_object_get(block, module);
    size_t i = 0;
    while (strncmp(module, prefixes[i], strlen(prefixes[i])) != 0) i++; /* "" ends it */
    const char *rest = module + strlen(prefixes[i]);
    for (size_t k = 0; own == NULL && k < N; k++) {
        char other[VB_LIMIT_TENSOR_NAME + 64];
        (void)snprintf(other, sizeof other, "%s%s", prefixes[k], rest);
        own = json_object_get(block, other);
    }
    return own;
}

vb__quant_spec vb__quant_spec_of(const struct json_t *root, const char *module) {
    const json_t *block = block_of(root), *own = entry_of(block, module);
    vb__quant_spec s = {0};
    if (block == NULL) return s;
    s.given = true;
    s.off = json_is_false(own);
    const json_t *from = json_is_object(own) ? own : block;
    s.bits = (int32_t)json_integer_value(json_object_get(from, "bits"));
    s.group = (int32_t)json_integer_value(json_object_get(from, "group_size"));
    return s;
}
