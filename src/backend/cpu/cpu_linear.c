/* Launchers of the linear layers and the embedding: scratch, quantisation of the input, and one parallel region over
 * the panels of all products of a call. */
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/pack.h"
#include "backend/ops/embed.h"
#include "base/alloc.h"
#include "base/fault.h"
#include <string.h>

enum {
    PASS_ROWS = 512,           /* rows of one pass over the weights at most, and */
    PASS_BYTES = 768 << 10,    /*   bytes of its quantised input, so that it stays in L2 */
    FORMS = 4,                 /* of an input: bf16, and quantised in groups of 16, 32 and 64 */
    GRAIN = 4,                 /* panels of the smallest share of a thread, where that leaves each of them */
    GRAINS = 8,                /*   so many shares */
    PREPARE_CELLS = 12288,     /* of an input that a thread norms and quantises at a time; with many threads */
    PREPARE_MANY = 4096,       /*   so many, since its lines come from all of their caches */
    BEST_ROWS = 64,            /* rows of one pass of linear_argmax */
    BEST_PANELS = 128,         /* panels made at most before their argmax is taken, and */
    BEST_BYTES = 128 << 10,    /*   bytes of them, so that they lie in L2 */
    MLP_COLS = 512,            /* of gate and of up that are made at a time at most, and */
    MLP_BYTES = 128 << 10,     /*   bytes of each of them; 64 columns at least */
    /* Of a thread's own: rows of either lie a line apart from a power of two. */
    MADE_FLOATS = 2 * (MLP_BYTES / 4 + PASS_ROWS * VB_PANEL),
    BEYOND = 4096              /* bytes behind an input that a kernel may read: whole tiles of the last block */
};

_Static_assert((int)VB_RANGE_UNIT == (int)VB_PANEL, "a range of outputs is whole panels");

/* Some rows of an input in the forms that kinds of weights want. */
typedef struct forms {
    vb__bact b;
    vb__qact q[FORMS - 1]; /* seg 16, 32, 64 */
    bool have[FORMS];      /* made for this pass; 0 is bf16 */
} forms;

struct vb__cpu_linear {
    forms in, mid; /* of a call's input; of what lies between the products of an MLP */
    uint8_t *thread_scratch;
    vb__best *best;    /* [threads][BEST_ROWS]: linear_argmax of what each thread has made */
    float *made;       /* [threads][MADE_FLOATS]: that, where the caller does not want it; and pieces of gate and up */
    vb__weight_store store;
};

static int32_t form_of(const vb__weight *w) {
    if (!w->quantised) return 0;
    return w->group < 32 ? 1 : w->group < 64 ? 2 : 3;
}

/* Rows of a pass: all of a step's, fewer for wide inputs of a prefill. */
static int32_t pass_rows(const vb__cpu_backend *be, int32_t k) {
    int32_t rows = PASS_BYTES / (k * (be->o.activations / 8));
    rows = rows / VB_ROW_BLOCK * VB_ROW_BLOCK;
    if (rows < 4 * VB_ROW_BLOCK) rows = 4 * VB_ROW_BLOCK;
    return rows < PASS_ROWS ? rows : PASS_ROWS;
}

static bool forms_init(forms *f, size_t cells, size_t planes) {
    f->b.x = vb__alloc_aligned(VB_TAG_SCRATCH, cells * sizeof(float) + BEYOND);
    bool ok = f->b.x != NULL;
    for (int32_t i = 0; i < FORMS - 1; i++) {
        vb__qact *q = &f->q[i];
        q->seg = 16 << i;
        q->width = q->seg < 32 ? 32 : q->seg;
        q->planes = (int32_t)planes;
        size_t segs = cells / (size_t)q->seg;
        q->a = vb__alloc_aligned(VB_TAG_SCRATCH, cells * planes + BEYOND);
        q->dd = vb__alloc_aligned(VB_TAG_SCRATCH, segs * 2 * sizeof(float) + BEYOND);
        q->sums = vb__alloc_aligned(VB_TAG_SCRATCH, segs * sizeof(int32_t) + BEYOND);
        ok = ok && q->a != NULL && q->dd != NULL && q->sums != NULL;
    }
    return ok;
}

