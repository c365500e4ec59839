/* Every limit that a parser or a request is held to, in one place. */
#ifndef VB_BASE_LIMITS_H
#define VB_BASE_LIMITS_H

enum {
    VB_LIMIT_JSON_DEPTH = 128,
    VB_LIMIT_JSON_BYTES = 256 << 20,       /* a JSON document of ours to read (tokenizer.json is the largest) */
    VB_LIMIT_SAFETENSORS_HEADER = 100 << 20,
    VB_LIMIT_TENSORS = 1 << 20,            /* tensors of one model */
    VB_LIMIT_TENSOR_NAME = 512,
    VB_LIMIT_TENSOR_DIMS = 8,
    VB_LIMIT_SHARDS = 4096,
    VB_LIMIT_VOCAB = 1 << 22,
    VB_LIMIT_LAYERS = 1024,
    VB_LIMIT_WIDTH = 1 << 20,              /* rows or columns of any matrix but the embedding */
    VB_LIMIT_EXPERTS = 4096,
    VB_LIMIT_HEAD_DIM = 256,               /* of attention: kernels keep a head's row in registers and scratch */
    VB_LIMIT_DELTA_HEAD_DIM = 512,         /* of the gated delta net: kernels keep a head's rows in scratch */
    VB_LIMIT_CONV_TAPS = 8,
    VB_LIMIT_CONTEXT = 1 << 24,            /* positions */
    VB_LIMIT_KV_PAGES = 1 << 24,           /* of 64 positions, that all sequences share */
    VB_LIMIT_ROWS = 512,                   /* rows of one forward call; longer chunks become several calls */
    VB_LIMIT_DRAFT_WIDTH = 16,             /* rows of a verify block */
    VB_LIMIT_TEMPLATE_BYTES = 1 << 20,
    VB_LIMIT_GENERATION_CONFIG = 1 << 20,  /* bytes */
    VB_LIMIT_PROMPT_BYTES = 64 << 20,
    VB_LIMIT_BODY_BYTES = 16 << 20,        /* body of an HTTP request */
    VB_LIMIT_BODIES_BYTES = 256 << 20,     /* of all that are in memory */
    VB_LIMIT_STREAM_BYTES = 4 << 20,       /* of an answer that its reader has not taken yet */
    VB_LIMIT_HEADER_BYTES = 64 << 10,      /* of an HTTP request, all headers */
    VB_LIMIT_CONNECTIONS = 1024,
    VB_LIMIT_TOKEN_BYTES = 64 << 10,       /* one string of a vocabulary */
    VB_LIMIT_ADDED_TOKEN_BYTES = 1024,     /* one added token, and one entry of a Unigram vocabulary */
    VB_LIMIT_AFFIX_BYTES = 64,             /* continuing_subword_prefix, end_of_word_suffix */
    VB_LIMIT_WORD_SYMBOLS = 1 << 25,       /* one word given to a tokenizer model */
    VB_LIMIT_TEXT_STEPS = 32,              /* normalizers, pre-tokenizers or decoders in a row */
    VB_LIMIT_STOP_STRINGS = 64,
    VB_LIMIT_STOP_BYTES = 4096             /* one stop string */
};

#endif
