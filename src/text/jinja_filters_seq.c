/* Filters over sequences. Those that yield item by item elsewhere do so here: nothing is computed that is not
 * asked for, and what they return can be walked once. */
#include "text/jinja_filters.h"
#include <stdio.h>

static bool new_gen(jr *r, jgen g, jv *out) {
    jgen *p = vb__jalloc(r, sizeof(*p));
    if (p == NULL) return false;
    *p = g;
    *out = (jv){.t = JV_GEN, .g = p};
    return true;
}

static bool gen_of_list(jr *r, const jv *v, uint32_t n, jv *out) {
    return new_gen(r, (jgen){.kind = JG_LIST, .src = {.kind = JV_LIST, .v = v, .n = n}}, out);
}

/* Lower case for comparison, when asked for. */
static bool folded(jr *r, jv v, bool fold, jv *out) {
    static const jargs none = {0};
    if (!fold || v.t != JV_STR) {
        *out = v;
        return true;
    }
    return vb__jstr_method(r, v.s, M_lower, &none, out);
}

static bool key_of(jr *r, jv item, jv attr, jv def, bool fold, jv *out) {
    jv v = item;
    if (attr.t != JV_ABSENT && attr.t != JV_NONE && !vb__jop_attr_path(r, item, attr, def, &v)) return false;
    return folded(r, v, fold, out);
}

/* ---- lazy ones ---- */

bool vb__jgen_next(jr *r, jgen *g, jv *out, bool *more) {
    for (;;) {
        jv item, v;
        bool hit;
        if (!vb__jwork(r, 2) || !vb__jiter_next(r, &g->src, &item, more)) return false;
        if (!*more) return true;
        switch (g->kind) {
        case JG_LIST: *out = item; return true;
        case JG_MAP_ATTR: return vb__jop_attr_path(r, item, g->attr, g->def, out);
        case JG_MAP_FILTER: {
            if (++r->depth > JINJA_EVAL_DEPTH)
                return vb__jerr_code(r, VB_E_LIMIT, "filters nested too deep, expected fewer");
            bool ok = vb__jfilter_call(r, g->fn, item, &g->args, out);
            r->depth--;
            return ok;
        }
        case JG_SELECT:
            v = item;
            if (g->by_attr && !vb__jop_attr_path(r, item, g->attr, (jv){0}, &v)) return false;
            if (!(g->fn < 0 ? vb__jv_truth(r, v, &hit) : vb__jtest_call(r, g->fn, v, &g->args, &hit)))
                return false;
            if (hit == g->negate) continue;
            *out = item;
            return true;
        default:
            if (!key_of(r, item, g->attr, (jv){0}, g->fold, &v) || !vb__jdict_get(r, g->seen, v, out, &hit))
                return false;
            if (hit) continue;
            *out = item;
            return vb__jdict_set(r, g->seen, v, item);
        }
    }
}

/* An empty source is never walked, nor are the arguments looked at. */
static bool empty_source(jr *r, jv in, bool *empty, jv *out) {
    bool truth;
    if (!vb__jv_truth(r, in, &truth)) return false;
    *empty = !truth;
    return truth || gen_of_list(r, NULL, 0, out);
}

bool vb__jf_map(jr *r, jv in, const jargs *a, jv *out) {
    bool empty;
    jgen g = {.kind = JG_MAP_ATTR, .fn = -1};
    if (!empty_source(r, in, &empty, out)) return false;
    if (empty) return true;
    if (!vb__jiter_init(r, in, &g.src)) return false;
    for (uint32_t i = 0; a->n == 0 && i < a->n_kw; i++)
        if (vb__jstr_same(a->kwn[i].s, "attribute")) g.attr = a->kwv[i];
    if (g.attr.t != JV_ABSENT) {
        jv v[2];
        if (!vb__jbind(r, "map", "attribute default?", a, v)) return false;
        g.def = v[1];
        return new_gen(r, g, out);
    }
    if (a->n == 0) return vb__jerr(r, "map: no filter is named, expected one or attribute=");
    if (a->pos[0].t != JV_STR || (g.fn = vb__jfilter_find(a->pos[0].s->s, a->pos[0].s->len)) < 0)
        return vb__jerr(r, "map: no filter named '%.*s', expected one of those in docs/text.md",
                        a->pos[0].t == JV_STR ? (a->pos[0].s->len > 60 ? 60 : (int)a->pos[0].s->len) : 0,
                        a->pos[0].t == JV_STR ? a->pos[0].s->s : "");
    g.kind = JG_MAP_FILTER;
    g.args = (jargs){a->pos + 1, a->n - 1, a->kwn, a->kwv, a->n_kw};
    return new_gen(r, g, out);
}

