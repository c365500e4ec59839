/* inspect: what a model folder holds and what running it would take. Reads headers, config and small vectors; the
 * model is bound as loading binds it, so everything that loading would refuse is refused here too. */
#include "base/alloc.h"
#include "base/fp_env.h"
#include "engine/footprint.h"
#include "engine/json_out.h"
#include "engine/memory.h"
#include "engine/sizing.h"
#include "verbatim/verbatim.h"

static void set(json_t *o, const char *key, json_t *v) { (void)json_object_set_new(o, key, v); }
static void set_int(json_t *o, const char *key, int64_t v) { set(o, key, json_integer((json_int_t)v)); }

/* ---- Config ------------------------------------------------------------------------------------------------------ */

static json_t *rope_object(const vb__rope_config *r) {
    static const char *const names[] = {"default", "linear", "llama3", "yarn", "divisors"};
    _Static_assert(sizeof names / sizeof *names == VB_ROPE_DIVISORS + 1, "a name for each type");
    json_t *o = json_pack("{s:s, s:f, s:i}", "type", names[r->type], "theta", r->theta, "rotated", r->rotated);
    if (r->type != VB_ROPE_DEFAULT && r->type != VB_ROPE_DIVISORS) set(o, "factor", json_real(r->factor));
    if (r->original_max > 0) set(o, "original_max", json_real(r->original_max));
    return o;
}

static json_t *layer_counts(const vb__model_config *c) {
    int32_t n[3] = {0};
    for (int32_t i = 0; i < c->layers; i++) n[c->layer_type[i]]++;
    return json_pack("{s:i, s:i, s:i}", "linear", n[VB_LAYER_LINEAR], "full", n[VB_LAYER_FULL], "sliding", n[VB_LAYER_SLIDING]);
}

static json_t *config_object(const vb__model_config *c) {
    json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:o, s:i, s:i, s:i, s:f, s:i, s:b}", "vocab", c->vocab, "hidden", c->hidden,
                          "intermediate", c->intermediate, "layers", c->layers, "layer_types", layer_counts(c), "heads",
                          c->heads, "kv_heads", c->kv_heads, "head_dim", c->head_dim, "eps", (double)c->eps, "max_position",
                          c->max_position, "tied", c->tied);
    set(o, "rope", rope_object(&c->rope));
    if (c->sliding_window > 0) set_int(o, "sliding_window", c->sliding_window);
    if (c->lin_nv > 0)
        set(o, "delta_net",
            json_pack("{s:i, s:i, s:i, s:i, s:i}", "key_heads", c->lin_nk, "value_heads", c->lin_nv, "key_dim", c->lin_dk,
                      "value_dim", c->lin_dv, "conv_taps", c->lin_taps));
    if (c->experts > 0)
        set(o, "experts",
            json_pack("{s:i, s:i, s:i, s:i}", "count", c->experts, "used", c->experts_used, "intermediate",
                      c->expert_intermediate, "shared_intermediate", c->shared_intermediate));
    json_t *eos = json_array();
    for (int32_t i = 0; i < c->n_eos; i++) (void)json_array_append_new(eos, json_integer(c->eos[i]));
    set(o, "eos", eos);
    return o;
}

/* ---- Tensors -------------------------------------------------------------------------------------------------------- */

static json_t *tensor_array(const vb__checkpoint *ck, int64_t *bytes) {
    json_t *a = json_array();
    *bytes = 0;
    for (int32_t i = 0, n = vb__checkpoint_tensor_count(ck); i < n; i++) {
        vb__tensor_info t;
        vb__checkpoint_tensor(ck, i, &t);
        json_t *shape = json_array();
        for (int32_t d = 0; d < t.dims; d++) (void)json_array_append_new(shape, json_integer((json_int_t)t.shape[d]));
        (void)json_array_append_new(a, json_pack("{s:s, s:s, s:o, s:I, s:s, s:b}", "name", t.name, "dtype", t.dtype, "shape",
                                                 shape, "bytes", (json_int_t)t.bytes, "file", t.file, "used",
                                                 t.canonical != NULL));
        *bytes += t.bytes;
    }
    return a;
}

/* ---- The whole --------------------------------------------------------------------------------------------------------- */

static json_t *report(const vb__checkpoint *ck, const vb__model *m, int64_t scratch, int64_t ctx) {
    const vb__model_config *c = &m->cfg;
    vb__footprint f;
    vb__footprint_of(m, scratch, &f);
    if (ctx == 0) ctx = c->max_position > 0 ? c->max_position : 4096;
    int64_t tensor_bytes, available = vb__memory_available(), context = vb__footprint_context(&f, ctx);
    int64_t fixed = f.weights + vb__footprint_context(&f, 0);
    json_t *tensors = tensor_array(ck, &tensor_bytes);
    json_t *j = json_pack("{s:o, s:s, s:o}", "path", vb__json_path(vb__checkpoint_path(ck)), "architecture", vb__arch_name(c->arch), "config",
                          config_object(c));
    set(j, "mtp", json_pack("{s:b, s:s?}", "present", m->mtp != NULL, "missing", m->mtp_missing[0] != 0 ? m->mtp_missing : NULL));
    set_int(j, "tensor_bytes", tensor_bytes);
    set_int(j, "weight_bytes", f.weights);
    set_int(j, "kv_bytes_per_token", f.kv_per_token);
    set_int(j, "state_bytes", f.state);
    set_int(j, "tape_bytes", f.tapes);
    set_int(j, "workspace_bytes", f.workspace);
    set_int(j, "ctx", ctx);
    set_int(j, "context_bytes", context);
    set_int(j, "total_bytes", f.weights + context);
    set_int(j, "available_bytes", available);
    set_int(j, "largest_ctx", vb__memory_fits(f.page, available - fixed));
    set(j, "fits", json_boolean(f.weights + context <= available));
    set(j, "tensors", tensors);
    return j;
}

vb_err vb_inspect_json(const char *path, int64_t ctx, char **json, vb_error *err) {
    if (path == NULL) return vb__fail(err, VB_E_ARGUMENT, "model: no path");
    if (ctx < 0 || ctx > VB_LIMIT_CONTEXT)
        return vb__fail(err, VB_E_RANGE, "--ctx: %lld, expected 1 to %d", (long long)ctx, VB_LIMIT_CONTEXT);
    vb__checkpoint *ck = NULL;
    vb__backend *be = NULL;
    vb__model *m = NULL;
    uint32_t csr = vb__fp_enter();
    vb_err code = vb__checkpoint_open(path, &ck, err);
    if (code == VB_OK) code = vb__sizing_backend_create(&be, err);
    if (code == VB_OK) {
        vb__weight_source src;
        vb__checkpoint_source(ck, &src);
        code = vb__model_load(&src, be, NULL, NULL, &m, err);
    }
    int64_t scratch = 0;
    if (code == VB_OK) code = vb__footprint_scratch(&m->cfg, 0, 8, &scratch, err);
    if (code == VB_OK) code = vb__json_out(report(ck, m, scratch, ctx), json, err);
    vb__model_destroy(m);
    if (be != NULL) be->ops->destroy(be);
    vb__checkpoint_close(ck);
    vb__fp_leave(csr);
    return code;
}
