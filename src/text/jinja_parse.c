/* Tokens to a syntax tree. One function per production; precedence from loosest to tightest: inline if, or,
 * and, not, comparison, + -, ~, * / // %, **, sign, then postfix, filters and tests. */
#include "text/jinja_int.h"
#include "base/limits.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct list {
    jast **v;
    uint32_t n, cap;
} list;

/* Places where an unknown filter or test was named: an error, unless inside an `if`, where it only fails when
 * it runs. */
typedef struct unknown {
    const jast *node;
    bool soft;
} unknown;

/* One scope of names. A name whose first mention in a scope is that it is set (not under an `if`) belongs to
 * that scope from its start: what an inner scope reads before then is undefined, not the variable of that
 * name further out. */
typedef struct scope {
    struct scope *parent, *all;
    jast *owner; /* NULL: the top level */
    uint32_t *refs, n_refs, cap_refs;
    uint32_t *first, n_first, cap_first; /* those of refs that were set first */
    int conditions;
} scope;
enum { SCOPE_NAMES = 1024, RESOLVE_STEPS = 4000000 }; /* beyond them the order of mention no longer counts */

typedef struct parser {
    vb__jinja *t;
    scope *scope, *scopes; /* the current one; all, newest first */
    bool in_target;
    jlexer lex;
    jtoken cur, ahead;
    bool has_ahead;
    vb_error *err;
    vb_err code;
    int depth;
    int loops;                    /* loops around here, up to the nearest macro */
    bool soft;                    /* directly inside an if */
    bool caller, varargs, kwargs; /* names the current macro mentions */
    unknown *unknown;
    uint32_t n_unknown, cap_unknown;
} parser;

static jast *expression(parser *p, bool with_cond);
static jast *parse_tuple(parser *p, bool simplified, bool with_cond, const char *end_name, bool parens,
                         bool ns);
static bool body(parser *p, jast *owner, const char *const *ends, const char *expected);

/* ---- helpers ---- */

static void *fail(parser *p, vb_err code, uint32_t line, const char *what, const char *expected) {
    if (p->code == VB_OK) {
        p->code = vb__fail(p->err, code, "template line %u: %s, expected %s", line, what, expected);
    }
    return NULL;
}

static void *unexpected(parser *p, const char *expected) {
    char buf[64], what[96];
    snprintf(what, sizeof(what), "unexpected %s", vb__jtoken_text(&p->cur, buf, sizeof(buf)));
    return fail(p, VB_E_FORMAT, p->cur.line, what, expected);
}

static void *alloc(parser *p, size_t bytes) {
    void *m = vb__arena_alloc(&p->t->arena, bytes);
    if (m != NULL || p->code != VB_OK) return m;
    if (p->t->arena.used + bytes > JINJA_COMPILE_BYTES / 2)
        return fail(p, VB_E_LIMIT, p->cur.line, "the template is too complex", "a smaller one");
    return fail(p, VB_E_MEMORY, p->cur.line, "out of memory", "more");
}

static jast *node(parser *p, jnode type) {
    jast *n = alloc(p, sizeof(*n));
    if (n != NULL) n->type = (uint8_t)type, n->line = p->cur.line;
    return n;
}

static jast *node2(parser *p, jnode type, uint32_t line, jast *a, jast *b) {
    jast *n = node(p, type);
    if (n == NULL) return NULL;
    n->line = line;
    n->a = a;
    n->b = b;
    return n;
}

/* Doubling arrays in the arena. */
static bool grow(parser *p, void **v, uint32_t n, uint32_t *cap, size_t item) {
    if (n < *cap) return true;
    uint32_t c = *cap == 0 ? 4 : *cap * 2;
    void *m = alloc(p, c * item);
    if (m == NULL) return false;
    if (n != 0) memcpy(m, *v, n * item);
    *v = m;
    *cap = c;
    return true;
}

static bool push(parser *p, list *l, jast *n) {
    if (n == NULL || !grow(p, (void **)&l->v, l->n, &l->cap, sizeof(jast *))) return false;
    l->v[l->n++] = n;
    return true;
}

static bool deeper(parser *p) {
    if (++p->depth <= JINJA_PARSE_DEPTH) return true;
    char want[64];
    snprintf(want, sizeof(want), "at most %d levels", JINJA_PARSE_DEPTH);
    fail(p, VB_E_LIMIT, p->cur.line, "nested too deep", want);
    return false;
}

static bool next(parser *p) {
    if (p->has_ahead) {
        p->cur = p->ahead;
        p->has_ahead = false;
        return true;
    }
    vb_err e = vb__jlex_next(&p->lex, &p->cur);
    if (e != VB_OK && p->code == VB_OK) p->code = e;
    return e == VB_OK;
}

static const jtoken *look(parser *p) {
    static const jtoken none = {.t = T_EOF};
    if (!p->has_ahead) {
        vb_err e = vb__jlex_next(&p->lex, &p->ahead);
        if (e != VB_OK) {
            if (p->code == VB_OK) p->code = e;
            return &none;
        }
        p->has_ahead = true;
    }
    return &p->ahead;
}

static bool tok_is(const jtoken *t, const char *name) {
    return t->t == T_NAME && t->len == strlen(name) && memcmp(t->s, name, t->len) == 0;
}
static bool at(parser *p, const char *name) {
    return tok_is(&p->cur, name);
}

static bool expect(parser *p, jtok t) {
    if (p->cur.t == t) return next(p);
    char want[48];
    snprintf(want, sizeof(want), "%s", vb__jtok_name(t));
    unexpected(p, want);
    return false;
}

static bool skip_name(parser *p, const char *name) {
    return at(p, name) && next(p);
}

/* A string that lives as long as the template; its bytes are borrowed. */
static bool literal(parser *p, const char *s, size_t n, jv *out) {
    jstr *x = alloc(p, sizeof(*x));
    if (x == NULL) return false;
    *x = (jstr){.s = s, .len = (uint32_t)n, .chars = UINT32_MAX, .ours = true};
    x->chars = vb__jstr_chars(x);
    *out = (jv){.t = JV_STR, .s = x};
    return true;
}

static uint32_t name_hash(const char *s, size_t n) {
    uint32_t h = 2166136261u;
    for (size_t i = 0; i < n; i++) h = (h ^ (unsigned char)s[i]) * 16777619u;
    return h;
}

