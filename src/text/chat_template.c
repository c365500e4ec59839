#include "text/chat_template.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* One compiled template and what it can do. */
typedef struct variant {
    vb__jinja *jinja;
    char *source;
    vb__chat_caps caps;
} variant;

struct vb__chat_template {
    variant plain, tool_use; /* tool_use.jinja may be NULL: plain serves both */
    json_t *tokens;
    char *name;
};

static vb_err no_memory(vb_error *err) {
    return vb__fail(err, VB_E_MEMORY, "chat template: out of memory");
}

static const variant *variant_for(const vb__chat_template *t, bool tools) {
    return tools && t->tool_use.jinja != NULL ? &t->tool_use : &t->plain;
}

/* ---- rendering with variables ---- */

static vb_err render_with(const variant *v, const json_t *tokens, const json_t *context,
                          const vb__jinja_options *opt, vb__jinja_result *out, vb_error *err) {
    return vb__jinja_render(v->jinja, context, tokens, opt, out, err);
}

/* ---- probes ---- */

typedef struct prober {
    const variant *v;
    const json_t *tokens;
    bool ok; /* the last probe rendered */
    vb__jinja_result res;
} prober;

/* Renders `json` (the variables, with ' for "); true when it worked. */
static bool probe(prober *p, const char *json) {
    vb__jinja_options opt = {.now = 1700000000};
    json_error_t je;
    char text[2048];
    size_t n = strlen(json);
    vb__jinja_result_fini(&p->res);
    p->ok = false;
    if (n >= sizeof(text)) return false;
    for (size_t i = 0; i <= n; i++) text[i] = json[i] == '\'' ? '"' : json[i];
    json_t *c = json_loads(text, 0, &je);
    if (c == NULL) return false;
    if (json_object_get(c, "tools") == NULL) json_object_set_new(c, "tools", json_null());
    if (json_object_get(c, "documents") == NULL) json_object_set_new(c, "documents", json_null());
    if (json_object_get(c, "add_generation_prompt") == NULL)
        json_object_set_new(c, "add_generation_prompt", json_false());
    p->ok = render_with(p->v, p->tokens, c, &opt, &p->res, NULL) == VB_OK;
    json_decref(c);
    return p->ok;
}

static bool shows(const prober *p, const char *text) {
    return p->ok && strstr(p->res.text, text) != NULL;
}

/* Both texts, and no list or mapping printed as it is. */
static bool shows_parts(const prober *p) {
    return shows(p, "vbOne") && shows(p, "vbTwo") && !shows(p, "'type'") && !shows(p, "\"type\"");
}

/* In this order: a template that moves a text to the front would break the prefix that is in the cache. */
static bool shows_in_order(const prober *p, const char *first, const char *second) {
    const char *at = p->ok ? strstr(p->res.text, first) : NULL;
    return at != NULL && strstr(at, second) != NULL;
}

static char *keep(prober *p) {
    return p->ok ? vb__strdup(VB_TAG_TEXT, p->res.text) : NULL;
}

