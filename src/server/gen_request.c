#include "server/gen_request.h"
#include "base/json.h"
#include "base/limits.h"
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- Limits of a document --------------------------------------------------------------------------------------------- */

/* A value costs the parser tens of times its bytes: their number is bounded before it starts. Every value but the first comes behind a
 * comma, a colon or an opening bracket; in text that is not JSON the count means nothing and the parser refuses it anyway. */
/* The field of the outermost object whose value ends at text[at]; false when there is none that can be named. */
static bool field_at(const char *text, size_t at, char out[40]) {
    size_t from = 0, n = 0; /* of the last string of the outermost object */
    int32_t depth = 0;
    bool found = false;     /* a colon came behind it */
    for (size_t i = 0; i < at; i++) {
        char c = text[i];
        if (c == '"') {
            size_t start = ++i;
            while (i < at && text[i] != '"') i += text[i] == '\\' ? 2 : 1;
            if (depth == 1 && !found && i < at) from = start, n = i - start;
        } else if (c == '[' || c == '{') depth++;
        else if (c == ']' || c == '}') depth--;
        else if (depth == 1 && c == ':') found = true;
        else if (depth == 1 && c == ',') found = false;
    }
    if (!found || n == 0 || n >= 40) return false;
    memcpy(out, text + from, n);
    out[n] = '\0';
    return strspn(out, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == n;
}

/* A number that no type of ours holds is no JSON to the parser, but to the client it is the value of a field. */
static vb_err name_overflow(const char *text, size_t len, vb_err code, vb_error *err) {
    json_error_t je;
    char field[40];
    json_t *v = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &je);
    if (v == NULL && json_error_code(&je) == json_error_numeric_overflow && je.position >= 0 && field_at(text, (size_t)je.position, field))
        code = vb__fail(err, VB_E_RANGE, "%s: a number is out of range, expected at most 64 bits", field);
    json_decref(v);
    return code;
}

vb_err vb__body_parse(const char *text, size_t len, json_t **out, vb_error *err) {
    size_t values = 1;
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
        } else if (c == '"') in_string = true;
        else values += c == ',' || c == ':' || c == '[' || c == '{';
    }
    if (values > VB_GEN_BODY_VALUES)
        return vb__fail(err, VB_E_LIMIT, "request: has more than %d values", VB_GEN_BODY_VALUES);
    vb_err code = vb__json_parse(text, len, VB_LIMIT_BODY_BYTES, "request", out, err);
    if (code == VB_E_FORMAT) return name_overflow(text, len, code, err);
    VB_TRY(code);
    if (json_is_object(*out)) return VB_OK;
    char is[80];
    code = vb__fail(err, VB_E_FORMAT, "request: %s, expected an object", vb__json_is(*out, is, sizeof is));
    json_decref(*out);
    *out = NULL;
    return code;
}

/* ---- Fields ------------------------------------------------------------------------------------------------------------ */

typedef struct fields {
    vb__gen *g;
    vb__json_at at;
    vb_error *err;
} fields;

typedef vb_err field_fn(fields *f, const char *key, const json_t *v);

static vb_err wrong(fields *f, const char *key, const json_t *v, const char *expected) {
    char is[80];
    return vb__fail(f->err, VB_E_ARGUMENT, "%s: %s, expected %s", key, vb__json_is(v, is, sizeof is), expected);
}

static vb_err number(fields *f, const char *key, double lo, double hi, uint32_t bit, float *out) {
    double d;
    VB_TRY(vb__json_number(f->at, key, lo, hi, &d, f->err));
    *out = (float)d;
    f->g->request.sampling.set |= bit;
    return VB_OK;
}

