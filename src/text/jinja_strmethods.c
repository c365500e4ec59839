/* Methods of strings. Positions and lengths count code points; parts keep their origin. */
#include "text/jinja_int.h"
#include <stdio.h>

static bool text_arg(jr *r, const char *what, jv v, const jstr **out) {
    static const jstr empty = {.s = ""};
    *out = &empty;
    if (v.t == JV_STR) {
        *out = v.s;
        return true;
    }
    if (v.t == JV_UNDEF && v.u->kind != JU_UNSAFE) return vb__jerr_undef(r, v);
    return vb__jerr(r, "%s: an argument is %s, expected a text", what, vb__jv_type_name(v));
}

/* Byte range of s[start:end]; *inside is false when start lies behind the end of s. */
static bool byte_range(jr *r, const char *what, const jstr *s, jv vs, jv ve, uint32_t *from, uint32_t *to,
                       bool *inside) {
    int64_t n = vb__jstr_chars(s), a, b;
    if (vs.t == JV_NONE) vs.t = JV_ABSENT;
    if (ve.t == JV_NONE) ve.t = JV_ABSENT;
    if (!vb__jarg_int(r, what, vs, 0, &a) || !vb__jarg_int(r, what, ve, n, &b)) return false;
    if (a < 0) a = a + n < 0 ? 0 : a + n;
    if (b < 0) b = b + n < 0 ? 0 : b + n;
    if (b > n) b = n;
    *inside = a <= n && a <= b;
    if (!*inside) a = b = 0;
    *from = vb__jstr_offset(s, (uint32_t)a);
    *to = vb__jstr_offset(s, (uint32_t)b);
    return true;
}

static int64_t char_index(const jstr *s, uint32_t byte) {
    if (vb__jstr_chars(s) == s->len) return byte;
    int64_t n = 0;
    for (uint32_t i = 0; i < byte; i++) n += ((unsigned char)s->s[i] & 0xc0) != 0x80;
    return n;
}

static bool find_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out) {
    const char *what = vb__jmethod_name(id);
    jv v[3];
    const jstr *needle;
    uint32_t from, to, at;
    bool inside;
    if (!vb__jbind(r, what, "/sub start? end?", a, v) || !text_arg(r, what, v[0], &needle) ||
        !byte_range(r, what, s, v[1], v[2], &from, &to, &inside) || !vb__jwork(r, 1 + s->len / 8))
        return false;
    if (id == M_count) {
        int64_t n = 0;
        if (needle->len == 0) {
            jv part;
            if (!vb__jstr_part(r, s, from, to, &part)) return false;
            n = inside ? (int64_t)vb__jstr_chars(part.s) + 1 : 0;
        } else {
            for (at = from; inside && (at = vb__jstr_find(s, at, to, needle)) != UINT32_MAX;
                 at += needle->len)
                n++;
        }
        *out = vb__jv_int(n);
        return true;
    }
    if (id == M_rfind || id == M_rindex) {
        if (!vb__jwork(r, (int64_t)s->len * needle->len / 64)) return false;
        at = inside ? vb__jstr_rfind(s, from, to, needle) : UINT32_MAX;
    } else {
        at = inside ? vb__jstr_find(s, from, to, needle) : UINT32_MAX;
    }
    if (at == UINT32_MAX && (id == M_index || id == M_rindex))
        return vb__jerr(r, "substring not found, expected it in the text");
    *out = vb__jv_int(at == UINT32_MAX ? -1 : char_index(s, at));
    return true;
}

static bool starts(const jstr *s, uint32_t from, uint32_t to, const jstr *x, bool end) {
    if (x->len > to - from) return false;
    return memcmp(s->s + (end ? to - x->len : from), x->s, x->len) == 0;
}

static bool starts_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out) {
    const char *what = vb__jmethod_name(id);
    jv v[3];
    uint32_t from, to;
    bool inside, hit = false;
    if (!vb__jbind(r, what, "/prefix start? end?", a, v) ||
        !byte_range(r, what, s, v[1], v[2], &from, &to, &inside))
        return false;
    if (v[0].t == JV_TUPLE) {
        for (uint32_t i = 0; i < v[0].l->n && !hit; i++) {
            const jstr *x;
            if (!text_arg(r, what, v[0].l->v[i], &x)) return false;
            hit = inside && starts(s, from, to, x, id == M_endswith);
        }
    } else {
        const jstr *x;
        if (!text_arg(r, what, v[0], &x)) return false;
        hit = inside && starts(s, from, to, x, id == M_endswith);
    }
    *out = vb__jv_bool(hit);
    return true;
}

