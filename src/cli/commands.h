/* The commands, and what they share. A new command is a file with a vb__command, declared here and listed in
 * main.c. */
#ifndef VB_CLI_COMMANDS_H
#define VB_CLI_COMMANDS_H
#include "base/buffer.h"
#include "base/limits.h"
#include "cli/options.h"
#include <jansson.h>

extern const vb__command vb__cmd_run, vb__cmd_chat, vb__cmd_bench, vb__cmd_inspect, vb__cmd_tokenize,
    vb__cmd_template, vb__cmd_quantize, vb__cmd_verify, vb__cmd_replay, vb__cmd_tune, vb__cmd_serve;

/* Ends with NULL. */
extern const vb__command *const vb__commands[];

/* Takes the value and prints it on one line of standard output; NULL counts as out of memory. */
VB_MUST_USE vb_err vb__print_json(json_t *value, vb_error *err);

/* Calls fn for each line of standard input (without its newline) and prints what it gives, one line each,
 * flushed; where fn fails, prints
 * {"error": text} and goes on. Lines longer than `max` bytes are such an error. *out is freed with
 * vb_string_free. */
typedef vb_err vb__line_fn(void *user, const char *line, size_t len, char **out, vb_error *err);
VB_MUST_USE vb_err vb__each_line(vb__line_fn *fn, void *user, size_t max, vb_error *err);

#endif
