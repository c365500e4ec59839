/* The template interpreter against recorded renderings of the stock environment (the shared cases where the
 * shared folder is there, and tests/data/template_cases.json), and its own promises: origins, limits, lines,
 * threads, memory. */
#include "base/alloc.h"
#include "text/jinja.h"
#include "text/template_lines.h"
#include "testdir.h"
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <time.h>
#include <cmocka.h>

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* "text" or "ERROR sentence"; the caller's. */
static char *run(const char *source, size_t len, const json_t *context, const json_t *ours, int64_t now,
                 vb__jinja_result *res) {
    vb_error err = {0};
    vb__jinja *t = NULL;
    vb__jinja_options opt = {.now = now};
    char *out = NULL;
    vb_err e = vb__jinja_compile(source, len, &t, &err);
    *res = (vb__jinja_result){0};
    if (e == VB_OK) e = vb__jinja_render(t, context, ours, &opt, res, &err);
    vb__jinja_destroy(t);
    if (e != VB_OK) {
        assert_int_equal(e, err.code);
        if (strncmp(err.text, "template", 8) != 0) fail_msg("error without a place: %s", err.text);
        if (asprintf(&out, "ERROR %s", res->message != NULL && res->raised ? res->message : err.text) < 0)
            abort();
    } else {
        size_t sum = 0;
        for (size_t i = 0; i < res->n_runs; i++) {
            sum += res->runs[i].bytes;
            assert_true(res->runs[i].bytes > 0);
            if (i > 0) assert_int_not_equal(res->runs[i].from_template, res->runs[i - 1].from_template);
        }
        assert_int_equal(sum, res->len);
        out = malloc(res->len + 1);
        if (out == NULL) abort();
        memcpy(out, res->text, res->len + 1);
    }
    return out;
}

static const char *str(const json_t *o, const char *key) {
    const char *s = json_string_value(json_object_get(o, key));
    return s == NULL ? "" : s;
}

static void one_case(const json_t *all, const json_t *c, int64_t now, int *bad, int counts[4]) {
    const json_t *context = json_object_get(c, "context"), *expect = json_object_get(c, "expect");
    const json_t *source = json_object_get(c, "source");
    if (source == NULL) source = json_object_get(json_object_get(all, "templates"), str(c, "template"));
    if (json_is_string(context))
        context = json_object_get(json_object_get(all, "contexts"), json_string_value(context));
    vb__jinja_result res;
    char *got = run(json_string_value(source), json_string_length(source), context, NULL, now, &res);
    const json_t *text = json_object_get(expect, "text"), *error = json_object_get(expect, "error");
    bool failed = res.text == NULL, ok;
    if (text != NULL) {
        ok = !failed && res.len == json_string_length(text) &&
             memcmp(res.text, json_string_value(text), res.len) == 0;
    } else {
        ok = failed && (strcmp(str(error, "kind"), "raised") != 0 ||
                        (res.raised && strcmp(res.message, str(error, "message")) == 0));
    }
    bool optional = json_is_true(json_object_get(c, "optional"));
    counts[optional * 2 + ok]++;
    if (!ok && !optional) {
        if ((*bad)++ < 20)
            print_error("%s: %.200s\n  want %.300s\n  got  %.300s\n", str(c, "name"),
                        json_string_value(source),
                        text != NULL ? json_string_value(text) : str(error, "message"), got);
    }
    free(got);
    vb__jinja_result_fini(&res);
}

static void run_file(const char *path, bool required) {
    json_error_t je;
    json_t *all = json_load_file(path, JSON_ALLOW_NUL, &je);
    if (all == NULL) {
        if (required) fail_msg("%s: %s", path, je.text);
        skip();
    }
    int bad = 0, counts[4] = {0};
    size_t i;
    json_t *c;
    double start = cpu_ms();
    json_array_foreach(json_object_get(all, "cases"), i, c)
        one_case(all, c, json_integer_value(json_object_get(all, "now")), &bad, counts);
    print_message("%s: %d of %d required, %d of %d optional cases agree, %.0f ms\n", strrchr(path, '/') + 1,
                  counts[1], counts[0] + counts[1], counts[3], counts[2] + counts[3], cpu_ms() - start);
    json_decref(all);
    assert_int_equal(bad, 0);
    assert_true(counts[1] > 0);
}

