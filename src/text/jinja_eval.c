/* Expressions, calls and names. */
#include "text/jinja_int.h"
#include <stdio.h>

/* ---- names ---- */

bool vb__jscope_get(jr *r, jscope *sc, uint32_t id, jv *out) {
    for (; sc->parent != NULL; sc = sc->parent) {
        if (sc->n > 16 && !vb__jwork(r, sc->n / 16)) return false;
        for (uint32_t i = 0; i < sc->n; i++)
            if (sc->e[i].id == id) {
                *out = sc->e[i].v;
                return true;
            }
    }
    if (r->root[id].t != JV_ABSENT) *out = r->root[id];
    else if (r->context[id].t != JV_ABSENT) *out = r->context[id];
    else if (r->t->names[id].func != 0 && !r->t->names[id].late)
        *out = (jv){.t = JV_FUNC, .sub = (uint8_t)(r->t->names[id].func - 1)};
    else *out = (jv){0};
    return true;
}

bool vb__jscope_set(jr *r, jscope *sc, uint32_t id, jv v) {
    if (sc->parent == NULL) {
        r->root[id] = v;
        return true;
    }
    for (uint32_t i = 0; i < sc->n; i++)
        if (sc->e[i].id == id) {
            sc->e[i].v = v;
            return true;
        }
    if (sc->n == sc->cap) {
        uint32_t cap = sc->cap == 0 ? 4 : sc->cap * 2;
        jslot *m = vb__jalloc(r, cap * sizeof(*m));
        if (m == NULL) return false;
        if (sc->n != 0) memcpy(m, sc->e, sc->n * sizeof(*m));
        sc->e = m;
        sc->cap = cap;
    }
    sc->e[sc->n++] = (jslot){id, v};
    return true;
}

/* ---- calls ---- */

/* Evaluated arguments; one slot more than asked for is left free behind the keywords (for `caller`). */
static bool eval_args(jr *r, jscope *sc, const jcall *c, jargs *out) {
    *out = (jargs){.pos = vb__jnothing, .kwn = vb__jnothing, .kwv = vb__jnothing};
    if (c == NULL) return true;
    jv *pos = NULL, *kwn = NULL, *kwv = NULL;
    uint32_t n = 0, cap = 0, n_kw = 0, cap_n = 0, cap_v = 0;
    if (c->n_pos > 0) {
        if ((pos = vb__jalloc(r, c->n_pos * sizeof(jv))) == NULL) return false;
        cap = c->n_pos;
        for (; n < c->n_pos; n++)
            if (!vb__jeval(r, sc, c->pos[n], &pos[n])) return false;
    }
    for (uint32_t i = 0; i < c->n_kw; i++) {
        jv v;
        uint32_t k = n_kw;
        if (!vb__jeval(r, sc, c->kwv[i], &v) || !vb__jpush(r, &kwn, &n_kw, &cap_n, c->kwn[i]) ||
            !vb__jpush(r, &kwv, &k, &cap_v, v))
            return false;
    }
    if (c->star != NULL) {
        jv v, *items;
        uint32_t m;
        if (!vb__jeval(r, sc, c->star, &v) || !vb__jv_collect(r, v, &items, &m)) return false;
        for (uint32_t i = 0; i < m; i++)
            if (!vb__jpush(r, &pos, &n, &cap, items[i])) return false;
    }
    if (c->starstar != NULL) {
        jv v;
        if (!vb__jeval(r, sc, c->starstar, &v)) return false;
        if (v.t == JV_UNDEF) return vb__jerr_undef(r, v);
        if (v.t != JV_DICT)
            return vb__jerr(r, "the argument behind ** is %s, expected a mapping", vb__jv_type_name(v));
        if (v.d->n + n_kw > 64)
            return vb__jerr_code(r, VB_E_LIMIT, "too many keyword arguments, expected at most 64");
        for (uint32_t i = 0; i < v.d->n; i++) {
            uint32_t k = n_kw;
            jv name = v.d->e[i].k;
            if (name.t != JV_STR)
                return vb__jerr(r, "a keyword is %s, expected a text", vb__jv_type_name(name));
            for (uint32_t x = 0; x < n_kw; x++)
                if (kwn[x].s->len == name.s->len && memcmp(kwn[x].s->s, name.s->s, name.s->len) == 0)
                    return vb__jerr(r, "a keyword argument is given twice, expected it once");
            if (!vb__jpush(r, &kwn, &n_kw, &cap_n, name) || !vb__jpush(r, &kwv, &k, &cap_v, v.d->e[i].v))
                return false;
        }
    }
    *out = (jargs){n == 0 ? vb__jnothing : pos, n, n_kw == 0 ? vb__jnothing : kwn,
                   n_kw == 0 ? vb__jnothing : kwv, n_kw};
    return true;
}

