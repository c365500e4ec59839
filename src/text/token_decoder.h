/* Decoders of tokenizer.json: token strings become text, as a stream. A list of steps; before a Fuse or
 * ByteLevel step the stream consists of tokens, after it of parts of one text. Decoding a whole list of ids
 * is the same stream pushed at once, so both always agree. */
#ifndef VB_TEXT_TOKEN_DECODER_H
#define VB_TEXT_TOKEN_DECODER_H
#include "base/buffer.h"
#include "base/limits.h"
#include "text/text_regex.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum vb__dec_kind {
    VB_DEC_BYTE_LEVEL,
    VB_DEC_REPLACE,       /* literal pattern, or regex (tokens only) */
    VB_DEC_BYTE_FALLBACK, /* tokens only */
    VB_DEC_FUSE,
    VB_DEC_STRIP,     /* up to `start` and `stop` characters `content` at the ends */
    VB_DEC_METASPACE, /* replacement -> space; dropped in the first token when drop_first */
    VB_DEC_JOIN       /* a space between tokens: what no decoder means */
} vb__dec_kind;

typedef struct vb__dec_step {
    vb__dec_kind kind;
    bool fused; /* the input is one text in parts */
    bool drop_first;
    char *pattern, *content; /* owned */
    size_t n_pattern, n_content;
    size_t start, stop;
    vb__regex *regex; /* owned */
} vb__dec_step;

typedef struct vb__decoder {
    vb__dec_step step[VB_LIMIT_TEXT_STEPS];
    int n_steps;
} vb__decoder;

void vb__decoder_fini(vb__decoder *d);
/* Sets `fused` of each step; VB_E_UNSUPPORTED for orders that cannot stream. */
VB_MUST_USE vb_err vb__decoder_prepare(vb__decoder *d, vb_error *err);

/* Work of a stream; zero-initialised; owns its buffers. */
typedef struct vb__dec_stream {
    struct vb__dec_state {
        vb__buffer held; /* bytes that are not decided yet */
        uint64_t count;  /* tokens, or characters stripped, so far */
        bool broken, started;
    } state[VB_LIMIT_TEXT_STEPS];
    vb__buffer out;
    vb__regex_scratch regex;
    vb__buffer temp[VB_LIMIT_TEXT_STEPS];
} vb__dec_stream;

void vb__dec_stream_init(vb__dec_stream *s);
void vb__dec_stream_fini(vb__dec_stream *s);
void vb__dec_stream_reset(vb__dec_stream *s); /* back to the beginning; keeps the memory and `out` */
/* Appends to s->out what is certain after this token; end: what is left at the end of the stream. */
VB_MUST_USE vb_err vb__decoder_push(const vb__decoder *d, vb__dec_stream *s, const char *token, size_t n,
                                    vb_error *err);
VB_MUST_USE vb_err vb__decoder_end(const vb__decoder *d, vb__dec_stream *s, vb_error *err);
/* The bytes that a token adds in the middle of a text, before they are checked to be UTF-8; appended to out.
 */
VB_MUST_USE vb_err vb__decoder_token_bytes(const vb__decoder *d, vb__dec_stream *s, const char *token,
                                           size_t n, vb__buffer *out, vb_error *err);

#endif
