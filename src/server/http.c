/* libmicrohttpd and us: headers, bodies, responses. Everything here runs on its thread and must not wait: what takes time is
 * done elsewhere while the connection is suspended. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "server/clients.h"
#include "server/guard.h"
#include "server/job.h"
#include "server/json_writer.h"
#include <errno.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>

/* SPARE_BYTES: of a connection's memory beyond the largest headers. The headers of the answer are made there, also those that say that the
 * request's are too large; WANTED_BYTES of them may be the request's own, sent back. PER_HEADER_BYTES: what libmicrohttpd notes of each header there. */
enum { PER_HEADER_BYTES = 64, DISCARD_BYTES = 4 * VB_LIMIT_BODY_BYTES, STREAM_BLOCK = 16 << 10, SPARE_BYTES = 16 << 10, WANTED_BYTES = 8 << 10 };

/* ---- Routes ----------------------------------------------------------------------------------------------------------------- */

static const struct {
    const char *path;
    bool post;
    vb__route_id id;
} routes[] = {
    {"/", false, VB_ROUTE_ROOT},
    {"/health", false, VB_ROUTE_HEALTH},
    {"/metrics", false, VB_ROUTE_METRICS},
    {"/slots", false, VB_ROUTE_SLOTS},
    {"/models", false, VB_ROUTE_MODELS},
    {"/chat/completions", true, VB_ROUTE_CHAT},
    {"/completions", true, VB_ROUTE_COMPLETIONS},
    {"/tokenize", true, VB_ROUTE_TOKENIZE},
    {"/detokenize", true, VB_ROUTE_DETOKENIZE},
    {"/apply-template", true, VB_ROUTE_APPLY_TEMPLATE},
};

const char *vb__route_name(vb__route_id r) {
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (routes[i].id == r) return routes[i].path;
    return r == VB_ROUTE_MODEL ? "/models/NAME" : "-";
}

static vb__route_id find_route(const char *url, bool *post) {
    if (strncmp(url, "/v1/", 4) == 0) url += 3;
    *post = false;
    if (strncmp(url, "/models/", 8) == 0 && url[8] != '\0') return VB_ROUTE_MODEL;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (strcmp(routes[i].path, url) == 0) {
            *post = routes[i].post;
            return routes[i].id;
        }
    return VB_ROUTE_NONE;
}

static bool is_post(vb__route_id id) {
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++)
        if (routes[i].id == id) return routes[i].post;
    return false;
}

/* ---- Connections ------------------------------------------------------------------------------------------------------------ */

static void on_connection(void *user, struct MHD_Connection *c, void **own, enum MHD_ConnectionNotificationCode what) {
    vb__server *s = user;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        *own = info != NULL ? vb__client_add(s, info->connect_fd) : NULL;
    } else {
        vb__client_remove(s, *own);
        *own = NULL;
    }
}

static vb__client *client_of(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    return info != NULL ? info->socket_context : NULL;
}

/* ---- Responses -------------------------------------------------------------------------------------------------------------- */

static void header(struct MHD_Response *r, const char *name, const char *value) { (void)MHD_add_response_header(r, name, value); }

static void common_headers(const vb__job *j, struct MHD_Response *r) {
    char id[40], number[32];
    (void)snprintf(id, sizeof id, "req_%s", j->id);
    header(r, "x-request-id", id);
    header(r, "request-id", id);
    if (j->has_seed) {
        (void)snprintf(number, sizeof number, "%lld", (long long)j->seed);
        header(r, "x-verbatim-seed", number);
    }
    if (j->origin[0] != '\0') {
        header(r, "Access-Control-Allow-Origin", j->origin);
        header(r, "Access-Control-Expose-Headers", "x-request-id, request-id, x-verbatim-seed, retry-after");
        header(r, "Vary", "Origin");
    }
}

/* The client has closed its side (or all) and everything it sent was read. When that came together with the request, libmicrohttpd, which is
 * told of changes only, does not see it, and would keep the connection until its timeout. */
