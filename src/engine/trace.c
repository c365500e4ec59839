#include "engine/trace.h"
#include "base/alloc.h"
#include "engine/drafting.h"
#include "engine/json_out.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct vb__trace {
    int fd;
    char *path;
};

void vb__rounds_add(vb__rounds *r, int32_t proposed, int32_t accepted) {
    if (r->n == r->cap) {
        int32_t cap = r->cap == 0 ? 256 : r->cap * 2;
        int32_t *p = vb__realloc_array(VB_TAG_ENGINE, r->proposed, (size_t)cap, sizeof *p);
        if (p != NULL) r->proposed = p;
        int32_t *a = p == NULL ? NULL : vb__realloc_array(VB_TAG_ENGINE, r->accepted, (size_t)cap, sizeof *a);
        if (a == NULL) {
            r->lost = true;
            return;
        }
        r->accepted = a;
        r->cap = cap;
    }
    r->proposed[r->n] = proposed;
    r->accepted[r->n++] = accepted;
}

void vb__rounds_fini(vb__rounds *r) {
    vb__free(r->proposed);
    vb__free(r->accepted);
    *r = (vb__rounds){0};
}

static vb_err write_line(vb__trace *t, json_t *line, vb_error *err) {
    char *text = line == NULL ? NULL : json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    if (text == NULL) return vb__fail(err, VB_E_MEMORY, "%s: out of memory", t->path);
    size_t n = strlen(text);
    text[n] = '\n'; /* in place of the NUL: one write, so that lines of several writers stay whole */
    ssize_t wrote = write(t->fd, text, n + 1);
    free(text);
    if (wrote != (ssize_t)n + 1) return vb__fail(err, VB_E_IO, "%s: could not be written (%s)", t->path, strerror(errno));
    return VB_OK;
}

vb_err vb__trace_open(const char *path, const vb__engine *e, vb__trace **out, vb_error *err) {
    vb__trace *t = vb__calloc(VB_TAG_ENGINE, 1, sizeof *t);
    if (t == NULL || (t->path = vb__strdup(VB_TAG_ENGINE, path)) == NULL) {
        vb__free(t);
        return vb__fail(err, VB_E_MEMORY, "%s: out of memory", path);
    }
    t->fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (t->fd < 0) {
        vb_err code = vb__fail(err, VB_E_IO, "%s: cannot be opened (%s)", path, strerror(errno));
        vb__trace_close(t);
        return code;
    }
    vb_err code = write_line(t, json_pack("{s:s, s:i, s:s, s:o, s:s, s:i, s:i, s:b, s:i}", "type", "header", "trace", 1, "version", VB_VERSION,
                                          "path", vb__json_path(e->path), "model", e->fingerprint, "contract", VB_CONTRACT, "activations",
                                          (int)e->activations, "head_chunk", (int)e->model->head_chunk, "ctx", (int)e->ctx), err);
    if (code != VB_OK) {
        vb__trace_close(t);
        return code;
    }
    *out = t;
    return VB_OK;
}

void vb__trace_close(vb__trace *t) {
    if (t == NULL) return;
    if (t->fd >= 0) (void)close(t->fd);
    vb__free(t->path);
    vb__free(t);
}

static json_t *ids(const int32_t *p, int32_t n) {
    json_t *a = json_array();
    for (int32_t i = 0; i < n; i++)
        if (json_array_append_new(a, json_integer(p[i])) != 0) {
            json_decref(a);
            return NULL;
        }
    return a;
}

static json_t *bias_json(const vb__req *r) {
    json_t *a = json_array();
    for (int32_t i = 0; i < r->p.n_logit_bias; i++)
        (void)json_array_append_new(a, json_pack("[i, f]", (int)r->p.logit_bias[i].id, (double)r->p.logit_bias[i].bias));
    return a;
}

static json_t *stops_json(const vb__req *r) {
    json_t *a = json_array();
    for (int32_t i = 0; i < r->p.n_stops; i++) (void)json_array_append_new(a, json_string(r->p.stops[i]));
    return a;
}

vb_err vb__trace_write(vb__trace *t, const vb__req *r, const vb__rounds *rounds, const char *sha256, vb_error *err) {
    if (rounds->lost) return vb__fail(err, VB_E_MEMORY, "%s: out of memory for the rounds of a request", t->path);
    const vb_sampling *s = &r->p.sampling;
    json_t *sampling = json_pack("{s:f, s:i, s:f, s:f, s:f, s:f, s:f, s:I}", "temperature", (double)s->temperature, "top_k",
                                 (int)s->top_k, "top_p", (double)s->top_p, "min_p", (double)s->min_p, "repeat_penalty",
                                 (double)s->repeat_penalty, "presence_penalty", (double)s->presence_penalty, "frequency_penalty",
                                 (double)s->frequency_penalty, "seed", (json_int_t)s->seed);
    static const char *const finish[] = {"stop", "length", "cancelled"};
    return write_line(t, json_pack("{s:s, s:o, s:I, s:b, s:o, s:o, s:o, s:I, s:s, s:o, s:o, s:o, s:s, s:s}", "type", "request", "prompt_ids",
                                   ids(r->tokens, r->n_prompt), "max_tokens", (json_int_t)r->p.max_tokens, "ignore_eos",
                                   (int)r->p.ignore_eos, "stop", stops_json(r), "logit_bias", bias_json(r), "sampling", sampling, "choice",
                                   (json_int_t)r->p.choice, "draft", vb__draft_kind_name(r->stats.draft_kind), "token_ids",
                                   ids(r->tokens + r->n_prompt, vb__req_count(r)), "proposed", ids(rounds->proposed, rounds->n),
                                   "accepted", ids(rounds->accepted, rounds->n), "finish_reason", finish[r->finish],
                                   "logits_sha256", sha256), err);
}
