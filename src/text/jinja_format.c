/* Python's two ways to format text: "..." % values and "...".format(values). Literal parts and texts put in
 * whole keep their origin; numbers and padding count as data. */
#include "text/jinja_int.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 400 };

typedef struct spec {
    const char *fill; /* one character */
    uint32_t fill_len;
    char align; /* < > ^ = or 0 */
    char sign;  /* + - blank or 0 */
    bool alt, comma, under;
    int64_t width, precision; /* -1: none */
    char type;                /* 0: none */
} spec;

/* A number as sign, prefix (0x) and digits. */
typedef struct parts {
    char sign[2], prefix[3];
    char digits[800];
} parts;

static bool too_wide(jr *r) {
    return vb__jerr_code(r, VB_E_LIMIT,
                         "format: a width or precision is too large, expected at most %d and %d", MAX_WIDTH,
                         MAX_PRECISION);
}

static bool pad(jsb *b, const char *fill, uint32_t fill_len, int64_t n) {
    for (; n > 0; n--)
        if (!vb__jsb_put(b, fill, fill_len, false)) return false;
    return true;
}

/* Thousands marks in the whole part of `digits`. */
static void group_digits(char *digits, size_t size, char mark, size_t each) {
    size_t whole = strcspn(digits, ".eE%"), marks = whole == 0 ? 0 : (whole - 1) / each, len = strlen(digits);
    if (len + marks + 1 > size) return;
    memmove(digits + whole + marks, digits + whole, len - whole + 1);
    for (size_t i = whole, to = whole + marks, n = 0; marks > 0; n++) {
        if (n > 0 && n % each == 0) digits[--to] = mark, marks--;
        digits[--to] = digits[--i];
    }
}

static void int_digits(parts *p, uint64_t v, int base, bool upper, int64_t at_least) {
    char buf[72];
    int n = 0;
    do {
        int d = (int)(v % (uint64_t)base);
        buf[n++] = (char)(d < 10 ? '0' + d : (upper ? 'A' : 'a') + d - 10);
        v /= (uint64_t)base;
    } while (v != 0);
    char *o = p->digits;
    for (int64_t k = n; k < at_least; k++) *o++ = '0';
    while (n > 0) *o++ = buf[--n];
    *o = '\0';
}

/* Digits of |f|: type e f g (or capital) as in C; 0: Python's str with a precision. */
static void float_digits(parts *p, double f, char type, int precision, bool alt) {
    f = fabs(f);
    if (!isfinite(f)) {
        snprintf(p->digits, sizeof(p->digits), "%s", isnan(f) ? "nan" : "inf");
    } else if (type != '\0') {
        char fmt[8];
        snprintf(fmt, sizeof(fmt), "%%%s.*%c", alt ? "#" : "", type);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(p->digits, sizeof(p->digits), fmt, precision, f);
#pragma GCC diagnostic pop
    } else {
        if (precision == 0) precision = 1;
        char e[MAX_PRECISION + 32];
        snprintf(e, sizeof(e), "%.*e", precision - 1, f);
        int ex = atoi(strchr(e, 'e') + 1);
        bool sci = ex < -4 || ex >= precision - 1;
        if (f == 0.0 && precision > 1) sci = false;
        snprintf(p->digits, sizeof(p->digits), sci ? "%.*e" : "%.*f",
                 sci ? precision - 1 : precision - 1 - ex, f);
        char *end = strchr(p->digits, 'e'), tail[16] = "";
        if (end != NULL) snprintf(tail, sizeof(tail), "%s", end);
        else end = p->digits + strlen(p->digits);
        if (memchr(p->digits, '.', (size_t)(end - p->digits)) != NULL) {
            while (end[-1] == '0') end--;
            if (end[-1] == '.') end -= sci;
            if (end[-1] == '.') *end++ = '0';
        }
        snprintf(end, sizeof(p->digits) - (size_t)(end - p->digits), "%s", tail);
    }
    for (char *c = p->digits; *c != '\0';
         c++) { /* the decimal point of another locale; capital INF and NAN */
        if (*c == ',') *c = '.';
        if ((type == 'E' || type == 'F' || type == 'G') && *c >= 'a' && *c <= 'z') *c = (char)(*c - 32);
    }
}