static void shared_cases(void **state) {
    (void)state;
    char path[600];
    if (shared_dir() == NULL) {
        print_message("skipped: no shared folder (VERBATIM_SHARED)\n");
        skip();
    }
    snprintf(path, sizeof(path), "%s/fixtures/templates/cases.json", shared_dir());
    run_file(path, false);
}

static void own_cases(void **state) {
    (void)state;
    run_file(SOURCE_ROOT "/tests/data/template_cases.json", true);
}

/* ---- origins ---- */

/* The output with [ ] around what came from the template. */
static char *marked(const char *source, const char *context) {
    vb__jinja_result res;
    json_t *j = json_loads(context, 0, NULL), *ours = json_pack("{s:s}", "bos_token", "<s>");
    char *got = run(source, strlen(source), j, ours, 0, &res), *out = malloc(res.len + 2 * res.n_runs + 1),
         *o = out;
    if (out == NULL || res.text == NULL) fail_msg("%s: %s", source, got);
    for (size_t i = 0, at = 0; i < res.n_runs; i++) {
        if (res.runs[i].from_template) *o++ = '[';
        memcpy(o, res.text + at, res.runs[i].bytes);
        o += res.runs[i].bytes;
        at += res.runs[i].bytes;
        if (res.runs[i].from_template) *o++ = ']';
    }
    *o = '\0';
    free(got);
    json_decref(j);
    json_decref(ours);
    vb__jinja_result_fini(&res);
    return out;
}

