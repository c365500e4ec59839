#include "engine/text_out.h"
vb_err vb__text_out_create(const vb__tokenizer *tok, const char *const *stops, int32_t n_stops, vb__text_out **out, vb_error *err) { (void)tok; (void)stops; (void)n_stops; (void)out; (void)err; return VB_OK; }
void vb__text_out_destroy(vb__text_out *t) { (void)t; }
vb_err vb__text_out_push(vb__text_out *t, int32_t id, const char **text, size_t *len, const char **stop) { (void)t; (void)id; (void)text; (void)len; (void)stop; return VB_OK; }
vb_err vb__text_out_end(vb__text_out *t, const char **text, size_t *len) { (void)t; (void)text; (void)len; return VB_OK; }