/* The arguments with one keyword more. */
static bool with_keyword(jr *r, jargs *a, jv name, jv v) {
    jv *kwn = vb__jalloc(r, (a->n_kw + 1) * sizeof(jv)), *kwv = vb__jalloc(r, (a->n_kw + 1) * sizeof(jv));
    if (kwn == NULL || kwv == NULL) return false;
    for (uint32_t i = 0; i < a->n_kw; i++) {
        kwn[i] = a->kwn[i];
        kwv[i] = a->kwv[i];
    }
    kwn[a->n_kw] = name;
    kwv[a->n_kw] = v;
    a->kwn = kwn;
    a->kwv = kwv;
    a->n_kw++;
    return true;
}

static bool not_callable(jr *r, jv f) {
    if (f.t == JV_UNDEF) return vb__jerr_undef(r, f);
    return vb__jerr(r, "'%s' object is not callable, expected a function or macro", vb__jv_type_name(f));
}

bool vb__jcall_value(jr *r, jv f, const jargs *a, jv *out) {
    switch (f.t) {
    case JV_FUNC: return vb__jfunc_call(r, f.sub, a, out);
    case JV_METHOD: return vb__jmethod_call(r, f.me->self, f.me->id, a, out);
    case JV_MACRO: return vb__jmacro_call(r, f.m, a, out);
    case JV_LOOP: return vb__jloop_call(r, f.loop, a, out);
    case JV_JOINER:
        if (a->n != 0 || a->n_kw != 0) return vb__jerr(r, "a joiner takes no arguments, expected none");
        *out = f.jo->sep;
        if (f.jo->used) return true;
        f.jo->used = true;
        return vb__jstr_borrow(r, "", 0, true, out);
    default: return not_callable(r, f);
    }
}

/* f(...) for the callee of a call node; `caller` is JV_ABSENT or what {% call %} passes on. */
static __attribute__((noinline)) bool call_node(jr *r, jscope *sc, const jast *n, jv caller, jv *out) {
    jv f, self;
    jargs a;
    const jast *callee = n->a;
    if (callee->type == N_GETATTR &&
        callee->id != M_NONE) { /* obj.method(...) without a value for the method */
        if (!vb__jeval(r, sc, callee->a, &self)) return false;
        if (self.t != JV_UNDEF && self.t != JV_NAMESPACE && vb__jmethod_on(self, callee->id) == JM_OK &&
            caller.t == JV_ABSENT) {
            if (!eval_args(r, sc, n->call, &a)) return false;
            r->line = n->line;
            return vb__jmethod_call(r, self, callee->id, &a, out);
        }
        if (!vb__jop_getattr(r, self, callee->v.s, callee->id, &f)) return false;
    } else if (!vb__jeval(r, sc, callee, &f)) {
        return false;
    }
    if (f.t == JV_UNDEF) return vb__jerr_undef(r, f);
    if (!eval_args(r, sc, n->call, &a)) return false;
    if (caller.t != JV_ABSENT && !with_keyword(r, &a, r->t->names[r->t->id_caller].text, caller))
        return false;
    r->line = n->line;
    return vb__jcall_value(r, f, &a, out);
}

bool vb__jcall_block(jr *r, jscope *sc, const jast *call, jv caller, jv *out) {
    return call_node(r, sc, call, caller, out);
}

