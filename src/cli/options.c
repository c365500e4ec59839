/* Parsing of command-line options. See options.h. */
#include "cli/options.h"
#include "base/error.h"
#include "base/file.h"
#include "base/limits.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct found {
    const vb__opt *opt;
    void *value; /* where it goes */
} found;

static found by_name(const vb__command *c, void *values, const char *name, size_t len, char letter) {
    for (int g = 0; g < VB_OPT_GROUPS_MAX && c->groups[g].options; g++) {
        for (const vb__opt *o = c->groups[g].options; o->name; o++) {
            bool match =
                letter ? o->letter == letter : strlen(o->name) == len && memcmp(o->name, name, len) == 0;
            if (match) return (found){o, (char *)values + c->groups[g].base + o->offset};
        }
    }
    return (found){NULL, NULL};
}

static bool takes_value(const vb__opt *o) {
    return o->kind != VB_OPT_FLAG && o->kind != VB_OPT_ZERO;
}

static bool parse_int(const char *s, int64_t *out) {
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || *end != '\0' || errno != 0 || isspace((unsigned char)*s)) return false;
    *out = v;
    return true;
}

static bool parse_number(const char *s, double *out) {
    char *end;
    double v = strtod(s, &end);
    if (end == s || *end != '\0' || !isfinite(v) || isspace((unsigned char)*s)) return false;
    *out = v;
    return true;
}

static bool one_of(const char *words, const char *s) {
    size_t len = strlen(s);
    for (const char *p = words; len > 0 && p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
        if (strncmp(p, s, len) == 0 && (p[len] == '|' || p[len] == '\0')) return true;
    return false;
}

/* `as` is how the user wrote it: "--temp" or "VERBATIM_THREADS". */
static vb_err set_value(found f, const char *as, const char *s, vb_error *err) {
    const vb__opt *o = f.opt;
    bool limits = o->lo != 0 || o->hi != 0;
    switch (o->kind) {
    case VB_OPT_FLAG: *(bool *)f.value = true; return VB_OK;
    case VB_OPT_ZERO: *(vb__opt_number *)f.value = (vb__opt_number){true, 0.0}; return VB_OK;
    case VB_OPT_STRING: *(const char **)f.value = s; return VB_OK;
    case VB_OPT_CHOICE:
        if (!one_of(o->argument, s))
            return vb__fail(err, VB_E_ARGUMENT, "%s: is \"%.60s\", expected %s", as, s, o->argument);
        *(const char **)f.value = s;
        return VB_OK;
    case VB_OPT_LIST: {
        vb__opt_list *l = f.value;
        if (l->n == VB_OPT_LIST_MAX || (o->hi != 0 && l->n == o->hi))
            return vb__fail(err, VB_E_ARGUMENT, "%s: given too often, expected at most %d times", as,
                            o->hi != 0 ? (int)o->hi : (int)VB_OPT_LIST_MAX);
        l->v[l->n++] = s;
        return VB_OK;
    }
    case VB_OPT_AUTO:
        if (strcmp(s, "auto") == 0) {
            *(vb__opt_int *)f.value = (vb__opt_int){true, 0};
            return VB_OK;
        }
        __attribute__((fallthrough));
    case VB_OPT_INT: {
        int64_t v;
        const char *word = o->kind == VB_OPT_AUTO ? " or \"auto\"" : "";
        if (!parse_int(s, &v))
            return vb__fail(err, VB_E_ARGUMENT, "%s: is \"%.60s\", expected a whole number%s", as, s, word);
        if (limits && (v < o->lo || v > o->hi))
            return vb__fail(err, VB_E_RANGE, "%s: is %lld, expected %lld to %lld%s", as, (long long)v,
                            (long long)o->lo, (long long)o->hi, word);
        *(vb__opt_int *)f.value = (vb__opt_int){true, v};
        return VB_OK;
    }
    default: {
        double v;
        if (!parse_number(s, &v))
            return vb__fail(err, VB_E_ARGUMENT, "%s: is \"%.60s\", expected a number", as, s);
        if (limits && (v < (double)o->lo || v > (double)o->hi))
            return vb__fail(err, VB_E_RANGE, "%s: is %g, expected %lld to %lld", as, v, (long long)o->lo,
                            (long long)o->hi);
        *(vb__opt_number *)f.value = (vb__opt_number){true, v};
        return VB_OK;
    }
    }
}

static vb_err from_environment(const vb__command *c, void *values, vb_error *err) {
    for (int g = 0; g < VB_OPT_GROUPS_MAX && c->groups[g].options; g++) {
        for (const vb__opt *o = c->groups[g].options; o->name; o++) {
            const char *s = o->env ? getenv(o->env) : NULL;
            if (!s || !*s) continue;
            if (!takes_value(o)) {
                if (strcmp(s, "0") == 0) continue;
                if (strcmp(s, "1") != 0)
                    return vb__fail(err, VB_E_ARGUMENT, "%s: is \"%.60s\", expected 0 or 1", o->env, s);
            }
            void *value = (char *)values + c->groups[g].base + o->offset;
            VB_TRY(set_value((found){o, value}, o->env, s, err));
            if (o->kind == VB_OPT_LIST) ((vb__opt_list *)value)->inherited = true;
        }
    }
    return VB_OK;
}

/* --help or -h anywhere but as the value of an option: it wins over everything that is wrong besides. */
static bool asks_for_help(const vb__command *c, void *values, int argc, char **argv) {
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        const char *a = argv[i];
        if (strcmp(a, "--help") == 0 || strcmp(a, "-h") == 0) return true;
        if (a[0] != '-' || a[1] == '\0') continue;
        found f = {NULL, NULL};
        if (a[1] != '-' && a[2] == '\0') f = by_name(c, values, NULL, 0, a[1]);
        else if (a[1] == '-') f = by_name(c, values, a + 2, strlen(a + 2), 0);
        if (f.opt && takes_value(f.opt)) i++; /* what follows is its value */
    }
    return false;
}