static bool same(const char *a, const char *b) {
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

#define USER "{'role':'user','content':'vbUser'}"
#define PARTS "[{'type':'text','text':'vbOne'},{'type':'text','text':'vbTwo'}]"
#define CALL(id, args) "{'id':'" id "','type':'function','function':{'name':'vbCall','arguments':" args "}}"
#define ASKED(id, args) USER ",{'role':'assistant','content':'','tool_calls':[" CALL(id, args) "]}"
#define RESULT(id) ",{'role':'tool','tool_call_id':'" id "','name':'vbCall','content':'vbResult'}"
#define TOOLS                                                                                                \
    "'tools':[{'type':'function','function':{'name':'vbTool','description':'vbAbout','parameters':{'type':'" \
    "object',"                                                                                               \
    "'properties':{'vbKey':{'type':'string','description':'x'}},'required':['vbKey']}}}]"
#define MESSAGES(m) "{'messages':[" m "]}"

static void probe_roles(prober *p, vb__chat_caps *c) {
    c->works = probe(p, MESSAGES(USER));
    bool text = shows(p, "vbUser");
    probe(p, MESSAGES("{'role':'system','content':'vbSystem'}," USER));
    c->system = shows(p, "vbSystem") && shows(p, "vbUser");
    probe(p,
          c->system
              ? MESSAGES("{'role':'system','content':'vbSystem'}," USER
                         ",{'role':'assistant','content':'vbAnswer'},"
                         "{'role':'system','content':'vbLater'},{'role':'user','content':'vbAgain'}")
              : MESSAGES(USER
                         ",{'role':'assistant','content':'vbAnswer'},{'role':'system','content':'vbLater'},"
                         "{'role':'user','content':'vbAgain'}"));
    c->system_later = shows_in_order(p, "vbAnswer", "vbLater") && shows_in_order(p, "vbLater", "vbAgain");
    probe(p, MESSAGES(USER ",{'role':'user','content':'vbAgain'}"));
    c->repeated_user = p->ok && (!text || (shows(p, "vbUser") && shows(p, "vbAgain")));
    probe(p,
          MESSAGES(USER
                   ",{'role':'assistant','content':'vbOne'},{'role':'assistant','content':'vbTwo'}," USER));
    c->repeated_assistant = p->ok && (!text || (shows(p, "vbOne") && shows(p, "vbTwo")));
    probe(p, MESSAGES("{'role':'user','content':" PARTS "}"));
    c->parts[VB_ROLE_USER] = shows_parts(p);
    c->only_parts = c->parts[VB_ROLE_USER] && !text;
    probe(p, MESSAGES("{'role':'system','content':" PARTS "}," USER));
    c->parts[VB_ROLE_SYSTEM] = shows_parts(p);
    if (c->only_parts) c->system = c->parts[VB_ROLE_SYSTEM];
    probe(p, MESSAGES(USER ",{'role':'assistant','content':" PARTS "}," USER));
    c->parts[VB_ROLE_ASSISTANT] = shows_parts(p);
}

static bool shows_arguments(const prober *p) {
    return shows(p, "vbCall") && shows(p, "vbKey") && shows(p, "vbValue") && !shows(p, "'vbKey'");
}

static void probe_tools(prober *p, vb__chat_caps *c) {
    probe(p, "{'messages':[" USER "]," TOOLS "}");
    c->tools = shows(p, "vbTool");
    bool object = probe(p, "{'messages':[" ASKED("abcdefghi", "{'vbKey':'vbValue'}")
                               RESULT("abcdefghi") "]," TOOLS "}") &&
                  shows_arguments(p);
    c->tool_calls = object;
    c->tool_results = shows(p, "vbResult");
    if (!object) {
        probe(p, "{'messages':[" ASKED("abcdefghi", "'{\\'vbKey\\': \\'vbValue\\'}'")
                     RESULT("abcdefghi") "]," TOOLS "}");
        c->text_arguments = c->tool_calls = shows_arguments(p);
        if (c->tool_calls) c->tool_results = shows(p, "vbResult");
    }
    if (c->text_arguments)
        probe(p, "{'messages':[" ASKED("call_vb_1234567890", "'{\\'vbKey\\': \\'vbValue\\'}'")
                     RESULT("call_vb_1234567890") "]," TOOLS "}");
    else
        probe(p, "{'messages':[" ASKED("call_vb_1234567890", "{'vbKey':'vbValue'}")
                     RESULT("call_vb_1234567890") "]," TOOLS "}");
    c->short_ids = c->tool_calls && !p->ok;
    probe(p, "{'messages':[" USER ",{'role':'assistant','content':null,'tool_calls':[" CALL(
                 "abcdefghi", "{'vbKey':'vbValue'}") "]}" RESULT("abcdefghi") "]," TOOLS "}");
    c->null_content = p->ok && !shows(p, "None") && (!c->tool_calls || shows(p, "vbCall"));
    if (c->text_arguments) c->null_content = false;
    probe(p, "{'messages':[" ASKED("abcdefghi",
                                   "{'vbKey':'vbValue'}") ",{'role':'tool','tool_call_id':'abcdefghi','name':"
                                                          "'vbCall','content':" PARTS "}]," TOOLS "}");
    c->parts[VB_ROLE_TOOL] = shows_parts(p);
}

static void probe_thinking(prober *p, vb__chat_caps *c) {
    probe(p, "{'messages':[" USER "],'add_generation_prompt':true}");
    char *plain = keep(p);
    probe(p, "{'messages':[" USER "],'add_generation_prompt':true,'enable_thinking':true,'thinking':true}");
    char *on = keep(p);
    probe(p, "{'messages':[" USER "],'add_generation_prompt':true,'enable_thinking':false,'thinking':false}");
    char *off = keep(p);
    c->thinking_control = on != NULL && off != NULL && !same(on, off);
    c->thinking_default = same(plain, on);
    probe(p, "{'messages':[" USER "],'add_generation_prompt':true,'reasoning_effort':'high'}");
    char *high = keep(p);
    probe(p, "{'messages':[" USER "],'add_generation_prompt':true,'reasoning_effort':'low'}");
    c->reasoning_effort = p->ok && high != NULL && strcmp(high, p->res.text) != 0;
    vb__free(plain);
    vb__free(on);
    vb__free(off);
    vb__free(high);
}

/* ---- loading ---- */

static vb_err compile(variant *v, const char *source, size_t len, const char *name, vb_error *err) {
    vb_err e = vb__jinja_compile(source, len, &v->jinja, err);
    if (e != VB_OK) return vb__fail_prefix(err, e, "%s", name);
    v->source = vb__strndup(VB_TAG_TEXT, source, len);
    return v->source == NULL ? no_memory(err) : VB_OK;
}

static void find_caps(variant *v, const json_t *tokens) {
    prober p = {.v = v, .tokens = tokens};
    if (v->jinja == NULL) return;
    probe_roles(&p, &v->caps);
    probe_tools(&p, &v->caps);
    probe_thinking(&p, &v->caps);
    vb__jinja_result_fini(&p.res);
}

vb_err vb__chat_template_create(const char *source, size_t len, const char *tool_source, size_t tool_len,
                                const json_t *tokens, const char *name, vb__chat_template **out,
                                vb_error *err) {
    vb__chat_template *t = vb__calloc(VB_TAG_TEXT, 1, sizeof(*t));
    if (t == NULL) return no_memory(err);
    t->tokens = tokens != NULL ? json_deep_copy(tokens) : json_object();
    t->name = vb__strdup(VB_TAG_TEXT, name);
    vb_err e = t->tokens == NULL || t->name == NULL ? no_memory(err) : VB_OK;
    if (e == VB_OK) e = compile(&t->plain, source, len, name, err);
    if (e == VB_OK && tool_source != NULL) e = compile(&t->tool_use, tool_source, tool_len, name, err);
    if (e != VB_OK) {
        vb__chat_template_destroy(t);
        return e;
    }
    find_caps(&t->plain, t->tokens);
    find_caps(&t->tool_use, t->tokens);
    *out = t;
    return VB_OK;
}

void vb__chat_template_destroy(vb__chat_template *t) {
    if (t == NULL) return;
    variant *v[2] = {&t->plain, &t->tool_use};
    for (int i = 0; i < 2; i++) {
        vb__jinja_destroy(v[i]->jinja);
        vb__free(v[i]->source);
    }
    json_decref(t->tokens);
    vb__free(t->name);
    vb__free(t);
}

/* Token texts: every "..._token" that is a string or an object with "content". Those known already stay. */
static void add_tokens(json_t *tokens, const json_t *config) {
    for (void *it = json_object_iter((json_t *)config); it != NULL;
         it = json_object_iter_next((json_t *)config, it)) {
        const char *key = json_object_iter_key(it);
        size_t n = strlen(key);
        json_t *v = json_object_iter_value(it);
        if (json_is_object(v)) v = json_object_get(v, "content");
        if (n > 6 && strcmp(key + n - 6, "_token") == 0 && json_is_string(v) &&
            json_object_get(tokens, key) == NULL)
            json_object_set(tokens, key, v);
    }
}

/* The file's JSON object; *out stays NULL when there is no such file. */
static vb_err read_object(const char *folder, const char *name, json_t **out, vb_error *err) {
    char *path = folder == NULL ? NULL : vb__path_join(folder, name);
    vb_err e = folder != NULL && path == NULL ? no_memory(err) : VB_OK;
    if (path != NULL && vb__file_exists(path)) {
        e = vb__json_read(path, VB_LIMIT_JSON_BYTES, NULL, out, err);
        if (e == VB_OK && !json_is_object(*out)) {
            json_decref(*out);
            *out = NULL;
            e = vb__fail(err, VB_E_FORMAT, "%s: not an object, expected one", name);
        }
    }
    vb__free(path);
    return e;
}

/* A template, or several by name. */
static vb_err from_json(const json_t *v, const json_t *tokens, const char *name, vb__chat_template **out,
                        vb_error *err) {
    const json_t *plain = NULL, *tools = NULL;
    char where[128];
    snprintf(where, sizeof(where), "%s: chat_template", name);
    if (json_is_string(v)) {
        plain = v;
    } else if (json_is_object(v)) {
        plain = json_object_get(v, "default");
        tools = json_object_get(v, "tool_use");
    } else {
        for (size_t i = 0; i < json_array_size(v); i++) {
            const json_t *x = json_array_get(v, i), *source = json_object_get(x, "template");
            const char *n = json_string_value(json_object_get(x, "name"));
            if (n != NULL && strcmp(n, "default") == 0) plain = source;
            if (n != NULL && strcmp(n, "tool_use") == 0) tools = source;
        }
    }
    if (plain == NULL && json_is_string(tools)) plain = tools, tools = NULL;
    if (!json_is_string(plain) || (tools != NULL && !json_is_string(tools)))
        return vb__fail(
            err, VB_E_FORMAT,
            "%s: no template in it, expected a text or a list of {\"name\", \"template\"} with a default",
            where);
    return vb__chat_template_create(json_string_value(plain), json_string_length(plain),
                                    json_string_value(tools), json_string_length(tools), tokens, where, out,
                                    err);
}

static vb_err from_file(const char *path, const json_t *tokens, vb__chat_template **out, vb_error *err) {
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_TEMPLATE_BYTES);
    vb_err e = vb__file_read(path, VB_LIMIT_TEMPLATE_BYTES, &b, err);
    size_t n = strlen(path);
    json_t *j = NULL;
    const char *name = vb__path_base(path);
    if (e != VB_OK) {
    } else if (n > 5 && strcmp(path + n - 5, ".json") == 0) {
        e = vb__json_parse(vb__buffer_str(&b), b.len, VB_LIMIT_JSON_BYTES, name, &j, err);
        if (e == VB_OK) e = from_json(json_object_get(j, "chat_template"), tokens, name, out, err);
        json_decref(j);
    } else {
        e = vb__chat_template_create(vb__buffer_str(&b), b.len, NULL, 0, tokens, name, out, err);
    }
    vb__buffer_fini(&b);
    return e;
}

