/* Inside of the CPU backend, shared by its launcher files (cpu_linear.c, cpu_rowwise.c, cpu_attention.c,
 * cpu_delta.c, cpu_moe.c). Launchers divide work over output elements, heads and sequences and call kernels of one level. */
#ifndef VB_BACKEND_CPU_BACKEND_H
#define VB_BACKEND_CPU_BACKEND_H
#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "base/cpu.h"
#include "base/pool.h"

/* Threads from which launchers cut small operations into smaller pieces than two or three threads are worth. */
enum { VB_MANY_THREADS = 4 };

typedef struct vb__cpu_backend {
    vb__backend base; /* first: a vb__backend * is a vb__cpu_backend * */
    vb__kernels k;    /* of this level */
    vb__cpu_level level;
    vb__pool *pool;
    vb__cpu_backend_options o;
    /* Scratch of each launcher family, made once by its init, opaque to the others. */
    struct vb__cpu_linear *linear;
    struct vb__cpu_rowwise *rowwise;
    struct vb__cpu_attention *attention;
    struct vb__cpu_delta *delta;
} vb__cpu_backend;

static inline vb__cpu_backend *vb__cpu_of(vb__backend *be) { return (vb__cpu_backend *)(void *)be; }

/* Each family: scratch for calls within be->o, and its launchers. fini accepts a family not yet made. */
VB_MUST_USE vb_err vb__cpu_linear_init(vb__cpu_backend *be, vb_error *err);
void vb__cpu_linear_fini(vb__cpu_backend *be);
vb_err vb__cpu_weight_create(vb__backend *be, const vb__matrix *src, vb__weight **out, vb_error *err);
void vb__cpu_weight_destroy(vb__backend *be, vb__weight *w);
void vb__cpu_embed(vb__backend *be, const vb__weight *w, const int32_t *ids, int32_t rows, float *y, int64_t ys);
void vb__cpu_linear(vb__backend *be, const float *x, int64_t xs, int32_t rows, const vb__linear_out *outs,
                    int32_t n_outs);
void vb__cpu_norm_linear(vb__backend *be, const vb__norm *norm, float *h, int64_t hs, int32_t rows, const vb__linear_out *outs,
                         int32_t n_outs);
void vb__cpu_mlp(vb__backend *be, float *x, int64_t xs, int32_t rows, const vb__mlp_args *a);
void vb__cpu_linear_argmax(vb__backend *be, const float *x, int64_t xs, int32_t rows, const vb__linear_out *out,
                           const vb__out_range *ranges, int32_t n_ranges, vb__best *best);

VB_MUST_USE vb_err vb__cpu_rowwise_init(vb__cpu_backend *be, vb_error *err);
void vb__cpu_rowwise_fini(vb__cpu_backend *be);
void vb__cpu_rmsnorm(vb__backend *be, float *y, int64_t ys, const float *x, int64_t xs, const float *w,
                     int32_t items, int32_t n, float eps);
void vb__cpu_rmsnorm_gated(vb__backend *be, float *y, int64_t ys, const float *x, int64_t xs, const float *z,
                           int64_t zs, const float *w, int32_t items, int32_t n, float eps);
void vb__cpu_rope_table(vb__backend *be, vb__rope_table *t, const int32_t *pos, int32_t rows, const float *freqs,
                        float m);
void vb__cpu_rope(vb__backend *be, float *x, int64_t xs, int64_t xh, int32_t rows, int32_t heads,
                  const vb__rope_table *t);
void vb__cpu_swiglu(vb__backend *be, float *y, int64_t ys, const float *g, int64_t gs, const float *u, int64_t us,
                    int32_t rows, int32_t n);
void vb__cpu_gather_rows(vb__backend *be, float *y, int64_t ys, const float *x, int64_t xs, const int32_t *idx,
                         int32_t rows, int32_t n);
void vb__cpu_argmax(vb__backend *be, const float *x, int64_t xs, int32_t rows, int32_t n, vb__best *best);

VB_MUST_USE vb_err vb__cpu_attention_init(vb__cpu_backend *be, vb_error *err);
void vb__cpu_attention_fini(vb__cpu_backend *be);
void vb__cpu_kv_append(vb__backend *be, const vb__kv_layout *kv, const float *k, int64_t ks, const float *v,
                       int64_t vs, const vb__seq_rows *seqs, int32_t n_seqs);
void vb__cpu_attention(vb__backend *be, const vb__attention_args *a);

VB_MUST_USE vb_err vb__cpu_delta_init(vb__cpu_backend *be, vb_error *err);
void vb__cpu_delta_fini(vb__cpu_backend *be);
void vb__cpu_conv(vb__backend *be, const vb__conv_args *a);
void vb__cpu_delta(vb__backend *be, const vb__delta_args *a);
void vb__cpu_delta_net(vb__backend *be, const vb__delta_net_args *a); /* conv, delta and rmsnorm_gated */
void vb__cpu_delta_commit(vb__backend *be, const vb__delta_layout *lay, const vb__seq_rows *seqs, int32_t n_seqs);

void vb__cpu_route(vb__backend *be, float *x, int64_t xs, int32_t rows, int32_t n, int32_t used, int32_t *ids, float *w);
void vb__cpu_combine(vb__backend *be, const vb__combine_args *a);

#endif