/* ---- strip and split ---- */

static bool in_set(const jstr *set, uint32_t cp) {
    if (set == NULL) return vb__jcp_space(cp);
    const char *p = set->s, *end = p + set->len;
    while (p < end) {
        uint32_t c;
        p += vb__jutf8(p, end, &c);
        if (c == cp) return true;
    }
    return false;
}

static uint32_t skip_left(const jstr *s, uint32_t at, uint32_t to, const jstr *set) {
    while (at < to) {
        uint32_t cp, n = vb__jutf8(s->s + at, s->s + to, &cp);
        if (!in_set(set, cp)) break;
        at += n;
    }
    return at;
}

static uint32_t skip_right(const jstr *s, uint32_t from, uint32_t at, const jstr *set) {
    while (at > from) {
        uint32_t q = at - 1, cp;
        while (q > from && ((unsigned char)s->s[q] & 0xc0) == 0x80) q--;
        vb__jutf8(s->s + q, s->s + at, &cp);
        if (!in_set(set, cp)) break;
        at = q;
    }
    return at;
}

static bool strip_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out) {
    jv v[1];
    const jstr *set = NULL;
    if (!vb__jbind(r, vb__jmethod_name(id), "/chars?", a, v)) return false;
    if (v[0].t != JV_ABSENT && v[0].t != JV_NONE && !text_arg(r, "strip", v[0], &set)) return false;
    if (!vb__jwork(r, set == NULL ? s->len / 16 : (int64_t)s->len * set->len / 16)) return false;
    uint32_t from = id == M_rstrip ? 0 : skip_left(s, 0, s->len, set);
    uint32_t to = id == M_lstrip ? s->len : skip_right(s, from, s->len, set);
    return vb__jstr_part(r, s, from, to, out);
}

typedef struct parts {
    jr *r;
    const jstr *s;
    jv *v;
    uint32_t n, cap;
} parts;

static bool part(parts *p, uint32_t from, uint32_t to) {
    jv x;
    return vb__jwork(p->r, 2) && vb__jstr_part(p->r, p->s, from, to, &x) &&
           vb__jpush(p->r, &p->v, &p->n, &p->cap, x);
}

static void reverse_parts(parts *p) {
    for (uint32_t i = 0; i < p->n / 2; i++) {
        jv t = p->v[i];
        p->v[i] = p->v[p->n - 1 - i];
        p->v[p->n - 1 - i] = t;
    }
}

static uint32_t word_end(const jstr *s, uint32_t at) {
    while (at < s->len) {
        uint32_t cp, n = vb__jutf8(s->s + at, s->s + s->len, &cp);
        if (vb__jcp_space(cp)) break;
        at += n;
    }
    return at;
}

static uint32_t word_start(const jstr *s, uint32_t at) {
    while (at > 0) {
        uint32_t q = at - 1, cp;
        while (q > 0 && ((unsigned char)s->s[q] & 0xc0) == 0x80) q--;
        vb__jutf8(s->s + q, s->s + at, &cp);
        if (vb__jcp_space(cp)) break;
        at = q;
    }
    return at;
}

static bool split_words(parts *p, int64_t max, bool right) {
    const jstr *s = p->s;
    if (!right) {
        for (uint32_t at = skip_left(s, 0, s->len, NULL); at < s->len; max--) {
            if (max == 0) return part(p, at, skip_right(s, at, s->len, NULL) == at ? at : s->len);
            uint32_t end = word_end(s, at);
            if (!part(p, at, end)) return false;
            at = skip_left(s, end, s->len, NULL);
        }
        return true;
    }
    for (uint32_t at = skip_right(s, 0, s->len, NULL); at > 0; max--) {
        if (max == 0) return part(p, 0, at);
        uint32_t start = word_start(s, at);
        if (!part(p, start, at)) return false;
        at = skip_right(s, 0, start, NULL);
    }
    return true;
}

static bool split_by(parts *p, const jstr *sep, int64_t max, bool right) {
    const jstr *s = p->s;
    uint32_t at;
    if (!right) {
        uint32_t from = 0;
        for (; max != 0 && (at = vb__jstr_find(s, from, s->len, sep)) != UINT32_MAX; max--) {
            if (!part(p, from, at)) return false;
            from = at + sep->len;
        }
        return part(p, from, s->len);
    }
    uint32_t to = s->len;
    if (!vb__jwork(p->r, (int64_t)s->len * sep->len / 64)) return false;
    for (; max != 0 && (at = vb__jstr_rfind(s, 0, to, sep)) != UINT32_MAX; max--) {
        if (!part(p, at + sep->len, to)) return false;
        to = at;
    }
    return part(p, 0, to);
}