static void every_byte_knows_its_origin(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"a{{ u }}b", "[a]user text[b]"},
        {"{{ 'x' + u + 'y' }}", "[x]user text[y]"},
        {"{{ 'x' ~ u ~ 'y' ~ 'z' }}", "[x]user text[yz]"},
        {"{{ bos_token }}{{ u }}", "[<s>]user text"},
        {"{{ ('<' ~ u ~ '>')[1:] }}", "user text[>]"},
        {"{{ ('<' ~ u ~ '>')[:6] }}", "[<]user "},
        {"{{ ('<' ~ u ~ '>')[::-1] }}", "[>]txet resu[<]"},
        {"{{ ('<' ~ u ~ '>')[0] }}{{ ('<' ~ u)[1] }}", "[<]u"},
        {"{{ ('  <' ~ u ~ '>  ') | trim }}", "[<]user text[>]"},
        {"{{ ('xx' ~ u).lstrip('xu') }}", "ser text"},
        {"{{ (u ~ '|' ~ u).split('|')[1] }}{{ ('a|' ~ u).split('|') | first }}", "user text[a]"},
        {"{{ u.replace('user', 'my') }}", "[my] text"},
        {"{{ 'a-b' | replace('-', u) }}", "[a]user text[b]"},
        {"{{ ['a', u, 'b'] | join(', ') }}", "[a, ]user text[, b]"},
        {"{{ ', '.join([u, 'a']) }}", "user text[, a]"},
        {"{{ ('<i>' ~ u) | upper }}", "[<I>]USER TEXT"},
        {"{{ ('ß' ~ u).title() }}", "[Ss]user Text"},
        {"{{ ('ab' ~ u) | capitalize }}", "[Ab]user text"},
        {"{% set x %}<{{ u }}>{% endset %}{{ x }}", "[<]user text[>]"},
        {"{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(u) }}", "[<]user text[>]"},
        {"{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}{{ u }}!{% endcall %}",
         "[<]user text[!>]"},
        {"{% filter upper %}a{{ u }}{% endfilter %}", "[A]USER TEXT"},
        {"{% generation %}{{ u }}.{% endgeneration %}", "user text[.]"},
        {"{{ '%s!' % u }}{{ '{}?'.format(u) }}", "user text[!]user text[?]"},
        {"{{ '<' ~ [u, '<s>'] }}", "[<]['user text', '<s>']"},
        {"{{ d | tojson }}", "{\"k\": \"<s>\"}"},
        {"{{ '<s>' | tojson }}", "\"<s>\""},
        {"{{ d.k }}{{ d['k'] }}{% for k, v in d.items() %}{{ k }}{{ v }}{% endfor %}", "<s><s>k<s>"},
        {"{{ n }}{{ 1 }}{{ none }}", "71None"},
        {"{{ ('a\n' ~ u) | indent(2) }}", "[a\n  ]user text"},
        {"{{ u | string | safe }}{{ '<' | e }}", "user text[&lt;]"},
        {"{{ u * 2 }}{{ 'ab' * 2 }}", "user textuser text[abab]"},
        {"{{ strftime_now('%Y') }}", "[1970]"},
        {"{% for c in '<' ~ u[:2] %}{{ c }}{% endfor %}", "[<]us"},
        {"{{ ('<' ~ u ~ '>').partition(' ') | last }}", "text[>]"},
        {"{{ (u ~ '<s>') | list | join }}", "user text[<s>]"},
        {"{{ u if u else '<s>' }}{{ missing | default('<s>') }}", "user text[<s>]"},
        {"{% set ns = namespace(s='') %}{% for i in range(2) %}{% set ns.s = ns.s ~ '<' ~ u %}{% endfor %}{{ "
         "ns.s }}",
         "[<]user text[<]user text"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char *got =
            marked(cases[i][0],
                   "{\"u\": \"user text\", \"n\": 7, \"d\": {\"k\": \"<s>\"}, \"bos_token\": \"not ours\"}");
        if (strcmp(got, cases[i][1]) != 0)
            fail_msg("%s\n  want %s\n  got  %s", cases[i][0], cases[i][1], got);
        free(got);
    }
}

static void roles_count_as_ours_when_asked(void **state) {
    (void)state;
    static const char source[] = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}";
    json_t *j = json_loads("{\"messages\": [{\"role\": \"user\", \"content\": \"user\"}, {\"role\": \"odd\", "
                           "\"content\": \"\"}]}",
                           0, NULL);
    for (int ours = 0; ours < 2; ours++) {
        vb__jinja *t = NULL;
        vb__jinja_result res;
        vb__jinja_options opt = {.roles_are_ours = ours};
        assert_int_equal(vb__jinja_compile(source, strlen(source), &t, NULL), VB_OK);
        assert_int_equal(vb__jinja_render(t, j, NULL, &opt, &res, NULL), VB_OK);
        assert_string_equal(res.text, "<|user|>user<|odd|>");
        assert_int_equal(res.n_runs, ours ? 5 : 7);
        assert_int_equal(res.runs[0].bytes, ours ? 8 : 2);
        vb__jinja_result_fini(&res);
        vb__jinja_destroy(t);
    }
    json_decref(j);
}

/* ---- hostile templates ---- */

static char *repeat(const char *head, const char *part, size_t n, const char *tail) {
    size_t h = strlen(head), p = strlen(part), t = strlen(tail);
    char *s = malloc(h + p * n + t + 1), *o = s;
    if (s == NULL) abort();
    memcpy(o, head, h);
    for (o += h; n > 0; n--, o += p) memcpy(o, part, p);
    memcpy(o, tail, t + 1);
    return s;
}

static double slowest;

