/* verbatim verify: the promise, proved for a model on this machine. Hashes of logits over a grid must be one per
 * prompt and sampling; the first difference is named down to layer and position. */
#include "base/alloc.h"
#include "base/build_id.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/fault.h"
#include "base/fp_env.h"
#include "engine/bisect.h"
#include "engine/drafting.h"
#include "engine/draft_policy.h"
#include "engine/gate.h"
#include "engine/json_out.h"
#include "engine/model_handle.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROMPTS = 3, SAMPLINGS = 2, ANSWER = 24, PROMPT_MAX = 100, QUICK_CELLS = 36 };
static const double quick_seconds = 40;

typedef struct grid {
    const vb_verify_options *o;
    char want[PROMPTS][SAMPLINGS][65]; /* logits hash; "" until the first run */
    int32_t ids[PROMPTS][PROMPT_MAX], n[PROMPTS];
    int64_t cells, planned;
    int32_t drafted; /* cells of the sample that draft */
    double t0;
    json_t *difference; /* NULL: none */
    json_t *levels, *threads, *drafters;
    json_t *runs;          /* cells of each level and number of threads */
    json_t *blocks, *gate; /* widths that were looked at closely, and that the gate has checked */
    /* What the cells had in them, one bit for each: the certificate says no more than was run. */
    uint32_t widths, chunks, neighbours, warm;
    int64_t proposed[VB_DRAFT_KINDS];
    bool stop;
} grid;

static const int32_t all_chunks[] = {1, 7, 33, 512}, all_neighbours[] = {0, 1, 3}; /* 512: the whole prompt */
enum { N_CHUNKS = sizeof all_chunks / sizeof *all_chunks, N_NEIGHBOURS = sizeof all_neighbours / sizeof *all_neighbours };

static uint32_t bit_of(const int32_t *all, int32_t n, int32_t value) {
    for (int32_t i = 0; i < n; i++)
        if (all[i] == value) return 1u << i;
    return 0;
}

void vb_verify_options_init(vb_verify_options *o) { *o = (vb_verify_options){.activations = 8, .draft = "auto"}; }

/* Prompts: random ids, a short cycle (lookup finds it), and one that crosses a page while decoding. */
static void make_prompts(grid *g, int32_t vocab) {
    uint32_t s = 99;
    static const int32_t lengths[PROMPTS] = {40, 60, 7};
    for (int32_t p = 0; p < PROMPTS; p++) {
        g->n[p] = lengths[p];
        for (int32_t i = 0; i < lengths[p]; i++) {
            s = s * 1664525u + 1013904223u;
            g->ids[p][i] = p == 1 && i >= 12 ? g->ids[p][i - 12] : (int32_t)((s >> 8) % (uint32_t)vocab);
        }
    }
}

typedef struct cell {
    int32_t prompt, sampling, kind, width, chunk, neighbours;
    bool warm;
} cell;

static vb_err run_cell(grid *g, vb_model *m, const cell *c, vb_error *err) {
    vb__engine *e = m->engine;
    vb_request q;
    vb_result r;
    vb_request_init(&q);
    vb__engine_clear(e);
    e->prefill_chunk = c->chunk;
    vb__drafting_set_kinds(e, 1u << c->kind);
    vb__drafting_set_width(e, c->width);
    q.prompt_ids = g->ids[c->prompt];
    q.ignore_eos = true;
    q.sampling = (vb_sampling){.set = VB_SET_TEMPERATURE | VB_SET_TOP_K | VB_SET_TOP_P | VB_SET_SEED,
                               .temperature = c->sampling == 0 ? 0.0f : 0.8f, .top_p = 1.0f, .seed = 4321};
    if (c->warm) { /* run a part of the prompt first; the request goes on from there */
        q.prompt_count = g->n[c->prompt] / 2;
        q.max_tokens = 0;
        VB_TRY(vb_generate(m, &q, &r, err));
        vb_result_fini(&r);
    }
    q.prompt_count = g->n[c->prompt];
    q.max_tokens = ANSWER;
    q.hash_logits = true;
    q.neighbours = c->neighbours;
    VB_TRY(vb_generate(m, &q, &r, err));
    char *want = g->want[c->prompt][c->sampling];
    if (want[0] == '\0') memcpy(want, r.logits_sha256, 65);
    g->cells++;
    g->widths |= 1u << c->width;
    g->chunks |= bit_of(all_chunks, N_CHUNKS, c->chunk);
    g->neighbours |= bit_of(all_neighbours, N_NEIGHBOURS, c->neighbours);
    g->warm |= 1u << c->warm;
    g->proposed[c->kind] += r.proposed;
    if (strcmp(want, r.logits_sha256) != 0) {
        g->difference = json_pack("{s:s, s:i, s:s, s:i, s:i, s:i, s:s, s:i, s:b, s:s, s:s}", "where", "grid", "prompt", (int)c->prompt,
                                  "drafter", vb__draft_kind_name(c->kind), "width", (int)c->width, "chunk", (int)c->chunk, "neighbours",
                                  (int)c->neighbours, "level", vb__cpu_level_name(e->level), "threads", (int)e->threads, "warm",
                                  (int)c->warm, "expected", want, "got", r.logits_sha256);
        g->stop = true;
    }
    vb_result_fini(&r);
    if (g->o->progress != NULL && !g->o->progress(g->o->progress_user, "verify", g->cells, g->planned))
        return vb__fail(err, VB_E_CANCELLED, "verify: cancelled");
    return VB_OK;
}