#define SAMPLING(f) (&(f)->g->request.sampling)
static vb_err f_temperature(fields *f, const char *k, const json_t *v) {
    (void)v;
    return number(f, k, 0, 100, VB_SET_TEMPERATURE, &SAMPLING(f)->temperature);
}
static vb_err f_top_p(fields *f, const char *k, const json_t *v) { return (void)v, number(f, k, 0, 1, VB_SET_TOP_P, &SAMPLING(f)->top_p); }
static vb_err f_min_p(fields *f, const char *k, const json_t *v) { return (void)v, number(f, k, 0, 1, VB_SET_MIN_P, &SAMPLING(f)->min_p); }
static vb_err f_presence(fields *f, const char *k, const json_t *v) {
    (void)v;
    return number(f, k, -100, 100, VB_SET_PRESENCE_PENALTY, &SAMPLING(f)->presence_penalty);
}
static vb_err f_frequency(fields *f, const char *k, const json_t *v) {
    (void)v;
    return number(f, k, -100, 100, VB_SET_FREQUENCY_PENALTY, &SAMPLING(f)->frequency_penalty);
}
static vb_err f_repeat(fields *f, const char *k, const json_t *v) {
    (void)v;
    return number(f, k, 0.001, 100, VB_SET_REPEAT_PENALTY, &SAMPLING(f)->repeat_penalty);
}
static vb_err f_top_k(fields *f, const char *k, const json_t *v) {
    (void)v;
    VB_TRY(vb__json_i32(f->at, k, INT32_MIN, INT32_MAX, &SAMPLING(f)->top_k, f->err));
    SAMPLING(f)->set |= VB_SET_TOP_K;
    return VB_OK;
}

static vb_err f_seed(fields *f, const char *k, const json_t *v) {
    int64_t seed;
    (void)v;
    VB_TRY(vb__json_int(f->at, k, INT64_MIN, INT64_MAX, &seed, f->err));
    if (seed == -1) return VB_OK; /* drawn at random, as without */
    SAMPLING(f)->seed = (uint64_t)seed;
    SAMPLING(f)->set |= VB_SET_SEED;
    return VB_OK;
}

static vb_err f_model(fields *f, const char *k, const json_t *v) { return (void)v, vb__json_string(f->at, k, &f->g->model, f->err); }
static vb_err f_stream(fields *f, const char *k, const json_t *v) { return (void)v, vb__json_bool(f->at, k, &f->g->stream, f->err); }
static vb_err f_verbatim(fields *f, const char *k, const json_t *v) { return (void)v, vb__json_bool(f->at, k, &f->g->verbatim, f->err); }
static vb_err f_ignore_eos(fields *f, const char *k, const json_t *v) {
    return (void)v, vb__json_bool(f->at, k, &f->g->request.ignore_eos, f->err);
}
static vb_err f_n(fields *f, const char *k, const json_t *v) { return (void)v, vb__json_i32(f->at, k, 1, VB_GEN_N_MAX, &f->g->n, f->err); }
static vb_err f_bool(fields *f, const char *k, const json_t *v) {
    bool any;
    (void)v;
    return vb__json_bool(f->at, k, &any, f->err);
}
static vb_err f_string(fields *f, const char *k, const json_t *v) {
    const char *any;
    (void)v;
    return vb__json_string(f->at, k, &any, f->err);
}

static vb_err f_max_tokens(fields *f, const char *k, const json_t *v) {
    (void)v; /* max_completion_tokens comes behind in the table, and wins */
    return vb__json_int(f->at, k, -1, INT64_MAX, &f->g->request.max_tokens, f->err);
}

static vb_err f_logprobs(fields *f, const char *k, const json_t *v) {
    (void)v;
    if (f->g->chat) {
        VB_TRY(vb__json_bool(f->at, k, &f->g->logprobs, f->err));
        if (f->g->logprobs && f->g->request.top_logprobs < 0) f->g->request.top_logprobs = 0;
        return VB_OK;
    }
    if (json_is_false(v)) return VB_OK;
    f->g->logprobs = true;
    return vb__json_i32(f->at, k, 0, 20, &f->g->request.top_logprobs, f->err);
}

static vb_err f_top_logprobs(fields *f, const char *k, const json_t *v) {
    int32_t n;
    VB_TRY(vb__json_i32(f->at, k, 0, 20, &n, f->err));
    if (!f->g->chat) return wrong(f, k, v, "logprobs, which is how many in this call");
    if (!json_is_true(vb__json_get(f->at, "logprobs"))) {
        if (n == 0) return VB_OK;
        return wrong(f, k, v, "logprobs to be true with it");
    }
    f->g->request.top_logprobs = n;
    return VB_OK;
}

