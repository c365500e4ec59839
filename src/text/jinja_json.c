/* The tojson filter: json.dumps with non-ASCII kept and HTML characters left alone, key order kept. */
#include "text/jinja_int.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct writer {
    jsb b;
    bool ascii, sort, pretty;
    const jstr *indent; /* one step; NULL: spaces */
    int64_t spaces;
    const jstr *item, *key; /* separators */
} writer;

static bool put_text(writer *w, const jstr *s) {
    const char *p = s->s, *end = p + s->len;
    if (!vb__jwork(w->b.r, s->len / 8) || !vb__jsb_putc(&w->b, '"', false)) return false;
    while (p < end) {
        const char *q = p;
        while (q < end && (unsigned char)*q >= 0x20 && *q != '"' && *q != '\\' &&
               (!w->ascii || (unsigned char)*q < 0x7f))
            q++;
        if (!vb__jsb_put(&w->b, p, (size_t)(q - p), false)) return false;
        if ((p = q) == end) break;
        uint32_t cp, n = vb__jutf8(p, end, &cp);
        char buf[16];
        const char *z = cp == '"'    ? "\\\""
                        : cp == '\\' ? "\\\\"
                        : cp == '\n' ? "\\n"
                        : cp == '\r' ? "\\r"
                        : cp == '\t' ? "\\t"
                        : cp == '\b' ? "\\b"
                        : cp == '\f' ? "\\f"
                                     : buf;
        if (cp >= 0x10000)
            snprintf(buf, sizeof(buf), "\\u%04x\\u%04x", 0xd800 + ((cp - 0x10000) >> 10),
                     0xdc00 + (cp & 0x3ff));
        else snprintf(buf, sizeof(buf), "\\u%04x", cp);
        if (!vb__jsb_puts(&w->b, z, false)) return false;
        p += n;
    }
    return vb__jsb_putc(&w->b, '"', false);
}

static bool new_line(writer *w, int depth) {
    if (!w->pretty) return true;
    if (!vb__jsb_putc(&w->b, '\n', false)) return false;
    for (int i = 0; i < depth; i++) {
        if (w->indent != NULL && !vb__jsb_put(&w->b, w->indent->s, w->indent->len, false)) return false;
        for (int64_t k = 0; w->indent == NULL && k < w->spaces; k++)
            if (!vb__jsb_putc(&w->b, ' ', false)) return false;
    }
    return true;
}

static bool put_number(writer *w, jv v) {
    char buf[64];
    if (v.t == JV_INT) {
        snprintf(buf, sizeof(buf), "%lld", (long long)v.i);
    } else if (isfinite(v.f)) {
        if (!vb__jwork(w->b.r, 100)) return false;
        vb__jfloat_repr(v.f, buf, sizeof(buf));
    } else {
        snprintf(buf, sizeof(buf), "%s", isnan(v.f) ? "NaN" : v.f < 0 ? "-Infinity" : "Infinity");
    }
    return vb__jsb_puts(&w->b, buf, false);
}

static bool put_key(writer *w, jv k) {
    switch (k.t) {
    case JV_STR: return put_text(w, k.s);
    case JV_NONE: return vb__jsb_puts(&w->b, "\"null\"", false);
    case JV_BOOL: return vb__jsb_puts(&w->b, k.b ? "\"true\"" : "\"false\"", false);
    case JV_INT:
    case JV_FLOAT:
        return vb__jsb_putc(&w->b, '"', false) && put_number(w, k) && vb__jsb_putc(&w->b, '"', false);
    default:
        return vb__jerr(w->b.r, "tojson: a key is %s, expected a text, a number, a boolean or none",
                        vb__jv_type_name(k));
    }
}

static bool put_value(writer *w, jv v, int depth);

/* Entries in the order of their keys. A merge sort: stable and n log n on any input. */
static bool sort_entries(jr *r, const jentry **e, const jentry **tmp, uint32_t n) {
    if (n < 2) return true;
    uint32_t half = n / 2, i = 0, k = half, o = 0;
    if (!sort_entries(r, e, tmp, half) || !sort_entries(r, e + half, tmp, n - half)) return false;
    memcpy(tmp, e, n * sizeof(*e));
    while (i < half && k < n) {
        int c;
        if (!vb__jv_compare(r, tmp[k]->k, tmp[i]->k, "<", &c)) return false;
        e[o++] = c == -1 ? tmp[k++] : tmp[i++];
    }
    while (i < half) e[o++] = tmp[i++];
    while (k < n) e[o++] = tmp[k++];
    return true;
}

