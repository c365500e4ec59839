/* Launchers of the row-wise operations. A call is cut into pieces of whole items (or of columns where elements
 * are independent); a piece is large enough that starting a region, about a microsecond, pays. */
#include "backend/cpu/cpu_backend.h"
#include "base/alloc.h"
#include "base/bf16.h"
#include "base/fault.h"
#include <string.h>

enum {
    LIGHT = 32768,      /* elements of a piece of a few operations each */
    HEAVY = 4096,       /* the same with an exponential each */
    ARGMAX_PART = 16384, /* columns of a row that one thread looks at */
    PARTIALS = 4096
};

/* The largest of one part of a row. */
struct vb__cpu_rowwise {
    vb__best parts[PARTIALS];
};

vb_err vb__cpu_rowwise_init(vb__cpu_backend *be, vb_error *err) {
    be->rowwise = vb__calloc(VB_TAG_SCRATCH, 1, sizeof *be->rowwise);
    if (be->rowwise == NULL) return vb__fail(err, VB_E_MEMORY, "CPU backend: out of memory for row-wise scratch");
    return VB_OK;
}

void vb__cpu_rowwise_fini(vb__cpu_backend *be) {
    vb__free(be->rowwise);
    be->rowwise = NULL;
}

/* Items of `size` elements that make a piece of at least `least`. With many threads what a piece reads lies in the caches of many
 * cores, and one thread alone waits for all of it: then smaller ones pay. */
static int32_t grain_of(const vb__cpu_backend *be, int32_t size, int32_t least) {
    if (vb__pool_threads(be->pool) >= VB_MANY_THREADS) least /= 4;
    return size >= least ? 1 : (least + size - 1) / size;
}

typedef struct norm_call {
    const vb__kernels *k;
    float *y;
    const float *x, *z, *w;
    int64_t ys, xs, zs;
    int32_t n;
    float eps;
} norm_call;

static void norm_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const norm_call *c = ctx;
    (void)thread;
    float *y = c->y + begin * c->ys;
    const float *x = c->x + begin * c->xs;
    if (c->z == NULL) c->k->rmsnorm(y, c->ys, x, c->xs, c->w, end - begin, c->n, c->eps);
    else c->k->rmsnorm_gated(y, c->ys, x, c->xs, c->z + begin * c->zs, c->zs, c->w, end - begin, c->n, c->eps);
}

void vb__cpu_rmsnorm(vb__backend *base, float *y, int64_t ys, const float *x, int64_t xs, const float *w,
                     int32_t items, int32_t n, float eps) {
    vb__cpu_backend *be = vb__cpu_of(base);
    norm_call c = {.k = &be->k, .y = y, .x = x, .w = w, .ys = ys, .xs = xs, .n = n, .eps = eps};
    vb__parallel_for(be->pool, items, grain_of(be, n, LIGHT), norm_items, &c);
}

void vb__cpu_rmsnorm_gated(vb__backend *base, float *y, int64_t ys, const float *x, int64_t xs, const float *z,
                           int64_t zs, const float *w, int32_t items, int32_t n, float eps) {
    vb__cpu_backend *be = vb__cpu_of(base);
    norm_call c = {.k = &be->k, .y = y, .x = x, .z = z, .w = w, .ys = ys, .xs = xs, .zs = zs, .n = n, .eps = eps};
    vb__parallel_for(be->pool, items, grain_of(be, n, HEAVY), norm_items, &c);
}

typedef struct table_call {
    const vb__kernels *k;
    vb__rope_table *t;
    const int32_t *pos;
    const float *freqs;
    float m;
} table_call;

static void table_rows(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const table_call *c = ctx;
    (void)thread;
    int32_t half = c->t->r / 2;
    int64_t at = (int64_t)begin * half;
    c->k->rope_table(c->t->cos + at, c->t->sin + at, c->pos + begin, end - begin, c->freqs, half, c->m);
}

void vb__cpu_rope_table(vb__backend *base, vb__rope_table *t, const int32_t *pos, int32_t rows, const float *freqs,
                        float m) {
    vb__cpu_backend *be = vb__cpu_of(base);
    table_call c = {.k = &be->k, .t = t, .pos = pos, .freqs = freqs, .m = m};
    vb__parallel_for(be->pool, rows, grain_of(be, t->r, HEAVY / 8), table_rows, &c);
}

typedef struct rope_call {
    const vb__kernels *k;
    float *x;
    int64_t xs, xh;
    int32_t heads;
    const vb__rope_table *t;
    bool fault;
} rope_call;

/* Planted: what engines do that keep cos and sin in bf16 in one of two rotary kernels. */
static void rope_wrong(VB_ROPE_ARGS) {
    for (int64_t i = 0; i < rows; i++)
        for (int64_t h = 0; h < heads; h++)
            for (int32_t j = 0, half = r / 2; j < half; j++) {
                float *v = x + i * xs + h * xh, a = v[j], b = v[j + half];
                float c = vb__from_bf16(vb__to_bf16(cosines[i * half + j]));
                float s = vb__from_bf16(vb__to_bf16(sines[i * half + j]));
                v[j] = a * c - b * s;
                v[j + half] = a * s + b * c;
            }
}