static bool intern(parser *p, const char *s, size_t n, uint32_t *id) {
    vb__jinja *t = p->t;
    if (t->n_names * 2 >= t->name_mask) {
        uint32_t size = t->name_mask == 0 ? 64 : (t->name_mask + 1) * 2;
        uint32_t *index = alloc(p, size * sizeof(*index));
        if (index == NULL) return false;
        for (uint32_t i = 0; i < t->n_names; i++) {
            const jstr *x = t->names[i].text.s;
            uint32_t h = name_hash(x->s, x->len) & (size - 1);
            while (index[h] != 0) h = (h + 1) & (size - 1);
            index[h] = i + 1;
        }
        t->name_index = index;
        t->name_mask = size - 1;
    }
    uint32_t h = name_hash(s, n) & t->name_mask;
    for (; t->name_index[h] != 0; h = (h + 1) & t->name_mask) {
        const jstr *x = t->names[t->name_index[h] - 1].text.s;
        if (x->len == n && memcmp(x->s, s, n) == 0) {
            *id = t->name_index[h] - 1;
            return true;
        }
    }
    if (!grow(p, (void **)&t->names, t->n_names, &t->cap_names, sizeof(jname))) return false;
    jname *name = &t->names[t->n_names];
    if (!literal(p, s, n, &name->text)) return false;
    name->func = (uint16_t)(vb__jfunc_find(s, n) + 1);
    *id = t->n_names++;
    t->name_index[h] = *id + 1;
    return true;
}

/* ---- scopes ---- */

static bool scope_begin(parser *p, jast *owner, bool isolated) {
    scope *s = alloc(p, sizeof(*s));
    if (s == NULL) return false;
    s->owner = owner;
    s->parent = isolated ? NULL : p->scope;
    s->all = p->scopes;
    p->scope = p->scopes = s;
    return true;
}

static bool mentions(const scope *s, uint32_t id) {
    for (uint32_t i = 0; i < s->n_refs; i++)
        if (s->refs[i] == id) return true;
    return false;
}

static bool note(parser *p, uint32_t id, bool set) {
    scope *s = p->scope;
    if (s->n_refs >= SCOPE_NAMES || mentions(s, id)) return true;
    if (!grow(p, (void **)&s->refs, s->n_refs, &s->cap_refs, sizeof(uint32_t))) return false;
    s->refs[s->n_refs++] = id;
    if (!set || s->conditions > 0) return true;
    if (!grow(p, (void **)&s->first, s->n_first, &s->cap_first, sizeof(uint32_t))) return false;
    s->first[s->n_first++] = id;
    return true;
}

static bool note_target(parser *p, const jast *n, bool set) {
    if (n->type == N_NAME) return note(p, n->id, set);
    if (n->type == N_NSREF) return note(p, n->id, false);
    for (uint32_t i = 0; i < n->n; i++)
        if (!note_target(p, n->list[i], set)) return false;
    return true;
}

/* Gives each scope the names it owns from its start: those that no scope around it mentions. */
static void resolve_scopes(parser *p) {
    long steps = RESOLVE_STEPS;
    for (scope *s = p->scopes; s != NULL; s = s->all) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < s->n_first; i++) {
            bool outer = false;
            for (const scope *o = s->parent; o != NULL && !outer; o = o->parent) {
                steps -= o->n_refs;
                outer = steps < 0 || mentions(o, s->first[i]);
            }
            if (!outer) s->first[n++] = s->first[i];
        }
        if (s->owner != NULL) {
            s->owner->late = s->first;
            s->owner->n_late = n;
        } else {
            for (uint32_t i = 0; i < n; i++) p->t->names[s->first[i]].late = true;
        }
    }
}

/* ---- literals ---- */

static bool hex(const char *s, const char *end, int n, uint32_t *out) {
    uint32_t v = 0;
    if (end - s < n) return false;
    for (int i = 0; i < n; i++) {
        int c = s[i], d = c >= '0' && c <= '9'                     ? c - '0'
                          : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                                   : -1;
        if (d < 0) return false;
        v = v * 16 + (uint32_t)d;
    }
    *out = v;
    return true;
}

/* Appends what the literal's inside s..end means. Python's rules: an unknown escape keeps its backslash. */
static bool unescape(parser *p, const char *s, const char *end, char **to) {
    char *o = *to;
    while (s < end) {
        if (*s != '\\' || s + 1 >= end) {
            *o++ = *s++;
            continue;
        }
        uint32_t cp = 0, n;
        char c = s[1];
        s += 2;
        static const char from[] = "abfnrtv\\'\"", means[] = "\a\b\f\n\r\t\v\\'\"";
        const char *f = c != '\0' ? strchr(from, c) : NULL;
        if (f != NULL) {
            *o++ = means[f - from];
        } else if (c == '\n') {
        } else if (c >= '0' && c <= '7') {
            for (n = 0, s--; n < 3 && s < end && *s >= '0' && *s <= '7'; n++)
                cp = cp * 8 + (uint32_t)(*s++ - '0');
            o += vb__jutf8_put(o, cp);
        } else if (c == 'x' || c == 'u' || c == 'U') {
            int len = c == 'x' ? 2 : c == 'u' ? 4 : 8;
            if (!hex(s, end, len, &cp) || cp > 0x10ffff) {
                fail(p, VB_E_FORMAT, p->cur.line, "a broken \\x, \\u or \\U escape in a string",
                     "2, 4 or 8 hex digits");
                return false;
            }
            if (cp >= 0xd800 && cp <= 0xdfff) {
                fail(p, VB_E_UNSUPPORTED, p->cur.line, "a lone surrogate in a string", "a character");
                return false;
            }
            s += len;
            o += vb__jutf8_put(o, cp);
        } else if (c == 'N') {
            fail(p, VB_E_UNSUPPORTED, p->cur.line, "\\N{name} in a string", "\\u and the code point");
            return false;
        } else {
            *o++ = '\\';
            if ((unsigned char)c < 0x80) *o++ = c;
            else { /* Python sees the character as an escape of its own by then */
                s += vb__jutf8(s - 1, end, &cp) - 1;
                o += snprintf(o, 12, cp < 0x100 ? "x%02x" : cp < 0x10000 ? "u%04x" : "U%08x", cp);
            }
        }
    }
    *to = o;
    return true;
}

