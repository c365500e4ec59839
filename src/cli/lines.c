/* JSON on standard output and line-by-line work. See commands.h. */
#include "base/error.h"
#include "cli/commands.h"
#include "verbatim/verbatim.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

vb_err vb__print_json(json_t *value, vb_error *err) {
    if (!value) return vb__fail(err, VB_E_MEMORY, "output: out of memory");
    int bad = json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    json_decref(value);
    if (bad != 0 || fputc('\n', stdout) == EOF)
        return vb__fail(err, VB_E_IO, "standard output: could not be written");
    return VB_OK;
}

static vb_err print_error(const vb_error *e, vb_error *err) {
    /* an error text cut in the middle of a character must not make the line unreadable */
    json_t *text = json_string(e->text);
    if (!text) {
        char ascii[VB_ERROR_TEXT_MAX];
        for (int i = 0; i < VB_ERROR_TEXT_MAX; i++) ascii[i] = (signed char)e->text[i] < 0 ? '?' : e->text[i];
        text = json_string(ascii);
    }
    return vb__print_json(json_pack("{s:o}", "error", text), err);
}

/* One line into b; false at the end of input. What does not fit into b is skipped and the buffer keeps the
 * error. */
static bool read_line(vb__buffer *b) {
    int c;
    vb__buffer_clear(b);
    while ((c = getc_unlocked(stdin)) != EOF && c != '\n') (void)vb__buffer_putc(b, (char)c);
    return c != EOF || b->len > 0 || b->error != VB_OK;
}

vb_err vb__each_line(vb__line_fn *fn, void *user, size_t max, vb_error *err) {
    vb__buffer b;
    vb__buffer_init(&b, max);
    vb_err e = VB_OK;
    while (e == VB_OK && read_line(&b)) {
        vb_error line_error = {0};
        char *out = NULL;
        vb_err le = b.error;
        if (le == VB_OK) {
            if (b.len > 0 && b.data[b.len - 1] == '\r') b.len--;
            le = fn(user, vb__buffer_str(&b), b.len, &out, &line_error);
        } else {
            le = vb__fail(&line_error, le, "line: longer than %zu bytes, expected less", max);
        }
        if (le != VB_OK) e = print_error(&line_error, err);
        else if (fputs(out, stdout) == EOF || fputc('\n', stdout) == EOF)
            e = vb__fail(err, VB_E_IO, "standard output: could not be written");
        vb_string_free(out);
        if (e == VB_OK && fflush(stdout) != 0)
            e = vb__fail(err, VB_E_IO, "standard output: %s", strerror(errno));
    }
    if (e == VB_OK && ferror(stdin))
        e = vb__fail(err, VB_E_IO, "standard input: %s, expected lines", strerror(errno));
    vb__buffer_fini(&b);
    return e;
}