/* Ends soon: with an error when `must_fail`. */
static void ends_soon(const char *source, bool must_fail) {
    vb__jinja_result res;
    json_t *j = json_loads("{\"s\": \"text\", \"l\": [1, 2, 3], \"d\": {\"a\": 1}}", 0, NULL);
    double start = cpu_ms();
    char *got = run(source, strlen(source), j, NULL, 0, &res);
    double ms = cpu_ms() - start;
    if (getenv("VERBATIM_TEST_VERBOSE") != NULL && ms > 30) print_message("%.0f ms: %.120s\n", ms, source);
    if (ms > slowest) slowest = ms;
    if (must_fail && strncmp(got, "ERROR", 5) != 0) fail_msg("no error: %.200s", source);
#if defined(__SANITIZE_ADDRESS__)
    double limit = 30000; /* the sanitizer searches text slowly */
#else
    double limit = 300; /* 100 ms on an idle machine */
#endif
    if (ms > limit) fail_msg("%.0f ms: %.200s (%.100s)", ms, source, got);
    free(got);
    json_decref(j);
    vb__jinja_result_fini(&res);
}

static void hostile_templates_end_soon(void **state) {
    (void)state;
    static const char *const fail[] = {
        "{% for i in range(100000) %}{% for j in range(100000) %}x{% endfor %}{% endfor %}",
        "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ "
        "ns.s | length }}",
        "{% set ns = namespace(s=['x']) %}{% for i in range(64) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(100000) %}{% set ns.s = [ns.s, ns.s] %}{% endfor "
        "%}{{ ns.s }}",
        "{% set ns = namespace(s='x') %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ "
        "ns.s }}",
        "{% set ns = namespace(s='x') %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ "
        "ns.s == [ns.s] }}{{ ns.s | tojson }}",
        "{% set ns = namespace(s=1) %}{% for i in range(100000) %}{% set ns.s = (ns.s,) %}{% endfor %}{{ "
        "{ns.s: 1} }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m() %}{{ m() }}{{ m() }}{% endmacro %}{{ m() }}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(40) }}",
        "{% macro m(n) %}{% call m(n) %}{% endcall %}{% endmacro %}{{ m(1) }}",
        "{% for x in [[1]] recursive %}{{ loop([x]) }}{% endfor %}",
        "{{ 'x' * 10 ** 10 }}",
        "{{ [0] * 10 ** 10 }}",
        "{{ 10 ** 1000000000 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'x'.ljust(10 ** 10) }}",
        "{{ 'x'.zfill(10 ** 10) }}",
        "{{ 'x'.center(10 ** 12) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '%.*f' % (1000000000, 1.5) }}",
        "{{ '{:.1000000}'.format(1.5) }}",
        "{{ '\t'.expandtabs(10 ** 12) }}",
        "{{ 'x' | indent(10 ** 12) }}",
        "{{ d | tojson(indent=10 ** 12) }}",
        "{{ 'x' | center(10 ** 12) }}",
        "{{ range(100000) | batch(1, 0) | map('batch', 10 ** 9, 0) | map('list') | list }}",
        "{{ range(3) | slice(10 ** 12) | list }}",
        "{{ [1] | batch(10 ** 12, 0) | list }}",
        "{% for i in range(100000) %}{{ range(100000) | list | length }}{% endfor %}",
        "{% for i in range(100000) %}{{ range(100000) | sum }}{% endfor %}",
        "{% set b = 'a' * 1000000 %}{% for i in range(100000) %}{{ b.rfind('b' ~ b[:1000]) }}{% endfor %}",
        "{% set b = 'a' * 1000000 %}{% for i in range(100000) %}{% set c = b.split('a') %}{% endfor %}",
        "{% set b = 'a' * 1000000 %}{% for i in range(100000) %}{% set c = b | replace('a', 'bb') %}{% "
        "endfor %}",
        "{% set b = 'a' * 1000000 %}{% for i in range(100000) %}{% set c = b == b ~ '' %}{% endfor %}",
        "{% set b = 'a' * 1000000 %}{% for i in range(100000) %}{% set c = b | upper %}{% endfor %}",
        "{% set b = 'ä' * 1000000 %}{% for i in range(100000) %}{% set c = b[i] %}{% endfor %}",
        "{% set b = 'a' * 1000000 %}{% for i in range(100000) %}{{ b in b }}{{ b.count('ab') }}{% endfor %}",
        "{% for i in range(100000) %}{{ 1.1 * i }}{% endfor %}{% for i in range(100000) %}{{ 1.1 * i }}{% "
        "endfor %}",
        "{{ (range(100000) | list) | sort | reverse | map('string') | map('float') | map('round', 3) | join "
        "| length }}{% for i in range(99999) %}{{ range(99999) | sort }}{% endfor %}",
        "{% set ns = namespace(d={}) %}{% for i in range(100000) %}{% set ns.d = dict(ns.d, **{i ~ '': "
        "ns.d}) %}{% endfor %}",
        "{% for i in range(1000000000) %}x{% endfor %}",
        "{{ 9223372036854775807 + 1 }}",
        "{{ -9223372036854775807 - 2 }}",
        "{{ '[' * 100000 | from_json }}",
        "{{ ('[' * 100000) | from_json }}",
        "{{ '{0[' * 1000 }}{{ '{0[a'.format(1) }}",
        "{% for i in range(100000) %}{{ strftime_now('%c' * 1000) }}{% endfor %}",
        "{% for i in range(100000) %}{% set x %}{{ 'x' * 100000 }}{% endset %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof(fail) / sizeof(fail[0]); i++) ends_soon(fail[i], true);
    static const char *const parts[][3] = {
        {"{{ ", "(", "1"},
        {"{{ ", "[", "1"},
        {"{{ ", "{1:", "1"},
        {"{{ ", "not ", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ 1", " + 1", " }}"},
        {"{{ d", ".a", " }}"},
        {"{{ s", "[0]", " }}"},
        {"{{ s", "|upper", " }}"},
        {"{{ s", "()", " }}"},
        {"{{ 1", " if 1 else 1", " }}"},
        {"{{ 1", " if 1", " }}"},
        {"{{ 1", " and 1", " }}"},
        {"{{ 1", " or 1", " }}"},
        {"{{ 1", " == 1", " }}"},
        {"{{ 1", " ~ 1", " }}"},
        {"{{ 1", " is number and 1", " }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for x in l %}", ""},
        {"", "{% macro m() %}", ""},
        {"{% if 0 %}", "{% elif 0 %}", "{% endif %}"},
        {"", "{% set x %}", ""},
        {"{% filter upper", "|upper", " %}x{% endfilter %}"},
        {"{% set x | upper", "|upper", " %}x{% endset %}"},
        {"", "{{ 1 }}", ""},
        {"", "{# #}", ""},
        {"", "{", ""},
        {"", "{%", ""},
        {"", "{{", ""},
        {"", "{#", ""},
        {"{% raw %}", "{%", ""},
        {"{{ '", "\\", "' }}"},
        {"{{ '", "\\x41", "' }}"},
        {"{{ ", "'a' ", " }}"},
        {"{{ ", "9", " }}"},
        {"{{ 1.", "9", " }}"},
        {"{{ 1e", "9", " }}"},
        {"{{ f(", "a=1,", ") }}"},
        {"{% macro m(", "a,", ") %}{% endmacro %}"},
        {"{{ [", "1,", "] }}"},
        {"{{ {", "1:1,", "} }}"},
        {"{% set ", "a,", " = 1 %}"},
        {"{{ '%", "%", "' % 1 }}"},
        {"{{ '", "{", "'.format(1) }}"},
        {"{{ s.", "x", " }}"},
        {"{% from a import ", "b,", " %}"},
    };
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        for (size_t n = 100; n <= 100000; n *= 10) {
            char *s = repeat(parts[i][0], parts[i][1], n, parts[i][2]);
            ends_soon(s, false);
            free(s);
        }
    print_message("slowest hostile template: %.1f ms of processor time\n", slowest);
}