static bool split_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out) {
    jv v[2];
    int64_t max;
    parts p = {.r = r, .s = s};
    bool right = id == M_rsplit;
    if (!vb__jbind(r, "split", "sep? maxsplit?", a, v) || !vb__jarg_int(r, "split", v[1], -1, &max) ||
        !vb__jwork(r, 1 + s->len / 8))
        return false;
    if (v[0].t == JV_ABSENT || v[0].t == JV_NONE) {
        if (!split_words(&p, max < 0 ? INT64_MAX : max, right)) return false;
    } else {
        const jstr *sep;
        if (!text_arg(r, "split", v[0], &sep)) return false;
        if (sep->len == 0) return vb__jerr(r, "split: empty separator, expected a text");
        if (!split_by(&p, sep, max < 0 ? INT64_MAX : max, right)) return false;
    }
    if (right) reverse_parts(&p);
    return vb__jv_list(r, JV_LIST, p.v, p.n, out);
}

static bool line_end(uint32_t cp) {
    return (cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029;
}

static bool splitlines_method(jr *r, const jstr *s, const jargs *a, jv *out) {
    jv v[1];
    bool keep;
    parts p = {.r = r, .s = s};
    if (!vb__jbind(r, "splitlines", "keepends?", a, v) || !vb__jarg_truth(r, v[0], false, &keep) ||
        !vb__jwork(r, s->len / 8))
        return false;
    uint32_t from = 0, at = 0;
    while (at < s->len) {
        uint32_t cp, n = vb__jutf8(s->s + at, s->s + s->len, &cp), end = at;
        at += n;
        if (!line_end(cp)) continue;
        if (cp == '\r' && at < s->len && s->s[at] == '\n') at++;
        if (!part(&p, from, keep ? at : end)) return false;
        from = at;
    }
    if (from < s->len && !part(&p, from, s->len)) return false;
    return vb__jv_list(r, JV_LIST, p.v, p.n, out);
}

static bool partition_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out) {
    jv v[1];
    const jstr *sep;
    parts p = {.r = r, .s = s};
    if (!vb__jbind(r, "partition", "/sep", a, v) || !text_arg(r, "partition", v[0], &sep)) return false;
    if (sep->len == 0) return vb__jerr(r, "partition: empty separator, expected a text");
    bool right = id == M_rpartition;
    if (!vb__jwork(r, right ? (int64_t)s->len * sep->len / 64 : s->len / 16)) return false;
    uint32_t at = right ? vb__jstr_rfind(s, 0, s->len, sep) : vb__jstr_find(s, 0, s->len, sep);
    if (at == UINT32_MAX) at = right ? 0 : s->len;
    else if (!part(&p, 0, at) || !part(&p, at, at + sep->len) || !part(&p, at + sep->len, s->len))
        return false;
    if (p.n == 0 && (!part(&p, 0, at) || !part(&p, at, at) || !part(&p, at, s->len))) return false;
    return vb__jv_list(r, JV_TUPLE, p.v, p.n, out);
}

/* ---- replace, join, padding ---- */

static bool replace_method(jr *r, const jstr *s, const jargs *a, jv *out) {
    jv v[3];
    const jstr *old, *new;
    int64_t count;
    if (!vb__jbind(r, "replace", "/old new count?", a, v) || !text_arg(r, "replace", v[0], &old) ||
        !text_arg(r, "replace", v[1], &new) || !vb__jarg_int(r, "replace", v[2], -1, &count) ||
        !vb__jwork(r, 1 + s->len / 16))
        return false;
    jsb b;
    vb__jsb_init(r, &b);
    if (count < 0) count = INT64_MAX;
    uint32_t from = 0, at;
    if (old->len == 0) { /* before every character and at the end */
        for (; count > 0; count--) {
            uint32_t cp, n = vb__jutf8(s->s + from, s->s + s->len, &cp);
            if (!vb__jsb_put_str(&b, new) || !vb__jsb_put_part(&b, s, from, from + n)) return false;
            if (n == 0) break;
            from += n;
        }
        return vb__jsb_put_part(&b, s, from, s->len) && vb__jsb_take(&b, out);
    }
    for (; count > 0 && (at = vb__jstr_find(s, from, s->len, old)) != UINT32_MAX; count--) {
        if (!vb__jsb_put_part(&b, s, from, at) || !vb__jsb_put_str(&b, new) || !vb__jwork(r, 2)) return false;
        from = at + old->len;
    }
    if (from == 0) {
        *out = (jv){.t = JV_STR, .s = s};
        return true;
    }
    return vb__jsb_put_part(&b, s, from, s->len) && vb__jsb_take(&b, out);
}

