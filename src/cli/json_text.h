/* JSON for people: one "key: value" a line, nested values indented, arrays of flat objects as tables. */
#ifndef VB_CLI_JSON_TEXT_H
#define VB_CLI_JSON_TEXT_H
#include <jansson.h>
#include <stdio.h>

void vb__json_text(FILE *out, const json_t *value);

#endif
