#include "backend/profile.h"
#include "base/clock.h"

static vb__profile *profile_of(vb__backend *be) { return (vb__profile *)(void *)(uintptr_t)be->ops; }

/* Calls the real launcher and adds its time to a class. */
#define TIMED(klass, call)                                                                                   \
    do {                                                                                                     \
        vb__profile *p = profile_of(be);                                                                     \
        double t0 = vb__now();                                                                               \
        p->real->call;                                                                                       \
        finish(p, be, klass, t0);                                                                            \
    } while (0)

static void finish(vb__profile *p, vb__backend *be, vb__profile_class c, double t0) {
    vb_err e = p->real->sync(be, NULL); /* an error sticks and the caller's own sync returns it */
    (void)e;
    p->seconds[c] += vb__now() - t0;
    p->calls[c]++;
}

static void timed_embed(vb__backend *be, const vb__weight *w, const int32_t *ids, int32_t rows, float *y, int64_t ys) {
    TIMED(VB_PROFILE_ELEMENTWISE, embed(be, w, ids, rows, y, ys));
}
static void timed_linear(vb__backend *be, const float *x, int64_t xs, int32_t rows, const vb__linear_out *outs,
                         int32_t n_outs) {
    TIMED(VB_PROFILE_LINEAR, linear(be, x, xs, rows, outs, n_outs));
}
static void timed_rmsnorm(vb__backend *be, float *y, int64_t ys, const float *x, int64_t xs, const float *w,
                          int32_t items, int32_t n, float eps) {
    TIMED(VB_PROFILE_ELEMENTWISE, rmsnorm(be, y, ys, x, xs, w, items, n, eps));
}
static void timed_rope_table(vb__backend *be, vb__rope_table *t, const int32_t *pos, int32_t rows,
                             const float *freqs, float m) {
    TIMED(VB_PROFILE_ELEMENTWISE, rope_table(be, t, pos, rows, freqs, m));
}
static void timed_rope(vb__backend *be, float *x, int64_t xs, int64_t xh, int32_t rows, int32_t heads,
                       const vb__rope_table *t) {
    TIMED(VB_PROFILE_ELEMENTWISE, rope(be, x, xs, xh, rows, heads, t));
}
static void timed_kv_append(vb__backend *be, const vb__kv_layout *kv, const float *k, int64_t ks, const float *v,
                            int64_t vs, const vb__seq_rows *seqs, int32_t n_seqs) {
    TIMED(VB_PROFILE_ATTENTION, kv_append(be, kv, k, ks, v, vs, seqs, n_seqs));
}
static void timed_attention(vb__backend *be, const vb__attention_args *a) {
    TIMED(VB_PROFILE_ATTENTION, attention(be, a));
}
static void timed_delta_net(vb__backend *be, const vb__delta_net_args *a) {
    TIMED(VB_PROFILE_DELTA_NET, delta_net(be, a));
}
static void timed_delta_commit(vb__backend *be, const vb__delta_layout *lay, const vb__seq_rows *seqs,
                               int32_t n_seqs) {
    TIMED(VB_PROFILE_DELTA_NET, delta_commit(be, lay, seqs, n_seqs));
}
static void timed_swiglu(vb__backend *be, float *y, int64_t ys, const float *g, int64_t gs, const float *u,
                         int64_t us, int32_t rows, int32_t n) {
    TIMED(VB_PROFILE_ELEMENTWISE, swiglu(be, y, ys, g, gs, u, us, rows, n));
}
static void timed_gather_rows(vb__backend *be, float *y, int64_t ys, const float *x, int64_t xs, const int32_t *idx,
                              int32_t rows, int32_t n) {
    TIMED(VB_PROFILE_ELEMENTWISE, gather_rows(be, y, ys, x, xs, idx, rows, n));
}
static void timed_linear_argmax(vb__backend *be, const float *x, int64_t xs, int32_t rows, const vb__linear_out *out,
                                const vb__out_range *ranges, int32_t n_ranges, vb__best *best) {
    TIMED(VB_PROFILE_LINEAR, linear_argmax(be, x, xs, rows, out, ranges, n_ranges, best));
}
static void timed_norm_linear(vb__backend *be, const vb__norm *norm, float *h, int64_t hs, int32_t rows,
                              const vb__linear_out *outs, int32_t n_outs) {
    TIMED(VB_PROFILE_LINEAR, norm_linear(be, norm, h, hs, rows, outs, n_outs));
}
static void timed_mlp(vb__backend *be, float *x, int64_t xs, int32_t rows, const vb__mlp_args *a) {
    TIMED(VB_PROFILE_LINEAR, mlp(be, x, xs, rows, a));
}
static void timed_argmax(vb__backend *be, const float *x, int64_t xs, int32_t rows, int32_t n, vb__best *best) {
    TIMED(VB_PROFILE_SAMPLING, argmax(be, x, xs, rows, n, best));
}

static void timed_route(vb__backend *be, float *x, int64_t xs, int32_t rows, int32_t n, int32_t used, int32_t *ids,
                        float *w) {
    TIMED(VB_PROFILE_ELEMENTWISE, route(be, x, xs, rows, n, used, ids, w));
}
static void timed_combine(vb__backend *be, const vb__combine_args *a) { TIMED(VB_PROFILE_ELEMENTWISE, combine(be, a)); }

void vb__profile_start(vb__profile *p, vb__backend *be) {
    *p = (vb__profile){.ops = *be->ops, .real = be->ops};
    p->ops.embed = timed_embed;
    p->ops.linear = timed_linear;
    p->ops.rmsnorm = timed_rmsnorm;
    p->ops.rope_table = timed_rope_table;
    p->ops.rope = timed_rope;
    p->ops.kv_append = timed_kv_append;
    p->ops.attention = timed_attention;
    p->ops.delta_net = timed_delta_net;
    p->ops.delta_commit = timed_delta_commit;
    p->ops.swiglu = timed_swiglu;
    p->ops.gather_rows = timed_gather_rows;
    p->ops.argmax = timed_argmax;
    p->ops.linear_argmax = timed_linear_argmax;
    p->ops.mlp = timed_mlp;
    p->ops.norm_linear = timed_norm_linear;
    p->ops.route = timed_route;
    p->ops.combine = timed_combine;
    be->ops = &p->ops;
}

void vb__profile_stop(vb__profile *p, vb__backend *be) { be->ops = p->real; }

const char *vb__profile_class_name(vb__profile_class c) {
    static const char *const names[VB_PROFILE_CLASSES] = {"linear", "attention", "delta_net", "elementwise", "sampling"};
    return names[c];
}