bool vb__jfilter_node(jr *r, jscope *sc, const jast *n, jv in, jv *out) {
    jargs a;
    if (n->flag)
        return vb__jerr_code(r, VB_E_UNSUPPORTED,
                             "no filter named '%.*s', expected one of those in docs/text.md",
                             n->v.s->len > 60 ? 60 : (int)n->v.s->len, n->v.s->s);
    if (!eval_args(r, sc, n->call, &a)) return false;
    r->line = n->line;
    return vb__jfilter_call(r, (int)n->id, in, &a, out);
}

static __attribute__((noinline)) bool test_node(jr *r, jscope *sc, const jast *n, jv *out) {
    jargs a;
    jv v;
    bool b;
    if (n->flag)
        return vb__jerr_code(r, VB_E_UNSUPPORTED,
                             "no test named '%.*s', expected one of those in docs/text.md",
                             n->v.s->len > 60 ? 60 : (int)n->v.s->len, n->v.s->s);
    if (!vb__jeval(r, sc, n->a, &v) || !eval_args(r, sc, n->call, &a) ||
        !vb__jtest_call(r, (int)n->id, v, &a, &b))
        return false;
    *out = vb__jv_bool(b);
    return true;
}

static __attribute__((noinline)) bool filter_node(jr *r, jscope *sc, const jast *n, jv *out) {
    jv v;
    return vb__jeval(r, sc, n->a, &v) && vb__jfilter_node(r, sc, n, v, out);
}

/* ---- the other expressions ---- */

static __attribute__((noinline)) bool list_node(jr *r, jscope *sc, const jast *n, jv *out) {
    jv *v = vb__jalloc(r, n->n * sizeof(jv));
    if (v == NULL) return false;
    for (uint32_t i = 0; i < n->n; i++)
        if (!vb__jeval(r, sc, n->list[i], &v[i])) return false;
    return vb__jv_list(r, n->type == N_TUPLE ? JV_TUPLE : JV_LIST, v, n->n, out);
}

static __attribute__((noinline)) bool dict_node(jr *r, jscope *sc, const jast *n, jv *out) {
    jdict *d;
    if (!vb__jdict_new(r, n->n / 2, &d)) return false;
    for (uint32_t i = 0; i + 1 < n->n; i += 2) {
        jv k, v;
        if (!vb__jeval(r, sc, n->list[i], &k) || !vb__jeval(r, sc, n->list[i + 1], &v) ||
            !vb__jdict_set(r, d, k, v))
            return false;
    }
    *out = (jv){.t = JV_DICT, .d = d};
    return true;
}

static __attribute__((noinline)) bool compare_node(jr *r, jscope *sc, const jast *n, jv *out) {
    jv left, right;
    bool b = true;
    if (!vb__jeval(r, sc, n->a, &left)) return false;
    for (uint32_t i = 0; i < n->n && b; i++) {
        if (!vb__jeval(r, sc, n->list[i], &right) || !vb__jop_compare(r, (jop)n->ops[i], left, right, &b))
            return false;
        left = right;
    }
    *out = vb__jv_bool(b);
    return true;
}

static __attribute__((noinline)) bool concat_node(jr *r, jscope *sc, const jast *n, jv *out) {
    jv v;
    static const jstr empty = {.s = "", .ours = true};
    *out = (jv){.t = JV_STR, .s = &empty};
    for (uint32_t i = 0; i < n->n; i++)
        if (!vb__jeval(r, sc, n->list[i], &v) || !vb__jv_str(r, v, &v) ||
            !vb__jstr_concat(r, out->s, v.s, out))
            return false;
    return true;
}