static void forms_fini(forms *f) {
    vb__free(f->b.x);
    for (int32_t i = 0; i < FORMS - 1; i++) {
        vb__free(f->q[i].a);
        vb__free(f->q[i].dd);
        vb__free(f->q[i].sums);
    }
}

vb_err vb__cpu_linear_init(vb__cpu_backend *be, vb_error *err) {
    struct vb__cpu_linear *l = vb__calloc(VB_TAG_SCRATCH, 1, sizeof *l);
    if (l == NULL) return vb__fail(err, VB_E_MEMORY, "linear: out of memory");
    be->linear = l;
    size_t k = (size_t)(be->o.max_k + 63) / 64 * 64, planes = (size_t)be->o.activations / 8, rows = PASS_ROWS;
    if ((size_t)be->o.max_rows < rows) rows = (size_t)be->o.max_rows;
    /* The rows of a pass depend on k; PASS_BYTES bounds rows * k beyond the least pass. */
    size_t cells = rows * k, bound = PASS_BYTES / planes + 4 * VB_ROW_BLOCK * k + PASS_ROWS * 32;
    if (cells > bound) cells = bound;
    bool ok = forms_init(&l->in, cells, planes);
    ok = forms_init(&l->mid, rows * k, planes) && ok; /* pages of it that no MLP needs are never touched */
    size_t threads = (size_t)vb__pool_threads(be->pool);
    l->thread_scratch = vb__alloc_aligned(VB_TAG_SCRATCH, threads * VB_LINEAR_SCRATCH);
    l->best = vb__calloc(VB_TAG_SCRATCH, threads * BEST_ROWS, sizeof *l->best);
    l->made = vb__alloc_aligned(VB_TAG_SCRATCH, threads * MADE_FLOATS * sizeof *l->made);
    if (!ok || l->thread_scratch == NULL || l->best == NULL || l->made == NULL) return vb__fail(err, VB_E_MEMORY, "linear: out of memory for scratch");
    return VB_OK;
}

void vb__cpu_linear_fini(vb__cpu_backend *be) {
    struct vb__cpu_linear *l = be->linear;
    if (l == NULL) return;
    forms_fini(&l->in);
    forms_fini(&l->mid);
    vb__free(l->thread_scratch);
    vb__free(l->best);
    vb__free(l->made);
    vb__free(l);
    be->linear = NULL;
}

vb_err vb__cpu_weight_create(vb__backend *base, const vb__matrix *src, vb__weight **out, vb_error *err) {
    vb__cpu_backend *be = vb__cpu_of(base);
    vb__cpu_weight *w;
    VB_TRY(vb__pack(&be->linear->store, be->pool, src, be->o.max_k, &w, err));
    *out = &w->pub;
    return VB_OK;
}

static const vb__cpu_weight *cpu_weight(const vb__weight *w) { return (const vb__cpu_weight *)(const void *)w; }

void vb__cpu_weight_destroy(vb__backend *base, vb__weight *w) {
    (void)base;
    vb__pack_destroy((vb__cpu_weight *)(void *)w);
}

/* ---- embedding ------------------------------------------------------------------------------------------ */

typedef struct embed_job {
    const vb__cpu_weight *w;
    const int32_t *ids;
    float *y;
    int64_t ys;
} embed_job;

static void embed_rows(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const embed_job *j = ctx;
    (void)thread;
    for (int32_t r = begin; r < end; r++) {
        vb_assert(j->ids[r] >= 0 && j->ids[r] < j->w->pub.n);
        if (j->w->pub.quantised) vb__embed_q_ref(&j->w->q, j->ids[r], j->y + r * j->ys);
        else vb__embed_bf16_ref(&j->w->b, j->ids[r], j->y + r * j->ys);
    }
}

void vb__cpu_embed(vb__backend *base, const vb__weight *w, const int32_t *ids, int32_t rows, float *y, int64_t ys) {
    embed_job j = {cpu_weight(w), ids, y, ys};
    vb__parallel_for(vb__cpu_of(base)->pool, rows, 8, embed_rows, &j);
}