static bool put_object(writer *w, const jdict *d, int depth) {
    const jentry **order = NULL;
    if (d->n == 0) return vb__jsb_puts(&w->b, "{}", false);
    if (w->sort) {
        order = vb__jalloc(w->b.r, 2 * (size_t)d->n * sizeof(*order));
        if (order == NULL) return false;
        for (uint32_t i = 0; i < d->n; i++) order[i] = &d->e[i];
        if (!sort_entries(w->b.r, order, order + d->n, d->n)) return false;
    }
    if (!vb__jsb_putc(&w->b, '{', false)) return false;
    for (uint32_t i = 0; i < d->n; i++) {
        const jentry *e = order != NULL ? order[i] : &d->e[i];
        if ((i > 0 && !vb__jsb_put(&w->b, w->item->s, w->item->len, false)) || !new_line(w, depth + 1) ||
            !put_key(w, e->k) || !vb__jsb_put(&w->b, w->key->s, w->key->len, false) ||
            !put_value(w, e->v, depth + 1))
            return false;
    }
    return new_line(w, depth) && vb__jsb_putc(&w->b, '}', false);
}

static bool put_array(writer *w, const jseq *l, int depth) {
    if (l->n == 0) return vb__jsb_puts(&w->b, "[]", false);
    if (!vb__jsb_putc(&w->b, '[', false)) return false;
    for (uint32_t i = 0; i < l->n; i++)
        if ((i > 0 && !vb__jsb_put(&w->b, w->item->s, w->item->len, false)) || !new_line(w, depth + 1) ||
            !put_value(w, l->v[i], depth + 1))
            return false;
    return new_line(w, depth) && vb__jsb_putc(&w->b, ']', false);
}

static bool put_value(writer *w, jv v, int depth) {
    if (depth > JINJA_VALUE_DEPTH)
        return vb__jerr_code(w->b.r, VB_E_LIMIT, "tojson: nested too deep, expected at most %d levels",
                             JINJA_VALUE_DEPTH);
    if (!vb__jwork(w->b.r, 2)) return false;
    switch (v.t) {
    case JV_NONE: return vb__jsb_puts(&w->b, "null", false);
    case JV_BOOL: return vb__jsb_puts(&w->b, v.b ? "true" : "false", false);
    case JV_INT:
    case JV_FLOAT: return put_number(w, v);
    case JV_STR: return put_text(w, v.s);
    case JV_LIST:
    case JV_TUPLE: return put_array(w, v.l, depth);
    case JV_DICT: return put_object(w, v.d, depth);
    case JV_UNDEF:
        if (v.u->kind == JU_UNSAFE) return vb__jerr_undef(w->b.r, v);
        __attribute__((fallthrough));
    default:
        return vb__jerr(
            w->b.r,
            "tojson: an object of type %s, expected text, numbers, booleans, none, lists and mappings",
            vb__jv_type_name(v));
    }
}

bool vb__jv_json(jr *r, jv v, const jargs *args, jv *out) {
    static const jstr comma_blank = {.s = ", ", .len = 2}, comma = {.s = ",", .len = 1},
                      colon = {.s = ": ", .len = 2};
    jv a[4];
    if (!vb__jbind(r, "tojson", "ensure_ascii? indent? separators? sort_keys?", args, a)) return false;
    writer w = {.key = &colon};
    vb__jsb_init(r, &w.b);
    if (!vb__jarg_truth(r, a[0], false, &w.ascii) || !vb__jarg_truth(r, a[3], false, &w.sort)) return false;
    switch (a[1].t) {
    case JV_ABSENT:
    case JV_NONE: break;
    case JV_BOOL:
    case JV_INT:
        w.pretty = true;
        w.spaces = a[1].t == JV_BOOL ? a[1].b : a[1].i;
        break;
    case JV_STR:
        w.pretty = true;
        w.indent = a[1].s;
        break;
    default: return vb__jerr(r, "tojson: indent is %s, expected a number or a text", vb__jv_type_name(a[1]));
    }
    w.item = w.pretty ? &comma : &comma_blank;
    if (a[2].t != JV_ABSENT && a[2].t != JV_NONE) {
        if ((a[2].t != JV_TUPLE && a[2].t != JV_LIST) || a[2].l->n != 2 || a[2].l->v[0].t != JV_STR ||
            a[2].l->v[1].t != JV_STR)
            return vb__jerr(r, "tojson: bad separators, expected a pair of texts");
        w.item = a[2].l->v[0].s;
        w.key = a[2].l->v[1].s;
    }
    return put_value(&w, v, 0) && vb__jsb_take(&w.b, out);
}
