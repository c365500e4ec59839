/* Option groups that several commands share. See groups.h. */
#include "cli/groups.h"
#include "base/buffer.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/report.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AT(f) offsetof(vb__model_values, f)
const vb__opt vb__model_opts[] = {
    {"model", 'm', VB_OPT_STRING, "MODEL", AT(model), 0, 0, "VERBATIM_MODEL",
     "A model folder, a GGUF file, or owner/name in the model store; without it, the embedded model"},
    {"threads", 't', VB_OPT_INT, "N", AT(threads), 1, 1024, "VERBATIM_THREADS",
     "Exactly N threads, also above the number of cores; by default one per core that the process may use"},
    {"ctx", 'c', VB_OPT_INT, "N", AT(ctx), 1, VB_LIMIT_CONTEXT, "VERBATIM_CTX",
     "Context length in tokens; may exceed the trained length, with a warning. Default: the trained length, "
     "or what fits"},
    {"prefill-chunk", 0, VB_OPT_INT, "N", AT(prefill_chunk), 0, VB_LIMIT_CONTEXT, "VERBATIM_PREFILL_CHUNK",
     "Rows of one prefill step; 0 is the default, more than the prompt means all of it. Never changes the "
     "result"},
    {"activations", 0, VB_OPT_CHOICE, "8|16", AT(activations), 0, 0, "VERBATIM_ACTIVATIONS",
     "Bits of the activations in quantised layers; default 8. 16 is closer to the model and twice the "
     "integer work"},
    {"no-head-chunk", 0, VB_OPT_FLAG, NULL, AT(no_head_chunk), 0, 0, "VERBATIM_NO_HEAD_CHUNK",
     "Turn the head-chunk plan of attention off. Never changes the result"},
    {"chat-template", 0, VB_OPT_STRING, "FILE", AT(chat_template), 0, 0, "VERBATIM_CHAT_TEMPLATE",
     "A file that replaces the model's chat template"},
    {"draft", 0, VB_OPT_STRING, "KIND", AT(draft), 0, 0, "VERBATIM_DRAFT",
     "Speculation: auto|none|lookup|mtp|dflash[:PATH]|model:PATH; default auto. Never changes the result"},
    {"draft-width", 0, VB_OPT_AUTO, "N|auto", AT(draft_width), 1, VB_LIMIT_DRAFT_WIDTH,
     "VERBATIM_DRAFT_WIDTH", "Rows of a verify block, 1 to 16; 1 drafts nothing. Default auto"},
    {0}};
#undef AT

#define AT(f) offsetof(vb__sampling_values, f)
const vb__opt vb__sampling_opts[] = {
    {"greedy", 0, VB_OPT_ZERO, NULL, AT(temperature), 0, 0, NULL, "Always the most likely token: --temp 0"},
    {"temp", 0, VB_OPT_NUMBER, "T", AT(temperature), 0, 100, NULL, "Temperature; 0 is greedy"},
    {"top-k", 0, VB_OPT_INT, "N", AT(top_k), INT32_MIN, INT32_MAX, NULL,
     "Only the N most likely tokens; 0 or less is off"},
    {"top-p", 0, VB_OPT_NUMBER, "P", AT(top_p), 0, 1, NULL,
     "Only the most likely tokens that together reach probability P; 1 is off"},
    {"min-p", 0, VB_OPT_NUMBER, "P", AT(min_p), 0, 1, NULL,
     "Only tokens at least P times as likely as the best; 0 is off"},
    {"repeat-penalty", 0, VB_OPT_NUMBER, "R", AT(repeat_penalty), 0, 100, NULL,
     "Divides positive logits of tokens in prompt and answer by R (multiplies negative ones); 1 is off"},
    {"presence-penalty", 0, VB_OPT_NUMBER, "P", AT(presence_penalty), -100, 100, NULL,
     "Subtracted from logits of tokens in the answer; 0 is off"},
    {"frequency-penalty", 0, VB_OPT_NUMBER, "P", AT(frequency_penalty), -100, 100, NULL,
     "Subtracted once per occurrence in the answer; 0 is off"},
    {"seed", 0, VB_OPT_INT, "N", AT(seed), 0, INT64_MAX, NULL,
     "The same seed gives the same answer; without it one is drawn and reported"},
    {0}};
#undef AT

#define AT(f) offsetof(vb__output_values, f)
const vb__opt vb__output_opts[] = {{"json", 0, VB_OPT_FLAG, NULL, AT(json), 0, 0, NULL,
                                    "Print one JSON object on standard output, or nothing on an error"},
                                   {"verbose", 'v', VB_OPT_FLAG, NULL, AT(verbose), 0, 0, "VERBATIM_VERBOSE",
                                    "More log lines on standard error"},
                                   {0}};
#undef AT