/* ---- linear --------------------------------------------------------------------------------------------- */

typedef struct linear_job {
    vb__cpu_backend *be;
    forms *in;
    const vb__norm *norm; /* makes x first, its rows from row0 on; or NULL */
    float *normed;        /*   x */
    const float *x; /* NULL: `in` is made already */
    int64_t xs;
    int32_t row0, n_rows; /* of the pass; in y and residual */
    const vb__linear_out *outs;
    int32_t n_outs;
    bool argmax; /* of the one output; into best */
    const vb__out_range *ranges; /* of its outputs, [n_ranges]; NULL: all */
    int32_t n_ranges;
    const int32_t *first; /* [n_ranges + 1] item at which each range starts: its panels are the items */
} linear_job;

static void prepare_rows(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const linear_job *j = ctx;
    const forms *l = j->in;
    (void)thread;
    if (j->norm != NULL)
        j->be->k.rmsnorm(j->normed + begin * j->xs, j->xs, j->norm->x + (j->row0 + begin) * j->norm->xs, j->norm->xs, j->norm->w,
                         end - begin, l->b.k, j->norm->eps);
    if (l->have[0]) j->be->k.act_bf16(&l->b, j->x, j->xs, begin, end);
    for (int32_t i = 1; i < FORMS; i++)
        if (l->have[i]) j->be->k.act_quant(&l->q[i - 1], j->x, j->xs, begin, end);
}

static int32_t panels_of(const vb__weight *w) { return (w->n + VB_PANEL - 1) / VB_PANEL; }

/* Panels p0 .. p1-1 of one product of quantised weights, or of bf16 weights. */
static void product_q(const linear_job *j, const vb__linear_out *o, int32_t p0, int32_t p1, uint8_t *scratch) {
    const vb__cpu_weight *w = cpu_weight(o->w);
    float *y = o->y + j->row0 * o->ys;
    const float *residual = o->residual == NULL ? NULL : o->residual + j->row0 * o->rs;
    const vb__qact *x = &j->in->q[form_of(o->w) - 1];
    vb__linear_q_args a = {&w->q, x, y, o->ys, o->bias, residual, o->rs, scratch};
    /* Inside the first slice: at a slice's end the two sums would be the contract's own. */
    int32_t half = (w->q.k < VB_SLICE ? w->q.k : VB_SLICE) / 2 / w->q.unit * w->q.unit;
    if (x->rows == 1 || half == 0 || !vb__fault_is(VB_FAULT_LINEAR_ROWS)) {
        j->be->k.linear_q(&a, p0, p1);
        return;
    }
    /* The planted fault: two chains where the contract has one. */
    vb__qpanels part = w->q;
    vb__qact rest = *x;
    part.k = half;
    a.w = &part;
    j->be->k.linear_q(&a, p0, p1);
    part.k = w->q.k - half;
    part.data += (int64_t)(half / w->q.unit) * w->q.unit_bytes;
    rest.k0 = half;
    vb__linear_q_args second = {&part, &rest, y, o->ys, NULL, y, o->ys, scratch};
    j->be->k.linear_q(&second, p0, p1);
}

static void product_bf16(const linear_job *j, const vb__linear_out *o, int32_t p0, int32_t p1, uint8_t *scratch) {
    const vb__cpu_weight *w = cpu_weight(o->w);
    float *y = o->y + j->row0 * o->ys;
    const float *residual = o->residual == NULL ? NULL : o->residual + j->row0 * o->rs;
    const vb__bact *x = &j->in->b;
    vb__linear_bf16_args a = {&w->b, x, y, o->ys, o->bias, residual, o->rs, scratch};
    int32_t half = w->b.kp / 64 * 32;
    if (x->rows == 1 || half == 0 || !vb__fault_is(VB_FAULT_LINEAR_ROWS)) {
        j->be->k.linear_bf16(&a, p0, p1);
        return;
    }
    vb__bpanels part = w->b; /* the planted fault */
    vb__bact rest = *x;
    part.kp = half;
    a.w = &part;
    j->be->k.linear_bf16(&a, p0, p1);
    part.kp = w->b.kp - half;
    part.data += (int64_t)half * VB_PANEL;
    rest.k0 = half;
    vb__linear_bf16_args second = {&part, &rest, y, o->ys, NULL, y, o->ys, scratch};
    j->be->k.linear_bf16(&second, p0, p1);
}

