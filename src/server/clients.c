#include "server/clients.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

enum { UNSENT_BYTES = 32 << 10 };

vb__client *vb__client_add(vb__server *s, int fd) {
    vb__client *k = vb__calloc(VB_TAG_SERVER, 1, sizeof *k);
    if (k == NULL) return NULL;
    k->fd = fd;
    /* What the kernel takes of an answer beyond what it can send: with the megabytes that it takes by default, libmicrohttpd would see nothing move
     * for minutes while a slow client reads. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &(int){UNSENT_BYTES}, sizeof(int));
    k->slow_at = vb__now() + s->o->client_timeout_s;
    pthread_mutex_lock(&s->lock);
    k->next = s->clients;
    if (s->clients != NULL) s->clients->prev = k;
    s->clients = k;
    pthread_mutex_unlock(&s->lock);
    return k;
}

void vb__client_remove(vb__server *s, vb__client *k) {
    if (k == NULL) return;
    pthread_mutex_lock(&s->lock);
    if (k->prev != NULL) k->prev->next = k->next;
    else s->clients = k->next;
    if (k->next != NULL) k->next->prev = k->prev;
    pthread_mutex_unlock(&s->lock);
    vb__free(k);
}

static void set(vb__server *s, vb__client *k, double slow_at) {
    if (k == NULL) return;
    pthread_mutex_lock(&s->lock);
    k->slow_at = slow_at;
    k->ended = false;
    pthread_mutex_unlock(&s->lock);
}

void vb__client_awaited(vb__server *s, vb__client *k) { set(s, k, vb__now() + s->o->client_timeout_s); }

void vb__client_answered(vb__server *s, vb__client *k) { set(s, k, 0); }

void vb__client_sent(vb__server *s, vb__client *k, size_t n) {
    if (k == NULL) return;
    pthread_mutex_lock(&s->lock);
    k->slow_at += (double)n / VB_CLIENT_RATE;
    k->ended = false;
    pthread_mutex_unlock(&s->lock);
}

/* Else the kernel would keep what is left for as long as the client reads a byte now and then. */
static void reset_at_close(const vb__client *k) {
    (void)setsockopt(k->fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
}

void vb__client_silent(vb__client *k) {
    if (k != NULL) reset_at_close(k);
}

static void close_one(vb__client *k) {
    k->closed = true;
    (void)shutdown(k->fd, SHUT_RDWR);
}

/* A client's end in the middle of a request: libmicrohttpd overlooks one that came together with bytes (see peer_ended in http.c). Seen twice,
 * because it may be at work on the last of them. */
static bool has_ended(vb__client *k) {
    char byte;
    bool before = k->ended;
    k->ended = recv(k->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
    return before && k->ended;
}

/* While the kernel holds bytes that it may not even send, the client has no room for them: what it acknowledges is what it reads. (Bytes
 * that are sent and not acknowledged say nothing: a distant client of a stream always has some.) */
static bool reads_slowly(const vb__server *s, vb__client *k, double now) {
    struct tcp_info t;
    socklen_t n = sizeof t;
    if (getsockopt(k->fd, IPPROTO_TCP, TCP_INFO, &t, &n) != 0 || n < offsetof(struct tcp_info, tcpi_notsent_bytes) + sizeof t.tcpi_notsent_bytes) return false;
    if (t.tcpi_notsent_bytes == 0) {
        k->unread_at = 0;
        return false;
    }
    if (k->unread_at <= 0) k->unread_at = now + s->o->client_timeout_s;
    else k->unread_at += (double)(t.tcpi_bytes_acked - k->acked) / VB_CLIENT_RATE;
    k->acked = t.tcpi_bytes_acked;
    return now > k->unread_at;
}

/* The client that has kept us waiting longest for a request or a body, what came of it taken into account, and for so long that who asks at once
 * has asked by now. */
static vb__client *longest_awaited(const vb__server *s, double now) {
    vb__client *longest = NULL;
    for (vb__client *k = s->clients; k != NULL; k = k->next)
        if (!k->closed && k->slow_at > 0 && k->slow_at - s->o->client_timeout_s < now - VB_CLIENTS_CROWDED_S && (longest == NULL || k->slow_at < longest->slow_at))
            longest = k;
    return longest;
}

void vb__clients_look(vb__server *s, double now) {
    int32_t unread = 0, open = 0, idle = 0;
    vb__client *k;
    pthread_mutex_lock(&s->lock);
    for (k = s->clients; k != NULL; k = k->next) {
        if (k->closed) continue;
        open++;
        if (k->slow_at > 0) {
            if (has_ended(k) || now > k->slow_at) close_one(k);
        } else if (reads_slowly(s, k, now)) {
            reset_at_close(k);
            close_one(k);
            unread++;
        }
    }
    for (; open > VB_LIMIT_CONNECTIONS - VB_CLIENTS_FREE && (k = longest_awaited(s, now)) != NULL; open--, idle++) close_one(k);
    pthread_mutex_unlock(&s->lock);
    if (idle > 0) vb__log(VB_LOG_WARN, "server", "%d idle connections closed: %d of %d are left", idle, open, (int)VB_LIMIT_CONNECTIONS);
    if (unread > 0) vb__log(VB_LOG_WARN, "server", "%d connections closed: their clients did not take their answers", unread);
}
