/* bench as a user asks for it: a model folder or a named geometry in, the manual's JSON out. */
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/clock.h"
#include "base/fp_env.h"
#include "engine/bench.h"
#include "engine/footprint.h"
#include "engine/json_out.h"
#include "verbatim/verbatim.h"
#include <jansson.h>
#include <string.h>

void vb_bench_options_init(vb_bench_options *o) {
    *o = (vb_bench_options){.weights = "q4", .activations = 8, .ctx = 1024, .prefill_tokens = 512, .repeats = 7,
                            .head_chunk = true};
}

/* ---- The engine ------------------------------------------------------------------------------------------------- */

/* A source that takes the time of making random numbers, so that loading can be told apart from it. */
typedef struct timed_source {
    vb__weight_source inner;
    double seconds;
} timed_source;

static bool timed_has(const void *self, const char *module) {
    const timed_source *s = self;
    return s->inner.has(s->inner.self, module);
}
static vb_err timed_matrix(void *self, const char *module, int32_t n, int32_t k, vb__matrix *out, vb_error *err) {
    timed_source *s = self;
    double t0 = vb__now();
    vb_err code = s->inner.matrix(s->inner.self, module, n, k, out, err);
    s->seconds += vb__now() - t0;
    return code;
}
static vb_err timed_vector(void *self, const char *module, vb__vector_kind kind, int64_t n, float *out, vb_error *err) {
    timed_source *s = self;
    double t0 = vb__now();
    vb_err code = s->inner.vector(s->inner.self, module, kind, n, out, err);
    s->seconds += vb__now() - t0;
    return code;
}
static vb_err timed_finish(void *self, vb_error *err) {
    timed_source *s = self;
    return s->inner.finish(s->inner.self, err);
}

static vb_err open_random(const vb_bench_options *o, const vb_model_options *mo, vb__engine **out, double *load_s,
                          vb_error *err) {
    timed_source t = {.seconds = 0};
    VB_TRY(vb__random_source_init(o->geometry, o->weights, &t.inner, err));
    vb__weight_source src = t.inner;
    src.self = &t;
    src.has = timed_has;
    src.matrix = timed_matrix;
    src.vector = timed_vector;
    src.finish = timed_finish;
    double t0 = vb__now();
    vb_err code = vb__engine_open_source(mo, &src, out, err);
    *load_s = vb__now() - t0 - t.seconds;
    vb__random_source_fini(&t.inner);
    return code;
}

/* ---- JSON ----------------------------------------------------------------------------------------------------------- */

static json_t *class_object(const double *seconds) {
    json_t *o = json_object();
    for (int32_t c = 0; c < VB_PROFILE_CLASSES; c++)
        (void)json_object_set_new(o, vb__profile_class_name(c), json_real(seconds[c]));
    return o;
}

static double larger(double a, double b) { return a > b ? a : b; }
static double ratio(double a, double b) { return b > 0 ? a / b : 0; }

static json_t *width_array(const vb__bench_result *r) {
    json_t *a = json_array();
    double one = r->block_s[0].median, macs_per_s = r->contract_gops.median * 1e9;
    for (int32_t i = 0; i < VB_BENCH_WIDTHS; i++) {
        double s = r->block_s[i].median, floor = larger(one, ratio((double)r->rows[i] * (double)r->row_macs, macs_per_s));
        (void)json_array_append_new(
            a, json_pack("{s:i, s:f, s:f, s:f, s:f, s:f, s:f}", "rows", r->rows[i], "seconds", s, "ratio", ratio(s, one), "factor",
                         ratio(s, floor), "best", r->block_s[i].least, "spread", r->block_s[i].spread, "seconds_accepted",
                         r->accepted_s[i].median));
    }
    return a;
}