static void product(const linear_job *j, const vb__linear_out *o, int32_t p0, int32_t p1, int32_t thread) {
    uint8_t *scratch = j->be->linear->thread_scratch + (size_t)thread * VB_LINEAR_SCRATCH;
    if (o->w->quantised) product_q(j, o, p0, p1, scratch);
    else product_bf16(j, o, p0, p1, scratch);
}

/* Panels p0 .. p1-1 of a weight as one of its own; its public part and panels are set. */
static vb__cpu_weight panels_as_weight(const vb__cpu_weight *w, int32_t p0, int32_t p1) {
    vb__cpu_weight part = *w;
    int32_t left = w->pub.n - p0 * VB_PANEL, n = (p1 - p0) * VB_PANEL;
    part.pub.n = part.q.n = part.b.n = left < n ? left : n;
    if (w->pub.quantised) part.q.data += p0 * w->q.panel_stride;
    else part.b.data += p0 * w->b.panel_stride;
    return part;
}

/* Some panels of the product, then what they add to the argmax of each row. Nobody may want the product itself: it then
 * stays in a piece of memory of the thread's own. (Its lines would otherwise be read to be written, and written back: two for
 * every nine of 4-bit weights with 16 rows.) */
static void product_best(const linear_job *j, int32_t begin, int32_t end, int32_t thread) {
    const vb__linear_out *o = &j->outs[0];
    const struct vb__cpu_linear *l = j->be->linear;
    vb__best *all = l->best + (size_t)thread * BEST_ROWS;
    const int32_t rows = j->n_rows, fit = BEST_BYTES / (VB_PANEL * (int32_t)sizeof(float)) / rows;
    const int32_t most = fit < BEST_PANELS ? fit : BEST_PANELS;
    for (int32_t p0 = begin, p1; p0 < end; p0 = p1) {
        p1 = end - p0 < most ? end : p0 + most;
        int32_t at = p0 * VB_PANEL, n = (p1 * VB_PANEL < o->w->n ? p1 * VB_PANEL : o->w->n) - at;
        const float *y;
        int64_t ys;
        if (o->y != NULL) {
            product(j, o, p0, p1, thread);
            y = o->y + j->row0 * o->ys + at;
            ys = o->ys;
        } else {
            vb__cpu_weight part = panels_as_weight(cpu_weight(o->w), p0, p1);
            linear_job own = *j;
            vb__linear_out piece = {.w = &part.pub, .y = l->made + (size_t)thread * MADE_FLOATS, .ys = most * VB_PANEL + VB_PANEL};
            own.row0 = 0;
            product(&own, &piece, 0, p1 - p0, thread);
            y = piece.y;
            ys = piece.ys;
        }
        for (int32_t r = 0; r < rows; r++) {
            vb__best part;
            j->be->k.argmax(y + r * ys, n, &part);
            vb__best_fold(&all[r], &part, at);
        }
    }
}

/* Items of the job's ranges: the panels of each range in one piece. */
static void ranges_best(const linear_job *j, int32_t begin, int32_t end, int32_t thread) {
    int32_t low = 0, high = j->n_ranges; /* the range that item `begin` is of */
    while (high - low > 1) {
        int32_t mid = (low + high) / 2;
        if (j->first[mid] <= begin) low = mid;
        else high = mid;
    }
    for (int32_t i = low; begin < end; i++) {
        int32_t some = j->first[i + 1] < end ? j->first[i + 1] : end, p0 = j->ranges[i].begin / VB_PANEL + begin - j->first[i];
        product_best(j, p0, p0 + some - begin, thread);
        begin = some;
    }
}

