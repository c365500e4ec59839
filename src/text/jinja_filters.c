/* Filters on single values, and the table of all of them. */
#include "text/jinja_filters.h"
#include <math.h>
#include <stdio.h>

static const jargs no_args = {0};

static bool str_method(jr *r, jv in, uint32_t id, const jargs *a, jv *out) {
    jv s;
    if (!vb__jv_str(r, in, &s) || !vb__jstr_method(r, s.s, id, a, out)) return false;
    if (s.s->markup && out->t == JV_STR && out->s != s.s) ((jstr *)out->s)->markup = true;
    return true;
}

static bool nothing(jr *r, const char *what, const jargs *a) {
    return vb__jbind(r, what, "", a, NULL);
}

static bool f_upper(jr *r, jv in, const jargs *a, jv *out) {
    return nothing(r, "upper", a) && str_method(r, in, M_upper, a, out);
}
static bool f_lower(jr *r, jv in, const jargs *a, jv *out) {
    return nothing(r, "lower", a) && str_method(r, in, M_lower, a, out);
}
static bool f_capitalize(jr *r, jv in, const jargs *a, jv *out) {
    return nothing(r, "capitalize", a) && str_method(r, in, M_capitalize, a, out);
}
static bool f_string(jr *r, jv in, const jargs *a, jv *out) {
    return nothing(r, "string", a) && vb__jv_str(r, in, out);
}

static bool f_trim(jr *r, jv in, const jargs *a, jv *out) {
    jv v[1];
    if (!vb__jbind(r, "trim", "chars?", a, v)) return false;
    jargs b = {.pos = v, .n = v[0].t != JV_ABSENT};
    return str_method(r, in, M_strip, &b, out);
}

static bool f_center(jr *r, jv in, const jargs *a, jv *out) {
    jv v[1];
    if (!vb__jbind(r, "center", "width?", a, v)) return false;
    if (v[0].t == JV_ABSENT) v[0] = vb__jv_int(80);
    jargs b = {.pos = v, .n = 1};
    return str_method(r, in, M_center, &b, out);
}

static bool f_replace(jr *r, jv in, const jargs *a, jv *out) {
    jv v[3];
    if (!vb__jbind(r, "replace", "old new count?", a, v) || !vb__jv_str(r, v[0], &v[0]) ||
        !vb__jv_str(r, v[1], &v[1]))
        return false;
    jargs b = {.pos = v, .n = v[2].t == JV_ABSENT || v[2].t == JV_NONE ? 2 : 3};
    return str_method(r, in, M_replace, &b, out);
}

/* The first character of each word and of each run of separators in upper case, the rest in lower case. */
static bool f_title(jr *r, jv in, const jargs *a, jv *out) {
    jv s;
    jsb b;
    if (!nothing(r, "title", a) || !vb__jv_str(r, in, &s)) return false;
    vb__jsb_init(r, &b);
    const jstr *x = s.s;
    uint32_t at = 0;
    while (at < x->len) {
        uint32_t start = at, first = 0, cp, n;
        bool sep = false;
        while (at < x->len) {
            n = vb__jutf8(x->s + at, x->s + x->len, &cp);
            bool is_sep = cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<' || vb__jcp_space(cp);
            if (at == start) sep = is_sep, first = n;
            else if (is_sep != sep) break;
            at += n;
        }
        if (!vb__jstr_case(&b, x, start, start + first, JC_UPPER) ||
            !vb__jstr_case(&b, x, start + first, at, JC_LOWER))
            return false;
    }
    return vb__jsb_take(&b, out);
}

static bool f_wordcount(jr *r, jv in, const jargs *a, jv *out) {
    jv s;
    int64_t n = 0;
    bool word = false;
    if (!nothing(r, "wordcount", a) || !vb__jv_str(r, in, &s) || !vb__jwork(r, s.s->len / 4)) return false;
    for (const char *p = s.s->s, *end = p + s.s->len; p < end;) {
        uint32_t cp;
        p += vb__jutf8(p, end, &cp);
        bool w = vb__jcp_word(cp);
        n += w && !word;
        word = w;
    }
    *out = vb__jv_int(n);
    return true;
}