static jast *string(parser *p) {
    jast *n = node(p, N_CONST);
    if (n == NULL) return NULL;
    list parts = {0}; /* the literals' tokens, as nodes */
    size_t total = 0;
    while (p->cur.t == T_STRING) {
        jast *part = node(p, N_CONST);
        if (part == NULL || !literal(p, p->cur.s + 1, p->cur.len - 2, &part->v) || !push(p, &parts, part))
            return NULL;
        total += p->cur.len;
        if (!next(p)) return NULL;
    }
    const jstr *only = parts.v[0]->v.s;
    if (parts.n == 1 && memchr(only->s, '\\', only->len) == NULL) {
        n->v = parts.v[0]->v;
        return n;
    }
    char *buf = alloc(p, total * 5 / 2 + 16), *o = buf; /* a backslash and two bytes of UTF-8 become five */
    if (buf == NULL) return NULL;
    for (uint32_t i = 0; i < parts.n; i++) {
        const jstr *s = parts.v[i]->v.s;
        if (!unescape(p, s->s, s->s + s->len, &o)) return NULL;
    }
    return literal(p, buf, (size_t)(o - buf), &n->v) ? n : NULL;
}

static jast *number(parser *p) {
    jast *n = node(p, N_CONST);
    char buf[400];
    uint32_t len = 0;
    if (n == NULL) return NULL;
    for (uint32_t i = 0; i < p->cur.len; i++) {
        if (p->cur.s[i] == '_') continue;
        if (len + 1 >= sizeof(buf))
            return fail(p, VB_E_LIMIT, p->cur.line, "a number is too long", "fewer digits");
        buf[len++] = p->cur.s[i];
    }
    buf[len] = '\0';
    if (p->cur.t == T_FLOAT) {
        jstr text = {.s = buf, .len = len};
        double f;
        if (!vb__jfloat_parse(&text, &f))
            return fail(p, VB_E_FORMAT, p->cur.line, "a broken number", "a number");
        n->v = vb__jv_float(f);
    } else {
        int base = buf[0] != '0' || len < 2 ? 10
                   : (buf[1] | 0x20) == 'x' ? 16
                   : (buf[1] | 0x20) == 'o' ? 8
                                            : 2;
        if (buf[0] == '0' && len > 1 && (buf[1] == '0')) base = 10;
        errno = 0;
        long long v = strtoll(base == 10 || base == 16 ? buf : buf + 2, NULL, base);
        if (errno == ERANGE)
            return fail(p, VB_E_LIMIT, p->cur.line, "an integer is too large", "at most 9223372036854775807");
        n->v = vb__jv_int(v);
    }
    return next(p) ? n : NULL;
}

/* ---- expressions ---- */

static jast *name_or_const(parser *p) {
    jast *n = node(p, N_NAME);
    if (n == NULL) return NULL;
    bool is_true = at(p, "true") || at(p, "True"), is_false = at(p, "false") || at(p, "False");
    if (is_true || is_false) {
        n->type = N_CONST;
        n->v = vb__jv_bool(is_true);
    } else if (at(p, "none") || at(p, "None")) {
        n->type = N_CONST;
        n->v = vb__jv_none();
    } else {
        if (!intern(p, p->cur.s, p->cur.len, &n->id) || (!p->in_target && !note(p, n->id, false)))
            return NULL;
        p->caller |= n->id == p->t->id_caller;
        p->varargs |= n->id == p->t->id_varargs;
        p->kwargs |= n->id == p->t->id_kwargs;
    }
    return next(p) ? n : NULL;
}

static jast *finish(jast *n, const list *l) {
    n->list = l->v;
    n->n = l->n;
    return n;
}

static jast *list_or_dict(parser *p, bool dict) {
    jast *n = node(p, dict ? N_DICT : N_LIST);
    jtok end = dict ? T_RBRACE : T_RBRACKET;
    list l = {0};
    if (n == NULL || !next(p)) return NULL;
    while (p->cur.t != end) {
        if (l.n != 0 && !expect(p, T_COMMA)) return NULL;
        if (p->cur.t == end) break;
        if (!push(p, &l, expression(p, true))) return NULL;
        if (dict && (!expect(p, T_COLON) || !push(p, &l, expression(p, true)))) return NULL;
    }
    return next(p) ? finish(n, &l) : NULL;
}

static jast *primary(parser *p) {
    jast *n = NULL;
    switch (p->cur.t) {
    case T_NAME: return name_or_const(p);
    case T_STRING: return string(p);
    case T_INT:
    case T_FLOAT: return number(p);
    case T_LPAREN:
        if (!deeper(p) || !next(p)) return NULL;
        n = parse_tuple(p, false, true, NULL, true, false);
        p->depth--;
        return n != NULL && expect(p, T_RPAREN) ? n : NULL;
    case T_LBRACKET:
    case T_LBRACE:
        if (!deeper(p)) return NULL;
        n = list_or_dict(p, p->cur.t == T_LBRACE);
        p->depth--;
        return n;
    default: return unexpected(p, "an expression");
    }
}

static bool tuple_end(parser *p, const char *end_name) {
    return p->cur.t == T_VAR_END || p->cur.t == T_BLOCK_END || p->cur.t == T_RPAREN ||
           (end_name != NULL && at(p, end_name));
}

/* A target that may be NAME.ATTRIBUTE, of a namespace. */
static jast *target_primary(parser *p) {
    if (p->cur.t != T_NAME || look(p)->t != T_DOT) return p->code == VB_OK ? primary(p) : NULL;
    jast *n = node(p, N_NSREF);
    if (n == NULL || !intern(p, p->cur.s, p->cur.len, &n->id) || !next(p) || !next(p)) return NULL;
    if (p->cur.t != T_NAME) return unexpected(p, "an attribute name");
    return literal(p, p->cur.s, p->cur.len, &n->v) && next(p) ? n : NULL;
}

/* One expression, or several with commas between them. */
static jast *parse_tuple(parser *p, bool simplified, bool with_cond, const char *end_name, bool parens,
                         bool ns) {
    uint32_t line = p->cur.line;
    list l = {0};
    bool is_tuple = false;
    for (;;) {
        if (l.n != 0 && !expect(p, T_COMMA)) return NULL;
        if (tuple_end(p, end_name)) break;
        jast *x = !simplified ? expression(p, with_cond) : ns ? target_primary(p) : primary(p);
        if (!push(p, &l, x)) return NULL;
        if (p->cur.t != T_COMMA) break;
        is_tuple = true;
    }
    if (!is_tuple) {
        if (l.n != 0) return l.v[0];
        if (!parens) return unexpected(p, "an expression");
    }
    jast *n = node2(p, N_TUPLE, line, NULL, NULL);
    return n == NULL ? NULL : finish(n, &l);
}

