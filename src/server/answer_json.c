/* Answers of the OpenAI interface as JSON text: whole, in pieces, and errors. */
#include "server/job.h"
#include "server/json_writer.h"
#include <stdio.h>
#include <string.h>

void vb__answer_error(vb__buffer *b, const char *type, const char *param, const char *code, const char *message) {
    vb__buffer_puts(b, "{\"error\":{\"message\":");
    vb__jw_text(b, message);
    vb__buffer_puts(b, ",\"type\":");
    vb__jw_text(b, type);
    vb__buffer_puts(b, ",\"param\":");
    vb__jw_text(b, param);
    vb__buffer_puts(b, ",\"code\":");
    vb__jw_text(b, code);
    vb__buffer_puts(b, "}}");
}

/* ---- Parts that whole answers and pieces share -------------------------------------------------------------------------- */

static const char *finish_name(const vb_result *r) { return r->finish == VB_FINISH_LENGTH ? "length" : "stop"; }

/* {"id":...,"system_fingerprint":"..." without the closing brace */
static void head(const vb__job *j, const char *object, vb__buffer *b) {
    vb__buffer_printf(b, "{\"id\":\"%s%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", j->gen.chat ? "chatcmpl-" : "cmpl-", j->id, object,
                      (long long)j->created);
    vb__jw_text(b, j->gen.model != NULL ? j->gen.model : j->server->name);
    vb__buffer_printf(b, ",\"system_fingerprint\":\"%s\"", j->server->system_fingerprint);
}

static void usage(const vb__job *j, vb__buffer *b) {
    int64_t prompt = 0, cached = 0, out = 0, proposed = 0, accepted = 0;
    for (int32_t i = 0; i < j->gen.n_prompts; i++) prompt += j->gen.prompts[i].count;
    for (int32_t i = 0; i < j->n_runs; i++) {
        const vb_result *r = &j->runs[i].result;
        if (j->runs[i].index % j->gen.n == 0) cached += r->cached_tokens;
        out += r->count;
        proposed += r->proposed;
        accepted += r->accepted;
    }
    vb__buffer_printf(b,
                      "{\"prompt_tokens\":%lld,\"completion_tokens\":%lld,\"total_tokens\":%lld,\"prompt_tokens_details\":{\"cached_tokens\":%lld},"
                      "\"completion_tokens_details\":{\"reasoning_tokens\":0,\"accepted_prediction_tokens\":%lld,\"rejected_prediction_tokens\":%lld}}",
                      (long long)prompt, (long long)out, (long long)(prompt + out), (long long)cached, (long long)accepted,
                      (long long)(proposed - accepted));
}

/* ,"verbatim":{...} */
static void verbatim(const vb__job *j, const vb__run *run, vb__buffer *b) {
    const vb_result *r = &run->result;
    if (!j->gen.verbatim) return;
    vb__buffer_printf(b, ",\"verbatim\":{\"logits_sha256\":\"%s\",\"seed\":%lld,\"contract\":%d,\"draft\":{\"kind\":\"%s\",\"width\":%d,\"rounds\":%lld,\"proposed\":%lld,"
                      "\"accepted\":%lld}}", r->logits_sha256, (long long)r->sampling.seed, j->server->info.contract,
                      r->draft_kind != NULL ? r->draft_kind : "none", r->draft_width, (long long)r->rounds, (long long)r->proposed, (long long)r->accepted);
}

/* ---- Log-probabilities -------------------------------------------------------------------------------------------------- */

static int64_t count_chars(const char *s, size_t n) {
    int64_t c = 0;
    for (size_t i = 0; i < n; i++) c += ((unsigned char)s[i] & 0xC0) != 0x80;
    return c;
}

/* The old shape has no bytes, and tokens are keys of objects: part of a character is written as the interface it is taken from did,
 * "bytes:\xe2\x80", so that no two of them are one key. */
static void token_text(const vb__job *j, int32_t id, vb__buffer *b) {
    size_t n;
    const char *s = vb_token_bytes(j->server->model, id, &n);
    if (s == NULL) {
        vb__buffer_printf(b, "\"token:%d\"", id);
    } else if (vb__jw_is_utf8(s, n)) {
        vb__jw_string(b, s, n);
    } else {
        vb__buffer_puts(b, "\"bytes:");
        for (size_t i = 0; i < n; i++) vb__buffer_printf(b, "\\\\x%02x", (unsigned)(unsigned char)s[i]);
        vb__buffer_putc(b, '"');
    }
}

static void chat_token(const vb__job *j, int32_t id, float logprob, vb__buffer *b) {
    size_t n;
    const char *s = vb_token_bytes(j->server->model, id, &n);
    vb__buffer_puts(b, "{\"token\":");
    vb__jw_string(b, s != NULL ? s : "", n);
    vb__buffer_puts(b, ",\"logprob\":");
    vb__jw_float(b, logprob);
    vb__buffer_puts(b, ",\"bytes\":");
    vb__jw_bytes(b, s != NULL ? s : "", n);
}