static bool put_number(jsb *b, const spec *s, parts *p) {
    int64_t len = (int64_t)(strlen(p->sign) + strlen(p->prefix) + strlen(p->digits)),
            gap = s->width > len ? s->width - len : 0;
    char align = s->align == '\0' ? '>' : s->align;
    int64_t left = align == '>' ? gap : align == '^' ? gap / 2 : 0, inner = align == '=' ? gap : 0;
    return pad(b, s->fill, s->fill_len, left) && vb__jsb_puts(b, p->sign, false) &&
           vb__jsb_puts(b, p->prefix, false) && pad(b, s->fill, s->fill_len, inner) &&
           vb__jsb_puts(b, p->digits, false) && pad(b, s->fill, s->fill_len, gap - left - inner);
}

static bool put_text(jsb *b, const spec *s, const jstr *x) {
    int64_t n = vb__jstr_chars(x);
    uint32_t to = x->len;
    if (s->precision >= 0 && s->precision < n) n = s->precision, to = vb__jstr_offset(x, (uint32_t)n);
    int64_t gap = s->width > n ? s->width - n : 0, left = s->align == '>'   ? gap
                                                          : s->align == '^' ? gap / 2
                                                                            : 0;
    return pad(b, s->fill, s->fill_len, left) && vb__jsb_put_part(b, x, 0, to) &&
           pad(b, s->fill, s->fill_len, gap - left);
}

static void set_sign(parts *p, bool negative, char sign) {
    p->sign[0] = negative ? '-' : sign == '+' || sign == ' ' ? sign : '\0';
    p->sign[1] = '\0';
    p->prefix[0] = '\0';
}

/* ---- % ---- */

typedef struct percent {
    jr *r;
    jsb b;
    jv args;
    uint32_t used;
    bool mapping;
} percent;

static bool next_arg(percent *c, jv *out) {
    if (c->args.t == JV_TUPLE ? c->used >= c->args.l->n : c->used > 0)
        return vb__jerr(c->r, "not enough arguments for the format, expected more");
    *out = c->args.t == JV_TUPLE ? c->args.l->v[c->used] : c->args;
    c->used++;
    return true;
}

static bool read_count(percent *c, const jstr *f, uint32_t *i, int64_t *out) {
    jv v;
    int64_t n = 0;
    if (*i < f->len && f->s[*i] == '*') {
        ++*i;
        if (!next_arg(c, &v) || !vb__jarg_int(c->r, "format", v, 0, &n)) return false;
    } else {
        for (; *i < f->len && f->s[*i] >= '0' && f->s[*i] <= '9'; ++*i)
            if ((n = n * 10 + (f->s[*i] - '0')) > MAX_WIDTH) return too_wide(c->r);
    }
    if (n > MAX_WIDTH || n < -MAX_WIDTH) return too_wide(c->r);
    *out = n;
    return true;
}

static bool percent_int(percent *c, spec *s, char conv, jv v) {
    parts p;
    int64_t i;
    bool decimal = conv == 'd' || conv == 'i' || conv == 'u';
    if (v.t == JV_FLOAT && decimal) {
        double f = trunc(v.f);
        if (!isfinite(f))
            return vb__jerr(c->r, "%%%c: a number that is not finite, expected an integer", conv);
        if (!(f >= -9223372036854775808.0 && f < 9223372036854775808.0)) { /* its digits are exact */
            set_sign(&p, f < 0, s->sign);
            snprintf(p.digits, sizeof(p.digits), "%.0f", fabs(f));
            return put_number(&c->b, s, &p);
        }
        i = (int64_t)f;
    } else if (v.t == JV_INT || v.t == JV_BOOL) {
        i = v.t == JV_BOOL ? v.b : v.i;
    } else {
        return vb__jerr(c->r, "%%%c: the value is %s, expected %s", conv, vb__jv_type_name(v),
                        decimal ? "a number" : "an integer");
    }
    if (s->precision > MAX_PRECISION) return too_wide(c->r);
    int base = decimal ? 10 : conv == 'o' ? 8 : 16;
    set_sign(&p, i < 0, s->sign);
    if (s->alt && base != 10) snprintf(p.prefix, sizeof(p.prefix), "0%c", conv);
    int_digits(&p, i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, conv == 'X', s->precision);
    return put_number(&c->b, s, &p);
}

