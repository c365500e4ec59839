/* Chat templates: an interpreter for the part of the Jinja language that model templates use, with Python's
 * own rules where a template shows them (text of floats, repr inside lists, truthiness, slices). It stands in
 * for the sandboxed environment that model publishers test their templates in: trim_blocks, lstrip_blocks,
 * loop controls, generation blocks, tojson without HTML escapes, raise_exception, strftime_now. What it does
 * not do is an error that names the thing. docs/text.md lists the language and the known differences.
 *
 * Every byte of the output knows where it came from: the template's own literals, or data given to render.
 * Where an operation cannot carry the origin the result counts as data.
 *
 * A template is untrusted. Source size, steps, memory, output and depth are bounded; a template that runs
 * away is an error within about a tenth of a second. The bounds on steps and memory grow with the size of the
 * data. */
#ifndef VB_TEXT_JINJA_H
#define VB_TEXT_JINJA_H
#include "base/error.h"
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vb__jinja vb__jinja; /* a compiled template; immutable, for any number of threads at once */

/* `source` need not be NUL-terminated and is not kept. Errors: VB_E_FORMAT (syntax, not UTF-8),
 * VB_E_UNSUPPORTED, VB_E_LIMIT, VB_E_MEMORY; the sentence begins with "template line N: ". */
VB_MUST_USE vb_err vb__jinja_compile(const char *source, size_t len, vb__jinja **out, vb_error *err);
void vb__jinja_destroy(vb__jinja *t); /* accepts NULL */

typedef struct vb__jinja_options {
    int64_t now;        /* strftime_now: seconds since 1970, UTC */
    int32_t utc_offset; /* seconds to add to `now` for the time shown; 0 shows UTC */
    bool
        roles_are_ours; /* messages[i].role counts as the template's when it is one of the known role names */
} vb__jinja_options;

typedef struct vb__jinja_run {
    size_t bytes;
    bool from_template;
} vb__jinja_run;

/* Output, or what went wrong. Freed by vb__jinja_result_fini in both cases. */
typedef struct vb__jinja_result {
    char *text; /* len bytes of UTF-8 and a NUL behind them */
    size_t len;
    vb__jinja_run *runs; /* in order, bytes add up to len, neighbours differ */
    size_t n_runs;
    int line;      /* after an error: the template's line, 0 when unknown */
    bool raised;   /* the template itself called raise_exception: `message` is its text, whole */
    char *message; /* after an error: what happened, whole, without the line; may be NULL (out of memory) */
} vb__jinja_result;

/* `context` (an object) holds the variables: user data. `ours` (an object or NULL) holds further variables
 * whose text counts as the template's own (token texts); on equal names it wins. Both are borrowed for the
 * call and may be used by other threads meanwhile as long as nobody changes them. VB_E_FORMAT: the template
 * failed (or raised). */
VB_MUST_USE vb_err vb__jinja_render(const vb__jinja *t, const json_t *context, const json_t *ours,
                                    const vb__jinja_options *options, vb__jinja_result *out, vb_error *err);
void vb__jinja_result_fini(vb__jinja_result *r);

#endif