/* The template file of the folder, if there is one. */
static vb_err from_folder(const char *folder, const json_t *tokens, const json_t *config,
                          vb__chat_template **out, vb_error *err) {
    static const char *const names[] = {"chat_template.jinja", "chat_template.json"};
    for (size_t i = 0; i < 2; i++) {
        char *path = vb__path_join(folder, names[i]);
        if (path == NULL) return no_memory(err);
        bool there = vb__file_exists(path);
        vb_err e = there ? from_file(path, tokens, out, err) : VB_OK;
        vb__free(path);
        if (there) return e;
    }
    const json_t *v = json_object_get(config, "chat_template");
    if (v != NULL && !json_is_null(v)) return from_json(v, tokens, "tokenizer_config.json", out, err);
    return vb__fail(
        err, VB_E_NOT_FOUND,
        "%s: no chat template, expected chat_template.jinja, chat_template.json or chat_template in "
        "tokenizer_config.json",
        vb__path_base(folder));
}

vb_err vb__chat_template_open(const char *folder, const char *file, vb__chat_template **out, vb_error *err) {
    json_t *config = NULL, *map = NULL, *tokens = json_object();
    vb_err e = tokens == NULL ? no_memory(err) : read_object(folder, "tokenizer_config.json", &config, err);
    if (e == VB_OK) e = read_object(folder, "special_tokens_map.json", &map, err);
    if (e == VB_OK) {
        add_tokens(tokens, config);
        add_tokens(tokens, map);
        if (file != NULL) e = from_file(file, tokens, out, err);
        else if (folder != NULL) e = from_folder(folder, tokens, config, out, err);
        else e = vb__fail(err, VB_E_NOT_FOUND, "chat template: none given, expected a file or folder");
    }
    json_decref(config);
    json_decref(map);
    json_decref(tokens);
    return e;
}

