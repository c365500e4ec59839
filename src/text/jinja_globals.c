/* Global functions, and how call arguments find their parameters. */
#include "text/jinja_int.h"
#include <stdio.h>
#include <time.h>

/* ---- arguments ---- */

bool vb__jbind(jr *r, const char *what, const char *spec, const jargs *a, jv *slots) {
    const char *starts[16];
    size_t lens[16];
    bool optional[16], keywords = *spec != '/';
    uint32_t n = 0;
    if (!keywords) spec++;
    while (*spec != '\0') {
        size_t len = strcspn(spec, " ");
        optional[n] = spec[len - 1] == '?';
        starts[n] = spec;
        lens[n] = len - optional[n];
        slots[n++] = (jv){0};
        spec += len;
        if (*spec == ' ') spec++;
    }
    if (a->n > n) return vb__jerr(r, "%s takes %u arguments but was given %u, expected fewer", what, n, a->n);
    for (uint32_t i = 0; i < a->n; i++) slots[i] = a->pos[i];
    for (uint32_t k = 0; k < a->n_kw; k++) {
        const jstr *name = a->kwn[k].s;
        uint32_t i = 0;
        while (i < n && !(lens[i] == name->len && memcmp(starts[i], name->s, name->len) == 0)) i++;
        if (i == n || !keywords)
            return vb__jerr(r, "%s has no parameter '%.*s', expected another", what,
                            name->len > 40 ? 40 : (int)name->len, name->s);
        if (slots[i].t != JV_ABSENT)
            return vb__jerr(r, "%s was given '%.*s' twice, expected it once", what, (int)lens[i], starts[i]);
        slots[i] = a->kwv[k];
    }
    for (uint32_t i = 0; i < n; i++)
        if (!optional[i] && slots[i].t == JV_ABSENT)
            return vb__jerr(r, "%s lacks its argument '%.*s', expected one", what, (int)lens[i], starts[i]);
    return true;
}

bool vb__jarg_int(jr *r, const char *what, jv v, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (v.t == JV_ABSENT) return true;
    if (v.t == JV_UNDEF) return vb__jerr_undef(r, v);
    if (v.t != JV_INT && v.t != JV_BOOL)
        return vb__jerr(r, "%s: an argument is %s, expected an integer", what, vb__jv_type_name(v));
    *out = v.t == JV_BOOL ? v.b : v.i;
    return true;
}

bool vb__jarg_truth(jr *r, jv v, bool fallback, bool *out) {
    *out = fallback;
    return v.t == JV_ABSENT || vb__jv_truth(r, v, out);
}

/* ---- functions ---- */

static const char *const names[JF_N] = {"range",        "dict",   "namespace", "raise_exception",
                                        "strftime_now", "cycler", "joiner",    "lipsum"};

int vb__jfunc_find(const char *s, size_t n) {
    for (int i = 0; i < JF_N; i++)
        if (strlen(names[i]) == n && memcmp(names[i], s, n) == 0) return i;
    return -1;
}

const char *vb__jfunc_name(uint32_t f) {
    return names[f];
}

static bool make_range(jr *r, const jargs *a, jv *out) {
    jv v[3];
    int64_t start = 0, stop, step;
    if (!vb__jbind(r, "range", "/start stop? step?", a, v)) return false;
    if (a->n == 1) {
        if (!vb__jarg_int(r, "range", v[0], 0, &stop)) return false;
    } else if (!vb__jarg_int(r, "range", v[0], 0, &start) || !vb__jarg_int(r, "range", v[1], 0, &stop)) {
        return false;
    }
    if (!vb__jarg_int(r, "range", v[2], 1, &step)) return false;
    if (step == 0) return vb__jerr(r, "range: the step is zero, expected another number");
    uint64_t gap = step > 0       ? (stop > start ? (uint64_t)stop - (uint64_t)start : 0)
                   : start > stop ? (uint64_t)start - (uint64_t)stop
                                  : 0;
    uint64_t by = step > 0 ? (uint64_t)step : 0 - (uint64_t)step, n = gap / by + (gap % by != 0);
    if (n > JINJA_MAX_RANGE)
        return vb__jerr_code(r, VB_E_LIMIT, "range: too many numbers, expected at most %d", JINJA_MAX_RANGE);
    jrange *x = vb__jalloc(r, sizeof(*x));
    if (x == NULL) return false;
    *x = (jrange){start, step, stop, (int64_t)n};
    *out = (jv){.t = JV_RANGE, .r = x};
    return true;
}