static void too_large_a_source_is_refused(void **state) {
    (void)state;
    char *s = repeat("", "x", (1 << 20) + 1, "");
    vb__jinja *t = NULL;
    vb_error err = {0};
    assert_int_equal(vb__jinja_compile(s, (1 << 20) + 1, &t, &err), VB_E_LIMIT);
    assert_int_equal(vb__jinja_compile("a\n\xff", 3, &t, &err), VB_E_FORMAT);
    assert_non_null(strstr(err.text, "line 2"));
    assert_int_equal(vb__jinja_compile("\xed\xa0\x80", 3, &t, &err), VB_E_FORMAT);
    free(s);
}

static void errors_name_line_and_what_was_expected(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"a\n{% if x %}\n{{ y z }}", "template line 3: unexpected 'z', expected '}}'"},
        {"\n\n{% for x l %}", "template line 3: unexpected 'l', expected 'in'"},
        {"{% if x %}\n", "template line 1: the template ends inside the tag of line 1, expected {% elif %}, "
                         "{% else %} or {% endif %}"},
        {"\n{{ x.y }}", "template line 2: 'x' is undefined, expected a value"},
        {"\n{{ 'a' + 1 }}", "template line 2: unsupported operand types for +: 'str' and 'int', expected two "
                            "numbers, two texts or two lists"},
        {"{{ 1\n | nope }}",
         "template line 2: no filter named 'nope', expected one of those in docs/text.md"},
        {"{% do x %}", "template line 1: unknown tag 'do', expected another tag"},
        {"{{ [].append(1) }}", "template line 1: access to attribute 'append' of 'list' object is unsafe, "
                               "expected one that changes nothing"},
        {"{{ range(10 ** 9) }}", "template line 1: range: too many numbers, expected at most 100000"},
        {"\n\n{{ raise_exception('no: ' ~ 1) }}", "no: 1"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        vb__jinja_result res;
        char *got = run(cases[i][0], strlen(cases[i][0]), NULL, NULL, 0, &res);
        if (strncmp(got, "ERROR ", 6) != 0 || strcmp(got + 6, cases[i][1]) != 0)
            fail_msg("%s\n  want %s\n  got  %s", cases[i][0], cases[i][1], got);
        if (i == 9) assert_int_equal(res.line, 3);
        free(got);
        vb__jinja_result_fini(&res);
    }
}

