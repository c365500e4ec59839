#include "text/chat_messages.h"
#include "base/buffer.h"
#include "base/json.h"
#include "base/limits.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct prepare {
    const vb__chat_caps *caps;
    json_t *out;
    vb_error *err;
    size_t i;     /* the message at hand, for errors */
    json_t *last; /* the last message given out, borrowed */
    vb__chat_role last_role;
    bool any_turn;      /* a message that is not system was given out */
    vb__buffer pending; /* leading system text without a place yet */
} prepare;

static vb_err no_memory(vb_error *err) {
    return vb__fail(err, VB_E_MEMORY, "messages: out of memory");
}

static vb_err set(json_t *o, const char *key, json_t *value, vb_error *err) {
    return json_object_set_new(o, key, value) == 0 ? VB_OK : no_memory(err);
}

static vb_err role_of(prepare *p, const json_t *m, vb__chat_role *out) {
    static const struct {
        const char *name;
        vb__chat_role role;
    } roles[] = {{"system", VB_ROLE_SYSTEM},       {"developer", VB_ROLE_SYSTEM}, {"user", VB_ROLE_USER},
                 {"assistant", VB_ROLE_ASSISTANT}, {"tool", VB_ROLE_TOOL},        {"function", VB_ROLE_TOOL}};
    char is[80];
    if (!json_is_object(m))
        return vb__fail(p->err, VB_E_ARGUMENT, "messages[%zu]: %s, expected an object", p->i,
                        vb__json_is(m, is, sizeof(is)));
    const json_t *role = json_object_get(m, "role");
    for (size_t k = 0; json_is_string(role) && k < sizeof(roles) / sizeof(roles[0]); k++)
        if (strcmp(json_string_value(role), roles[k].name) == 0) {
            *out = roles[k].role;
            return VB_OK;
        }
    return vb__fail(p->err, VB_E_ARGUMENT,
                    "messages[%zu].role: %s, expected system, developer, user, assistant or tool", p->i,
                    vb__json_is(role, is, sizeof(is)));
}

/* ---- content ---- */

/* The text of one part, NULL (with the error set) when it is none. */
static const json_t *part_text(prepare *p, const json_t *part, size_t k, vb_err *e) {
    static const char *const kinds[][2] = {
        {"text", "text"}, {"input_text", "text"}, {"output_text", "text"}, {"refusal", "refusal"}};
    char is[80];
    const json_t *type = json_object_get(part, "type"), *text;
    if ((type == NULL || json_is_null(type)) && json_is_string(text = json_object_get(part, "text"))) return text;
    for (size_t i = 0; json_is_string(type) && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(json_string_value(type), kinds[i][0]) != 0) continue;
        text = json_object_get(part, kinds[i][1]);
        if (json_is_string(text)) return text;
        *e = vb__fail(p->err, VB_E_ARGUMENT, "messages[%zu].content[%zu].%s: %s, expected a text", p->i, k,
                      kinds[i][1], vb__json_is(text, is, sizeof(is)));
        return NULL;
    }
    *e = vb__fail(p->err, VB_E_ARGUMENT,
                  "messages[%zu].content[%zu].type: %s, expected text (no images or other parts)", p->i, k,
                  vb__json_is(type, is, sizeof(is)));
    return NULL;
}

static bool is_billing(const json_t *text) {
    static const char head[] = "x-anthropic-billing-header:";
    return json_string_length(text) >= sizeof(head) - 1 &&
           memcmp(json_string_value(text), head, sizeof(head) - 1) == 0;
}

static bool has_billing(const json_t *content) {
    bool any = json_is_string(content) && is_billing(content);
    for (size_t k = 0; k < json_array_size(content); k++)
        any |= is_billing(json_object_get(json_array_get(content, k), "text"));
    return any;
}