static bool join_method(jr *r, const jstr *s, const jargs *a, jv *out) {
    jv v[1], x;
    jiter it;
    jsb b;
    bool more;
    if (!vb__jbind(r, "join", "/iterable", a, v) || !vb__jiter_init(r, v[0], &it)) return false;
    vb__jsb_init(r, &b);
    for (uint32_t i = 0;; i++) {
        if (!vb__jiter_next(r, &it, &x, &more)) return false;
        if (!more) return vb__jsb_take(&b, out);
        if (x.t != JV_STR) return vb__jerr(r, "join: item %u is %s, expected a text", i, vb__jv_type_name(x));
        if ((i > 0 && !vb__jsb_put_str(&b, s)) || !vb__jsb_put_str(&b, x.s)) return false;
    }
}

static bool pad_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out) {
    const char *what = vb__jmethod_name(id);
    jv v[2];
    int64_t width, n = vb__jstr_chars(s);
    static const jstr blank = {.s = " ", .len = 1, .chars = 1};
    const jstr *fill = &blank;
    if (!vb__jbind(r, what, "/width fillchar?", a, v) || !vb__jarg_int(r, what, v[0], 0, &width))
        return false;
    if (v[1].t != JV_ABSENT && !text_arg(r, what, v[1], &fill)) return false;
    if (vb__jstr_chars(fill) != 1)
        return vb__jerr(r, "%s: the fill is not one character, expected one", what);
    if (width <= n) {
        *out = (jv){.t = JV_STR, .s = s};
        return true;
    }
    int64_t pad = width - n, left = id == M_ljust ? 0 : id == M_rjust ? pad : pad / 2 + (pad & width & 1);
    jsb b;
    vb__jsb_init(r, &b);
    for (int64_t i = 0; i < left; i++)
        if (!vb__jsb_put_str(&b, fill)) return false;
    if (!vb__jsb_put_str(&b, s)) return false;
    for (int64_t i = left; i < pad; i++)
        if (!vb__jsb_put_str(&b, fill)) return false;
    return vb__jsb_take(&b, out);
}

static bool zfill_method(jr *r, const jstr *s, const jargs *a, jv *out) {
    jv v[1];
    int64_t width, n = vb__jstr_chars(s);
    jsb b;
    vb__jsb_init(r, &b);
    if (!vb__jbind(r, "zfill", "/width", a, v) || !vb__jarg_int(r, "zfill", v[0], 0, &width)) return false;
    uint32_t sign = s->len > 0 && (s->s[0] == '-' || s->s[0] == '+');
    if (!vb__jsb_put_part(&b, s, 0, sign)) return false;
    for (; n < width; n++)
        if (!vb__jsb_putc(&b, '0', false)) return false;
    return vb__jsb_put_part(&b, s, sign, s->len) && vb__jsb_take(&b, out);
}

static bool expandtabs_method(jr *r, const jstr *s, const jargs *a, jv *out) {
    jv v[1];
    int64_t size, col = 0;
    jsb b;
    vb__jsb_init(r, &b);
    if (!vb__jbind(r, "expandtabs", "tabsize?", a, v) || !vb__jarg_int(r, "expandtabs", v[0], 8, &size))
        return false;
    for (uint32_t at = 0, cp, n; at < s->len; at += n) {
        n = vb__jutf8(s->s + at, s->s + s->len, &cp);
        if (cp == '\t') {
            for (int64_t k = size <= 0 ? 0 : size - col % size; k > 0; k--, col++)
                if (!vb__jsb_putc(&b, ' ', vb__jstr_ours_at(s, at))) return false;
        } else {
            if (!vb__jsb_put_part(&b, s, at, at + n)) return false;
            col = cp == '\n' || cp == '\r' ? 0 : col + 1;
        }
    }
    return vb__jsb_take(&b, out);
}

static bool remove_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out) {
    jv v[1];
    const jstr *x;
    if (!vb__jbind(r, vb__jmethod_name(id), "/text", a, v) || !text_arg(r, "removeprefix", v[0], &x))
        return false;
    bool hit = x->len > 0 && starts(s, 0, s->len, x, id == M_removesuffix);
    uint32_t from = hit && id == M_removeprefix ? x->len : 0,
             to = hit && id == M_removesuffix ? s->len - x->len : s->len;
    return vb__jstr_part(r, s, from, to, out);
}

/* ---- case and questions ---- */

