/* Statements, loops, macros, and a rendering from beginning to end. */
#include "text/jinja_int.h"
#include "base/limits.h"
#include <stdio.h>

/* ---- scopes and targets ---- */

/* Empties a scope for the body of `owner` (may be NULL): its own names are there, without a value. */
static bool enter_scope(jr *r, jscope *s, const jast *owner) {
    s->n = 0;
    for (uint32_t i = 0; owner != NULL && i < owner->n_late; i++)
        if (!vb__jscope_set(r, s, owner->late[i], (jv){0})) return false;
    return true;
}

static jscope *new_scope(jr *r, jscope *parent, const jast *owner) {
    jscope *s = vb__jalloc(r, sizeof(*s));
    if (s == NULL) return NULL;
    *s = (jscope){.parent = parent};
    return enter_scope(r, s, owner) ? s : NULL;
}

static bool set_attribute(jr *r, jscope *sc, const jast *n, jv v) {
    jv ns;
    if (!vb__jscope_get(r, sc, n->id, &ns)) return false;
    if (ns.t != JV_NAMESPACE)
        return vb__jerr(r,
                        "cannot assign an attribute on something that is no namespace, expected namespace()");
    if (n->v.s->len > 0 && n->v.s->s[0] == '_')
        return vb__jerr(r, "a namespace attribute begins with '_', expected another name");
    return vb__jdict_set(r, ns.d, n->v, v);
}

static bool assign(jr *r, jscope *sc, const jast *target, jv v) {
    if (target->type == N_NAME) return vb__jscope_set(r, sc, target->id, v);
    if (target->type == N_NSREF) return set_attribute(r, sc, target, v);
    jiter it;
    if (!vb__jiter_init(r, v, &it)) return false;
    for (uint32_t i = 0;; i++) {
        jv x;
        bool more;
        if (!vb__jiter_next(r, &it, &x, &more)) return false;
        if (!more && i < target->n)
            return vb__jerr(r, "not enough values to unpack: %u, expected %u", i, target->n);
        if (more && i == target->n) return vb__jerr(r, "too many values to unpack, expected %u", target->n);
        if (!more) return true;
        if (!assign(r, sc, target->list[i], x)) return false;
    }
}

/* ---- captured output ---- */

/* Runs statements into a text of their own. What break and continue leave behind is dropped. */
static jflow capture(jr *r, jscope *sc, jast *const *list, uint32_t n, jv *out) {
    jsb b, *outer = r->out;
    vb__jsb_init(r, &b);
    r->out = &b;
    jflow f = vb__jexec(r, sc, list, n);
    r->out = outer;
    if (f != JX_ERROR && !vb__jsb_take(&b, out)) return JX_ERROR;
    return f;
}

static bool filter_chain(jr *r, jscope *sc, const jast *n, jv *v) {
    if (++r->depth > JINJA_EVAL_DEPTH)
        return vb__jerr_code(r, VB_E_LIMIT, "too many filters, expected fewer");
    bool ok = (n->a == NULL || filter_chain(r, sc, n->a, v)) && vb__jfilter_node(r, sc, n, *v, v);
    r->depth--;
    return ok;
}

/* ---- macros ---- */

static bool take_keyword(jargs *a, bool *used, const jstr *name, jv *out) {
    for (uint32_t i = 0; i < a->n_kw; i++)
        if (!used[i] && a->kwn[i].s->len == name->len && memcmp(a->kwn[i].s->s, name->s, name->len) == 0) {
            used[i] = true;
            *out = a->kwv[i];
            return true;
        }
    return false;
}

