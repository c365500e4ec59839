/* `bench serve`: how a model does when several ask at a time. */
#ifndef VB_CLI_BENCH_SERVE_H
#define VB_CLI_BENCH_SERVE_H
#include "verbatim/verbatim.h"

/* Runs `tokens` greedy tokens (0: the default) on built-in prompts at concurrency 1, 4, 8 and 16, without drafters and with them, the arms taking
 * turns `repeats` times (0: the default); prints a table, or one JSON object. path: the model's folder. */
VB_MUST_USE vb_err vb__bench_serve(const vb_model_options *o, int32_t tokens, int32_t repeats, bool json, vb_error *err);

#endif
