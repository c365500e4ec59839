/* The public quantize: model/quantise.h over all allowed CPUs. */
#include "base/cpu.h"
#include "base/fp_env.h"
#include "engine/sizing.h"
#include "model/model.h"
#include "model/quantise.h"
#include "verbatim/verbatim.h"

typedef struct forward {
    vb_progress_fn *fn;
    void *user;
} forward;

static bool forward_progress(void *user, int64_t done, int64_t total) {
    const forward *f = user;
    return f->fn(f->user, "quantize", done, total);
}

static vb_err leftover(void *ck, vb_error *err) { return vb__checkpoint_leftover(ck, err); }

static vb_err bind_drafter(const vb__weight_source *src, vb__backend *be, vb_error *err) {
    vb__model m = {0};
    vb__weight *fc = NULL;
    float *norm = NULL;
    vb_err e = vb__model_load_drafter(src, be, &m, &fc, &norm, err);
    vb__model_fini(&m);
    be->ops->weight_destroy(be, fc);
    be->ops->free(be, norm);
    return e;
}

/* Binds the source as loading would, on a backend that only measures: what would not load is not worth quantising. */
static vb_err check_source(vb__checkpoint *ck, vb_error *err) {
    vb__backend *be;
    vb__weight_source src;
    vb__model *m = NULL;
    VB_TRY(vb__sizing_backend_create(&be, err));
    vb__checkpoint_source(ck, &src);
    src.finish = leftover; /* nothing was rounded */
    vb_err e = src.cfg->arch == VB_ARCH_DFLASH ? bind_drafter(&src, be, err) : vb__model_load(&src, be, NULL, NULL, &m, err);
    vb__model_destroy(m);
    be->ops->destroy(be);
    return e;
}

vb_err vb_quantize(const char *src, const char *dst, int32_t bits, int32_t group_size, vb_progress_fn *progress, void *user,
                   vb_error *err) {
    vb__cpu_level level;
    vb__pool *pool;
    vb__quantise_result result;
    forward f = {progress, user};
    VB_TRY(vb__cpu_detect(&level, err));
    VB_TRY(vb__pool_create(vb__cpu_count(), &pool, err));
    uint32_t csr = vb__fp_enter();
    vb__quantise_options o = {.bits = bits,
                              .group = group_size,
                              .pool = pool,
                              .progress = progress == NULL ? NULL : forward_progress,
                              .user = &f,
                              .check = check_source};
    vb_err e = vb__quantise_folder(src, dst, &o, &result, err);
    vb__fp_leave(csr);
    vb__pool_destroy(pool);
    return e;
}