static bool select_or_reject(jr *r, jv in, const jargs *a, bool negate, bool by_attr, jv *out) {
    bool empty;
    jgen g = {.kind = JG_SELECT, .fn = -1, .negate = negate, .by_attr = by_attr};
    uint32_t used = 0;
    if (!empty_source(r, in, &empty, out)) return false;
    if (empty) return true;
    if (!vb__jiter_init(r, in, &g.src)) return false;
    if (by_attr) {
        if (a->n == 0) return vb__jerr(r, "selectattr: no attribute is named, expected one");
        g.attr = a->pos[used++];
    }
    if (a->n > used) {
        jv name = a->pos[used++];
        if (name.t != JV_STR || (g.fn = vb__jtest_find(name.s->s, name.s->len)) < 0)
            return vb__jerr(r, "no test named '%.*s', expected one of those in docs/text.md",
                            name.t == JV_STR ? (name.s->len > 60 ? 60 : (int)name.s->len) : 0,
                            name.t == JV_STR ? name.s->s : "");
    }
    g.args = (jargs){a->pos + used, a->n - used, a->kwn, a->kwv, a->n_kw};
    return new_gen(r, g, out);
}

bool vb__jf_select(jr *r, jv in, const jargs *a, jv *out) {
    return select_or_reject(r, in, a, false, false, out);
}
bool vb__jf_reject(jr *r, jv in, const jargs *a, jv *out) {
    return select_or_reject(r, in, a, true, false, out);
}
bool vb__jf_selectattr(jr *r, jv in, const jargs *a, jv *out) {
    return select_or_reject(r, in, a, false, true, out);
}
bool vb__jf_rejectattr(jr *r, jv in, const jargs *a, jv *out) {
    return select_or_reject(r, in, a, true, true, out);
}

bool vb__jf_unique(jr *r, jv in, const jargs *a, jv *out) {
    jv v[2];
    bool exact;
    jgen g = {.kind = JG_UNIQUE, .fn = -1};
    if (!vb__jbind(r, "unique", "case_sensitive? attribute?", a, v) ||
        !vb__jarg_truth(r, v[0], false, &exact) || !vb__jdict_new(r, 0, &g.seen) ||
        !vb__jiter_init(r, in, &g.src))
        return false;
    g.fold = !exact;
    g.attr = v[1];
    return new_gen(r, g, out);
}

bool vb__jf_items(jr *r, jv in, const jargs *a, jv *out) {
    jgen g = {.kind = JG_LIST};
    if (!vb__jbind(r, "items", "", a, NULL)) return false;
    if (in.t == JV_UNDEF) return gen_of_list(r, NULL, 0, out);
    if (in.t != JV_DICT)
        return vb__jerr(r, "items: the value is %s, expected a mapping", vb__jv_type_name(in));
    g.src = (jiter){.kind = JV_VIEW, .sub = JVIEW_ITEMS, .d = in.d};
    return new_gen(r, g, out);
}

bool vb__jf_batch(jr *r, jv in, const jargs *a, jv *out) {
    jv v[2], *items, *rows = NULL, *row;
    uint32_t n, n_rows = 0, cap = 0;
    int64_t width;
    if (!vb__jbind(r, "batch", "linecount fill_with?", a, v) || !vb__jarg_int(r, "batch", v[0], 0, &width) ||
        !vb__jv_collect(r, in, &items, &n))
        return false;
    bool fill = v[1].t != JV_ABSENT && v[1].t != JV_NONE;
    if (width < 1) width = n > 0 ? n : 1, fill = false;
    if (fill && width > (1 << 20))
        return vb__jerr_code(r, VB_E_LIMIT, "batch: rows are too long, expected at most 1048576 items");
    for (uint32_t at = 0; at < n;) {
        uint32_t take = n - at < width ? n - at : (uint32_t)width, len = fill ? (uint32_t)width : take;
        jv list;
        if ((row = vb__jalloc(r, len * sizeof(jv))) == NULL || !vb__jwork(r, len)) return false;
        for (uint32_t i = 0; i < len; i++) row[i] = i < take ? items[at + i] : v[1];
        if (!vb__jv_list(r, JV_LIST, row, len, &list) || !vb__jpush(r, &rows, &n_rows, &cap, list))
            return false;
        at += take;
    }
    return gen_of_list(r, rows, n_rows, out);
}

