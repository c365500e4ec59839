/* Template source to tokens. The whitespace rules are those of trim_blocks and lstrip_blocks: the newline
 * behind a block or comment is dropped, and the blanks in front of one that begins its line. The source has
 * had its line ends made \n. */
#include "text/jinja_int.h"
#include <stdio.h>

enum { IN_DATA, IN_VARIABLE, IN_BLOCK };

void vb__jlex_init(jlexer *x, const char *source, size_t len, vb_error *err) {
    memset(x, 0, sizeof(*x));
    x->p = x->base = source;
    x->end = source + len;
    x->line = 1;
    x->err = err;
    x->code = VB_OK;
}

static vb_err fail(jlexer *x, const char *what, const char *expected) {
    x->code = vb__fail(x->err, VB_E_FORMAT, "template line %u: %s, expected %s", x->line, what, expected);
    return x->code;
}

static void advance(jlexer *x, const char *to) {
    for (const char *q = x->p; (q = memchr(q, '\n', (size_t)(to - q))) != NULL; q++) x->line++;
    x->p = to;
}

static const char *skip_space(const char *p, const char *end) {
    while (p < end) {
        uint32_t cp, n = vb__jutf8(p, end, &cp);
        if (!vb__jcp_space(cp)) break;
        p += n;
    }
    return p;
}

/* The end of from..to without trailing white space. */
static const char *strip_end(const char *from, const char *to) {
    while (to > from) {
        const char *q = to - 1;
        while (q > from && ((unsigned char)*q & 0xc0) == 0x80) q--;
        uint32_t cp;
        vb__jutf8(q, to, &cp);
        if (!vb__jcp_space(cp)) break;
        to = q;
    }
    return to;
}

/* What stays of the data from..to in front of a tag whose sign is `sign`. */
static const char *data_end(const jlexer *x, const char *from, const char *to, char sign, bool variable) {
    if (sign == '-') return strip_end(from, to);
    if (sign == '+' || variable) return to;
    const char *bol = to;
    while (bol > from && bol[-1] != '\n') bol--;
    bool starts_line = bol > from || from == x->base || from[-1] == '\n';
    return starts_line && skip_space(bol, to) == to ? bol : to;
}

/* "{%[-+]? raw -?%}": the place behind it, NULL when p does not begin one. */
static const char *raw_begin(const char *p, const char *end) {
    p += 2;
    if (p < end && (*p == '-' || *p == '+')) p++;
    p = skip_space(p, end);
    if (end - p < 3 || memcmp(p, "raw", 3) != 0) return NULL;
    p = skip_space(p + 3, end);
    if (end - p >= 3 && memcmp(p, "-%}", 3) == 0) return skip_space(p + 3, end);
    return end - p >= 2 && p[0] == '%' && p[1] == '}' ? p + 2 : NULL;
}

/* The closing tag of a raw block at p; NULL when p does not begin one. */
static const char *raw_end(const char *p, const char *end) {
    p += 2;
    if (p < end && (*p == '-' || *p == '+')) p++;
    p = skip_space(p, end);
    if (end - p < 6 || memcmp(p, "endraw", 6) != 0) return NULL;
    p = skip_space(p + 6, end);
    if (end - p >= 3 && memcmp(p, "-%}", 3) == 0) return skip_space(p + 3, end);
    if (end - p >= 3 && memcmp(p, "+%}", 3) == 0) return p + 3;
    if (end - p < 2 || p[0] != '%' || p[1] != '}') return NULL;
    return p + 2 < end && p[2] == '\n' ? p + 3 : p + 2;
}

/* Behind the end of a block or comment: `mark` is '%' or '#'. */
static const char *behind_end(const char *p, const char *end, char mark) {
    if (end - p >= 3 && p[0] == '+' && p[1] == mark && p[2] == '}') return p + 3;
    if (end - p >= 3 && p[0] == '-' && p[1] == mark && p[2] == '}') return skip_space(p + 3, end);
    if (end - p >= 2 && p[0] == mark && p[1] == '}') return p + 2 < end && p[2] == '\n' ? p + 3 : p + 2;
    return NULL;
}

static char sign_at(const jlexer *x, const char *p) {
    return p < x->end && (*p == '-' || *p == '+') ? *p : '\0';
}

static bool emit_data(jlexer *x, const char *from, const char *to, jtoken *out) {
    *out = (jtoken){T_DATA, x->line, from, (uint32_t)(to - from)};
    return to > from;
}

