/* Normalizers of tokenizer.json: a list of steps over a text, each linear. Texts may carry origins (one byte
 * each, 1 = user data); where a step cannot tell, the result is user data. */
#ifndef VB_TEXT_NORMALIZER_H
#define VB_TEXT_NORMALIZER_H
#include "base/limits.h"
#include "text/text_regex.h"
#include "text/text_unicode.h"

typedef enum vb__norm_kind {
    VB_NORM_NF,      /* form */
    VB_NORM_PREPEND, /* content; nothing before an empty text */
    VB_NORM_REPLACE, /* pattern (or regex) by content */
    VB_NORM_LOWER,
    VB_NORM_STRIP,        /* left, right */
    VB_NORM_STRIP_ACCENTS /* drops the characters of category M */
} vb__norm_kind;

typedef struct vb__norm_step {
    vb__norm_kind kind;
    vb__nf form;
    bool left, right;
    char *pattern, *content; /* owned */
    size_t n_pattern, n_content;
    vb__regex *regex; /* owned; NULL: the pattern is literal */
} vb__norm_step;

typedef struct vb__normalizer {
    vb__norm_step step[VB_LIMIT_TEXT_STEPS];
    int n_steps;
} vb__normalizer;

typedef struct vb__norm_scratch { /* one per thread */
    vb__textbuf buf[2];
    vb__nf_work work;
    vb__regex_scratch *regex; /* borrowed */
} vb__norm_scratch;

/* A text with origins (user NULL: not tracked). Borrowed bytes. */
typedef struct vb__text_view {
    const char *data;
    const uint8_t *user;
    size_t len;
} vb__text_view;

void vb__normalizer_fini(vb__normalizer *n);
/* Replaces *text by its normal form, which lives in scratch until the next call (or is the input itself). */
VB_MUST_USE vb_err vb__normalizer_run(const vb__normalizer *n, vb__norm_scratch *s, vb__text_view *text,
                                      vb_error *err);

/* Literal search, linear time: the offset of the first occurrence at or after `from`, or len. m >= 1. */
size_t vb__find_literal(const char *text, size_t len, size_t from, const char *pattern, size_t m);

#endif
