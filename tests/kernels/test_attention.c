/* attention: every level, thread count and tile shape against the literal definition of one row, bit by bit;
 * calls of any number of rows against one another; accuracy against f64. `--bench` prints times.
 *
 * VERBATIM_TEST_SEED and VERBATIM_TEST_ROUNDS change the random part. */
#include "base/bf16.h"
#include "base/clock.h"
#include "base/fault.h"
#include "base/fp_env.h"
#include "kv_case.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { MAX_ROWS = 512, MAX_HEADS = 48, MAX_SEQS = 9 };
static const int32_t g_threads[] = {1, 2, 3, 5};
enum { THREADS = sizeof g_threads / sizeof *g_threads };
static vb__cpu_level g_level;
static vb__cpu_backend *g_be[VB_CPU_LEVELS][THREADS];

typedef struct seq_case {
    int32_t pos0, rows;
} seq_case;

typedef struct attn_case {
    int32_t heads, kv_heads, dim, visible_extra, window, pad;
    bool gate;
    kind q, k, v;
    float scale;
    seq_case seqs[MAX_SEQS];
    int32_t n_seqs;
} attn_case;

/* A case made concrete: values, pages with every position appended and stale rows behind, the expected
 * output. */
typedef struct attn_data {
    vb__attention_args a;
    vb__seq_rows seqs[MAX_SEQS];
    float *q, *k, *v, *gate, *want, *got;
    int32_t rows;
    int64_t page_bytes;
    uint8_t *pages[MAX_SEQS][256];
    uint8_t *memory;
    float *keys[MAX_SEQS], *vals[MAX_SEQS]; /* f32 k and v of every position */
} attn_data;

static void *grab(int64_t bytes) {
    void *p = vb__alloc_aligned(VB_TAG_MISC, (size_t)bytes);
    if (p == NULL) abort();
    return p;
}

static void append(const attn_data *d, int32_t seq, int32_t p, const float *k, const float *v) {
    vb__kv_append_ref(d->pages[seq][p / 64] + d->a.kv.page_off, d->a.kv.kv_heads, d->a.kv.head_dim, p % 64, k,
                      v);
}

static void open_case(attn_data *d, const attn_case *c, rng *r) {
    memset(d, 0, sizeof *d);
    int32_t width = c->heads * c->dim, kvw = c->kv_heads * c->dim, n_pages = 0;
    for (int32_t i = 0; i < c->n_seqs; i++) d->rows += c->seqs[i].rows;
    d->page_bytes = c->pad + c->kv_heads * vb__kv_head_bytes(c->dim);
    for (int32_t i = 0; i < c->n_seqs; i++)
        n_pages += (c->seqs[i].pos0 + c->seqs[i].rows + c->visible_extra + 63) / 64;
    d->memory = grab(n_pages * d->page_bytes);
    int64_t qs = width + 3;
    d->q = grab(d->rows * qs * 4);
    d->gate = grab(d->rows * qs * 4);
    d->want = grab(d->rows * (int64_t)width * 4);
    d->got = grab(d->rows * (int64_t)(width + 1) * 4);
    rng_fill(r, d->q, d->rows * qs, c->q);
    rng_fill(r, d->gate, d->rows * qs, c->q == BITS ? WIDE : NORMAL);
    d->a = (vb__attention_args){.q = d->q,
                                .qs = qs,
                                .qh = c->dim,
                                .gate = c->gate ? d->gate : NULL,
                                .gs = qs,
                                .gh = c->dim,
                                .o = d->got,
                                .os = width + 1,
                                .kv = {.page_off = c->pad, .kv_heads = c->kv_heads, .head_dim = c->dim},
                                .heads = c->heads,
                                .scale = c->scale,
                                .window = c->window,
                                .seqs = d->seqs,
                                .n_seqs = c->n_seqs};
    uint8_t *page = d->memory;
    int32_t row0 = 0;
    for (int32_t i = 0; i < c->n_seqs; i++) {
        const seq_case *s = &c->seqs[i];
        int32_t keys = s->pos0 + s->rows + c->visible_extra, n = (keys + 63) / 64;
        for (int32_t p = 0; p < n; p++, page += d->page_bytes) d->pages[i][p] = page;
        d->keys[i] = grab((int64_t)n * 64 * kvw * 4);
        d->vals[i] = grab((int64_t)n * 64 * kvw * 4);
        rng_fill(r, d->keys[i], (int64_t)n * 64 * kvw, c->k);
        rng_fill(r, d->vals[i], (int64_t)n * 64 * kvw, c->v);
        for (int32_t p = 0; p < n * 64; p++)
            append(d, i, p, d->keys[i] + (int64_t)p * kvw, d->vals[i] + (int64_t)p * kvw);
        d->seqs[i] = (vb__seq_rows){.row0 = row0, .rows = s->rows, .pos0 = s->pos0, .pages = d->pages[i]};
        row0 += s->rows;
        if (c->visible_extra > 0 && i != 1) d->seqs[i].visible_end = keys; /* a causal one among them */
    }
    for (int32_t i = 0; i < c->n_seqs; i++)
        for (int32_t j = 0; j < c->seqs[i].rows; j++)
            for (int32_t h = 0; h < c->heads; h++) {
                int64_t row = d->seqs[i].row0 + j, off = row * qs + h * c->dim;
                vb__attn_tile t = {.q = d->q + off,
                                   .rows = 1,
                                   .heads = 1,
                                   .dim = c->dim,
                                   .scale = c->scale,
                                   .pages = d->pages[i],
                                   .k_off = c->pad + h / (c->heads / c->kv_heads) * vb__kv_head_bytes(c->dim),
                                   .pos0 = c->seqs[i].pos0 + j,
                                   .visible_end = d->seqs[i].visible_end,
                                   .window = c->window};
                vb__attn_row_ref(&t, c->gate ? d->gate + off : NULL, d->want + row * width + h * c->dim);
            }
}