/* One width with every layer in view: names the place when the grid would only say "differs". */
static vb_err look_closely(grid *g, vb_model *m, int32_t width, vb_error *err) {
    vb__difference d;
    VB_TRY(vb__bisect(m->engine, width, &d, err));
    (void)json_array_append_new(g->blocks, json_integer(width));
    if (!d.found) return VB_OK;
    g->difference = json_pack("{s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:i, s:f, s:f}", "where", "blocks", "tensor", d.tensor,
                              "layer", (int)d.layer, "position", (int)d.position, "width", (int)d.width, "row", (int)d.row,
                              "accept", (int)d.accept, "element", (int)d.element, "level",
                              vb__cpu_level_name(m->engine->level), "threads", (int)m->engine->threads, "expected", (double)d.want,
                              "got", (double)d.got);
    g->stop = true;
    return VB_OK;
}

/* The gate in full, whatever the memo says: its answers are what serves from now on. */
static vb_err check_gate(grid *g, vb_model *m, vb_error *err) {
    vb__gate *gate = vb__drafting_gate(m->engine);
    for (int32_t w = 2; gate != NULL && w <= VB_LIMIT_DRAFT_WIDTH && !g->stop; w++) {
        vb__gate_state s;
        VB_TRY(vb__gate_check(gate, w, true, &s, err));
        (void)json_array_append_new(g->gate, json_integer(w));
        if (s != VB_GATE_DECLINED) continue;
        VB_TRY(look_closely(g, m, w, err));
        if (g->stop) break;
        g->difference = json_pack("{s:s, s:i, s:s, s:s, s:i}", "where", "gate", "width", (int)w, "text", vb__gate_difference(gate), "level",
                                  vb__cpu_level_name(m->engine->level), "threads", (int)m->engine->threads);
        g->stop = true;
    }
    return VB_OK;
}

