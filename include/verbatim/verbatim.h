/* The public interface of Verbatim: open a model, generate from it, look into it. All that the command line
 * and the server use. Opaque types, option structs with an init function, vb_err returned everywhere.
 *
 * Threads: different models may be used from different threads. One model's calls must come from one thread
 * at a time, except where a function says otherwise. The library never exits, never prints (log lines go to the
 * log callback) and installs no signal handlers. It sets and restores MXCSR around its own work.
 *
 * Strings are UTF-8. Functions that return a char * through a pointer transfer it: free with vb_string_free. */
#ifndef VERBATIM_VERBATIM_H
#define VERBATIM_VERBATIM_H
#include "verbatim/vb_error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define VB_VERSION "0.1.0"
#define VB_CONTRACT 1 /* version of docs/numerics.md */

VB_API void vb_string_free(char *s);

/* level: 0 debug, 1 info, 2 warning, 3 error. Lines below min_level are dropped. fn NULL: stderr. */
typedef void vb_log_fn(void *user, int level, const char *area, const char *text);
VB_API void vb_log_set(vb_log_fn *fn, void *user, int min_level);

/* ---- Sampling options -------------------------------------------------------------------------------- */

/* Bits of vb_sampling.set: which fields the caller gave. What is not given comes from the next source
 * (generation_config.json), then from the default in brackets. */
enum {
    VB_SET_TEMPERATURE = 1 << 0,        /* [0: greedy] */
    VB_SET_TOP_K = 1 << 1,              /* [0: off] */
    VB_SET_TOP_P = 1 << 2,              /* [1: off] */
    VB_SET_MIN_P = 1 << 3,              /* [0: off] */
    VB_SET_REPEAT_PENALTY = 1 << 4,     /* [1: off] */
    VB_SET_PRESENCE_PENALTY = 1 << 5,   /* [0: off] */
    VB_SET_FREQUENCY_PENALTY = 1 << 6,  /* [0: off] */
    VB_SET_SEED = 1 << 7                /* [drawn at random, reported] */
};

typedef struct vb_sampling {
    uint32_t set;
    float temperature;
    int32_t top_k;
    float top_p, min_p;
    float repeat_penalty, presence_penalty, frequency_penalty;
    uint64_t seed;
} vb_sampling;

typedef struct vb_logit_bias {
    int32_t id;
    float bias;
} vb_logit_bias;

/* ---- Models ------------------------------------------------------------------------------------------ */

typedef struct vb_model vb_model;

/* done/total of one phase ("load", "prefill", "quantize"); called from the calling thread. Return false to cancel. */
typedef bool vb_progress_fn(void *user, const char *phase, int64_t done, int64_t total);

typedef struct vb_model_options {
    const char *path;          /* folder of the model; required */
    int32_t threads;           /* exactly this many; 0: one per core that the process may use, within its CPU quota */
    int32_t activations;       /* 8 or 16 */
    const char *level;         /* "c", "avx2", "avx512", "amx", not above what VERBATIM_CPU or the CPU allow; NULL: that */
    int64_t ctx;               /* positions per request; 0: the trained length, lowered to what fits memory */
    int32_t parallel;          /* sequences that may be live at once (requests and neighbours) */
    int64_t kv_pages;          /* pages of 64 tokens that all sequences share; 0: what they could want, as memory allows */
    int32_t prefill_chunk;     /* rows of a prefill chunk; 0: default; larger than the prompt: whole */
    bool head_chunk;           /* the head-chunk plan of attention (never changes bits) */
    const char *chat_template; /* a file that replaces the model's template; NULL */
    const char *draft;         /* auto|none|lookup|mtp|dflash[:PATH]|model:PATH */
    int32_t draft_width;       /* rows of a verify block, 1..16; 0: auto */
    vb_progress_fn *progress;  /* NULL */
    void *progress_user;
    uint64_t reserved[8];      /* 0 */
} vb_model_options;