/* Reads data until something that the parser must see; true when *out holds a piece of data. */
static vb_err next_data(jlexer *x, jtoken *out, bool *got) {
    *got = false;
    while (!*got && x->state == IN_DATA) {
        const char *from = x->p, *p = from;
        while ((p = memchr(p, '{', (size_t)(x->end - p))) != NULL) {
            if (p + 1 < x->end && (p[1] == '{' || p[1] == '%' || p[1] == '#')) break;
            p++;
        }
        if (p == NULL) {
            *got = emit_data(x, from, x->end, out);
            advance(x, x->end);
            if (!*got) *out = (jtoken){T_EOF, x->line, x->end, 0}, *got = true;
            return VB_OK;
        }
        const char *behind;
        char sign = sign_at(x, p + 2);
        *got = emit_data(x, from, data_end(x, from, p, sign, p[1] == '{'), out);
        if (p[1] == '%' && (behind = raw_begin(p, x->end)) != NULL) {
            if (*got) { /* come back for the raw part */
                advance(x, p);
                return VB_OK;
            }
            advance(x, p);
            const char *q = behind, *after = NULL;
            while ((q = memchr(q, '{', (size_t)(x->end - q))) != NULL) {
                if (q + 1 < x->end && q[1] == '%' && (after = raw_end(q, x->end)) != NULL) break;
                q++;
            }
            if (q == NULL) return fail(x, "a raw block has no end", "{% endraw %}");
            advance(x, behind);
            *got = emit_data(x, behind, data_end(x, behind, q, sign_at(x, q + 2), false), out);
            advance(x, after);
        } else if (p[1] == '#') {
            advance(x, p);
            const char *q = p + 2 + (sign != '\0'), *after = NULL;
            for (; q < x->end && (after = behind_end(q, x->end, '#')) == NULL; q++) {}
            if (after == NULL) return fail(x, "a comment has no end", "#}");
            advance(x, after);
        } else {
            x->state = p[1] == '{' ? IN_VARIABLE : IN_BLOCK;
            advance(x, p);
            jtoken begin = {p[1] == '{' ? T_VAR_BEGIN : T_BLOCK_BEGIN, x->line, p, 2};
            advance(x, p + 2 + (sign != '\0'));
            if (*got) x->queued = begin, x->has_queued = true;
            else *out = begin, *got = true;
        }
    }
    return VB_OK;
}

static const char *digits(const char *p, const char *end) {
    if (p >= end || *p < '0' || *p > '9') return NULL;
    for (;;) {
        while (p < end && *p >= '0' && *p <= '9') p++;
        if (!(p + 1 < end && *p == '_' && p[1] >= '0' && p[1] <= '9')) return p;
        p++;
    }
}

static const char *based_digits(const char *p, const char *end, int base) {
    const char *start = p;
    for (;;) {
        const char *q = p < end && *p == '_' ? p + 1 : p;
        if (q >= end) break;
        int c = *q | 0x20, v = *q >= '0' && *q <= '9' ? *q - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
        if (v >= base) break;
        p = q + 1;
    }
    return p > start ? p : NULL;
}

static const char *number(const jlexer *x, const char *p, jtok *t) {
    const char *end = x->end, *q;
    if (!(p > x->base && p[-1] == '.') && (q = digits(p, end)) != NULL) {
        const char *f = q < end && *q == '.' ? digits(q + 1, end) : NULL, *m = f != NULL ? f : q, *e = NULL;
        if (m < end && (*m | 0x20) == 'e') {
            e = m + 1;
            if (e < end && (*e == '+' || *e == '-')) e++;
            e = digits(e, end);
        }
        *t = T_FLOAT;
        if (e != NULL) return e;
        if (f != NULL) return f;
    }
    *t = T_INT;
    if (*p != '0') return digits(p, end);
    if (p + 1 < end) {
        int c = p[1] | 0x20, base = c == 'b' ? 2 : c == 'o' ? 8 : c == 'x' ? 16 : 0;
        if (base != 0 && (q = based_digits(p + 2, end, base)) != NULL) return q;
    }
    for (p++;;) {
        if (p < end && *p == '0') p++;
        else if (p + 1 < end && *p == '_' && p[1] == '0') p += 2;
        else return p;
    }
}

static jtok operator_at(const char *p, const char *end, uint32_t *len) {
    char c = *p, d = p + 1 < end ? p[1] : '\0';
    *len = 2;
    if (c == '/' && d == '/') return T_FLOORDIV;
    if (c == '*' && d == '*') return T_POW;
    if (c == '=' && d == '=') return T_EQ;
    if (c == '!' && d == '=') return T_NE;
    if (c == '>' && d == '=') return T_GE;
    if (c == '<' && d == '=') return T_LE;
    *len = 1;
    switch (c) {
    case '+': return T_ADD;
    case '-': return T_SUB;
    case '*': return T_MUL;
    case '/': return T_DIV;
    case '%': return T_MOD;
    case '~': return T_TILDE;
    case '[': return T_LBRACKET;
    case ']': return T_RBRACKET;
    case '(': return T_LPAREN;
    case ')': return T_RPAREN;
    case '{': return T_LBRACE;
    case '}': return T_RBRACE;
    case '>': return T_GT;
    case '<': return T_LT;
    case '=': return T_ASSIGN;
    case '.': return T_DOT;
    case ':': return T_COLON;
    case '|': return T_PIPE;
    case ',': return T_COMMA;
    case ';': return T_SEMICOLON;
    default: return T_EOF;
    }
}