/* One entry of logprobs.content. */
static void chat_logprob(const vb__job *j, int32_t id, float logprob, const vb_top_logprob *top, int32_t n_top, vb__buffer *b) {
    chat_token(j, id, logprob, b);
    vb__buffer_puts(b, ",\"top_logprobs\":[");
    for (int32_t i = 0; i < n_top && top[i].id >= 0; i++) {
        if (i > 0) vb__buffer_putc(b, ',');
        chat_token(j, top[i].id, top[i].logprob, b);
        vb__buffer_putc(b, '}');
    }
    vb__buffer_puts(b, "]}");
}

/* The four lists of the old shape, for tokens ids[0..n-1]. */
static void text_logprobs(const vb__job *j, vb__run *r, const int32_t *ids, const float *logprobs, const vb_top_logprob *top, int32_t stride,
                          int32_t n, vb__buffer *b) {
    vb__buffer_puts(b, "{\"tokens\":[");
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) vb__buffer_putc(b, ',');
        token_text(j, ids[i], b);
    }
    vb__buffer_puts(b, "],\"token_logprobs\":[");
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) vb__buffer_putc(b, ',');
        vb__jw_float(b, logprobs[i]);
    }
    vb__buffer_puts(b, "],\"top_logprobs\":[");
    for (int32_t i = 0; i < n; i++) {
        vb__buffer_puts(b, i > 0 ? ",{" : "{");
        for (int32_t k = 0; k < stride && top[(int64_t)i * stride + k].id >= 0; k++) {
            if (k > 0) vb__buffer_putc(b, ',');
            token_text(j, top[(int64_t)i * stride + k].id, b);
            vb__buffer_putc(b, ':');
            vb__jw_float(b, top[(int64_t)i * stride + k].logprob);
        }
        vb__buffer_putc(b, '}');
    }
    vb__buffer_puts(b, "],\"text_offset\":[");
    for (int32_t i = 0; i < n; i++) {
        size_t len;
        const char *s = vb_token_bytes(j->server->model, ids[i], &len);
        vb__buffer_printf(b, i > 0 ? ",%lld" : "%lld", (long long)r->chars);
        r->chars += count_chars(s, len);
    }
    vb__buffer_puts(b, "]}");
}

/* Tokens of an answer that have log-probabilities to show: all but an end token. */
static int32_t shown_tokens(const vb_result *r) { return r->count - (r->count > 0 && r->finish == VB_FINISH_STOP && r->stop == NULL); }

static void whole_logprobs(const vb__job *j, vb__run *run, vb__buffer *b) {
    const vb_result *r = &run->result;
    int32_t n = shown_tokens(r), stride = j->gen.request.top_logprobs;
    if (!j->gen.logprobs || r->logprobs == NULL) {
        vb__buffer_puts(b, "null");
    } else if (!j->gen.chat) {
        text_logprobs(j, run, r->ids, r->logprobs, r->top, stride, n, b);
    } else {
        vb__buffer_puts(b, "{\"content\":[");
        for (int32_t i = 0; i < n; i++) {
            if (i > 0) vb__buffer_putc(b, ',');
            chat_logprob(j, r->ids[i], r->logprobs[i], r->top + (int64_t)i * stride, stride, b);
        }
        vb__buffer_puts(b, "],\"refusal\":null}");
    }
}

/* ---- The whole answer ------------------------------------------------------------------------------------------------------ */

void vb__answer_whole(vb__job *j, vb__buffer *b) {
    head(j, j->gen.chat ? "chat.completion" : "text_completion", b);
    vb__buffer_puts(b, ",\"choices\":[");
    for (int32_t i = 0; i < j->n_runs; i++) {
        vb__run *r = &j->runs[i];
        vb__buffer_printf(b, "%s{\"index\":%d,%s", i > 0 ? "," : "", r->index,
                          j->gen.chat ? "\"message\":{\"role\":\"assistant\",\"content\":" : "\"text\":");
        vb__jw_string(b, r->result.text, r->result.text_len);
        if (j->gen.chat) vb__buffer_puts(b, ",\"refusal\":null}");
        vb__buffer_puts(b, ",\"logprobs\":");
        whole_logprobs(j, r, b);
        vb__buffer_printf(b, ",\"finish_reason\":\"%s\"", finish_name(&r->result));
        if (j->n_runs > 1) verbatim(j, r, b);
        vb__buffer_putc(b, '}');
    }
    vb__buffer_puts(b, "],\"usage\":");
    usage(j, b);
    verbatim(j, &j->runs[0], b);
    vb__buffer_puts(b, "}\n");
}

/* ---- Pieces ---------------------------------------------------------------------------------------------------------------- */

static void chunk_open(const vb__job *j, const vb__run *r, vb__buffer *b) {
    vb__buffer_puts(b, "data: ");
    head(j, j->gen.chat ? "chat.completion.chunk" : "text_completion", b);
    vb__buffer_printf(b, ",\"choices\":[{\"index\":%d,", r->index);
}