static void rope_rows(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const rope_call *c = ctx;
    (void)thread;
    int64_t at = (int64_t)begin * (c->t->r / 2);
    vb__rope_fn *fn = c->fault ? rope_wrong : c->k->rope;
    fn(c->x + begin * c->xs, c->xs, c->xh, end - begin, c->heads, c->t->cos + at, c->t->sin + at, c->t->r);
}

void vb__cpu_rope(vb__backend *base, float *x, int64_t xs, int64_t xh, int32_t rows, int32_t heads,
                  const vb__rope_table *t) {
    vb__cpu_backend *be = vb__cpu_of(base);
    rope_call c = {.k = &be->k, .x = x, .xs = xs, .xh = xh, .heads = heads, .t = t};
    c.fault = rows > 1 && vb__fault_is(VB_FAULT_ROPE_ROWS);
    vb__parallel_for(be->pool, rows, grain_of(be, heads * t->r, LIGHT), rope_rows, &c);
}

typedef struct swiglu_call {
    const vb__kernels *k;
    float *y;
    const float *g, *u;
    int64_t ys, gs, us;
    int32_t n, parts;
} swiglu_call;

static void swiglu_parts(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const swiglu_call *c = ctx;
    (void)thread;
    for (int32_t i = begin; i < end; i++) {
        int64_t row = i / c->parts;
        int32_t at = i % c->parts * HEAVY;
        int32_t n = c->n - at < HEAVY ? c->n - at : HEAVY;
        c->k->swiglu(c->y + row * c->ys + at, c->g + row * c->gs + at, c->u + row * c->us + at, n);
    }
}

void vb__cpu_swiglu(vb__backend *base, float *y, int64_t ys, const float *g, int64_t gs, const float *u, int64_t us,
                    int32_t rows, int32_t n) {
    vb__cpu_backend *be = vb__cpu_of(base);
    swiglu_call c = {.k = &be->k, .y = y, .g = g, .u = u, .ys = ys, .gs = gs, .us = us, .n = n};
    if (rows <= 0 || n <= 0) return;
    c.parts = (n + HEAVY - 1) / HEAVY;
    vb__parallel_for(be->pool, rows * c.parts, grain_of(be, n / c.parts, HEAVY), swiglu_parts, &c);
}

typedef struct gather_call {
    float *y;
    const float *x;
    int64_t ys, xs;
    const int32_t *idx;
    int32_t n;
} gather_call;

static void gather_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const gather_call *c = ctx;
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        memcpy(c->y + i * c->ys, c->x + (c->idx != NULL ? c->idx[i] : i) * c->xs, (size_t)c->n * sizeof(float));
}

void vb__cpu_gather_rows(vb__backend *base, float *y, int64_t ys, const float *x, int64_t xs, const int32_t *idx,
                         int32_t rows, int32_t n) {
    vb__cpu_backend *be = vb__cpu_of(base);
    gather_call c = {.y = y, .x = x, .ys = ys, .xs = xs, .idx = idx, .n = n};
    vb__parallel_for(be->pool, rows, grain_of(be, n, 4 * LIGHT), gather_items, &c);
}

typedef struct argmax_call {
    const vb__kernels *k;
    const float *x;
    int64_t xs;
    int32_t n, parts, width;
    vb__best *out;
} argmax_call;

static void argmax_parts(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const argmax_call *c = ctx;
    (void)thread;
    for (int32_t i = begin; i < end; i++) {
        int32_t at = i % c->parts * c->width;
        int32_t n = c->n - at < c->width ? c->n - at : c->width;
        c->k->argmax(c->x + i / c->parts * c->xs + at, n, &c->out[i]);
    }
}

void vb__cpu_argmax(vb__backend *base, const float *x, int64_t xs, int32_t rows, int32_t n, vb__best *best) {
    vb__cpu_backend *be = vb__cpu_of(base);
    argmax_call c = {.k = &be->k, .xs = xs, .n = n, .width = ARGMAX_PART, .out = be->rowwise->parts};
    while ((c.parts = (int32_t)(((int64_t)n + c.width - 1) / c.width)) > PARTIALS) c.width *= 2;
    for (int32_t done = 0, some; done < rows; done += some) {
        some = rows - done < PARTIALS / c.parts ? rows - done : PARTIALS / c.parts;
        c.x = x + done * xs;
        vb__parallel_for(be->pool, some * c.parts, grain_of(be, n / c.parts, ARGMAX_PART), argmax_parts, &c);
        for (int32_t r = 0; r < some; r++) {
            best[done + r] = VB_BEST_NONE;
            for (int32_t i = 0; i < c.parts; i++) vb__best_fold(&best[done + r], &c.out[r * c.parts + i], i * c.width);
        }
    }
}