static void close_case(attn_data *d) {
    for (int32_t i = 0; i < MAX_SEQS; i++) {
        vb__free(d->keys[i]);
        vb__free(d->vals[i]);
    }
    vb__free(d->q);
    vb__free(d->gate);
    vb__free(d->want);
    vb__free(d->got);
    vb__free(d->memory);
}

static void describe(const attn_case *c, char *out, size_t n) {
    int at =
        snprintf(out, n, "heads %d/%d dim %d extra %d window %d gate %d kinds %d %d %d scale %g:", c->heads,
                 c->kv_heads, c->dim, c->visible_extra, c->window, c->gate, (int)c->q, (int)c->k, (int)c->v,
                 (double)c->scale);
    for (int32_t i = 0; i < c->n_seqs; i++)
        at += snprintf(out + at, n - (size_t)at, " %d+%d", c->seqs[i].pos0, c->seqs[i].rows);
}

static void compare(const attn_data *d, const attn_case *c, const char *what) {
    int32_t width = c->heads * c->dim;
    for (int64_t row = 0; row < d->rows; row++) {
        int64_t at;
        if (same_bits(d->got + row * (width + 1), d->want + row * width, width, &at)) continue;
        char text[400];
        describe(c, text, sizeof text);
        fail_msg("%s: row %d head %d dim %d: got %a, want %a (%s)", what, (int)row, (int)(at / c->dim),
                 (int)(at % c->dim), (double)d->got[row * (width + 1) + at],
                 (double)d->want[row * width + at], text);
    }
}

/* Every level, thread count and head_chunk. `few`: one thread count of each level, chosen by the case. */
static void run_case(const attn_case *c, rng *r, bool few) {
    attn_data d;
    open_case(&d, c, r);
    for (int32_t level = 0; level <= (int32_t)g_level; level++) {
        if (level == VB_CPU_C && few && rng_u32(r) % 4 != 0) continue;
        int32_t only = rng_int(r, 0, THREADS - 1);
        for (int32_t t = 0; t < THREADS; t++) {
            if (few && t != only) continue;
            for (int32_t chunk = 0; chunk < 2; chunk++) {
                memset(d.got, 0x5a, (size_t)(d.rows * (int64_t)(c->heads * c->dim + 1)) * 4);
                d.a.head_chunk = chunk == 1;
                uint64_t calls = vb__alloc_calls();
                vb__cpu_attention(&g_be[level][t]->base, &d.a);
                assert_int_equal(vb__alloc_calls(), calls);
                char what[64];
                snprintf(what, sizeof what, "%s, %d threads, head_chunk %d",
                         vb__cpu_level_name((vb__cpu_level)level), g_threads[t], chunk);
                compare(&d, c, what);
            }
        }
    }
    close_case(&d);
}