VB_API void vb_model_options_init(vb_model_options *o); /* defaults as in the comments; parallel 1, draft "auto" */
VB_API VB_MUST_USE vb_err vb_model_open(const vb_model_options *o, vb_model **out, vb_error *err);
VB_API void vb_model_close(vb_model *m); /* accepts NULL */

typedef struct vb_model_info {
    const char *path;
    const char *architecture;  /* "qwen3_5", ... */
    const char *klass;         /* numerics class: "cpu" */
    const char *level;         /* "c", "avx2", "avx512", "amx" */
    int32_t contract, activations, threads;
    bool vnni; /* level avx2 uses AVX-VNNI */
    int32_t vocab;             /* width of a logit row */
    int64_t ctx, trained_ctx;
    int64_t weight_bytes, state_bytes, kv_bytes_per_token, workspace_bytes;
    bool has_tokenizer, has_chat_template, has_mtp;
    double load_s;
    const char *fingerprint;   /* hash of the model's files, 32 hexadecimal digits; "" when unknown */
    int32_t parallel;          /* slots */
    int64_t max_prompt;        /* tokens of the longest prompt that leaves room for an answer */
} vb_model_info;
VB_API void vb_model_get_info(const vb_model *m, vb_model_info *out); /* strings borrowed from the model */

/* ---- Text -------------------------------------------------------------------------------------------- */

/* ids (count of them): free with vb_ids_free. parse_special false hides tokens marked special; parse_added false hides all
 * added tokens (for user data). VB_E_NOT_FOUND naming tokenizer.json without a tokenizer. Any thread. */
VB_API VB_MUST_USE vb_err vb_tokenize(const vb_model *m, const char *text, size_t len, bool parse_special,
                                      bool parse_added, bool add_special, int32_t **ids, int32_t *count,
                                      vb_error *err);
VB_API void vb_ids_free(int32_t *ids);
VB_API VB_MUST_USE vb_err vb_detokenize(const vb_model *m, const int32_t *ids, int32_t count, bool skip_special,
                                        char **text, size_t *len, vb_error *err);
/* The bytes that a token adds in the middle of a text (perhaps part of a character); NULL for an id without a token. Borrowed. */
VB_API const char *vb_token_bytes(const vb_model *m, int32_t id, size_t *len);
/* Renders a conversation. messages_json: a JSON array of {"role","content",...}; tools_json and kwargs_json (an object) may be NULL.
 * text and ids may be NULL when not wanted. User text never becomes a control token. */
VB_API VB_MUST_USE vb_err vb_apply_template(const vb_model *m, const char *messages_json, const char *tools_json,
                                            const char *kwargs_json, bool add_generation_prompt, char **text,
                                            int32_t **ids, int32_t *count, vb_error *err);

/* ---- Generation -------------------------------------------------------------------------------------- */

enum { VB_MAX_STOPS = 16 };

typedef struct vb_request {
    const int32_t *prompt_ids; /* required, borrowed for the call */
    int32_t prompt_count;      /* >= 1 */
    int64_t max_tokens;        /* new tokens; < 0: up to the context's end; 0: only the prompt is run */
    bool ignore_eos;
    const char *stops[VB_MAX_STOPS]; /* stop strings; text only */
    int32_t n_stops;
    vb_sampling sampling;
    const vb_logit_bias *logit_bias;
    int32_t n_logit_bias;
    int32_t top_logprobs;      /* -1: no logprobs; 0..20 */
    int32_t neighbours;        /* other sequences of seeded random ids that take rows in the same calls */
    const int32_t *accepts;    /* forced accept lengths, one per round (replay); NULL */
    int32_t n_accepts;
    bool hash_logits;          /* fills logits_sha256 */
    bool all_logits;           /* logits_row is called for prompt rows too */
    /* Every wanted row of logits in order: prompt positions 0..P-1 (only with all_logits), then the decoded rows, the last
     * prompt row once. vocab floats, valid during the call. NULL: none. */
    vb_err (*logits_row)(void *user, const float *logits, int32_t vocab);
    /* Text as it comes, whole UTF-8, without the end token; return false to stop (finish "cancelled"). NULL: none. */
    bool (*on_text)(void *user, const char *text, size_t len);
    /* Prefill progress; NULL: none. Return false to cancel. */
    vb_progress_fn *progress;
    void *user;
    const char *trace_path;    /* --trace FILE; NULL */
    uint32_t choice;           /* answer i of several: samples with (seed, i) */
    const char *draft;         /* none|auto or a kind that the model has loaded; NULL: as the model was opened */
    int32_t draft_width;       /* rows of a verify block at most; 0: as the model was opened */
    const int32_t *prediction; /* tokens that the answer may repeat: the lookup drafter proposes from them too. Changes time only */
    int32_t n_prediction;
    uint64_t reserved[4];
} vb_request;