static __attribute__((noinline)) bool item_node(jr *r, jscope *sc, const jast *n, jv *out) {
    jv obj, v[3] = {{0}};
    if (!vb__jeval(r, sc, n->a, &obj)) return false;
    const jast *s = n->b;
    if (s->type != N_SLICE) return vb__jeval(r, sc, s, &v[0]) && vb__jop_getitem(r, obj, v[0], out);
    if ((s->a != NULL && !vb__jeval(r, sc, s->a, &v[0])) ||
        (s->b != NULL && !vb__jeval(r, sc, s->b, &v[1])) || (s->c != NULL && !vb__jeval(r, sc, s->c, &v[2])))
        return false;
    r->line = n->line;
    return vb__jop_slice(r, obj, v[0], v[1], v[2], out);
}

static __attribute__((noinline)) bool binary_node(jr *r, jscope *sc, const jast *n, jv *out) {
    jv a, b;
    if (!vb__jeval(r, sc, n->a, &a) || !vb__jeval(r, sc, n->b, &b)) return false;
    r->line = n->line;
    return vb__jop_binary(r, (jop)n->op, a, b, out);
}

static bool short_circuit(jr *r, jscope *sc, const jast *n, jv *out) {
    bool b;
    if (!vb__jeval(r, sc, n->a, out) || !vb__jv_truth(r, *out, &b)) return false;
    return b == (n->type == N_OR) || vb__jeval(r, sc, n->b, out);
}

static bool cond_node(jr *r, jscope *sc, const jast *n, jv *out) {
    bool b;
    if (!vb__jeval(r, sc, n->b, out) || !vb__jv_truth(r, *out, &b)) return false;
    if (b) return vb__jeval(r, sc, n->a, out);
    if (n->c != NULL) return vb__jeval(r, sc, n->c, out);
    return vb__jv_undef_text(r, "the inline if was false and has no else, expected a value", out);
}

static bool name_node(jr *r, jscope *sc, const jast *n, jv *out) {
    if (!vb__jscope_get(r, sc, n->id, out)) return false;
    return out->t != JV_ABSENT || vb__jv_undef(r, JU_NAME, JV_UNDEF, r->t->names[n->id].text, out);
}

static bool eval(jr *r, jscope *sc, const jast *n, jv *out) {
    bool b;
    jv v;
    switch ((jnode)n->type) {
    case N_CONST: *out = n->v; return true;
    case N_NAME: return name_node(r, sc, n, out);
    case N_TUPLE:
    case N_LIST: return list_node(r, sc, n, out);
    case N_DICT: return dict_node(r, sc, n, out);
    case N_COND: return cond_node(r, sc, n, out);
    case N_OR:
    case N_AND: return short_circuit(r, sc, n, out);
    case N_NOT:
        if (!vb__jeval(r, sc, n->a, out) || !vb__jv_truth(r, *out, &b)) return false;
        *out = vb__jv_bool(!b);
        return true;
    case N_COMPARE: return compare_node(r, sc, n, out);
    case N_BIN: return binary_node(r, sc, n, out);
    case N_CONCAT: return concat_node(r, sc, n, out);
    case N_NEG:
    case N_POS: return vb__jeval(r, sc, n->a, out) && vb__jop_negate(r, *out, n->type == N_POS, out);
    case N_GETATTR: return vb__jeval(r, sc, n->a, &v) && vb__jop_getattr(r, v, n->v.s, n->id, out);
    case N_GETITEM: return item_node(r, sc, n, out);
    case N_CALL: return call_node(r, sc, n, (jv){0}, out);
    case N_FILTER: return filter_node(r, sc, n, out);
    case N_TEST: return test_node(r, sc, n, out);
    default: return vb__jerr_code(r, VB_E_INTERNAL, "not an expression");
    }
}

bool vb__jeval(jr *r, jscope *sc, const jast *n, jv *out) {
    r->line = n->line;
    if (--r->work < 0) return vb__jwork(r, 0);
    if (n->type == N_CONST) {
        *out = n->v;
        return true;
    }
    if (++r->depth > JINJA_EVAL_DEPTH)
        return vb__jerr_code(r, VB_E_LIMIT, "nested too deep while running, expected at most %d levels",
                             JINJA_EVAL_DEPTH);
    bool ok = eval(r, sc, n, out);
    r->depth--;
    return ok;
}
