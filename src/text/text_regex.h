/* Regular expressions of tokenizer.json: written for Oniguruma, run by PCRE2 with its JIT. A translator gives
 * the classes their Unicode meaning (\s without U+180E, \w with marks) and refuses what would silently mean
 * something else (class intersections, negated classes inside classes). */
#ifndef VB_TEXT_REGEX_H
#define VB_TEXT_REGEX_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

typedef struct vb__regex vb__regex; /* immutable after creation; any thread */
typedef struct vb__regex_scratch {  /* one per thread; zero-initialised */
    void *match_data, *match_context, *jit_stack;
} vb__regex_scratch;

/* what: names the pattern in errors. VB_E_UNSUPPORTED or VB_E_FORMAT with the place in the pattern. */
VB_MUST_USE vb_err vb__regex_create(const char *pattern, size_t len, const char *what, vb__regex **out,
                                    vb_error *err);
void vb__regex_destroy(vb__regex *r); /* accepts NULL */
void vb__regex_scratch_fini(vb__regex_scratch *s);

/* The first match at or after `from` in valid UTF-8; *found says whether there is one. VB_E_LIMIT when the
 * pattern needs too many steps. */
VB_MUST_USE vb_err vb__regex_find(const vb__regex *r, vb__regex_scratch *s, const char *text, size_t len,
                                  size_t from, bool *found, size_t *begin, size_t *end, vb_error *err);

/* The translated pattern, for tests; borrowed. */
const char *vb__regex_translated(const vb__regex *r);

#endif