const vb__chat_caps *vb__chat_template_caps(const vb__chat_template *t, bool tools) {
    return &variant_for(t, tools)->caps;
}
const char *vb__chat_template_source(const vb__chat_template *t, bool tools) {
    return variant_for(t, tools)->source;
}

/* ---- conversations ---- */

static int32_t local_offset(int64_t now) {
    struct tm tm;
    time_t t = (time_t)now;
    return localtime_r(&t, &tm) == NULL ? 0 : (int32_t)tm.tm_gmtoff;
}

static vb_err add_kwargs(json_t *context, const json_t *kwargs, vb_error *err) {
    static const char *const taken[] = {"messages", "tools", "add_generation_prompt"};
    char is[80];
    if (kwargs == NULL || json_is_null(kwargs)) return VB_OK;
    if (!json_is_object(kwargs))
        return vb__fail(err, VB_E_ARGUMENT, "chat_template_kwargs: %s, expected an object",
                        vb__json_is(kwargs, is, sizeof(is)));
    for (size_t i = 0; i < 3; i++)
        if (json_object_get(kwargs, taken[i]) != NULL)
            return vb__fail(err, VB_E_ARGUMENT,
                            "chat_template_kwargs.%s: cannot be set here, expected the request's own field",
                            taken[i]);
    return json_object_update(context, (json_t *)kwargs) == 0 ? VB_OK : no_memory(err);
}

