/* The HTTP server over one model. Speaks the OpenAI interface; docs/api.md says what of it. */
#ifndef VB_SERVER_SERVER_H
#define VB_SERVER_SERVER_H
#include "verbatim/verbatim.h"

typedef struct vb__serve_options {
    const char *host;            /* name or address to listen at */
    int32_t port;                /* 0: any free one */
    int32_t queue;               /* requests that may wait for a slot */
    const char *alias;           /* the model's name in answers; NULL: the last part of its path */
    const char *const *keys;     /* [n_keys] any of them opens; none: no key needed */
    int32_t n_keys;
    const char *const *origins;  /* [n_origins] --cors; "*": any */
    int32_t n_origins;
    const char *const *hosts;    /* [n_hosts] --allowed-host */
    int32_t n_hosts;
    const char *trace_path;      /* NULL */
    int32_t drain_s;             /* after the first SIGTERM requests may take this long to end */
    int32_t client_timeout_s;    /* that a client may keep a connection waiting: for a request, its body, taking the answer */
    /* Told once when connections are accepted, with the URL; NULL. */
    void (*ready)(void *user, const char *url);
    void *user;
} vb__serve_options;

void vb__serve_options_init(vb__serve_options *o); /* 127.0.0.1, 8080, queue 128, drain 30, client timeout 75 */

/* Serves until SIGTERM or SIGINT, then lets requests end (a second signal cancels them). Call it before other threads
 * exist that should not get signals: it blocks SIGTERM, SIGINT and SIGPIPE in this thread and those made from it. The caller opened
 * and closes the model. VB_E_ARGUMENT, VB_E_IO (a port in use is named), VB_E_MEMORY. */
VB_MUST_USE vb_err vb__serve(vb_model *m, const vb__serve_options *o, vb_error *err);

#endif
