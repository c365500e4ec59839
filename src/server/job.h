/* A request from its first header to its log line, and the server that it belongs to. docs/internals/connections.md tells the story.
 *
 * Threads: the HTTP thread (libmicrohttpd's), the preparing thread (parses, renders, tokenizes), the model's thread (tokens come from
 * it) and the main thread (signals, clients that went away, heartbeats). A job is reference-counted: one reference for
 * the connection, one for the response that reads from it, one for being prepared, one per call on the model.
 * Lock order: server.lock, then job.lock, then the locks of libmicrohttpd and of vb_async. */
#ifndef VB_SERVER_JOB_H
#define VB_SERVER_JOB_H
#include "server/gen_request.h"
#include "server/metrics.h"
#include "server/server.h"
#include <pthread.h>

struct MHD_Connection;
struct MHD_Daemon;

typedef enum vb__route_id {
    VB_ROUTE_NONE,
    VB_ROUTE_ROOT,
    VB_ROUTE_HEALTH,
    VB_ROUTE_METRICS,
    VB_ROUTE_SLOTS,
    VB_ROUTE_MODELS,
    VB_ROUTE_MODEL,
    VB_ROUTE_CHAT,
    VB_ROUTE_COMPLETIONS,
    VB_ROUTE_TOKENIZE,
    VB_ROUTE_DETOKENIZE,
    VB_ROUTE_APPLY_TEMPLATE
} vb__route_id;

typedef enum vb__job_state {
    VB_JOB_BODY,    /* its body is being read */
    VB_JOB_PREPARE, /* with the preparing thread, or waiting for it */
    VB_JOB_RUN,     /* on the model, or (left 0) to be written; the answer comes as a whole */
    VB_JOB_STREAM,  /* on the model; the answer comes in pieces */
    VB_JOB_READY    /* status and out are the response */
} vb__job_state;

/* One answer in the making: choice `choice` of prompt `prompt`. */
typedef struct vb__run {
    struct vb__job *job;
    int32_t index, prompt; /* index in the answer's choices */
    vb_call *call;
    size_t sent;           /* bytes of text streamed */
    int64_t chars;         /* code points of the tokens so far (text_offset of completions) */
    int32_t tokens;        /* so far */
    double first, last;    /* when tokens came, 0: not yet */
    bool done, failed;
    vb_result result;      /* when done and not failed */
    vb_error error;
} vb__run;

struct vb__server;

typedef struct vb__job {
    struct vb__server *server;
    struct vb__job *next, *prev;  /* in server.jobs; server.lock */
    struct vb__job *next_prepare; /* server.lock */
    uint64_t serial;
    char id[32];                  /* 24 hexadecimal digits */
    vb__route_id route;
    int32_t path_at;              /* bytes of the URL in front of the path: 0 but for an absolute one */
    struct MHD_Connection *conn;  /* valid until gone */
    int fd;
    bool watched;                 /* HTTP thread: fd is in the server's epoll set */
    double received;
    int64_t created;              /* seconds since 1970 */
    char origin[256];             /* of a page that may read the answer; "" */
    size_t counted;               /* bytes of the body that server.body_bytes counts */
    size_t excess;                /* bytes read only to be thrown away */
    bool too_large, crowded;      /* its body, all bodies together: more than is allowed */

    pthread_mutex_t lock;         /* guards what follows */
    int32_t refs;
    vb__job_state state;
    bool suspended, gone;
    bool left_early;              /* the client went away, or stopped reading, before its answer's end */
    vb__buffer body;
    /* response */
    int status;
    int32_t retry_after;
    const char *extra, *extra_value; /* a header more; static strings */
    const char *content_type;
    vb__buffer out;               /* STREAM: bytes from out_at on wait to be read */
    size_t out_at;
    bool stream_end;              /* nothing more will be added to out */
    double last_event;            /* when out last grew; BODY: when the last of it came */
    /* generation */
    vb__gen gen;
    vb__run *runs;
    int32_t n_runs, left;         /* runs that are not done */
    uint64_t seed;
    bool has_seed;
} vb__job;

