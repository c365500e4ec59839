#include "golden_util.h"
#include "base/cpu.h"
#include "base/json.h"
#include "engine/drafting.h"
#include "engine/gate.h"
#include "engine/model_handle.h"
#include <ftw.h>

/* ---- Folders ------------------------------------------------------------------------------------------------------- */

const char *golden_shared(void) {
    static char path[512];
    const char *env = getenv("VERBATIM_SHARED");
    (void)snprintf(path, sizeof path, "%s", env != NULL ? env : SOURCE_ROOT "/../shared");
    if (access(path, R_OK) == 0) return path;
    printf("SKIP: no shared folder at %s\n", path);
    return NULL;
}

const char *golden_file(const char *name) {
    static char paths[8][700];
    static int turn;
    char *p = paths[turn++ % 8];
    const char *shared = golden_shared();
    if (shared == NULL) fail_msg("%s: no shared folder", name);
    (void)snprintf(p, sizeof paths[0], "%s/%s", shared, name);
    return p;
}

static char homes[32][32];
static int n_homes;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static void remove_homes(void) {
    for (int i = 0; i < n_homes; i++) (void)nftw(homes[i], remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *golden_fresh_home(void) {
    static const char pattern[] = "/tmp/vb_test_XXXXXX";
    if (n_homes == (int)(sizeof homes / sizeof *homes) || (n_homes == 0 && atexit(remove_homes) != 0)) abort();
    char *p = homes[n_homes];
    memcpy(p, pattern, sizeof pattern);
    if (mkdtemp(p) == NULL || setenv("VERBATIM_HOME", p, 1) != 0) {
        perror(p);
        abort(); /* main calls it, too, where no test runs that could fail */
    }
    n_homes++;
    return p;
}

/* ---- A model on a backend ------------------------------------------------------------------------------------------- */

static float *rows_of(const golden_model *g, int32_t n) {
    void *p;
    assert_int_equal(g->be->ops->alloc(g->be, (size_t)g->max_rows * (size_t)n * 4, &p), VB_OK);
    return p;
}

void golden_open(golden_model *g, const char *path, int32_t threads, int32_t activations) {
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
    g->hidden = rows_of(g, g->m->cfg.hidden);
    g->logits = rows_of(g, g->m->cfg.vocab);
}

void golden_close(golden_model *g) {
    vb__seq_destroy(g->seq);
    vb__page_pool_destroy(g->pool);
    vb__workspace_destroy(g->ws);
    g->be->ops->free(g->be, g->hidden);
    g->be->ops->free(g->be, g->logits);
    vb__model_destroy(g->m);
    g->be->ops->destroy(g->be);
}

void golden_run(golden_model *g, const int32_t *ids, int32_t n) {
    vb_error err = {0};
    assert_int_equal(vb__seq_reserve(g->seq, g->seq->length + n), VB_OK);
    const vb__forward_seq fs = {g->seq, n, n, ids};
    const vb__forward_args a = {.seqs = &fs, .n_seqs = 1, .n_hidden = n, .hidden = g->hidden};
    if (vb__forward(g->m, g->ws, &a, &err) != VB_OK) fail_msg("%s", err.text);
    assert_int_equal(vb__seq_commit(g->seq, n), VB_OK);
    vb__logits(g->m, g->hidden, n, g->logits);
}

/* ---- A model behind the public interface ------------------------------------------------------------------------------ */

vb_model_options golden_options(const char *draft, int64_t ctx) {
    vb_model_options o;
    vb_model_options_init(&o);
    o.path = GOLDEN_EMBEDDED;
    o.threads = 2;
    o.ctx = ctx;
    if (draft != NULL) o.draft = draft;
    return o;
}

vb_model *golden_load(const vb_model_options *o) {
    vb_model *m = NULL;
    vb_error err = {0};
    if (vb_model_open(o, &m, &err) != VB_OK) fail_msg("%s", err.text);
    return m;
}

vb_request golden_request(const int32_t *ids, int32_t n, int64_t max_tokens, float temperature, uint64_t seed) {
    vb_request q;
    vb_request_init(&q);
    q.prompt_ids = ids;
    q.prompt_count = n;
    q.max_tokens = max_tokens;
    q.ignore_eos = true;
    q.hash_logits = true;
    q.sampling = (vb_sampling){.set = VB_SET_TEMPERATURE | VB_SET_SEED | VB_SET_TOP_K | VB_SET_TOP_P, .temperature = temperature, .top_p = 1.0f,
                               .seed = seed};
    return q;
}

void golden_generate(vb_model *m, const vb_request *q, vb_result *r) {
    vb_error err = {0};
    if (vb_generate(m, q, r, &err) != VB_OK) fail_msg("%s", err.text);
}

void golden_gate_passes(vb_model *m, int32_t width, bool fresh) {
    vb__gate *g = vb__drafting_gate(m->engine);
    vb__gate_state s;
    vb_error err = {0};
    if (width < 2) return;
    if (vb__gate_check(g, width, fresh, &s, &err) != VB_OK) fail_msg("width %d: %s", width, err.text);
    if (s != VB_GATE_PASSED) fail_msg("width %d: %s", width, vb__gate_difference(g));
}

void golden_gates_pass(vb_model *m, int32_t widest) {
    for (int32_t w = 2; w <= widest; w++) golden_gate_passes(m, w, false);
}

/* ---- Expected values ------------------------------------------------------------------------------------------------- */

json_t *golden_json(const char *name) {
    json_t *root = NULL;
    vb_error err = {0};
    if (vb__json_read(golden_file(name), 64 << 20, NULL, &root, &err) != VB_OK) fail_msg("%s", err.text);
    return root;
}

int32_t golden_ids(const json_t *list, int32_t *out) {
    int32_t n = (int32_t)json_array_size(list);
    for (int32_t i = 0; i < n; i++) out[i] = (int32_t)json_integer_value(json_array_get(list, (size_t)i));
    return n;
}

void golden_tensors(vb__safetensors *s, const char *path) {
    vb_error err = {0};
    memset(s, 0, sizeof *s);
    if (vb__safetensors_open(path, s, &err) != VB_OK) fail_msg("%s", err.text);
}

const vb__st_tensor *golden_tensor(const vb__safetensors *s, const char *name) {
    for (int32_t i = 0; i < s->count; i++)
        if (strcmp(s->tensors[i].name, name) == 0) return &s->tensors[i];
    fail_msg("no tensor %s", name);
    return NULL;
}

int32_t golden_argmax(const float *x, int32_t n) {
    int32_t best = 0;
    for (int32_t i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

double golden_kl(const float *ref, const float *got, int32_t n) {
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