static bool bind_special(jr *r, jscope *sc, const jast *n, jargs *a, bool *used) {
    const jparams *ps = n->params;
    jv v, name = r->t->names[r->t->id_caller].text;
    const char *who = n->type == N_MACRO ? n->v.s->s : "caller";
    int len = n->type == N_MACRO ? (n->v.s->len > 60 ? 60 : (int)n->v.s->len) : 6;
    if (ps->caller && !ps->own_caller) {
        if (!take_keyword(a, used, name.s, &v) &&
            !vb__jv_undef_text(r, "no caller is defined, expected {% call %}", &v))
            return false;
        if (!vb__jscope_set(r, sc, r->t->id_caller, v)) return false;
    }
    if (ps->kwargs) {
        jdict *d;
        if (!vb__jdict_new(r, a->n_kw, &d)) return false;
        for (uint32_t i = 0; i < a->n_kw; i++)
            if (!used[i] && !vb__jdict_set(r, d, a->kwn[i], a->kwv[i])) return false;
        if (!vb__jscope_set(r, sc, r->t->id_kwargs, (jv){.t = JV_DICT, .d = d})) return false;
    } else {
        for (uint32_t i = 0; i < a->n_kw; i++)
            if (!used[i])
                return vb__jerr(
                    r, "macro '%.*s' takes no keyword argument '%.*s', expected one of its parameters", len,
                    who, a->kwn[i].s->len > 60 ? 60 : (int)a->kwn[i].s->len, a->kwn[i].s->s);
    }
    if (ps->varargs) {
        uint32_t extra = a->n > ps->n ? a->n - ps->n : 0;
        return vb__jv_list(r, JV_TUPLE, a->pos + (extra > 0 ? ps->n : 0), extra, &v) &&
               vb__jscope_set(r, sc, r->t->id_varargs, v);
    }
    if (a->n > ps->n)
        return vb__jerr(r, "macro '%.*s' takes at most %u arguments, expected no more than that", len, who,
                        ps->n);
    return true;
}

static __attribute__((noinline)) bool bind_macro(jr *r, jscope *sc, const jast *n, const jargs *given) {
    const jparams *ps = n->params;
    jargs a = *given;
    bool used[80] = {false};
    bool missing[64];
    if (a.n_kw > 66) return vb__jerr_code(r, VB_E_LIMIT, "too many keyword arguments, expected at most 64");
    for (uint32_t i = 0; i < ps->n; i++) {
        jv v = {0};
        missing[i] = i >= a.n && !take_keyword(&a, used, ps->names[i].s, &v);
        if (i < a.n) v = a.pos[i];
        if (!missing[i] && !vb__jscope_set(r, sc, ps->ids[i], v)) return false;
    }
    if (!bind_special(r, sc, n, &a, used)) return false;
    for (uint32_t i = 0; i < ps->n; i++) { /* defaults may use earlier parameters */
        jv v;
        if (!missing[i]) continue;
        if (ps->defaults[i] != NULL ? !vb__jeval(r, sc, ps->defaults[i], &v)
                                    : !vb__jv_undef(r, JU_NAME, JV_UNDEF, ps->names[i], &v))
            return false;
        if (!vb__jscope_set(r, sc, ps->ids[i], v)) return false;
    }
    return true;
}

bool vb__jmacro_call(jr *r, jmacro *m, const jargs *a, jv *out) {
    if (++r->calls > JINJA_CALL_DEPTH)
        return vb__jerr_code(r, VB_E_LIMIT, "macros call each other too deep, expected at most %d levels",
                             JINJA_CALL_DEPTH);
    jscope *sc = new_scope(r, m->closure, m->node);
    if (sc == NULL || !vb__jwork(r, 5) || !bind_macro(r, sc, m->node, a)) return false;
    if (capture(r, sc, m->node->list, m->node->n, out) == JX_ERROR) return false;
    r->calls--;
    return true;
}

static bool make_macro(jr *r, jscope *sc, const jast *n, jv *out) {
    jmacro *m = vb__jalloc(r, sizeof(*m));
    if (m == NULL) return false;
    *m = (jmacro){n, sc};
    for (jscope *s = sc; s->parent != NULL && !s->captured; s = s->parent) s->captured = true;
    *out = (jv){.t = JV_MACRO, .m = m};
    return true;
}

/* ---- loops ---- */

