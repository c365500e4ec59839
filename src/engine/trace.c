#include "engine/trace.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "engine/drafting.h"
#include "engine/json_out.h"
#include "verbatim/verbatim.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { HEADER_MAX = 1 << 14, LOCK_TRIES = 400, LOCK_WAIT_NS = 5000000 };

struct vb__trace {
    int fd;
    char *path;
    char *header; /* a line */
    off_t end;    /* of the file behind our last line */
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

/* ---- The file --------------------------------------------------------------------------------------------------------- */

static vb_err io_error(const char *path, const char *what, vb_error *err) {
    return vb__fail(err, VB_E_IO, "%s: could not be %s (%s)", path, what, strerror(errno));
}

/* For the time of a look or of a line; whoever holds it longer was stopped in the middle. */
static vb_err lock(int fd, const char *path, vb_error *err) {
    for (int tries = 0; flock(fd, LOCK_EX | LOCK_NB) != 0; tries++) {
        if (errno != EWOULDBLOCK && errno != EINTR) return io_error(path, "locked", err);
        if (tries == LOCK_TRIES) return vb__fail(err, VB_E_IO, "%s: is locked by another program, expected it to be free within 2 s", path);
        (void)nanosleep(&(struct timespec){.tv_nsec = LOCK_WAIT_NS}, NULL);
    }
    return VB_OK;
}

/* A file that does not begin with a header is somebody's, who would not want our lines in it. */
static vb_err check_first_line(int fd, const char *path, vb_error *err) {
    char text[HEADER_MAX];
    ssize_t n = pread(fd, text, sizeof text, 0);
    if (n < 0) return io_error(path, "read", err);
    const char *end = memchr(text, '\n', (size_t)n);
    json_t *root = NULL;
    int64_t format = 0;
    if (end != NULL && vb__json_parse(text, (size_t)(end - text), sizeof text, path, &root, NULL) == VB_OK && json_is_object(root)) {
        const char *type = json_string_value(json_object_get(root, "type"));
        if (type != NULL && strcmp(type, "header") == 0) format = json_integer_value(json_object_get(root, "trace"));
    }
    json_decref(root);
    if (format == VB_TRACE_FORMAT) return VB_OK;
    if (format != 0)
        return vb__fail(err, VB_E_MISMATCH, "%s: is a trace of format %lld, expected %d or a new file", path, (long long)format, VB_TRACE_FORMAT);
    return vb__fail(err, VB_E_FORMAT, "%s: is no trace, expected a new file or one written by --trace", path);
}

/* A line without an end, from a machine that went down while it was written, would take the next one with it. */
static vb_err drop_cut_line(int fd, const char *path, off_t size, vb_error *err) {
    char block[1 << 14];
    off_t at = size;
    bool whole = false;
    while (at > 0 && !whole) {
        size_t n = at < (off_t)sizeof block ? (size_t)at : sizeof block;
        if (pread(fd, block, n, at - (off_t)n) != (ssize_t)n) return io_error(path, "read", err);
        const char *end = memrchr(block, '\n', n);
        whole = end != NULL;
        at -= whole ? block + n - end - 1 : (ptrdiff_t)n;
    }
    if (at == size) return VB_OK;
    vb__log(VB_LOG_WARN, "trace", "%s: its last line was cut short: %lld bytes are dropped", path, (long long)(size - at));
    return ftruncate(fd, at) == 0 ? VB_OK : io_error(path, "written", err);
}

/* Another program's first line may be on its way: between its opening and its header the file is empty. */
static vb_err look_at_file(int fd, const char *path, vb_error *err) {
    struct stat st;
    VB_TRY(lock(fd, path, err));
    vb_err code = fstat(fd, &st) != 0 ? io_error(path, "read", err) : VB_OK;
    if (code == VB_OK && st.st_size > 0) code = check_first_line(fd, path, err);
    if (code == VB_OK) code = drop_cut_line(fd, path, st.st_size, err);
    (void)flock(fd, LOCK_UN);
    return code;
}

/* O_NONBLOCK: opening a pipe must not wait for a reader. */
static vb_err open_file(const char *path, int flags, int *out, vb_error *err) {
    struct stat st;
    if (path[0] == '\0') return vb__fail(err, VB_E_ARGUMENT, "--trace: is empty, expected a file");
    int fd = open(path, O_RDWR | O_APPEND | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | flags, 0600);
    if (fd < 0) {
        bool link = errno == ELOOP;
        return link ? vb__fail(err, VB_E_IO, "%s: is a symbolic link, expected a file", path)
                    : vb__fail(err, VB_E_IO, "%s: cannot be opened (%s)", path, strerror(errno));
    }
    vb_err code = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? look_at_file(fd, path, err)
                                                             : vb__fail(err, VB_E_IO, "%s: is not a regular file, expected one", path);
    if (code != VB_OK) (void)close(fd);
    else *out = fd;
    return code;
}

vb_err vb_trace_check(const char *path, vb_error *err) {
    struct stat st;
    int fd;
    if (path[0] == '\0' || lstat(path, &st) == 0) {
        VB_TRY(open_file(path, 0, &fd, err));
        (void)close(fd);
        return VB_OK;
    }
    int why = errno;
    /* Made only when the model is there: one that is made and removed again might be another program's by then. */
    const char *base = vb__path_base(path);
    char *dir = base == path ? vb__strdup(VB_TAG_ENGINE, ".") : vb__strndup(VB_TAG_ENGINE, path, (size_t)(base - path));
    vb_err code = dir == NULL ? vb__fail(err, VB_E_MEMORY, "%s: out of memory", path) : VB_OK;
    if (code == VB_OK && (why != ENOENT || access(dir, W_OK | X_OK) != 0))
        code = vb__fail(err, VB_E_IO, "%s: cannot be opened (%s)", path, strerror(why != ENOENT ? why : errno));
    vb__free(dir);
    return code;
}

/* One write at the file's end, or nothing: half a line would take the rest of the file with it. */
static vb_err append(vb__trace *t, const char *text, size_t n, off_t end, vb_error *err) {
    ssize_t wrote = write(t->fd, text, n);
    if (wrote == (ssize_t)n) {
        t->end = end + wrote;
        return VB_OK;
    }
    if (wrote >= 0) errno = ENOSPC;
    vb_err code = io_error(t->path, "written", err);
    if (wrote > 0) (void)!ftruncate(t->fd, end);
    return code;
}

/* A line behind our header. */
static vb_err write_line(vb__trace *t, json_t *line, vb_error *err) {
    vb__buffer b;
    struct stat st;
    char *text = line == NULL ? NULL : json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(line);
    vb__buffer_init(&b, (size_t)1 << 30);
    vb_err code = text == NULL ? vb__fail(err, VB_E_MEMORY, "%s: out of memory", t->path) : lock(t->fd, t->path, err);
    bool locked = code == VB_OK;
    if (locked && fstat(t->fd, &st) != 0) code = io_error(t->path, "written", err);
    if (code == VB_OK) {
        if (st.st_size != t->end) (void)vb__buffer_puts(&b, t->header);
        (void)vb__buffer_puts(&b, text);
        (void)vb__buffer_putc(&b, '\n');
        code = b.error != VB_OK ? vb__fail(err, b.error, "%s: no memory for a line", t->path)
                                : append(t, vb__buffer_str(&b), b.len, st.st_size, err);
    }
    if (locked) (void)flock(t->fd, LOCK_UN);
    vb__buffer_fini(&b);
    free(text);
    return code;
}

/* Where the model is, whatever the folder that replay runs in. */
static json_t *model_path(const char *path) {
    char *whole = realpath(path, NULL);
    json_t *j = vb__json_path(whole != NULL ? whole : path);
    free(whole);
    return j;
}

static char *make_header(const vb__engine *e) {
    json_t *j = json_pack("{s:s, s:i, s:s, s:o, s:s, s:i, s:i, s:b, s:i}", "type", "header", "trace", VB_TRACE_FORMAT, "version", VB_VERSION, "path",
                          model_path(e->path), "model", e->fingerprint, "contract", VB_CONTRACT, "activations", (int)e->activations,
                          "head_chunk", (int)e->model->head_chunk, "ctx", (int)e->ctx);
    char *text = j == NULL ? NULL : json_dumps(j, JSON_COMPACT), *line = NULL;
    json_decref(j);
    size_t n = text == NULL ? 0 : strlen(text);
    if (text != NULL && (line = vb__alloc(VB_TAG_ENGINE, n + 2)) != NULL) {
        memcpy(line, text, n);
        memcpy(line + n, "\n", 2);
    }
    free(text);
    return line;
}

vb_err vb__trace_open(const char *path, const vb__engine *e, vb__trace **out, vb_error *err) {
    vb__trace *t = vb__calloc(VB_TAG_ENGINE, 1, sizeof *t);
    if (t == NULL) return vb__fail(err, VB_E_MEMORY, "%s: out of memory", path);
    t->fd = -1;
    t->path = vb__strdup(VB_TAG_ENGINE, path);
    t->header = make_header(e);
    vb_err code = t->path == NULL || t->header == NULL ? vb__fail(err, VB_E_MEMORY, "%s: out of memory", path)
                                                       : open_file(path, O_CREAT, &t->fd, err);
    /* The header at once: a device that is full shows before the work, not after it. */
    struct stat st;
    if (code == VB_OK) code = lock(t->fd, path, err);
    if (code == VB_OK) {
        code = fstat(t->fd, &st) != 0 ? io_error(path, "written", err) : append(t, t->header, strlen(t->header), st.st_size, err);
        (void)flock(t->fd, LOCK_UN);
    }
    if (code != VB_OK) vb__trace_close(t);
    else *out = t;
    return code;
}

void vb__trace_close(vb__trace *t) {
    if (t == NULL) return;
    if (t->fd >= 0) (void)close(t->fd);
    vb__free(t->path);
    vb__free(t->header);
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