VB_API void vb_request_init(vb_request *r);

typedef enum vb_finish { VB_FINISH_STOP, VB_FINISH_LENGTH, VB_FINISH_CANCELLED } vb_finish;

typedef struct vb_top_logprob {
    int32_t id;
    float logprob;
} vb_top_logprob;

typedef struct vb_result {
    char *text;             /* without the end token and what follows a stop string; "" without a tokenizer */
    size_t text_len;
    int32_t *ids;           /* tokens, with the end token */
    int32_t count;
    float *logprobs;        /* [count] or NULL */
    vb_top_logprob *top;    /* [count][top_logprobs] or NULL */
    vb_finish finish;
    const char *stop;       /* the stop string that ended the text, or NULL: the request's, of a vb_call a copy that goes with it */
    vb_sampling sampling;   /* as used, seed included */
    char logits_sha256[65]; /* "" unless asked for */
    double prefill_s, decode_s;
    int32_t cached_tokens;  /* prompt tokens not run through forward */
    /* drafting */
    const char *draft_kind; /* static string */
    int32_t draft_width;    /* rows of the widest block; 0: no round was run */
    int64_t rounds, proposed, accepted;
    int64_t accepted_at[16], proposed_at[16]; /* by position in the block, 0 = first draft */
    int32_t declined[16], n_declined; /* widths that the exactness gate declined */
    double draft_s, verify_s, commit_s;
    double queue_s;         /* from being handed in to being run */
} vb_result;
VB_API void vb_result_fini(vb_result *r);

/* Runs one request to its end. The model keeps the sequence: a later request whose prompt begins with everything
 * this one ran continues from there (same bits as running it all). On error *out is untouched. */
VB_API VB_MUST_USE vb_err vb_generate(vb_model *m, const vb_request *r, vb_result *out, vb_error *err);

/* ---- Many requests at once ------------------------------------------------------------------------------- */

/* A thread that owns a model and runs all requests handed to it, rows of all of them in each step. While it exists no other
 * call may run requests on the model (text functions and vb_model_get_info may). */
typedef struct vb_async vb_async;
/* One answer in the making. */
typedef struct vb_call vb_call;

typedef struct vb_token_event {
    int32_t id;
    bool end;             /* an end token: no text belongs to it */
    const char *text;     /* what became final with it: whole UTF-8, may be empty, may hold text of earlier tokens */
    size_t text_len;
    float logprob;        /* with top_logprobs >= 0 */
    const vb_top_logprob *top; /* [n_top], best first */
    int32_t n_top;
} vb_token_event;

typedef struct vb_call_options {
    vb_request request;   /* copied with all it points to; its callbacks, neighbours, accepts and trace_path are not used */
    /* On the model's thread, which waits meanwhile; they may call vb_async_cancel: a call cancelled by its own on_token gets no further
     * token. on_token may be NULL. What was held back for a stop string comes with no token, only in the result. on_done comes exactly once
     * and last; result belongs to the callee (vb_result_fini), NULL with err when the request failed. A cancelled one has a
     * result, finish VB_FINISH_CANCELLED. */
    void (*on_token)(void *user, const vb_token_event *t);
    void (*on_done)(void *user, vb_result *result, const vb_error *err);
    void *user;
} vb_call_options;

