/* The tokenizer of a model: text to token ids and back. Made from tokenizer.json (with tokenizer_config.json)
 * or from the arrays of a GGUF file; immutable afterwards, and used by any number of threads at once. Not
 * here: chat templates; streams of tokens and stop strings (detokenizer.h). */
#ifndef VB_TEXT_TOKENIZER_H
#define VB_TEXT_TOKENIZER_H
#include "base/buffer.h"
#include "text/vocabulary.h"

typedef struct vb__tokenizer vb__tokenizer;

/* Two halves of a 128-bit hash. */
typedef struct vb__text_hash {
    uint64_t low, high;
} vb__text_hash;

/* ---- loading ---- */

/* From tokenizer.json and, when there, tokenizer_config.json in `folder`. VB_E_NOT_FOUND without
 * tokenizer.json; VB_E_UNSUPPORTED names what this tokenizer needs and we lack; VB_E_FORMAT, VB_E_MISMATCH,
 * VB_E_LIMIT. */
VB_MUST_USE vb_err vb__tokenizer_load(const char *folder, vb__tokenizer **out, vb_error *err);
/* The same from memory; config may be NULL. The bytes are not kept. */
VB_MUST_USE vb_err vb__tokenizer_parse(const char *json, size_t n, const char *config, size_t n_config,
                                       vb__tokenizer **out, vb_error *err);

/* The token types of GGUF. */
enum {
    VB_GGUF_NORMAL = 1,
    VB_GGUF_UNKNOWN,
    VB_GGUF_CONTROL,
    VB_GGUF_USER_DEFINED,
    VB_GGUF_UNUSED,
    VB_GGUF_BYTE
};

/* The tokenizer.ggml.* fields of a GGUF file; all borrowed. Strings are not NUL-terminated. */
typedef struct vb__gguf_string {
    const char *text;
    size_t len;
} vb__gguf_string;
typedef struct vb__gguf_vocab {
    const char *model, *pre; /* "gpt2" or "llama"; pre may be NULL */
    const vb__gguf_string *tokens;
    const float *scores;  /* or NULL; needed for "llama" */
    const int32_t *types; /* or NULL: all normal */
    size_t n_tokens;
    const vb__gguf_string *merges; /* "left right"; for "gpt2" */
    size_t n_merges;
    int32_t bos, eos, eot, eom, unk, pad; /* VB_NO_TOKEN when absent */
    bool add_bos, add_eos;
    bool add_space_prefix; /* "llama" */
} vb__gguf_vocab;
/* Whether files of this splitter begin a text with BOS when they do not say (llama-bpe and its other names do). NULL: no. */
bool vb__gguf_pre_adds_bos(const char *pre);
VB_MUST_USE vb_err vb__tokenizer_from_gguf(const vb__gguf_vocab *v, vb__tokenizer **out, vb_error *err);

void vb__tokenizer_destroy(vb__tokenizer *t); /* accepts NULL */

/* ---- encoding ---- */

typedef enum vb__parse {
    VB_PARSE_ALL,         /* every added token in the text becomes its id */
    VB_PARSE_NOT_SPECIAL, /* tokens with "special": true are ordinary text (the stock switch) */
    VB_PARSE_NONE         /* no added token at all: user data */
} vb__parse;

/* Origin of the text up to `end` (from the end of the span before). An added token counts only where all its
 * characters are the template's; the text between counted tokens is encoded as one piece. */
typedef struct vb__text_span {
    size_t end;
    bool user;
} vb__text_span;

typedef struct vb__encode_options {
    vb__parse parse;
    bool add_special;           /* what the post-processor adds (BOS, ...) */
    const vb__text_span *spans; /* ascending, the last one ends at the text's end; NULL: all the template's */
    size_t n_spans;
} vb__encode_options;

/* Appends the ids to *out. options NULL: all zero. VB_E_FORMAT: not UTF-8, with the offset; VB_E_LIMIT:
 * longer than VB_LIMIT_PROMPT_BYTES; VB_E_MEMORY. On failure *out keeps what it had. */
VB_MUST_USE vb_err vb__tokenizer_encode(const vb__tokenizer *t, const char *text, size_t n,
                                        const vb__encode_options *options, vb__ids *out, vb_error *err);

/* ---- decoding ---- */

/* Appends the text, always valid UTF-8, to *out. An id without a token gives nothing. */
VB_MUST_USE vb_err vb__tokenizer_decode(const vb__tokenizer *t, const int32_t *ids, size_t n,
                                        bool skip_special, vb__buffer *out, vb_error *err);

/* ---- questions ---- */

int32_t vb__tokenizer_count(const vb__tokenizer *t);  /* tokens, added ones too */
int32_t vb__tokenizer_id_end(const vb__tokenizer *t); /* largest id + 1 */
bool vb__tokenizer_has_id(const vb__tokenizer *t, int32_t id);
bool vb__tokenizer_is_special(const vb__tokenizer *t, int32_t id);
bool vb__tokenizer_is_added(const vb__tokenizer *t, int32_t id);
/* The token as the vocabulary writes it; NULL without one; borrowed, not NUL-terminated. */
const char *vb__tokenizer_token_text(const vb__tokenizer *t, int32_t id, size_t *n);
/* The bytes it adds in the middle of a text, perhaps part of a character; NULL without a token; borrowed. */
const char *vb__tokenizer_token_bytes(const vb__tokenizer *t, int32_t id, size_t *n);
/* By the text as the vocabulary writes it; VB_NO_TOKEN. */
int32_t vb__tokenizer_find(const vb__tokenizer *t, const char *text, size_t n);

typedef enum vb__named_token {
    VB_TOKEN_BOS,
    VB_TOKEN_EOS,
    VB_TOKEN_PAD,
    VB_TOKEN_UNK,
    VB_TOKEN_NAMES
} vb__named_token;
/* As tokenizer_config.json or GGUF name them; VB_NO_TOKEN. */
int32_t vb__tokenizer_named(const vb__tokenizer *t, vb__named_token name);
/* The end tokens named there; borrowed; at most 4. */
const int32_t *vb__tokenizer_eos_ids(const vb__tokenizer *t, size_t *n);
/* XXH3-128 over the bytes of the files (or of the GGUF fields). */
vb__text_hash vb__tokenizer_fingerprint(const vb__tokenizer *t);

#endif