/* The next item that passes the loop's condition, from the source. */
static bool loop_source(jr *r, jloop *l, jv *out, bool *more) {
    for (;;) {
        jv v;
        bool pass = true;
        if (l->ended) {
            *more = false;
            return true;
        }
        if (!vb__jiter_next(r, &l->it, out, more)) return false;
        if (!*more) {
            l->ended = true;
            return true;
        }
        if (l->node->c != NULL) {
            if (l->test_scope->captured && (l->test_scope = new_scope(r, l->outer, NULL)) == NULL)
                return false;
            l->test_scope->n = 0;
            if (!assign(r, l->test_scope, l->node->a, *out) || !vb__jeval(r, l->test_scope, l->node->c, &v) ||
                !vb__jv_truth(r, v, &pass))
                return false;
        }
        if (!pass) continue;
        l->fetched++;
        return true;
    }
}

static bool loop_next(jr *r, jloop *l, jv *out, bool *more) {
    if (l->q_pos == l->q_n) return loop_source(r, l, out, more);
    *out = l->queue[l->q_pos++];
    *more = true;
    return true;
}

static bool loop_peek(jr *r, jloop *l, jv *out, bool *more) {
    if (l->q_pos == l->q_n) {
        if (!loop_source(r, l, out, more)) return false;
        if (!*more) return true;
        l->q_pos = l->q_n = 0;
        return vb__jpush(r, &l->queue, &l->q_n, &l->q_cap, *out);
    }
    *out = l->queue[l->q_pos];
    *more = true;
    return true;
}

static bool loop_length(jr *r, jloop *l, int64_t *out) {
    while (!l->ended) {
        jv v;
        bool more;
        if (!loop_source(r, l, &v, &more)) return false;
        if (more && !vb__jpush(r, &l->queue, &l->q_n, &l->q_cap, v)) return false;
    }
    *out = l->fetched;
    return true;
}

bool vb__jloop_attr(jr *r, jloop *l, const jstr *name, jv *out, bool *found) {
    static const char *const names[] = {"index",     "index0",   "first",    "last",  "length", "revindex",
                                        "revindex0", "previtem", "nextitem", "depth", "depth0"};
    int k = 0;
    int64_t n;
    bool more;
    while (k < 11 && !vb__jstr_same(name, names[k])) k++;
    *found = k < 11;
    switch (k) {
    case 0: *out = vb__jv_int(l->index0 + 1); return true;
    case 1: *out = vb__jv_int(l->index0); return true;
    case 2: *out = vb__jv_bool(l->index0 == 0); return true;
    case 3:
        if (!loop_peek(r, l, out, &more)) return false;
        *out = vb__jv_bool(!more);
        return true;
    case 4:
    case 5:
    case 6:
        if (!loop_length(r, l, &n)) return false;
        *out = vb__jv_int(k == 4 ? n : k == 5 ? n - l->index0 : n - l->index0 - 1);
        return true;
    case 7:
        *out = l->prev;
        return l->index0 > 0 || vb__jv_undef_text(r, "there is no previous item, expected one", out);
    case 8:
        if (!loop_peek(r, l, out, &more)) return false;
        return more || vb__jv_undef_text(r, "there is no next item, expected one", out);
    case 9: *out = vb__jv_int(l->depth0 + 1); return true;
    case 10: *out = vb__jv_int(l->depth0); return true;
    default: return true;
    }
}

