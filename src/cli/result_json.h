/* The object that `run --json` prints; its fields are part of the interface. */
#ifndef VB_CLI_RESULT_JSON_H
#define VB_CLI_RESULT_JSON_H
#include "verbatim/verbatim.h"
#include <jansson.h>

/* NULL when out of memory (or when the text is not UTF-8, which would be our bug). top_logprobs as in the
 * request. */
json_t *vb__result_json(const vb_result *r, const vb_model_info *info, const int32_t *prompt,
                        int32_t n_prompt, int32_t top_logprobs);

#endif