vb_err vb__model_options_from(const vb__model_values *v, vb_model_options *o, char **path, vb_error *err) {
    vb_model_options_init(o);
    VB_TRY(vb__model_path(v->model, path, err));
    o->path = *path;
    if (v->threads.set) o->threads = (int32_t)v->threads.v;
    if (v->ctx.set) o->ctx = v->ctx.v;
    if (v->prefill_chunk.set) o->prefill_chunk = (int32_t)v->prefill_chunk.v;
    if (v->activations) o->activations = atoi(v->activations);
    o->head_chunk = !v->no_head_chunk;
    o->chat_template = v->chat_template;
    if (v->draft) o->draft = v->draft;
    if (v->draft_width.set) o->draft_width = (int32_t)v->draft_width.v;
    o->progress = vb__cli_progress;
    return VB_OK;
}

void vb__output_start(bool verbose) {
    vb__cli_log_start(verbose ? 0 : 1);
}

static void put(vb_sampling *s, uint32_t bit, const vb__opt_number *n, float *out) {
    if (!n->set) return;
    *out = (float)n->v;
    s->set |= bit;
}

vb_sampling vb__sampling_from(const vb__sampling_values *v) {
    vb_sampling s = {0};
    put(&s, VB_SET_TEMPERATURE, &v->temperature, &s.temperature);
    put(&s, VB_SET_TOP_P, &v->top_p, &s.top_p);
    put(&s, VB_SET_MIN_P, &v->min_p, &s.min_p);
    put(&s, VB_SET_REPEAT_PENALTY, &v->repeat_penalty, &s.repeat_penalty);
    put(&s, VB_SET_PRESENCE_PENALTY, &v->presence_penalty, &s.presence_penalty);
    put(&s, VB_SET_FREQUENCY_PENALTY, &v->frequency_penalty, &s.frequency_penalty);
    if (v->top_k.set) {
        s.top_k = (int32_t)v->top_k.v;
        s.set |= VB_SET_TOP_K;
    }
    if (v->seed.set) {
        s.seed = (uint64_t)v->seed.v;
        s.set |= VB_SET_SEED;
    }
    return s;
}

vb_err vb__stops_from(const vb__opt_list *stops, vb_request *q, vb_error *err) {
    for (int i = 0; i < stops->n; i++) {
        if (!*stops->v[i]) return vb__fail(err, VB_E_ARGUMENT, "--stop: is empty, expected some text");
        q->stops[q->n_stops++] = stops->v[i];
    }
    return VB_OK;
}

/* ---- Where models are -----------------------------------------------------------------------------------
 */

static bool exists(const char *path) {
    return access(path, F_OK) == 0;
}

/* "owner/name": two plain names with one slash between them. */
static bool store_name(const char *s) {
    const char *slash = strchr(s, '/');
    if (!slash || slash == s || slash[1] == '\0' || strchr(slash + 1, '/')) return false;
    char owner[256];
    if ((size_t)(slash - s) >= sizeof owner) return false;
    memcpy(owner, s, (size_t)(slash - s));
    owner[slash - s] = '\0';
    return vb__path_plain_name(owner) && vb__path_plain_name(slash + 1);
}

static char *in_store(const char *name) {
    vb__buffer b;
    vb__buffer_init(&b, 2 * PATH_MAX);
    const char *home = getenv("VERBATIM_HOME"), *cache = getenv("XDG_CACHE_HOME"), *user = getenv("HOME");
    if (home && *home) vb__buffer_printf(&b, "%s/models/%s", home, name);
    else if (cache && *cache) vb__buffer_printf(&b, "%s/verbatim/models/%s", cache, name);
    else vb__buffer_printf(&b, "%s/.cache/verbatim/models/%s", user ? user : "", name);
    return vb__buffer_take(&b);
}

static char *embedded(void) {
    static const char *const places[] = {"../share/verbatim/models/atto", "../models/atto"};
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n > 0) {
        exe[n] = '\0';
        char *slash = strrchr(exe, '/');
        if (slash) *slash = '\0';
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            char *path = vb__path_join(exe, places[i]), whole[PATH_MAX];
            bool found = path && realpath(path, whole);
            vb__free(path);
            if (found) return vb__strdup(VB_TAG_MISC, whole);
        }
    }
    return vb__strdup(VB_TAG_MISC, VB_SOURCE_ROOT "/models/atto");
}

vb_err vb__model_path(const char *name, char **out, vb_error *err) {
    char *path;
    if (!name) {
        path = embedded();
        if (path && !exists(path)) {
            vb__free(path);
            return vb__fail(err, VB_E_NOT_FOUND,
                            "model: the embedded model is not installed, expected -m MODEL");
        }
    } else if (!*name) {
        return vb__fail(err, VB_E_ARGUMENT, "--model: is empty, expected a folder or owner/name");
    } else if (!exists(name) && store_name(name)) {
        path = in_store(name);
        if (path && !exists(path)) {
            vb__free(path);
            return vb__fail(err, VB_E_NOT_FOUND,
                            "%.120s: no such folder, nor in the model store, expected a model", name);
        }
    } else if (!exists(name)) {
        return vb__fail(err, VB_E_NOT_FOUND,
                        "%s: %s, expected a model folder, a GGUF file or owner/name in the model store", name,
                        strerror(errno));
    } else {
        path = vb__strdup(VB_TAG_MISC, name);
    }
    if (!path) return vb__fail(err, VB_E_MEMORY, "model: out of memory");
    *out = path;
    return VB_OK;
}