static jast *subscribed(parser *p) {
    uint32_t line = p->cur.line;
    jast *first = NULL, *n;
    if (p->cur.t != T_COLON) {
        first = expression(p, true);
        if (first == NULL || p->cur.t != T_COLON) return first;
    }
    if (!next(p) || (n = node2(p, N_SLICE, line, first, NULL)) == NULL) return NULL;
    if (p->cur.t != T_COLON && p->cur.t != T_RBRACKET && p->cur.t != T_COMMA &&
        (n->b = expression(p, true)) == NULL)
        return NULL;
    if (p->cur.t == T_COLON) {
        if (!next(p)) return NULL;
        if (p->cur.t != T_RBRACKET && p->cur.t != T_COMMA && (n->c = expression(p, true)) == NULL)
            return NULL;
    }
    return n;
}

static jast *subscript(parser *p, jast *obj) {
    uint32_t line = p->cur.line;
    if (p->cur.t == T_DOT) {
        if (!next(p)) return NULL;
        if (p->cur.t == T_NAME) {
            jast *n = node2(p, N_GETATTR, line, obj, NULL);
            if (n == NULL || !literal(p, p->cur.s, p->cur.len, &n->v)) return NULL;
            n->id = vb__jmethod_find(p->cur.s, p->cur.len);
            return next(p) ? n : NULL;
        }
        if (p->cur.t != T_INT) return unexpected(p, "a name or a number behind the dot");
        jast *key = number(p);
        return key == NULL ? NULL : node2(p, N_GETITEM, line, obj, key);
    }
    list l = {0};
    if (!next(p)) return NULL;
    while (p->cur.t != T_RBRACKET) {
        if (l.n != 0 && !expect(p, T_COMMA)) return NULL;
        if (!push(p, &l, subscribed(p))) return NULL;
    }
    if (!next(p)) return NULL;
    jast *key = l.n == 1 ? l.v[0] : node(p, N_TUPLE);
    if (key == NULL) return NULL;
    if (l.n != 1) {
        for (uint32_t i = 0; i < l.n; i++)
            if (l.v[i]->type == N_SLICE)
                return fail(p, VB_E_UNSUPPORTED, line, "a slice inside a tuple index", "one slice");
        finish(key, &l);
    }
    return node2(p, N_GETITEM, line, obj, key);
}

/* "(" arguments ")" */
static jcall *call_args(parser *p) {
    jcall *c = alloc(p, sizeof(*c));
    if (c == NULL || !expect(p, T_LPAREN)) return NULL;
    list pos = {0}, kw = {0};
    uint32_t cap_names = 0;
    bool first = true;
    while (p->cur.t != T_RPAREN) {
        if (!first && !expect(p, T_COMMA)) return NULL;
        if (!first && p->cur.t == T_RPAREN) break;
        first = false;
        bool bad = c->starstar != NULL;
        if (p->cur.t == T_MUL) {
            if (bad || c->star != NULL) return unexpected(p, "arguments in the order a, b=c, *d, **e");
            if (!next(p) || (c->star = expression(p, true)) == NULL) return NULL;
        } else if (p->cur.t == T_POW) {
            if (bad) return unexpected(p, "arguments in the order a, b=c, *d, **e");
            if (!next(p) || (c->starstar = expression(p, true)) == NULL) return NULL;
        } else if (p->cur.t == T_NAME && look(p)->t == T_ASSIGN) {
            if (bad) return unexpected(p, "arguments in the order a, b=c, *d, **e");
            jv name;
            if (!literal(p, p->cur.s, p->cur.len, &name) || !next(p) || !next(p)) return NULL;
            for (uint32_t i = 0; i < kw.n; i++)
                if (c->kwn[i].s->len == name.s->len && memcmp(c->kwn[i].s->s, name.s->s, name.s->len) == 0)
                    return fail(p, VB_E_FORMAT, p->cur.line, "a keyword argument is given twice", "it once");
            if (!grow(p, (void **)&c->kwn, kw.n, &cap_names, sizeof(jv))) return NULL;
            c->kwn[kw.n] = name;
            if (!push(p, &kw, expression(p, true))) return NULL;
        } else {
            if (p->code != VB_OK) return NULL;
            if (bad || c->star != NULL || kw.n != 0)
                return unexpected(p, "positional arguments before the others");
            if (!push(p, &pos, expression(p, true))) return NULL;
        }
    }
    if (!next(p)) return NULL;
    if (kw.n > 64) return fail(p, VB_E_LIMIT, p->cur.line, "too many keyword arguments", "at most 64");
    c->pos = pos.v, c->n_pos = pos.n, c->kwv = kw.v, c->n_kw = kw.n;
    return c;
}

static jast *call(parser *p, jast *callee) {
    jast *n = node(p, N_CALL);
    if (n == NULL || !deeper(p)) return NULL;
    n->a = callee;
    n->call = call_args(p);
    p->depth--;
    return n->call != NULL ? n : NULL;
}

static jast *postfix(parser *p, jast *n) {
    for (; n != NULL; n = p->cur.t == T_LPAREN ? call(p, n) : subscript(p, n))
        if (p->cur.t != T_DOT && p->cur.t != T_LBRACKET && p->cur.t != T_LPAREN) return n;
    return NULL;
}

static bool note_unknown(parser *p, jast *n) {
    n->flag = true;
    if (!grow(p, (void **)&p->unknown, p->n_unknown, &p->cap_unknown, sizeof(unknown))) return false;
    p->unknown[p->n_unknown++] = (unknown){n, p->soft};
    return true;
}

/* NAME{.NAME} of a filter or test, into n->v and n->id. */
static bool filter_name(parser *p, jast *n, bool test) {
    const char *s = p->cur.s;
    uint32_t len = p->cur.len;
    if (p->cur.t != T_NAME) {
        unexpected(p, test ? "the name of a test" : "the name of a filter");
        return false;
    }
    if (!next(p)) return false;
    while (p->cur.t == T_DOT) {
        if (!next(p)) return false;
        if (p->cur.t != T_NAME) {
            unexpected(p, "a name");
            return false;
        }
        len = (uint32_t)(p->cur.s + p->cur.len - s);
        if (!next(p)) return false;
    }
    int found = test ? vb__jtest_find(s, len) : vb__jfilter_find(s, len);
    n->id = (uint32_t)found;
    return literal(p, s, len, &n->v) && (found >= 0 || note_unknown(p, n));
}

/* One filter behind its '|' (or the first of a filter block). */
static jast *filter(parser *p, jast *in) {
    jast *n = node(p, N_FILTER);
    if (n == NULL) return NULL;
    n->a = in;
    if (!filter_name(p, n, false)) return NULL;
    if (p->cur.t == T_LPAREN) {
        if (!deeper(p)) return NULL;
        n->call = call_args(p);
        p->depth--;
        if (n->call == NULL) return NULL;
    }
    return n;
}

