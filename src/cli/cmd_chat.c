/* verbatim chat: a conversation in the terminal. */
#include "base/error.h"
#include "cli/commands.h"
#include "cli/groups.h"
#include "cli/prompt.h"
#include "cli/report.h"
#include <editline/readline.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct values {
    vb__model_values model;
    vb__sampling_values sampling;
    vb__output_values output;
    const char *system;
    vb__opt_int max_tokens;
    vb__opt_list stops;
} values;

#define AT(f) offsetof(values, f)
static const vb__opt g_chat_opts[] = {
    {"system", 0, VB_OPT_STRING, "TEXT", AT(system), 0, 0, NULL, "The system message"},
    {"max-tokens", 'n', VB_OPT_INT, "N", AT(max_tokens), 1, 1 << 24, NULL,
     "At most N tokens an answer. Default: up to the context's end"},
    {"stop", 0, VB_OPT_LIST, "TEXT", AT(stops), 0, VB_MAX_STOPS, NULL, "End the answer before TEXT"},
    {0}};
static const vb__opt g_verbose_opts[] = {{"verbose", 'v', VB_OPT_FLAG, NULL, AT(output.verbose), 0, 0,
                                          "VERBATIM_VERBOSE", "More log lines on standard error"},
                                         {0}};
#undef AT

static volatile sig_atomic_t g_interrupted;

static void on_interrupt(int sig) {
    (void)sig;
    g_interrupted = 1;
}

/* Writing goes on behind a Ctrl-C, waiting for a line does not: the line editor takes its own handler away at the first one,
 * and where that came before it waited only a later one ends the wait. */
static void watch_interrupts(bool restart) {
    struct sigaction sa = {.sa_handler = on_interrupt, .sa_flags = restart ? SA_RESTART : 0};
    (void)sigaction(SIGINT, &sa, NULL);
}

static bool on_text(void *user, const char *text, size_t len) {
    (void)user;
    vb__cli_progress_clear();
    return !g_interrupted && fwrite(text, 1, len, stdout) == len && fflush(stdout) == 0;
}

static bool on_progress(void *user, const char *phase, int64_t done, int64_t total) {
    return vb__cli_progress(user, phase, done, total) && !g_interrupted;
}

