#include "engine/drafting.h"
#include "engine/engine.h"

vb_err vb__drafting_open(vb__engine *e, const vb_model_options *o, vb_error *err) { (void)e; (void)o; (void)err; return VB_OK; }
void vb__drafting_close(vb__engine *e) { (void)e; }
void vb__drafting_begin(vb__engine *e, vb__slot *s) { (void)e; (void)s; }
void vb__drafting_forget(vb__engine *e, vb__slot *s) { (void)e; (void)s; }
int32_t vb__drafting_propose(vb__engine *e, vb__slot *s, int32_t *out, int32_t max) { (void)e; (void)s; (void)out; (void)max; return 0; }
bool vb__drafting_wants_hidden(const vb__engine *e) { (void)e; return false; }
const int32_t *vb__drafting_taps(const vb__engine *e, int32_t *n) { (void)e; *n = 0; return NULL; }
void vb__drafting_commit(vb__engine *e, vb__slot *s, const float *hidden, int32_t hidden_first, int32_t row0, int32_t keep, int32_t drafts, int32_t accepted, bool over) {
    (void)e; (void)s; (void)hidden; (void)hidden_first; (void)row0; (void)keep; (void)drafts; (void)accepted; (void)over;
}
void vb__drafting_observe(vb__engine *e, int32_t n_seqs, int32_t rows, double draft_s, double verify_s) { (void)e; (void)n_seqs; (void)rows; (void)draft_s; (void)verify_s; }
const char *vb__draft_kind_name(int32_t kind) { (void)kind; return "none"; }
int32_t vb__drafting_declined(const vb__engine *e, int32_t out[16]) { (void)e; (void)out; return 0; }