static jast *test(parser *p, jast *in) {
    jast *n = node(p, N_TEST);
    if (n == NULL || !next(p)) return NULL;
    n->a = in;
    bool negated = skip_name(p, "not");
    if (p->code != VB_OK || !filter_name(p, n, true)) return NULL;
    jtok t = p->cur.t;
    if (t == T_LPAREN) {
        if (!deeper(p)) return NULL;
        n->call = call_args(p);
        p->depth--;
        if (n->call == NULL) return NULL;
    } else if ((t == T_NAME || t == T_STRING || t == T_INT || t == T_FLOAT || t == T_LBRACKET ||
                t == T_LBRACE) &&
               !at(p, "else") && !at(p, "or") && !at(p, "and")) {
        if (at(p, "is")) return unexpected(p, "no second test (they cannot be chained)");
        jast *arg = primary(p);
        list l = {0};
        if (arg == NULL || !push(p, &l, postfix(p, arg)) || (n->call = alloc(p, sizeof(jcall))) == NULL)
            return NULL;
        n->call->pos = l.v;
        n->call->n_pos = 1;
    }
    return negated ? node2(p, N_NOT, n->line, n, NULL) : n;
}

static jast *filters(parser *p, jast *n) {
    while (n != NULL) {
        if (p->cur.t == T_PIPE) n = next(p) ? filter(p, n) : NULL;
        else if (at(p, "is")) n = test(p, n);
        else if (p->cur.t == T_LPAREN) n = call(p, n);
        else return n;
    }
    return NULL;
}

static jast *unary(parser *p, bool with_filter) {
    jast *n;
    if (p->cur.t == T_SUB || p->cur.t == T_ADD) {
        jnode type = p->cur.t == T_SUB ? N_NEG : N_POS;
        uint32_t line = p->cur.line;
        if (!deeper(p) || !next(p)) return NULL;
        n = unary(p, false);
        p->depth--;
        if (n != NULL) n = node2(p, type, line, n, NULL);
    } else {
        n = primary(p);
    }
    if (n != NULL) n = postfix(p, n);
    return n != NULL && with_filter ? filters(p, n) : n;
}

static jast *binary(parser *p, jast *left, jop op, jast *(*operand)(parser *)) {
    uint32_t line = p->cur.line;
    if (!next(p)) return NULL;
    jast *right = operand(p), *n = right == NULL ? NULL : node2(p, N_BIN, line, left, right);
    if (n != NULL) n->op = (uint8_t)op;
    return n;
}

static jast *signed_value(parser *p) {
    return unary(p, true);
}

static jast *power(parser *p) {
    jast *n = unary(p, true);
    while (n != NULL && p->cur.t == T_POW) n = binary(p, n, OP_POW, signed_value);
    return n;
}

static jast *product(parser *p) {
    jast *n = power(p);
    while (n != NULL) {
        switch (p->cur.t) {
        case T_MUL: n = binary(p, n, OP_MUL, power); break;
        case T_DIV: n = binary(p, n, OP_DIV, power); break;
        case T_FLOORDIV: n = binary(p, n, OP_FLOORDIV, power); break;
        case T_MOD: n = binary(p, n, OP_MOD, power); break;
        default: return n;
        }
    }
    return NULL;
}

static jast *concat(parser *p) {
    jast *n = product(p);
    if (n == NULL || p->cur.t != T_TILDE) return n;
    list l = {0};
    jast *c = node(p, N_CONCAT);
    if (c == NULL || !push(p, &l, n)) return NULL;
    while (p->cur.t == T_TILDE)
        if (!next(p) || !push(p, &l, product(p))) return NULL;
    return finish(c, &l);
}

static jast *sum(parser *p) {
    jast *n = concat(p);
    while (n != NULL && (p->cur.t == T_ADD || p->cur.t == T_SUB))
        n = binary(p, n, p->cur.t == T_ADD ? OP_ADD : OP_SUB, concat);
    return n;
}

static int comparison_op(parser *p) {
    switch (p->cur.t) {
    case T_EQ: return OP_EQ;
    case T_NE: return OP_NE;
    case T_LT: return OP_LT;
    case T_LE: return OP_LE;
    case T_GT: return OP_GT;
    case T_GE: return OP_GE;
    default: break;
    }
    if (at(p, "in")) return OP_IN;
    return at(p, "not") && tok_is(look(p), "in") ? OP_NOTIN : -1;
}

static jast *comparison(parser *p) {
    jast *n = sum(p), *c = NULL;
    list l = {0};
    uint8_t *ops = NULL;
    uint32_t cap = 0;
    for (int op; n != NULL && (op = comparison_op(p)) >= 0;) {
        if (c == NULL && (c = node2(p, N_COMPARE, p->cur.line, n, NULL)) == NULL) return NULL;
        if (!next(p) || (op == OP_NOTIN && !next(p))) return NULL;
        if (!grow(p, (void **)&ops, l.n, &cap, 1)) return NULL;
        ops[l.n] = (uint8_t)op;
        if (!push(p, &l, sum(p))) return NULL;
    }
    if (c == NULL || p->code != VB_OK) return p->code == VB_OK ? n : NULL;
    c->ops = ops;
    return finish(c, &l);
}

static jast *negation(parser *p) {
    if (!at(p, "not")) return comparison(p);
    uint32_t line = p->cur.line;
    if (!deeper(p) || !next(p)) return NULL;
    jast *n = negation(p);
    p->depth--;
    return n == NULL ? NULL : node2(p, N_NOT, line, n, NULL);
}

static jast *conjunction(parser *p) {
    jast *n = negation(p);
    while (n != NULL && at(p, "and")) {
        uint32_t line = p->cur.line;
        jast *right = next(p) ? negation(p) : NULL;
        n = right == NULL ? NULL : node2(p, N_AND, line, n, right);
    }
    return n;
}

static jast *disjunction(parser *p) {
    jast *n = conjunction(p);
    while (n != NULL && at(p, "or")) {
        uint32_t line = p->cur.line;
        jast *right = next(p) ? conjunction(p) : NULL;
        n = right == NULL ? NULL : node2(p, N_OR, line, n, right);
    }
    return n;
}

