/* The text of values as Python gives it: str, repr, floats, and numbers read from text. */
#include "text/jinja_int.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- floats ---- */

double vb__jfloat_read(const char *digits, size_t n, int exponent) {
    /* No decimal point, so that the locale does not matter. Beyond 800 digits only "is there more" counts. */
    char buf[840];
    size_t k = 0;
    while (n > 1 && *digits == '0') digits++, n--;
    for (; k < n && k < 800; k++) buf[k] = digits[k];
    if (k < n) {
        bool more = false;
        for (size_t i = k; i < n; i++) more |= digits[i] != '0';
        exponent += (int)(n - k);
        if (more) buf[k++] = '1', exponent--;
    }
    snprintf(buf + k, sizeof(buf) - k, "e%d", exponent);
    return strtod(buf, NULL);
}

/* The digits of |f| correctly rounded to n of them; *exponent is that of the first digit. */
static void round_digits(double f, int n, char *digits, int *exponent) {
    char buf[64];
    snprintf(buf, sizeof(buf), "%.*e", n - 1, fabs(f));
    int k = 0;
    const char *p = buf;
    for (; *p != 'e' && *p != '\0'; p++)
        if (*p >= '0' && *p <= '9') digits[k++] = *p;
    digits[k] = '\0';
    *exponent = atoi(p + 1);
}

/* One more in the last place. */
static void step_up(char *digits, int n, int *exponent) {
    int i = n - 1;
    while (i >= 0 && digits[i] == '9') digits[i--] = '0';
    if (i >= 0) {
        digits[i]++;
    } else {
        digits[0] = '1';
        ++*exponent;
    }
}

/* The fewest digits that read back as f. Any 15 digits survive the way through a normal double, so if 15 read
 * back, the fewest are those without their zeros. Where f is a power of two the gap below is half the gap
 * above: the nearest decimal of some length may miss f from below while the next one up still reads back as
 * f. */
static int shortest_digits(double f, char *digits, int *exponent) {
    int e2;
    bool power = frexp(fabs(f), &e2) == 0.5;
    for (int n = isnormal(f) ? 15 : 1; n <= 17; n++) {
        round_digits(f, n, digits, exponent);
        if (vb__jfloat_read(digits, (size_t)n, *exponent - n + 1) == fabs(f)) return n;
        if (!power) continue;
        step_up(digits, n, exponent);
        if (vb__jfloat_read(digits, (size_t)n, *exponent - n + 1) == fabs(f)) return n;
    }
    round_digits(f, 17, digits, exponent);
    return 17;
}

int vb__jfloat_repr(double f, char *buf, size_t size) {
    if (isnan(f)) return snprintf(buf, size, "nan");
    if (isinf(f)) return snprintf(buf, size, f < 0 ? "-inf" : "inf");
    const char *sign = signbit(f) ? "-" : "";
    char d[32];
    int e;
    if (f == 0.0) return snprintf(buf, size, "%s0.0", sign);
    int n = shortest_digits(f, d, &e);
    while (n > 1 && d[n - 1] == '0') n--;
    d[n] = '\0';
    if (e < -4 || e >= 16)
        return snprintf(buf, size, "%s%c%s%se%c%02d", sign, d[0], n > 1 ? "." : "", d + 1, e < 0 ? '-' : '+',
                        abs(e));
    if (e < 0) return snprintf(buf, size, "%s0.%.*s%s", sign, -e - 1, "0000", d);
    if (n <= e + 1) return snprintf(buf, size, "%s%s%.*s.0", sign, d, e + 1 - n, "0000000000000000");
    return snprintf(buf, size, "%s%.*s.%s", sign, e + 1, d, d + e + 1);
}

