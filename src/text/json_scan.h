/* A fast reader for the two big parts of tokenizer.json, model.vocab and model.merges, which a general JSON
 * library turns into hundreds of thousands of objects. Strict: what it accepts is JSON. The rest of the file
 * goes through base/json.h with these parts cut out. */
#ifndef VB_TEXT_JSON_SCAN_H
#define VB_TEXT_JSON_SCAN_H
#include "base/buffer.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vb__json_scan {
    const char *text, *where; /* the whole file; prefix of errors */
    size_t at, end;
    vb__buffer hold[2]; /* strings that had escapes */
} vb__json_scan;

/* A span of a file: text[begin, end). */
typedef struct vb__json_span {
    size_t begin, end;
} vb__json_span;

/* Finds the values of "vocab" (where it is an object) and "merges" (an array) in the object "model" of the
 * top-level object; spans that are not found are empty. Text that is not JSON gives anything: the rest is
 * parsed strictly. */
void vb__json_find_model(const char *text, size_t n, vb__json_span *vocab, vb__json_span *merges);

/* A copy of the text in which these spans are empty objects or arrays with as many line ends. */
VB_MUST_USE vb_err vb__json_without(const char *text, size_t n, const vb__json_span *spans, int n_spans,
                                    vb__buffer *out);

/* text[span] must be UTF-8. */
void vb__json_scan_init(vb__json_scan *s, const char *text, vb__json_span span, const char *where);
void vb__json_scan_fini(vb__json_scan *s);
/* White space, then the character c; *yes says whether it was there (and was taken). */
bool vb__json_scan_take(vb__json_scan *s, char c);
VB_MUST_USE vb_err vb__json_scan_expect(vb__json_scan *s, char c, vb_error *err);
/* A string; borrowed: from the text, or from buffer `which` (0, 1) until that is used again. */
VB_MUST_USE vb_err vb__json_scan_string(vb__json_scan *s, int which, const char **text, size_t *n,
                                        vb_error *err);
/* An integer 0..max. */
VB_MUST_USE vb_err vb__json_scan_int(vb__json_scan *s, int32_t max, int32_t *out, vb_error *err);
/* Nothing but white space is left. */
VB_MUST_USE vb_err vb__json_scan_done(vb__json_scan *s, vb_error *err);

#endif
