/* Help and manual page, made from the command tables. */
#ifndef VB_CLI_MANUAL_H
#define VB_CLI_MANUAL_H
#include "cli/options.h"
#include <stdio.h>

/* commands ends with a NULL name. */
void vb__help_overview(FILE *out, const vb__command *const *commands);
void vb__help_command(FILE *out, const vb__command *c);
/* verbatim.1 in man macros. */
void vb__manual_page(FILE *out, const vb__command *const *commands);

#endif