bool vb__jf_slice(jr *r, jv in, const jargs *a, jv *out) {
    jv v[2], *items, *rows = NULL;
    uint32_t n, n_rows = 0, cap = 0;
    int64_t slices;
    if (!vb__jbind(r, "slice", "slices fill_with?", a, v) || !vb__jarg_int(r, "slice", v[0], 0, &slices) ||
        !vb__jv_collect(r, in, &items, &n))
        return false;
    if (slices == 0) return vb__jerr(r, "slice: into no slices, expected at least one");
    bool fill = v[1].t != JV_ABSENT && v[1].t != JV_NONE;
    int64_t each = slices > 0 ? n / slices : 0, extra = slices > 0 ? n % slices : 0, at = 0;
    for (int64_t i = 0; i < slices; i++) {
        int64_t take = each + (i < extra);
        bool more = fill && i >= extra;
        jv list, *row = items + at;
        if (more) {
            if ((row = vb__jalloc(r, (size_t)(take + 1) * sizeof(jv))) == NULL) return false;
            if (take != 0) memcpy(row, items + at, (size_t)take * sizeof(jv));
            row[take] = v[1];
        }
        if (!vb__jv_list(r, JV_LIST, row, (uint32_t)(take + more), &list) || !vb__jwork(r, 2) ||
            !vb__jpush(r, &rows, &n_rows, &cap, list))
            return false;
        at += take;
    }
    return gen_of_list(r, rows, n_rows, out);
}

/* ---- plain ones ---- */

bool vb__jf_length(jr *r, jv in, const jargs *a, jv *out) {
    int64_t n;
    if (!vb__jbind(r, "length", "", a, NULL) || !vb__jv_len(r, in, &n)) return false;
    *out = vb__jv_int(n);
    return true;
}

bool vb__jf_list(jr *r, jv in, const jargs *a, jv *out) {
    jv *items;
    uint32_t n;
    return vb__jbind(r, "list", "", a, NULL) && vb__jv_collect(r, in, &items, &n) &&
           vb__jv_list(r, JV_LIST, items, n, out);
}

bool vb__jf_first(jr *r, jv in, const jargs *a, jv *out) {
    jiter it;
    bool more;
    if (!vb__jbind(r, "first", "", a, NULL) || !vb__jiter_init(r, in, &it) ||
        !vb__jiter_next(r, &it, out, &more))
        return false;
    return more || vb__jv_undef_text(r, "no first item, the sequence was empty, expected one", out);
}

static bool reversible(jv v) {
    return v.t == JV_STR || v.t == JV_LIST || v.t == JV_TUPLE || v.t == JV_RANGE || v.t == JV_DICT ||
           v.t == JV_VIEW || v.t == JV_UNDEF;
}

bool vb__jf_last(jr *r, jv in, const jargs *a, jv *out) {
    jv *items;
    uint32_t n;
    if (!vb__jbind(r, "last", "", a, NULL)) return false;
    if (!reversible(in))
        return vb__jerr(r, "last: '%s' object is not reversible, expected a list", vb__jv_type_name(in));
    if (in.t == JV_STR || in.t == JV_LIST || in.t == JV_TUPLE || in.t == JV_RANGE) {
        if (!vb__jop_getitem(r, in, vb__jv_int(-1), out)) return false;
        if (out->t != JV_UNDEF || out->u->kind != JU_ELEMENT) return true;
    } else {
        if (!vb__jv_collect(r, in, &items, &n)) return false;
        if (n > 0) {
            *out = items[n - 1];
            return true;
        }
    }
    return vb__jv_undef_text(r, "no last item, the sequence was empty, expected one", out);
}

bool vb__jf_reverse(jr *r, jv in, const jargs *a, jv *out) {
    jv *items, none = {0};
    uint32_t n;
    if (!vb__jbind(r, "reverse", "", a, NULL)) return false;
    if (in.t == JV_STR) return vb__jop_slice(r, in, none, none, vb__jv_int(-1), out);
    if (!vb__jv_collect(r, in, &items, &n)) return false;
    jv *v = vb__jalloc(r, n * sizeof(jv));
    if (v == NULL) return false;
    for (uint32_t i = 0; i < n; i++) v[i] = items[n - 1 - i];
    return reversible(in) ? gen_of_list(r, v, n, out) : vb__jv_list(r, JV_LIST, v, n, out);
}

bool vb__jf_join(jr *r, jv in, const jargs *a, jv *out) {
    jv v[2], d, x;
    jiter it;
    jsb b;
    bool more;
    if (!vb__jbind(r, "join", "d? attribute?", a, v) || !vb__jv_str(r, v[0], &d) ||
        !vb__jiter_init(r, in, &it))
        return false;
    vb__jsb_init(r, &b);
    for (bool first = true;; first = false) {
        if (!vb__jiter_next(r, &it, &x, &more)) return false;
        if (!more) return vb__jsb_take(&b, out);
        if (v[1].t != JV_ABSENT && v[1].t != JV_NONE && !vb__jop_attr_path(r, x, v[1], (jv){0}, &x))
            return false;
        if ((!first && !vb__jsb_put_str(&b, d.s)) || !vb__jv_put_str(&b, x)) return false;
    }
}

