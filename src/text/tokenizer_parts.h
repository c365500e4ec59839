/* The inside of a tokenizer, shared by its loaders and its front. Not for others: tokenizer.h. */
#ifndef VB_TEXT_TOKENIZER_PARTS_H
#define VB_TEXT_TOKENIZER_PARTS_H
#include "base/json.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/token_decoder.h"
#include "text/normalizer.h"
#include "text/pretokenizer.h"
#include "text/tokenizer.h"
#include "text/unigram.h"
#include <pthread.h>

enum { VB_EOS_MAX = 4, VB_POST_MAX = 16 };

struct vb__tok_scratch;

struct vb__tokenizer {
    vb__vocabulary model; /* the model's own tokens */
    vb__added_tokens added;
    vb__normalizer normalizer;
    vb__pretokenizer pre;
    vb__decoder decoder;
    bool is_unigram;
    vb__bpe bpe;
    vb__unigram unigram;
    uint64_t *special; /* the special tokens that the model could make from text; NULL: none */
    int32_t before[VB_POST_MAX], after[VB_POST_MAX]; /* what the post-processor adds */
    int n_before, n_after;
    int32_t named[VB_TOKEN_NAMES];
    int32_t eos[VB_EOS_MAX];
    size_t n_eos;
    vb__text_hash hash;
    int32_t count, id_end;
    char *token_bytes;    /* what each id adds in mid-text */
    uint32_t *bytes_at;   /* id_end + 1 offsets */
    pthread_mutex_t lock; /* guards `idle` */
    struct vb__tok_scratch *idle;
};

/* An empty tokenizer, then, when a loader has filled in its parts, what follows from them. */
VB_MUST_USE vb_err vb__tokenizer_new(vb__tokenizer **out, vb_error *err);
VB_MUST_USE vb_err vb__tokenizer_finish(vb__tokenizer *t, vb_error *err);
/* Adds a token after checking it against the model's vocabulary; id below `id_limit`. where: prefix of
 * errors. */
VB_MUST_USE vb_err vb__tokenizer_add_token(vb__tokenizer *t, const vb__added_token *token, int32_t id_limit,
                                           const char *where, vb_error *err);

/* What decoding is given for an id; NULL without a token; borrowed. */
const char *vb__tokenizer_decode_text(const vb__tokenizer *t, int32_t id, size_t *n);

/* Sections of tokenizer.json (value may be NULL or null). */
VB_MUST_USE vb_err vb__load_normalizer(const json_t *v, vb__normalizer *out, vb_error *err);
VB_MUST_USE vb_err vb__load_pretokenizer(const json_t *v, vb__pretokenizer *out, vb_error *err);
VB_MUST_USE vb_err vb__load_decoder(const json_t *v, vb__decoder *out, vb_error *err);
VB_MUST_USE vb_err vb__load_post_processor(const json_t *v, vb__tokenizer *t, vb_error *err);

/* Appends one step; VB_E_LIMIT when there are too many. Used by the GGUF loader too. */
VB_MUST_USE vb_err vb__pre_add(vb__pretokenizer *p, vb__pre_step step, vb_error *err);
VB_MUST_USE vb_err vb__dec_add(vb__decoder *d, vb__dec_step step, vb_error *err);
VB_MUST_USE vb_err vb__norm_add(vb__normalizer *n, vb__norm_step step, vb_error *err);
/* A Split step with a regular expression, isolated. */
VB_MUST_USE vb_err vb__pre_add_regex(vb__pretokenizer *p, const char *pattern, size_t n, const char *where,
                                     vb_error *err);

#endif
