#include "engine/trace_lines.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "engine/trace.h"
#include <stdio.h>
#include <string.h>

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
    char where[256];
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

static vb_err read_bias(vb__json_at at, int32_t vocab, vb__trace_request *r, vb_error *err) {
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

static vb_err read_request(vb__json_at at, int32_t vocab, vb__trace_request *r, vb_error *err) {
    json_t *stops;
    int32_t n;
    int64_t choice;
    vb_request_init(&r->q);
    VB_TRY(read_ids(at, "prompt_ids", vocab - 1, &r->prompt, &r->n_prompt, err));
    VB_TRY(read_ids(at, "token_ids", vocab - 1, &r->tokens, &r->n_tokens, err));
    VB_TRY(read_ids(at, "accepted", VB_LIMIT_DRAFT_WIDTH - 1, &r->accepted, &r->n_rounds, err));
    VB_TRY(read_ids(at, "proposed", VB_LIMIT_DRAFT_WIDTH - 1, &r->proposed, &n, err));
    if (n != r->n_rounds) return vb__fail(err, VB_E_FORMAT, "%sproposed: has %d rounds, expected %d as in accepted", at.where, n, r->n_rounds);
    for (int32_t i = 0; i < n; i++)
        if (r->accepted[i] > r->proposed[i])
            return vb__fail(err, VB_E_FORMAT, "%saccepted: entry %d is %d, expected at most the %d that were proposed", at.where, i, r->accepted[i],
                            r->proposed[i]);
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
    if (strlen(r->sha) != 64 || strspn(r->sha, "0123456789abcdef") != 64)
        return vb__fail(err, VB_E_FORMAT, "%slogits_sha256: is \"%.70s\", expected 64 hexadecimal digits", at.where, r->sha);
    r->q.prompt_ids = r->prompt;
    r->q.prompt_count = r->n_prompt;
    r->q.hash_logits = true;
    return VB_OK;
}

static vb_err read_header(vb__json_at at, vb__trace_header *h, vb_error *err) {
    int64_t format;
    VB_TRY(vb__json_int(at, "trace", 0, INT64_MAX, &format, err));
    if (format != VB_TRACE_FORMAT)
        return vb__fail(err, VB_E_MISMATCH, "%strace: is format %lld, expected %d", at.where, (long long)format, VB_TRACE_FORMAT);
    VB_TRY(vb__json_string(at, "path", &h->path, err));
    VB_TRY(vb__json_string(at, "model", &h->model, err));
    VB_TRY(vb__json_i32(at, "contract", 1, 1 << 20, &h->contract, err));
    VB_TRY(vb__json_i32(at, "activations", 8, 16, &h->activations, err));
    VB_TRY(vb__json_bool(at, "head_chunk", &h->head_chunk, err));
    VB_TRY(vb__json_int_or(at, "ctx", 0, VB_LIMIT_CONTEXT, 0, &h->ctx, err)); /* an answer may have ended at its end */
    if (h->activations != 8 && h->activations != 16)
        return vb__fail(err, VB_E_FORMAT, "%sactivations: is %d, expected 8 or 16", at.where, h->activations);
    return VB_OK;
}

static vb_err read_line(vb__json_at at, int32_t vocab, vb__trace_line *l, vb_error *err) {
    const char *type;
    if (!json_is_object(at.obj)) return vb__fail(err, VB_E_FORMAT, "%sexpected an object", at.where);
    VB_TRY(vb__json_string(at, "type", &type, err));
    if (strcmp(type, "header") == 0) {
        l->kind = VB_TRACE_HEADER;
        return read_header(at, &l->header, err);
    }
    if (strcmp(type, "request") != 0)
        return vb__fail(err, VB_E_FORMAT, "%stype: is \"%.40s\", expected header or request", at.where, type);
    l->kind = VB_TRACE_REQUEST;
    if (vocab == 0) return vb__fail(err, VB_E_FORMAT, "%sa request comes before any header", at.where);
    return read_request(at, vocab, &l->request, err);
}

vb_err vb__trace_line_parse(const char *text, size_t n, const char *where, int32_t vocab, vb__trace_line *out, vb_error *err) {
    char field[192];
    memset(out, 0, sizeof *out);
    VB_TRY(vb__json_parse(text, n, VB_LIMIT_JSON_BYTES, where, &out->root, err));
    (void)snprintf(field, sizeof field, "%s: ", where);
    vb_err e = read_line((vb__json_at){out->root, field}, vocab, out, err);
    if (e != VB_OK) vb__trace_line_fini(out);
    return e;
}

void vb__trace_line_fini(vb__trace_line *l) {
    vb__trace_request *r = &l->request;
    vb__free(r->prompt);
    vb__free(r->tokens);
    vb__free(r->proposed);
    vb__free(r->accepted);
    vb__free(r->bias);
    json_decref(l->root);
    memset(l, 0, sizeof *l);
}
