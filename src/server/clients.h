/* Connections and how long each of them may keep us waiting: for a request, for its body, and for taking its answer. libmicrohttpd's own
 * timeout is about silence only, so that a byte now and then would hold one of VB_LIMIT_CONNECTIONS for ever. Any thread may call. */
#ifndef VB_SERVER_CLIENTS_H
#define VB_SERVER_CLIENTS_H
#include "base/limits.h"
#include "server/job.h"

enum {
    VB_CLIENT_RATE = 16 << 10,                        /* bytes per second that a body must come at, and an answer be taken at, in the long run */
    VB_CLIENTS_FREE = VB_LIMIT_CONNECTIONS / 8,       /* connections that are kept free for who asks at once */
    VB_CLIENTS_CROWDED_S = 2                          /* what everybody may keep us waiting when there are fewer */
};

/* An accepted connection; the request's headers are awaited. NULL: out of memory; then it has only libmicrohttpd's limit. */
vb__client *vb__client_add(vb__server *s, int fd);
/* Before the socket is closed. NULL is allowed here and below. */
void vb__client_remove(vb__server *s, vb__client *k);

/* From now on a request's headers, or its body, are awaited: the client has --client-timeout for them. */
void vb__client_awaited(vb__server *s, vb__client *k);
/* n bytes of a body came. */
void vb__client_sent(vb__server *s, vb__client *k, size_t n);
/* The request is complete: from now on the client must only take its answer. */
void vb__client_answered(vb__server *s, vb__client *k);

/* libmicrohttpd is about to close it after --client-timeout without a byte in either direction. */
void vb__client_silent(vb__client *k);

/* Closes (shuts down, which libmicrohttpd sees) connections whose time is over, and, when few are free, those that have kept us waiting longest. To
 * be called some times a second. */
void vb__clients_look(vb__server *s, double now);

#endif
