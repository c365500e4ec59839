/* The server's start, main loop and end. See server.h. */
#include "server/server.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "server/clients.h"
#include "server/guard.h"
#include "server/job.h"
#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BODY_PAUSE_S = 2 };

void vb__serve_options_init(vb__serve_options *o) { *o = (vb__serve_options){.host = "127.0.0.1", .port = 8080, .queue = 128, .drain_s = 30, .client_timeout_s = 75}; }

/* ---- Start ---------------------------------------------------------------------------------------------------------------- */

/* Our own socket: libmicrohttpd's would let two servers share a port. */
static vb_err listen_at(const vb__serve_options *o, int *out, int *port, bool *loopback, vb_error *err) {
    char service[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV}, *list = NULL;
    (void)snprintf(service, sizeof service, "%d", o->port);
    int e = getaddrinfo(o->host, service, &hints, &list);
    if (e != 0) return vb__fail(err, VB_E_ARGUMENT, "--host: %.100s: %s, expected a name or address of this machine", o->host, gai_strerror(e));
    int fd = -1, why = 0;
    for (struct addrinfo *a = list; a != NULL && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int on = 1;
        if (fd < 0) {
            why = errno;
            continue;
        }
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, 512) == 0) break;
        why = errno;
        (void)close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0 && why == EADDRINUSE)
        return vb__fail(err, VB_E_IO, "--port: %d on %.100s is in use by another program, expected a free one (--port N)", o->port, o->host);
    if (fd < 0) return vb__fail(err, VB_E_IO, "--port: cannot listen at %.100s port %d (%s)", o->host, o->port, strerror(why));
    struct sockaddr_storage at = {0};
    socklen_t len = sizeof at;
    char number[16] = "0";
    if (getsockname(fd, (struct sockaddr *)&at, &len) == 0)
        (void)getnameinfo((struct sockaddr *)&at, len, NULL, 0, number, sizeof number, NI_NUMERICSERV);
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)&at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&at;
    *loopback = at.ss_family == AF_INET ? ntohl(v4->sin_addr.s_addr) >> 24 == 127 : at.ss_family == AF_INET6 && IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
    *port = 0;
    (void)sscanf(number, "%d", port);
    *out = fd;
    return VB_OK;
}

static void name_things(vb__server *s, int port) {
    const vb__serve_options *o = s->o;
    const char *path = s->info.path;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/') n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/') from--;
    if (o->alias != NULL) (void)snprintf(s->name, sizeof s->name, "%.120s", o->alias);
    else (void)snprintf(s->name, sizeof s->name, "%.*s", (int)(n - from > 120 ? 120 : n - from), path + from);
    (void)snprintf(s->system_fingerprint, sizeof s->system_fingerprint, "vb%d-%.16s", s->info.contract, s->info.fingerprint);
    bool any = strcmp(o->host, "0.0.0.0") == 0 || strcmp(o->host, "::") == 0;
    const char *host = any ? "127.0.0.1" : o->host;
    (void)snprintf(s->url, sizeof s->url, strchr(host, ':') != NULL ? "http://[%.200s]:%d" : "http://%.200s:%d", host, port);
}

/* As a browser writes one: scheme://host[:port], or null. */
static bool is_origin(const char *s) {
    const char *host = strstr(s, "://");
    if (strcmp(s, "null") == 0) return true;
    return host != NULL && host != s && host[3] != '\0' && host[3 + strcspn(host + 3, "/?#@ \t")] == '\0';
}

static vb_err check_options(const vb__serve_options *o, vb_error *err) {
    for (int32_t i = 0; i < o->n_origins; i++)
        if (strcmp(o->origins[i], "*") != 0 && !is_origin(o->origins[i]))
            return vb__fail(err, VB_E_ARGUMENT, "--cors: is \"%.100s\", expected an origin such as http://localhost:3000, without a path", o->origins[i]);
    for (int32_t i = 0; i < o->n_hosts; i++)
        if (o->hosts[i][0] == '\0' || strpbrk(o->hosts[i], ":/@*[],; \t") != NULL)
            return vb__fail(err, VB_E_ARGUMENT, "--allowed-host: is \"%.100s\", expected a name without port", o->hosts[i]);
    for (int32_t i = 0; i < o->n_origins; i++)
        if (strcmp(o->origins[i], "*") == 0 && o->n_keys == 0)
            return vb__fail(err, VB_E_ARGUMENT, "--cors: '*' needs a key, expected --api-key-file too: any web page could ask otherwise");
    if (o->alias != NULL && o->alias[0] == '\0') return vb__fail(err, VB_E_ARGUMENT, "--alias: is empty, expected a name");
    return VB_OK;
}

/* ---- The main loop ---------------------------------------------------------------------------------------------------------- */

static void client_gone(vb__server *s, uint64_t serial) {
    vb__job *found = NULL;
    pthread_mutex_lock(&s->lock);
    for (vb__job *j = s->jobs; j != NULL && found == NULL; j = j->next)
        if (j->serial == serial) {
            pthread_mutex_lock(&j->lock);
            if (j->refs > 0) {
                j->refs++;
                found = j;
            }
            pthread_mutex_unlock(&j->lock);
        }
    pthread_mutex_unlock(&s->lock);
    if (found == NULL) return;
    vb__job_left(found);
    vb__job_cancel(found, true);
    vb__job_unref(found);
}