/* Content as one text, appended to b. */
static vb_err join_content(prepare *p, const json_t *content, bool system, vb__buffer *b) {
    char is[80];
    vb_err e = VB_OK;
    if (content == NULL || json_is_null(content)) return VB_OK;
    if (json_is_string(content)) {
        if (!(system && is_billing(content)))
            e = vb__buffer_append(b, json_string_value(content), json_string_length(content));
        return e == VB_OK ? VB_OK
                          : vb__fail(p->err, e, "messages[%zu].content: too long, expected less", p->i);
    }
    if (!json_is_array(content))
        return vb__fail(p->err, VB_E_ARGUMENT,
                        "messages[%zu].content: %s, expected a text or a list of text parts", p->i,
                        vb__json_is(content, is, sizeof(is)));
    for (size_t k = 0; k < json_array_size(content); k++) {
        const json_t *text = part_text(p, json_array_get(content, k), k, &e);
        if (text == NULL) return e;
        if (system && is_billing(text)) continue;
        /* The blocks of a system text are texts of their own. */
        if (system && b->len > 0 && json_string_length(text) > 0) vb__buffer_puts(b, "\n\n");
        e = vb__buffer_append(b, json_string_value(text), json_string_length(text));
        if (e != VB_OK) return vb__fail(p->err, e, "messages[%zu].content: too long, expected less", p->i);
    }
    return VB_OK;
}

static json_t *text_part(const char *s, size_t n) {
    json_t *part = json_object(), *list = json_array();
    if (part == NULL || list == NULL || json_object_set_new(part, "type", json_string("text")) != 0 ||
        json_object_set_new(part, "text", json_stringn(s, n)) != 0 ||
        json_array_append_new(list, json_incref(part)) != 0) {
        json_decref(list);
        list = NULL;
    }
    json_decref(part);
    return list;
}

/* A text as content of a role. */
static json_t *as_content(const prepare *p, vb__chat_role role, const char *s, size_t n) {
    return role != VB_ROLE_TOOL && p->caps->only_parts && p->caps->parts[role] ? text_part(s, n)
                                                                               : json_stringn(s, n);
}

/* A list of text parts in the form every template knows: type "text". */
static json_t *plain_parts(prepare *p, const json_t *content, vb_err *e) {
    json_t *list = json_array();
    for (size_t k = 0; list != NULL && k < json_array_size(content); k++) {
        const json_t *text = part_text(p, json_array_get(content, k), k, e);
        json_t *one = text == NULL ? NULL : text_part(json_string_value(text), json_string_length(text));
        if (one == NULL || json_array_extend(list, one) != 0) {
            if (*e == VB_OK) *e = no_memory(p->err);
            json_decref(list);
            list = NULL;
        }
        json_decref(one);
    }
    return list;
}

/* The content that the template gets for message m. */
static vb_err content_of(prepare *p, const json_t *m, vb__chat_role role, json_t **out) {
    const json_t *content = json_object_get(m, "content");
    vb_err e = VB_OK;
    if (role == VB_ROLE_ASSISTANT && json_is_null(content) && p->caps->null_content) {
        *out = json_null();
        return VB_OK;
    }
    if (json_is_array(content) && p->caps->parts[role]) {
        *out = plain_parts(p, content, &e);
        return e;
    }
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
    e = join_content(p, content, false, &b);
    if (e == VB_OK && (*out = as_content(p, role, vb__buffer_str(&b), b.len)) == NULL) e = no_memory(p->err);
    vb__buffer_fini(&b);
    return e;
}

/* ---- tool calls ---- */

/* Nine letters and digits that stand for an id; the same for the same id. */
static void short_id(const char *id, char out[10]) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const char *c = id; *c != '\0'; c++) h = (h ^ (unsigned char)*c) * 0x100000001b3u;
    for (int i = 0; i < 9; i++, h /= 62)
        out[i] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"[h % 62];
    out[9] = '\0';
}