static bool peer_ended(struct MHD_Connection *c) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    char byte;
    return info != NULL && recv(info->connect_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* Sends status and out. The bytes stay the job's, which lives until the connection has completed the request. */
static enum MHD_Result respond(vb__job *j, bool close) {
    struct MHD_Response *r = MHD_create_response_from_buffer(j->out.len, (void *)(uintptr_t)vb__buffer_str(&j->out), MHD_RESPMEM_PERSISTENT);
    if (r == NULL) return MHD_NO;
    common_headers(j, r);
    if (j->content_type != NULL && j->out.len > 0) header(r, "Content-Type", j->content_type);
    if (j->retry_after > 0) {
        char number[16];
        (void)snprintf(number, sizeof number, "%d", j->retry_after);
        header(r, "Retry-After", number);
    }
    if (j->status == 401) header(r, "WWW-Authenticate", "Bearer");
    if (j->extra != NULL) header(r, j->extra, j->extra_value);
    if (close || atomic_load(&j->server->draining) || peer_ended(j->conn)) header(r, "Connection", "close");
    enum MHD_Result ok = MHD_queue_response(j->conn, (unsigned)j->status, r);
    MHD_destroy_response(r);
    return ok;
}

static ssize_t read_stream(void *user, uint64_t pos, char *buf, size_t max) {
    vb__job *j = user;
    (void)pos;
    ssize_t got;
    pthread_mutex_lock(&j->lock);
    size_t n = j->out.len - j->out_at;
    if (j->gone) {
        got = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n > 0) {
        if (n > max) n = max;
        memcpy(buf, j->out.data + j->out_at, n);
        j->out_at += n;
        if (j->out_at == j->out.len) {
            vb__buffer_clear(&j->out);
            j->out_at = 0;
        } else if (j->out_at >= (size_t)VB_LIMIT_STREAM_BYTES / 4) {
            memmove(j->out.data, j->out.data + j->out_at, j->out.len - j->out_at);
            j->out.len -= j->out_at;
            j->out_at = 0;
        }
        got = (ssize_t)n;
    } else if (j->stream_end) {
        got = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        j->suspended = true;
        MHD_suspend_connection(j->conn);
        got = 0;
    }
    pthread_mutex_unlock(&j->lock);
    return got;
}

static void stream_over(void *user) { vb__job_unref(user); }

static enum MHD_Result respond_stream(vb__job *j) {
    vb__job_ref(j); /* the response's */
    struct MHD_Response *r = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, STREAM_BLOCK, read_stream, j, stream_over);
    if (r == NULL) {
        vb__job_unref(j);
        return MHD_NO;
    }
    common_headers(j, r);
    header(r, "Content-Type", "text/event-stream; charset=utf-8");
    header(r, "Cache-Control", "no-cache");
    header(r, "X-Accel-Buffering", "no");
    enum MHD_Result ok = MHD_queue_response(j->conn, 200, r);
    MHD_destroy_response(r);
    return ok;
}

/* ---- The first call: headers are here ------------------------------------------------------------------------------------------ */

typedef struct framing {
    int hosts, lengths, codings, origins, sites;
    size_t room;     /* that the headers take of the connection's memory */
    bool chunked, bad;
    bool in_place;   /* lines lie as they came, only their ends were overwritten with NULs */
    const char *end; /* the NUL that ends what stands before the next header */
    ptrdiff_t gap;   /* bytes of a line's end, the same for all lines; 0: none seen yet */
} framing;

/* Until a request has a job, *own is what on_uri saw of it: 1 in the lowest bit, then whether the path has a %00 or the authority of an
 * absolute URL anything but a host and a port, then whether it is such a URL, then the length of the URI up to its first NUL. */
typedef uintptr_t uri_note;
static bool is_note(const void *own) { return ((uri_note)own & 1) != 0; }

/* The request line is here, nothing of it decoded yet. */
static void *on_uri(void *user, const char *uri, struct MHD_Connection *c) {
    const char *nul = strstr(uri, "%00");
    size_t authority, start = vb__guard_authority(uri, &authority);
    bool bad = (nul != NULL && nul < uri + strcspn(uri, "?")) || (start > 0 && (authority == 0 || strcspn(uri + start - authority, "%@/?#") < authority));
    (void)user, (void)c;
    uri_note note = 1 | (bad ? 2u : 0u) | (start > 0 ? 4u : 0u) | (uri_note)strlen(uri) << 3;
    return (void *)note; // NOLINT(performance-no-int-to-ptr)
}