static vb_err f_stop(fields *f, const char *k, const json_t *v) {
    vb_request *q = &f->g->request;
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!json_is_array(v) && !json_is_string(v)) return wrong(f, k, v, "a text or a list of texts");
    if (n > VB_MAX_STOPS) return wrong(f, k, v, "at most 16 texts");
    for (size_t i = 0; i < n; i++) {
        const json_t *s = json_is_array(v) ? json_array_get(v, i) : v;
        size_t len = json_string_length(s);
        if (!json_is_string(s) || len > VB_LIMIT_STOP_BYTES || strlen(json_string_value(s)) != len)
            return wrong(f, k, s, "texts of at most 4096 bytes without NUL");
        if (len > 0) q->stops[q->n_stops++] = json_string_value(s); /* an empty text stops nothing */
    }
    return VB_OK;
}

static vb_err f_logit_bias(fields *f, const char *k, const json_t *v) {
    const char *key;
    json_t *bias;
    size_t n = 0;
    if (!json_is_object(v)) return wrong(f, k, v, "an object of token ids and numbers");
    f->g->bias = vb__calloc(VB_TAG_SERVER, json_object_size(v) + 1, sizeof *f->g->bias);
    if (f->g->bias == NULL) return vb__fail(f->err, VB_E_MEMORY, "logit_bias: out of memory");
    json_object_foreach((json_t *)v, key, bias) {
        char *end;
        long id = strtol(key, &end, 10);
        if (json_is_null(bias)) continue;
        if (*end != '\0' || end == key || key[0] < '0' || key[0] > '9' || id > INT32_MAX)
            return vb__fail(f->err, VB_E_ARGUMENT, "logit_bias: the key \"%.40s\", expected a token id", key);
        if (!json_is_number(bias) || !(fabs(json_number_value(bias)) <= 100)) return wrong(f, k, bias, "numbers -100..100");
        f->g->bias[n++] = (vb_logit_bias){(int32_t)id, (float)json_number_value(bias)};
    }
    f->g->request.logit_bias = f->g->bias;
    f->g->request.n_logit_bias = (int32_t)n;
    return VB_OK;
}

static vb_err f_stream_options(fields *f, const char *k, const json_t *v) {
    if (!json_is_object(v)) return wrong(f, k, v, "an object");
    const vb__json_at at = {v, "stream_options."};
    return vb__json_bool_or(at, "include_usage", false, &f->g->include_usage, f->err);
}

static vb_err f_draft(fields *f, const char *k, const json_t *v) {
    vb_request *q = &f->g->request;
    if (json_is_object(v)) {
        const vb__json_at at = {v, "draft."};
        VB_TRY(vb__json_string_or(at, "kind", NULL, &q->draft, f->err));
        return vb__json_i32_or(at, "width", 1, VB_LIMIT_DRAFT_WIDTH, 0, &q->draft_width, f->err);
    }
    if (!json_is_string(v)) return wrong(f, k, v, "none, auto, a kind, or {\"kind\", \"width\"}");
    return vb__json_string(f->at, k, &q->draft, f->err);
}

static vb_err f_kwargs(fields *f, const char *k, const json_t *v) { return json_is_object(v) ? VB_OK : wrong(f, k, v, "an object"); }

/* Content parts of `prediction` are checked; what it says is a hint about time, never about text. */
static vb_err f_prediction(fields *f, const char *k, const json_t *v) {
    const char *type = json_string_value(json_object_get(v, "type"));
    const json_t *c = json_object_get(v, "content");
    if (type == NULL || strcmp(type, "content") != 0 || !(json_is_string(c) || json_is_array(c)))
        return wrong(f, k, v, "{\"type\": \"content\", \"content\"}");
    for (size_t i = 0; i < json_array_size(c); i++)
        if (!json_is_string(json_object_get(json_array_get(c, i), "text"))) return wrong(f, k, json_array_get(c, i), "text parts");
    f->g->prediction = c;
    return VB_OK;
}

/* ---- Fields that only have a default here ---- */