/* dict(mapping or pairs, **more) */
static bool fill_dict(jr *r, const char *what, const jargs *a, jdict **out) {
    jdict *d;
    if (a->n > 1) return vb__jerr(r, "%s takes at most 1 argument, expected fewer", what);
    if (a->n == 1 && a->pos[0].t == JV_UNDEF) return vb__jerr_undef(r, a->pos[0]);
    if (!vb__jdict_new(r, a->n_kw, &d)) return false;
    if (a->n == 1 && a->pos[0].t == JV_DICT) {
        const jdict *from = a->pos[0].d;
        for (uint32_t i = 0; i < from->n; i++)
            if (!vb__jdict_set(r, d, from->e[i].k, from->e[i].v)) return false;
    } else if (a->n == 1) {
        jiter it;
        if (!vb__jiter_init(r, a->pos[0], &it)) return false;
        for (;;) {
            jv pair, *kv;
            uint32_t n;
            bool more;
            if (!vb__jiter_next(r, &it, &pair, &more)) return false;
            if (!more) break;
            if (!vb__jv_collect(r, pair, &kv, &n)) return false;
            if (n != 2) return vb__jerr(r, "%s: an item of length %u, expected a pair", what, n);
            if (!vb__jdict_set(r, d, kv[0], kv[1])) return false;
        }
    }
    for (uint32_t i = 0; i < a->n_kw; i++)
        if (!vb__jdict_set(r, d, a->kwn[i], a->kwv[i])) return false;
    *out = d;
    return true;
}

static bool make_namespace(jr *r, const jargs *a, jv *out) {
    jdict *d;
    if (!fill_dict(r, "namespace", a, &d)) return false;
    for (uint32_t i = 0; i < d->n; i++)
        if (d->e[i].k.t == JV_STR && d->e[i].k.s->len > 0 && d->e[i].k.s->s[0] == '_')
            return vb__jerr(r, "a namespace attribute begins with '_', expected another name");
    *out = (jv){.t = JV_NAMESPACE, .d = d};
    return true;
}

static bool raise_exception(jr *r, const jargs *a, jv *out) {
    jv v[1], s;
    (void)out;
    if (!vb__jbind(r, "raise_exception", "message", a, v) || !vb__jv_str(r, v[0], &s)) return false;
    r->message = vb__strndup(VB_TAG_TEXT, s.s->s, s.s->len);
    r->raised = true;
    return vb__jerr_code(r, VB_E_FORMAT, "%s", r->message != NULL ? r->message : "");
}

/* One % directive, Python's for a time without zone on glibc, names in English. */
static bool put_directive(jsb *b, char flag, char c, const struct tm *tm, int64_t now, bool ours) {
    static const char *const days[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                       "Thursday", "Friday", "Saturday"};
    static const char *const months[] = {"January",   "February", "March",    "April",
                                         "May",       "June",     "July",     "August",
                                         "September", "October",  "November", "December"};
    char buf[64] = "", fmt[4] = {'%', flag != '\0' ? flag : c, flag != '\0' ? c : '\0', '\0'};
    const char *s = buf;
    char d[4], m[4];
    snprintf(d, sizeof(d), "%.3s", days[tm->tm_wday]);
    snprintf(m, sizeof(m), "%.3s", months[tm->tm_mon]);
    switch (c) {
    case 'a': s = d; break;
    case 'A': s = days[tm->tm_wday]; break;
    case 'b':
    case 'h': s = m; break;
    case 'B': s = months[tm->tm_mon]; break;
    case 'p': s = tm->tm_hour < 12 ? "AM" : "PM"; break;
    case 'P': s = tm->tm_hour < 12 ? "am" : "pm"; break;
    case 'c':
        snprintf(buf, sizeof(buf), "%s %s %2d %02d:%02d:%02d %d", d, m, tm->tm_mday, tm->tm_hour, tm->tm_min,
                 tm->tm_sec, tm->tm_year + 1900);
        break;
    case 'f': s = "000000"; break;
    case 'z':
    case 'Z': break;
    case '%': s = "%"; break;
    case 's': snprintf(buf, sizeof(buf), "%lld", (long long)now); break;
    case 'x':
        snprintf(buf, sizeof(buf), "%02d/%02d/%02d", tm->tm_mon + 1, tm->tm_mday, (tm->tm_year + 1900) % 100);
        break;
    case 'X': snprintf(buf, sizeof(buf), "%02d:%02d:%02d", tm->tm_hour, tm->tm_min, tm->tm_sec); break;
    case 'r':
        snprintf(buf, sizeof(buf), "%02d:%02d:%02d %s", (tm->tm_hour + 11) % 12 + 1, tm->tm_min, tm->tm_sec,
                 tm->tm_hour < 12 ? "AM" : "PM");
        break;
    case 'd':
    case 'D':
    case 'e':
    case 'C':
    case 'F':
    case 'g':
    case 'G':
    case 'H':
    case 'I':
    case 'j':
    case 'k':
    case 'l':
    case 'm':
    case 'M':
    case 'n':
    case 'R':
    case 'S':
    case 't':
    case 'T':
    case 'u':
    case 'U':
    case 'V':
    case 'w':
    case 'W':
    case 'y':
    case 'Y': {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        size_t n = strftime(buf, sizeof(buf), fmt, tm);
#pragma GCC diagnostic pop
        buf[n] = '\0';
        break;
    }
    default: s = fmt; break; /* as it stands */
    }
    return vb__jwork(b->r, 40) && vb__jsb_puts(b, s, ours);
}