static bool known_effort(const char *s) {
    return s != NULL && (strcmp(s, "low") == 0 || strcmp(s, "medium") == 0 || strcmp(s, "high") == 0);
}

static vb_err make_context(const vb__chat_input *in, json_t *messages, bool tools, json_t **out,
                           vb_error *err) {
    json_t *c = json_pack("{s:O, s:O, s:n, s:b}", "messages", messages, "tools",
                          tools ? (json_t *)in->tools : json_null(), "documents", "add_generation_prompt",
                          in->add_generation_prompt);
    vb_err e = c == NULL ? no_memory(err) : VB_OK;
    if (e == VB_OK && in->thinking >= 0) {
        json_object_set_new(c, "enable_thinking", json_boolean(in->thinking != 0));
        json_object_set_new(c, "thinking", json_boolean(in->thinking != 0));
    }
    if (e == VB_OK && known_effort(in->reasoning_effort))
        json_object_set_new(c, "reasoning_effort", json_string(in->reasoning_effort));
    if (e == VB_OK) e = add_kwargs(c, in->kwargs, err);
    if (e != VB_OK) json_decref(c);
    else *out = c;
    return e;
}

vb_err vb__chat_template_render(const vb__chat_template *t, const vb__chat_input *in, vb__jinja_result *out,
                                vb_error *err) {
    *out = (vb__jinja_result){0};
    char is[80];
    if (in->tools != NULL && !json_is_null(in->tools) && !json_is_array(in->tools))
        return vb__fail(err, VB_E_ARGUMENT, "tools: %s, expected a list",
                        vb__json_is(in->tools, is, sizeof(is)));
    bool tools = json_array_size(in->tools) > 0;
    const variant *v = variant_for(t, tools);
    if (tools && !v->caps.tools)
        return vb__fail(err, VB_E_ARGUMENT,
                        "tools: the model's chat template does not use them, expected none");
    json_t *messages = NULL, *context = NULL;
    vb_err e = vb__chat_messages_prepare(in->messages, &v->caps, &messages, err);
    if (e == VB_OK) e = make_context(in, messages, tools, &context, err);
    if (e == VB_OK) {
        int64_t now = in->now != 0 ? in->now : (int64_t)time(NULL);
        vb__jinja_options opt = {.now = now, .utc_offset = local_offset(now), .roles_are_ours = true};
        e = render_with(v, t->tokens, context, &opt, out, err);
        if (e != VB_OK && !out->raised) vb__fail_prefix(err, e, "%s", t->name);
    }
    json_decref(messages);
    json_decref(context);
    return e;
}

vb_err vb__chat_template_render_json(const vb__chat_template *t, const char *json, size_t len,
                                     vb__jinja_result *out, vb_error *err) {
    *out = (vb__jinja_result){0};
    json_t *doc = NULL, *kwargs = NULL;
    VB_TRY(vb__json_parse(json, len, VB_LIMIT_PROMPT_BYTES, "messages", &doc, err));
    vb__chat_input in = {.messages = doc, .add_generation_prompt = true, .thinking = -1};
    vb_err e = VB_OK;
    if (json_is_object(doc)) {
        const json_t *gen = json_object_get(doc, "add_generation_prompt");
        in.messages = json_object_get(doc, "messages");
        in.tools = json_object_get(doc, "tools");
        if (json_is_boolean(gen)) in.add_generation_prompt = json_is_true(gen);
        kwargs = json_copy(doc); /* the further variables, and chat_template_kwargs over them */
        const json_t *more = json_object_get(doc, "chat_template_kwargs");
        static const char *const fields[] = {"messages", "tools", "add_generation_prompt",
                                             "chat_template_kwargs"};
        for (size_t i = 0; i < 4; i++) json_object_del(kwargs, fields[i]);
        if (kwargs == NULL || (json_is_object(more) && json_object_update(kwargs, (json_t *)more) != 0))
            e = no_memory(err);
        in.kwargs = kwargs;
    }
    if (e == VB_OK) e = vb__chat_template_render(t, &in, out, err);
    json_decref(kwargs);
    json_decref(doc);
    return e;
}
