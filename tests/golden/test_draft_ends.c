/* Answers that end inside a block, at every position of it: by the token limit, the context's end, an end token and a stop
 * string. What plain decode leaves behind must be there, bit for bit (the sequence's state as well as the answer), and the next turn
 * on the same sequence must go on drafting from it. */
#include "engine/drafting.h"
#include "engine/gate.h"
#include "engine/model_handle.h"
#include "golden_util.h"
#include <pthread.h>

enum { LONGEST = 17, ALL = 48 };
typedef enum end_kind { END_LENGTH, END_CONTEXT, END_TOKEN, END_STRING, ENDS } end_kind;
static const char *const end_names[ENDS] = {"length", "context", "end token", "stop string"};

/* "Count from one to ten." as a chat turn begins, and something that repeats itself. */
static const int32_t prompt[] = {323, 220, 16, 15, 15, 16376, 198, 16374, 16375, 370, 323, 220, 16, 15, 15, 16376, 198, 16374, 16375, 370};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

typedef struct outcome {
    vb_result r;
    int32_t length;   /* of the sequence */
    uint8_t state[16];
    vb_result next;   /* the turn behind it */
} outcome;

static int32_t full_ctx;

static void turn(vb_model *m, const int32_t *ids, int32_t n, int64_t max_tokens, bool ignore_eos, const char *stop, const int32_t *accepts,
                 int32_t n_accepts, vb_result *r) {
    vb_request q = golden_request(ids, n, max_tokens, 0, 0);
    q.ignore_eos = ignore_eos;
    q.accepts = accepts;
    q.n_accepts = n_accepts;
    if (stop != NULL) q.stops[q.n_stops++] = stop;
    golden_generate(m, &q, r);
}

/* The answer `all` cut behind its k-th token by one kind of end, then another turn. */
static void run(vb_model *m, end_kind how, int32_t k, const vb_result *all, const int32_t *accepts, int32_t n_accepts, outcome *o) {
    vb__engine *e = m->engine;
    int32_t ids[N_PROMPT + LONGEST + 8], n = N_PROMPT, eos = e->eos[0], n_eos = e->n_eos;
    char stop[16] = "";
    memcpy(ids, prompt, sizeof prompt);
    vb__engine_clear(e);
    if (how == END_CONTEXT) e->ctx = N_PROMPT + k;
    if (how == END_TOKEN) {
        e->eos[0] = all->ids[k - 1];
        e->n_eos = 1;
    }
    if (how == END_STRING) { /* the text up to token k - 1, and a byte of the next */
        char *text;
        size_t len;
        vb_error err;
        assert_int_equal(vb_detokenize(m, all->ids, k, false, &text, &len, &err), VB_OK);
        size_t take = len < 3 ? len : 3;
        memcpy(stop, text + len - take, take);
        stop[take] = '\0';
        vb_string_free(text);
    }
    turn(m, ids, n, how == END_LENGTH ? k : ALL, how != END_TOKEN, stop[0] != '\0' ? stop : NULL, accepts, n_accepts, &o->r);
    e->ctx = full_ctx;
    e->eos[0] = eos;
    e->n_eos = n_eos;
    o->length = e->slots[0].seq->length;
    vb__seq_hash(e->slots[0].seq, o->state);
    assert_int_equal(o->r.rounds + o->r.accepted, o->r.count - 1);
    for (int32_t i = 0; i < o->r.count && i < LONGEST; i++) ids[n++] = o->r.ids[i];
    for (int32_t i = 0; i < 6; i++) ids[n++] = prompt[i];
    turn(m, ids, n, 12, true, NULL, NULL, 0, &o->next);
}

static void fini(outcome *o) {
    vb_result_fini(&o->r);
    vb_result_fini(&o->next);
}

static void same(const outcome *a, const outcome *b, const char *what, end_kind how, int32_t k) {
    if (a->r.count != b->r.count || memcmp(a->r.ids, b->r.ids, (size_t)a->r.count * sizeof *a->r.ids) != 0 || a->r.finish != b->r.finish ||
        strcmp(a->r.logits_sha256, b->r.logits_sha256) != 0 || strcmp(a->r.text, b->r.text) != 0)
        fail_msg("%s, %s at %d: another answer", what, end_names[how], k);
    if (a->length != b->length || memcmp(a->state, b->state, 16) != 0)
        fail_msg("%s, %s at %d: another state (%d rows, expected %d)", what, end_names[how], k, b->length, a->length);
    if (a->next.cached_tokens != b->next.cached_tokens || strcmp(a->next.logits_sha256, b->next.logits_sha256) != 0)
        fail_msg("%s, %s at %d: another second turn", what, end_names[how], k);
}