bool vb__jf_sum(jr *r, jv in, const jargs *a, jv *out) {
    jv v[2], x;
    jiter it;
    bool more;
    if (!vb__jbind(r, "sum", "attribute? start?", a, v) || !vb__jiter_init(r, in, &it)) return false;
    *out = v[1].t == JV_ABSENT ? vb__jv_int(0) : v[1];
    if (out->t == JV_STR) return vb__jerr(r, "sum: cannot sum texts, expected join");
    for (;;) {
        if (!vb__jiter_next(r, &it, &x, &more)) return false;
        if (!more) return true;
        if (v[0].t != JV_ABSENT && v[0].t != JV_NONE && !vb__jop_attr_path(r, x, v[0], (jv){0}, &x))
            return false;
        if (!vb__jop_binary(r, OP_ADD, *out, x, out)) return false;
    }
}

static bool extreme(jr *r, jv in, const jargs *a, bool max, jv *out) {
    jv v[2], x, key, best = {0};
    jiter it;
    bool exact, more;
    if (!vb__jbind(r, max ? "max" : "min", "case_sensitive? attribute?", a, v) ||
        !vb__jarg_truth(r, v[0], false, &exact) || !vb__jiter_init(r, in, &it))
        return false;
    for (bool first = true;; first = false) {
        int c = 0;
        if (!vb__jiter_next(r, &it, &x, &more)) return false;
        if (!more)
            return !first ||
                   vb__jv_undef_text(r, "no aggregated item, the sequence was empty, expected one", out);
        if (!key_of(r, x, v[1], (jv){0}, !exact, &key)) return false;
        if (!first && !vb__jv_compare(r, key, best, max ? ">" : "<", &c)) return false;
        if (first || c == (max ? 1 : -1)) {
            best = key;
            *out = x;
        }
    }
}

bool vb__jf_max(jr *r, jv in, const jargs *a, jv *out) {
    return extreme(r, in, a, true, out);
}
bool vb__jf_min(jr *r, jv in, const jargs *a, jv *out) {
    return extreme(r, in, a, false, out);
}

/* ---- sorting ---- */

typedef struct keyed {
    jv key, item;
} keyed;

/* Equal keys need no order, so mappings that are equal are no error. */
static bool less(jr *r, jv a, jv b, bool *out) {
    bool same;
    int c;
    *out = false;
    if (!vb__jv_equal(r, a, b, &same)) return false;
    if (same) return true;
    if (!vb__jv_compare(r, a, b, "<", &c)) return false;
    *out = c == -1;
    return true;
}

/* A stable merge sort; descending keeps equal items in their order as well. */
static bool merge_sort(jr *r, keyed *v, keyed *tmp, uint32_t n, bool down) {
    if (n < 2) return true;
    uint32_t half = n / 2, i = 0, k = half, o = 0;
    if (!merge_sort(r, v, tmp, half, down) || !merge_sort(r, v + half, tmp, n - half, down)) return false;
    memcpy(tmp, v, n * sizeof(*v));
    while (i < half && k < n) {
        bool second;
        if (!(down ? less(r, tmp[i].key, tmp[k].key, &second) : less(r, tmp[k].key, tmp[i].key, &second)))
            return false;
        v[o++] = second ? tmp[k++] : tmp[i++];
    }
    while (i < half) v[o++] = tmp[i++];
    while (k < n) v[o++] = tmp[k++];
    return true;
}

static bool sort_keyed(jr *r, keyed *v, uint32_t n, bool down) {
    return vb__jwork(r, n) && merge_sort(r, v, v + n, n, down);
}

/* "a,b.c": a tuple of keys. */
static bool multi_key(jr *r, jv item, jv attr, bool fold, jv *out) {
    if (attr.t != JV_STR || memchr(attr.s->s, ',', attr.s->len) == NULL)
        return key_of(r, item, attr, (jv){0}, fold, out);
    jv keys[16], list, *v;
    uint32_t n = 0, from = 0;
    for (uint32_t at = 0; at <= attr.s->len; at++) {
        if (at < attr.s->len && attr.s->s[at] != ',') continue;
        if (n == 16) return vb__jerr_code(r, VB_E_LIMIT, "sort: too many attributes, expected at most 16");
        if (!vb__jstr_part(r, attr.s, from, at, &list) || !key_of(r, item, list, (jv){0}, fold, &keys[n++]))
            return false;
        from = at + 1;
    }
    if ((v = vb__jalloc(r, n * sizeof(jv))) == NULL) return false;
    memcpy(v, keys, n * sizeof(jv));
    return vb__jv_list(r, JV_LIST, v, n, out);
}

