/* What a public vb_model is. */
#ifndef VB_ENGINE_MODEL_HANDLE_H
#define VB_ENGINE_MODEL_HANDLE_H
#include "engine/engine.h"
#include "engine/trace.h"

struct vb_model {
    vb__engine *engine;
};

/* vb_generate with a script of rounds (NULL: the model's drafters) and, when rounds is not NULL, the rounds as they
 * went (the caller's: vb__rounds_fini). */
VB_MUST_USE vb_err vb__generate(vb_model *m, const vb_request *q, const vb__draft_script *script, vb_result *out,
                                vb__rounds *rounds, vb_error *err);


#endif