/* For every job; under the lock, so that none goes away. */
static void each_job(vb__server *s, void (*fn)(vb__job *j, double now)) {
    double now = vb__now();
    pthread_mutex_lock(&s->lock);
    for (vb__job *j = s->jobs; j != NULL; j = j->next) fn(j, now);
    pthread_mutex_unlock(&s->lock);
}

static void drop_job(vb__job *j, double now) {
    (void)now;
    vb__job_cancel(j, false);
}

static void abandon_job(vb__job *j, double now) {
    (void)now;
    vb__job_cancel(j, true);
}

/* Requests to wait for before the end. One whose body stopped coming is none. */
static int32_t count_jobs(vb__server *s) {
    double now = vb__now();
    int32_t n = 0;
    pthread_mutex_lock(&s->lock);
    for (vb__job *j = s->jobs; j != NULL; j = j->next) {
        pthread_mutex_lock(&j->lock);
        n += j->state != VB_JOB_BODY || now - j->last_event < BODY_PAUSE_S;
        pthread_mutex_unlock(&j->lock);
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void main_loop(vb__server *s, int signals) {
    struct epoll_event ev[64];
    double beat = vb__now(), until = 0, forced = 0;
    int stops = 0;
    int listen_fd = -1;
    while (stops == 0 || count_jobs(s) > 0) {
        int n = epoll_wait(s->epoll, ev, 64, stops > 0 ? 20 : 250);
        for (int i = 0; i < n; i++) {
            if (ev[i].data.u64 != 0) {
                client_gone(s, ev[i].data.u64);
                continue;
            }
            struct signalfd_siginfo si;
            if (read(signals, &si, sizeof si) != (ssize_t)sizeof si) continue;
            if (++stops == 1) {
                vb__log(VB_LOG_INFO, "server", "stopping: %d requests may take %d s to end; a second signal cancels them", count_jobs(s), s->o->drain_s);
                atomic_store(&s->draining, true);
                listen_fd = MHD_quiesce_daemon(s->http);
                if (listen_fd >= 0) (void)close(listen_fd); /* who asks now is told at once that nobody listens */
                until = vb__now() + s->o->drain_s;
            }
        }
        double now = vb__now();
        if (now - beat >= 0.25) {
            beat = now;
            each_job(s, vb__job_heartbeat);
            vb__clients_look(s, now);
        }
        if (stops > 0 && forced == 0 && (stops > 1 || now > until)) {
            forced = now;
            each_job(s, drop_job);
        }
        if (forced > 0 && now - forced > 2.0) { /* clients that do not take their answers */
            each_job(s, abandon_job);
            if (now - forced > 4.0) break;
        }
    }
}

vb_err vb__serve(vb_model *m, const vb__serve_options *o, vb_error *err) {
    vb__server *s = vb__calloc(VB_TAG_SERVER, 1, sizeof *s);
    if (s == NULL) return vb__fail(err, VB_E_MEMORY, "server: out of memory");
    int listen_fd = -1, signals = -1, port = 0;
    pthread_t preparer;
    bool preparing = false, loopback;
    sigset_t set;
    vb_err e;
    s->model = m;
    s->o = o;
    s->epoll = -1;
    s->prepare_tail = &s->prepare;
    s->started = (int64_t)time(NULL);
    vb_model_get_info(m, &s->info);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGTERM);
    (void)sigaddset(&set, SIGINT);
    (void)sigaddset(&set, SIGPIPE);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    (void)sigdelset(&set, SIGPIPE);
    VB_TRY_OUT(check_options(o, err));
    VB_TRY_OUT(listen_at(o, &listen_fd, &port, &loopback, err));
    if (o->n_keys == 0 && !loopback)
        vb__log(VB_LOG_WARN, "server", "listening beyond this machine without a key: everyone who reaches %s may ask (--api-key-file)", o->host);
    name_things(s, port);
    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 0};
    if (s->epoll < 0 || signals < 0 || epoll_ctl(s->epoll, EPOLL_CTL_ADD, signals, &ev) != 0) {
        e = vb__fail(err, VB_E_MEMORY, "server: no file descriptors left");
        goto out;
    }
    const vb_async_options ao = {.queue = o->queue, .trace_path = o->trace_path};
    VB_TRY_OUT(vb_async_start(m, &ao, &s->async, err));
    if (pthread_create(&preparer, NULL, vb__prepare_thread, s) != 0) {
        e = vb__fail(err, VB_E_MEMORY, "server: a thread could not be started");
        goto out;
    }
    preparing = true;
    VB_TRY_OUT(vb__http_start(s, listen_fd, err));
    listen_fd = -1; /* libmicrohttpd's now */
    if (o->ready != NULL) o->ready(o->user, s->url);
    main_loop(s, signals);
    each_job(s, abandon_job); /* a body that is complete only now must not suspend its connection any more: libmicrohttpd aborts on one that is */
out:
    if (s->http != NULL) MHD_stop_daemon(s->http);
    pthread_mutex_lock(&s->lock);
    s->stop = true;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    if (preparing) (void)pthread_join(preparer, NULL);
    vb_async_stop(s->async);
    if (listen_fd >= 0) (void)close(listen_fd);
    if (signals >= 0) (void)close(signals);
    if (s->epoll >= 0) (void)close(s->epoll);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    vb__free(s);
    return e;
}