static __attribute__((noinline)) jflow run_loop(jr *r, jscope *outer, const jast *n, jv source, int depth0) {
    jloop *l = vb__jalloc(r, sizeof(*l));
    if (l == NULL) return JX_ERROR;
    *l = (jloop){.node = n, .outer = outer, .depth0 = depth0, .index0 = -1};
    if (!vb__jiter_init(r, source, &l->it)) return JX_ERROR;
    if (n->c != NULL && (l->test_scope = new_scope(r, outer, NULL)) == NULL) return JX_ERROR;
    jscope *sc = NULL;
    bool ran = false;
    for (;;) {
        bool more;
        jv x;
        if (!vb__jwork(r, 5) || !loop_next(r, l, &x, &more)) return JX_ERROR;
        if (!more) break;
        l->prev = l->cur;
        l->cur = x;
        l->index0++;
        if (sc == NULL || sc->captured) {
            if ((sc = new_scope(r, outer, n)) == NULL) return JX_ERROR;
        } else if (!enter_scope(r, sc, n)) {
            return JX_ERROR;
        }
        if (!assign(r, sc, n->a, x) || !vb__jscope_set(r, sc, r->t->id_loop, (jv){.t = JV_LOOP, .loop = l}))
            return JX_ERROR;
        jflow f = vb__jexec(r, sc, n->list, n->n);
        if (f == JX_ERROR) return f;
        if (f == JX_BREAK) break;
        if (f == JX_NEXT) ran = true; /* not after continue: that is how `else` counts */
    }
    if (ran || n->d == NULL) return JX_NEXT;
    if ((sc = new_scope(r, outer, n->d)) == NULL) return JX_ERROR;
    return vb__jexec(r, sc, n->d->list, n->d->n);
}

/* loop(items) in a recursive loop: the loop again, one level deeper, as text. */
bool vb__jloop_call(jr *r, jloop *l, const jargs *a, jv *out) {
    jv v[1];
    if (!l->node->flag)
        return vb__jerr(r, "loop is called but not recursive, expected {%% for ... recursive %%}");
    if (!vb__jbind(r, "loop", "/iterable", a, v)) return false;
    if (++r->calls > JINJA_CALL_DEPTH)
        return vb__jerr_code(r, VB_E_LIMIT, "loops nested too deep, expected at most %d levels",
                             JINJA_CALL_DEPTH);
    jsb b, *outer = r->out;
    vb__jsb_init(r, &b);
    r->out = &b;
    jflow f = run_loop(r, l->outer, l->node, v[0], l->depth0 + 1);
    r->out = outer;
    r->calls--;
    return f != JX_ERROR && vb__jsb_take(&b, out);
}

/* ---- statements ---- */

static __attribute__((noinline)) jflow set_block(jr *r, jscope *sc, const jast *n) {
    jscope *inner = new_scope(r, sc, n);
    jv v;
    if (inner == NULL) return JX_ERROR;
    jflow f = capture(r, inner, n->list, n->n, &v);
    if (f != JX_NEXT) return f;
    if (n->type == N_SETBLOCK) {
        if ((n->b != NULL && !filter_chain(r, inner, n->b, &v)) || !assign(r, sc, n->a, v)) return JX_ERROR;
        return JX_NEXT;
    }
    if (!filter_chain(r, inner, n->a, &v)) return JX_ERROR;
    if (v.t != JV_STR) {
        vb__jerr(r, "a filter block yields %s, expected a text", vb__jv_type_name(v));
        return JX_ERROR;
    }
    return vb__jsb_put_str(r->out, v.s) ? JX_NEXT : JX_ERROR;
}

static __attribute__((noinline)) jflow with_block(jr *r, jscope *sc, const jast *n) {
    jscope *inner = new_scope(r, sc, n);
    if (inner == NULL) return JX_ERROR;
    for (uint32_t i = 0; i < n->call->n_pos; i++) {
        jv v;
        if (!vb__jeval(r, sc, n->call->kwv[i], &v) || !assign(r, inner, n->call->pos[i], v)) return JX_ERROR;
    }
    return vb__jexec(r, inner, n->list, n->n);
}

static __attribute__((noinline)) jflow call_block(jr *r, jscope *sc, const jast *n) {
    jv caller, v;
    if (!make_macro(r, sc, n, &caller) || !vb__jcall_block(r, sc, n->a, caller, &v)) return JX_ERROR;
    return vb__jv_put_str(r->out, v) ? JX_NEXT : JX_ERROR;
}

static jflow exec_if(jr *r, jscope *sc, const jast *n) {
    for (; n != NULL; n = n->b) {
        bool b = true;
        if (n->a != NULL) {
            jv v;
            if (!vb__jeval(r, sc, n->a, &v) || !vb__jv_truth(r, v, &b)) return JX_ERROR;
        }
        if (b) return vb__jexec(r, sc, n->list, n->n);
    }
    return JX_NEXT;
}

