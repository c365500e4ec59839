/* Launchers of a mixture of experts: the choice, and the sum of what the chosen gave. The products between
 * are ordinary linears on the rows of one expert. */
#include "backend/cpu/cpu_backend.h"

enum { ROUTE_ROWS = 4, COMBINE_PART = 2048 }; /* rows of a piece; columns of one */

typedef struct route_call {
    const vb__kernels *k;
    float *x;
    int64_t xs;
    int32_t n, used;
    int32_t *ids;
    float *w;
} route_call;

static void route_rows(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const route_call *c = ctx;
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        float *x = c->x + r * c->xs;
        c->k->route(c->ids + r * c->used, c->w + r * c->used, x, x, c->n, c->used);
    }
}

void vb__cpu_route(vb__backend *base, float *x, int64_t xs, int32_t rows, int32_t n, int32_t used,
                   int32_t *ids, float *w) {
    vb__cpu_backend *be = vb__cpu_of(base);
    route_call c = {&be->k, x, xs, n, used, ids, w};
    vb__parallel_for(be->pool, rows, ROUTE_ROWS, route_rows, &c);
}

typedef struct combine_call {
    const vb__kernels *k;
    const vb__combine_args *a;
    int32_t parts;
} combine_call;

static void combine_parts(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const combine_call *c = ctx;
    const vb__combine_args *a = c->a;
    (void)thread;
    for (int32_t i = begin; i < end; i++) {
        int64_t r = i / c->parts;
        int32_t at = i % c->parts * COMBINE_PART, n = a->n - at < COMBINE_PART ? a->n - at : COMBINE_PART;
        c->k->combine(a->y + r * a->ys + at, a->experts + at, a->es, a->slot + r * a->used,
                      a->w + r * a->used, a->used, a->shared + r * a->ss + at, a->gate[r],
                      a->residual + r * a->rs + at, n);
    }
}

void vb__cpu_combine(vb__backend *base, const vb__combine_args *a) {
    vb__cpu_backend *be = vb__cpu_of(base);
    combine_call c = {&be->k, a, (a->n + COMBINE_PART - 1) / COMBINE_PART};
    vb__parallel_for(be->pool, a->rows * c.parts, 1, combine_parts, &c);
}