static void chunk_close(const vb__job *j, const char *finish, const vb__run *last, vb__buffer *b) {
    vb__buffer_puts(b, ",\"finish_reason\":");
    vb__jw_text(b, finish);
    vb__buffer_puts(b, j->gen.include_usage ? "}],\"usage\":null" : "}]");
    if (last != NULL) verbatim(j, last, b);
    vb__buffer_puts(b, "}\n\n");
}

static void chunk_text(const vb__job *j, const char *text, size_t len, vb__buffer *b) {
    vb__buffer_puts(b, j->gen.chat ? "\"delta\":{\"content\":" : "\"text\":");
    vb__jw_string(b, text, len);
    if (j->gen.chat) vb__buffer_putc(b, '}');
    vb__buffer_puts(b, ",\"logprobs\":");
}

void vb__chunk_first(const vb__job *j, const vb__run *r, vb__buffer *b) {
    chunk_open(j, r, b);
    vb__buffer_puts(b, j->gen.chat ? "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null" : "\"text\":\"\",\"logprobs\":null");
    chunk_close(j, NULL, NULL, b);
}

void vb__chunk_empty(const vb__job *j, const vb__run *r, vb__buffer *b) {
    chunk_open(j, r, b);
    vb__buffer_puts(b, j->gen.chat ? "\"delta\":{},\"logprobs\":null" : "\"text\":\"\",\"logprobs\":null");
    chunk_close(j, NULL, NULL, b);
}

void vb__chunk_token(vb__job *j, vb__run *r, const vb_token_event *t, vb__buffer *b) {
    bool logprob = j->gen.logprobs && !t->end;
    if (t->text_len == 0 && !logprob) return;
    chunk_open(j, r, b);
    chunk_text(j, t->text, t->text_len, b);
    if (!logprob) {
        vb__buffer_puts(b, "null");
    } else if (j->gen.chat) {
        vb__buffer_puts(b, "{\"content\":[");
        chat_logprob(j, t->id, t->logprob, t->top, t->n_top, b);
        vb__buffer_puts(b, "],\"refusal\":null}");
    } else {
        text_logprobs(j, r, &t->id, &t->logprob, t->top, t->n_top, 1, b);
    }
    chunk_close(j, NULL, NULL, b);
    r->sent += t->text_len;
}

void vb__chunk_last(vb__job *j, vb__run *r, vb__buffer *b) {
    const vb_result *o = &r->result;
    if (o->text_len > r->sent) { /* what was held back for a stop string or an unfinished character */
        chunk_open(j, r, b);
        chunk_text(j, o->text + r->sent, o->text_len - r->sent, b);
        vb__buffer_puts(b, "null");
        chunk_close(j, NULL, NULL, b);
        r->sent = o->text_len;
    }
    chunk_open(j, r, b);
    vb__buffer_puts(b, j->gen.chat ? "\"delta\":{},\"logprobs\":null" : "\"text\":\"\",\"logprobs\":null");
    chunk_close(j, finish_name(o), r, b);
}

void vb__chunk_usage(const vb__job *j, vb__buffer *b) {
    vb__buffer_puts(b, "data: ");
    head(j, j->gen.chat ? "chat.completion.chunk" : "text_completion", b);
    vb__buffer_puts(b, ",\"choices\":[],\"usage\":");
    usage(j, b);
    vb__buffer_puts(b, "}\n\n");
}

/* ---- Models ------------------------------------------------------------------------------------------------------------------ */

static void model_object(const vb__server *s, const char *id, vb__buffer *b) {
    vb__buffer_puts(b, "{\"id\":");
    vb__jw_text(b, id);
    vb__buffer_puts(b, ",\"object\":\"model\",\"type\":\"model\",\"display_name\":");
    vb__jw_text(b, s->name);
    time_t t = (time_t)s->started;
    struct tm tm;
    char when[32] = "";
    if (gmtime_r(&t, &tm) != NULL) (void)strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &tm);
    vb__buffer_printf(b, ",\"created\":%lld,\"created_at\":\"%s\",\"owned_by\":\"verbatim\",\"context_length\":%lld,\"max_model_len\":%lld}",
                      (long long)s->started, when, (long long)s->info.ctx, (long long)s->info.ctx);
}

void vb__models_json(const vb__server *s, const char *only, vb__buffer *b) {
    if (only != NULL) {
        model_object(s, only, b);
        vb__buffer_putc(b, '\n');
        return;
    }
    vb__buffer_puts(b, "{\"object\":\"list\",\"data\":[");
    model_object(s, s->name, b);
    vb__buffer_puts(b, "],\"has_more\":false,\"first_id\":");
    vb__jw_text(b, s->name);
    vb__buffer_puts(b, ",\"last_id\":");
    vb__jw_text(b, s->name);
    vb__buffer_puts(b, ",\"models\":[]}\n");
}