typedef struct vb_async_options {
    int32_t queue;          /* groups of calls that may wait beyond those that have a slot */
    const char *trace_path; /* every finished answer is recorded there; NULL */
} vb_async_options;

VB_API VB_MUST_USE vb_err vb_async_start(vb_model *m, const vb_async_options *o, vb_async **out, vb_error *err);
/* Cancels what is not finished, waits until every on_done has come, ends the thread. Calls that are not released yet still have to
 * be, before or after the model is closed. Not from a callback. Accepts NULL. */
VB_API void vb_async_stop(vb_async *a);
/* Hands in n calls, all or none; they count as one in the queue and share one seed when none is given. calls[n] receives
 * them; each is the caller's until vb_call_release, not before its on_done. *sampling, when not NULL, is what the first one samples with, seed
 * included. Any thread. VB_E_BUSY: too many wait; VB_E_CONTEXT_FULL with both numbers; VB_E_RANGE, VB_E_ARGUMENT naming the field. */
VB_API VB_MUST_USE vb_err vb_async_submit(vb_async *a, const vb_call_options *o, int32_t n, vb_call **calls, vb_sampling *sampling,
                                          vb_error *err);
/* Ends a call within one step. Any thread, until it is released. */
VB_API void vb_async_cancel(vb_call *c);
VB_API void vb_call_release(vb_call *c); /* accepts NULL */

typedef struct vb_async_stats {
    int64_t steps, rows;              /* since start */
    int32_t waiting, live;            /* calls */
    int32_t slots;
    int32_t kv_pages, kv_pages_free;  /* pages of 64 tokens */
    int64_t gave_way;                 /* times that a request gave up its pages to be computed again */
} vb_async_stats;
VB_API void vb_async_get_stats(vb_async *a, vb_async_stats *out); /* any thread; as of the last step */

typedef enum vb_slot_state { VB_SLOT_IDLE, VB_SLOT_PREFILL, VB_SLOT_DECODE } vb_slot_state;
typedef struct vb_slot_info {
    vb_slot_state state;
    int32_t tokens;  /* that its sequence has run */
} vb_slot_info;
/* At most n slots into out; how many there are. Any thread; as of the last step. */
VB_API int32_t vb_async_get_slots(vb_async *a, vb_slot_info *out, int32_t n);

/* ---- Looking into a model without running it ---------------------------------------------------------- */

/* JSON object text: config, tensors, bytes of weights, state, KV per token, memory for ctx (0: the trained length), largest context
 * that fits now. */
VB_API VB_MUST_USE vb_err vb_inspect_json(const char *path, int64_t ctx, char **json, vb_error *err);

/* Tools that need only a tokenizer or template folder: one JSON line in, one JSON line out (see the manual). */
typedef struct vb_tokenizer vb_tokenizer;
VB_API VB_MUST_USE vb_err vb_tokenizer_open(const char *folder, vb_tokenizer **out, vb_error *err);
VB_API void vb_tokenizer_close(vb_tokenizer *t);
VB_API VB_MUST_USE vb_err vb_tokenize_line(const vb_tokenizer *t, bool decode, const char *line, size_t len, char **out,
                                           vb_error *err);
VB_API VB_MUST_USE vb_err vb_template_line(const char *line, size_t len, char **out, vb_error *err);
/* The model folder's own template on a JSON file's messages (array, or object with messages, tools, and kwargs). */
VB_API VB_MUST_USE vb_err vb_template_render_folder(const char *folder, const char *template_path, const char *json, size_t len,
                                                    char **out, vb_error *err);