static bool fits_short(const char *id) {
    return strlen(id) == 9 &&
           strspn(id, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == 9;
}

static vb_err fix_id(prepare *p, json_t *o, const char *key) {
    const char *id = json_string_value(json_object_get(o, key));
    char small[10];
    if (!p->caps->short_ids || id == NULL || fits_short(id)) return VB_OK;
    short_id(id, small);
    return set(o, key, json_string(small), p->err);
}

/* A copy without the keys that are null. */
static json_t *copy_object(const json_t *o) {
    json_t *c = json_object();
    for (void *it = json_object_iter((json_t *)o); c != NULL && it != NULL;
         it = json_object_iter_next((json_t *)o, it)) {
        json_t *v = json_object_iter_value(it);
        if (json_is_null(v)) continue;
        if (json_object_set(c, json_object_iter_key(it), v) != 0) {
            json_decref(c);
            c = NULL;
        }
    }
    return c;
}

/* Arguments as the template reads them: an object, or its JSON text. Text that is no JSON object stays as it
 * is. */
static json_t *arguments_of(const prepare *p, json_t *given) {
    if (json_is_string(given) && !p->caps->text_arguments) {
        json_error_t je;
        json_t *j = json_loadb(json_string_value(given), json_string_length(given),
                               JSON_ALLOW_NUL | JSON_DECODE_ANY, &je);
        if (json_is_object(j)) return j;
        json_decref(j);
        if (json_string_length(given) == 0) return json_object();
    }
    if (json_is_object(given) && p->caps->text_arguments) {
        char *text = json_dumps(given, 0);
        json_t *s = text == NULL ? NULL : json_string(text);
        free(text);
        return s;
    }
    return given == NULL ? json_object() : json_incref(given);
}

static vb_err one_call(prepare *p, const json_t *given, size_t k, json_t **out) {
    char is[80];
    const json_t *function = json_object_get(given, "function");
    if (!json_is_object(given))
        return vb__fail(p->err, VB_E_ARGUMENT, "messages[%zu].tool_calls[%zu]: %s, expected an object", p->i,
                        k, vb__json_is(given, is, sizeof(is)));
    if (!json_is_object(function) || !json_is_string(json_object_get(function, "name")))
        return vb__fail(
            p->err, VB_E_ARGUMENT,
            "messages[%zu].tool_calls[%zu].function: without a name, expected {\"name\", \"arguments\"}",
            p->i, k);
    json_t *call = copy_object(given), *f = copy_object(function);
    vb_err e = call == NULL || f == NULL ? no_memory(p->err) : VB_OK;
    if (e == VB_OK && json_object_get(call, "type") == NULL)
        e = set(call, "type", json_string("function"), p->err);
    if (e == VB_OK) e = set(f, "arguments", arguments_of(p, json_object_get(f, "arguments")), p->err);
    if (e == VB_OK) e = set(call, "function", json_incref(f), p->err);
    if (e == VB_OK) e = fix_id(p, call, "id");
    json_decref(f);
    if (e != VB_OK) {
        json_decref(call);
        return e;
    }
    *out = call;
    return VB_OK;
}

static vb_err calls_of(prepare *p, json_t *m) {
    const json_t *given = json_object_get(m, "tool_calls");
    char is[80];
    if (given == NULL) return VB_OK;
    if (!json_is_array(given))
        return vb__fail(p->err, VB_E_ARGUMENT, "messages[%zu].tool_calls: %s, expected a list", p->i,
                        vb__json_is(given, is, sizeof(is)));
    if (json_array_size(given) == 0) { /* the same as none */
        json_object_del(m, "tool_calls");
        return VB_OK;
    }
    json_t *list = json_array();
    vb_err e = list == NULL ? no_memory(p->err) : VB_OK;
    for (size_t k = 0; e == VB_OK && k < json_array_size(given); k++) {
        json_t *call = NULL;
        e = one_call(p, json_array_get(given, k), k, &call);
        if (e == VB_OK && json_array_append_new(list, call) != 0) e = no_memory(p->err);
    }
    if (e == VB_OK) return set(m, "tool_calls", list, p->err);
    json_decref(list);
    return e;
}

static vb_err reasoning_of(prepare *p, json_t *m) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    char is[80];
    json_t *found = NULL;
    for (size_t k = 0; k < 3 && found == NULL; k++) found = json_object_get(m, names[k]);
    if (found == NULL) return VB_OK;
    if (!json_is_string(found))
        return vb__fail(p->err, VB_E_ARGUMENT, "messages[%zu]: the reasoning %s, expected a text", p->i,
                        vb__json_is(found, is, sizeof(is)));
    json_incref(found);
    vb_err e = VB_OK;
    if (json_object_get(m, "thinking") == NULL) e = set(m, "thinking", json_incref(found), p->err);
    if (e == VB_OK) e = set(m, "reasoning_content", json_incref(found), p->err);
    json_decref(found);
    return e;
}