static jast *expression(parser *p, bool with_cond) {
    if (!deeper(p)) return NULL;
    uint32_t first_unknown = p->n_unknown;
    jast *n = disjunction(p);
    bool any = false;
    while (n != NULL && with_cond && at(p, "if")) {
        any = true;
        uint32_t line = p->cur.line;
        jast *cond = next(p) ? disjunction(p) : NULL, *other = NULL;
        if (cond == NULL) return NULL;
        if (skip_name(p, "else") && (other = expression(p, true)) == NULL) return NULL;
        if (p->code != VB_OK || (n = node2(p, N_COND, line, n, cond)) == NULL) return NULL;
        n->c = other;
    }
    if (any)
        for (uint32_t i = first_unknown; i < p->n_unknown; i++) p->unknown[i].soft = true;
    p->depth--;
    return n;
}

/* ---- statements ---- */

static bool check_target(parser *p, const jast *n) {
    if (n->type == N_NAME || n->type == N_NSREF) return true;
    if (n->type == N_TUPLE) {
        for (uint32_t i = 0; i < n->n; i++)
            if (!check_target(p, n->list[i])) return false;
        return true;
    }
    fail(p, VB_E_FORMAT, n->line, "cannot assign to this", "a name, a tuple of names or namespace.attribute");
    return false;
}

static jast *target(parser *p, const char *end_name, bool ns) {
    p->in_target = true;
    jast *n = parse_tuple(p, true, true, end_name, false, ns);
    p->in_target = false;
    return n != NULL && check_target(p, n) ? n : NULL;
}

static bool plain_name(parser *p, uint32_t *id, jv *text) {
    if (p->cur.t != T_NAME) {
        unexpected(p, "a name");
        return false;
    }
    if (at(p, "true") || at(p, "false") || at(p, "none") || at(p, "True") || at(p, "False") ||
        at(p, "None")) {
        fail(p, VB_E_FORMAT, p->cur.line, "cannot assign to a constant", "a name");
        return false;
    }
    if (!intern(p, p->cur.s, p->cur.len, id)) return false;
    *text = p->t->names[*id].text;
    return next(p);
}

static bool signature(parser *p, jparams *ps) {
    uint32_t cap_i = 0, cap_n = 0, cap_d = 0;
    bool defaults = false;
    if (!expect(p, T_LPAREN)) return false;
    while (p->cur.t != T_RPAREN) {
        if (ps->n != 0 && !expect(p, T_COMMA)) return false;
        if (!grow(p, (void **)&ps->ids, ps->n, &cap_i, sizeof(uint32_t)) ||
            !grow(p, (void **)&ps->names, ps->n, &cap_n, sizeof(jv)) ||
            !grow(p, (void **)&ps->defaults, ps->n, &cap_d, sizeof(jast *)))
            return false;
        uint32_t i = ps->n, line = p->cur.line;
        if (!plain_name(p, &ps->ids[i], &ps->names[i]) || !note(p, ps->ids[i], false)) return false;
        for (uint32_t k = 0; k < i; k++)
            if (ps->ids[k] == ps->ids[i]) {
                fail(p, VB_E_FORMAT, line, "a parameter is named twice", "different names");
                return false;
            }
        ps->defaults[i] = NULL;
        if (p->cur.t == T_ASSIGN) {
            defaults = true;
            if (!next(p) || (ps->defaults[i] = expression(p, true)) == NULL) return false;
        } else if (defaults) {
            fail(p, VB_E_FORMAT, line, "a parameter without default behind one with", "a default");
            return false;
        }
        ps->own_caller |= ps->ids[i] == p->t->id_caller;
        if (++ps->n > 64) {
            fail(p, VB_E_LIMIT, line, "too many parameters", "at most 64");
            return false;
        }
    }
    return next(p);
}

/* The body of a macro or call block, with its own notion of loops and of caller, varargs, kwargs. */
static bool macro_body(parser *p, jast *n, bool with_signature, const char *const *ends,
                       const char *expected) {
    int loops = p->loops;
    bool soft = p->soft, c = p->caller, v = p->varargs, k = p->kwargs;
    p->loops = 0;
    p->soft = p->caller = p->varargs = p->kwargs = false;
    scope *outer = p->scope;
    if ((n->params = alloc(p, sizeof(jparams))) == NULL || !scope_begin(p, n, false)) return false;
    if (with_signature && !signature(p, n->params)) return false;
    scope *inner = p->scope;
    if (n->type == N_CALLBLOCK) {
        p->scope = outer;
        bool bc = p->caller, bv = p->varargs, bk = p->kwargs;
        p->caller = c, p->varargs = v, p->kwargs = k; /* the call itself belongs to the outside */
        n->a = expression(p, true);
        c = p->caller, v = p->varargs, k = p->kwargs;
        p->caller = bc, p->varargs = bv, p->kwargs = bk;
        p->scope = inner;
        if (n->a == NULL) return false;
        if (n->a->type != N_CALL) {
            fail(p, VB_E_FORMAT, n->line, "a call block without a call", "{% call NAME(...) %}");
            return false;
        }
    }
    if (!body(p, n, ends, expected)) return false;
    p->scope = outer;
    n->params->caller = p->caller, n->params->varargs = p->varargs, n->params->kwargs = p->kwargs;
    p->loops = loops;
    p->soft = soft;
    p->caller |= c, p->varargs |= v, p->kwargs |= k;
    return true;
}

static jast *statement_if(parser *p) {
    static const char *const ends[] = {"elif", "else", "endif", NULL}, *const last[] = {"endif", NULL};
    bool soft = p->soft;
    jast *first = NULL, *prev = NULL;
    p->soft = true;
    p->scope->conditions++;
    for (bool is_else = false;;) {
        jast *n = node(p, N_IF);
        if (n == NULL || (!is_else && (n->a = parse_tuple(p, false, false, NULL, false, false)) == NULL))
            return NULL;
        if (!body(p, n, is_else ? last : ends,
                  is_else ? "{% endif %}" : "{% elif %}, {% else %} or {% endif %}"))
            return NULL;
        if (prev != NULL) prev->b = n;
        else first = n;
        prev = n;
        if (at(p, "endif")) break;
        is_else = at(p, "else");
        if (!next(p)) return NULL;
    }
    p->soft = soft;
    p->scope->conditions--;
    return next(p) ? first : NULL;
}

static bool mentions_loop(const jast *n, uint32_t id) {
    return n->type == N_NAME && n->id == id;
}