/* Blocks against steps. */
static vb_err check_blocks(grid *g, vb_model *m, vb_error *err) {
    (void)json_array_clear(g->blocks); /* of the last level */
    (void)json_array_clear(g->gate);
    static const int32_t quick[] = {2, 5, 16}, all[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    const int32_t *w = g->o->full ? all : quick;
    size_t n = g->o->full ? sizeof all / sizeof *all : sizeof quick / sizeof *quick;
    for (size_t i = 0; i < n && !g->stop; i++) VB_TRY(look_closely(g, m, w[i], err));
    return check_gate(g, m, err);
}

static uint32_t next(uint32_t *s, uint32_t n) {
    *s = *s * 1664525u + 1013904223u;
    return (*s >> 8) % n;
}

/* Full: everything. Else a seeded sample of `count` cells. */
static vb_err run_cells(grid *g, vb_model *m, int32_t count, double until, uint32_t *s, vb_error *err) {
    vb__engine *e = m->engine;
    static const int32_t chunks[] = {512, 1, 7, 33}, neighbours[] = {0, 0, 1, 3};
    uint32_t kinds = vb__drafting_kinds(e) | 1;
    cell c = {0};
    if (g->o->full) {
        for (c.prompt = 0; c.prompt < PROMPTS; c.prompt++)
            for (c.sampling = 0; c.sampling < SAMPLINGS; c.sampling++)
                for (c.kind = 0; c.kind < VB_DRAFT_KINDS; c.kind++) {
                    if ((kinds >> c.kind & 1) == 0) continue;
                    for (c.width = c.kind == 0 ? 1 : 2; c.width <= (c.kind == 0 ? 1 : 16); c.width++)
                        for (int32_t k = 0; k < 4; k++) {
                            c.chunk = chunks[k];
                            c.neighbours = neighbours[(k + c.width) % 4];
                            c.warm = (k + c.width) % 2 == 1;
                            if (g->stop) return VB_OK;
                            VB_TRY(run_cell(g, m, &c, err));
                        }
                }
        return VB_OK;
    }
    /* Every kind at the widest block first, however slow the machine is; then others while there is time. */
    int32_t must = count > VB_DRAFT_KINDS ? __builtin_popcount(kinds) : 1;
    for (int32_t i = 0, kind = 0; i < count && !g->stop && (i < must || vb__now() < until); i++) {
        c.prompt = (int32_t)next(s, PROMPTS);
        c.sampling = (int32_t)next(s, SAMPLINGS);
        do c.kind = (int32_t)next(s, VB_DRAFT_KINDS);
        while ((kinds >> c.kind & 1) == 0);
        c.width = c.kind == 0 ? 1 : 2 + 4 * g->drafted++ % 15; /* all of 2 to 16, in another order */
        c.chunk = chunks[next(s, 4)];
        c.neighbours = neighbours[next(s, 4)];
        c.warm = next(s, 2) == 1;
        if (must > 1 && i < must) {
            while ((kinds >> kind & 1) == 0) kind++;
            c.kind = kind++;
            c.prompt = 1; /* lookup finds something in it */
            c.width = c.kind == 0 ? 1 : VB_LIMIT_DRAFT_WIDTH;
        }
        VB_TRY(run_cell(g, m, &c, err));
    }
    return VB_OK;
}

static vb_err open_at(const grid *g, vb__cpu_level level, int32_t threads, vb_model **m, vb_error *err) {
    vb_model_options mo;
    vb_model_options_init(&mo);
    mo.path = g->o->path;
    mo.threads = threads;
    mo.activations = g->o->activations;
    mo.parallel = 4;
    mo.ctx = 512;
    mo.draft = g->o->draft;
    mo.level = vb__cpu_level_name(level);
    return vb_model_open(&mo, m, err);
}

static vb_err run_grid(grid *g, char fingerprint[33], vb_error *err) {
    vb__cpu_level best;
    VB_TRY(vb__cpu_select(&best, err));
    uint32_t s = 7;
    int32_t cpus = vb__cpu_count();
    const int32_t thread_counts[3] = {cpus, 1, cpus + 1};
    g->planned = QUICK_CELLS + 4 * ((int64_t)best + 2);
    for (int32_t l = (int32_t)best; l >= 0 && !g->stop; l--) {
        (void)json_array_append_new(g->levels, json_string(vb__cpu_level_name((vb__cpu_level)l)));
        for (int32_t t = 0; t < 3 && !g->stop; t++) {
            if (!g->o->full && l != (int32_t)best && t > 0) break;
            vb_model *m;
            VB_TRY(open_at(g, (vb__cpu_level)l, thread_counts[t], &m, err));
            /* The grid compares for itself: a width that waited for its check would be a narrower one in silence. */
            if (vb__drafting_gate(m->engine) != NULL) vb__gate_bypass(vb__drafting_gate(m->engine));
            if (g->n[0] == 0) make_prompts(g, m->engine->model->cfg.vocab);
            memcpy(fingerprint, m->engine->fingerprint, 33);
            if (l == (int32_t)best) {
                (void)json_array_append_new(g->threads, json_integer(thread_counts[t]));
                for (int32_t k = 0; k < VB_DRAFT_KINDS && t == 0; k++)
                    if ((vb__drafting_kinds(m->engine) | 1) >> k & 1)
                        (void)json_array_append_new(g->drafters, json_string(vb__draft_kind_name(k)));
            }
            vb_err code = VB_OK;
            int64_t before = g->cells;
            /* Plain decode on one call per row is what everything is compared with. */
            for (int32_t p = 0; p < PROMPTS && l == (int32_t)best && t == 0 && code == VB_OK; p++)
                for (int32_t k = 0; k < SAMPLINGS && code == VB_OK; k++) {
                    const cell c = {.prompt = p, .sampling = k, .width = 1, .chunk = 1};
                    code = run_cell(g, m, &c, err);
                }
            if (code == VB_OK && t == 0 && (l == (int32_t)best || g->o->full)) code = check_blocks(g, m, err);
            int32_t count = l == (int32_t)best ? QUICK_CELLS / 3 : l == 0 ? 1 : 5;
            double until = g->t0 + quick_seconds * (l == (int32_t)best ? 0.7 : 1.0);
            if (code == VB_OK) code = run_cells(g, m, count, until, &s, err);
            vb_model_close(m);
            VB_TRY(code);
            (void)json_array_append_new(g->runs, json_pack("{s:s, s:i, s:I}", "level", vb__cpu_level_name((vb__cpu_level)l), "threads",
                                                           (int)thread_counts[t], "cells", (json_int_t)(g->cells - before)));
        }
    }
    return VB_OK;
}

static json_t *values_json(const int32_t *all, int32_t n, uint32_t bits) {
    json_t *a = json_array();
    for (int32_t i = 0; i < n; i++)
        if (bits >> i & 1) (void)json_array_append_new(a, json_integer(all == NULL ? i : all[i]));
    return a;
}

/* What was run, not what could have been. */
static json_t *grid_json(const grid *g) {
    json_t *proposed = json_object(), *cache = json_array();
    for (int32_t k = 1; k < VB_DRAFT_KINDS; k++)
        if (g->proposed[k] > 0) (void)json_object_set_new(proposed, vb__draft_kind_name(k), json_integer(g->proposed[k]));
    if (g->warm & 1) (void)json_array_append_new(cache, json_string("cold"));
    if (g->warm & 2) (void)json_array_append_new(cache, json_string("warm"));
    return json_pack("{s:O, s:O, s:O, s:o, s:o, s:o, s:o, s:o, s:O, s:O, s:O}", "levels", g->levels, "threads", g->threads, "drafters", g->drafters,
                     "proposed", proposed, "widths", values_json(NULL, VB_LIMIT_DRAFT_WIDTH + 1, g->widths), "chunks",
                     values_json(all_chunks, N_CHUNKS, g->chunks), "neighbours", values_json(all_neighbours, N_NEIGHBOURS, g->neighbours), "cache",
                     cache, "runs", g->runs, "blocks", g->blocks, "gate", g->gate);
}

static json_t *fault_json(void) {
    for (int k = VB_FAULT_NONE + 1; k < VB_FAULTS; k++)
        if (vb__fault_is((vb__fault)k)) return json_string(vb__fault_name((vb__fault)k));
    return json_null();
}

static json_t *hashes_json(const grid *g) {
    json_t *a = json_array();
    for (int32_t p = 0; p < PROMPTS; p++)
        for (int32_t k = 0; k < SAMPLINGS; k++)
            (void)json_array_append_new(a, json_pack("{s:i, s:f, s:s}", "prompt", (int)p, "temperature", k == 0 ? 0.0 : 0.8,
                                                     "logits_sha256", g->want[p][k]));
    return a;
}

vb_err vb_verify_json(const vb_verify_options *o, char **json, bool *equal, vb_error *err) {
    grid g = {.o = o, .t0 = vb__now(), .levels = json_array(), .threads = json_array(), .drafters = json_array(), .runs = json_array(),
              .blocks = json_array(), .gate = json_array()};
    char fingerprint[33] = "", when[32] = "", build[96];
    uint32_t csr = vb__fp_enter();
    vb_err code = run_grid(&g, fingerprint, err);
    vb__fp_leave(csr);
    (void)snprintf(build, sizeof build, "%s %s %s", VB_VERSION, vb__build_compiler(), vb__build_id());
    time_t now = time(NULL);
    struct tm tm;
    if (gmtime_r(&now, &tm) != NULL) (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (code == VB_OK) {
        json_t *root = json_pack("{s:b, s:i, s:s, s:i, s:s, s:s, s:o, s:s, s:s, s:s, s:o, s:o, s:I, s:f, s:o, s:o}",
                                 "equal", (int)(g.difference == NULL), "contract", VB_CONTRACT, "class", "cpu", "activations",
                                 (int)o->activations, "mode", o->full ? "full" : "quick", "model", fingerprint, "path", vb__json_path(o->path), "machine",
                                 vb__cpu_brand(), "build", build, "date", when, "fault", fault_json(), "grid",
                                 grid_json(&g), "cells", (json_int_t)g.cells, "seconds", vb__now() - g.t0, "hashes",
                                 hashes_json(&g), "first_difference", g.difference != NULL ? json_incref(g.difference) : json_null());
        char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(9));
        json_decref(root);
        *json = text == NULL ? NULL : vb__strdup(VB_TAG_ENGINE, text);
        free(text);
        if (*json == NULL) code = vb__fail(err, VB_E_MEMORY, "verify: out of memory");
        *equal = g.difference == NULL;
    }
    json_decref(g.difference);
    json_decref(g.levels);
    json_decref(g.threads);
    json_decref(g.drafters);
    json_decref(g.runs);
    json_decref(g.blocks);
    json_decref(g.gate);
    return code;
}