static bool percent_float(percent *c, spec *s, char conv, jv v) {
    parts p;
    if (v.t != JV_FLOAT && v.t != JV_INT && v.t != JV_BOOL)
        return vb__jerr(c->r, "%%%c: the value is %s, expected a number", conv, vb__jv_type_name(v));
    double f = v.t == JV_FLOAT ? v.f : (double)(v.t == JV_BOOL ? v.b : v.i);
    if (s->precision > MAX_PRECISION) return too_wide(c->r);
    set_sign(&p, signbit(f) && !isnan(f), s->sign);
    float_digits(&p, f, conv, s->precision < 0 ? 6 : (int)s->precision, s->alt);
    return vb__jwork(c->r, 20) && put_number(&c->b, s, &p);
}

static bool percent_text(percent *c, spec *s, char conv, jv v) {
    jv x;
    if (conv == 's') {
        if (!vb__jv_str(c->r, v, &x)) return false;
    } else {
        jsb t;
        vb__jsb_init(c->r, &t);
        if (!vb__jv_put_repr(&t, v, 0) || !vb__jsb_take(&t, &x)) return false;
    }
    if (conv == 'a')
        for (uint32_t i = 0; i < x.s->len; i++)
            if ((unsigned char)x.s->s[i] >= 0x80)
                return vb__jerr_code(c->r, VB_E_UNSUPPORTED, "%%a is not supported, expected %%r");
    if (s->align == '=') s->align = '>';
    s->fill = " ";
    if (s->align == '\0') s->align = '>';
    return put_text(&c->b, s, x.s);
}

static bool percent_char(percent *c, spec *s, jv v) {
    char buf[4];
    jstr x = {.s = buf, .chars = 1};
    if (v.t == JV_STR && vb__jstr_chars(v.s) == 1) {
        x = *v.s;
    } else if ((v.t == JV_INT || v.t == JV_BOOL) && v.i >= 0 && v.i < 0x110000 &&
               !(v.i >= 0xd800 && v.i < 0xe000)) {
        x.len = vb__jutf8_put(buf, v.t == JV_BOOL ? v.b : (uint32_t)v.i);
    } else {
        return vb__jerr(c->r, "%%c: the value is %s, expected one character or its number",
                        vb__jv_type_name(v));
    }
    s->fill = " ";
    s->precision = -1;
    if (s->align != '<') s->align = '>';
    return put_text(&c->b, s, &x);
}

/* One conversion; *i stands behind the '%'. */
static bool conversion(percent *c, const jstr *f, uint32_t *i) {
    spec s = {.fill = " ", .fill_len = 1, .width = 0, .precision = -1};
    jv v = {0};
    bool left = false, zero = false, named = false;
    if (*i < f->len && f->s[*i] == '(') {
        uint32_t from = ++*i, depth = 1;
        for (; *i < f->len; ++*i) {
            if (f->s[*i] == '(') depth++;
            if (f->s[*i] == ')' && --depth == 0) break;
        }
        if (*i >= f->len) return vb__jerr(c->r, "%%(: the key has no end, expected ')'");
        if (c->args.t != JV_DICT)
            return vb__jerr(c->r, "%%(key): the value is %s, expected a mapping", vb__jv_type_name(c->args));
        const jv *found = vb__jdict_text(c->args.d, f->s + from, *i - from);
        if (found == NULL)
            return vb__jerr(c->r, "%%(%.*s): no such key, expected one that exists",
                            *i - from > 60 ? 60 : (int)(*i - from), f->s + from);
        v = *found;
        named = true;
        ++*i;
    }
    for (; *i < f->len && strchr("#0- +", f->s[*i]) != NULL && f->s[*i] != '\0'; ++*i) {
        char x = f->s[*i];
        if (x == '#') s.alt = true;
        if (x == '0') zero = true;
        if (x == '-') left = true;
        if (x == '+' || (x == ' ' && s.sign != '+')) s.sign = x;
    }
    if (!read_count(c, f, i, &s.width)) return false;
    if (s.width < 0) left = true, s.width = -s.width;
    if (*i < f->len && f->s[*i] == '.') {
        ++*i;
        if (!read_count(c, f, i, &s.precision)) return false;
        if (s.precision < 0) s.precision = 0;
    }
    if (*i < f->len && strchr("hlL", f->s[*i]) != NULL) ++*i;
    if (*i >= f->len) return vb__jerr(c->r, "incomplete format, expected a conversion behind %%");
    char conv = f->s[(*i)++];
    if (conv == '%') return vb__jsb_putc(&c->b, '%', vb__jstr_ours_at(f, *i - 1));
    if (!named && !next_arg(c, &v)) return false;
    if (v.t == JV_UNDEF && strchr("sr", conv) == NULL) return vb__jerr_undef(c->r, v);
    s.align = left ? '<' : zero ? '=' : '>';
    if (s.align == '=') s.fill = "0";
    switch (conv) {
    case 's':
    case 'r':
    case 'a': return percent_text(c, &s, conv, v);
    case 'c': return percent_char(c, &s, v);
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': return percent_int(c, &s, conv, v);
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G': return percent_float(c, &s, conv, v);
    default:
        return vb__jerr(c->r, "unsupported format character '%c', expected one of s r d i u x X o c e f g",
                        conv >= 0x20 && conv < 0x7f ? conv : '?');
    }
}

