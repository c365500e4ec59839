/* Public functions whose real place is not built yet: a function leaves this file when its own comes. */
#include "base/error.h"
#include "verbatim/verbatim.h"

#define PENDING(...)                                                                                         \
    do {                                                                                                     \
        return vb__fail(err, VB_E_UNSUPPORTED, "%s: not built yet", __func__);                               \
    } while (0)

vb_err vb_tokenize(const vb_model *m, const char *text, size_t len, bool parse_special, bool parse_added, bool add_special,
                   int32_t **ids, int32_t *count, vb_error *err) {
    (void)m; (void)text; (void)len; (void)parse_special; (void)parse_added; (void)add_special; (void)ids; (void)count;
    PENDING();
}
vb_err vb_detokenize(const vb_model *m, const int32_t *ids, int32_t count, bool skip_special, char **text, size_t *len,
                     vb_error *err) {
    (void)m; (void)ids; (void)count; (void)skip_special; (void)text; (void)len;
    PENDING();
}
vb_err vb_apply_template(const vb_model *m, const char *messages_json, const char *tools_json, const char *kwargs_json,
                         bool add_generation_prompt, char **text, int32_t **ids, int32_t *count, vb_error *err) {
    (void)m; (void)messages_json; (void)tools_json; (void)kwargs_json; (void)add_generation_prompt; (void)text; (void)ids; (void)count;
    PENDING();
}
vb_err vb_inspect_json(const char *path, int64_t ctx, char **json, vb_error *err) {
    (void)path; (void)ctx; (void)json;
    PENDING();
}
vb_err vb_tokenizer_open(const char *folder, vb_tokenizer **out, vb_error *err) {
    (void)folder; (void)out;
    PENDING();
}
void vb_tokenizer_close(vb_tokenizer *t) { (void)t; }
vb_err vb_tokenize_line(const vb_tokenizer *t, bool decode, const char *line, size_t len, char **out, vb_error *err) {
    (void)t; (void)decode; (void)line; (void)len; (void)out;
    PENDING();
}
vb_err vb_template_line(const char *line, size_t len, char **out, vb_error *err) {
    (void)line; (void)len; (void)out;
    PENDING();
}
vb_err vb_template_render_folder(const char *folder, const char *template_path, const char *json, size_t len, char **out,
                                 vb_error *err) {
    (void)folder; (void)template_path; (void)json; (void)len; (void)out;
    PENDING();
}
void vb_bench_options_init(vb_bench_options *o) {
    *o = (vb_bench_options){.weights = "q4", .activations = 8, .ctx = 1024, .prefill_tokens = 512, .repeats = 5, .head_chunk = true};
}
vb_err vb_bench_json(const vb_bench_options *o, char **json, vb_error *err) {
    (void)o; (void)json;
    PENDING();
}