static float scale_of(int32_t dim) {
    return (float)(1.0 / sqrt((double)dim));
}

static int32_t env_int(const char *name, int32_t standard) {
    const char *s = getenv(name);
    return s == NULL ? standard : (int32_t)strtol(s, NULL, 10);
}

static void random_cases(void **state) {
    (void)state;
    int32_t seed = env_int("VERBATIM_TEST_SEED", 1), rounds = env_int("VERBATIM_TEST_ROUNDS", 120);
    printf("seed %d, %d rounds\n", seed, rounds);
    rng r = {(uint64_t)seed};
    for (int32_t i = 0; i < rounds; i++) {
        static const int32_t dims[] = {2, 16, 32, 48, 64, 80, 128, 256}, ratio[] = {1, 2, 3, 4, 6, 8, 12};
        attn_case c = {0};
        c.dim = dims[rng_int(&r, 0, 7)];
        c.kv_heads = rng_int(&r, 1, 3);
        c.heads = c.kv_heads * ratio[rng_int(&r, 0, c.dim > 100 ? 4 : 6)];
        c.pad = rng_int(&r, 0, 2) * 64;
        c.gate = rng_u32(&r) & 1;
        static const float odd_scales[] = {-0.25f, 0.0f, 0x1p-130f, 0x1p-126f, 0x1p127f, -0x1p-127f, INFINITY, NAN};
        c.scale = rng_u32(&r) % 8 == 0 ? odd_scales[rng_int(&r, 0, 7)] : scale_of(c.dim);
        kind all = (kind)rng_int(&r, 0, KINDS - 1);
        c.q = rng_u32(&r) % 8 == 0 ? BITS : all;
        c.k = all == BITS ? EXTREME : all;
        c.v = rng_u32(&r) % 4 == 0 ? EXTREME : all == BITS ? SMALL : all;
        if (rng_u32(&r) % 4 == 0) c.window = rng_int(&r, 1, 150);
        c.n_seqs = rng_int(&r, 1, 3);
        if (rng_u32(&r) % 4 == 0) c.visible_extra = rng_int(&r, 1, 80);
        for (int32_t s = 0; s < c.n_seqs; s++) {
            c.seqs[s].rows = rng_u32(&r) % 2 ? rng_int(&r, 1, 4) : rng_int(&r, 1, c.dim > 100 ? 20 : 40);
            c.seqs[s].pos0 = rng_int(&r, 0, 200);
        }
        run_case(&c, &r, true);
    }
}

/* Contexts on both sides of the edges of blocks and spans, at every thread count. */
static void edges(void **state) {
    (void)state;
    rng r = {7};
    static const int32_t ends[] = {1,    63,   64,   65,   127,  128,  129, 1023,
                                   1024, 1025, 1087, 2047, 2048, 2049, 3200};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        for (int32_t rows = 1; rows <= 5; rows += 2) {
            if (rows > ends[i]) continue;
            attn_case c = {
                .heads = 4, .kv_heads = 2, .dim = 32, .gate = rows == 3, .scale = scale_of(32), .n_seqs = 1};
            c.seqs[0] = (seq_case){.pos0 = ends[i] - rows, .rows = rows};
            run_case(&c, &r, false);
            c.window = 1100;
            run_case(&c, &r, true);
            c.window = 70;
            run_case(&c, &r, true);
        }
}

/* Backends whose scratch is small, so that a context goes in several rounds, of blocks and of spans; also
 * with many more threads than blocks. */
static void rounds_of_a_long_context(void **state) {
    (void)state;
    rng r = {15};
    static const struct {
        int32_t heads, kv, rows, context, window;
    } shapes[] = {{4, 2, 16, 3200, 0},
                  {4, 2, 16, 3200, 2500},
                  {3, 1, 32, 12000, 0},
                  {3, 1, 32, 12000, 11500},
                  {1, 1, 1, 300, 0}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        attn_case c = {.heads = shapes[i].heads,
                       .kv_heads = shapes[i].kv,
                       .dim = 16,
                       .scale = 0.25f,
                       .n_seqs = 1,
                       .window = shapes[i].window};
        c.seqs[0] = (seq_case){.pos0 = shapes[i].context, .rows = shapes[i].rows};
        attn_data d;
        open_case(&d, &c, &r);
        d.a.head_chunk = true;
        for (int32_t level = 0; level <= (int32_t)g_level; level++)
            for (int32_t threads = 2; threads <= 17; threads += level == 0 ? 15 : 5) {
                vb__cpu_backend *be = case_backend((vb__cpu_level)level, threads, 32, c.heads, 16);
                memset(d.got, 0x5a, (size_t)(d.rows * (int64_t)(c.heads * 16 + 1)) * 4);
                vb__cpu_attention(&be->base, &d.a);
                char what[64];
                snprintf(what, sizeof what, "%s, %d threads, small scratch",
                         vb__cpu_level_name((vb__cpu_level)level), threads);
                compare(&d, &c, what);
                case_backend_free(be);
            }
        close_case(&d);
    }
}