static bool f_truncate(jr *r, jv in, const jargs *a, jv *out) {
    jv v[4], s, end, part;
    int64_t length, leeway;
    bool kill;
    if (!vb__jbind(r, "truncate", "length? killwords? end? leeway?", a, v) ||
        !vb__jarg_int(r, "truncate", v[0], 255, &length) || !vb__jarg_truth(r, v[1], false, &kill) ||
        !vb__jarg_int(r, "truncate", v[3].t == JV_NONE ? (jv){0} : v[3], 5, &leeway))
        return false;
    int64_t chars;
    if (!vb__jv_len(r, in, &chars)) return false;
    s = in;
    if (v[2].t == JV_ABSENT ? !vb__jstr_borrow(r, "...", 3, true, &end) : !vb__jv_str(r, v[2], &end))
        return false;
    int64_t keep = length < 0 ? -1 : length - vb__jstr_chars(end.s);
    if (keep < 0 || leeway < 0)
        return vb__jerr(r, "truncate: the length is less than that of the end, expected more");
    if (chars - length <= leeway) {
        *out = s;
        return true;
    }
    if (in.t != JV_STR)
        return vb__jerr(r, "truncate: the value is %s, expected a text", vb__jv_type_name(in));
    uint32_t to = vb__jstr_offset(s.s, (uint32_t)keep);
    if (!kill)
        for (uint32_t i = to; i > 0; i--)
            if (s.s->s[i - 1] == ' ') {
                to = i - 1;
                break;
            }
    return vb__jstr_part(r, s.s, 0, to, &part) && vb__jstr_concat(r, part.s, end.s, out);
}

static bool f_urlencode(jr *r, jv in, const jargs *a, jv *out) {
    jv s;
    jsb b;
    if (!nothing(r, "urlencode", a)) return false;
    if (in.t == JV_DICT || in.t == JV_LIST || in.t == JV_TUPLE)
        return vb__jerr_code(r, VB_E_UNSUPPORTED, "urlencode of a %s is not supported, expected a text",
                             vb__jv_type_name(in));
    if (!vb__jv_str(r, in, &s)) return false;
    vb__jsb_init(r, &b);
    for (uint32_t i = 0; i < s.s->len; i++) {
        unsigned char c = (unsigned char)s.s->s[i];
        char buf[4];
        bool plain = ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9') ||
                     (c != '\0' && strchr("_.-~/", c) != NULL);
        if (plain) buf[0] = (char)c, buf[1] = '\0';
        else snprintf(buf, sizeof(buf), "%%%02X", c);
        if (!vb__jsb_puts(&b, buf, false)) return false;
    }
    return vb__jsb_take(&b, out);
}

static bool put_escaped(jsb *b, const jstr *s) {
    uint32_t from = 0;
    for (uint32_t i = 0; i < s->len; i++) {
        const char *e = s->s[i] == '&'    ? "&amp;"
                        : s->s[i] == '<'  ? "&lt;"
                        : s->s[i] == '>'  ? "&gt;"
                        : s->s[i] == '\'' ? "&#39;"
                        : s->s[i] == '"'  ? "&#34;"
                                          : NULL;
        if (e == NULL) continue;
        if (!vb__jsb_put_part(b, s, from, i) || !vb__jsb_puts(b, e, vb__jstr_ours_at(s, i))) return false;
        from = i + 1;
    }
    return vb__jwork(b->r, s->len / 16) && vb__jsb_put_part(b, s, from, s->len);
}

static bool mark(jr *r, const jstr *s, jv *out) {
    jstr *m = vb__jalloc(r, sizeof(*m));
    if (m == NULL) return false;
    *m = *s;
    m->markup = true;
    *out = (jv){.t = JV_STR, .s = m};
    return true;
}

static bool escape(jr *r, jv in, bool force, jv *out) {
    jv s;
    jsb b;
    if (in.t == JV_STR && in.s->markup && !force) {
        *out = in;
        return true;
    }
    vb__jsb_init(r, &b);
    if (!vb__jv_str(r, in, &s) || !put_escaped(&b, s.s) || !vb__jsb_take(&b, &s)) return false;
    return mark(r, s.s, out);
}

static bool f_escape(jr *r, jv in, const jargs *a, jv *out) {
    return nothing(r, "escape", a) && escape(r, in, false, out);
}
static bool f_forceescape(jr *r, jv in, const jargs *a, jv *out) {
    return nothing(r, "forceescape", a) && escape(r, in, true, out);
}

static bool f_safe(jr *r, jv in, const jargs *a, jv *out) {
    jv s;
    return nothing(r, "safe", a) && vb__jv_str(r, in, &s) && mark(r, s.s, out);
}

