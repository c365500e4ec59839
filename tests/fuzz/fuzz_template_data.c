/* text/jinja and text/chat_template: any data given to templates that look at all of it, and any messages. */
#include "text/chat_template.h"
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const SOURCES[] = {
    "{% for k, v in x.items() %}{{ k }}={{ v }}{{ v | tojson }}{{ [v] | string }}{% endfor %}{{ x | "
    "tojson(indent=2) }}",
    "{{ x | string | upper | title }}{{ x ~ x }}{{ x == x }}{{ x | length }}{{ (x ~ '')[1:-1:2] }}{{ (x ~ "
    "'').split() }}",
    "{% for m in x recursive %}{{ m.a }}{{ loop(m.l) if m.l }}{% endfor %}{{ x | map(attribute='a') | list | "
    "sort | unique | join(',') }}",
    "{{ x | int }}{{ x | float }}{{ x | round(2) if x is number }}{{ '%s %r' % (x, x) }}{{ '{:>5}'.format(x "
    "~ '') }}{{ x | from_json | tojson if x is string }}",
    "{{ (x | default({})).a.b.c }}{{ x[0] }}{{ x['a'] }}{{ x[-1:] }}{{ x is mapping }}{{ x in [x] }}{{ {'k': "
    "x} }}",
    "{{ x.strip().replace('a', 'bb').title() }}{{ x.find('é') }}{{ x | indent(3) }}{{ x | truncate(9) }}{{ "
    "x.splitlines() }}{{ x | e }}{{ x % x }}",
};
enum { N = sizeof(SOURCES) / sizeof(SOURCES[0]) };
static const char CHAT[] = "{% for m in messages %}{{ '<|' + m.role + '|>' + m.content }}{% for c in "
                           "m.tool_calls or [] %}{{ c.function.name }}"
                           "{{ c.function.arguments | tojson }}{% endfor %}{{ m.reasoning_content }}{% "
                           "endfor %}{{ tools | tojson }}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static vb__jinja *t[N];
    static vb__chat_template *chat;
    json_t *x = json_loadb((const char *)data, size, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    vb__jinja_result res;
    vb_error err = {0};
    if (chat == NULL &&
        vb__chat_template_create(CHAT, strlen(CHAT), NULL, 0, NULL, "chat", &chat, &err) != VB_OK)
        abort();
    for (int i = 0; i < N; i++)
        if (t[i] == NULL && vb__jinja_compile(SOURCES[i], strlen(SOURCES[i]), &t[i], &err) != VB_OK) abort();
    if (x != NULL) {
        json_t *context = json_object();
        json_object_set(context, "x", x);
        for (int i = 0; i < N; i++) {
            vb_err e = vb__jinja_render(t[i], context, NULL, NULL, &res, &err);
            if (e != VB_OK && res.message == NULL) abort();
            vb__jinja_result_fini(&res);
        }
        json_decref(context);
        vb__chat_input in = {.messages = x, .tools = json_object_get(x, "tools"), .thinking = -1};
        if (json_is_object(x)) in.messages = json_object_get(x, "messages"), in.kwargs = x;
        vb_err e = vb__chat_template_render(chat, &in, &res, &err);
        if (e != VB_OK && err.text[0] == '\0') abort();
        vb__jinja_result_fini(&res);
        json_decref(x);
    }
    vb_err e = vb__chat_template_render_json(chat, (const char *)data, size, &res, &err);
    if (e != VB_OK && err.text[0] == '\0') abort();
    vb__jinja_result_fini(&res);
    return 0;
}