/* A connection, from being accepted to being closed. */
typedef struct vb__client {
    struct vb__client *next, *prev; /* in server.clients */
    int fd;
    double slow_at;   /* when to close it because its request is not complete; 0: it is */
    double unread_at; /* when to close it because its answer is not taken; 0: nothing waits for that */
    uint64_t acked;   /* bytes that its side of the connection had acknowledged then */
    bool ended;       /* its end was seen, and what stood before it is read */
    bool closed;      /* by us; libmicrohttpd will see it */
} vb__client;

typedef struct vb__server {
    vb_model *model;
    vb_model_info info;
    const vb__serve_options *o;
    vb_async *async;
    struct MHD_Daemon *http;
    int epoll;                    /* clients that may go away; signals */
    char name[128];               /* of the model in answers */
    char system_fingerprint[48];
    int64_t started;              /* seconds since 1970 */
    char url[300];
    vb__metrics metrics;
    atomic_ullong body_bytes;     /* of bodies in memory */
    atomic_bool draining;
    pthread_mutex_t lock;         /* guards what follows */
    pthread_cond_t wake;
    vb__client *clients;          /* and what they point to */
    vb__job *jobs;
    int32_t n_jobs;
    uint64_t serial;
    vb__job *prepare, **prepare_tail;
    bool stop;
} vb__server;

/* ---- job.c ---- */
vb__job *vb__job_create(vb__server *s); /* NULL: out of memory. One reference, the caller's */
void vb__job_ref(vb__job *j);
void vb__job_unref(vb__job *j);         /* the last one logs the request and frees it */
/* The response is complete: lets the HTTP thread go on. With the lock held. */
void vb__job_ready_locked(vb__job *j, int status, const char *content_type);
void vb__job_wake_locked(vb__job *j);
/* An error as the response, or within a stream that began. param and code may be NULL. */
void vb__job_error(vb__job *j, int status, const char *type, const char *param, const char *code, const char *message);
void vb__job_fail(vb__job *j, const vb_error *err); /* status and field from the error */
/* The client is gone, or the server stops: ends what runs. Any thread. */
void vb__job_cancel(vb__job *j, bool gone);
void vb__job_left(vb__job *j);          /* the client is seen to be gone; the caller cancels */
/* Callbacks of the model's thread; user is a vb__run. */
void vb__run_on_token(void *user, const vb_token_event *t);
void vb__run_on_done(void *user, vb_result *r, const vb_error *err);
bool vb__job_is_long(const vb__job *j); /* all runs are done: writing the answer takes more than a moment */
void vb__job_heartbeat(vb__job *j, double now);

/* ---- prepare.c ---- */
void *vb__prepare_thread(void *server);
/* Takes a reference of its own. In state PREPARE: the body is read; RUN: the answer is written. */
void vb__prepare_push(vb__job *j);

/* ---- answer_json.c ---- */
void vb__answer_error(vb__buffer *b, const char *type, const char *param, const char *code, const char *message);
void vb__answer_whole(vb__job *j, vb__buffer *b);                    /* all runs are done */
void vb__chunk_first(const vb__job *j, const vb__run *r, vb__buffer *b);  /* role, or empty text */
void vb__chunk_empty(const vb__job *j, const vb__run *r, vb__buffer *b);  /* heartbeat */
void vb__chunk_token(vb__job *j, vb__run *r, const vb_token_event *t, vb__buffer *b);
void vb__chunk_last(vb__job *j, vb__run *r, vb__buffer *b);
void vb__chunk_usage(const vb__job *j, vb__buffer *b);
void vb__models_json(const vb__server *s, const char *only, vb__buffer *b); /* only: one model's object under that id */

/* ---- http.c ---- */
VB_MUST_USE vb_err vb__http_start(vb__server *s, int listen_fd, vb_error *err);
const char *vb__route_name(vb__route_id r);

#endif
