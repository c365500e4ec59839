/* verbatim replay: every request of a trace again, round by round, and the bits compared. */
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/json.h"
#include "base/limits.h"
#include "engine/model_handle.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct request_line {
    int32_t *prompt, *tokens, *proposed, *accepted;
    int32_t n_prompt, n_tokens, n_rounds;
    vb_request q;
    vb_logit_bias *bias;
    const char *sha;
} request_line;

static vb_err read_ids(vb__json_at at, const char *key, int32_t hi, int32_t **out, int32_t *n, vb_error *err) {
    json_t *a;
    VB_TRY(vb__json_array(at, key, VB_LIMIT_CONTEXT, &a, err));
    *n = (int32_t)json_array_size(a);
    *out = vb__calloc(VB_TAG_ENGINE, (size_t)*n + 1, sizeof **out);
    if (*out == NULL) return vb__fail(err, VB_E_MEMORY, "%s%s: out of memory", at.where, key);
    for (int32_t i = 0; i < *n; i++) {
        const json_t *v = json_array_get(a, (size_t)i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > hi)
            return vb__fail(err, VB_E_FORMAT, "%s%s: entry %d is not an integer of 0 to %d", at.where, key, i, hi);
        (*out)[i] = (int32_t)json_integer_value(v);
    }
    return VB_OK;
}

static vb_err read_f32(vb__json_at at, const char *key, float *out, vb_error *err) {
    double d;
    VB_TRY(vb__json_number(at, key, -1e30, 1e30, &d, err));
    *out = (float)d;
    return VB_OK;
}

static vb_err read_sampling(vb__json_at line, vb_sampling *s, vb_error *err) {
    json_t *obj;
    char where[160];
    VB_TRY(vb__json_object(line, "sampling", &obj, err));
    (void)snprintf(where, sizeof where, "%ssampling.", line.where);
    const vb__json_at at = {obj, where};
    int64_t seed;
    VB_TRY(read_f32(at, "temperature", &s->temperature, err));
    VB_TRY(vb__json_i32(at, "top_k", INT32_MIN, INT32_MAX, &s->top_k, err));
    VB_TRY(read_f32(at, "top_p", &s->top_p, err));
    VB_TRY(read_f32(at, "min_p", &s->min_p, err));
    VB_TRY(read_f32(at, "repeat_penalty", &s->repeat_penalty, err));
    VB_TRY(read_f32(at, "presence_penalty", &s->presence_penalty, err));
    VB_TRY(read_f32(at, "frequency_penalty", &s->frequency_penalty, err));
    VB_TRY(vb__json_int(at, "seed", INT64_MIN, INT64_MAX, &seed, err));
    s->seed = (uint64_t)seed;
    s->set = VB_SET_TEMPERATURE | VB_SET_TOP_K | VB_SET_TOP_P | VB_SET_MIN_P | VB_SET_REPEAT_PENALTY | VB_SET_PRESENCE_PENALTY |
             VB_SET_FREQUENCY_PENALTY | VB_SET_SEED;
    return VB_OK;
}

static vb_err read_bias(vb__json_at at, int32_t vocab, request_line *r, vb_error *err) {
    json_t *a;
    VB_TRY(vb__json_array(at, "logit_bias", 1 << 20, &a, err));
    size_t n = json_array_size(a);
    r->bias = vb__calloc(VB_TAG_ENGINE, n + 1, sizeof *r->bias);
    if (r->bias == NULL) return vb__fail(err, VB_E_MEMORY, "%slogit_bias: out of memory", at.where);
    for (size_t i = 0; i < n; i++) {
        const json_t *p = json_array_get(a, i);
        if (json_array_size(p) != 2 || !json_is_integer(json_array_get(p, 0)) || !json_is_number(json_array_get(p, 1)))
            return vb__fail(err, VB_E_FORMAT, "%slogit_bias: entry %zu is not [id, bias]", at.where, i);
        json_int_t id = json_integer_value(json_array_get(p, 0));
        if (id < 0 || id >= vocab)
            return vb__fail(err, VB_E_FORMAT, "%slogit_bias: entry %zu has the id %lld, expected 0 to %d", at.where, i, (long long)id, vocab - 1);
        r->bias[i] = (vb_logit_bias){(int32_t)id, (float)json_number_value(json_array_get(p, 1))};
    }
    r->q.logit_bias = r->bias;
    r->q.n_logit_bias = (int32_t)n;
    return VB_OK;
}