static vb_err bracket(jlexer *x, char c) {
    char what[32];
    if (c == '(' || c == '[' || c == '{') {
        if (x->n_open == sizeof(x->open)) {
            x->code = vb__fail(x->err, VB_E_LIMIT,
                               "template line %u: brackets nested too deep, expected at most %zu", x->line,
                               sizeof(x->open));
            return x->code;
        }
        x->open[x->n_open++] = c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
        snprintf(what, sizeof(what), "unexpected '%c'", c);
        if (x->n_open == 0) return fail(x, what, "the tag's end or more of an expression");
        char want[4] = {'\'', x->open[x->n_open - 1], '\'', '\0'};
        if (want[1] != c) return fail(x, what, want);
        x->n_open--;
    }
    return VB_OK;
}

static vb_err next_inside(jlexer *x, jtoken *out) {
    advance(x, skip_space(x->p, x->end));
    const char *p = x->p, *end = x->end, *q;
    *out = (jtoken){T_EOF, x->line, p, 0};
    if (p >= end) return VB_OK;
    if (x->n_open == 0) {
        q = NULL;
        if (x->state == IN_BLOCK) q = behind_end(p, end, '%');
        else if (end - p >= 3 && memcmp(p, "-}}", 3) == 0) q = skip_space(p + 3, end);
        else if (end - p >= 2 && memcmp(p, "}}", 2) == 0) q = p + 2;
        if (q != NULL) {
            out->t = x->state == IN_BLOCK ? T_BLOCK_END : T_VAR_END;
            x->state = IN_DATA;
            advance(x, q);
            return VB_OK;
        }
    }
    char c = *p;
    uint32_t cp, n = vb__jutf8(p, end, &cp);
    if (c >= '0' && c <= '9') {
        q = number(x, p, &out->t);
    } else if (vb__jcp_word(cp) && !vb__jcp_numeric(cp)) {
        out->t = T_NAME;
        for (q = p + n; q < end; q += n) {
            n = vb__jutf8(q, end, &cp);
            if (!vb__jcp_word(cp)) break;
        }
    } else if (c == '"' || c == '\'') {
        out->t = T_STRING;
        for (q = p + 1; q < end && *q != c; q++)
            if (*q == '\\') q++;
        if (q >= end) return fail(x, "a string has no end", c == '"' ? "a closing \"" : "a closing '");
        q++;
    } else {
        out->t = operator_at(p, end, &n);
        if (out->t == T_EOF) {
            char what[48];
            snprintf(what, sizeof(what), "unexpected character '%.*s'", (int)n, p);
            return fail(x, what, "an expression");
        }
        VB_TRY(bracket(x, c));
        q = p + n;
    }
    out->s = p;
    out->len = (uint32_t)(q - p);
    advance(x, q);
    return VB_OK;
}

vb_err vb__jlex_next(jlexer *x, jtoken *out) {
    if (x->code != VB_OK) return x->code;
    if (x->has_queued) {
        x->has_queued = false;
        *out = x->queued;
        return VB_OK;
    }
    if (x->state == IN_DATA) {
        bool got;
        return next_data(x, out, &got);
    }
    return next_inside(x, out);
}

const char *vb__jtok_name(jtok t) {
    static const char *const names[] = {"the end of the template",
                                        "template text",
                                        "'{{'",
                                        "'}}'",
                                        "'{%'",
                                        "'%}'",
                                        "a name",
                                        "a string",
                                        "a number",
                                        "a number",
                                        "'+'",
                                        "'-'",
                                        "'*'",
                                        "'/'",
                                        "'//'",
                                        "'%'",
                                        "'**'",
                                        "'~'",
                                        "'['",
                                        "']'",
                                        "'('",
                                        "')'",
                                        "'{'",
                                        "'}'",
                                        "'=='",
                                        "'!='",
                                        "'>'",
                                        "'>='",
                                        "'<'",
                                        "'<='",
                                        "'='",
                                        "'.'",
                                        "':'",
                                        "'|'",
                                        "','",
                                        "';'"};
    return names[t];
}

const char *vb__jtoken_text(const jtoken *t, char *buf, size_t size) {
    if (t->t != T_NAME && t->t != T_STRING && t->t != T_INT && t->t != T_FLOAT) return vb__jtok_name(t->t);
    int n = t->len > 32 ? 32 : (int)t->len;
    while (n > 0 && (uint32_t)n < t->len && ((unsigned char)t->s[n] & 0xc0) == 0x80) n--;
    snprintf(buf, size, "'%.*s'", n, t->s);
    return buf;
}
