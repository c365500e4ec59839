/* Where the sampling options of a request come from. Each option by itself: the request, then the
 * command-line flag, then generation_config.json, then the default, which is greedy. Numbers are f32, as the
 * numerics contract asks. */
#ifndef VB_ENGINE_SAMPLING_OPTIONS_H
#define VB_ENGINE_SAMPLING_OPTIONS_H
#include "base/error.h"
#include "verbatim/verbatim.h"

enum { VB_GENERATION_EOS_MAX = 64 };

/* What generation_config.json says about generation. */
typedef struct vb__generation_config {
    vb_sampling sampling; /* only what the file gives */
    int32_t eos[VB_GENERATION_EOS_MAX], n_eos;
} vb__generation_config;

/* Reads FOLDER/generation_config.json; without the file *out is empty. `do_sample` false means temperature 0,
 * true without `temperature` means 1 (the meaning the file has where it comes from). `repetition_penalty` is
 * repeat_penalty. Unknown fields are ignored; a known field of another type or out of range is an error
 * naming it. VB_E_FORMAT, VB_E_RANGE, VB_E_IO, VB_E_LIMIT, VB_E_MEMORY. */
VB_MUST_USE vb_err vb__generation_config_read(const char *folder, vb__generation_config *out, vb_error *err);
/* The same from text; `file` names it in errors. */
VB_MUST_USE vb_err vb__generation_config_parse(const char *text, size_t len, const char *file,
                                               vb__generation_config *out, vb_error *err);

/* Resolves; any source may be NULL. All bits of out->set are then set, VB_SET_SEED too: a seed that nobody
 * gave is drawn from the system's random numbers (below 2^53, so that every JSON reader returns it
 * unchanged). */
VB_MUST_USE vb_err vb__sampling_resolve(const vb_sampling *request, const vb_sampling *flags,
                                        const vb_sampling *file, vb_sampling *out, vb_error *err);

/* Checks the fields that are set: finite numbers, temperature 0..100, top_k any, top_p and min_p 0..1,
 * repeat_penalty 0.001..100, presence and frequency -100..100. VB_E_RANGE naming the field. */
VB_MUST_USE vb_err vb__sampling_check(const vb_sampling *s, vb_error *err);

/* Ids below vocab, finite biases: else VB_E_RANGE, and VB_E_ARGUMENT for a count without an array, naming logit_bias. */
VB_MUST_USE vb_err vb__logit_bias_check(const vb_logit_bias *bias, int32_t n, int32_t vocab, vb_error *err);

#endif