double vb__jfloat_round(double x, int64_t digits) {
    if (!isfinite(x) || digits > 330 || x == 0.0) return x;
    if (digits < -310) return copysign(0.0, x);
    char buf[700], d[700];
    int k = 0;
    double whole = digits >= 0 ? x : trunc(x), out;
    int len = snprintf(buf, sizeof(buf), "%.*f", digits >= 0 ? (int)digits : 0, fabs(whole));
    for (int i = 0; i < len; i++)
        if (buf[i] >= '0' && buf[i] <= '9') d[k++] = buf[i];
    if (digits >= 0) {
        out = vb__jfloat_read(d, (size_t)k, -(int)digits);
    } else { /* half to even on the exact value: `k` digits and whether a fraction follows */
        int drop = (int)-digits, keep = k - drop;
        bool up = false;
        if (keep >= 0) {
            bool rest = whole != x;
            for (int i = keep + 1; i < k; i++) rest |= d[i] != '0';
            char first = keep < k ? d[keep] : '0';
            up = first > '5' || (first == '5' && (rest || (keep > 0 && ((d[keep - 1] - '0') & 1) != 0)));
        }
        if (keep <= 0) {
            out = up ? vb__jfloat_read("1", 1, drop) : 0.0;
        } else {
            int e = 0;
            if (up) step_up(d, keep, &e);
            if (e != 0) d[keep++] = '0';
            out = vb__jfloat_read(d, (size_t)keep, drop);
        }
    }
    return copysign(out, x);
}

/* ---- numbers from text ---- */

/* Python strips white space, takes the decimal digits of any script, and single underscores between digits.
 * Copies to ASCII in buf; false when too long or with anything else that is not ASCII. */
static bool plain_number(const jstr *s, char *buf, size_t size, size_t *len) {
    const char *p = s->s, *end = p + s->len;
    uint32_t cp, n;
    size_t k = 0;
    while (p < end && (n = vb__jutf8(p, end, &cp), vb__jcp_space(cp))) p += n;
    while (end > p) {
        const char *q = end - 1;
        while (q > p && ((unsigned char)*q & 0xc0) == 0x80) q--;
        vb__jutf8(q, end, &cp);
        if (!vb__jcp_space(cp)) break;
        end = q;
    }
    for (; p < end; p += n) {
        int v;
        n = vb__jutf8(p, end, &cp);
        if (k + 2 > size) return false;
        if (cp < 0x80 && cp != 0) buf[k++] = (char)cp;
        else if (vb__jcp_decimal(cp, &v)) buf[k++] = (char)('0' + v);
        else return false;
    }
    buf[k] = '\0';
    *len = k;
    return k > 0;
}

static bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/* Digits with single underscores between them, appended to out; how many characters were read. */
static size_t float_digits(const char *p, char *out, size_t *n) {
    size_t i = 0;
    while (is_digit(p[i]) || (p[i] == '_' && i > 0 && is_digit(p[i - 1]) && is_digit(p[i + 1]))) {
        if (p[i] != '_') out[(*n)++] = p[i];
        i++;
    }
    return i;
}

bool vb__jfloat_parse(const jstr *s, double *out) {
    char buf[4096], digits[4096];
    size_t len, n = 0;
    if (!plain_number(s, buf, sizeof(buf), &len)) return false;
    const char *p = buf;
    bool negative = *p == '-';
    if (*p == '-' || *p == '+') p++;
    double f;
    if (strcasecmp(p, "inf") == 0 || strcasecmp(p, "infinity") == 0) f = HUGE_VAL;
    else if (strcasecmp(p, "nan") == 0) f = (double)NAN;
    else {
        p += float_digits(p, digits, &n);
        size_t before = n;
        if (*p == '.') p += 1 + float_digits(p + 1, digits, &n);
        if (n == 0) return false;
        long e = 0;
        if (*p == 'e' || *p == 'E') {
            char ed[64];
            const char *q = p + 1;
            bool minus = *q == '-';
            size_t en = 0, used;
            if (*q == '-' || *q == '+') q++;
            if (strlen(q) > 60) return false;
            used = float_digits(q, ed, &en);
            if (en == 0) return false;
            ed[en] = '\0';
            e = en > 8 ? 99999999 : strtol(ed, NULL, 10);
            if (minus) e = -e;
            p = q + used;
        }
        if (*p != '\0' || (size_t)(p - buf) != len) return false;
        f = vb__jfloat_read(digits, n, (int)(e - (long)(n - before)));
    }
    *out = negative ? -f : f;
    return true;
}