static void linear_panels(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const linear_job *j = ctx;
    if (j->argmax) {
        if (j->ranges != NULL) ranges_best(j, begin, end, thread);
        else product_best(j, begin, end, thread);
        return;
    }
    int32_t first = 0; /* panel of the call at which product i starts */
    for (int32_t i = 0; i < j->n_outs && first < end; i++) {
        int32_t n = panels_of(j->outs[i].w), p0 = begin - first, p1 = end - first;
        if (p0 < n && p1 > 0) product(j, &j->outs[i], p0 < 0 ? 0 : p0, p1 > n ? n : p1, thread);
        first += n;
    }
}

static void forms_of(forms *f, int32_t rows, int32_t k, const vb__linear_out *outs, int32_t n_outs) {
    memset(f->have, 0, sizeof f->have);
    for (int32_t i = 0; i < n_outs; i++) f->have[form_of(outs[i].w)] = true;
    f->b.rows = rows;
    f->b.k = k;
    f->b.kp = (k + 31) / 32 * 32;
    for (int32_t i = 0; i < FORMS - 1; i++) {
        f->q[i].rows = rows;
        f->q[i].k = k;
    }
}

/* Norm and quantisation, in parts that are worth a thread's while. */
static void prepare(linear_job *j, int32_t rows, int32_t k) {
    int32_t cells = vb__pool_threads(j->be->pool) < VB_MANY_THREADS ? PREPARE_CELLS : PREPARE_MANY;
    int32_t least = cells / k / 4 * 4; /* kernels take four rows at a time */
    vb__parallel_shares(j->be->pool, rows, least < 4 ? 4 : least, prepare_rows, j);
}

static void pass(linear_job *j, int32_t rows, int32_t k) {
    j->n_rows = rows;
    int32_t panels = 0;
    for (int32_t i = 0; i < j->n_outs; i++) panels += panels_of(j->outs[i].w);
    if (j->ranges != NULL) panels = j->first[j->n_ranges];
    if (j->x != NULL) {
        forms_of(j->in, rows, k, j->outs, j->n_outs);
        prepare(j, rows, k);
    }
    int32_t grain = panels / (GRAINS * vb__pool_threads(j->be->pool));
    vb__parallel_shares(j->be->pool, panels, grain > GRAIN ? GRAIN : grain < 1 ? 1 : grain, linear_panels, j);
}

static void products(vb__cpu_backend *be, const vb__norm *norm, float *normed, const float *x, int64_t xs, int32_t rows,
                     const vb__linear_out *outs, int32_t n_outs) {
    int32_t k = outs[0].w->k, step = pass_rows(be, k);
    for (int32_t i = 1; i < n_outs; i++) vb_assert(outs[i].w->k == k);
    vb_assert(k <= be->o.max_k && rows <= be->o.max_rows);
    for (int32_t r = 0; r < rows; r += step) {
        linear_job j = {.be = be, .in = &be->linear->in, .norm = norm, .x = x + r * xs, .xs = xs, .row0 = r, .outs = outs, .n_outs = n_outs};
        if (norm != NULL) j.normed = normed + r * xs;
        pass(&j, rows - r < step ? rows - r : step, k);
    }
}

void vb__cpu_linear(vb__backend *base, const float *x, int64_t xs, int32_t rows, const vb__linear_out *outs,
                    int32_t n_outs) {
    products(vb__cpu_of(base), NULL, NULL, x, xs, rows, outs, n_outs);
}

void vb__cpu_norm_linear(vb__backend *base, const vb__norm *norm, float *h, int64_t hs, int32_t rows, const vb__linear_out *outs,
                         int32_t n_outs) {
    products(vb__cpu_of(base), norm, h, h, hs, rows, outs, n_outs);
}