static vb_model *open_model(const char *draft) {
    vb_model_options o = golden_options(draft, 256);
    vb_model *m = golden_load(&o);
    full_ctx = m->engine->ctx;
    if (strcmp(draft, "none") != 0) golden_gates_pass(m, VB_LIMIT_DRAFT_WIDTH);
    return m;
}

static void ends_inside_a_block(void **state) {
    (void)state;
    static outcome want[ENDS][LONGEST + 1];
    static const int32_t fifteen[] = {0, 15, 15}, three[] = {3, 3, 3, 3, 3, 3};
    vb_result all;
    vb_model *plain = open_model("none");
    turn(plain, prompt, N_PROMPT, ALL, true, NULL, NULL, 0, &all);
    for (int how = 0; how < ENDS; how++)
        for (int32_t k = 1; k <= LONGEST; k++) run(plain, (end_kind)how, k, &all, NULL, 0, &want[how][k]);
    vb_model_close(plain);
    static const struct {
        const char *draft;
        int32_t width;
        const int32_t *accepts;
        int32_t n_accepts;
    } arms[] = {{"lookup", 16, three, 6}, {"mtp", 16, fifteen, 3}, {"mtp", 4, NULL, 0}, {"dflash", 16, NULL, 0}};
    for (size_t i = 0; i < sizeof arms / sizeof *arms; i++) {
        vb_model *m = open_model(arms[i].draft);
        vb__drafting_set_width(m->engine, arms[i].width);
        int64_t went_on = 0;
        for (int how = 0; how < ENDS; how++)
            for (int32_t k = 1; k <= LONGEST; k++) {
                outcome o;
                run(m, (end_kind)how, k, &all, arms[i].accepts, arms[i].n_accepts, &o);
                same(&want[how][k], &o, arms[i].draft, (end_kind)how, k);
                if (strcmp(arms[i].draft, "lookup") != 0 && o.next.proposed == 0) fail_msg("%s, %s at %d: no drafts in the next turn", arms[i].draft, end_names[how], k);
                went_on += o.next.proposed;
                fini(&o);
            }
        printf("%s, width %d%s: %lld drafts in second turns\n", arms[i].draft, arms[i].width, arms[i].accepts != NULL ? ", forced" : "", (long long)went_on);
        vb_model_close(m);
    }
    for (int how = 0; how < ENDS; how++)
        for (int32_t k = 1; k <= LONGEST; k++) fini(&want[how][k]);
    vb_result_fini(&all);
}

/* Two engines of one process, each with its own thread, drafter, gate and the same memo file. */
typedef struct worker {
    const char *draft;
    char sha[65];
    int64_t proposed;
    vb_error err;
} worker;

static void *work(void *user) {
    worker *w = user;
    vb_model_options o = golden_options(w->draft, 256);
    vb_request q = golden_request(prompt, N_PROMPT, ALL, 0.8f, 3);
    vb_model *m;
    o.threads = 1;
    o.draft_width = 6;
    if (vb_model_open(&o, &m, &w->err) != VB_OK) return NULL;
    vb__gate *g = vb__drafting_gate(m->engine);
    vb__gate_state s;
    if (g != NULL && vb__gate_check(g, o.draft_width, false, &s, &w->err) != VB_OK) return NULL; /* both at the same time */
    for (int i = 0; i < 4 && w->err.code == VB_OK; i++) {
        vb_result r = {0};
        if (vb_generate(m, &q, &r, &w->err) != VB_OK) break;
        memcpy(w->sha, r.logits_sha256, 65);
        w->proposed += r.proposed;
        vb_result_fini(&r);
    }
    vb_model_close(m);
    return NULL;
}

static void two_engines_in_two_threads(void **state) {
    (void)state;
    (void)golden_fresh_home();
    worker plain = {.draft = "none"}, w[3] = {{.draft = "mtp"}, {.draft = "dflash"}, {.draft = "lookup"}};
    pthread_t t[3];
    (void)work(&plain);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&t[i], NULL, work, &w[i]), 0);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_join(t[i], NULL), 0);
    for (int i = 0; i < 3; i++) {
        if (w[i].err.code != VB_OK) fail_msg("%s: %s", w[i].draft, w[i].err.text);
        assert_string_equal(w[i].sha, plain.sha);
        assert_true(w[i].proposed > 0);
    }
}

int main(void) {
    (void)golden_fresh_home();
    const struct CMUnitTest tests[] = {cmocka_unit_test(ends_inside_a_block), cmocka_unit_test(two_engines_in_two_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