/* Up to 0.9.76 libmicrohttpd takes lines apart where they were received. What has a NUL in it comes to us cut, a line that begins with one ends
 * the headers, and a lone CR or LF ends a line; but the bytes are still there, so that the next part does not stand where it should.
 * (A folded line is moved elsewhere, and shows as well.) Later versions refuse a NUL themselves. */
static bool lines_in_place(void) {
    const char *v = MHD_get_version();
    return strlen(v) == 6 && memcmp(v, "0.9.7", 5) == 0 && v[5] >= '0' && v[5] <= '6';
}

/* "METHOD URI VERSION", the blanks behind the method and before the version now NULs. */
static void look_at_request_line(framing *f, const char *method, const char *url, const char *version, uri_note note) {
    if ((note & 2) != 0) f->bad = true;
    if (!f->in_place) return;
    const char *behind = method + strlen(method) + 1;
    if (behind + strspn(behind, " ") != url || url + (note >> 3) + 1 != version) f->bad = true;
}

static void look_at_line(framing *f, const char *key, const char *value) {
    if (!f->in_place || value == NULL) return;
    ptrdiff_t gap = key - f->end;
    if (gap < 1 || gap > 2 || (f->gap != 0 && gap != f->gap)) f->bad = true;
    f->gap = gap;
    f->end = value + strlen(value);
}

/* Behind the last header: its line's end, then that of the empty line, and no more. */
static void look_at_end(framing *f, struct MHD_Connection *c, const char *method) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(c, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
    if (info != NULL) f->room += info->header_size;
    if (f->in_place && (info == NULL || f->end + 2 * f->gap != method + info->header_size)) f->bad = true;
}

static enum MHD_Result look_at_header(void *user, enum MHD_ValueKind kind, const char *key, size_t key_size, const char *value, size_t value_size) {
    framing *f = user;
    (void)kind;
    look_at_line(f, key, value);
    f->room += PER_HEADER_BYTES;
    if (strcasecmp(key, "Host") == 0) f->hosts++;
    if (strcasecmp(key, "Origin") == 0) f->origins++;
    if (strcasecmp(key, "Sec-Fetch-Site") == 0) f->sites++;
    if (strcasecmp(key, "Content-Length") == 0) {
        f->lengths++;
        f->bad |= value_size == 0 || value_size > 18 || strspn(value, "0123456789") != value_size;
    }
    if (strcasecmp(key, "Transfer-Encoding") == 0) {
        f->codings++;
        f->chunked = value != NULL && strcasecmp(value, "chunked") == 0;
    }
    if (key_size == 0 || strlen(key) != key_size || (value != NULL && strlen(value) != value_size)) f->bad = true;
    if (strcspn(key, " \t") != key_size || (value != NULL && strchr(value, '\r') != NULL)) f->bad = true;
    return MHD_YES;
}

static const char *get(struct MHD_Connection *c, const char *name) { return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name); }

enum { NAME_BYTES = 512 };

/* The same without blanks behind the value, which libmicrohttpd leaves there and which are no part of it. NULL when the header is missing; one
 * that is too long to be a name or an origin comes back as it is. */
static const char *get_name(struct MHD_Connection *c, const char *name, char copy[NAME_BYTES]) {
    const char *v = get(c, name);
    size_t n = v != NULL ? strlen(v) : 0;
    while (n > 0 && (v[n - 1] == ' ' || v[n - 1] == '\t')) n--;
    if (v == NULL || v[n] == '\0' || n >= NAME_BYTES) return v;
    memcpy(copy, v, n);
    copy[n] = '\0';
    return copy;
}

static enum MHD_Result refuse(vb__job *j, int status, const char *type, const char *code, const char *message, bool close) {
    vb__job_error(j, status, type, NULL, code, message);
    return respond(j, close);
}