static bool f_indent(jr *r, jv in, const jargs *a, jv *out) {
    jv v[3], by, line, lines;
    bool first, blank;
    jsb b;
    if (!vb__jbind(r, "indent", "width? first? blank?", a, v) || !vb__jarg_truth(r, v[1], false, &first) ||
        !vb__jarg_truth(r, v[2], false, &blank))
        return false;
    if (in.t == JV_UNDEF) return vb__jerr_undef(r, in);
    if (in.t != JV_STR) return vb__jerr(r, "indent: the value is %s, expected a text", vb__jv_type_name(in));
    if (v[0].t == JV_STR) {
        by = v[0];
    } else {
        int64_t width;
        if (!vb__jarg_int(r, "indent", v[0], 4, &width)) return false;
        vb__jsb_init(r, &b);
        for (int64_t i = 0; i < width; i++)
            if (!vb__jsb_putc(&b, ' ', true)) return false;
        if (!vb__jsb_take(&b, &by)) return false;
    }
    /* A newline more, so that an empty last line counts. */
    jstr nl = {.s = "\n", .len = 1, .chars = 1, .ours = true};
    if (!vb__jstr_concat(r, in.s, &nl, &line) || !vb__jstr_method(r, line.s, M_splitlines, &no_args, &lines))
        return false;
    vb__jsb_init(r, &b);
    for (uint32_t i = 0; i < lines.l->n; i++) {
        const jstr *l = lines.l->v[i].s;
        bool indented = i == 0 ? first : blank || l->len > 0;
        if ((i > 0 && !vb__jsb_putc(&b, '\n', true)) || (indented && !vb__jsb_put_str(&b, by.s)) ||
            !vb__jsb_put_str(&b, l))
            return false;
    }
    return vb__jsb_take(&b, out);
}

static bool f_format(jr *r, jv in, const jargs *a, jv *out) {
    jv s, args;
    if (a->n > 0 && a->n_kw > 0)
        return vb__jerr(r, "format: positional and keyword arguments, expected one kind");
    if (!vb__jv_str(r, in, &s)) return false;
    if (a->n_kw > 0) {
        jdict *d;
        if (!vb__jdict_new(r, a->n_kw, &d)) return false;
        for (uint32_t i = 0; i < a->n_kw; i++)
            if (!vb__jdict_set(r, d, a->kwn[i], a->kwv[i])) return false;
        args = (jv){.t = JV_DICT, .d = d};
    } else if (!vb__jv_list(r, JV_TUPLE, a->pos, a->n, &args)) {
        return false;
    }
    return vb__jformat_percent(r, s.s, args, out);
}

/* ---- numbers ---- */

static bool f_abs(jr *r, jv in, const jargs *a, jv *out) {
    if (!nothing(r, "abs", a)) return false;
    if (in.t == JV_FLOAT) {
        *out = vb__jv_float(fabs(in.f));
        return true;
    }
    if (in.t == JV_INT || in.t == JV_BOOL) {
        int64_t i = in.t == JV_BOOL ? in.b : in.i;
        if (i < 0) return vb__jop_negate(r, in, false, out);
        *out = vb__jv_int(i);
        return true;
    }
    return vb__jerr(r, "bad operand type for abs: '%s', expected a number", vb__jv_type_name(in));
}

static bool float_to_int(jr *r, double f, jv *out) {
    f = trunc(f);
    if (f >= 9223372036854775808.0 || f < -9223372036854775808.0)
        return vb__jerr_code(r, VB_E_LIMIT, "an integer is too large, expected at most 64 bits");
    *out = vb__jv_int((int64_t)f);
    return true;
}

static bool f_int(jr *r, jv in, const jargs *a, jv *out) {
    jv v[2];
    int64_t base, i;
    bool ok;
    double f;
    if (!vb__jbind(r, "int", "default? base?", a, v) || !vb__jarg_int(r, "int", v[1], 10, &base))
        return false;
    *out = v[0].t == JV_ABSENT ? vb__jv_int(0) : v[0];
    switch (in.t) {
    case JV_UNDEF: return vb__jerr_undef(r, in);
    case JV_BOOL: *out = vb__jv_int(in.b); return true;
    case JV_INT: *out = in; return true;
    case JV_FLOAT:
        if (isnan(in.f)) return true;
        if (isinf(in.f)) return vb__jerr(r, "int: an infinite number, expected a finite one");
        return float_to_int(r, in.f, out);
    case JV_STR:
        if (!vb__jint_parse(r, in.s, base < 0 || base > 99 ? 99 : (int)base, &i, &ok)) return false;
        if (ok) {
            *out = vb__jv_int(i);
            return true;
        }
        if (!vb__jfloat_parse(in.s, &f) || !isfinite(f)) return true;
        return float_to_int(r, f, out);
    default: return true;
    }
}

