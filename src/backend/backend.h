/* The backend: device memory and one launcher per operation; all that a model calls. A CPU and a CUDA
 * backend implement the same table, and model code never asks which one it has.
 *
 * Rules for every launcher
 *  - Pointers are device pointers (on the CPU: ordinary memory). f32 matrices are (rows, width) with a row
 *    stride in elements, named ...s.
 *  - Rows are independent: the bits of an output row depend on that row's inputs (and on the state of its
 *    own sequence) and on nothing else: not on the number of rows, on neighbours, on threads, on the level.
 *  - The formula, order and limits of an operation are in ops/<op>.h; docs/numerics.md is the whole contract.
 *  - Launchers allocate nothing, do not fail and do not wait: a device error sticks and is returned by sync.
 *  - One calling thread at a time per backend.
 */
#ifndef VB_BACKEND_BACKEND_H
#define VB_BACKEND_BACKEND_H
#include "backend/ops/argmax.h"
#include "backend/weight.h"
#include "base/error.h"
#include "base/pool.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VB_PAGE_POSITIONS = 64 }; /* positions of a KV page */

/* One call's rows of one sequence: rows row0 .. row0+rows-1 of the call are positions pos0, pos0+1, ... of
 * the sequence, in order. The first `certain` rows update the recurrent state; later rows step in scratch
 * and leave a tape. Pointers are owned by the sequence and stay valid during the call. */
typedef struct vb__seq_rows {
    int32_t row0, rows, certain;
    int32_t pos0;
    int32_t visible_end;   /* of attention. 0: row at position p sees keys 0..p; else keys 0..visible_end-1 (block drafters) */
    uint8_t *const *pages; /* page i holds positions 64i .. 64i+63 of every attention layer */
    uint8_t *failed;       /* [rows] set to 1 where a k or v was not finite (never cleared by a launcher) */
    float *state;          /* recurrent state of all delta-net layers; layer's part: state + delta.state_off */
    float *conv_tail;      /* conv tails of all delta-net layers, oldest row first */
    float *tape_in;        /* tape of the sequence's previous call; its first `replay` rows are accepted and */
    int32_t replay;        /*   are applied to state and conv_tail before row0 */
    float *tape_out;       /* where this call's rows from `certain` on leave theirs; never tape_in */
} vb__seq_rows;

/* One product of a linear call: y[r][o] = dot(W[o], x[r]) (+ bias[o]) (+ residual[r][o]). */
typedef struct vb__linear_out {
    const vb__weight *w; /* (n, k) */
    const float *bias;   /* (n) or NULL */
    const float *residual; /* (rows, n), stride rs, or NULL; may equal y */
    int64_t rs;
    float *y; /* (rows, n), stride ys */
    int64_t ys;
} vb__linear_out;

/* Some outputs of a product: ranges [begin, end) in ascending order, not empty, apart, of whole panels of VB_RANGE_UNIT outputs (but
 * the last one may end at n). At most VB_RANGES_MAX of them. Every range costs its kernels a start: a few long ones are better than
 * many short ones. */
enum { VB_RANGE_UNIT = 16, VB_RANGES_MAX = 512 };
typedef struct vb__out_range {
    int32_t begin, end;
} vb__out_range;

/* An rmsnorm (ops/rmsnorm.h) of rows of x that a product takes as its input. */
typedef struct vb__norm {
    const float *x; /* (rows, k), stride xs */
    int64_t xs;
    const float *w; /* (k) */
    float eps;
} vb__norm;

/* An MLP: down(silu(gate(x)) * up(x)). gate and up (n, k), their biases (n) or NULL; down (m, n) with its own bias, residual
 * and output. */
typedef struct vb__mlp_args {
    const vb__weight *gate, *up;
    const float *gate_bias, *up_bias;
    const vb__norm *norm; /* makes x first; NULL: x is there */
    vb__linear_out down;
} vb__mlp_args;

/* Geometry of KV for one attention layer, inside a page. Per KV head: K as [4][D/2][16 keys][2 dims] bf16,
 * then V as [32 key pairs][D][2 keys] bf16: 64*D*4 bytes a head, heads one after the other. */
typedef struct vb__kv_layout {
    int64_t page_off; /* bytes from the start of a page to this layer's first head */
    int32_t kv_heads, head_dim;
} vb__kv_layout;

typedef struct vb__attention_args {
    const float *q; /* query head h of row r at q + r*qs + h*qh, head_dim long */
    int64_t qs, qh;
    const float *gate; /* like q with gs, gh; NULL: no output gate */
    int64_t gs, gh;
    float *o; /* (rows, heads*head_dim), stride os; may not alias q or gate */
    int64_t os;
    vb__kv_layout kv;
    int32_t heads; /* multiple of kv.kv_heads; query head h reads KV head h / (heads/kv_heads) */
    float scale;
    int32_t window;      /* 0: none; else only keys at positions > p - window */
    bool head_chunk;     /* the head-chunk plan; changes tiles, never bits */
    const vb__seq_rows *seqs;
    int32_t n_seqs;
} vb__attention_args;