static bool expects(struct MHD_Connection *c) {
    const char *v = get(c, "Expect");
    return v != NULL && strcasecmp(v, "100-continue") == 0;
}

static enum MHD_Result preflight(vb__job *j, bool allowed, bool has_origin) {
    char methods[] = "GET, HEAD, POST, OPTIONS";
    const char *wanted = get(j->conn, "Access-Control-Request-Headers");
    if (!allowed)
        return refuse(j, 403, "permission_error", "origin_not_allowed", "Origin: not allowed, expected one given by --cors", false);
    if (wanted != NULL && strlen(wanted) > WANTED_BYTES)
        return refuse(j, 431, "invalid_request_error", NULL, "Access-Control-Request-Headers: too long, expected at most 8192 bytes", false);
    struct MHD_Response *r = MHD_create_response_from_buffer(0, "", MHD_RESPMEM_PERSISTENT);
    if (r == NULL) return MHD_NO;
    j->status = 204;
    common_headers(j, r);
    header(r, "Allow", methods);
    if (has_origin) {
        header(r, "Access-Control-Allow-Methods", methods);
        if (wanted != NULL) header(r, "Access-Control-Allow-Headers", wanted);
        header(r, "Access-Control-Max-Age", "600");
        header(r, "Access-Control-Allow-Private-Network", "true");
    }
    enum MHD_Result ok = MHD_queue_response(j->conn, 204, r);
    MHD_destroy_response(r);
    return ok;
}

static void root_page(vb__server *s, vb__buffer *b) {
    vb__buffer_printf(b, "Verbatim " VB_VERSION " serves %s. The interface is at %s/v1 (docs/api.md).\n", s->name, s->url);
}

static void slots_json(vb__server *s, vb__buffer *b) {
    static const char *const names[] = {"idle", "prefill", "decode"};
    vb_slot_info slots[256];
    int32_t n = vb_async_get_slots(s->async, slots, 256);
    vb__buffer_putc(b, '[');
    for (int32_t i = 0; i < n; i++)
        vb__buffer_printf(b, "%s{\"id\":%d,\"is_processing\":%s,\"state\":\"%s\",\"tokens\":%d}", i > 0 ? "," : "", i,
                          slots[i].state != VB_SLOT_IDLE ? "true" : "false", names[slots[i].state], slots[i].tokens);
    vb__buffer_puts(b, "]\n");
}