/* One line, with editing on a terminal; NULL at the end of input. The caller's (free). */
static char *read_line(bool terminal, const char *mark, size_t *len) {
    if (terminal) {
        watch_interrupts(false);
        char *line = readline(mark);
        watch_interrupts(true);
        if (line && *line) add_history(line);
        *len = line ? strlen(line) : 0;
        return line;
    }
    char *line = NULL;
    size_t cap = 0;
    ssize_t n = getline(&line, &cap, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    if (n > 0 && line[n - 1] == '\n') line[--n] = '\0';
    *len = (size_t)n;
    return line;
}

/* What the user says: a line, continued on the next where it ends with a backslash. False at the end of
 * input. */
static bool read_message(bool terminal, vb__buffer *out) {
    vb__buffer_clear(out);
    for (const char *mark = "> ", *again;; mark = again) {
        again = ". ";
        size_t n;
        g_interrupted = 0;
        char *line = read_line(terminal, mark, &n);
        if (!line && terminal && g_interrupted) { /* Ctrl-C: what was typed is dropped, the conversation goes on */
            fputc('\n', stdout);
            vb__buffer_clear(out);
            again = "> ";
            continue;
        }
        if (!line) return out->len > 0;
        bool more = n > 0 && line[n - 1] == '\\';
        (void)vb__buffer_append(out, line, more ? n - 1 : n);
        if (more) (void)vb__buffer_putc(out, '\n');
        free(line);
        if (!more) return true;
    }
}

static vb_err start(const values *v, json_t **messages, vb_error *err) {
    json_decref(*messages);
    *messages = json_array();
    if (!*messages) return vb__fail(err, VB_E_MEMORY, "messages: out of memory");
    return v->system ? vb__messages_add(*messages, "system", v->system, strlen(v->system), err) : VB_OK;
}

/* One answer to the messages so far; it is added to them. An interrupted answer is kept as far as it came. */
static vb_err answer(vb_model *m, const values *v, json_t *messages, vb_error *err) {
    vb_request q;
    vb_result r = {0};
    int32_t *ids = NULL, n = 0;
    char *json = json_dumps(messages, JSON_COMPACT);
    vb_err e = json ? VB_OK : vb__fail(err, VB_E_MEMORY, "messages: out of memory");
    if (e == VB_OK) e = vb_apply_template(m, json, NULL, NULL, true, NULL, &ids, &n, err);
    free(json);
    if (e != VB_OK) return e;
    vb_request_init(&q);
    q.prompt_ids = ids;
    q.prompt_count = n;
    q.max_tokens = v->max_tokens.set ? v->max_tokens.v : -1;
    e = vb__stops_from(&v->stops, &q, err);
    q.sampling = vb__sampling_from(&v->sampling);
    q.on_text = on_text;
    q.progress = on_progress;
    g_interrupted = 0;
    if (e == VB_OK) e = vb_generate(m, &q, &r, err);
    vb__cli_progress_clear();
    if (e == VB_OK) {
        fputs(r.finish == VB_FINISH_CANCELLED ? " [stopped]\n\n" : "\n\n", stdout);
        fflush(stdout);
        if (v->output.verbose)
            vb__cli_note("%d prompt tokens (%d kept), answer %d tokens, %.1f/s, seed %llu", n,
                         r.cached_tokens, r.count,
                         r.decode_s > 0 && r.count > 1 ? (r.count - 1) / r.decode_s : 0,
                         (unsigned long long)r.sampling.seed);
        e = vb__messages_add(messages, "assistant", r.text ? r.text : "", r.text_len, err);
        vb_result_fini(&r);
        if (e == VB_OK && ferror(stdout)) e = vb__fail(err, VB_E_IO, "standard output: could not be written");
    } else if (e == VB_E_CANCELLED) {
        fputs(" [stopped]\n\n", stdout);
        e = vb__messages_add(messages, "assistant", "", 0, err);
    }
    vb_ids_free(ids);
    return e;
}

static vb_err converse(vb_model *m, const values *v, vb_error *err) {
    bool terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
    json_t *messages = NULL;
    vb__buffer text;
    vb__buffer_init(&text, VB_LIMIT_PROMPT_BYTES);
    vb_err e = start(v, &messages, err);
    if (terminal) {
        using_history();
        printf(
            "Ctrl-C stops an answer, Ctrl-D ends; /reset begins anew; a line that ends with \\ goes on.\n\n");
    }
    while (e == VB_OK) {
        if (!read_message(terminal, &text)) break;
        if (text.error != VB_OK) {
            e = vb__fail(err, text.error, "message: longer than %d bytes, expected less",
                         (int)VB_LIMIT_PROMPT_BYTES);
            break;
        }
        const char *s = vb__buffer_str(&text);
        size_t before = json_array_size(messages);
        if (text.len == 0) continue;
        if (strcmp(s, "/exit") == 0 || strcmp(s, "/quit") == 0) break;
        if (strcmp(s, "/reset") == 0) {
            e = start(v, &messages, err);
            continue;
        }
        e = vb__messages_add(messages, "user", s, text.len, err);
        if (e == VB_OK) e = answer(m, v, messages, err);
        if ((e == VB_E_CONTEXT_FULL || e == VB_E_FORMAT) && terminal) {
            /* the conversation does not fit any more, or this is no text: say so, take the message back and go on */
            vb__cli_note("%s%s", err->text, e == VB_E_CONTEXT_FULL ? "; /reset begins anew" : "");
            while (json_array_size(messages) > before) json_array_remove(messages, before);
            e = VB_OK;
        }
    }
    if (e == VB_OK && !terminal && ferror(stdin))
        e = vb__fail(err, VB_E_IO, "standard input: cannot be read, expected lines");
    vb__buffer_fini(&text);
    json_decref(messages);
    return e;
}

static int run(void *values_, const char *const *positional, int n_positional) {
    const values *v = values_;
    (void)positional, (void)n_positional;
    vb_error err = {0};
    vb_model_options o;
    vb_model *m = NULL;
    char *path = NULL;
    vb__output_start(v->output.verbose);
    vb_request probe;
    vb_request_init(&probe);
    vb_err e = vb__stops_from(&v->stops, &probe, &err); /* before a model is loaded */
    if (e == VB_OK) e = vb__model_options_from(&v->model, &o, &path, &err);
    if (e == VB_OK) e = vb_model_open(&o, &m, &err);
    if (e == VB_OK) {
        vb_model_info info;
        vb_model_get_info(m, &info);
        if (info.has_tokenizer && !info.has_chat_template)
            e = vb__fail(&err, VB_E_NOT_FOUND,
                         "chat_template: the model has none, expected --chat-template FILE");
    }
    if (e == VB_OK) {
        watch_interrupts(true);
        e = converse(m, v, &err);
    }
    vb_model_close(m);
    vb__free(path);
    return e == VB_OK ? vb__cli_finish_stdout() : vb__cli_fail(&err);
}

const vb__command vb__cmd_chat = {
    .name = "chat",
    .synopsis = "[options]",
    .summary = "Talk with the model in the terminal",
    .text = "A conversation: what you type is a user message, and what came before stays in the context. "
            "Ctrl-C stops an answer, Ctrl-D or "
            "/exit ends, /reset begins anew, and a line that ends with a backslash goes on in the next. "
            "Without a terminal, each line of "
            "standard input is a message.",
    .examples = "  verbatim chat\n  verbatim chat -m owner/name --system \"Answer briefly.\" --temp 0.7\n",
    .groups = {{"Conversation", g_chat_opts, 0},
               {"Sampling", vb__sampling_opts, offsetof(values, sampling)},
               {"Model", vb__model_opts, offsetof(values, model)},
               {"Output", g_verbose_opts, 0}},
    .values_size = sizeof(values),
    .run = run,
};