/* ---- messages ---- */

/* The text of content already given out. */
static vb_err append_given(prepare *p, const json_t *m, vb__buffer *b) {
    return join_content(p, json_object_get(m, "content"), false, b);
}

/* Two neighbours as one: texts by a blank line, tool calls one after another. */
static vb_err join_messages(prepare *p, json_t *into, const json_t *more, vb__chat_role role) {
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
    vb_err e = append_given(p, into, &b);
    size_t before = b.len;
    if (e == VB_OK && before > 0) vb__buffer_puts(&b, "\n\n");
    size_t with_gap = b.len;
    if (e == VB_OK) e = append_given(p, more, &b);
    if (e == VB_OK && b.len == with_gap) b.len = before;
    if (e == VB_OK) e = set(into, "content", as_content(p, role, vb__buffer_str(&b), b.len), p->err);
    vb__buffer_fini(&b);
    if (e != VB_OK) return e;
    json_t *calls = json_object_get(into, "tool_calls"), *new_calls = json_object_get(more, "tool_calls");
    if (calls != NULL && new_calls != NULL)
        return json_array_extend(calls, new_calls) == 0 ? VB_OK : no_memory(p->err);
    if (new_calls != NULL) return set(into, "tool_calls", json_incref(new_calls), p->err);
    return VB_OK;
}

/* Takes m. */
static vb_err give(prepare *p, json_t *m, vb__chat_role role) {
    bool joined = p->last != NULL && p->last_role == role &&
                  ((role == VB_ROLE_USER && !p->caps->repeated_user) ||
                   (role == VB_ROLE_ASSISTANT && !p->caps->repeated_assistant));
    if (joined) {
        vb_err e = join_messages(p, p->last, m, role);
        json_decref(m);
        return e;
    }
    p->last = m;
    p->last_role = role;
    p->any_turn |= role != VB_ROLE_SYSTEM;
    return json_array_append_new(p->out, m) == 0 ? VB_OK : no_memory(p->err);
}

static vb_err give_text(prepare *p, vb__chat_role role, const char *name, const char *s, size_t n) {
    json_t *m = json_object();
    vb_err e = m == NULL ? no_memory(p->err) : set(m, "role", json_string(name), p->err);
    if (e == VB_OK) e = set(m, "content", as_content(p, role, s, n), p->err);
    if (e == VB_OK) return give(p, m, role);
    json_decref(m);
    return e;
}

/* The leading system texts, once all are known: in their own message, or kept for the first user message. */
static vb_err end_of_system(prepare *p, bool any) {
    if (!any || !p->caps->system) return VB_OK;
    vb_err e = give_text(p, VB_ROLE_SYSTEM, "system", vb__buffer_str(&p->pending), p->pending.len);
    vb__buffer_clear(&p->pending);
    return e;
}

static vb_err later_system(prepare *p, const json_t *given) {
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
    vb_err e = join_content(p, json_object_get(given, "content"), true, &b);
    if (e != VB_OK || b.len == 0) {
    } else if (p->caps->system_later) {
        e = give_text(p, VB_ROLE_SYSTEM, "system", vb__buffer_str(&b), b.len);
    } else {
        vb__buffer w;
        vb__buffer_init(&w, VB_LIMIT_PROMPT_BYTES);
        vb__buffer_puts(&w, "<system-reminder>\n");
        vb__buffer_append(&w, b.data, b.len);
        e = vb__buffer_puts(&w, "\n</system-reminder>");
        if (e == VB_OK) e = give_text(p, VB_ROLE_USER, "user", w.data, w.len);
        else e = vb__fail(p->err, e, "messages[%zu].content: too long, expected less", p->i);
        vb__buffer_fini(&w);
    }
    vb__buffer_fini(&b);
    return e;
}

