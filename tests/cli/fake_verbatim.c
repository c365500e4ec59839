/* A stand-in for the library, so that the command line can be tested without a model: ids are bytes, a
 * template puts "<role>" in front of each message, and the answer is the prompt's text in capitals, one token
 * a byte. Models are folders; one named "bare" has no tokenizer, one named "plain" no template. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "server/server.h"
#include "verbatim/verbatim.h"
#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct vb_model {
    char *path;
    vb_model_options o;
};
struct vb_tokenizer {
    int unused;
};

void vb_string_free(char *s) {
    vb__free(s);
}
void vb_ids_free(int32_t *ids) {
    vb__free(ids);
}
void vb_log_set(vb_log_fn *fn, void *user, int min_level) {
    (void)fn, (void)user, (void)min_level;
}
void vb_model_options_init(vb_model_options *o) {
    *o = (vb_model_options){.activations = 8, .parallel = 1, .head_chunk = true, .draft = "auto"};
}
vb_err vb_model_open(const vb_model_options *o, vb_model **out, vb_error *err) {
    if (!vb__file_is_dir(o->path))
        return vb__fail(err, VB_E_NOT_FOUND, "%.100s: no such folder, expected a model", o->path);
    vb_model *m = vb__calloc(VB_TAG_MISC, 1, sizeof *m);
    m->path = vb__strdup(VB_TAG_MISC, o->path);
    m->o = *o;
    for (int i = 0; o->progress && i <= 10; i++) o->progress(o->progress_user, "load", i, 10);
    *out = m;
    return VB_OK;
}
void vb_model_close(vb_model *m) {
    if (m) vb__free(m->path);
    vb__free(m);
}
void vb_model_get_info(const vb_model *m, vb_model_info *out) {
    const char *base = vb__path_base(m->path);
    *out = (vb_model_info){.path = m->path,
                           .architecture = "fake",
                           .klass = "cpu",
                           .level = "c",
                           .contract = 1,
                           .activations = m->o.activations,
                           .threads = m->o.threads ? m->o.threads : 1,
                           .vocab = 256,
                           .ctx = 100,
                           .has_tokenizer = strcmp(base, "bare") != 0,
                           .has_chat_template = strcmp(base, "bare") != 0 &&
                                                (strcmp(base, "plain") != 0 || m->o.chat_template)};
}

static vb_err bytes(const char *s, size_t len, int32_t **ids, int32_t *count) {
    *ids = vb__alloc(VB_TAG_MISC, len * 4 + 4);
    for (size_t i = 0; i < len; i++) (*ids)[i] = (unsigned char)s[i];
    *count = (int32_t)len;
    return VB_OK;
}
vb_err vb_tokenize(const vb_model *m, const char *text, size_t len, bool parse_special, bool parse_added,
                   bool add_special, int32_t **ids, int32_t *count, vb_error *err) {
    (void)parse_special, (void)parse_added, (void)add_special;
    vb_model_info i;
    vb_model_get_info(m, &i);
    if (!i.has_tokenizer)
        return vb__fail(err, VB_E_NOT_FOUND, "tokenizer.json: is missing, expected one for text");
    return bytes(text, len, ids, count);
}
vb_err vb_detokenize(const vb_model *m, const int32_t *ids, int32_t count, bool skip_special, char **text,
                     size_t *len, vb_error *err) {
    (void)m, (void)ids, (void)count, (void)skip_special, (void)text, (void)len;
    return vb__fail(err, VB_E_UNSUPPORTED, "fake");
}
vb_err vb_apply_template(const vb_model *m, const char *messages_json, const char *tools_json,
                         const char *kwargs_json, bool add_generation_prompt, char **text, int32_t **ids,
                         int32_t *count, vb_error *err) {
    (void)tools_json, (void)kwargs_json, (void)add_generation_prompt, (void)text;
    vb_model_info info;
    vb_model_get_info(m, &info);
    if (!info.has_tokenizer)
        return vb__fail(err, VB_E_NOT_FOUND, "tokenizer.json: is missing, expected one for text");
    json_t *a = json_loads(messages_json, 0, NULL), *v;
    vb__buffer b;
    vb__buffer_init(&b, 1 << 20);
    size_t i;
    json_array_foreach(a, i, v) vb__buffer_printf(&b, "<%s>%s", json_string_value(json_object_get(v, "role")),
                                                  json_string_value(json_object_get(v, "content")));
    json_decref(a);
    vb_err e = bytes(vb__buffer_str(&b), b.len, ids, count);
    vb__buffer_fini(&b);
    return e;
}
void vb_request_init(vb_request *r) {
    *r = (vb_request){.max_tokens = -1, .top_logprobs = -1};
}
void vb_result_fini(vb_result *r) {
    vb__free(r->text);
    vb__free(r->ids);
    vb__free(r->logprobs);
    vb__free(r->top);
    *r = (vb_result){0};
}
vb_err vb_generate(vb_model *m, const vb_request *r, vb_result *out, vb_error *err) {
    float logits[256] = {0};
    int32_t n = r->prompt_count;
    if (r->prompt_count > 100)
        return vb__fail(err, VB_E_CONTEXT_FULL, "prompt: %d tokens, expected at most 100", r->prompt_count);
    if (m->o.parallel < 1 + r->neighbours) return vb__fail(err, VB_E_INTERNAL, "neighbours");
    if (r->max_tokens >= 0 && r->max_tokens < n) n = (int32_t)r->max_tokens;
    *out = (vb_result){.text = vb__calloc(VB_TAG_MISC, (size_t)n + 1, 1),
                       .ids = vb__calloc(VB_TAG_MISC, (size_t)n + 1, 4),
                       .count = n,
                       .text_len = (size_t)n,
                       .finish = n < r->prompt_count ? VB_FINISH_LENGTH : VB_FINISH_STOP,
                       .sampling = r->sampling,
                       .prefill_s = 0.5,
                       .decode_s = 0.25,
                       .draft_kind = "none",
                       .draft_width = 1};
    if (!(r->sampling.set & VB_SET_SEED)) out->sampling.seed = 77;
    if (r->hash_logits) memset(out->logits_sha256, 'a', 64);
    int32_t first = r->all_logits ? 0 : r->prompt_count - 1,
            rows = r->prompt_count - 1 + (n ? n : r->all_logits);
    for (int32_t i = first; i < rows && r->logits_row; i++) {
        logits[0] = (float)i;
        vb_err e = r->logits_row(r->user, logits, 256);
        if (e != VB_OK) return vb__fail(err, e, "logits_row");
    }
    for (int32_t i = 0; i < n; i++) {
        char c = (char)toupper(r->prompt_ids[i]);
        out->text[i] = c;
        out->ids[i] = (unsigned char)c;
        if (r->on_text && !r->on_text(r->user, &c, 1)) {
            out->finish = VB_FINISH_CANCELLED;
            break;
        }
    }
    return VB_OK;
}
vb_err vb_inspect_json(const char *path, int64_t ctx, char **json, vb_error *err) {
    (void)path, (void)ctx, (void)err;
    *json = vb__strdup(
        VB_TAG_MISC,
        "{\"architecture\":\"fake\",\"weight_bytes\":5242880,\"tensors\":[{\"name\":\"a\",\"shape\":\"1x2\"},"
        "{\"name\":\"bb\",\"shape\":\"3\"}],\"memory\":{\"state_bytes\":10}}");
    return VB_OK;
}
vb_err vb_tokenizer_open(const char *folder, vb_tokenizer **out, vb_error *err) {
    if (!vb__file_is_dir(folder)) return vb__fail(err, VB_E_NOT_FOUND, "%.100s: no such folder", folder);
    *out = vb__calloc(VB_TAG_MISC, 1, sizeof **out);
    return VB_OK;
}
void vb_tokenizer_close(vb_tokenizer *t) {
    vb__free(t);
}
vb_err vb_tokenize_line(const vb_tokenizer *t, bool decode, const char *line, size_t len, char **out,
                        vb_error *err) {
    (void)t;
    json_t *o = json_loadb(line, len, 0, NULL);
    if (!json_is_object(o)) {
        json_decref(o);
        return vb__fail(err, VB_E_FORMAT, "line: is not an object, expected one");
    }
    vb__buffer b;
    vb__buffer_init(&b, 1 << 20);
    if (decode) {
        vb__buffer_puts(&b, "{\"text\":\"");
        for (size_t i = 0; i < json_array_size(json_object_get(o, "ids")); i++)
            vb__buffer_putc(&b, (char)json_integer_value(json_array_get(json_object_get(o, "ids"), i)));
        vb__buffer_puts(&b, "\"}");
    } else {
        const char *s = json_string_value(json_object_get(o, "text"));
        for (size_t i = 0; s && s[i]; i++)
            vb__buffer_printf(&b, "%s%d", i ? "," : "{\"ids\":[", (unsigned char)s[i]);
        vb__buffer_puts(&b, "]}");
    }
    json_decref(o);
    *out = vb__buffer_take(&b);
    return VB_OK;
}
vb_err vb_template_line(const char *line, size_t len, char **out, vb_error *err) {
    (void)line, (void)err;
    *out = vb__strdup(VB_TAG_MISC, len > 2 ? "{\"text\":\"x\"}" : "{\"error\":\"empty\"}");
    return VB_OK;
}
vb_err vb_template_render_folder(const char *folder, const char *template_path, const char *json, size_t len,
                                 char **out, vb_error *err) {
    (void)folder, (void)template_path, (void)err;
    *out = vb__strndup(VB_TAG_MISC, json, len);
    return VB_OK;
}
vb_err vb_quantize(const char *src, const char *dst, int32_t bits, int32_t group_size,
                   vb_progress_fn *progress, void *user, vb_error *err) {
    (void)src;
    for (int i = 0; i <= 10; i++) progress(user, "quantize", i, 10);
    while (strcmp(dst, "slow") == 0) {
        printf("working\n");
        fflush(stdout);
        usleep(10000);
        if (!progress(user, "quantize", 1, 10)) return vb__fail(err, VB_E_CANCELLED, "%s: quantising was stopped", dst);
    }
    return vb__fail(err, VB_E_UNSUPPORTED, "quantize: %d bits, groups of %d", bits, group_size);
}
void vb_bench_options_init(vb_bench_options *o) {
    *o = (vb_bench_options){.weights = "q4", .ctx = 1024, .prefill_tokens = 512};
}
vb_err vb_bench_json(const vb_bench_options *o, char **json, vb_error *err) {
    vb__buffer b;
    (void)err;
    vb__buffer_init(&b, 4096);
    vb__buffer_printf(
        &b, "{\"geometry\":\"%s\",\"widths\":[{\"rows\":1,\"seconds\":0.5},{\"rows\":16,\"seconds\":0.75}]}",
        o->geometry ? o->geometry : "model");
    *json = vb__buffer_take(&b);
    return VB_OK;
}

void vb_verify_options_init(vb_verify_options *o) { *o = (vb_verify_options){.activations = 8, .draft = "auto"}; }
vb_err vb_verify_json(const vb_verify_options *o, char **json, bool *equal, vb_error *err) {
    (void)o;
    *equal = true;
    *json = vb__strdup(VB_TAG_MISC, "{\"equal\":true,\"cells\":1,\"seconds\":0.5,\"first_difference\":null}");
    return *json != NULL ? VB_OK : vb__fail(err, VB_E_MEMORY, "verify: out of memory");
}
vb_err vb_trace_check(const char *path, vb_error *err) {
    return path[0] != '\0' ? VB_OK : vb__fail(err, VB_E_ARGUMENT, "--trace: is empty, expected a file");
}
vb_err vb_replay_json(const char *trace, const char *path, int32_t threads, char **json, bool *equal, vb_error *err) {
    (void)trace, (void)path, (void)threads;
    *equal = true;
    *json = vb__strdup(VB_TAG_MISC, "{\"equal\":true,\"requests\":1,\"first_difference\":null}");
    return *json != NULL ? VB_OK : vb__fail(err, VB_E_MEMORY, "replay: out of memory");
}
vb_err vb_bench_text(const char *json, char **text, vb_error *err) {
    (void)err;
    vb__buffer b;
    vb__buffer_init(&b, 4096);
    vb__buffer_printf(&b, "table of %s\n", json);
    *text = vb__buffer_take(&b);
    return VB_OK;
}

void vb_draft_bench_options_init(vb_draft_bench_options *o) { *o = (vb_draft_bench_options){.tokens = 128, .pairs = 5}; }
vb_err vb_bench_draft_json(const vb_draft_bench_options *o, char **json, vb_error *err) {
    (void)o;
    *json = vb__strdup(VB_TAG_MISC, "{\"prompts\":[]}");
    return *json != NULL ? VB_OK : vb__fail(err, VB_E_MEMORY, "bench: out of memory");
}
vb_err vb_tune_json(const vb_draft_bench_options *o, const char *const *texts, int32_t n, char **json, vb_error *err) {
    (void)o, (void)texts, (void)n;
    *json = vb__strdup(VB_TAG_MISC, "{\"arms\":[],\"stored\":[]}");
    return *json != NULL ? VB_OK : vb__fail(err, VB_E_MEMORY, "tune: out of memory");
}

/* Many requests at once are not part of this program either. */
vb_err vb_async_start(vb_model *m, const vb_async_options *o, vb_async **out, vb_error *err) {
    (void)m, (void)o, (void)out;
    return vb__fail(err, VB_E_UNSUPPORTED, "async: not in this program");
}
void vb_async_stop(vb_async *a) { (void)a; }
vb_err vb_async_submit(vb_async *a, const vb_call_options *o, int32_t n, vb_call **calls, vb_sampling *sampling, vb_error *err) {
    (void)a, (void)o, (void)n, (void)calls, (void)sampling;
    return vb__fail(err, VB_E_UNSUPPORTED, "async: not in this program");
}
void vb_call_release(vb_call *c) { (void)c; }

/* The server is not part of this program. */
void vb__serve_options_init(vb__serve_options *o) { *o = (vb__serve_options){.host = "127.0.0.1", .port = 8080}; }
vb_err vb__serve(vb_model *m, const vb__serve_options *o, vb_error *err) {
    (void)m;
    for (int32_t i = 0; i < o->n_origins; i++) printf("origin %s\n", o->origins[i]);
    if (o->port == 1) return vb__fail(err, VB_E_IO, "--port: 1 on %s is in use", o->host);
    o->ready(o->user, "http://127.0.0.1:8080");
    return VB_OK;
}