/* Items before each range, in first[0 .. n]. */
static void count_items(const vb__out_range *ranges, int32_t n, int32_t outputs, int32_t *first) {
    vb_check(n <= VB_RANGES_MAX);
    first[0] = 0;
    for (int32_t i = 0; i < n; i++) {
        const vb__out_range r = ranges[i];
        vb_check(r.begin >= (i == 0 ? 0 : ranges[i - 1].end) && r.begin % VB_PANEL == 0 && r.begin < r.end && r.end <= outputs);
        vb_check(r.end % VB_PANEL == 0 || r.end == outputs);
        first[i + 1] = first[i] + (r.end - r.begin + VB_PANEL - 1) / VB_PANEL;
    }
}

void vb__cpu_linear_argmax(vb__backend *base, const float *x, int64_t xs, int32_t rows, const vb__linear_out *out,
                           const vb__out_range *ranges, int32_t n_ranges, vb__best *best) {
    vb__cpu_backend *be = vb__cpu_of(base);
    int32_t first[VB_RANGES_MAX + 1];
    const int32_t k = out->w->k, threads = vb__pool_threads(be->pool);
    int32_t step = pass_rows(be, k) < BEST_ROWS ? pass_rows(be, k) : BEST_ROWS;
    vb__best *all = be->linear->best;
    vb_assert(k <= be->o.max_k && rows <= be->o.max_rows && out->bias == NULL && out->residual == NULL);
    count_items(ranges, n_ranges, out->w->n, first);
    for (int32_t r = 0, some; r < rows; r += some) {
        some = rows - r < step ? rows - r : step;
        for (int32_t i = 0; i < threads * BEST_ROWS; i++) all[i] = VB_BEST_NONE;
        linear_job j = {.be = be, .in = &be->linear->in, .x = x + r * xs, .xs = xs, .row0 = r, .outs = out, .n_outs = 1, .argmax = true,
                        .ranges = n_ranges > 0 ? ranges : NULL, .n_ranges = n_ranges, .first = first};
        pass(&j, some, k);
        for (int32_t i = 0; i < some; i++) {
            best[r + i] = all[i];
            for (int32_t t = 1; t < threads; t++) vb__best_fold(&best[r + i], &all[t * BEST_ROWS + i], 0);
        }
    }
}

/* ---- MLP ------------------------------------------------------------------------------------------------ */

/* Columns of gate and up that become one item: whole segments of every form, whole panels. */
enum { MLP_ITEM = 64 };

typedef struct mlp_job {
    const linear_job *in; /* of gate and up */
    forms *mid;
    int32_t n; /* columns of gate and up */
} mlp_job;

/* Rows r0 .. r0+rows-1 of an input, r0 a multiple of a block. */
static forms rows_of_forms(const vb__kernels *k, const forms *f, int32_t r0, int32_t rows) {
    forms part = *f;
    part.b.x = (uint8_t *)part.b.x + vb__bact_block(&f->b, r0) * k->act_bf16_size;
    part.b.rows = rows;
    for (int32_t i = 0; i < FORMS - 1; i++) {
        part.q[i].a = vb__qact_block(&f->q[i], r0);
        part.q[i].dd = vb__qact_dd(&f->q[i], r0);
        part.q[i].sums = vb__qact_sums(&f->q[i], r0);
        part.q[i].rows = rows;
    }
    return part;
}

/* Columns at .. at+n-1 of rows that lie at y (stride ys) into the forms: the blocks of rows one by one, each as if it were an
 * input of its own. */
static void prepare_columns(const vb__kernels *k, const forms *f, int32_t rows, int32_t at, int32_t n, const float *y, int64_t ys) {
    for (int32_t r0 = 0; r0 < rows; r0 += VB_ROW_BLOCK, y += VB_ROW_BLOCK * ys) {
        int32_t nb = vb__row_block(rows, r0);
        if (f->have[0]) {
            vb__bact b = f->b;
            b.x = (uint8_t *)b.x + (vb__bact_block(&b, r0) + (int64_t)at * nb) * k->act_bf16_size;
            b.rows = nb;
            b.k = n;
            b.kp = (n + 31) / 32 * 32;
            k->act_bf16(&b, y, ys, 0, nb);
        }
        for (int32_t i = 1; i < FORMS; i++) {
            if (!f->have[i]) continue;
            vb__qact q = f->q[i - 1];
            q.a = vb__qact_block(&q, r0) + (int64_t)at * nb * q.planes;
            q.dd = vb__qact_dd(&q, r0) + (int64_t)(at / q.seg) * 2 * nb;
            q.sums = vb__qact_sums(&q, r0) + (int64_t)(at / q.seg) * nb;
            q.rows = nb;
            q.k = n;
            k->act_quant(&q, y, ys, 0, nb);
        }
    }
}