static void every_row_count(void **state) {
    (void)state;
    rng r = {8};
    for (int32_t rows = 1; rows <= 40; rows++) {
        attn_case c = {
            .heads = 8, .kv_heads = 2, .dim = 48, .gate = true, .scale = scale_of(48), .n_seqs = 1};
        c.seqs[0] = (seq_case){.pos0 = 90, .rows = rows};
        run_case(&c, &r, true);
    }
}

static void many_sequences(void **state) {
    (void)state;
    rng r = {9};
    attn_case c = {
        .heads = 6, .kv_heads = 2, .dim = 64, .gate = true, .scale = scale_of(64), .n_seqs = MAX_SEQS};
    for (int32_t i = 0; i < MAX_SEQS; i++)
        c.seqs[i] = (seq_case){.pos0 = i * i * 17, .rows = i == 4 ? 0 : i == 7 ? 70 : 1 + i % 3};
    run_case(&c, &r, false);
    c.kv_heads = 1; /* gqa 6 */
    run_case(&c, &r, true);
    c.heads = 40; /* 20 heads of a KV head: more lanes than a tile at 7 rows */
    c.kv_heads = 2;
    c.dim = 16;
    run_case(&c, &r, true);
}

/* A window and visible_end may leave a row without keys: +0, whatever else. */
static void no_visible_key(void **state) {
    (void)state;
    rng r = {10};
    attn_case c = {
        .heads = 2, .kv_heads = 1, .dim = 32, .gate = true, .scale = 1.0f, .n_seqs = 1, .window = 5};
    c.seqs[0] = (seq_case){.pos0 = 100, .rows = 9};
    attn_data d;
    open_case(&d, &c, &r);
    d.seqs[0].visible_end = 100; /* row 0 sees keys 96..99, row 3 sees 99, row 4 none */
    for (int32_t level = 0; level <= (int32_t)g_level; level++)
        for (int32_t t = 0; t < THREADS; t++) {
            vb__cpu_attention(&g_be[level][t]->base, &d.a);
            for (int32_t j = 4; j < 9; j++)
                for (int32_t i = 0; i < 64; i++) assert_int_equal(vb__bits32(d.got[j * 65 + i]), 0);
            for (int32_t i = 0; i < 64; i++) assert_true(d.got[3 * 65 + i] != 0.0f);
        }
    close_case(&d);
}