static bool f_float(jr *r, jv in, const jargs *a, jv *out) {
    jv v[1];
    double f;
    if (!vb__jbind(r, "float", "default?", a, v)) return false;
    *out = v[0].t == JV_ABSENT ? vb__jv_float(0.0) : v[0];
    switch (in.t) {
    case JV_UNDEF: return vb__jerr_undef(r, in);
    case JV_BOOL: *out = vb__jv_float(in.b); break;
    case JV_INT: *out = vb__jv_float((double)in.i); break;
    case JV_FLOAT: *out = in; break;
    case JV_STR:
        if (vb__jfloat_parse(in.s, &f)) *out = vb__jv_float(f);
        break;
    default: break;
    }
    return true;
}

static bool round_int(jr *r, int64_t i, int64_t digits, jv *out) {
    if (digits >= 0 || i == 0) {
        *out = vb__jv_int(i);
        return true;
    }
    if (digits < -18) { /* half of 10^19 lies beyond 64 bits, except around 5 * 10^18 */
        *out = vb__jv_int(0);
        if (digits == -19 && (i > 5000000000000000000 || i < -5000000000000000000))
            return vb__jerr_code(r, VB_E_LIMIT, "an integer is too large, expected at most 64 bits");
        return true;
    }
    int64_t p = 1;
    for (int64_t k = digits; k < 0; k++) p *= 10;
    int64_t rest = i % p, low = i - rest, half = p / 2; /* towards zero first */
    int64_t a = rest < 0 ? -rest : rest;
    bool up = a > half || (a == half && ((low / p) & 1) != 0);
    int64_t v = low;
    if (up && __builtin_add_overflow(low, i < 0 ? -p : p, &v))
        return vb__jerr_code(r, VB_E_LIMIT, "an integer is too large, expected at most 64 bits");
    *out = vb__jv_int(v);
    return true;
}

static bool f_round(jr *r, jv in, const jargs *a, jv *out) {
    jv v[2];
    int64_t digits;
    if (!vb__jbind(r, "round", "precision? method?", a, v) || !vb__jarg_int(r, "round", v[0], 0, &digits))
        return false;
    bool ceil_it = v[1].t == JV_STR && vb__jstr_same(v[1].s, "ceil"),
         floor_it = v[1].t == JV_STR && vb__jstr_same(v[1].s, "floor");
    if (!ceil_it && !floor_it && v[1].t != JV_ABSENT &&
        !(v[1].t == JV_STR && vb__jstr_same(v[1].s, "common")))
        return vb__jerr(r, "round: an unknown method, expected common, ceil or floor");
    if (in.t == JV_UNDEF) return vb__jerr_undef(r, in);
    bool integer = in.t == JV_INT || in.t == JV_BOOL;
    if (!integer && in.t != JV_FLOAT)
        return vb__jerr(r, "round: the value is %s, expected a number", vb__jv_type_name(in));
    if (ceil_it || floor_it) {
        double x = in.t == JV_FLOAT ? in.f : (double)(in.t == JV_BOOL ? in.b : in.i),
               p = pow(10.0, (double)digits);
        double y = ceil_it ? ceil(x * p) : floor(x * p);
        if (!isfinite(y) || p == 0.0)
            return vb__jerr(r, "round: the number is out of range, expected a finite one");
        *out = vb__jv_float((y == 0.0 ? 0.0 : y) / p); /* an integer in between has no negative zero */
        return true;
    }
    if (integer) return round_int(r, in.t == JV_BOOL ? in.b : in.i, digits, out);
    if (!isfinite(in.f) && v[0].t == JV_NONE)
        return vb__jerr(r, "round: the number is not finite, expected a finite one");
    if (!vb__jwork(r, 200)) return false;
    *out = vb__jv_float(vb__jfloat_round(in.f, digits));
    return true;
}

/* ---- others ---- */

static bool f_default(jr *r, jv in, const jargs *a, jv *out) {
    jv v[2];
    bool also_false, truth = true;
    if (!vb__jbind(r, "default", "default_value? boolean?", a, v) ||
        !vb__jarg_truth(r, v[1], false, &also_false))
        return false;
    if (in.t != JV_UNDEF && also_false && !vb__jv_truth(r, in, &truth)) return false;
    *out = in;
    if (in.t != JV_UNDEF && truth) return true;
    *out = v[0];
    return v[0].t != JV_ABSENT || vb__jstr_borrow(r, "", 0, true, out);
}