/* Some columns of gate and of up in memory of the thread's own, silu(gate) * up of them, and that as an input of down: neither
 * of them is ever written to memory that others read. */
static void mlp_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const mlp_job *m = ctx;
    const vb__kernels *k = &m->in->be->k;
    const int32_t rows = m->in->n_rows, last = end * MLP_ITEM < m->n ? end * MLP_ITEM : m->n;
    int32_t most = MLP_BYTES / (int32_t)sizeof(float) / rows / MLP_ITEM * MLP_ITEM;
    most = most > MLP_COLS ? MLP_COLS : most < MLP_ITEM ? MLP_ITEM : most;
    const int64_t ys = most + VB_PANEL;
    float *g = m->in->be->linear->made + (size_t)thread * MADE_FLOATS, *u = g + MADE_FLOATS / 2;
    linear_job own = *m->in;
    own.row0 = 0;
    for (int32_t at = begin * MLP_ITEM; at < last; at += most) {
        int32_t n = last - at < most ? last - at : most, p0 = at / VB_PANEL, p1 = p0 + (n + VB_PANEL - 1) / VB_PANEL;
        for (int32_t i = 0; i < 2; i++) {
            const vb__linear_out *o = &m->in->outs[i];
            vb__cpu_weight part = panels_as_weight(cpu_weight(o->w), p0, p1);
            vb__linear_out piece = {.w = &part.pub, .bias = o->bias == NULL ? NULL : o->bias + at, .y = i == 0 ? g : u, .ys = ys};
            product(&own, &piece, 0, p1 - p0, thread);
        }
        for (int32_t r = 0; r < rows; r++) k->swiglu(g + r * ys, g + r * ys, u + r * ys, n);
        prepare_columns(k, m->mid, rows, at, n, g, ys);
    }
}

void vb__cpu_mlp(vb__backend *base, float *x, int64_t xs, int32_t rows, const vb__mlp_args *a) {
    vb__cpu_backend *be = vb__cpu_of(base);
    struct vb__cpu_linear *l = be->linear;
    const int32_t k = a->gate->k, n = a->gate->n;
    const vb__linear_out gu[2] = {{.w = a->gate, .bias = a->gate_bias}, {.w = a->up, .bias = a->up_bias}};
    const int32_t step = pass_rows(be, k), down_step = pass_rows(be, n); /* both multiples of a block of rows */
    vb_assert(a->up->k == k && a->up->n == n && a->down.w->k == n && k <= be->o.max_k && n <= be->o.max_k && rows <= be->o.max_rows);
    for (int32_t r = 0, some; r < rows; r += some) {
        some = rows - r < step ? rows - r : step;
        linear_job in = {.be = be, .in = &l->in, .norm = a->norm, .normed = x + r * xs, .x = x + r * xs, .xs = xs, .row0 = r,
                         .n_rows = some, .outs = gu, .n_outs = 2};
        forms_of(&l->in, some, k, gu, 2);
        forms_of(&l->mid, some, n, &a->down, 1);
        prepare(&in, some, k);
        mlp_job m = {&in, &l->mid, n};
        vb__parallel_shares(be->pool, (n + MLP_ITEM - 1) / MLP_ITEM, 1, mlp_items, &m);
        for (int32_t at = 0; at < some; at += down_step) {
            forms part = rows_of_forms(&be->k, &l->mid, at, some - at < down_step ? some - at : down_step);
            linear_job down = {.be = be, .in = &part, .row0 = r + at, .outs = &a->down, .n_outs = 1};
            pass(&down, part.b.rows, n);
        }
    }
}
