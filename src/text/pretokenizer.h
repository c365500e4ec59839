/* Pre-tokenizers of tokenizer.json: they cut a text into the words that the model encodes one by one. A list
 * of steps; every piece of one step goes through the next before the following piece is cut, so no list of
 * pieces is ever made. */
#ifndef VB_TEXT_PRETOKENIZER_H
#define VB_TEXT_PRETOKENIZER_H
#include "base/limits.h"
#include "text/text_regex.h"
#include "text/text_unicode.h"

typedef enum vb__pre_kind {
    VB_PRE_SPLIT,      /* regex, or a literal pattern */
    VB_PRE_BYTE_LEVEL, /* add_prefix_space, then regex (NULL: none) */
    VB_PRE_BYTE_MAP,   /* bytes written as characters (vb__byte_char): where a byte level step is not the last
                        */
    VB_PRE_DIGITS,     /* category N; behaviour isolated or contiguous */
    VB_PRE_METASPACE,
    VB_PRE_WHITESPACE, /* \w+|[^\w\s]+, the rest removed */
    VB_PRE_WHITESPACE_SPLIT,
    VB_PRE_PUNCTUATION,
    VB_PRE_CHAR /* a delimiter character */
} vb__pre_kind;

typedef enum vb__pre_behavior {
    VB_PRE_REMOVED,
    VB_PRE_ISOLATED,
    VB_PRE_MERGED_WITH_PREVIOUS,
    VB_PRE_MERGED_WITH_NEXT,
    VB_PRE_CONTIGUOUS
} vb__pre_behavior;

typedef enum vb__pre_prepend { VB_PREPEND_ALWAYS, VB_PREPEND_FIRST, VB_PREPEND_NEVER } vb__pre_prepend;

/* Patterns of published models, recognised by their text; a hand-written scanner then takes the stretches of
 * ASCII and gives the same cuts as the regular expression. */
typedef enum vb__pre_scan {
    VB_SCAN_NONE,
    VB_SCAN_GPT2,
    VB_SCAN_QWEN2,
    VB_SCAN_QWEN35,
    VB_SCAN_LLAMA3
} vb__pre_scan;

typedef struct vb__pre_step {
    vb__pre_kind kind;
    vb__pre_behavior behavior;
    vb__pre_scan scan;
    bool invert;
    bool add_prefix_space; /* byte level */
    bool split;            /* metaspace: cut before each replacement character */
    vb__pre_prepend prepend;
    vb__regex *regex; /* owned */
    char *pattern;    /* owned; literal pattern, or the replacement of metaspace */
    size_t n_pattern;
    uint32_t delimiter;
} vb__pre_step;

typedef struct vb__pretokenizer {
    vb__pre_step step[VB_LIMIT_TEXT_STEPS];
    int n_steps;
} vb__pretokenizer;

typedef struct vb__pre_scratch { /* one per thread */
    vb__textbuf buf[VB_LIMIT_TEXT_STEPS];
    vb__regex_scratch *regex; /* borrowed */
} vb__pre_scratch;

void vb__pretokenizer_fini(vb__pretokenizer *p);
/* Which scanner a regular expression has; VB_SCAN_NONE for most. */
vb__pre_scan vb__pre_scan_of(const char *pattern, size_t n);

typedef vb_err vb__word_fn(void *ctx, const char *word, size_t n, vb_error *err);
/* Calls word(ctx, ...) for each piece of the text (valid UTF-8), in order; empty ones are left out. `first`:
 * the text begins where the whole input begins. */
VB_MUST_USE vb_err vb__pretokenizer_run(const vb__pretokenizer *p, vb__pre_scratch *s, const char *text,
                                        size_t n, bool first, vb__word_fn *word, void *ctx, vb_error *err);

#endif