/* What the numbers are of, the limits, and what was reached. */
static json_t *report(const vb_bench_options *o, const vb__engine *e, const vb__bench_result *r, double load_s, int64_t scratch) {
    vb__footprint f;
    vb__footprint_of(e->model, scratch, &f);
    double step = r->step_s.median, gb = ratio((double)r->step_bytes, step) / 1e9;
    double stated = (double)vb__footprint_context(&f, e->ctx), packed = (double)f.weights;
    json_t *j = json_pack(
        "{s:s, s:b, s:o, s:s, s:i, s:i, s:s, s:i, s:i, s:f, s:f}", "level", vb__cpu_level_name(e->level), "vnni", e->level == VB_CPU_AVX2 && vb__cpu_vnni(), "geometry",
        vb__json_path(o->path != NULL ? o->path : o->geometry), "weights", o->path != NULL ? "file" : o->weights, "threads", e->threads,
        "activations", e->activations, "cpu", vb__cpu_brand(), "ctx", r->depth, "repeats", r->repeats, "read_gb_per_s",
        r->read_gb_per_s.median, "contract_gops", r->contract_gops.median);
    json_t *spread = json_pack("{s:f, s:f, s:f, s:f}", "read", r->read_gb_per_s.spread, "contract", r->contract_gops.spread,
                               "decode", r->step_s.spread, "prefill", r->prefill_s.spread);
    json_t *decode = json_pack("{s:f, s:f, s:I, s:f, s:f}", "tokens_per_s", ratio(1, step), "best_tokens_per_s", ratio(1, r->step_s.least), "bytes_per_token",
                               (json_int_t)r->step_bytes, "gb_per_s", gb, "percent_of_read",
                               100 * ratio(gb, r->read_gb_per_s.median));
    double pre = r->prefill_s.median;
    json_t *prefill = json_pack("{s:i, s:f, s:f, s:f}", "tokens", r->prefill_tokens, "tokens_per_s",
                                ratio(r->prefill_tokens, pre), "best_tokens_per_s", ratio(r->prefill_tokens, r->prefill_s.least), "percent_of_contract",
                                100 * ratio(ratio((double)r->prefill_macs, pre) / 1e9, r->contract_gops.median));
    json_t *memory = json_pack("{s:I, s:I, s:I, s:f}", "resident_bytes", (json_int_t)r->resident_bytes, "packed_bytes",
                               (json_int_t)f.weights, "context_bytes", (json_int_t)stated, "times_packed",
                               ratio((double)r->resident_bytes - stated, packed));
    (void)json_object_set_new(j, "decode", decode);
    (void)json_object_set_new(j, "widths", width_array(r));
    (void)json_object_set_new(j, "prefill", prefill);
    (void)json_object_set_new(j, "classes", class_object(r->classes));
    (void)json_object_set_new(j, "classes_16_rows", class_object(r->classes_16));
    (void)json_object_set_new(j, "classes_prefill", class_object(r->classes_prefill));
    (void)json_object_set_new(j, "spread", spread);
    (void)json_object_set_new(j, "macs_per_row", json_integer((json_int_t)r->row_macs));
    (void)json_object_set_new(j, "load_s", json_real(load_s));
    (void)json_object_set_new(j, "memory", memory);
    (void)json_object_set_new(j, "step_allocations", json_integer((json_int_t)r->step_allocations));
    return j;
}

static vb_err check(const vb_bench_options *o, vb_error *err) {
    if ((o->path == NULL) == (o->geometry == NULL))
        return vb__fail(err, VB_E_ARGUMENT, "bench: %s, expected one of a model and --geometry",
                        o->path == NULL ? "neither was given" : "both were given");
    if (o->ctx < 1 || o->ctx > VB_LIMIT_CONTEXT - 4096)
        return vb__fail(err, VB_E_RANGE, "--ctx: %lld, expected 1 to %d", (long long)o->ctx, VB_LIMIT_CONTEXT - 4096);
    if (o->prefill_tokens < 1 || o->prefill_tokens > VB_LIMIT_CONTEXT / 4)
        return vb__fail(err, VB_E_RANGE, "prefill tokens: %d, expected 1 to %d", o->prefill_tokens, VB_LIMIT_CONTEXT / 4);
    if (o->repeats < 1 || o->repeats >= VB_BENCH_REPEATS)
        return vb__fail(err, VB_E_RANGE, "--repeats: %d, expected 1 to %d", o->repeats, VB_BENCH_REPEATS - 1);
    return VB_OK;
}

vb_err vb_bench_json(const vb_bench_options *o, char **json, vb_error *err) {
    VB_TRY(check(o, err));
    vb__engine *e = NULL;
    vb__bench_result r;
    vb_model_options mo;
    vb_model_options_init(&mo);
    mo.path = o->path;
    mo.threads = o->threads;
    mo.activations = o->activations;
    mo.ctx = vb__bench_context(o->ctx, o->prefill_tokens);
    mo.kv_pages = vb__bench_pages(o->ctx, o->prefill_tokens);
    mo.head_chunk = o->head_chunk;
    mo.draft = "lookup"; /* blocks are verified, but no drafter's weights are loaded */
    mo.progress = o->progress;
    mo.progress_user = o->progress_user;
    double load_s = 0;
    if (o->path == NULL) {
        VB_TRY(open_random(o, &mo, &e, &load_s, err));
    } else {
        VB_TRY(vb__engine_open(&mo, &e, err));
        load_s = e->stats.load_s;
    }
    uint32_t csr = vb__fp_enter();
    int64_t scratch = 0;
    vb_err code = vb__footprint_scratch(&e->model->cfg, e->threads, e->activations, &scratch, err);
    if (code == VB_OK)
        code = vb__bench_run(e, o->ctx, o->prefill_tokens, o->repeats, o->progress, o->progress_user, &r, err);
    vb__fp_leave(csr);
    if (code == VB_OK) code = vb__json_out(report(o, e, &r, load_s, scratch), json, err);
    vb__engine_close(e);
    return code;
}