static vb_err read_request(vb__json_at at, int32_t vocab, request_line *r, vb_error *err) {
    json_t *stops;
    int32_t n;
    int64_t choice;
    vb_request_init(&r->q);
    VB_TRY(read_ids(at, "prompt_ids", vocab - 1, &r->prompt, &r->n_prompt, err));
    VB_TRY(read_ids(at, "token_ids", vocab - 1, &r->tokens, &r->n_tokens, err));
    VB_TRY(read_ids(at, "accepted", 255, &r->accepted, &r->n_rounds, err));
    VB_TRY(read_ids(at, "proposed", 255, &r->proposed, &n, err));
    if (n != r->n_rounds) return vb__fail(err, VB_E_FORMAT, "%sproposed: has %d rounds, expected %d as in accepted", at.where, n, r->n_rounds);
    VB_TRY(vb__json_int(at, "max_tokens", -1, INT32_MAX, &r->q.max_tokens, err));
    VB_TRY(vb__json_bool(at, "ignore_eos", &r->q.ignore_eos, err));
    VB_TRY(vb__json_int_or(at, "choice", 0, UINT32_MAX, 0, &choice, err));
    r->q.choice = (uint32_t)choice;
    VB_TRY(vb__json_array(at, "stop", VB_MAX_STOPS, &stops, err));
    for (size_t i = 0; i < json_array_size(stops); i++) {
        r->q.stops[i] = json_string_value(json_array_get(stops, i));
        if (r->q.stops[i] == NULL) return vb__fail(err, VB_E_FORMAT, "%sstop: entry %zu is not a string", at.where, i);
        r->q.n_stops++;
    }
    VB_TRY(read_sampling(at, &r->q.sampling, err));
    VB_TRY(read_bias(at, vocab, r, err));
    VB_TRY(vb__json_string(at, "logits_sha256", &r->sha, err));
    r->q.prompt_ids = r->prompt;
    r->q.prompt_count = r->n_prompt;
    r->q.hash_logits = true;
    return VB_OK;
}

static void request_line_fini(request_line *r) {
    vb__free(r->prompt);
    vb__free(r->tokens);
    vb__free(r->proposed);
    vb__free(r->accepted);
    vb__free(r->bias);
}

/* Runs one recorded request; *difference is set when something is not the same. */
static vb_err replay_request(vb_model *m, vb__json_at at, int32_t line, json_t **difference, vb_error *err) {
    request_line r = {0};
    vb_result got = {0};
    vb__rounds rounds = {0};
    vb_err e;
    VB_TRY_OUT(read_request(at, m->engine->model->cfg.vocab, &r, err));
    const vb__draft_script script = {.tokens = r.tokens, .n_tokens = r.n_tokens, .proposed = r.proposed, .accepted = r.accepted,
                                     .n_rounds = r.n_rounds};
    vb__engine_clear(m->engine);
    vb_error why = {0};
    e = vb__generate(m, &r.q, &script, &got, &rounds, &why);
    /* What the line asks for is the file's fault, not the caller's. */
    bool line_at_fault = e == VB_E_ARGUMENT || e == VB_E_RANGE || e == VB_E_CONTEXT_FULL;
    if (e != VB_OK) VB_TRY_OUT(vb__fail(err, line_at_fault ? VB_E_FORMAT : e, "%s%s", at.where, why.text));
    int32_t at_token = 0, at_round = 0;
    while (at_token < got.count && at_token < r.n_tokens && got.ids[at_token] == r.tokens[at_token]) at_token++;
    while (at_round < rounds.n && at_round < r.n_rounds && rounds.accepted[at_round] == r.accepted[at_round]) at_round++;
    const char *what = NULL;
    if (got.count != r.n_tokens || at_token < r.n_tokens) what = "tokens";
    else if (rounds.n != r.n_rounds || at_round < r.n_rounds) what = "rounds";
    else if (strcmp(got.logits_sha256, r.sha) != 0) what = "logits";
    if (what != NULL)
        *difference = json_pack("{s:i, s:s, s:i, s:i, s:s, s:s}", "line", (int)line, "what", what, "token", (int)at_token, "round",
                                (int)at_round, "expected", r.sha, "got", got.logits_sha256);
out:
    vb_result_fini(&got);
    vb__rounds_fini(&rounds);
    request_line_fini(&r);
    return e;
}

static vb_err open_header(vb__json_at at, const char *path, int32_t threads, vb_model **m, vb_error *err) {
    const char *recorded, *fingerprint;
    int32_t contract, activations;
    int64_t ctx;
    bool head_chunk;
    VB_TRY(vb__json_string(at, "path", &recorded, err));
    VB_TRY(vb__json_string(at, "model", &fingerprint, err));
    VB_TRY(vb__json_i32(at, "contract", 1, 1 << 20, &contract, err));
    VB_TRY(vb__json_i32(at, "activations", 8, 16, &activations, err));
    VB_TRY(vb__json_bool(at, "head_chunk", &head_chunk, err));
    VB_TRY(vb__json_int_or(at, "ctx", 0, VB_LIMIT_CONTEXT, 0, &ctx, err)); /* an answer may have ended at its end */
    if (activations != 8 && activations != 16)
        return vb__fail(err, VB_E_FORMAT, "%sactivations: is %d, expected 8 or 16", at.where, activations);
    if (contract != VB_CONTRACT)
        return vb__fail(err, VB_E_MISMATCH, "%scontract: is %d, expected %d (this build's)", at.where, contract, VB_CONTRACT);
    vb_model_options o;
    vb_model_options_init(&o);
    o.path = path != NULL ? path : recorded;
    o.threads = threads;
    o.activations = activations;
    o.head_chunk = head_chunk;
    o.ctx = ctx;
    o.draft = "lookup"; /* only for its tapes: the script proposes */
    VB_TRY(vb_model_open(&o, m, err));
    if (strcmp((*m)->engine->fingerprint, fingerprint) != 0) {
        vb_err code = vb__fail(err, VB_E_MISMATCH, "%s: is another model (fingerprint %s), expected %s", o.path, (*m)->engine->fingerprint,
                               fingerprint);
        vb_model_close(*m);
        *m = NULL;
        return code;
    }
    return VB_OK;
}