static enum MHD_Result answer_get(vb__job *j, const char *url) {
    vb__server *s = j->server;
    j->content_type = "application/json";
    j->status = 200;
    switch (j->route) {
    case VB_ROUTE_ROOT:
        j->content_type = "text/plain; charset=utf-8";
        root_page(s, &j->out);
        break;
    case VB_ROUTE_HEALTH:
        if (atomic_load(&s->draining)) j->status = 503;
        vb__buffer_printf(&j->out, "{\"status\":\"%s\"}\n", j->status == 200 ? "ok" : "stopping");
        break;
    case VB_ROUTE_METRICS: {
        vb_async_stats st;
        vb_async_get_stats(s->async, &st);
        /* Not s->http: the first requests may come before vb__http_start has set it. */
        const union MHD_ConnectionInfo *c = MHD_get_connection_info(j->conn, MHD_CONNECTION_INFO_DAEMON);
        const union MHD_DaemonInfo *d = c == NULL ? NULL : MHD_get_daemon_info(c->daemon, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
        j->content_type = "text/plain; version=0.0.4; charset=utf-8";
        vb__metrics_write(&s->metrics, &st, d != NULL ? (int32_t)d->num_connections : 0, &j->out);
        break;
    }
    case VB_ROUTE_SLOTS: slots_json(s, &j->out); break;
    case VB_ROUTE_MODELS: vb__models_json(s, NULL, &j->out); break;
    default: vb__models_json(s, strstr(url, "/models/") + 8, &j->out); break;
    }
    pthread_mutex_lock(&j->lock);
    j->state = VB_JOB_READY;
    pthread_mutex_unlock(&j->lock);
    return respond(j, false);
}

/* "http://AUTHORITY/PATH": the path is what is asked for, and the authority must be what Host says. RFC 9112, 3.2.2, wants it taken, and its
 * authority to win over Host: one that says something else has no reason that we want to know. */
static bool look_at_target(vb__job *j, const char *url, uri_note note, const char *host, char authority[NAME_BYTES]) {
    size_t n, start = (note & 4) != 0 ? vb__guard_authority(url, &n) : 0;
    authority[0] = '\0';
    j->path_at = (int32_t)start;
    if (start == 0) return true;
    if (n >= NAME_BYTES) return false;
    memcpy(authority, url + start - n, n);
    authority[n] = '\0';
    return vb__guard_same_host(authority, n, host, start - n == 7 ? "80" : "443");
}

/* What of the URL is the path: "/" where an absolute one has none. */
static const char *path_of(const vb__job *j, const char *url) { return url[j->path_at] == '\0' && j->path_at > 0 ? "/" : url + j->path_at; }

static enum MHD_Result first_call(vb__job *j, const char *url, const char *method, const char *version, uri_note note) {
    vb__server *s = j->server;
    framing f = {.in_place = lines_in_place(), .end = version + strlen(version)};
    bool post;
    look_at_request_line(&f, method, url, version, note);
    (void)MHD_get_connection_values_n(j->conn, MHD_HEADER_KIND, look_at_header, &f);
    look_at_end(&f, j->conn, method);
    if (f.hosts != 1 || f.origins > 1 || f.sites > 1 || f.lengths > 1 || f.codings > 1 || (f.codings == 1 && (!f.chunked || f.lengths > 0)) || f.bad)
        return refuse(j, 400, "invalid_request_error", NULL, "request: malformed headers, expected one Host, either Content-Length or "
                      "Transfer-Encoding: chunked, neither NULs nor folded lines nor single CRs or LFs", true);
    if (f.room > VB_LIMIT_HEADER_BYTES)
        return refuse(j, 431, "invalid_request_error", NULL, "request: the headers are too large, expected at most 64 KiB", true);
    char host_copy[NAME_BYTES], origin_copy[NAME_BYTES], site_copy[NAME_BYTES];
    const char *host = get_name(j->conn, "Host", host_copy), *origin = get_name(j->conn, "Origin", origin_copy);
    const char *site = get_name(j->conn, "Sec-Fetch-Site", site_copy);
    char authority[NAME_BYTES];
    bool same = look_at_target(j, url, note, host, authority);
    if (!vb__guard_host(s->o, host) || (authority[0] != '\0' && !vb__guard_host(s->o, authority)))
        return refuse(j, 403, "permission_error", "host_not_allowed", "Host: not a name of this server, expected an IP address, localhost, or one given by --host or --allowed-host", false);
    if (!same)
        return refuse(j, 400, "invalid_request_error", NULL, "request: the URL names another host than Host, expected the same", true);
    url = path_of(j, url);
    bool get_like = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    j->route = find_route(url, &post);
    bool allowed = vb__guard_origin(s->o, origin, site, host);
    if (allowed && origin != NULL && strlen(origin) < sizeof j->origin) memcpy(j->origin, origin, strlen(origin) + 1);
    if (strcmp(method, "OPTIONS") == 0) return preflight(j, allowed, origin != NULL);
    if (!allowed && !(get_like && j->route == VB_ROUTE_ROOT))
        return refuse(j, 403, "permission_error", "origin_not_allowed", "Origin: not allowed, expected this server's own or one given by --cors", false);