bool vb__jint_parse(jr *r, const jstr *s, int base, int64_t *out, bool *ok) {
    char buf[4096];
    size_t len;
    *ok = false;
    if ((base != 0 && base < 2) || base > 36 || !plain_number(s, buf, sizeof(buf), &len)) return true;
    const char *p = buf, *end = buf + len;
    bool negative = *p == '-', any = false, over = false;
    if (*p == '-' || *p == '+') p++;
    int c = p[0] == '0' ? p[1] | 0x20 : 0, prefix = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 0;
    bool must_be_zero = false;
    if (prefix != 0 && (base == 0 || base == prefix)) {
        base = prefix;
        p += 2;
        if (*p == '_') p++;
    } else if (base == 0) {
        base = 10;
        must_be_zero = *p == '0';
    }
    uint64_t v = 0;
    for (bool digit = false; p < end; p++) {
        if (*p == '_') {
            if (!digit) return true;
            digit = false;
            continue;
        }
        int d = is_digit(*p)                               ? *p - '0'
                : (*p | 0x20) >= 'a' && (*p | 0x20) <= 'z' ? (*p | 0x20) - 'a' + 10
                                                           : 99;
        if (d >= base || (must_be_zero && d != 0)) return true;
        over |= __builtin_mul_overflow(v, (uint64_t)base, &v) || __builtin_add_overflow(v, (uint64_t)d, &v);
        any = digit = true;
        if (p + 1 == end || p[1] != '_') continue;
        if (p + 2 == end) return true;
    }
    if (!any) return true;
    if (over || v > (uint64_t)INT64_MAX + negative)
        return vb__jerr_code(r, VB_E_LIMIT, "an integer is too large, expected at most 64 bits");
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    *ok = true;
    return true;
}

/* ---- text ---- */

static bool put_escape(jsb *b, uint32_t cp) {
    char buf[16];
    snprintf(buf, sizeof(buf), cp < 0x100 ? "\\x%02x" : cp < 0x10000 ? "\\u%04x" : "\\U%08x", cp);
    return vb__jsb_puts(b, buf, false);
}

static bool repr_text(jsb *b, const jstr *s) {
    bool single = memchr(s->s, '\'', s->len) != NULL, dbl = memchr(s->s, '"', s->len) != NULL;
    char quote = single && !dbl ? '"' : '\'';
    const char *p = s->s, *end = p + s->len;
    if (!vb__jwork(b->r, s->len / 8) || !vb__jsb_putc(b, quote, false)) return false;
    while (p < end) {
        const char *q = p;
        while (q < end && *q >= 0x20 && *q < 0x7f && *q != '\\' && *q != quote) q++;
        if (!vb__jsb_put(b, p, (size_t)(q - p), false)) return false;
        if ((p = q) == end) break;
        uint32_t cp, n = vb__jutf8(p, end, &cp);
        bool ok;
        if (cp == '\\' || cp == (uint32_t)quote)
            ok = vb__jsb_putc(b, '\\', false) && vb__jsb_putc(b, (char)cp, false);
        else if (cp == '\n') ok = vb__jsb_puts(b, "\\n", false);
        else if (cp == '\r') ok = vb__jsb_puts(b, "\\r", false);
        else if (cp == '\t') ok = vb__jsb_puts(b, "\\t", false);
        else if (vb__jcp_printable(cp)) ok = vb__jsb_put(b, p, n, false);
        else ok = put_escape(b, cp);
        if (!ok) return false;
        p += n;
    }
    return vb__jsb_putc(b, quote, false);
}

static bool put_items(jsb *b, const char *open, const jv *v, uint32_t n, const char *close, int depth) {
    if (!vb__jsb_puts(b, open, false)) return false;
    for (uint32_t i = 0; i < n; i++)
        if ((i > 0 && !vb__jsb_puts(b, ", ", false)) || !vb__jv_put_repr(b, v[i], depth + 1)) return false;
    return vb__jsb_puts(b, close, false);
}

static bool put_dict(jsb *b, const jdict *d, int depth) {
    if (!vb__jsb_putc(b, '{', false)) return false;
    for (uint32_t i = 0; i < d->n; i++) {
        if (i > 0 && !vb__jsb_puts(b, ", ", false)) return false;
        if (!vb__jv_put_repr(b, d->e[i].k, depth + 1) || !vb__jsb_puts(b, ": ", false) ||
            !vb__jv_put_repr(b, d->e[i].v, depth + 1))
            return false;
    }
    return vb__jsb_putc(b, '}', false);
}

