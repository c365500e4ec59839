/* The fields of a generation request, checked: the body of /v1/chat/completions and /v1/completions as requests on the
 * model. Null counts as absent; unknown fields are ignored and named in the log; unknown values of known fields are errors that
 * begin with the field's name. */
#ifndef VB_SERVER_GEN_REQUEST_H
#define VB_SERVER_GEN_REQUEST_H
#include "base/buffer.h"
#include "verbatim/verbatim.h"
#include <jansson.h>

enum { VB_GEN_N_MAX = 16, VB_GEN_PROMPTS_MAX = 64, VB_GEN_BODY_VALUES = 2 << 20, VB_GEN_PREDICTION_MAX = 16384 };

typedef struct vb__gen_prompt {
    int32_t *ids; /* vb_ids_free */
    int32_t count;
} vb__gen_prompt;

typedef struct vb__gen {
    json_t *root;        /* owns the strings below; after vb__gen_forget only model */
    bool chat, stream, include_usage, verbatim, logprobs;
    const char *model;   /* as asked for; NULL */
    int32_t n;
    vb_request request;  /* all but the prompt; points into root and bias */
    vb_logit_bias *bias;
    vb__gen_prompt *prompts; /* [n_prompts] */
    int32_t n_prompts;
    const json_t *prediction; /* its content: a text or text parts; NULL */
    vb__gen_prompt predicted;
    char ignored[128];   /* names of ignored fields, for the log */
} vb__gen;

/* A JSON document within the limits of a request: size, depth, number of values. */
VB_MUST_USE vb_err vb__body_parse(const char *text, size_t len, json_t **out, vb_error *err);

/* Reads everything except the prompt. Takes root. vb__gen_fini in any case. */
VB_MUST_USE vb_err vb__gen_read(vb__gen *g, json_t *root, bool chat, vb_error *err);
/* Renders or tokenizes the prompt; needs the model. */
VB_MUST_USE vb_err vb__gen_prompts(vb__gen *g, const vb_model *m, vb_error *err);
/* The request was handed in, which copied it: lets go of the document, which may have tens of times the bytes of the body. */
void vb__gen_forget(vb__gen *g);
void vb__gen_fini(vb__gen *g);

/* code, with the error of a model without tokenizer or template (VB_E_NOT_FOUND, which names its files) as one of the field. */
vb_err vb__gen_without(vb_err code, const char *field, const char *expected, vb_error *err);

/* Text of a conversation (/apply-template), or its ids; text or ids may be NULL. */
VB_MUST_USE vb_err vb__gen_render(const json_t *root, const vb_model *m, char **text, int32_t **ids, int32_t *count, vb_error *err);

#endif