static vb_err f_not_yet(fields *f, const char *k, const json_t *v) { return wrong(f, k, v, "none: not supported by this server"); }
static vb_err f_no_list(fields *f, const char *k, const json_t *v) {
    return json_is_array(v) && json_array_size(v) == 0 ? VB_OK : wrong(f, k, v, "none: not supported by this server");
}
static vb_err f_tool_choice(fields *f, const char *k, const json_t *v) {
    const char *s = json_string_value(v);
    return s != NULL && (strcmp(s, "none") == 0 || strcmp(s, "auto") == 0) ? VB_OK : wrong(f, k, v, "none or auto: tools are not supported by this server");
}
static vb_err f_format(fields *f, const char *k, const json_t *v) {
    const char *s = json_string_value(json_object_get(v, "type"));
    return s != NULL && strcmp(s, "text") == 0 ? VB_OK : wrong(f, k, v, "{\"type\": \"text\"}: others are not supported by this server");
}
static vb_err f_echo(fields *f, const char *k, const json_t *v) { return json_is_false(v) ? VB_OK : wrong(f, k, v, "false"); }
static vb_err f_suffix(fields *f, const char *k, const json_t *v) {
    return json_is_string(v) && json_string_length(v) == 0 ? VB_OK : wrong(f, k, v, "none");
}
static vb_err f_best_of(fields *f, const char *k, const json_t *v) {
    return json_is_integer(v) && json_integer_value(v) == 1 ? VB_OK : wrong(f, k, v, "1");
}
static vb_err f_modalities(fields *f, const char *k, const json_t *v) {
    const char *s = json_string_value(json_array_get(v, 0));
    return json_array_size(v) == 1 && s != NULL && strcmp(s, "text") == 0 ? VB_OK : wrong(f, k, v, "[\"text\"]");
}

enum { CHAT = 1, TEXT = 2, BOTH = 3 };
static const struct {
    const char *key;
    int calls;
    field_fn *fn; /* NULL: read elsewhere */
} table[] = {
    {"model", BOTH, f_model},
    {"messages", CHAT, NULL},
    {"prompt", TEXT, NULL},
    {"stream", BOTH, f_stream},
    {"stream_options", BOTH, f_stream_options},
    {"max_tokens", BOTH, f_max_tokens},
    {"max_completion_tokens", BOTH, f_max_tokens},
    {"temperature", BOTH, f_temperature},
    {"top_p", BOTH, f_top_p},
    {"top_k", BOTH, f_top_k},
    {"min_p", BOTH, f_min_p},
    {"seed", BOTH, f_seed},
    {"presence_penalty", BOTH, f_presence},
    {"frequency_penalty", BOTH, f_frequency},
    {"repetition_penalty", BOTH, f_repeat},
    {"repeat_penalty", BOTH, f_repeat},
    {"stop", BOTH, f_stop},
    {"n", BOTH, f_n},
    {"logprobs", BOTH, f_logprobs},
    {"top_logprobs", BOTH, f_top_logprobs},
    {"logit_bias", BOTH, f_logit_bias},
    {"ignore_eos", BOTH, f_ignore_eos},
    {"draft", BOTH, f_draft},
    {"verbatim", BOTH, f_verbatim},
    {"cache_prompt", BOTH, f_bool},
    {"cache_salt", BOTH, f_string},
    {"chat_template_kwargs", CHAT, f_kwargs},
    {"prediction", BOTH, f_prediction},
    {"tools", BOTH, f_no_list},
    {"tool_choice", BOTH, f_tool_choice},
    {"functions", BOTH, f_no_list},
    {"function_call", BOTH, f_tool_choice},
    {"response_format", BOTH, f_format},
    {"grammar", BOTH, f_not_yet},
    {"json_schema", BOTH, f_not_yet},
    {"reasoning_effort", BOTH, f_not_yet},
    {"thinking_budget_tokens", BOTH, f_not_yet},
    {"audio", BOTH, f_not_yet},
    {"modalities", BOTH, f_modalities},
    {"echo", BOTH, f_echo},
    {"suffix", BOTH, f_suffix},
    {"best_of", BOTH, f_best_of},
};
enum { N_FIELDS = sizeof table / sizeof table[0] };

