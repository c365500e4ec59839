/* Added tokens: strings that are cut out of a text before the model sees it. Immutable after building; any
 * thread may read. */
#ifndef VB_TEXT_ADDED_TOKENS_H
#define VB_TEXT_ADDED_TOKENS_H
#include "text/byte_trie.h"
#include "text/normalizer.h"
#include "text/vocabulary.h"

typedef struct vb__added_token {
    char *text; /* owned; may hold NUL */
    size_t len;
    int32_t id;
    bool special, single_word, lstrip, rstrip;
    bool normalized; /* looked for in the normalised text */
    char *shown;     /* owned: what decoding gives, the normalised text; NULL when it is `text` */
    size_t n_shown;
} vb__added_token;

typedef struct vb__added_tokens {
    vb__added_token *list; /* in order of addition */
    int32_t n, cap;
    int32_t *by_id; /* index into list, -1; of ids 0..n_ids-1 */
    int32_t n_ids;
    vb__vocabulary names;      /* text to id */
    vb__byte_trie raw, normal; /* values are indexes into list */
    bool any_normal;
} vb__added_tokens;

VB_MUST_USE vb_err vb__added_init(vb__added_tokens *a);
void vb__added_fini(vb__added_tokens *a);
/* Copies the text. A token that exists already with the same id and text is left as it is (VB_OK).
 * VB_E_MISMATCH: the id has another text or the text another id; VB_E_LIMIT: too long; VB_E_RANGE: the id. */
VB_MUST_USE vb_err vb__added_add(vb__added_tokens *a, const vb__added_token *token);
/* Builds the tries; once, after all additions. The normalizer acts on the texts of normalized tokens. */
VB_MUST_USE vb_err vb__added_prepare(vb__added_tokens *a, const vb__normalizer *n, vb__norm_scratch *s,
                                     vb_error *err);
static inline const vb__added_token *vb__added_of(const vb__added_tokens *a, int32_t id) {
    return id < 0 || id >= a->n_ids || a->by_id[id] < 0 ? NULL : &a->list[a->by_id[id]];
}

/* A search through one text. */
typedef struct vb__added_search {
    const vb__byte_trie *trie;
    const vb__added_tokens *tokens;
    const vb__text_view *text;
    bool hide_special; /* special tokens are not tokens, but what they match is passed over */
    size_t from;       /* where the next search begins */
    size_t done;       /* end of what has been handed out */
    size_t own_end;    /* end of the stretch without user data that holds `from`, when text->user is set */
} vb__added_search;

/* The next token that counts: no character of its own may be user data, and it does not begin inside what the
 * one before took. Tokens come in order and do not overlap. false: none left. */
bool vb__added_next(vb__added_search *s, const vb__added_token **token, size_t *begin, size_t *end);

#endif