/* System text that has no message of its own goes in front of the first user message. */
static vb_err put_in_front(prepare *p, json_t *m) {
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
    vb__buffer_append(&b, p->pending.data, p->pending.len);
    size_t before = b.len;
    vb__buffer_puts(&b, "\n\n");
    size_t with_gap = b.len;
    vb_err e = append_given(p, m, &b);
    if (e == VB_OK && b.len == with_gap) b.len = before;
    if (e == VB_OK) e = set(m, "content", as_content(p, VB_ROLE_USER, vb__buffer_str(&b), b.len), p->err);
    vb__buffer_clear(&p->pending);
    vb__buffer_fini(&b);
    return e;
}

static vb_err turn(prepare *p, const json_t *given, vb__chat_role role) {
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    json_t *m = copy_object(given), *content = NULL;
    vb_err e = m == NULL ? no_memory(p->err) : set(m, "role", json_string(names[role]), p->err);
    if (e == VB_OK) e = content_of(p, given, role, &content);
    if (e == VB_OK) e = set(m, "content", content, p->err);
    if (e == VB_OK && role == VB_ROLE_ASSISTANT) {
        e = calls_of(p, m);
        if (e == VB_OK) e = reasoning_of(p, m);
    }
    if (e == VB_OK && role == VB_ROLE_TOOL) e = fix_id(p, m, "tool_call_id");
    if (e == VB_OK && role == VB_ROLE_USER && p->pending.len > 0) e = put_in_front(p, m);
    if (e == VB_OK) return give(p, m, role);
    json_decref(m);
    return e;
}

vb_err vb__chat_messages_prepare(const json_t *messages, const vb__chat_caps *caps, json_t **out,
                                 vb_error *err) {
    char is[80];
    if (!json_is_array(messages))
        return vb__fail(err, VB_E_ARGUMENT, "messages: %s, expected a list",
                        vb__json_is(messages, is, sizeof(is)));
    prepare p = {.caps = caps, .err = err, .out = json_array()};
    if (p.out == NULL) return no_memory(err);
    vb__buffer_init(&p.pending, VB_LIMIT_PROMPT_BYTES);
    vb_err e = VB_OK;
    bool leading = true, any = false;
    for (; e == VB_OK && p.i < json_array_size(messages); p.i++) {
        const json_t *m = json_array_get(messages, p.i);
        vb__chat_role role = VB_ROLE_USER;
        if ((e = role_of(&p, m, &role)) != VB_OK) break;
        if (role != VB_ROLE_SYSTEM) {
            if (leading) e = end_of_system(&p, any);
            leading = false;
            if (e == VB_OK) e = turn(&p, m, role);
        } else if (!leading) {
            e = later_system(&p, m);
        } else {
            vb__buffer b;
            vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
            e = join_content(&p, json_object_get(m, "content"), true, &b);
            if (e == VB_OK && p.pending.len > 0 && b.len > 0) vb__buffer_puts(&p.pending, "\n\n");
            if (e == VB_OK) e = vb__buffer_append(&p.pending, b.data, b.len);
            any |= b.len > 0 || !has_billing(json_object_get(m, "content"));
            vb__buffer_fini(&b);
        }
    }
    if (e == VB_OK && leading) e = end_of_system(&p, any);
    if (e == VB_OK && p.pending.len > 0) /* no user message to carry it */
        e = give_text(&p, VB_ROLE_USER, "user", vb__buffer_str(&p.pending), p.pending.len);
    vb__buffer_fini(&p.pending);
    if (e != VB_OK) {
        json_decref(p.out);
        return e;
    }
    *out = p.out;
    return VB_OK;
}