/* ---- threads, memory, lines ---- */

static vb__jinja *shared_template;
static json_t *shared_context;

static void *render_often(void *arg) {
    (void)arg;
    for (int i = 0; i < 200; i++) {
        vb__jinja_result res;
        if (vb__jinja_render(shared_template, shared_context, NULL, NULL, &res, NULL) != VB_OK)
            return (void *)1;
        bool same = strcmp(res.text, "HÄ!a=1;b=[2, 'x'];3") == 0;
        vb__jinja_result_fini(&res);
        if (!same) return (void *)1;
    }
    return NULL;
}

static void one_template_serves_many_threads(void **state) {
    (void)state;
    static const char source[] = "{{ 'hä' | upper }}{{ 'ä!'[1] }}{% for k, v in d.items() %}{{ k }}={{ v "
                                 "}};{% endfor %}{{ 'äöü' | length }}";
    pthread_t t[4];
    void *bad[4];
    shared_context = json_loads("{\"d\": {\"a\": 1, \"b\": [2, \"x\"]}}", 0, NULL);
    assert_int_equal(vb__jinja_compile(source, strlen(source), &shared_template, NULL), VB_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&t[i], NULL, render_often, NULL), 0);
    for (int i = 0; i < 4; i++) pthread_join(t[i], &bad[i]);
    for (int i = 0; i < 4; i++) assert_null(bad[i]);
    vb__jinja_destroy(shared_template);
    json_decref(shared_context);
}