/* One call, chunks of any size, one row at a time, pages with zeros or with stale rows: the same bits. */
static void chunking(void **state) {
    (void)state;
    rng r = {12};
    for (int32_t round = 0; round < 16; round++) {
        attn_case c = {
            .heads = 4, .kv_heads = 2, .dim = round % 2 ? 32 : 80, .gate = round % 3 == 0, .n_seqs = 1};
        c.scale = scale_of(c.dim);
        c.q = c.k = round < 6 || round == 12 ? NORMAL : WIDE;
        if (round > 13) c.scale *= 0x1p-20f;
        c.v = round < 4 ? NORMAL : round < 8 ? SMALL : round < 12 ? EXTREME : TINY;
        c.seqs[0] = (seq_case){.pos0 = round == 0 ? 960 : rng_int(&r, 0, 70), .rows = 130};
        attn_data d;
        open_case(&d, &c, &r);
        int32_t kvw = c.kv_heads * c.dim, pos0 = c.seqs[0].pos0;
        for (int32_t level = 0; level <= (int32_t)g_level; level++) {
            if (level == 0 && round % 4 != 0) continue;
            for (int32_t way = 0; way < 4; way++) { /* 0: one row at a time; 1, 2: chunks; 3: one call */
                for (int32_t stale = 0; stale < 2; stale++) {
                    for (int32_t p = pos0; p < pos0 + 130; p++) {
                        float *k = malloc((size_t)kvw * 4), *v = malloc((size_t)kvw * 4);
                        for (int32_t i = 0; i < kvw; i++) k[i] = v[i] = 0.0f;
                        if (stale) rng_fill(&r, k, kvw, EXTREME);
                        if (stale) rng_fill(&r, v, kvw, EXTREME);
                        append(&d, 0, p, k, v);
                        free(k);
                        free(v);
                    }
                    memset(d.got, 0, (size_t)(130 * (int64_t)(c.heads * c.dim + 1)) * 4);
                    vb__cpu_backend *be = g_be[level][(way + stale) % THREADS];
                    vb__attention_args a = d.a;
                    vb__seq_rows s = d.seqs[0];
                    a.seqs = &s;
                    uint8_t failed[130] = {0};
                    for (int32_t at = 0, n; at < 130; at += n) {
                        n = way == 0 ? 1 : way == 3 ? 130 : rng_int(&r, 1, way == 1 ? 8 : 64);
                        if (n > 130 - at) n = 130 - at;
                        s.row0 = at;
                        s.rows = n;
                        s.pos0 = pos0 + at;
                        s.failed = failed;
                        const float *k = d.keys[0] + (int64_t)pos0 * kvw,
                                    *v = d.vals[0] + (int64_t)pos0 * kvw;
                        vb__cpu_kv_append(&be->base, &a.kv, k, kvw, v, kvw, &s, 1);
                        vb__cpu_attention(&be->base, &a);
                    }
                    char what[64];
                    snprintf(what, sizeof what, "%s, way %d, stale %d",
                             vb__cpu_level_name((vb__cpu_level)level), way, stale);
                    compare(&d, &c, what);
                }
            }
        }
        close_case(&d);
    }
}

/* Against f64 on the rounded inputs: what is left is the rounding of p to bf16 (2^-9 of a weight), of scores,
 * and of sums. Tolerance: 2^-8 times the largest |v| among the keys. */
static void accuracy(void **state) {
    (void)state;
    rng r = {13};
    double worst = 0;
    for (int32_t round = 0; round < 6; round++) {
        attn_case c = {.heads = 2,
                       .kv_heads = 1,
                       .dim = round < 3 ? 256 : 64,
                       .scale = scale_of(round < 3 ? 256 : 64),
                       .n_seqs = 1};
        int32_t keys = 300 + round * 300;
        c.seqs[0] = (seq_case){.pos0 = keys - 2, .rows = 2};
        attn_data d;
        open_case(&d, &c, &r);
        for (int32_t row = 0; row < 2; row++)
            for (int32_t h = 0; h < 2; h++) {
                double *p = malloc((size_t)keys * 8), max = -1e300, sum = 0;
                int32_t n = keys - 1 + row;
                for (int32_t j = 0; j < n; j++) {
                    double s = 0;
                    for (int32_t x = 0; x < c.dim; x++)
                        s += (double)vb__from_bf16(vb__to_bf16(d.q[row * d.a.qs + h * c.dim + x])) *
                             (double)vb__from_bf16(vb__to_bf16(d.keys[0][j * c.dim + x]));
                    p[j] = s * (double)c.scale;
                    if (p[j] > max) max = p[j];
                }
                for (int32_t j = 0; j < n; j++) sum += p[j] = exp(p[j] - max);
                for (int32_t x = 0; x < c.dim; x++) {
                    double o = 0, big = 0;
                    for (int32_t j = 0; j < n; j++) {
                        double v = (double)vb__from_bf16(vb__to_bf16(d.vals[0][j * c.dim + x]));
                        o += p[j] * v;
                        if (fabs(v) > big) big = fabs(v);
                    }
                    double error =
                        fabs(o / sum - (double)d.want[row * c.heads * c.dim + h * c.dim + x]) / big;
                    if (error > worst) worst = error;
                }
                free(p);
            }
        close_case(&d);
    }
    printf("largest error over the largest |v|: %.2e\n", worst);
    assert_true(worst < 0x1p-8);
}