static bool put_special(jsb *b, jv v, int depth) {
    char buf[128];
    jr *r = b->r;
    switch (v.t) {
    case JV_RANGE:
        if (v.r->step == 1)
            snprintf(buf, sizeof(buf), "range(%lld, %lld)", (long long)v.r->start, (long long)v.r->stop);
        else
            snprintf(buf, sizeof(buf), "range(%lld, %lld, %lld)", (long long)v.r->start, (long long)v.r->stop,
                     (long long)v.r->step);
        return vb__jsb_puts(b, buf, false);
    case JV_VIEW: {
        jv *items;
        uint32_t n;
        snprintf(buf, sizeof(buf), "%s([", vb__jv_type_name(v));
        return vb__jv_collect(r, v, &items, &n) && put_items(b, buf, items, n, "])", depth);
    }
    case JV_NAMESPACE:
        return vb__jsb_puts(b, "<Namespace ", false) && put_dict(b, v.d, depth) &&
               vb__jsb_putc(b, '>', false);
    case JV_LOOP: {
        jv len;
        bool found;
        jstr key = {.s = "length", .len = 6};
        if (!vb__jloop_attr(r, v.loop, &key, &len, &found)) return false;
        snprintf(buf, sizeof(buf), "<LoopContext %lld/%lld>", (long long)v.loop->index0 + 1,
                 (long long)len.i);
        return vb__jsb_puts(b, buf, false);
    }
    case JV_MACRO:
        if (v.m->node->type != N_MACRO) return vb__jsb_puts(b, "<Macro anonymous>", false);
        return vb__jsb_puts(b, "<Macro ", false) && repr_text(b, v.m->node->v.s) &&
               vb__jsb_putc(b, '>', false);
    case JV_FUNC:
        snprintf(buf, sizeof(buf), "<function %s>", vb__jfunc_name(v.sub));
        return vb__jsb_puts(b, buf, false);
    case JV_METHOD:
        snprintf(buf, sizeof(buf), "<built-in method %s of %s object>", vb__jmethod_name(v.me->id),
                 vb__jv_type_name(v.me->self));
        return vb__jsb_puts(b, buf, false);
    default:
        snprintf(buf, sizeof(buf), "<%s object>", vb__jv_type_name(v));
        return vb__jsb_puts(b, buf, false);
    }
}

static bool put_plain(jsb *b, jv v, int depth) {
    char buf[64];
    switch (v.t) {
    case JV_NONE: return vb__jsb_puts(b, "None", false);
    case JV_BOOL: return vb__jsb_puts(b, v.b ? "True" : "False", false);
    case JV_INT: snprintf(buf, sizeof(buf), "%lld", (long long)v.i); return vb__jsb_puts(b, buf, false);
    case JV_FLOAT: {
        vb__jfloat_repr(v.f, buf, sizeof(buf));
        return vb__jwork(b->r, 100) && vb__jsb_puts(b, buf, false);
    }
    case JV_LIST: return put_items(b, "[", v.l->v, v.l->n, "]", depth);
    case JV_TUPLE: return put_items(b, "(", v.l->v, v.l->n, v.l->n == 1 ? ",)" : ")", depth);
    case JV_DICT: return put_dict(b, v.d, depth);
    default: return put_special(b, v, depth);
    }
}

bool vb__jv_put_repr(jsb *b, jv v, int depth) {
    if (depth > JINJA_VALUE_DEPTH)
        return vb__jerr_code(b->r, VB_E_LIMIT, "values nested too deep, expected at most %d levels",
                             JINJA_VALUE_DEPTH);
    if (!vb__jwork(b->r, 2)) return false;
    if (v.t == JV_STR) {
        if (!v.s->markup) return repr_text(b, v.s);
        return vb__jsb_puts(b, "Markup(", false) && repr_text(b, v.s) && vb__jsb_putc(b, ')', false);
    }
    if (v.t == JV_UNDEF) return vb__jsb_puts(b, "Undefined", false);
    return put_plain(b, v, depth);
}

bool vb__jv_put_str(jsb *b, jv v) {
    if (v.t == JV_STR) return vb__jsb_put_str(b, v.s);
    if (v.t == JV_UNDEF || v.t == JV_ABSENT) return true;
    return put_plain(b, v, 0);
}

bool vb__jv_str(jr *r, jv v, jv *out) {
    if (v.t == JV_STR) {
        *out = v;
        return true;
    }
    jsb b;
    return vb__jsb_init(r, &b) && vb__jv_put_str(&b, v) && vb__jsb_take(&b, out);
}