static void running_out_of_memory_is_an_error(void **state) {
    (void)state;
    static const char source[] = "{% macro m(x) %}{{ x | upper }}{% endmacro %}{% for k in d | dictsort %}{{ "
                                 "m(k[0]) }}{{ 'x' * 70000 }}{% endfor %}"
                                 "{{ raise_exception('end') }}";
    json_t *j = json_loads("{\"d\": {\"a\": 1, \"b\": [2, \"x\"]}}", 0, NULL);
    size_t before = vb__alloc_bytes(VB_TAG_TEXT);
    bool done = false;
    for (uint64_t n = 1; n < 200 && !done; n++) {
        vb__jinja *t = NULL;
        vb__jinja_result res = {0};
        vb_error err = {0};
        vb__alloc_fail_at(n, true);
        vb_err e = vb__jinja_compile(source, strlen(source), &t, &err);
        if (e == VB_OK) e = vb__jinja_render(t, j, NULL, NULL, &res, &err);
        vb__alloc_fail_at(0, false);
        assert_int_not_equal(e, VB_OK);
        done = e == VB_E_FORMAT && res.message != NULL;
        if (!done) assert_true(e == VB_E_MEMORY || e == VB_E_FORMAT);
        vb__jinja_result_fini(&res);
        vb__jinja_destroy(t);
        assert_int_equal(vb__alloc_bytes(VB_TAG_TEXT), before);
    }
    assert_true(done);
    json_decref(j);
}

static void lines_give_text_or_error(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        {"{\"template\": \"{{ a }}\\n\\n\", \"context\": {\"a\": \"\\u00e4\\\"\\u0000\"}}\n",
         "{\"text\":\"\xc3\xa4\\\"\\u0000\\n\"}\n"},
        {"{\"template\": \"{{ strftime_now('%Y') }}\", \"now\": 1796047509}", "{\"text\":\"2026\"}\n"},
        {"{\"template\": \"{{ strftime_now('%H:%M') }}\", \"now\": -60.5, \"context\": null}",
         "{\"text\":\"23:58\"}\n"},
        {"{\"template\": \"{{ strftime_now('%S') }}\"}", "{\"text\":\"42\"}\n"},
        {"{\"template\": \"{{ raise_exception('no') }}\"}", "{\"error\":\"template line 1: no\"}\n"},
        {"{\"template\": \"{{\"}",
         "{\"error\":\"template line 1: unexpected the end of the template, expected an expression\"}\n"},
        {"{\"template\": 1}",
         "{\"error\":\"template: missing or no string, expected the template's source\"}\n"},
        {"{\"template\": \"\", \"context\": []}",
         "{\"error\":\"context: not an object, expected the variables\"}\n"},
        {"{\"template\": \"\", \"now\": \"x\"}",
         "{\"error\":\"now: not a time, expected seconds since 1970\"}\n"},
        {"[1", NULL},
        {"", NULL},
        {"{\"template\": \"\", \"context\": {\"a\": 9223372036854775808}}", NULL},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        vb__buffer out;
        vb_error err = {0};
        vb__buffer_init(&out, 1 << 20);
        assert_int_equal(vb__template_line(cases[i][0], strlen(cases[i][0]), 42, &out, &err), VB_OK);
        if (cases[i][1] != NULL) assert_string_equal(vb__buffer_str(&out), cases[i][1]);
        else assert_int_equal(strncmp(vb__buffer_str(&out), "{\"error\":\"", 10), 0);
        vb__buffer_fini(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shared_cases),
        cmocka_unit_test(own_cases),
        cmocka_unit_test(every_byte_knows_its_origin),
        cmocka_unit_test(roles_count_as_ours_when_asked),
        cmocka_unit_test(hostile_templates_end_soon),
        cmocka_unit_test(too_large_a_source_is_refused),
        cmocka_unit_test(errors_name_line_and_what_was_expected),
        cmocka_unit_test(one_template_serves_many_threads),
        cmocka_unit_test(running_out_of_memory_is_an_error),
        cmocka_unit_test(lines_give_text_or_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
