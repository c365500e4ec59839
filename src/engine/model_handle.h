/* What a public vb_model is. */
#ifndef VB_ENGINE_MODEL_HANDLE_H
#define VB_ENGINE_MODEL_HANDLE_H
#include "engine/engine.h"

struct vb_model {
    vb__engine *engine;
};


#endif