static jflow exec_one(jr *r, jscope *sc, const jast *n) {
    jv v;
    bool ok = true;
    switch ((jnode)n->type) {
    case N_TEXT: ok = vb__jsb_put_str(r->out, n->v.s); break;
    case N_OUTPUT: ok = vb__jeval(r, sc, n->a, &v) && vb__jv_put_str(r->out, v); break;
    case N_IF: return exec_if(r, sc, n);
    case N_FOR: return vb__jeval(r, sc, n->b, &v) ? run_loop(r, sc, n, v, 0) : JX_ERROR;
    case N_SET: ok = vb__jeval(r, sc, n->b, &v) && assign(r, sc, n->a, v); break;
    case N_SETBLOCK:
    case N_FILTERBLOCK: return set_block(r, sc, n);
    case N_MACRO: ok = make_macro(r, sc, n, &v) && vb__jscope_set(r, sc, n->id, v); break;
    case N_CALLBLOCK: return call_block(r, sc, n);
    case N_WITH: return with_block(r, sc, n);
    case N_BLOCK:
    case N_SCOPE: {
        jscope *inner = new_scope(r, n->type == N_BLOCK ? &r->top : sc, n);
        return inner == NULL ? JX_ERROR : vb__jexec(r, inner, n->list, n->n);
    }
    case N_BREAK: return JX_BREAK;
    case N_CONTINUE: return JX_CONTINUE;
    case N_LOADER:
        vb__jerr_code(r, VB_E_UNSUPPORTED,
                      "'%.*s' has nothing to load from, expected a template in one piece", (int)n->v.s->len,
                      n->v.s->s);
        return JX_ERROR;
    default: vb__jerr_code(r, VB_E_INTERNAL, "not a statement"); return JX_ERROR;
    }
    return ok ? JX_NEXT : JX_ERROR;
}

jflow vb__jexec(jr *r, jscope *sc, jast *const *list, uint32_t n) {
    if (++r->depth > JINJA_EVAL_DEPTH) {
        vb__jerr_code(r, VB_E_LIMIT, "nested too deep while running, expected at most %d levels",
                      JINJA_EVAL_DEPTH);
        return JX_ERROR;
    }
    for (uint32_t i = 0; i < n; i++) {
        r->line = list[i]->line;
        if (--r->work < 0) {
            vb__jwork(r, 0);
            return JX_ERROR;
        }
        jflow f = exec_one(r, sc, list[i]);
        if (f != JX_NEXT) {
            r->depth--;
            return f;
        }
    }
    r->depth--;
    return JX_NEXT;
}

/* ---- rendering ---- */

/* A role is one of a few words that the caller has checked: no text of a user. */
static bool own_roles(jr *r, jv messages) {
    static const char *const roles[] = {"system", "user", "assistant", "tool", "developer"};
    for (uint32_t i = 0; messages.t == JV_LIST && i < messages.l->n; i++) {
        jv m = messages.l->v[i];
        for (uint32_t k = 0; m.t == JV_DICT && k < m.d->n; k++) {
            jentry *e = &m.d->e[k];
            if (e->k.t != JV_STR || !vb__jstr_same(e->k.s, "role") || e->v.t != JV_STR) continue;
            for (size_t x = 0; x < sizeof(roles) / sizeof(roles[0]); x++)
                if (vb__jstr_same(e->v.s, roles[x]) &&
                    !vb__jstr_borrow(r, roles[x], strlen(roles[x]), true, &e->v))
                    return false;
        }
    }
    return true;
}

