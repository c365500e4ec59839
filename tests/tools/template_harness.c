/* Reads {"template", "context", "now"} lines and writes {"text"} or {"error"} lines, as `verbatim template
 * --stdin-jsonl --json` does, for the differential scripts. */
#include "text/template_lines.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(void) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    int rc = 0;
    while ((n = getline(&line, &cap, stdin)) > 0) {
        vb_error err = {0};
        vb__buffer out;
        vb__buffer_init(&out, (size_t)1 << 30);
        if (vb__template_line(line, (size_t)n, (int64_t)time(NULL), &out, &err) != VB_OK) {
            fprintf(stderr, "template_harness: %s\n", err.text);
            rc = 4;
        } else {
            fwrite(out.data, 1, out.len, stdout);
            fflush(stdout);
        }
        vb__buffer_fini(&out);
    }
    free(line);
    return rc;
}