static bool case_method(jr *r, const jstr *s, uint32_t id, jv *out) {
    jsb b;
    vb__jsb_init(r, &b);
    bool ok;
    switch (id) {
    case M_upper: ok = vb__jstr_case(&b, s, 0, s->len, JC_UPPER); break;
    case M_lower: ok = vb__jstr_case(&b, s, 0, s->len, JC_LOWER); break;
    case M_casefold: ok = vb__jstr_case(&b, s, 0, s->len, JC_FOLD); break;
    case M_capitalize: ok = vb__jstr_capitalize(&b, s); break;
    case M_swapcase: ok = vb__jstr_swapcase(&b, s); break;
    default: ok = vb__jstr_title(&b, s);
    }
    return ok && vb__jsb_take(&b, out);
}

static bool is_one(uint32_t id, uint32_t cp) {
    int v;
    switch (id) {
    case M_isalnum: return vb__jcp_alpha(cp) || vb__jcp_numeric(cp);
    case M_isalpha: return vb__jcp_alpha(cp);
    case M_isascii: return cp < 0x80;
    case M_isdecimal: return vb__jcp_decimal(cp, &v);
    case M_isdigit: return vb__jcp_digit(cp);
    case M_isnumeric: return vb__jcp_numeric(cp);
    case M_isprintable: return vb__jcp_printable(cp);
    default: return vb__jcp_space(cp);
    }
}

static bool is_text(const jstr *s, uint32_t id) {
    const char *p = s->s, *end = p + s->len;
    bool cased = false, prev = false;
    if (s->len == 0) return id == M_isascii || id == M_isprintable;
    while (p < end) {
        uint32_t cp;
        bool first = p == s->s;
        p += vb__jutf8(p, end, &cp);
        bool up = vb__jcp_upper(cp), low = vb__jcp_lower(cp), title = vb__jcp_title(cp);
        switch (id) {
        case M_islower:
            if (up || title) return false;
            cased |= low;
            break;
        case M_isupper:
            if (low || title) return false;
            cased |= up;
            break;
        case M_istitle:
            if ((up || title) ? prev : low && !prev) return false;
            prev = up || low || title;
            cased |= prev;
            break;
        case M_isidentifier:
            if (!vb__jcp_word(cp) || (first && vb__jcp_numeric(cp))) return false;
            cased = true;
            break;
        default:
            if (!is_one(id, cp)) return false;
            cased = true;
        }
    }
    return cased;
}

bool vb__jstr_method(jr *r, const jstr *s, uint32_t id, const jargs *a, jv *out) {
    if (s->markup && (id == M_join || id == M_format))
        return vb__jerr_code(r, VB_E_UNSUPPORTED,
                             "%s() of escaped text is not supported, expected plain text",
                             vb__jmethod_name(id));
    switch (id) {
    case M_find:
    case M_rfind:
    case M_index:
    case M_rindex:
    case M_count: return find_method(r, s, id, a, out);
    case M_startswith:
    case M_endswith: return starts_method(r, s, id, a, out);
    case M_strip:
    case M_lstrip:
    case M_rstrip: return strip_method(r, s, id, a, out);
    case M_split:
    case M_rsplit: return split_method(r, s, id, a, out);
    case M_splitlines: return splitlines_method(r, s, a, out);
    case M_partition:
    case M_rpartition: return partition_method(r, s, id, a, out);
    case M_replace: return replace_method(r, s, a, out);
    case M_join: return join_method(r, s, a, out);
    case M_ljust:
    case M_rjust:
    case M_center: return pad_method(r, s, id, a, out);
    case M_zfill: return zfill_method(r, s, a, out);
    case M_expandtabs: return expandtabs_method(r, s, a, out);
    case M_removeprefix:
    case M_removesuffix: return remove_method(r, s, id, a, out);
    case M_format: return vb__jformat_brace(r, s, a, out);
    case M_encode:
    case M_format_map:
    case M_maketrans:
    case M_translate:
        return vb__jerr_code(r, VB_E_UNSUPPORTED, "str.%s() is not supported, expected another way",
                             vb__jmethod_name(id));
    default: break;
    }
    if (a->n != 0 || a->n_kw != 0)
        return vb__jerr(r, "%s() takes no arguments, expected none", vb__jmethod_name(id));
    switch (id) {
    case M_upper:
    case M_lower:
    case M_casefold:
    case M_capitalize:
    case M_swapcase:
    case M_title: return case_method(r, s, id, out);
    default:
        if (!vb__jwork(r, s->len / 4)) return false;
        *out = vb__jv_bool(is_text(s, id));
        return true;
    }
}
