/* The CPU backend: memory is ordinary memory, copies are memcpy, and work is done when a launcher returns. */
#include "backend/cpu/cpu_backend.h"
#include "base/alloc.h"
#include <string.h>

static void cpu_destroy(vb__backend *base) {
    if (base == NULL) return;
    vb__cpu_backend *be = vb__cpu_of(base);
    vb__cpu_delta_fini(be);
    vb__cpu_attention_fini(be);
    vb__cpu_rowwise_fini(be);
    vb__cpu_linear_fini(be);
    vb__pool_destroy(be->pool);
    vb__free(be);
}

static vb_err cpu_alloc(vb__backend *be, size_t bytes, void **out) {
    (void)be;
    void *p = vb__alloc_aligned(VB_TAG_STATE, bytes);
    if (p == NULL) return VB_E_MEMORY;
    *out = p;
    return VB_OK;
}

static void cpu_free(vb__backend *be, void *p) {
    (void)be;
    vb__free(p);
}

static void cpu_copy(vb__backend *be, void *dst, const void *src, size_t bytes) {
    (void)be;
    memcpy(dst, src, bytes);
}

static void cpu_zero(vb__backend *be, void *dst, size_t bytes) {
    (void)be;
    memset(dst, 0, bytes);
}

static vb_err cpu_sync(vb__backend *be, vb_error *err) {
    (void)be;
    (void)err;
    return VB_OK;
}

static void cpu_host_items(vb__backend *be, int32_t n, vb__pool_fn *fn, void *ctx) {
    vb__parallel_for(vb__cpu_of(be)->pool, n, 1, fn, ctx);
}

static const vb__backend_ops cpu_ops = {
    .name = "cpu",
    .klass = "cpu",
    .destroy = cpu_destroy,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy,
    .download = cpu_copy,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .sync = cpu_sync,
    .weight_create = vb__cpu_weight_create,
    .weight_destroy = vb__cpu_weight_destroy,
    .embed = vb__cpu_embed,
    .linear = vb__cpu_linear,
    .linear_argmax = vb__cpu_linear_argmax,
    .norm_linear = vb__cpu_norm_linear,
    .mlp = vb__cpu_mlp,
    .rmsnorm = vb__cpu_rmsnorm,
    .rope_table = vb__cpu_rope_table,
    .rope = vb__cpu_rope,
    .kv_append = vb__cpu_kv_append,
    .attention = vb__cpu_attention,
    .delta_net = vb__cpu_delta_net,
    .swiglu = vb__cpu_swiglu,
    .gather_rows = vb__cpu_gather_rows,
    .argmax = vb__cpu_argmax,
    .route = vb__cpu_route,
    .combine = vb__cpu_combine,
    .host_items = cpu_host_items,
    .delta_commit = vb__cpu_delta_commit,
};

vb_err vb__cpu_backend_create(const vb__cpu_backend_options *o, vb__backend **out, vb_error *err) {
    if (o->activations != 8 && o->activations != 16)
        return vb__fail(err, VB_E_ARGUMENT, "activations: %d, expected 8 or 16", o->activations);
    vb__cpu_backend *be = vb__calloc(VB_TAG_ENGINE, 1, sizeof *be);
    if (be == NULL) return vb__fail(err, VB_E_MEMORY, "CPU backend: out of memory");
    be->base.ops = &cpu_ops;
    be->o = *o;
    be->level = (vb__cpu_level)o->level;
    vb__kernels_init(&be->k, be->level);
    vb_err e;
    VB_TRY_OUT(vb__pool_create(o->threads, &be->pool, err));
    VB_TRY_OUT(vb__cpu_linear_init(be, err));
    VB_TRY_OUT(vb__cpu_rowwise_init(be, err));
    VB_TRY_OUT(vb__cpu_attention_init(be, err));
    VB_TRY_OUT(vb__cpu_delta_init(be, err));
    *out = &be->base;
    return VB_OK;
out:
    cpu_destroy(&be->base);
    return e;
}