static bool keyed_items(jr *r, jv in, keyed **out, uint32_t *n) {
    jv *items;
    if (!vb__jv_collect(r, in, &items, n)) return false;
    *out = vb__jalloc(r, 2 * (size_t)*n * sizeof(keyed));
    for (uint32_t i = 0; *out != NULL && i < *n; i++) (*out)[i].item = items[i];
    return *out != NULL;
}

static bool list_of(jr *r, const keyed *k, uint32_t n, jv *out) {
    jv *v = vb__jalloc(r, n * sizeof(jv));
    if (v == NULL) return false;
    for (uint32_t i = 0; i < n; i++) v[i] = k[i].item;
    return vb__jv_list(r, JV_LIST, v, n, out);
}

bool vb__jf_sort(jr *r, jv in, const jargs *a, jv *out) {
    jv v[3];
    bool down, exact;
    keyed *k;
    uint32_t n;
    if (!vb__jbind(r, "sort", "reverse? case_sensitive? attribute?", a, v) ||
        !vb__jarg_truth(r, v[0], false, &down) || !vb__jarg_truth(r, v[1], false, &exact) ||
        !keyed_items(r, in, &k, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!multi_key(r, k[i].item, v[2], !exact, &k[i].key)) return false;
    return sort_keyed(r, k, n, down) && list_of(r, k, n, out);
}

bool vb__jf_dictsort(jr *r, jv in, const jargs *a, jv *out) {
    jv v[3];
    bool exact, down, by_value;
    keyed *k;
    uint32_t n;
    if (!vb__jbind(r, "dictsort", "case_sensitive? by? reverse?", a, v) ||
        !vb__jarg_truth(r, v[0], false, &exact) || !vb__jarg_truth(r, v[2], false, &down))
        return false;
    by_value = v[1].t == JV_STR && vb__jstr_same(v[1].s, "value");
    if (v[1].t != JV_ABSENT && !by_value && !(v[1].t == JV_STR && vb__jstr_same(v[1].s, "key")))
        return vb__jerr(r, "dictsort: an unknown order, expected by='key' or by='value'");
    if (in.t == JV_UNDEF) return vb__jerr_undef(r, in);
    if (in.t != JV_DICT)
        return vb__jerr(r, "dictsort: the value is %s, expected a mapping", vb__jv_type_name(in));
    if (!keyed_items(r, (jv){.t = JV_VIEW, .sub = JVIEW_ITEMS, .d = in.d}, &k, &n)) return false;
    for (uint32_t i = 0; i < n; i++)
        if (!folded(r, k[i].item.l->v[by_value], !exact, &k[i].key)) return false;
    return sort_keyed(r, k, n, down) && list_of(r, k, n, out);
}

bool vb__jf_groupby(jr *r, jv in, const jargs *a, jv *out) {
    jv v[3], *groups = NULL;
    bool exact;
    keyed *k;
    uint32_t n, n_groups = 0, cap = 0;
    if (!vb__jbind(r, "groupby", "attribute default? case_sensitive?", a, v) ||
        !vb__jarg_truth(r, v[2], false, &exact) || !keyed_items(r, in, &k, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!key_of(r, k[i].item, v[0], v[1], !exact, &k[i].key)) return false;
    if (!sort_keyed(r, k, n, false)) return false;
    for (uint32_t i = 1; i < n; i++) { /* here keys without an order are an error even where they are equal */
        int c;
        if (!vb__jv_compare(r, k[i].key, k[i - 1].key, "<", &c)) return false;
    }
    for (uint32_t from = 0, to; from < n; from = to) {
        bool same = true;
        for (to = from + 1; to < n; to++) {
            if (!vb__jv_equal(r, k[from].key, k[to].key, &same)) return false;
            if (!same) break;
        }
        jv *pair = vb__jalloc(r, 2 * sizeof(jv)), group;
        if (pair == NULL || !key_of(r, k[from].item, v[0], v[1], false, &pair[0]) ||
            !list_of(r, k + from, to - from, &pair[1]) || !vb__jv_list(r, JV_TUPLE, pair, 2, &group))
            return false;
        ((jseq *)group.l)->group = true;
        if (!vb__jpush(r, &groups, &n_groups, &cap, group)) return false;
    }
    return vb__jv_list(r, JV_LIST, groups, n_groups, out);
}
