/* Option groups that several commands share, and what they mean for the library's option structs. */
#ifndef VB_CLI_GROUPS_H
#define VB_CLI_GROUPS_H
#include "cli/options.h"
#include "verbatim/verbatim.h"

typedef struct vb__model_values {
    const char *model, *chat_template, *draft, *activations;
    vb__opt_int threads, ctx, prefill_chunk, draft_width;
    bool no_head_chunk;
} vb__model_values;

typedef struct vb__sampling_values {
    vb__opt_number temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
    vb__opt_int top_k, seed;
} vb__sampling_values;

typedef struct vb__output_values {
    bool json, verbose;
} vb__output_values;

extern const vb__opt vb__model_opts[], vb__sampling_opts[], vb__output_opts[];

/* Fills the library's struct; *path is the model's folder and the caller's (vb__free). Progress is on unless
 * quiet. */
VB_MUST_USE vb_err vb__model_options_from(const vb__model_values *v, vb_model_options *o, char **path,
                                          vb_error *err);
/* --verbose: which log lines are shown. Every command that takes it calls this first. */
void vb__output_start(bool verbose);
/* --stop, at most VB_MAX_STOPS of them. */
VB_MUST_USE vb_err vb__stops_from(const vb__opt_list *stops, vb_request *q, vb_error *err);
vb_sampling vb__sampling_from(const vb__sampling_values *v);

/* The folder that -m names: a path, or owner/name under the model store ($VERBATIM_HOME/models, by default
 * ~/.cache/verbatim/models). NULL: the embedded model, ../share/verbatim/models/atto beside the executable,
 * else the source tree's models/atto. The caller's (vb__free). */
VB_MUST_USE vb_err vb__model_path(const char *name, char **out, vb_error *err);

#endif