    const char *length = get(j->conn, "Content-Length");
    unsigned long long bytes = length != NULL ? strtoull(length, NULL, 10) : 0;
    int status = 0;
    const char *type = "invalid_request_error", *code = NULL, *extra = NULL, *value = NULL;
    char message[400];
    if (j->route != VB_ROUTE_HEALTH && j->route != VB_ROUTE_ROOT && !vb__guard_key(s->o, get(j->conn, "Authorization"), get(j->conn, "x-api-key"))) {
        status = 401;
        type = "authentication_error";
        code = "invalid_api_key";
        (void)snprintf(message, sizeof message, "api key: missing or unknown, expected Authorization: Bearer KEY or x-api-key: KEY");
    } else if (j->route == VB_ROUTE_NONE) {
        status = 404;
        type = "not_found_error";
        (void)snprintf(message, sizeof message, "%.200s: not found, expected an endpoint of docs/api.md", url);
    } else if (post ? strcmp(method, "POST") != 0 : !get_like) {
        status = 405;
        extra = "Allow";
        value = post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS";
        (void)snprintf(message, sizeof message, "%.200s: method %.20s, expected %s", url, method, post ? "POST" : "GET");
    } else if (bytes > VB_LIMIT_BODY_BYTES) {
        status = 413;
        type = "request_too_large";
        (void)snprintf(message, sizeof message, "request: the body has %llu bytes, expected at most %d", bytes, VB_LIMIT_BODY_BYTES);
    } else if (post && atomic_load(&s->draining)) {
        status = 503;
        type = "api_error";
        (void)snprintf(message, sizeof message, "the server is stopping");
        j->retry_after = 1;
    }
    if (status != 0) {
        vb__job_error(j, status, type, NULL, code, message);
        /* The body is read and thrown away first: closing with unread bytes would take the answer from a client that is still sending. One
         * that asks before it sends is answered at once. */
        j->extra = extra;
        j->extra_value = value;
        if (bytes <= DISCARD_BYTES && !expects(j->conn)) return MHD_YES;
        return respond(j, true);
    }
    return MHD_YES; /* answering now would close the connection */
}

/* ---- Bodies, and calls after a pause -------------------------------------------------------------------------------------------- */

static enum MHD_Result take_body(vb__job *j, const char *data, size_t n) {
    vb__server *s = j->server;
    vb__client_sent(s, client_of(j->conn), n);
    if (j->state == VB_JOB_READY || j->too_large || j->crowded) { /* refused: read on for a while, so that the client hears why */
        j->excess += n;
        return j->excess > DISCARD_BYTES ? MHD_NO : MHD_YES;
    }
    pthread_mutex_lock(&j->lock);
    j->last_event = vb__now();
    pthread_mutex_unlock(&j->lock);
    if (atomic_fetch_add(&s->body_bytes, n) + n > VB_LIMIT_BODIES_BYTES) {
        atomic_fetch_sub(&s->body_bytes, n + j->counted);
        j->counted = 0;
        j->crowded = true;
        vb__buffer_fini(&j->body);
        vb__buffer_init(&j->body, 1);
        return MHD_YES;
    }
    j->counted += n;
    if (vb__buffer_append(&j->body, data, n) != VB_OK) {
        j->too_large = true;
        vb__buffer_fini(&j->body);
        vb__buffer_init(&j->body, 1);
    }
    return MHD_YES;
}

static void watch(vb__job *j) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(j->conn, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info == NULL) return;
    j->fd = info->connect_fd;
    struct epoll_event ev = {.events = EPOLLRDHUP | EPOLLONESHOT, .data.u64 = j->serial};
    j->watched = epoll_ctl(j->server->epoll, EPOLL_CTL_ADD, j->fd, &ev) == 0;
}

static enum MHD_Result body_complete(vb__job *j) {
    if (j->crowded) {
        j->retry_after = 1;
        return refuse(j, 503, "api_error", NULL, "request: the bodies of other requests take all the memory there is for them, expected fewer at one time", true);
    }
    if (j->too_large)
        return refuse(j, 413, "request_too_large", NULL, "request: the body is larger than 16 MiB", true);
    pthread_mutex_lock(&j->lock);
    bool gone = j->gone; /* the server ends: nobody would wake it */
    if (!gone) {
        j->state = VB_JOB_PREPARE;
        j->suspended = true;
        MHD_suspend_connection(j->conn);
    }
    pthread_mutex_unlock(&j->lock);
    if (gone) return MHD_NO;
    watch(j); /* now that it can be woken: the client may be gone already, and nobody else would */
    vb__prepare_push(j);
    return MHD_YES;
}