static bool f_attr(jr *r, jv in, const jargs *a, jv *out) {
    jv v[1], s, probe;
    if (!vb__jbind(r, "attr", "name", a, v) || !vb__jv_str(r, v[0], &s)) return false;
    if (in.t == JV_UNDEF) return vb__jerr_undef(r, in);
    if (!vb__jop_getattr(r, in, s.s, vb__jmethod_find(s.s->s, s.s->len), &probe)) return false;
    /* attributes only, never the items of a mapping */
    bool item =
        in.t == JV_DICT && probe.t != JV_METHOD && !(probe.t == JV_UNDEF && probe.u->kind == JU_UNSAFE);
    if (item) return vb__jv_undef(r, JU_ATTR, in.t, s, out);
    *out = probe;
    return true;
}

static bool f_from_json(jr *r, jv in, const jargs *a, jv *out) {
    json_error_t e;
    if (!nothing(r, "from_json", a)) return false;
    if (in.t != JV_STR)
        return vb__jerr(r, "from_json: the value is %s, expected a text", vb__jv_type_name(in));
    if (!vb__jwork(r, in.s->len / 2)) return false;
    json_t *j = json_loadb(in.s->s, in.s->len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &e);
    if (j == NULL) return vb__jerr(r, "from_json: %s, expected JSON", e.text);
    if (r->parsed == NULL) r->parsed = json_array();
    if (r->parsed == NULL || json_array_append_new(r->parsed, j) != 0)
        return vb__jerr_code(r, VB_E_MEMORY, "out of memory");
    r->memory += in.s->len * 4; /* what the document holds, roughly */
    return vb__jv_from_json(r, j, false, 0, out);
}

static const struct {
    const char *name;
    jfilter_fn *fn; /* NULL: known, not supported */
} filters[] = {
    {"abs", f_abs},
    {"attr", f_attr},
    {"batch", vb__jf_batch},
    {"capitalize", f_capitalize},
    {"center", f_center},
    {"count", vb__jf_length},
    {"d", f_default},
    {"default", f_default},
    {"dictsort", vb__jf_dictsort},
    {"e", f_escape},
    {"escape", f_escape},
    {"filesizeformat", NULL},
    {"first", vb__jf_first},
    {"float", f_float},
    {"forceescape", f_forceescape},
    {"format", f_format},
    {"from_json", f_from_json},
    {"groupby", vb__jf_groupby},
    {"indent", f_indent},
    {"int", f_int},
    {"items", vb__jf_items},
    {"join", vb__jf_join},
    {"last", vb__jf_last},
    {"length", vb__jf_length},
    {"list", vb__jf_list},
    {"lower", f_lower},
    {"map", vb__jf_map},
    {"max", vb__jf_max},
    {"min", vb__jf_min},
    {"pprint", NULL},
    {"random", NULL},
    {"reject", vb__jf_reject},
    {"rejectattr", vb__jf_rejectattr},
    {"replace", f_replace},
    {"reverse", vb__jf_reverse},
    {"round", f_round},
    {"safe", f_safe},
    {"select", vb__jf_select},
    {"selectattr", vb__jf_selectattr},
    {"slice", vb__jf_slice},
    {"sort", vb__jf_sort},
    {"string", f_string},
    {"striptags", NULL},
    {"sum", vb__jf_sum},
    {"title", f_title},
    {"tojson", vb__jv_json},
    {"trim", f_trim},
    {"truncate", f_truncate},
    {"unique", vb__jf_unique},
    {"upper", f_upper},
    {"urlencode", f_urlencode},
    {"urlize", NULL},
    {"wordcount", f_wordcount},
    {"wordwrap", NULL},
    {"xmlattr", NULL},
};

int vb__jfilter_find(const char *s, size_t n) {
    for (size_t i = 0; i < sizeof(filters) / sizeof(filters[0]); i++)
        if (strlen(filters[i].name) == n && memcmp(filters[i].name, s, n) == 0) return (int)i;
    return -1;
}

bool vb__jfilter_call(jr *r, int f, jv in, const jargs *a, jv *out) {
    if (!vb__jwork(r, 2)) return false;
    if (in.t == JV_UNDEF && in.u->kind == JU_UNSAFE && filters[f].fn != f_default)
        return vb__jerr_undef(r, in);
    if (filters[f].fn != NULL) return filters[f].fn(r, in, a, out);
    return vb__jerr_code(r, VB_E_UNSUPPORTED,
                         "the filter '%s' is not supported, expected one of those in docs/text.md",
                         filters[f].name);
}
