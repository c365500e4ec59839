/* Public functions whose real place is not built yet: a function leaves this file when its own comes. */
#include "base/error.h"
#include "verbatim/verbatim.h"

#define PENDING(...)                                                                                         \
    do {                                                                                                     \
        return vb__fail(err, VB_E_UNSUPPORTED, "%s: not built yet", __func__);                               \
    } while (0)

vb_err vb_apply_template(const vb_model *m, const char *messages_json, const char *tools_json, const char *kwargs_json,
                         bool add_generation_prompt, char **text, int32_t **ids, int32_t *count, vb_error *err) {
    (void)m; (void)messages_json; (void)tools_json; (void)kwargs_json; (void)add_generation_prompt; (void)text; (void)ids; (void)count;
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
