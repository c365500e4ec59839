/* The public quantize: model/quantise.h over all allowed CPUs. */
#include "base/cpu.h"
#include "base/fp_env.h"
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
                              .user = &f};
    vb_err e = vb__quantise_folder(src, dst, &o, &result, err);
    vb__fp_leave(csr);
    vb__pool_destroy(pool);
    return e;
}
