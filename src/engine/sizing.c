#include "engine/sizing.h"
#include "backend/ops/linear_bf16.h"
#include "backend/ops/linear_q.h"
#include "base/alloc.h"
#include <string.h>

static void sizing_destroy(vb__backend *be) { vb__free(be); }

static vb_err sizing_alloc(vb__backend *be, size_t bytes, void **out) {
    (void)be;
    void *p = vb__calloc(VB_TAG_FORMAT, bytes, 1);
    if (p == NULL) return VB_E_MEMORY;
    *out = p;
    return VB_OK;
}

static void sizing_free(vb__backend *be, void *p) {
    (void)be;
    vb__free(p);
}

static void sizing_copy(vb__backend *be, void *dst, const void *src, size_t bytes) {
    (void)be;
    memcpy(dst, src, bytes);
}

static vb_err sizing_sync(vb__backend *be, vb_error *err) {
    (void)be;
    (void)err;
    return VB_OK;
}

static int64_t packed_bytes(const vb__matrix *m) {
    int64_t panels = ((int64_t)m->n + VB_PANEL - 1) / VB_PANEL;
    if (m->kind <= VB_MATRIX_F32) return panels * VB_PANEL * 2 * (((int64_t)m->k + 31) / 32 * 32);
    vb__qpanels q = {.n = m->n, .k = m->k, .group = m->group, .has_bias = m->kind == VB_MATRIX_AFFINE || m->has_bias,
                     .code_bits = m->bits <= 4 ? 4 : 8,
                     .scale_kind = m->scale_kind};
    vb__qpanels_layout(&q);
    return panels * q.panel_stride;
}

static vb_err sizing_weight_create(vb__backend *be, const vb__matrix *src, vb__weight **out, vb_error *err) {
    (void)be;
    vb__weight *w = vb__calloc(VB_TAG_FORMAT, 1, sizeof *w);
    if (w == NULL) return vb__fail(err, VB_E_MEMORY, "%s: out of memory", src->name);
    bool q = src->kind >= VB_MATRIX_AFFINE;
    *w = (vb__weight){.n = src->n, .k = src->k, .quantised = q, .bits = q ? src->bits : 16, .group = q ? src->group : 0,
                      .bytes = packed_bytes(src)};
    *out = w;
    return VB_OK;
}

static void sizing_weight_destroy(vb__backend *be, vb__weight *w) {
    (void)be;
    vb__free(w);
}

static const vb__backend_ops sizing_ops = {
    .name = "sizing",
    .klass = "sizing",
    .destroy = sizing_destroy,
    .alloc = sizing_alloc,
    .free = sizing_free,
    .upload = sizing_copy,
    .download = sizing_copy,
    .copy = sizing_copy,
    .sync = sizing_sync,
    .weight_create = sizing_weight_create,
    .weight_destroy = sizing_weight_destroy,
};

vb_err vb__sizing_backend_create(vb__backend **out, vb_error *err) {
    vb__backend *be = vb__calloc(VB_TAG_FORMAT, 1, sizeof *be);
    if (be == NULL) return vb__fail(err, VB_E_MEMORY, "inspect: out of memory");
    be->ops = &sizing_ops;
    *out = be;
    return VB_OK;
}