static jast *statement_for(parser *p) {
    static const char *const ends[] = {"else", "endfor", NULL}, *const last[] = {"endfor", NULL};
    jast *n = node(p, N_FOR);
    bool soft = p->soft;
    if (n == NULL || (n->a = target(p, "in", false)) == NULL) return NULL;
    if (mentions_loop(n->a, p->t->id_loop))
        return fail(p, VB_E_FORMAT, n->line, "cannot use 'loop' as the target of a for", "another name");
    if (!at(p, "in")) return unexpected(p, "'in'");
    if (!next(p) || (n->b = parse_tuple(p, false, false, "recursive", false, false)) == NULL) return NULL;
    p->soft = false;
    scope *outer = p->scope;
    if (at(p, "if")) { /* the condition has names of its own */
        if (!next(p) || !scope_begin(p, node(p, N_SCOPE), false) || !note_target(p, n->a, false) ||
            (n->c = expression(p, true)) == NULL)
            return NULL;
        p->scope = outer;
    }
    n->flag = skip_name(p, "recursive");
    p->loops++;
    if (p->code != VB_OK || !scope_begin(p, n, false) || !note_target(p, n->a, false) ||
        !note(p, p->t->id_loop, false) || !body(p, n, ends, "{% else %} or {% endfor %}"))
        return NULL;
    p->loops--;
    p->scope = outer;
    if (at(p, "else")) {
        if (!next(p) || (n->d = node(p, N_SCOPE)) == NULL || !scope_begin(p, n->d, false) ||
            !body(p, n->d, last, "{% endfor %}"))
            return NULL;
        p->scope = outer;
    }
    p->soft = soft;
    return next(p) ? n : NULL;
}

static jast *inner_body(parser *p, jast *n, const char *const *ends, const char *expected) {
    bool soft = p->soft;
    scope *outer = p->scope;
    p->soft = false;
    if (!scope_begin(p, n, n->type == N_BLOCK)) return NULL;
    for (uint32_t i = 0; n->type == N_WITH && i < n->call->n_pos; i++)
        if (!note_target(p, n->call->pos[i], false)) return NULL;
    if (!body(p, n, ends, expected)) return NULL;
    p->scope = outer;
    p->soft = soft;
    return next(p) ? n : NULL;
}

static jast *filter_chain(parser *p, jast *n) {
    n = filter(p, n);
    while (n != NULL && p->cur.t == T_PIPE) n = next(p) ? filter(p, n) : NULL;
    return n;
}

static jast *statement_set(parser *p) {
    static const char *const ends[] = {"endset", NULL};
    jast *n = node(p, N_SET);
    if (n == NULL || (n->a = target(p, NULL, true)) == NULL) return NULL;
    if (p->cur.t == T_ASSIGN) {
        return next(p) && (n->b = parse_tuple(p, false, true, NULL, false, false)) != NULL &&
                       note_target(p, n->a, true)
                   ? n
                   : NULL;
    }
    n->type = N_SETBLOCK;
    if (!note_target(p, n->a, true)) return NULL;
    if (p->cur.t == T_PIPE && (!next(p) || (n->b = filter_chain(p, NULL)) == NULL)) return NULL;
    if (p->cur.t != T_BLOCK_END && p->cur.t != T_COLON) return unexpected(p, "'=' or the tag's end");
    return inner_body(p, n, ends, "{% endset %}");
}

static jast *statement_with(parser *p) {
    static const char *const ends[] = {"endwith", NULL};
    jast *n = node(p, N_WITH);
    list targets = {0}, values = {0};
    if (n == NULL || (n->call = alloc(p, sizeof(jcall))) == NULL) return NULL;
    while (p->cur.t != T_BLOCK_END) {
        if (targets.n != 0 && !expect(p, T_COMMA)) return NULL;
        p->in_target = true;
        jast *to = primary(p);
        p->in_target = false;
        if (to == NULL || !check_target(p, to) || !push(p, &targets, to)) return NULL;
        if (!expect(p, T_ASSIGN) || !push(p, &values, expression(p, true))) return NULL;
    }
    n->call->pos = targets.v, n->call->n_pos = targets.n, n->call->kwv = values.v;
    return inner_body(p, n, ends, "{% endwith %}");
}

static jast *statement_block(parser *p, jnode type, const char *end) {
    const char *const ends[] = {end, NULL};
    char expected[40];
    snprintf(expected, sizeof(expected), "{%% %s %%}", end);
    jast *n = node(p, type);
    if (n == NULL) return NULL;
    if (type == N_BLOCK) {
        if (!plain_name(p, &n->id, &n->v)) return NULL;
        if (at(p, "scoped") && !next(p)) return NULL;
        if (at(p, "required") && !next(p)) return NULL;
    } else if (type == N_FILTERBLOCK) {
        if ((n->a = filter_chain(p, NULL)) == NULL) return NULL;
    } else if (type == N_MACRO) {
        if (!plain_name(p, &n->id, &n->v) || !note(p, n->id, true)) return NULL;
        return macro_body(p, n, true, ends, expected) && next(p) ? n : NULL;
    } else if (type == N_CALLBLOCK) {
        return macro_body(p, n, p->cur.t == T_LPAREN, ends, expected) && next(p) ? n : NULL;
    }
    n = inner_body(p, n, ends, expected);
    if (n != NULL && type == N_BLOCK && p->cur.t == T_NAME && !next(p)) return NULL; /* {% endblock NAME %} */
    return n;
}

/* include, import, extends, from: there is nothing to load from. An error when it runs, as elsewhere. */
static jast *statement_loader(parser *p, const jtoken *tag) {
    jast *n = node(p, N_LOADER);
    if (n == NULL || !literal(p, tag->s, tag->len, &n->v)) return NULL;
    while (p->cur.t != T_BLOCK_END) {
        if (p->cur.t == T_EOF) return unexpected(p, "'%}'");
        if (!next(p)) return NULL;
    }
    return n;
}

static jast *statement(parser *p, const char *expected) {
    jtoken tag = p->cur;
    if (tag.t != T_NAME) return unexpected(p, "the name of a tag");
    if (!next(p)) return NULL;
#define TAG(name) tok_is(&tag, name)
    if (TAG("if")) return statement_if(p);
    if (TAG("for")) return statement_for(p);
    if (TAG("set")) return statement_set(p);
    if (TAG("macro")) return statement_block(p, N_MACRO, "endmacro");
    if (TAG("call")) return statement_block(p, N_CALLBLOCK, "endcall");
    if (TAG("filter")) return statement_block(p, N_FILTERBLOCK, "endfilter");
    if (TAG("with")) return statement_with(p);
    if (TAG("block")) return statement_block(p, N_BLOCK, "endblock");
    if (TAG("generation")) return statement_block(p, N_SCOPE, "endgeneration");
    if (TAG("break") || TAG("continue")) {
        if (p->loops == 0)
            return fail(p, VB_E_FORMAT, tag.line,
                        TAG("break") ? "break outside of a loop" : "continue outside of a loop",
                        "it inside {% for %}");
        return node(p, TAG("break") ? N_BREAK : N_CONTINUE);
    }
    if (TAG("print")) {
        jast *n = node(p, N_OUTPUT);
        return n != NULL && (n->a = parse_tuple(p, false, true, NULL, false, false)) != NULL ? n : NULL;
    }
    if (TAG("include") || TAG("import") || TAG("extends") || TAG("from")) return statement_loader(p, &tag);
#undef TAG
    char what[80], name[64];
    snprintf(what, sizeof(what), "unknown tag %s", vb__jtoken_text(&tag, name, sizeof(name)));
    return fail(p, VB_E_FORMAT, tag.line, what, expected);
}