/* One line into b, without its end; *more is false at the end of the file. A line that is too long is an error at once: the file may be of any size. */
static vb_err read_line(FILE *f, vb__buffer *b, const char *where, bool *more, vb_error *err) {
    int c;
    vb__buffer_clear(b);
    while ((c = getc_unlocked(f)) != EOF && c != '\n')
        if (vb__buffer_putc(b, (char)c) != VB_OK)
            return vb__fail(err, b->error == VB_E_MEMORY ? VB_E_MEMORY : VB_E_FORMAT, "%s: the line does not end, expected at most %d bytes",
                            where, VB_LIMIT_JSON_BYTES);
    if (c == EOF && ferror(f)) return vb__fail(err, VB_E_IO, "%s: cannot be read: %s", where, strerror(errno));
    *more = c != EOF || b->len > 0;
    return VB_OK;
}

static vb_err replay_file(FILE *f, const char *trace, const char *path, int32_t threads, int32_t *requests, json_t **difference,
                          vb_error *err) {
    vb_model *m = NULL;
    vb__buffer text;
    vb_err e = VB_OK;
    vb__buffer_init(&text, VB_LIMIT_JSON_BYTES);
    for (int32_t line = 1; *difference == NULL && e == VB_OK; line++) {
        json_t *root = NULL;
        char where[128];
        const char *type;
        bool more;
        (void)snprintf(where, sizeof where, "%.90s:%d", trace, line);
        e = read_line(f, &text, where, &more, err);
        if (e != VB_OK || !more) break;
        e = vb__json_parse(vb__buffer_str(&text), text.len, VB_LIMIT_JSON_BYTES, where, &root, err);
        if (e != VB_OK) break;
        (void)snprintf(where, sizeof where, "%.90s:%d: ", trace, line);
        const vb__json_at at = {root, where};
        e = json_is_object(root) ? vb__json_string(at, "type", &type, err) : vb__fail(err, VB_E_FORMAT, "%sexpected an object", where);
        if (e == VB_OK && strcmp(type, "header") == 0) {
            vb_model_close(m);
            m = NULL;
            e = open_header(at, path, threads, &m, err);
        } else if (e == VB_OK && strcmp(type, "request") == 0) {
            if (m == NULL) e = vb__fail(err, VB_E_FORMAT, "%sa request comes before any header", where);
            else e = replay_request(m, at, line, difference, err);
            (*requests)++;
        } else if (e == VB_OK) e = vb__fail(err, VB_E_FORMAT, "%stype: is \"%s\", expected header or request", where, type);
        json_decref(root);
    }
    vb__buffer_fini(&text);
    vb_model_close(m);
    if (e == VB_OK && *requests == 0) e = vb__fail(err, VB_E_FORMAT, "%s: no request, expected at least one", trace);
    return e;
}

vb_err vb_replay_json(const char *trace, const char *path, int32_t threads, char **json, bool *equal, vb_error *err) {
    struct stat st;
    if (stat(trace, &st) == 0 && !S_ISREG(st.st_mode)) /* a device may have no end */
        return vb__fail(err, VB_E_IO, "%s: is not a regular file, expected one written by --trace", trace);
    FILE *f = fopen(trace, "re");
    if (f == NULL)
        return vb__fail(err, VB_E_IO, "%s: cannot be opened: %s, expected a file written by --trace", trace, strerror(errno));
    int32_t requests = 0;
    json_t *difference = NULL;
    vb_err e = replay_file(f, trace, path, threads, &requests, &difference, err);
    (void)fclose(f);
    if (e == VB_OK) {
        json_t *root = json_pack("{s:b, s:i, s:o}", "equal", (int)(difference == NULL), "requests", (int)requests, "first_difference",
                                 difference != NULL ? json_incref(difference) : json_null());
        char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
        json_decref(root);
        *json = text == NULL ? NULL : vb__strdup(VB_TAG_ENGINE, text);
        free(text);
        if (*json == NULL) e = vb__fail(err, VB_E_MEMORY, "replay: out of memory");
        *equal = difference == NULL;
    }
    json_decref(difference);
    return e;
}