/* The connection was resumed (or libmicrohttpd asks for another reason). */
static enum MHD_Result go_on(vb__job *j, const char *url) {
    enum { ANSWER, STREAM, WAIT, DROP, BODY } what;
    pthread_mutex_lock(&j->lock);
    if (j->state == VB_JOB_BODY) what = BODY;
    else if (j->gone) what = DROP;
    else if (j->state == VB_JOB_READY) what = ANSWER;
    else if (j->state == VB_JOB_STREAM) what = STREAM;
    else if (j->state == VB_JOB_RUN && j->left == 0 && !vb__job_is_long(j)) {
        vb__answer_whole(j, &j->out);
        vb__job_ready_locked(j, 200, "application/json");
        what = ANSWER;
    } else {
        j->suspended = true;
        MHD_suspend_connection(j->conn);
        what = WAIT;
    }
    pthread_mutex_unlock(&j->lock);
    switch (what) {
    case BODY: return is_post(j->route) ? body_complete(j) : answer_get(j, path_of(j, url));
    case ANSWER: return respond(j, false);
    case STREAM: return respond_stream(j);
    case WAIT: return MHD_YES;
    default: return MHD_NO;
    }
}

static enum MHD_Result on_request(void *user, struct MHD_Connection *c, const char *url, const char *method, const char *version,
                                  const char *data, size_t *size, void **own) {
    vb__server *s = user;
    vb__job *j = *own;
    if (is_note(j)) {
        uri_note note = (uri_note)*own;
        *own = NULL;
        j = vb__job_create(s);
        if (j == NULL) return MHD_NO;
        *own = j;
        j->conn = c;
        vb__client_awaited(s, client_of(c)); /* the body */
        return first_call(j, url, method, version, note);
    }
    if (*size > 0) {
        enum MHD_Result ok = take_body(j, data, *size);
        *size = 0;
        return ok;
    }
    vb__client_answered(s, client_of(c));
    return go_on(j, url);
}

static void on_completed(void *user, struct MHD_Connection *c, void **own, enum MHD_RequestTerminationCode how) {
    vb__job *j = *own;
    vb__server *s = user;
    vb__client_awaited(s, client_of(c)); /* the next request's headers */
    if (how == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED) vb__client_silent(client_of(c));
    if (j == NULL || is_note(j)) return;
    *own = NULL;
    if (j->watched) (void)epoll_ctl(s->epoll, EPOLL_CTL_DEL, j->fd, NULL);
    j->watched = false;
    if (how == MHD_REQUEST_TERMINATED_CLIENT_ABORT || how == MHD_REQUEST_TERMINATED_READ_ERROR || how == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED)
        vb__job_left(j);
    pthread_mutex_lock(&j->lock);
    j->gone = true;
    j->suspended = false;
    pthread_mutex_unlock(&j->lock);
    vb__job_cancel(j, false);
    vb__job_unref(j);
}

static void on_log(void *user, const char *fmt, va_list args) {
    char text[300];
    (void)user;
    (void)vsnprintf(text, sizeof text, fmt, args);
    text[strcspn(text, "\n")] = '\0';
    vb__log(VB_LOG_DEBUG, "http", "%s", text);
}

vb_err vb__http_start(vb__server *s, int listen_fd, vb_error *err) {
    errno = 0;
    s->http = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ERROR_LOG, 0, NULL, NULL, on_request, s,
                               MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL, MHD_OPTION_URI_LOG_CALLBACK, on_uri, NULL, MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_NOTIFY_COMPLETED,
                               on_completed, s, MHD_OPTION_CONNECTION_LIMIT, (unsigned)VB_LIMIT_CONNECTIONS,
                               MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)VB_LIMIT_HEADER_BYTES + SPARE_BYTES, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)s->o->client_timeout_s,
                               MHD_OPTION_NOTIFY_CONNECTION, on_connection, s,
                               MHD_OPTION_STRICT_FOR_CLIENT, 0, MHD_OPTION_SIGPIPE_HANDLED_BY_APP, 1, MHD_OPTION_END);
    return s->http != NULL ? VB_OK : vb__fail(err, VB_E_MEMORY, "http: could not be started (%s), expected free file descriptors and memory", strerror(errno));
}