bool vb__jformat_percent(jr *r, const jstr *f, jv args, jv *out) {
    percent c = {.r = r, .args = args};
    vb__jsb_init(r, &c.b);
    uint32_t from = 0, i = 0;
    while (i < f->len) {
        const char *p = memchr(f->s + i, '%', f->len - i);
        i = p == NULL ? f->len : (uint32_t)(p - f->s);
        if (!vb__jsb_put_part(&c.b, f, from, i)) return false;
        if (i == f->len) break;
        i++;
        if (!conversion(&c, f, &i)) return false;
        from = i;
    }
    bool left = args.t == JV_TUPLE
                    ? c.used < args.l->n
                    : c.used == 0 && args.t != JV_DICT && args.t != JV_LIST && args.t != JV_RANGE &&
                          args.t != JV_UNDEF;
    if (left) return vb__jerr(r, "not all arguments of the format were used, expected fewer");
    return vb__jsb_take(&c.b, out);
}

/* ---- format() ---- */

static bool parse_spec(jr *r, const jstr *x, spec *s) {
    *s = (spec){.fill = " ", .fill_len = 1, .precision = -1};
    const char *p = x->s, *end = p + x->len;
    uint32_t cp, n = vb__jutf8(p, end, &cp);
    if (n > 0 && p + n < end && strchr("<>^=", p[n]) != NULL && p[n] != '\0') {
        s->fill = p;
        s->fill_len = n;
        s->align = p[n];
        p += n + 1;
    } else if (p < end && strchr("<>^=", *p) != NULL && *p != '\0') {
        s->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' ')) s->sign = *p++;
    if (p < end && *p == 'z')
        return vb__jerr_code(r, VB_E_UNSUPPORTED, "format: the z option is not supported, expected none");
    if (p < end && *p == '#') s->alt = true, p++;
    if (p < end && *p == '0') {
        if (s->align == '\0') s->align = '=', s->fill = "0", s->fill_len = 1;
        p++;
    }
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if ((s->width = s->width * 10 + (*p - '0')) > MAX_WIDTH) return too_wide(r);
    if (p < end && *p == ',') s->comma = true, p++;
    else if (p < end && *p == '_') s->under = true, p++;
    if (p < end && *p == '.') {
        const char *digits = ++p;
        for (s->precision = 0; p < end && *p >= '0' && *p <= '9'; p++)
            if ((s->precision = s->precision * 10 + (*p - '0')) > MAX_WIDTH) return too_wide(r);
        if (p == digits)
            return vb__jerr(r, "format: a precision is missing, expected digits behind the point");
    }
    if (p < end && (unsigned char)*p < 0x80) s->type = *p++;
    if (p != end)
        return vb__jerr(
            r,
            "format: an invalid specifier, expected [[fill]align][sign][#][0][width][,][.precision][type]");
    return true;
}

static bool bad_type(jr *r, char type, jv v) {
    return vb__jerr(r, "format: unknown type '%c' for %s, expected one that fits",
                    type >= 0x20 && type < 0x7f ? type : '?', vb__jv_type_name(v));
}