/* Statements up to one of `ends` (the current token afterwards); NULL: up to the end of the template. The
 * current token at the start is the end of the opening tag. */
static bool body(parser *p, jast *owner, const char *const *ends, const char *expected) {
    list l = {0};
    if (!deeper(p)) return false;
    if (ends != NULL && p->cur.t == T_COLON && !next(p)) return false; /* {% else: %}, as in Python */
    if (ends != NULL && !expect(p, T_BLOCK_END)) return false;
    uint32_t opened = owner->line;
    for (;;) {
        jast *n = NULL;
        if (p->cur.t == T_EOF) {
            if (ends == NULL) break;
            char what[64];
            snprintf(what, sizeof(what), "the template ends inside the tag of line %u", opened);
            fail(p, VB_E_FORMAT, p->cur.line, what, expected);
            return false;
        }
        if (p->cur.t == T_DATA) {
            if ((n = node(p, N_TEXT)) == NULL || !literal(p, p->cur.s, p->cur.len, &n->v) || !next(p))
                return false;
        } else if (p->cur.t == T_VAR_BEGIN) {
            if ((n = node(p, N_OUTPUT)) == NULL || !next(p)) return false;
            n->line = p->cur.line;
            if ((n->a = parse_tuple(p, false, true, NULL, false, false)) == NULL || !expect(p, T_VAR_END))
                return false;
        } else if (p->cur.t == T_BLOCK_BEGIN) {
            if (!next(p)) return false;
            bool end = false;
            for (uint32_t i = 0; ends != NULL && ends[i] != NULL && !end; i++) end = at(p, ends[i]);
            if (end) break;
            if ((n = statement(p, expected)) == NULL || !expect(p, T_BLOCK_END)) return false;
        } else {
            unexpected(p, "template text or a tag");
            return false;
        }
        if (!push(p, &l, n)) return false;
    }
    p->depth--;
    finish(owner, &l);
    return true;
}

/* ---- compile ---- */

static vb_err bad_utf8(const char *s, size_t len, vb_error *err) {
    uint32_t line = 1;
    for (size_t i = 0; i < len;) {
        unsigned char c = (unsigned char)s[i];
        size_t n = c < 0x80                ? 1
                   : c >= 0xc2 && c < 0xe0 ? 2
                   : (c & 0xf0) == 0xe0    ? 3
                   : c >= 0xf0 && c < 0xf5 ? 4
                                           : 0;
        bool ok = n != 0 && i + n <= len;
        for (size_t k = 1; ok && k < n; k++) ok = ((unsigned char)s[i + k] & 0xc0) == 0x80;
        unsigned char d = ok && n > 2 ? (unsigned char)s[i + 1] : 0x80;
        if (ok && ((c == 0xe0 && d < 0xa0) || (c == 0xed && d >= 0xa0) || (c == 0xf0 && d < 0x90) ||
                   (c == 0xf4 && d >= 0x90)))
            ok = false;
        if (!ok)
            return vb__fail(err, VB_E_FORMAT,
                            "template line %u: a byte that is not UTF-8, expected UTF-8 text", line);
        line += c == '\n';
        i += n;
    }
    return VB_OK;
}

/* Copies the source with its line ends made \n and one of them at the end dropped. */
static size_t normalise(const char *s, size_t len, char *out) {
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (s[i] == '\r') {
            out[n++] = '\n';
            if (i + 1 < len && s[i + 1] == '\n') i++;
        } else {
            out[n++] = s[i];
        }
    }
    return n > 0 && out[n - 1] == '\n' ? n - 1 : n;
}

vb_err vb__jinja_compile(const char *source, size_t len, vb__jinja **out, vb_error *err) {
    if (len > VB_LIMIT_TEMPLATE_BYTES)
        return vb__fail(err, VB_E_LIMIT, "template: %zu bytes, expected at most %d", len,
                        VB_LIMIT_TEMPLATE_BYTES);
    VB_TRY(bad_utf8(source, len, err));
    vb__jinja *t = vb__calloc(VB_TAG_TEXT, 1, sizeof(*t));
    parser *p = vb__calloc(VB_TAG_TEXT, 1, sizeof(*p));
    if (t == NULL || p == NULL) {
        vb__free(t);
        vb__free(p);
        return vb__fail(err, VB_E_MEMORY, "template: out of memory");
    }
    vb__arena_init(&t->arena, VB_TAG_TEXT, JINJA_COMPILE_BYTES);
    p->t = t;
    p->err = err;
    jast root = {0};
    char *text = alloc(p, len + 1);
    if (text != NULL) {
        vb__jlex_init(&p->lex, text, normalise(source, len, text), err);
        if (scope_begin(p, NULL, true) && intern(p, "loop", 4, &t->id_loop) &&
            intern(p, "caller", 6, &t->id_caller) && intern(p, "varargs", 7, &t->id_varargs) &&
            intern(p, "kwargs", 6, &t->id_kwargs) && next(p) && body(p, &root, NULL, "another tag")) {
            t->body = root.list;
            t->n_body = root.n;
            resolve_scopes(p);
        }
    }
    for (uint32_t i = 0; i < p->n_unknown && p->code == VB_OK; i++) {
        const jast *n = p->unknown[i].node;
        if (p->unknown[i].soft) continue;
        char what[96];
        snprintf(what, sizeof(what), "no %s named '%.*s'", n->type == N_TEST ? "test" : "filter",
                 n->v.s->len > 40 ? 40 : (int)n->v.s->len, n->v.s->s);
        fail(p, VB_E_UNSUPPORTED, n->line, what, "one of those in docs/text.md");
    }
    vb_err e = p->code;
    vb__free(p);
    if (e != VB_OK) {
        vb__jinja_destroy(t);
        return e;
    }
    *out = t;
    return VB_OK;
}

void vb__jinja_destroy(vb__jinja *t) {
    if (t == NULL) return;
    vb__arena_fini(&t->arena);
    vb__free(t);
}