static bool strftime_now(jr *r, const jargs *a, jv *out) {
    jv v[1];
    if (!vb__jbind(r, "strftime_now", "format", a, v)) return false;
    if (v[0].t != JV_STR)
        return vb__jerr(r, "strftime_now: the format is %s, expected a text", vb__jv_type_name(v[0]));
    int64_t shown;
    struct tm tm;
    if (__builtin_add_overflow(r->opt.now, (int64_t)r->opt.utc_offset, &shown)) shown = 0;
    time_t t = (time_t)shown;
    if (gmtime_r(&t, &tm) == NULL)
        return vb__jerr(r, "strftime_now: the time is out of range, expected a date");
    const jstr *s = v[0].s;
    jsb b;
    vb__jsb_init(r, &b);
    for (uint32_t i = 0; i < s->len; i++) {
        bool ours = vb__jstr_ours_at(s, i), ok;
        if (s->s[i] != '%' || i + 1 == s->len) {
            ok = vb__jsb_putc(&b, s->s[i], ours);
        } else {
            char flag = strchr("-_0^#", s->s[i + 1]) != NULL && s->s[i + 1] != '\0' && i + 2 < s->len
                            ? s->s[++i]
                            : '\0';
            i++;
            ok = (unsigned char)s->s[i] < 0x80
                     ? put_directive(&b, flag, s->s[i], &tm, r->opt.now, ours)
                     : vb__jsb_putc(&b, '%', ours) && vb__jsb_putc(&b, s->s[i], ours);
        }
        if (!ok) return false;
    }
    return vb__jsb_take(&b, out);
}

static bool make_cycler(jr *r, const jargs *a, jv *out) {
    if (a->n == 0 || a->n_kw != 0) return vb__jerr(r, "cycler: no items, expected at least one");
    jcycler *c = vb__jalloc(r, sizeof(*c));
    jv list, *v = vb__jalloc(r, a->n * sizeof(jv));
    if (c == NULL || v == NULL) return false;
    memcpy(v, a->pos, a->n * sizeof(jv));
    if (!vb__jv_list(r, JV_TUPLE, v, a->n, &list)) return false;
    *c = (jcycler){list.l, 0};
    *out = (jv){.t = JV_CYCLER, .cy = c};
    return true;
}

bool vb__jfunc_call(jr *r, uint32_t f, const jargs *a, jv *out) {
    jv v[1];
    switch (f) {
    case JF_RANGE: return make_range(r, a, out);
    case JF_DICT: *out = (jv){.t = JV_DICT}; return fill_dict(r, "dict", a, &out->d);
    case JF_NAMESPACE: return make_namespace(r, a, out);
    case JF_RAISE: return raise_exception(r, a, out);
    case JF_STRFTIME: return strftime_now(r, a, out);
    case JF_CYCLER: return make_cycler(r, a, out);
    case JF_JOINER: {
        if (!vb__jbind(r, "joiner", "sep?", a, v)) return false;
        jjoiner *j = vb__jalloc(r, sizeof(*j));
        if (j == NULL) return false;
        *j = (jjoiner){v[0], false};
        if (v[0].t == JV_ABSENT && !vb__jstr_borrow(r, ", ", 2, true, &j->sep)) return false;
        *out = (jv){.t = JV_JOINER, .jo = j};
        return true;
    }
    default:
        return vb__jerr_code(r, VB_E_UNSUPPORTED, "%s() is not supported, expected another way", names[f]);
    }
}