static bool format_number(jsb *b, spec *s, jv v) {
    jr *r = b->r;
    parts p;
    bool is_float = v.t == JV_FLOAT;
    int64_t i = v.t == JV_BOOL ? v.b : v.t == JV_INT ? v.i : 0;
    if (s->precision > MAX_PRECISION) return too_wide(r);
    if (!is_float && (s->type == '\0' || strchr("bcdoxXn", s->type) != NULL)) {
        if (s->precision >= 0) return vb__jerr(r, "format: a precision for an integer, expected none");
        if (s->type == 'c') {
            if (i < 0 || i > 0x10ffff || (i >= 0xd800 && i < 0xe000))
                return vb__jerr(r, "format: not a character's number, expected one");
            char buf[4];
            jstr x = {.s = buf, .len = vb__jutf8_put(buf, (uint32_t)i), .chars = 1};
            return put_text(b, s, &x);
        }
        int base = s->type == 'b' ? 2 : s->type == 'o' ? 8 : (s->type | 0x20) == 'x' ? 16 : 10;
        set_sign(&p, i < 0, s->sign);
        if (s->alt && base != 10) snprintf(p.prefix, sizeof(p.prefix), "0%c", s->type);
        int_digits(&p, i < 0 ? 0 - (uint64_t)i : (uint64_t)i, base, s->type == 'X', 0);
        if (s->comma && base != 10) return vb__jerr(r, "format: ',' for this type, expected '_'");
        if (s->comma || s->under)
            group_digits(p.digits, sizeof(p.digits), s->comma ? ',' : '_', base == 10 ? 3 : 4);
    } else {
        double f = is_float ? v.f : (double)i;
        if (s->type != '\0' && strchr("eEfFgGn%", s->type) == NULL) return bad_type(r, s->type, v);
        set_sign(&p, signbit(f) && !isnan(f), s->sign);
        char type = s->type == '%' ? 'f' : s->type == 'n' ? 'g' : s->type;
        if (type == '\0' && s->precision < 0) {
            vb__jfloat_repr(fabs(f), p.digits, sizeof(p.digits));
        } else {
            float_digits(&p, s->type == '%' ? f * 100.0 : f, type, s->precision < 0 ? 6 : (int)s->precision,
                         s->alt);
        }
        if (s->comma || s->under) group_digits(p.digits, sizeof(p.digits), s->comma ? ',' : '_', 3);
        if (s->type == '%') snprintf(p.digits + strlen(p.digits), 2, "%%");
    }
    if ((s->comma || s->under) && s->align == '=' && s->fill[0] == '0')
        return vb__jerr_code(
            r, VB_E_UNSUPPORTED,
            "format: zero padding with thousands marks is not supported, expected one of them");
    return vb__jwork(r, 20) && put_number(b, s, &p);
}

static bool format_value(jsb *b, jv v, const jstr *x) {
    jr *r = b->r;
    spec s;
    if (x->len == 0) return vb__jv_put_str(b, v);
    if (v.t == JV_UNDEF) return vb__jerr_undef(r, v);
    if (!parse_spec(r, x, &s)) return false;
    switch (v.t) {
    case JV_BOOL:
    case JV_INT:
    case JV_FLOAT: return format_number(b, &s, v);
    case JV_STR:
        if (s.type != '\0' && s.type != 's') return bad_type(r, s.type, v);
        if (s.align == '=' && s.fill[0] == '0') s.align = '<'; /* '0' before the width pads on the right */
        if (s.align == '=' || s.sign != '\0' || s.alt || s.comma || s.under)
            return vb__jerr(r, "format: a sign, '=', '#' or ',' for a text, expected none");
        return put_text(b, &s, v.s);
    default: return vb__jerr(r, "format: a specifier for %s, expected none", vb__jv_type_name(v));
    }
}

typedef struct brace {
    jr *r;
    const jargs *args;
    int64_t next; /* automatic number; -1: the fields are numbered by hand */
    bool counted;
} brace;

static bool digits_only(const char *s, uint32_t n, int64_t *out) {
    *out = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9' || *out > 1000000) return false;
        *out = *out * 10 + (s[i] - '0');
    }
    return n > 0;
}