/* One gated delta-net layer between its projections and its output norm. Tape row (floats): decay [nv], k
 * [nk*dk], delta [nv*dv], conv row [c], at tape + t*tape_stride + tape_off. */
typedef struct vb__delta_layout {
    int32_t nk, nv, dk, dv, taps; /* heads and widths; conv taps K; c = 2*nk*dk + nv*dv channels */
    int64_t state_off;            /* floats from seq.state to this layer's [nv][dk][dv] */
    int64_t conv_off;             /* floats from seq.conv_tail to this layer's [taps-1][c] */
    int64_t tape_off, tape_stride;
    bool modulo_heads; /* value head n uses key head n % nk (GGUF order) instead of n / (nv/nk) */
} vb__delta_layout;

/* (rows, c) conv and its silu; q and k heads l2-normalised, q scaled by dk^-1/2; tail and tape kept. */
typedef struct vb__conv_args {
    vb__delta_layout lay;
    const float *m; /* (rows, c) raw projection rows, stride ms */
    int64_t ms;
    const float *w; /* [c][taps], oldest tap first */
    float *out;     /* (rows, c), stride outs: q heads, k heads, v heads; may not alias m */
    int64_t outs;
    const vb__seq_rows *seqs;
    int32_t n_seqs;
} vb__conv_args;

typedef struct vb__delta_args {
    vb__delta_layout lay;
    const float *qkv; /* (rows, c), stride qkvs: output of conv */
    int64_t qkvs;
    const float *a, *b; /* (rows, nv), strides as_, bs: raw decay and beta projections */
    int64_t as_, bs;
    const float *neg_exp_a, *dt_bias; /* [nv]; neg_exp_a = -exp(A_log), made once at load */
    float *o;                         /* (rows, nv*dv), stride os */
    int64_t os;
    const vb__seq_rows *seqs;
    int32_t n_seqs;
} vb__delta_args;

/* A layer from its projections to its output: conv, delta and then y = rms(x) * norm * silu(z) of every head of delta's
 * output, in place. The two describe the same rows and sequences; delta.qkv is conv.out, which is scratch here. */
typedef struct vb__delta_net_args {
    vb__conv_args conv;
    vb__delta_args delta;
    const float *z; /* (rows, nv*dv), stride zs */
    int64_t zs;
    const float *norm; /* (dv) */
    float eps;
} vb__delta_net_args;

/* What the chosen experts of each row gave, their weighted sum in rank order, the shared expert and the residual. */
typedef struct vb__combine_args {
    float *y; /* (rows, n), stride ys; may equal residual */
    int64_t ys;
    const float *experts; /* output of rank i of row r at experts + slot[r*used + i]*es, n long */
    int64_t es;
    const int32_t *slot; /* host (rows, used) */
    const float *w;      /* (rows, used), of route */
    const float *shared; /* (rows, n), stride ss */
    int64_t ss;
    const float *gate; /* (rows) raw shared gate */
    const float *residual; /* (rows, n), stride rs */
    int64_t rs;
    int32_t rows, n, used;
} vb__combine_args;

typedef struct vb__backend vb__backend;

/* Device memory of the rope tables of one call: cos and sin (rows, r/2), products with the scaling factor
 * done. One table serves all layers of the call. */
typedef struct vb__rope_table {
    float *cos, *sin; /* (rows, r/2), contiguous */
    int32_t r;        /* rotated dims */
} vb__rope_table;