/* The planted fault: calls of several rows differ from calls of one, which stay right. */
static void fault_changes_rows_only(void **state) {
    (void)state;
    rng r = {14};
    attn_case c = {.heads = 4, .kv_heads = 2, .dim = 32, .scale = scale_of(32), .n_seqs = 1};
    c.seqs[0] = (seq_case){.pos0 = 20, .rows = 1};
    vb__fault_set(VB_FAULT_ATTENTION_ROWS);
    run_case(&c, &r, false);
    c.seqs[0].rows = 2;
    attn_data d;
    open_case(&d, &c, &r);
    vb__cpu_attention(&g_be[g_level][1]->base, &d.a);
    int64_t at;
    assert_false(same_bits(d.got, d.want, c.heads * c.dim, &at));
    vb__fault_set(VB_FAULT_NONE);
    vb__cpu_attention(&g_be[g_level][1]->base, &d.a);
    assert_true(same_bits(d.got, d.want, c.heads * c.dim, &at));
    close_case(&d);
}

/* ---- bench ---- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* CPU time with one thread, which a busy machine disturbs less; else wall time. */
static double bench_now(int32_t threads) {
    if (threads > 1) return vb__now();
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Attention layers of a model, all of them, so that K and V come from memory as in a forward. */
static const struct geometry {
    const char *name;
    int32_t layers, heads, kv, dim;
    bool gate;
} g_geometries[] = {{"qwen", 6, 8, 2, 256, true}, {"smol", 30, 9, 3, 64, false}};

typedef struct bench_shape {
    int32_t rows, context, seqs; /* rows of each sequence */
} bench_shape;

static void bench_one(const struct geometry *g, vb__cpu_level level, int32_t threads, bench_shape b) {
    int32_t heads = g->heads, kv = g->kv, dim = g->dim, n = (b.context + b.rows + 63) / 64, rows = b.rows * b.seqs;
    vb__cpu_backend *be = case_backend(level, threads, MAX_ROWS, heads, dim);
    if (be->k.attn_blocks == vb__attn_blocks_ref) { /* a level without a kernel of its own */
        case_backend_free(be);
        return;
    }
    int64_t head = vb__kv_head_bytes(dim), page_bytes = head * kv * g->layers;
    uint8_t *memory = grab(page_bytes * n * b.seqs), **pages = malloc((size_t)(n * b.seqs) * sizeof *pages);
    rng r = {3};
    for (int64_t i = 0; i < page_bytes * n * b.seqs / 2; i++)
        ((uint16_t *)(void *)memory)[i] = vb__to_bf16(rng_unit(&r));
    for (int32_t i = 0; i < n * b.seqs; i++) pages[i] = memory + i * page_bytes;
    int64_t width = heads * dim, kvw = kv * dim;
    float *q = grab(rows * width * 4), *gate = grab(rows * width * 4), *o = grab(rows * width * 4);
    float *k = grab(rows * kvw * 4);
    rng_fill(&r, q, rows * width, NORMAL);
    rng_fill(&r, gate, rows * width, NORMAL);
    rng_fill(&r, k, rows * kvw, NORMAL);
    uint8_t failed[MAX_ROWS] = {0};
    vb__seq_rows s[MAX_ROWS];
    for (int32_t i = 0; i < b.seqs; i++)
        s[i] = (vb__seq_rows){
            .row0 = i * b.rows, .rows = b.rows, .pos0 = b.context, .pages = pages + i * n, .failed = failed};
    vb__attention_args a = {.q = q,
                            .qs = width,
                            .qh = dim,
                            .gate = g->gate ? gate : NULL,
                            .gs = width,
                            .gh = dim,
                            .o = o,
                            .os = width,
                            .kv = {.kv_heads = kv, .head_dim = dim},
                            .heads = heads,
                            .scale = 1.0f / 16,
                            .head_chunk = true,
                            .seqs = s,
                            .n_seqs = b.seqs};
    double seconds[51], appends[51];
    int32_t runs = b.rows > 100 || (int64_t)b.context * b.seqs > 10000 ? 7 : 51;
    for (int32_t i = 0; i < runs; i++) {
        appends[i] = seconds[i] = 0;
        for (int32_t l = 0; l < g->layers; l++) {
            a.kv.page_off = head * kv * l;
            double t0 = bench_now(threads);
            vb__cpu_kv_append(&be->base, &a.kv, k, kvw, k, kvw, s, b.seqs);
            double t1 = bench_now(threads);
            vb__cpu_attention(&be->base, &a);
            appends[i] += t1 - t0;
            seconds[i] += bench_now(threads) - t1;
        }
    }
    qsort(seconds, (size_t)runs, sizeof *seconds, by_value);
    qsort(appends, (size_t)runs, sizeof *appends, by_value);
    double t = seconds[runs / 2], best = seconds[0], keys = 0;
    for (int32_t i = 0; i < b.rows; i++) keys += (double)b.seqs * (b.context + i + 1);
    double bytes = (double)g->layers * b.seqs * kv * (double)head / 64 * (b.context + b.rows);
    double flops = (double)g->layers * keys * heads * dim * 4;
    printf("%s %-6s %d threads %2d x %3d rows at %5d: %9.1f us (least %9.1f)  %7.2f MB KV %7.2f GB/s  %8.3f GFLOP "
           "%8.1f GFLOP/s  append %6.1f us\n",
           g->name, vb__cpu_level_name(level), threads, b.seqs, b.rows, b.context, t * 1e6, best * 1e6, bytes * 1e-6,
           bytes / best * 1e-9, flops * 1e-9, flops / best * 1e-9, appends[runs / 2] * 1e6);
    vb__free(memory);
    vb__free(q);
    vb__free(gate);
    vb__free(o);
    vb__free(k);
    free(pages);
    case_backend_free(be);
}

/* With an argument: only lines whose "geometry level threads rows context sequences" begin with it. */
static int bench(const char *only) {
    static const bench_shape shapes[] = {{1, 1024, 1},  {1, 8192, 1},  {1, 32000, 1}, {2, 1024, 1},  {4, 1024, 1},
                                         {8, 1024, 1},  {16, 1024, 1}, {16, 8192, 1}, {512, 0, 1},   {512, 2048, 1},
                                         {1, 1024, 4},  {1, 1024, 16}, {4, 1024, 4},  {4, 1024, 16}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("%s\n", vb__cpu_brand());
    for (size_t g = 0; g < sizeof g_geometries / sizeof *g_geometries; g++)
        printf("%s: %d layers, %d query and %d KV heads of %d\n", g_geometries[g].name, g_geometries[g].layers,
               g_geometries[g].heads, g_geometries[g].kv, g_geometries[g].dim);
    for (size_t g = 0; g < sizeof g_geometries / sizeof *g_geometries; g++)
        for (int32_t threads = 1; threads <= 2; threads++)
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                for (int32_t level = VB_CPU_AVX2; level <= (int32_t)g_level; level++) {
                    char name[64];
                    snprintf(name, sizeof name, "%s %s %d %d %d %d", g_geometries[g].name,
                             vb__cpu_level_name((vb__cpu_level)level), threads, shapes[i].rows, shapes[i].context,
                             shapes[i].seqs);
                    if (only == NULL || strncmp(name, only, strlen(only)) == 0)
                        bench_one(&g_geometries[g], (vb__cpu_level)level, threads, shapes[i]);
                }
    return 0;
}

int main(int argc, char **argv) {
    vb_error err;
    if (vb__cpu_detect(&g_level, &err) != VB_OK) return 77;
    vb__fp_enter();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench(argc > 2 ? argv[2] : NULL);
    for (int32_t l = (int32_t)g_level + 1; l < VB_CPU_LEVELS; l++)
        printf("attention: %s skipped, the CPU lacks it\n", vb__cpu_level_name((vb__cpu_level)l));
    for (int32_t l = 0; l <= (int32_t)g_level; l++)
        for (int32_t t = 0; t < THREADS; t++)
            g_be[l][t] = case_backend((vb__cpu_level)l, g_threads[t], MAX_ROWS, MAX_HEADS, 256);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_cases),
        cmocka_unit_test(edges),
        cmocka_unit_test(every_row_count),
        cmocka_unit_test(many_sequences),
        cmocka_unit_test(no_visible_key),
        cmocka_unit_test(chunking),
        cmocka_unit_test(accuracy),
        cmocka_unit_test(fault_changes_rows_only),
        cmocka_unit_test(rounds_of_a_long_context),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    for (int32_t l = 0; l <= (int32_t)g_level; l++)
        for (int32_t t = 0; t < THREADS; t++) case_backend_free(g_be[l][t]);
    return failed;
}