vb_err vb__options_parse(const vb__command *c, int argc, char **argv, void *values, const char **positional,
                         int *n_positional, bool *help, vb_error *err) {
    *n_positional = 0;
    *help = false;
    if (asks_for_help(c, values, argc, argv)) {
        *help = true;
        return VB_OK;
    }
    VB_TRY(from_environment(c, values, err));
    bool options = true;
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        if (options && strcmp(a, "--") == 0) {
            options = false;
            continue;
        }
        if (!options || a[0] != '-' || a[1] == '\0') { /* a lone "-" is a positional argument */
            if (*n_positional == c->max_positional)
                return vb__fail(err, VB_E_ARGUMENT, "%.80s: unexpected argument, expected: verbatim %s %s", a,
                                c->name, c->synopsis);
            positional[(*n_positional)++] = a;
            continue;
        }
        const char *value = NULL;
        char as[80];
        found f;
        if (a[1] == '-') {
            size_t len = strcspn(a + 2, "=");
            if (a[2 + len] == '=') value = a + 2 + len + 1;
            f = by_name(c, values, a + 2, len, 0);
            snprintf(as, sizeof as, "%.*s", (int)(len + 2 < 60 ? len + 2 : 60), a);
        } else {
            f = by_name(c, values, NULL, 0, a[1]);
            if (a[2] != '\0') value = a + 2;
            snprintf(as, sizeof as, "%.2s", a);
        }
        if (!f.opt)
            return vb__fail(err, VB_E_ARGUMENT,
                            "%s: unknown option, expected one of those in verbatim %s --help", as, c->name);
        if (!takes_value(f.opt)) {
            if (value) return vb__fail(err, VB_E_ARGUMENT, "%s: has a value, expected none", as);
            value = "";
        } else if (!value) {
            if (++i == argc)
                return vb__fail(err, VB_E_ARGUMENT, "%s: has no value, expected %s", as, f.opt->argument);
            value = argv[i];
        }
        if (f.opt->kind == VB_OPT_LIST && ((vb__opt_list *)f.value)->inherited)
            *(vb__opt_list *)f.value = (vb__opt_list){.n = 0};
        VB_TRY(set_value(f, as, value, err));
    }
    return VB_OK;
}

static const char *skip_space(const char *s) {
    return s + strspn(s, " \t\r\n");
}

static vb_err parse_id_text(const char *option, const char *s, int32_t **ids, int32_t *count, vb_error *err) {
    size_t cap = 0;
    int32_t n = 0;
    int32_t *v = NULL;
    vb_err e = VB_OK;
    s = skip_space(s);
    bool array = *s == '['; /* as run --json writes them */
    if (array) s = skip_space(s + 1);
    const char *at = s;
    while (*s != '\0' && !(array && *s == ']')) {
        char *end;
        at = s;
        errno = 0;
        long id = strtol(s, &end, 10);
        if (!isdigit((unsigned char)*s)) goto bad;
        if (errno != 0 || id >= VB_LIMIT_VOCAB) {
            e = vb__fail(err, VB_E_ARGUMENT, "%s: is %.*s at number %d, expected numbers below %d", option, end - s > 40 ? 40 : (int)(end - s), s,
                         n + 1, VB_LIMIT_VOCAB);
            goto out;
        }
        if ((size_t)n == cap) {
            cap = cap ? 2 * cap : 256;
            int32_t *more = cap > VB_LIMIT_CONTEXT ? NULL : vb__realloc_array(VB_TAG_MISC, v, cap, sizeof *v);
            if (!more) {
                e = vb__fail(err, VB_E_MEMORY, "%s: out of memory for %zu numbers", option, cap);
                goto out;
            }
            v = more;
        }
        v[n++] = (int32_t)id;
        s = skip_space(end);
        if (*s == ',') {
            s = skip_space(s + 1);
            if (!isdigit((unsigned char)*s)) goto bad; /* "1,,2" and "1," are slips */
        } else if (s == end && *s != '\0' && *s != ']') {
            goto bad;
        }
    }
    at = s;
    if (array && (*s != ']' || *skip_space(s + 1) != '\0')) goto bad;
    if (n == 0) {
        e = vb__fail(err, VB_E_ARGUMENT, "%s: has no numbers, expected some such as 1,2,3", option);
        goto out;
    }
    *ids = v;
    *count = n;
    return VB_OK;
bad:
    e = vb__fail(err, VB_E_ARGUMENT, "%s: is \"%.20s\" at number %d, expected numbers such as 1,2,3", option, at,
                 n + 1);
out:
    vb__free(v);
    return e;
}

vb_err vb__parse_ids(const char *option, const char *text, int32_t **ids, int32_t *count, vb_error *err) {
    if (text[0] != '@') return parse_id_text(option, text, ids, count, err);
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
    vb_err e = vb__file_read(text + 1, VB_LIMIT_PROMPT_BYTES, &b, err);
    if (e == VB_OK && memchr(b.data ? b.data : "", '\0', b.len))
        e = vb__fail(err, VB_E_FORMAT, "%s: %.100s holds a NUL byte, expected numbers", option, text + 1);
    if (e == VB_OK) e = parse_id_text(option, vb__buffer_str(&b), ids, count, err);
    vb__buffer_fini(&b);
    return e;
}