static void note_ignored(vb__gen *g, const char *key) {
    size_t used = strlen(g->ignored), n = strlen(key);
    for (size_t i = 0; i < n; i++)
        if (key[i] <= ' ' || key[i] > '~' || key[i] == ',') return; /* nothing strange in log lines */
    if (n > 40 || used + n + 2 > sizeof g->ignored) return;
    if (used > 0) g->ignored[used++] = ',';
    memcpy(g->ignored + used, key, n + 1);
}

vb_err vb__gen_read(vb__gen *g, json_t *root, bool chat, vb_error *err) {
    *g = (vb__gen){.root = root, .chat = chat, .n = 1};
    vb_request_init(&g->request);
    fields f = {.g = g, .at = {root, ""}, .err = err};
    bool known[N_FIELDS] = {false};
    const char *key;
    json_t *v;
    /* In the table's order, so that the error is the same whatever the order of the body. */
    for (int i = 0; i < N_FIELDS; i++) {
        if ((table[i].calls & (chat ? CHAT : TEXT)) == 0) continue;
        known[i] = true;
        if (table[i].fn != NULL && (v = vb__json_get(f.at, table[i].key)) != NULL) VB_TRY(table[i].fn(&f, table[i].key, v));
    }
    json_object_foreach(root, key, v) {
        bool any = false;
        for (int i = 0; i < N_FIELDS && !any; i++) any = known[i] && strcmp(table[i].key, key) == 0;
        if (!any) note_ignored(g, key);
    }
    g->request.hash_logits = g->verbatim;
    return VB_OK;
}

void vb__gen_forget(vb__gen *g) {
    json_t *model = json_incref(json_object_get(g->root, "model"));
    json_decref(g->root);
    g->root = model;
    for (int32_t i = 0; i < g->request.n_stops; i++) g->request.stops[i] = NULL;
    g->request.n_stops = 0;
    g->request.draft = NULL;
    g->prediction = NULL;
}

void vb__gen_fini(vb__gen *g) {
    for (int32_t i = 0; i < g->n_prompts; i++) vb_ids_free(g->prompts[i].ids);
    vb_ids_free(g->predicted.ids);
    vb__free(g->prompts);
    vb__free(g->bias);
    json_decref(g->root);
    *g = (vb__gen){0};
}

/* ---- The prompt --------------------------------------------------------------------------------------------------------- */

vb_err vb__gen_without(vb_err code, const char *field, const char *expected, vb_error *err) {
    return code == VB_E_NOT_FOUND ? vb__fail(err, code, "%s: %s", field, expected) : code;
}

vb_err vb__gen_render(const json_t *root, const vb_model *m, char **text, int32_t **ids, int32_t *count, vb_error *err) {
    const vb__json_at at = {root, ""};
    json_t *messages, *tools, *kwargs;
    bool prompt;
    VB_TRY(vb__json_array(at, "messages", VB_GEN_BODY_VALUES, &messages, err));
    if (json_array_size(messages) == 0) return vb__fail(err, VB_E_ARGUMENT, "messages: is an array of 0, expected at least one message");
    VB_TRY(vb__json_array_or(at, "tools", VB_GEN_BODY_VALUES, &tools, err));
    if (json_array_size(tools) > 0) return vb__fail(err, VB_E_ARGUMENT, "tools: is an array of %zu, expected none: not supported by this server", json_array_size(tools));
    VB_TRY(vb__json_object_or(at, "chat_template_kwargs", &kwargs, err));
    VB_TRY(vb__json_bool_or(at, "add_generation_prompt", true, &prompt, err));
    char *json = json_dumps(messages, JSON_COMPACT), *kw = kwargs != NULL ? json_dumps(kwargs, JSON_COMPACT) : NULL;
    vb_err code = json == NULL || (kwargs != NULL && kw == NULL) ? vb__fail(err, VB_E_MEMORY, "messages: out of memory")
                                                                 : vb_apply_template(m, json, NULL, kw, prompt, text, ids, count, err);
    free(json);
    free(kw);
    return vb__gen_without(code, "messages", "this model has no chat template or no tokenizer, expected a prompt for /v1/completions", err);
}

