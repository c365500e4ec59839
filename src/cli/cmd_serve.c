/* verbatim serve: the HTTP server over one model. */
#include "base/file.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/report.h"
#include "server/server.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS_MAX = 256, KEY_FILE_BYTES = 64 << 10 };

typedef struct values {
    vb__model_values model;
    const char *host, *api_key, *api_key_file, *alias, *trace;
    vb__opt_int port, parallel, queue, kv_pages, client_timeout;
    vb__opt_list cors, hosts;
    bool verbose;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_server_opts[] = {
    {"host", 0, VB_OPT_STRING, "HOST", AT(host), 0, 0, "VERBATIM_HOST", "Name or address to listen at; default 127.0.0.1, this machine only"},
    {"port", 'p', VB_OPT_INT, "N", AT(port), 0, 65535, "VERBATIM_PORT", "Port to listen at; default 8080, 0 is any free one"},
    {"parallel", 0, VB_OPT_INT, "N", AT(parallel), 1, 256, "VERBATIM_PARALLEL", "Requests that run at one time; default 4"},
    {"queue", 0, VB_OPT_INT, "N", AT(queue), 0, 1 << 20, "VERBATIM_QUEUE",
     "Requests that may wait for their turn; beyond them the answer is 429. Default 128"},
    {"kv-pages", 0, VB_OPT_INT, "N", AT(kv_pages), 1, VB_LIMIT_KV_PAGES, "VERBATIM_KV_PAGES",
     "KV pages of 64 tokens that all requests share; by default what they could want, as memory allows"},
    {"client-timeout", 0, VB_OPT_INT, "S", AT(client_timeout), 1, 3600, "VERBATIM_CLIENT_TIMEOUT",
     "Seconds that a client may keep a connection waiting: for a request, for its body, for taking its answer. Default 75"},
    {"alias", 0, VB_OPT_STRING, "NAME", AT(alias), 0, 0, "VERBATIM_ALIAS", "The model's name in answers; default the last part of its path"},
    {"trace", 0, VB_OPT_STRING, "FILE", AT(trace), 0, 0, "VERBATIM_TRACE", "Record every finished answer, for verbatim replay"},
    {0}};
static const vb__opt g_access_opts[] = {
    {"api-key", 0, VB_OPT_STRING, "KEY", AT(api_key), 0, 0, "VERBATIM_API_KEY",
     "Ask for this key. On the command line everyone on this machine can see it: better the environment variable or a file"},
    {"api-key-file", 0, VB_OPT_STRING, "FILE", AT(api_key_file), 0, 0, "VERBATIM_API_KEY_FILE", "Ask for one of the keys in FILE, one a line"},
    {"cors", 0, VB_OPT_LIST, "ORIGIN", AT(cors), 0, 0, "VERBATIM_CORS",
     "A web page's origin that may ask, such as http://localhost:3000. '*' is any, and needs a key"},
    {"allowed-host", 0, VB_OPT_LIST, "NAME", AT(hosts), 0, 0, "VERBATIM_ALLOWED_HOST",
     "A name that this server is reached by, beside addresses and localhost"},
    {0}};
static const vb__opt g_output_opts[] = {{"verbose", 'v', VB_OPT_FLAG, NULL, AT(verbose), 0, 0, "VERBATIM_VERBOSE", "More log lines on standard error"}, {0}};
#undef AT

static void ready(void *user, const char *url) {
    const values *v = user;
    printf("Listening at %s\n\n  curl %s/v1/chat/completions%s \\\n    -H 'Content-Type: application/json' \\\n"
           "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Count from one to ten.\"}]}'\n\n", url, url,
           v->api_key != NULL || v->api_key_file != NULL ? " \\\n    -H \"Authorization: Bearer $VERBATIM_API_KEY\"" : "");
    (void)fflush(stdout);
}

/* Keys of the option and of the file, one a line; blank lines are skipped. Borrowed from text and the options. */
static vb_err read_keys(const values *v, vb__buffer *text, const char **keys, int32_t *n, vb_error *err) {
    *n = 0;
    if (v->api_key != NULL) {
        if (v->api_key[0] == '\0') return vb__fail(err, VB_E_ARGUMENT, "--api-key: is empty, expected a key");
        keys[(*n)++] = v->api_key;
    }
    const char *set = getenv("VERBATIM_API_KEY");
    if (*n == 0 && v->api_key_file == NULL && set != NULL) /* who sets it wants a key: an empty one must not open the door */
        return vb__fail(err, VB_E_ARGUMENT, "VERBATIM_API_KEY: is empty, expected a key, or not to be set");
    if (v->api_key_file == NULL) return VB_OK;
    VB_TRY(vb__file_read(v->api_key_file, KEY_FILE_BYTES, text, err));
    if (memchr(text->data, '\0', text->len) != NULL)
        return vb__fail(err, VB_E_FORMAT, "%s: holds a NUL, expected one key a line", v->api_key_file);
    VB_TRY(vb__buffer_putc(text, '\n'));
    int32_t before = *n;
    for (char *line = text->data, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        *end = '\0';
        while (*line == ' ' || *line == '\t') line++;
        size_t len = strlen(line);
        while (len > 0 && strchr(" \t\r", line[len - 1]) != NULL) line[--len] = '\0';
        if (len == 0) continue;
        if (*n == KEYS_MAX) return vb__fail(err, VB_E_LIMIT, "%s: more than %d keys", v->api_key_file, KEYS_MAX);
        keys[(*n)++] = line;
    }
    if (*n == before) return vb__fail(err, VB_E_FORMAT, "%s: holds no key, expected one a line", v->api_key_file);
    return VB_OK;
}

static int run(void *values_, const char *const *positional, int n_positional) {
    values *v = values_;
    vb_error err = {0};
    vb_model_options mo;
    vb__serve_options so;
    vb_model *m = NULL;
    vb__buffer text;
    const char *keys[KEYS_MAX];
    char *path = NULL;
    vb_err e;
    (void)positional, (void)n_positional;
    vb__output_start(v->verbose);
    vb__buffer_init(&text, KEY_FILE_BYTES + 2);
    vb__serve_options_init(&so);
    VB_TRY_OUT(read_keys(v, &text, keys, &so.n_keys, &err));
    so.keys = keys;
    if (v->host) so.host = v->host;
    if (v->port.set) so.port = (int32_t)v->port.v;
    if (v->queue.set) so.queue = (int32_t)v->queue.v;
    if (v->client_timeout.set) so.client_timeout_s = (int32_t)v->client_timeout.v;
    so.alias = v->alias;
    so.trace_path = v->trace;
    so.origins = v->cors.v;
    so.n_origins = v->cors.n;
    so.hosts = v->hosts.v;
    so.n_hosts = v->hosts.n;
    so.ready = ready;
    so.user = v;
    if (v->trace) VB_TRY_OUT(vb_trace_check(v->trace, &err));
    VB_TRY_OUT(vb__model_options_from(&v->model, &mo, &path, &err));
    mo.parallel = v->parallel.set ? (int32_t)v->parallel.v : 4;
    if (v->kv_pages.set) mo.kv_pages = v->kv_pages.v;
    VB_TRY_OUT(vb_model_open(&mo, &m, &err));
    vb__cli_progress_clear();
    vb__log_set(NULL, NULL, vb__log_get_level()); /* from here on with the time in front: nobody watches a server's log as it comes */
    e = vb__serve(m, &so, &err);
out:
    vb__cli_progress_clear();
    vb_model_close(m);
    vb__buffer_fini(&text);
    vb__free(path);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

const vb__command vb__cmd_serve = {
    .name = "serve",
    .synopsis = "[options]",
    .summary = "Serve the OpenAI interface over HTTP",
    .text = "Serves one model: chat completions, completions, and what goes with them, streamed or not, for many clients at a time. "
            "An answer does not depend on what else the server does. SIGTERM lets requests end; a second one cancels them.\n\n"
            "Nobody but this machine can ask unless --host says otherwise; then use a key.",
    .examples = "  verbatim serve -m ./my-model\n  verbatim serve --host 0.0.0.0 --api-key-file keys --parallel 8 --ctx 16384\n",
    .groups = {{"Server", g_server_opts, 0},
               {"Who may ask", g_access_opts, 0},
               {"Model", vb__model_opts, offsetof(values, model)},
               {"Output", g_output_opts, 0}},
    .values_size = sizeof(values),
    .run = run,
};