static bool load_context(jr *r, const json_t *context, const json_t *ours) {
    const vb__jinja *t = r->t;
    size_t bytes = (size_t)t->n_names * sizeof(jv);
    r->memory_max = JINJA_MEMORY_MAX;
    r->work = INT64_MAX / 2;
    r->context = vb__jalloc(r, 2 * bytes);
    if (r->context == NULL) return false;
    r->root = r->context + t->n_names;
    memset(r->context, 0, 2 * bytes);
    for (uint32_t i = 0; i < t->n_names; i++) {
        const jstr *name = t->names[i].text.s;
        if (t->names[i].late) continue;
        const json_t *j = ours == NULL ? NULL : json_object_getn(ours, name->s, name->len);
        bool own = j != NULL;
        if (j == NULL && context != NULL) j = json_object_getn(context, name->s, name->len);
        if (j == NULL) continue;
        if (!vb__jv_from_json(r, j, own, 0, &r->context[i])) return false;
        if (r->opt.roles_are_ours && vb__jstr_same(name, "messages") && !own_roles(r, r->context[i]))
            return false;
    }
    /* What the data took, and the text in it (borrowed: an eighth of it counted as work), sets what may be
     * used. */
    size_t size = r->memory + (size_t)(INT64_MAX / 2 - r->work) * 8;
    r->work = JINJA_WORK + (int64_t)size * JINJA_WORK_PER_BYTE;
    r->memory_max = JINJA_MEMORY + size * JINJA_MEMORY_PER_BYTE;
    if (r->memory_max > (size_t)JINJA_MEMORY_MAX) r->memory_max = JINJA_MEMORY_MAX;
    return true;
}

static void free_blocks(jpool *p) {
    for (jblock *k = p->head, *next; k != NULL; k = next) {
        next = k->next;
        vb__free(k);
    }
}

static vb_err finish(jr *r, const jsb *b, vb__jinja_result *out) {
    if (b->len > VB_LIMIT_PROMPT_BYTES) {
        vb__jerr_code(r, VB_E_LIMIT, "the output is too long: %u bytes, expected at most %d", b->len,
                      VB_LIMIT_PROMPT_BYTES);
        return r->code;
    }
    out->text = vb__alloc(VB_TAG_TEXT, (size_t)b->len + 1);
    out->runs = vb__calloc(VB_TAG_TEXT, b->n_runs == 0 ? 1 : b->n_runs, sizeof(*out->runs));
    if (out->text == NULL || out->runs == NULL) {
        vb__jerr_code(r, VB_E_MEMORY, "out of memory");
        return r->code;
    }
    if (b->len != 0) memcpy(out->text, b->d, b->len);
    out->text[b->len] = '\0';
    out->len = b->len;
    for (uint32_t i = 0, from = 0; i < b->n_runs; from = b->runs[i++].end)
        out->runs[i] = (vb__jinja_run){b->runs[i].end - from, b->runs[i].ours};
    out->n_runs = b->n_runs;
    return VB_OK;
}

vb_err vb__jinja_render(const vb__jinja *t, const json_t *context, const json_t *ours,
                        const vb__jinja_options *options, vb__jinja_result *out, vb_error *err) {
    *out = (vb__jinja_result){0};
    jr *r = vb__calloc(VB_TAG_TEXT, 1, sizeof(*r));
    if (r == NULL) return vb__fail(err, VB_E_MEMORY, "template: out of memory");
    r->t = t;
    if (options != NULL) r->opt = *options;
    r->err = err;
    r->objects.block = r->bytes.block = 16 * 1024;
    jsb b;
    vb__jsb_init(r, &b);
    r->out = &b;
    if (load_context(r, context, ours) && vb__jexec(r, &r->top, t->body, t->n_body) != JX_ERROR &&
        r->code == VB_OK)
        r->code = finish(r, &b, out);
    vb_err e = r->code;
    if (e != VB_OK) {
        vb__free(out->text);
        vb__free(out->runs);
        *out = (vb__jinja_result){.line = (int)r->line, .raised = r->raised, .message = r->message};
    } else {
        vb__free(r->message);
    }
    json_decref(r->parsed);
    free_blocks(&r->objects);
    free_blocks(&r->bytes);
    vb__free(r);
    return e;
}

void vb__jinja_result_fini(vb__jinja_result *r) {
    vb__free(r->text);
    vb__free(r->runs);
    vb__free(r->message);
    *r = (vb__jinja_result){0};
}