typedef struct vb__backend_ops {
    const char *name;  /* "cpu", "cuda" */
    const char *klass; /* numerics class: "cpu", "cuda-sm90" */
    void (*destroy)(vb__backend *be);

    /* Memory: zeroed, 64-byte aligned. free accepts NULL. Copies are ordered with the launchers. */
    VB_MUST_USE vb_err (*alloc)(vb__backend *be, size_t bytes, void **out);
    void (*free)(vb__backend *be, void *p);
    void (*upload)(vb__backend *be, void *dst, const void *src, size_t bytes);
    void (*download)(vb__backend *be, void *dst, const void *src, size_t bytes);
    void (*copy)(vb__backend *be, void *dst, const void *src, size_t bytes);
    void (*zero)(vb__backend *be, void *dst, size_t bytes);
    /* Waits for all launched work; the sticky error. */
    VB_MUST_USE vb_err (*sync)(vb__backend *be, vb_error *err);

    /* Weights: packs a matrix (values unchanged) into the device's layout. `src` is borrowed for the call. */
    VB_MUST_USE vb_err (*weight_create)(vb__backend *be, const vb__matrix *src, vb__weight **out, vb_error *err);
    void (*weight_destroy)(vb__backend *be, vb__weight *w);

    /* ops/embed.h: y[r] = row ids[r] of the table (host array of rows ids, each < w's n). */
    void (*embed)(vb__backend *be, const vb__weight *w, const int32_t *ids, int32_t rows, float *y, int64_t ys);
    /* ops/linear_bf16.h, ops/linear_q.h: n_outs products of the same input; quantises x once. w->k equal. */
    void (*linear)(vb__backend *be, const float *x, int64_t xs, int32_t rows, const vb__linear_out *outs,
                   int32_t n_outs);
    /* rmsnorm into h, then linear of that: one row is normed and quantised by the same thread. */
    void (*norm_linear)(vb__backend *be, const vb__norm *norm, float *h, int64_t hs, int32_t rows, const vb__linear_out *outs,
                        int32_t n_outs);
    /* linear with one product (no bias, no residual), then argmax of its rows, taken while they are in cache; y may be NULL
     * when nobody wants the product itself. With ranges (n_ranges > 0) only those outputs are made, bit for bit, and compete:
     * ids are those of the whole product, and other cells of y are left alone. Host output; waits. */
    void (*linear_argmax)(vb__backend *be, const float *x, int64_t xs, int32_t rows, const vb__linear_out *out,
                          const vb__out_range *ranges, int32_t n_ranges, vb__best *best);
    /* (rmsnorm,) linear, swiglu and linear, bit for bit; what lies between them stays in the backend. x may be neither residual
     * nor output of down; norm's x may. */
    void (*mlp)(vb__backend *be, float *x, int64_t xs, int32_t rows, const vb__mlp_args *a);
    /* ops/rmsnorm.h: items of n contiguous elements, item i at x + i*xs. */
    void (*rmsnorm)(vb__backend *be, float *y, int64_t ys, const float *x, int64_t xs, const float *w,
                    int32_t items, int32_t n, float eps);
    /* ops/rope.h: fills t for positions pos[r] (host array); freqs (r/2) device, m the factor on cos and sin. */
    void (*rope_table)(vb__backend *be, vb__rope_table *t, const int32_t *pos, int32_t rows, const float *freqs,
                       float m);
    /* In place: head h of row r at x + r*xs + h*xh. */
    void (*rope)(vb__backend *be, float *x, int64_t xs, int64_t xh, int32_t rows, int32_t heads,
                 const vb__rope_table *t);
    /* ops/kv_append.h: k, v (rows, kv_heads*head_dim) into the pages at each row's position. */
    void (*kv_append)(vb__backend *be, const vb__kv_layout *kv, const float *k, int64_t ks, const float *v,
                      int64_t vs, const vb__seq_rows *seqs, int32_t n_seqs);
    void (*attention)(vb__backend *be, const vb__attention_args *a); /* ops/attention.h */
    void (*delta_net)(vb__backend *be, const vb__delta_net_args *a); /* ops/conv.h, ops/delta.h, gated of ops/rmsnorm.h */
    /* ops/elementwise.h: y = silu(g) * u */
    void (*swiglu)(vb__backend *be, float *y, int64_t ys, const float *g, int64_t gs, const float *u, int64_t us,
                   int32_t rows, int32_t n);
    void (*gather_rows)(vb__backend *be, float *y, int64_t ys, const float *x, int64_t xs, const int32_t *idx,
                        int32_t rows, int32_t n); /* y[i] = x[idx[i]]; idx is a host array, NULL: i */
    /* ops/argmax.h, per row. Host output; waits. */
    void (*argmax)(vb__backend *be, const float *x, int64_t xs, int32_t rows, int32_t n, vb__best *best);
    /* ops/route.h: the `used` experts of each row of router logits x (rows, n), which it destroys: ids (rows, used), a host
     * array; weights w (rows, used). Waits. */
    void (*route)(vb__backend *be, float *x, int64_t xs, int32_t rows, int32_t n, int32_t used, int32_t *ids, float *w);
    void (*combine)(vb__backend *be, const vb__combine_args *a); /* ops/route.h */
    /* Host work on what the launchers left on the host: fn over 0..n-1, one item at a time (base/pool.h), on the threads that the
     * backend has. */
    void (*host_items)(vb__backend *be, int32_t n, vb__pool_fn *fn, void *ctx);
    /* Applies seq.replay tape rows to state and tail of one layer and nothing else (save, snapshot). */
    void (*delta_commit)(vb__backend *be, const vb__delta_layout *lay, const vb__seq_rows *seqs, int32_t n_seqs);
} vb__backend_ops;

struct vb__backend {
    const vb__backend_ops *ops;
};

/* The CPU backend. `activations` is 8 or 16; max_rows, max_k, max_n bound a call (scratch is made here, so
 * that launchers allocate nothing). The level is fixed for life. */
typedef struct vb__cpu_backend_options {
    int32_t level;       /* vb__cpu_level */
    int32_t threads;     /* exactly */
    int32_t activations; /* 8 or 16 */
    int32_t max_rows;    /* rows of a call */
    int32_t max_k;       /* largest input width of a linear */
    int32_t max_heads;   /* largest query head count, and */
    int32_t max_head_dim; /*  head width of attention */
} vb__cpu_backend_options;
VB_MUST_USE vb_err vb__cpu_backend_create(const vb__cpu_backend_options *o, vb__backend **out, vb_error *err);

#endif
