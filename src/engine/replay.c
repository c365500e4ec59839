/* verbatim replay: every request of a trace again, round by round, and the bits compared. */
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/limits.h"
#include "engine/model_handle.h"
#include "engine/trace_lines.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Runs one recorded request; *difference is set when something is not the same. */
static vb_err replay_request(vb_model *m, const vb__trace_request *r, const char *where, int32_t line, json_t **difference, vb_error *err) {
    vb_result got = {0};
    vb__rounds rounds = {0};
    vb_err e;
    const vb__draft_script script = {.tokens = r->tokens, .n_tokens = r->n_tokens, .proposed = r->proposed, .accepted = r->accepted,
                                     .n_rounds = r->n_rounds};
    vb__engine_clear(m->engine);
    vb_error why = {0};
    e = vb__generate(m, &r->q, &script, &got, &rounds, &why);
    /* What the line asks for is the file's fault, not the caller's. */
    bool line_at_fault = e == VB_E_ARGUMENT || e == VB_E_RANGE || e == VB_E_CONTEXT_FULL;
    if (e != VB_OK) VB_TRY_OUT(vb__fail(err, line_at_fault ? VB_E_FORMAT : e, "%s: %s", where, why.text));
    int32_t at_token = 0, at_round = 0;
    while (at_token < got.count && at_token < r->n_tokens && got.ids[at_token] == r->tokens[at_token]) at_token++;
    while (at_round < rounds.n && at_round < r->n_rounds && rounds.accepted[at_round] == r->accepted[at_round]) at_round++;
    const char *what = NULL;
    if (got.count != r->n_tokens || at_token < r->n_tokens) what = "tokens";
    else if (rounds.n != r->n_rounds || at_round < r->n_rounds) what = "rounds";
    else if (strcmp(got.logits_sha256, r->sha) != 0) what = "logits";
    if (what != NULL)
        *difference = json_pack("{s:i, s:s, s:i, s:i, s:s, s:s}", "line", (int)line, "what", what, "token", (int)at_token, "round",
                                (int)at_round, "expected", r->sha, "got", got.logits_sha256);
out:
    vb_result_fini(&got);
    vb__rounds_fini(&rounds);
    return e;
}

static vb_err open_header(const vb__trace_header *h, const char *where, const char *path, int32_t threads, vb_model **m, vb_error *err) {
    if (h->contract != VB_CONTRACT)
        return vb__fail(err, VB_E_MISMATCH, "%s: contract: is %d, expected %d (this build's)", where, h->contract, VB_CONTRACT);
    vb_model_options o;
    vb_model_options_init(&o);
    o.path = path != NULL ? path : h->path;
    o.threads = threads;
    o.activations = h->activations;
    o.head_chunk = h->head_chunk;
    o.ctx = h->ctx;
    o.draft = "lookup"; /* only for its tapes: the script proposes */
    vb_err code = vb_model_open(&o, m, err);
    if (code != VB_OK) return path != NULL ? code : vb__fail_prefix(err, code, "%s: path", where);
    if (strcmp((*m)->engine->fingerprint, h->model) == 0) return VB_OK;
    code = vb__fail(err, VB_E_MISMATCH, "%s: %s: is another model (fingerprint %s), expected %.64s", where, o.path, (*m)->engine->fingerprint,
                    h->model);
    vb_model_close(*m);
    *m = NULL;
    return code;
}

/* Writers that share a file repeat their headers: the model stays open while they say the same. */
static bool same_header(const json_t *a, const json_t *b) { return a != NULL && json_equal(a, b); }

/* One line into b, without its end; *more is false at the end of the file. A line that is too long is an error at once: the file may be of any size. */
static vb_err read_line(FILE *f, vb__buffer *b, const char *where, bool *more, vb_error *err) {
    int c;
    vb__buffer_clear(b);
    while ((c = getc_unlocked(f)) != EOF && c != '\n')
        if (vb__buffer_putc(b, (char)c) != VB_OK)
            return vb__fail(err, b->error == VB_E_MEMORY ? VB_E_MEMORY : VB_E_FORMAT, "%s: the line does not end, expected at most %d bytes",
                            where, VB_LIMIT_JSON_BYTES);
    if (c == EOF && ferror(f)) return vb__fail(err, VB_E_IO, "%s: cannot be read: %s", where, strerror(errno));
    *more = c != EOF || b->len > 0;
    return VB_OK;
}

static vb_err replay_file(FILE *f, const char *trace, const char *path, int32_t threads, int32_t *requests, json_t **difference,
                          vb_error *err) {
    vb_model *m = NULL;
    json_t *header = NULL; /* of the model that is open */
    vb__buffer text;
    vb_err e = VB_OK;
    vb__buffer_init(&text, VB_LIMIT_JSON_BYTES);
    for (int32_t line = 1; *difference == NULL && e == VB_OK; line++) {
        char where[128];
        bool more;
        vb__trace_line l;
        (void)snprintf(where, sizeof where, "%.90s:%d", trace, line);
        e = read_line(f, &text, where, &more, err);
        if (e != VB_OK || !more) break;
        e = vb__trace_line_parse(vb__buffer_str(&text), text.len, where, m == NULL ? 0 : m->engine->model->cfg.vocab, &l, err);
        if (e != VB_OK) break;
        if (l.kind == VB_TRACE_REQUEST) {
            e = replay_request(m, &l.request, where, line, difference, err);
            (*requests)++;
        } else if (!same_header(header, l.root)) {
            vb_model_close(m);
            m = NULL;
            json_decref(header);
            header = json_incref(l.root);
            e = open_header(&l.header, where, path, threads, &m, err);
        }
        vb__trace_line_fini(&l);
    }
    vb__buffer_fini(&text);
    json_decref(header);
    vb_model_close(m);
    if (e == VB_OK && *requests == 0) e = vb__fail(err, VB_E_FORMAT, "%s: no request, expected at least one", trace);
    return e;
}

vb_err vb_replay_json(const char *trace, const char *path, int32_t threads, char **json, bool *equal, vb_error *err) {
    struct stat st;
    if (trace[0] == '\0') return vb__fail(err, VB_E_ARGUMENT, "replay: the file's name is empty, expected one written by --trace");
    if (stat(trace, &st) == 0 && !S_ISREG(st.st_mode)) /* a device may have no end */
        return vb__fail(err, VB_E_IO, "%s: is not a regular file, expected one written by --trace", trace);
    FILE *f = fopen(trace, "re");
    if (f == NULL)
        return vb__fail(err, VB_E_IO, "%s: cannot be opened: %s, expected a file written by --trace", trace, strerror(errno));
    int32_t requests = 0;
    json_t *difference = NULL;
    vb_err e = replay_file(f, trace, path, threads, &requests, &difference, err);
    (void)fclose(f);
    if (e == VB_OK) {
        json_t *root = json_pack("{s:b, s:i, s:o}", "equal", (int)(difference == NULL), "requests", (int)requests, "first_difference",
                                 difference != NULL ? json_incref(difference) : json_null());
        char *text = root == NULL ? NULL : json_dumps(root, JSON_COMPACT);
        json_decref(root);
        *json = text == NULL ? NULL : vb__strdup(VB_TAG_ENGINE, text);
        free(text);
        if (*json == NULL) e = vb__fail(err, VB_E_MEMORY, "replay: out of memory");
        *equal = difference == NULL;
    }
    json_decref(difference);
    return e;
}