/* bf16 (or f16, f32) folder -> affine 2,3,4,5,6,8 bit folder in MLX layout. */
VB_API VB_MUST_USE vb_err vb_quantize(const char *src, const char *dst, int32_t bits, int32_t group_size,
                                      vb_progress_fn *progress, void *user, vb_error *err);

/* ---- Proving ------------------------------------------------------------------------------------------- */

typedef struct vb_verify_options {
    const char *path;
    bool full;             /* the whole grid; else a sample of it in under a minute */
    int32_t activations;
    const char *draft;     /* as in vb_model_options: which drafters are in the grid */
    vb_progress_fn *progress;
    void *progress_user;
} vb_verify_options;
VB_API void vb_verify_options_init(vb_verify_options *o);
/* Runs the grid (drafter, width, chunk, threads, level, neighbours, cold and warm) and compares hashes of logits. *json is the
 * certificate: an object with `equal`, the grid, the hashes and the first difference (null when equal). */
VB_API VB_MUST_USE vb_err vb_verify_json(const vb_verify_options *o, char **json, bool *equal, vb_error *err);

/* Whether a trace can be written there (vb_request, vb_async_options), before a model is loaded for it: a new file, or one that is a
 * trace already. Writes nothing, but drops a last line that was cut short. */
VB_API VB_MUST_USE vb_err vb_trace_check(const char *path, vb_error *err);
/* Runs every request of a trace again with the same round structure and compares tokens and logits. path NULL: the model that the
 * trace names. */
VB_API VB_MUST_USE vb_err vb_replay_json(const char *trace, const char *path, int32_t threads, char **json, bool *equal,
                                         vb_error *err);

/* ---- Measuring ----------------------------------------------------------------------------------------- */

typedef struct vb_bench_options {
    const char *path;      /* a model folder, or NULL with geometry */
    const char *geometry;  /* "qwen3.5-0.8b" | "qwen3.5-2b" | "qwen3.5-4b": random weights */
    const char *weights;   /* "q4" | "q8" | "bf16" */
    int32_t threads, activations;
    int64_t ctx;           /* depth at which decode and widths are measured */
    int32_t prefill_tokens; /* 512 */
    int32_t repeats;
    bool head_chunk;
    vb_progress_fn *progress;
    void *progress_user;
} vb_bench_options;
VB_API void vb_bench_options_init(vb_bench_options *o);
/* JSON object text with the fields of the manual's `bench --json`. */
VB_API VB_MUST_USE vb_err vb_bench_json(const vb_bench_options *o, char **json, vb_error *err);
/* That JSON as a table for a person. */
VB_API VB_MUST_USE vb_err vb_bench_text(const char *json, char **text, vb_error *err);

typedef struct vb_draft_bench_options {
    const char *path;
    int32_t threads, activations;
    const char *draft;     /* which drafters: as in vb_model_options */
    int32_t width;         /* only this block width; 0: several */
    int32_t tokens, pairs; /* of an answer; pairs with plain decode per arm */
    vb_progress_fn *progress;
    void *progress_user;
} vb_draft_bench_options;
VB_API void vb_draft_bench_options_init(vb_draft_bench_options *o);
/* Drafters against plain decode on built-in prompts, interleaved: per prompt and arm tokens/s, ratio, acceptance, spread. */
VB_API VB_MUST_USE vb_err vb_bench_draft_json(const vb_draft_bench_options *o, char **json, vb_error *err);
/* Every drafter at widths 2..16, each between two plain runs, on the given texts (none: built-in ones); the best width of each
 * drafter that beats plain decode by more than the plain runs differ is stored in $VERBATIM_HOME; later runs with that drafter alone
 * begin with it. */
VB_API VB_MUST_USE vb_err vb_tune_json(const vb_draft_bench_options *o, const char *const *texts, int32_t n_texts, char **json,
                                       vb_error *err);

#ifdef __cplusplus
}
#endif
#endif
