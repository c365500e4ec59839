/* Shared by the golden tests: where the shared folder is, a model with all it needs on a fresh backend, and
 * plain reading of expected tensors. */
#ifndef VB_TESTS_GOLDEN_UTIL_H
#define VB_TESTS_GOLDEN_UTIL_H
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/fp_env.h"
#include "format/safetensors.h"
#include "model/forward.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* The shared folder: VERBATIM_SHARED, else ../shared beside the source tree; NULL (said once) when absent. */
static inline const char *golden_shared(void) {
    static char path[512];
    const char *env = getenv("VERBATIM_SHARED");
    (void)snprintf(path, sizeof path, "%s", env != NULL ? env : SOURCE_ROOT "/../shared");
    if (access(path, R_OK) == 0) return path;
    printf("SKIP: no shared folder at %s\n", path);
    return NULL;
}

typedef struct golden_model {
    vb__backend *be;
    vb__model *m;
    vb__workspace *ws;
    vb__page_pool *pool;
    vb__seq *seq;
    float *hidden, *logits;
    int32_t max_rows;
} golden_model;

static inline void golden_open(golden_model *g, const char *path, int32_t threads, int32_t activations) {
    vb_error err = {0};
    vb__cpu_level level;
    vb__checkpoint *ck = NULL;
    if (vb__cpu_select(&level, &err) != VB_OK || vb__checkpoint_open(path, &ck, &err) != VB_OK) fail_msg("%s", err.text);
    const vb__model_config *c = vb__checkpoint_config(ck);
    g->max_rows = 1024;
    const vb__cpu_backend_options bo = {.level = level, .threads = threads, .activations = activations,
                                        .max_rows = g->max_rows, .max_k = vb__model_max_k(c), .max_heads = c->heads,
                                        .max_head_dim = c->head_dim};
    vb__weight_source src;
    vb__checkpoint_source(ck, &src);
    if (vb__cpu_backend_create(&bo, &g->be, &err) != VB_OK ||
        vb__model_load(&src, g->be, NULL, NULL, &g->m, &err) != VB_OK ||
        vb__workspace_create(g->m, g->max_rows, 8, &g->ws, &err) != VB_OK ||
        vb__page_pool_create(g->be, g->m->page_bytes, 64, &g->pool, &err) != VB_OK ||
        vb__seq_create(g->m, g->pool, 2048, g->max_rows, 16, &g->seq, &err) != VB_OK)
        fail_msg("%s: %s", path, err.text);
    vb__checkpoint_close(ck);
    void *p;
    assert_int_equal(g->be->ops->alloc(g->be, (size_t)g->max_rows * (size_t)g->m->cfg.hidden * 4, &p), VB_OK);
    g->hidden = p;
    assert_int_equal(g->be->ops->alloc(g->be, (size_t)g->max_rows * (size_t)g->m->cfg.vocab * 4, &p), VB_OK);
    g->logits = p;
}

static inline void golden_close(golden_model *g) {
    vb__seq_destroy(g->seq);
    vb__page_pool_destroy(g->pool);
    vb__workspace_destroy(g->ws);
    g->be->ops->free(g->be, g->hidden);
    g->be->ops->free(g->be, g->logits);
    vb__model_destroy(g->m);
    g->be->ops->destroy(g->be);
}

/* Runs n tokens on g->seq in one call, all certain; logits of every row in g->logits. */
static inline void golden_run(golden_model *g, const int32_t *ids, int32_t n) {
    vb_error err = {0};
    assert_int_equal(vb__seq_reserve(g->seq, g->seq->length + n), VB_OK);
    const vb__forward_seq fs = {g->seq, n, n, ids};
    const vb__forward_args a = {.seqs = &fs, .n_seqs = 1, .n_hidden = n, .hidden = g->hidden};
    if (vb__forward(g->m, g->ws, &a, &err) != VB_OK) fail_msg("%s", err.text);
    assert_int_equal(vb__seq_commit(g->seq, n), VB_OK);
    vb__logits(g->m, g->hidden, n, g->logits);
}

static inline int32_t golden_argmax(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* KL(softmax(ref) || softmax(got)) in f64. */
static inline double golden_kl(const float *ref, const float *got, int32_t n) {
    double mr = -INFINITY, mg = -INFINITY, sr = 0, sg = 0, kl = 0;
    for (int32_t i = 0; i < n; i++) {
        mr = fmax(mr, ref[i]);
        mg = fmax(mg, got[i]);
    }
    for (int32_t i = 0; i < n; i++) {
        sr += exp(ref[i] - mr);
        sg += exp(got[i] - mg);
    }
    for (int32_t i = 0; i < n; i++) {
        double p = exp(ref[i] - mr) / sr;
        if (p > 0) kl += p * ((ref[i] - mr - log(sr)) - (got[i] - mg - log(sg)));
    }
    return kl;
}

#endif