/* name{.attribute|[key]} */
static bool field_value(brace *c, const jstr *f, uint32_t from, uint32_t to, jv *out) {
    uint32_t i = from;
    int64_t number;
    while (i < to && f->s[i] != '.' && f->s[i] != '[') i++;
    if (i == from || digits_only(f->s + from, i - from, &number)) {
        bool automatic = i == from;
        if (automatic ? c->next < 0 : c->counted)
            return vb__jerr(c->r, "format: automatic and given field numbers, expected one kind");
        if (automatic) number = c->next++, c->counted = true;
        else c->next = -1;
        if (number >= c->args->n)
            return vb__jerr(c->r, "format: no argument %lld, expected more arguments", (long long)number);
        *out = c->args->pos[number];
    } else {
        uint32_t k = 0;
        while (k < c->args->n_kw && !(c->args->kwn[k].s->len == i - from &&
                                      memcmp(c->args->kwn[k].s->s, f->s + from, i - from) == 0))
            k++;
        if (k == c->args->n_kw)
            return vb__jerr(c->r, "format: no argument '%.*s', expected it",
                            i - from > 60 ? 60 : (int)(i - from), f->s + from);
        *out = c->args->kwv[k];
    }
    while (i < to) {
        jv key;
        uint32_t start = i + 1, end = start;
        if (f->s[i] == '.') {
            while (end < to && f->s[end] != '.' && f->s[end] != '[') end++;
            if (end == start) return vb__jerr(c->r, "format: an empty attribute, expected a name");
            jstr name = {.s = f->s + start, .len = end - start, .chars = UINT32_MAX};
            if (!vb__jop_getattr(c->r, *out, &name, vb__jmethod_find(name.s, name.len), out)) return false;
            i = end;
        } else if (f->s[i] == '[') {
            while (end < to && f->s[end] != ']') end++;
            if (end >= to || end == start) return vb__jerr(c->r, "format: a broken [key], expected ']'");
            if (digits_only(f->s + start, end - start, &number)) key = vb__jv_int(number);
            else if (!vb__jstr_borrow(c->r, f->s + start, end - start, false, &key)) return false;
            if (!vb__jop_getitem(c->r, *out, key, out)) return false;
            i = end + 1;
        } else {
            return vb__jerr(c->r, "format: text behind ']', expected '.' or '['");
        }
    }
    return true;
}

static bool brace_text(brace *c, const jstr *f, uint32_t from, uint32_t to, int depth, jsb *b);

/* One field between its braces. */
static bool field(brace *c, const jstr *f, uint32_t from, uint32_t to, int depth, jsb *b) {
    uint32_t name_end = from, at;
    jv v, sp;
    char conv = '\0';
    for (; name_end < to && f->s[name_end] != '!' && f->s[name_end] != ':'; name_end++)
        if (f->s[name_end] == '[')
            while (name_end + 1 < to && f->s[name_end + 1] != ']') name_end++;
    at = name_end;
    if (at < to && f->s[at] == '!') {
        if (at + 1 >= to || (at + 2 < to && f->s[at + 2] != ':'))
            return vb__jerr(c->r, "format: a broken conversion, expected !s or !r");
        conv = f->s[at + 1];
        at += 2;
    }
    if (!field_value(c, f, from, name_end, &v)) return false;
    if (conv == 's') {
        if (!vb__jv_str(c->r, v, &v)) return false;
    } else if (conv == 'r') {
        jsb t;
        vb__jsb_init(c->r, &t);
        if (!vb__jv_put_repr(&t, v, 0) || !vb__jsb_take(&t, &v)) return false;
    } else if (conv != '\0') {
        return vb__jerr(c->r, "format: an unknown conversion, expected !s or !r");
    }
    jsb t;
    vb__jsb_init(c->r, &t);
    if (at < to && !brace_text(c, f, at + 1, to, depth + 1, &t)) return false;
    return vb__jsb_take(&t, &sp) && format_value(b, v, sp.s);
}

static bool brace_text(brace *c, const jstr *f, uint32_t from, uint32_t to, int depth, jsb *b) {
    if (depth > 2) return vb__jerr(c->r, "format: fields nested too deep, expected one level");
    for (uint32_t i = from; i < to;) {
        char x = f->s[i];
        if (x != '{' && x != '}') {
            uint32_t end = i;
            while (end < to && f->s[end] != '{' && f->s[end] != '}') end++;
            if (!vb__jsb_put_part(b, f, i, end)) return false;
            i = end;
            continue;
        }
        if (depth == 0 && i + 1 < to && f->s[i + 1] == x) {
            if (!vb__jsb_put_part(b, f, i, i + 1)) return false;
            i += 2;
            continue;
        }
        if (x == '}') return vb__jerr(c->r, "format: a single '}', expected '}}'");
        uint32_t end = i + 1;
        for (int level = 1; end < to; end++) {
            if (f->s[end] == '{') level++;
            if (f->s[end] == '}' && --level == 0) break;
        }
        if (end >= to) return vb__jerr(c->r, "format: a single '{', expected '{{' or '}'");
        if (!vb__jwork(c->r, 5) || !field(c, f, i + 1, end, depth, b)) return false;
        i = end + 1;
    }
    return true;
}

bool vb__jformat_brace(jr *r, const jstr *fmt, const jargs *args, jv *out) {
    brace c = {.r = r, .args = args};
    jsb b;
    vb__jsb_init(r, &b);
    return brace_text(&c, fmt, 0, fmt->len, 0, &b) && vb__jsb_take(&b, out);
}