static vb_err one_prompt(vb__gen *g, const vb_model *m, const json_t *v, vb_error *err) {
    vb__gen_prompt *p = &g->prompts[g->n_prompts];
    char is[80];
    if (json_is_string(v)) {
        vb_err code = vb_tokenize(m, json_string_value(v), json_string_length(v), true, true, true, &p->ids, &p->count, err);
        VB_TRY(vb__gen_without(code, "prompt", "is a text and this model has no tokenizer, expected token ids", err));
        g->n_prompts++;
        if (p->count == 0) return vb__fail(err, VB_E_ARGUMENT, "prompt: is empty, expected at least one token");
        return VB_OK;
    }
    size_t n = json_array_size(v);
    if (!json_is_array(v) || n == 0)
        return vb__fail(err, VB_E_ARGUMENT, "prompt: %s, expected a text, token ids, or a list of them", vb__json_is(v, is, sizeof is));
    if (n > VB_LIMIT_CONTEXT) return vb__fail(err, VB_E_CONTEXT_FULL, "prompt is too long: %zu tokens > %d maximum", n, VB_LIMIT_CONTEXT);
    p->ids = vb__calloc(VB_TAG_SERVER, n, sizeof *p->ids);
    if (p->ids == NULL) return vb__fail(err, VB_E_MEMORY, "prompt: out of memory");
    g->n_prompts++;
    p->count = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) > INT32_MAX)
            return vb__fail(err, VB_E_ARGUMENT, "prompt: entry %zu %s, expected a token id", i, vb__json_is(id, is, sizeof is));
        p->ids[i] = (int32_t)json_integer_value(id);
    }
    return VB_OK;
}

/* The predicted answer as tokens, as far as the drafter looks. */
static vb_err predict(vb__gen *g, const vb_model *m, vb_error *err) {
    vb__buffer b;
    if (g->prediction == NULL) return VB_OK;
    vb__buffer_init(&b, VB_LIMIT_BODY_BYTES);
    if (json_is_string(g->prediction)) vb__buffer_append(&b, json_string_value(g->prediction), json_string_length(g->prediction));
    for (size_t i = 0; i < json_array_size(g->prediction); i++) {
        const json_t *t = json_object_get(json_array_get(g->prediction, i), "text");
        vb__buffer_append(&b, json_string_value(t), json_string_length(t));
    }
    vb_err code = vb_tokenize(m, vb__buffer_str(&b), b.len, false, false, false, &g->predicted.ids, &g->predicted.count, err);
    vb__buffer_fini(&b);
    VB_TRY(vb__gen_without(code, "prediction", "is a text and this model has no tokenizer, expected none", err));
    g->request.prediction = g->predicted.ids;
    g->request.n_prediction = g->predicted.count < VB_GEN_PREDICTION_MAX ? g->predicted.count : VB_GEN_PREDICTION_MAX;
    return VB_OK;
}

vb_err vb__gen_prompts(vb__gen *g, const vb_model *m, vb_error *err) {
    VB_TRY(predict(g, m, err));
    const json_t *v = vb__json_get((vb__json_at){g->root, ""}, "prompt");
    const json_t *first = json_array_get(v, 0);
    bool many = !g->chat && json_is_array(v) && (json_is_string(first) || json_is_array(first));
    size_t n = many ? json_array_size(v) : 1;
    if (n > VB_GEN_PROMPTS_MAX) return vb__fail(err, VB_E_ARGUMENT, "prompt: is a list of %zu, expected at most %d", n, VB_GEN_PROMPTS_MAX);
    g->prompts = vb__calloc(VB_TAG_SERVER, n, sizeof *g->prompts);
    if (g->prompts == NULL) return vb__fail(err, VB_E_MEMORY, "prompt: out of memory");
    if (g->chat) {
        VB_TRY(vb__gen_render(g->root, m, NULL, &g->prompts[0].ids, &g->prompts[0].count, err));
        g->n_prompts = 1;
        return VB_OK;
    }
    for (size_t i = 0; i < n; i++) VB_TRY(one_prompt(g, m, many ? json_array_get(v, i) : v, err));
    return VB_OK;
}
