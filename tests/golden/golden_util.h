/* Shared by the golden tests: where the shared folder is, a folder for what a run remembers, a model on a fresh backend (golden_open) or
 * behind the public interface (golden_load), requests, and plain reading of expected values. Everything fails the running test with what
 * went wrong. What a test is about stands in the test. */
#ifndef VB_TESTS_GOLDEN_UTIL_H
#define VB_TESTS_GOLDEN_UTIL_H
#include "base/fp_env.h"
#include "format/safetensors.h"
#include "model/forward.h"
#include "verbatim/verbatim.h"
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- Folders ------------------------------------------------------------------------------------------------------- */

#define GOLDEN_EMBEDDED SOURCE_ROOT "/models/atto" /* is always there */

/* The shared folder: VERBATIM_SHARED, else ../shared beside the source tree; NULL (said) when absent. */
const char *golden_shared(void);

/* A path in it, which must be there. One of eight strings in turn. */
const char *golden_file(const char *name);

/* Sets VERBATIM_HOME to a new, empty folder (no memo of the gate) that is removed when the program ends; its path. */
const char *golden_fresh_home(void);

/* ---- A model on a backend ------------------------------------------------------------------------------------------- */

typedef struct golden_model {
    vb__backend *be;
    vb__model *m;
    vb__workspace *ws;
    vb__page_pool *pool;
    vb__seq *seq;
    float *hidden, *logits; /* (max_rows, hidden), (max_rows, vocab) */
    int32_t max_rows;
} golden_model;

void golden_open(golden_model *g, const char *path, int32_t threads, int32_t activations);
void golden_close(golden_model *g);

/* Runs n tokens on g->seq in one call, all certain; logits of every row in g->logits. */
void golden_run(golden_model *g, const int32_t *ids, int32_t n);

/* ---- A model behind the public interface ------------------------------------------------------------------------------ */

/* The embedded model with two threads, this drafter (NULL: the default) and context. */
vb_model_options golden_options(const char *draft, int64_t ctx);

vb_model *golden_load(const vb_model_options *o);

/* n ids, max_tokens more whatever ends the answer, hash of the logits; greedy, or sampled from all ids with this seed. */
vb_request golden_request(const int32_t *ids, int32_t n, int64_t max_tokens, float temperature, uint64_t seed);

void golden_generate(vb_model *m, const vb_request *q, vb_result *r);

/* The gate's check of this width, from the start or with what its memo says, passes. A width below 2 needs none. */
void golden_gate_passes(vb_model *m, int32_t width, bool fresh);
/* All widths up to the widest, whatever that takes: requests check for two seconds at most, and a slow or busy machine would draft nothing. */
void golden_gates_pass(vb_model *m, int32_t widest);

/* ---- Expected values ------------------------------------------------------------------------------------------------- */

/* A JSON file of the shared folder, to be decref'ed. */
json_t *golden_json(const char *name);

/* The integers of a list; how many. */
int32_t golden_ids(const json_t *list, int32_t *out);

void golden_tensors(vb__safetensors *s, const char *path);
const vb__st_tensor *golden_tensor(const vb__safetensors *s, const char *name);

int32_t golden_argmax(const float *x, int32_t n);

/* KL(softmax(ref) || softmax(got)) in f64. */
double golden_kl(const float *ref, const float *got, int32_t n);

#endif
