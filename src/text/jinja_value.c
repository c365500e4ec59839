/* Values: memory, errors, truth, equality, order, dictionaries, iteration, and values from JSON. */
#include "text/jinja_int.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* ---- memory and errors ---- */

static void *pool_alloc(jr *r, jpool *p, size_t n) {
    jblock *k = p->head;
    if (n > r->memory_max || r->memory > r->memory_max - n) {
        vb__jerr_code(r, VB_E_LIMIT, "the template needs too much memory, expected at most %zu MiB",
                      r->memory_max >> 20);
        return NULL;
    }
    if (k == NULL || k->cap - k->used < n) {
        size_t cap = p->block > n ? p->block : n;
        k = vb__alloc(VB_TAG_TEXT, sizeof(*k) + cap);
        if (k == NULL) {
            vb__jerr_code(r, VB_E_MEMORY, "out of memory");
            return NULL;
        }
        k->used = 0;
        k->cap = cap;
        k->next = p->head;
        p->head = k;
        if (p->block < (1u << 20)) p->block *= 2;
    }
    void *m = k->data + k->used;
    k->used += n;
    r->memory += n;
    return m;
}

void *vb__jalloc(jr *r, size_t bytes) {
    size_t n = (bytes + 15) & ~(size_t)15;
    return pool_alloc(r, &r->objects, n);
}

char *vb__jbytes(jr *r, size_t bytes) {
    return pool_alloc(r, &r->bytes, bytes);
}

bool vb__jerr_code(jr *r, vb_err code, const char *fmt, ...) {
    if (r->code != VB_OK) return false;
    va_list ap;
    char text[512];
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    r->code = code;
    if (r->message == NULL) r->message = vb__strdup(VB_TAG_TEXT, text);
    if (r->line == 0) vb__fail_store(r->err, code, "template's variables: %s", text);
    else vb__fail_store(r->err, code, "template line %u: %s", r->line, text);
    return false;
}

bool vb__jerr(jr *r, const char *fmt, ...) {
    va_list ap;
    char text[512];
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return vb__jerr_code(r, VB_E_FORMAT, "%s", text);
}

bool vb__jwork(jr *r, int64_t units) {
    r->work -= units;
    return r->work >= 0 ||
           vb__jerr_code(r, VB_E_LIMIT, "the template runs too long, expected an end before that");
}

bool vb__jerr_undef(jr *r, jv v) {
    const jundef *u = v.u;
    char key[80] = "";
    if (u->key.t == JV_STR) {
        int n = u->key.s->len > 60 ? 60 : (int)u->key.s->len;
        while (n > 0 && (uint32_t)n < u->key.s->len && ((unsigned char)u->key.s->s[n] & 0xc0) == 0x80) n--;
        snprintf(key, sizeof(key), "%.*s", n, u->key.s->s);
    } else if (u->key.t == JV_INT) {
        snprintf(key, sizeof(key), "%lld", (long long)u->key.i);
    }
    const char *of = vb__jv_type_name((jv){.t = u->of});
    switch (u->kind) {
    case JU_NAME: return vb__jerr(r, "'%s' is undefined, expected a value", key);
    case JU_ATTR:
        if (u->of == JV_NONE)
            return vb__jerr(r, "'None' has no attribute '%s', expected one that exists", key);
        return vb__jerr(r, "'%s object' has no attribute '%s', expected one that exists", of, key);
    case JU_ELEMENT: return vb__jerr(r, "%s object has no element %s, expected one that exists", of, key);
    case JU_UNSAFE:
        return vb__jerr(
            r, "access to attribute '%s' of '%s' object is unsafe, expected one that changes nothing", key,
            of);
    default: return vb__jerr(r, "%s", u->key.s->s);
    }
}

bool vb__jv_undef(jr *r, jundef_kind kind, jtype of, jv key, jv *out) {
    jundef *u = vb__jalloc(r, sizeof(*u));
    if (u == NULL) return false;
    *u = (jundef){kind, (uint8_t)of, key};
    *out = (jv){.t = JV_UNDEF, .u = u};
    return true;
}

bool vb__jv_undef_text(jr *r, const char *text, jv *out) {
    jv s;
    return vb__jstr_borrow(r, text, strlen(text), true, &s) && vb__jv_undef(r, JU_TEXT, JV_UNDEF, s, out);
}

/* ---- plain questions ---- */

const jv vb__jnothing[1] = {{0}};

bool vb__jv_list(jr *r, jtype t, const jv *v, uint32_t n, jv *out) {
    jseq *l = vb__jalloc(r, sizeof(*l));
    if (l == NULL) return false;
    *l = (jseq){n == 0 ? vb__jnothing : v, n, false};
    *out = (jv){.t = (uint8_t)t, .l = l};
    return true;
}

bool vb__jpush(jr *r, jv **v, uint32_t *n, uint32_t *cap, jv x) {
    if (*n == *cap) {
        uint32_t c = *cap == 0 ? 8 : *cap * 2;
        jv *m = vb__jalloc(r, (size_t)c * sizeof(jv));
        if (m == NULL) return false;
        if (*n != 0) memcpy(m, *v, *n * sizeof(jv));
        *v = m;
        *cap = c;
    }
    (*v)[(*n)++] = x;
    return true;
}

const char *vb__jv_type_name(jv v) {
    static const char *const names[] = {"absent",
                                        "Undefined",
                                        "NoneType",
                                        "bool",
                                        "int",
                                        "float",
                                        "str",
                                        "list",
                                        "tuple",
                                        "dict",
                                        "range",
                                        "dict_items",
                                        "generator",
                                        "Namespace",
                                        "Macro",
                                        "function",
                                        "builtin_function_or_method",
                                        "LoopContext",
                                        "Cycler",
                                        "Joiner"};
    if (v.t == JV_VIEW)
        return v.sub == JVIEW_KEYS ? "dict_keys" : v.sub == JVIEW_VALUES ? "dict_values" : "dict_items";
    return names[v.t];
}

bool vb__jv_len(jr *r, jv v, int64_t *out) {
    switch (v.t) {
    case JV_UNDEF:
        if (v.u->kind == JU_UNSAFE) return vb__jerr_undef(r, v);
        *out = 0;
        return true;
    case JV_STR: *out = vb__jstr_chars(v.s); return true;
    case JV_LIST:
    case JV_TUPLE: *out = v.l->n; return true;
    case JV_DICT:
    case JV_VIEW: *out = v.d->n; return true;
    case JV_RANGE: *out = v.r->n; return true;
    default:
        return vb__jerr(r, "object of type '%s' has no length, expected a text, a list or a mapping",
                        vb__jv_type_name(v));
    }
}

bool vb__jv_truth(jr *r, jv v, bool *out) {
    (void)r;
    switch (v.t) {
    case JV_ABSENT:
    case JV_UNDEF:
    case JV_NONE: *out = false; break;
    case JV_BOOL: *out = v.b; break;
    case JV_INT: *out = v.i != 0; break;
    case JV_FLOAT: *out = v.f != 0.0; break;
    case JV_STR: *out = v.s->len != 0; break;
    case JV_LIST:
    case JV_TUPLE: *out = v.l->n != 0; break;
    case JV_DICT:
    case JV_VIEW: *out = v.d->n != 0; break;
    case JV_RANGE: *out = v.r->n != 0; break;
    default: *out = true;
    }
    return true;
}

/* ---- equality and order ---- */

static bool is_number(jv v) {
    return v.t == JV_BOOL || v.t == JV_INT || v.t == JV_FLOAT;
}
static int64_t as_int(jv v) {
    return v.t == JV_BOOL ? v.b : v.i;
}

/* -1, 0, 1, or 2 when f is not a number. Exact: an integer is not rounded first. */
static int compare_int_float(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 9223372036854775808.0) return -1;
    if (f < -9223372036854775808.0) return 1;
    int64_t t = (int64_t)f; /* towards zero */
    if (i != t) return i < t ? -1 : 1;
    double rest = f - (double)t;
    return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

static int compare_numbers(jv a, jv b) {
    if (a.t == JV_FLOAT && b.t == JV_FLOAT) {
        if (isnan(a.f) || isnan(b.f)) return 2;
        return a.f < b.f ? -1 : a.f > b.f;
    }
    if (a.t == JV_FLOAT) {
        int c = compare_int_float(as_int(b), a.f);
        return c == 2 ? 2 : -c;
    }
    if (b.t == JV_FLOAT) return compare_int_float(as_int(a), b.f);
    int64_t x = as_int(a), y = as_int(b);
    return x < y ? -1 : x > y;
}

static int compare_text(const jstr *a, const jstr *b) { /* UTF-8 keeps the order of code points */
    uint32_t n = a->len < b->len ? a->len : b->len;
    int c = n == 0 ? 0 : memcmp(a->s, b->s, n);
    if (c != 0) return c < 0 ? -1 : 1;
    return a->len < b->len ? -1 : a->len > b->len;
}

static bool enter(jr *r, int *depth) {
    *depth = r->depth;
    return ++r->depth <= JINJA_EVAL_DEPTH ||
           vb__jerr_code(r, VB_E_LIMIT, "values nested too deep, expected at most %d levels",
                         JINJA_VALUE_DEPTH);
}

static bool equal_dicts(jr *r, const jdict *a, const jdict *b, bool *out) {
    *out = a->n == b->n;
    for (uint32_t i = 0; *out && i < a->n; i++) {
        jv v;
        if (!vb__jdict_get(r, b, a->e[i].k, &v, out)) return false;
        if (*out && !vb__jv_equal(r, a->e[i].v, v, out)) return false;
    }
    return true;
}

bool vb__jv_equal(jr *r, jv a, jv b, bool *out) {
    if (!vb__jwork(r, 1)) return false;
    if (is_number(a) && is_number(b)) {
        *out = compare_numbers(a, b) == 0;
        return true;
    }
    *out = false;
    if (a.t != b.t) return true;
    bool ok = true;
    int depth;
    switch (a.t) {
    case JV_UNDEF: *out = a.u->kind != JU_UNSAFE || b.u->kind == JU_UNSAFE; break;
    case JV_NONE: *out = true; break;
    case JV_STR:
        if (!vb__jwork(r, a.s->len == b.s->len ? a.s->len >> 6 : 0)) return false;
        *out = compare_text(a.s, b.s) == 0;
        break;
    case JV_LIST:
    case JV_TUPLE:
        if (a.l == b.l) {
            *out = true;
            break;
        }
        if (!enter(r, &depth)) return false;
        *out = a.l->n == b.l->n;
        for (uint32_t i = 0; ok && *out && i < a.l->n; i++) ok = vb__jv_equal(r, a.l->v[i], b.l->v[i], out);
        r->depth = depth;
        break;
    case JV_DICT:
        if (!enter(r, &depth)) return false;
        ok = a.d == b.d || equal_dicts(r, a.d, b.d, out);
        if (a.d == b.d) *out = true;
        r->depth = depth;
        break;
    case JV_VIEW: *out = a.d == b.d && a.sub == b.sub; break;
    case JV_RANGE:
        *out = a.r->n == b.r->n &&
               (a.r->n == 0 || (a.r->start == b.r->start && (a.r->n == 1 || a.r->step == b.r->step)));
        break;
    case JV_FUNC: *out = a.sub == b.sub; break;
    default: *out = a.p == b.p; break;
    }
    return ok;
}

bool vb__jv_compare(jr *r, jv a, jv b, const char *op, int *out) {
    if (!vb__jwork(r, 1)) return false;
    if (is_number(a) && is_number(b)) {
        *out = compare_numbers(a, b);
        return true;
    }
    if (a.t == JV_STR && b.t == JV_STR) {
        uint32_t n = a.s->len < b.s->len ? a.s->len : b.s->len;
        *out = compare_text(a.s, b.s);
        return vb__jwork(r, n >> 6);
    }
    if (a.t == JV_UNDEF) return vb__jerr_undef(r, a);
    if (b.t == JV_UNDEF) return vb__jerr_undef(r, b);
    if (a.t == b.t && (a.t == JV_LIST || a.t == JV_TUPLE)) {
        int depth;
        bool same = true, ok = enter(r, &depth);
        for (uint32_t i = 0; ok && i < a.l->n && i < b.l->n; i++) {
            ok = vb__jv_equal(r, a.l->v[i], b.l->v[i], &same);
            if (ok && !same) {
                ok = vb__jv_compare(r, a.l->v[i], b.l->v[i], op, out);
                r->depth = depth;
                return ok;
            }
        }
        r->depth = depth;
        *out = a.l->n < b.l->n ? -1 : a.l->n > b.l->n;
        return ok;
    }
    return vb__jerr(r,
                    "'%s' not supported between '%s' and '%s', expected two numbers, two texts or two lists",
                    op, vb__jv_type_name(a), vb__jv_type_name(b));
}

/* ---- dictionaries ---- */

static uint64_t mix(uint64_t h) {
    h ^= h >> 32;
    h *= 0xd6e8feb86659fd93u;
    h ^= h >> 32;
    return h;
}

static uint64_t hash_bytes(const char *s, size_t n) {
    uint64_t h = 0xcbf29ce484222325u ^ n;
    for (; n >= 8; s += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = (h ^ w) * 0x9e3779b97f4a7c15u;
        h ^= h >> 29;
    }
    for (; n > 0; s++, n--) h = (h ^ (unsigned char)*s) * 0x100000001b3u;
    return mix(h);
}

bool vb__jv_hash(jr *r, jv v, uint64_t *out) {
    switch (v.t) {
    case JV_BOOL:
    case JV_INT: *out = mix((uint64_t)as_int(v)); return true;
    case JV_FLOAT:
        if (v.f >= -9223372036854775808.0 && v.f < 9223372036854775808.0 && (double)(int64_t)v.f == v.f)
            *out = mix((uint64_t)(int64_t)v.f);
        else *out = hash_bytes((const char *)&v.f, sizeof(v.f));
        return true;
    case JV_STR: *out = hash_bytes(v.s->s, v.s->len); return vb__jwork(r, v.s->len >> 6);
    case JV_NONE: *out = 0x6e6f6e65; return true;
    case JV_UNDEF: *out = 0x756e6466; return true;
    case JV_TUPLE: {
        uint64_t h = 0x345678;
        int depth;
        if (!enter(r, &depth)) return false;
        for (uint32_t i = 0; i < v.l->n; i++) {
            uint64_t x;
            if (!vb__jwork(r, 1) || !vb__jv_hash(r, v.l->v[i], &x)) return false;
            h = mix(h * 1000003u + x);
        }
        r->depth = depth;
        *out = h;
        return true;
    }
    case JV_LIST:
    case JV_DICT:
    case JV_VIEW:
        return vb__jerr(r, "unhashable type: '%s', expected a text, a number or a tuple",
                        vb__jv_type_name(v));
    case JV_RANGE: *out = mix((uint64_t)v.r->n * 31 + (uint64_t)v.r->start); return true;
    default: *out = mix((uint64_t)(uintptr_t)v.p); return true;
    }
}

bool vb__jdict_new(jr *r, uint32_t cap, jdict **out) {
    jdict *d = vb__jalloc(r, sizeof(*d));
    if (d == NULL) return false;
    *d = (jdict){0};
    if (cap > 0) {
        d->e = vb__jalloc(r, (size_t)cap * sizeof(jentry));
        if (d->e == NULL) return false;
        d->cap = cap;
    }
    *out = d;
    return true;
}

enum { SMALL_DICT = 8 };

static bool find_entry(jr *r, const jdict *d, jv k, uint64_t hash, uint32_t *at) {
    bool same = false;
    if (d->index == NULL) {
        for (uint32_t i = 0; i < d->n; i++) {
            if (d->e[i].hash != hash) continue;
            if (!vb__jv_equal(r, d->e[i].k, k, &same)) return false;
            if (same) {
                *at = i;
                return true;
            }
        }
    } else {
        for (uint32_t h = (uint32_t)hash & d->mask; d->index[h] != 0; h = (h + 1) & d->mask) {
            uint32_t i = d->index[h] - 1;
            if (!vb__jwork(r, 1)) return false;
            if (d->e[i].hash != hash) continue;
            if (!vb__jv_equal(r, d->e[i].k, k, &same)) return false;
            if (same) {
                *at = i;
                return true;
            }
        }
    }
    *at = UINT32_MAX;
    return true;
}

static bool reindex(jr *r, jdict *d) {
    uint32_t size = 32;
    while (size < d->cap * 2) size *= 2;
    d->index = vb__jalloc(r, size * sizeof(uint32_t));
    if (d->index == NULL) return false;
    memset(d->index, 0, size * sizeof(uint32_t));
    d->mask = size - 1;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t h = (uint32_t)d->e[i].hash & d->mask;
        while (d->index[h] != 0) h = (h + 1) & d->mask;
        d->index[h] = i + 1;
    }
    return vb__jwork(r, d->n);
}

bool vb__jdict_set(jr *r, jdict *d, jv k, jv v) {
    uint64_t hash;
    uint32_t at;
    if (!vb__jv_hash(r, k, &hash) || !find_entry(r, d, k, hash, &at)) return false;
    if (at != UINT32_MAX) {
        d->e[at].v = v;
        return true;
    }
    if (d->n == d->cap) {
        uint32_t cap = d->cap == 0 ? 4 : d->cap * 2;
        jentry *e = vb__jalloc(r, (size_t)cap * sizeof(*e));
        if (e == NULL) return false;
        if (d->n != 0) memcpy(e, d->e, d->n * sizeof(*e));
        d->e = e;
        d->cap = cap;
        d->index = NULL;
    }
    d->e[d->n] = (jentry){k, v, hash};
    d->n++;
    if (d->n <= SMALL_DICT) return true;
    if (d->index == NULL) return reindex(r, d);
    uint32_t h = (uint32_t)hash & d->mask;
    while (d->index[h] != 0) h = (h + 1) & d->mask;
    d->index[h] = d->n;
    return true;
}

bool vb__jdict_get(jr *r, const jdict *d, jv k, jv *out, bool *found) {
    uint64_t hash;
    uint32_t at;
    if (!vb__jv_hash(r, k, &hash) || !find_entry(r, d, k, hash, &at)) return false;
    *found = at != UINT32_MAX;
    if (*found) *out = d->e[at].v;
    return true;
}

const jv *vb__jdict_text(const jdict *d, const char *key, size_t len) {
    uint64_t hash = hash_bytes(key, len);
    if (d->index == NULL) {
        for (uint32_t i = 0; i < d->n; i++) {
            const jentry *e = &d->e[i];
            if (e->hash == hash && e->k.t == JV_STR && e->k.s->len == len && memcmp(e->k.s->s, key, len) == 0)
                return &e->v;
        }
        return NULL;
    }
    for (uint32_t h = (uint32_t)hash & d->mask; d->index[h] != 0; h = (h + 1) & d->mask) {
        const jentry *e = &d->e[d->index[h] - 1];
        if (e->hash == hash && e->k.t == JV_STR && e->k.s->len == len && memcmp(e->k.s->s, key, len) == 0)
            return &e->v;
    }
    return NULL;
}

/* ---- iteration ---- */

bool vb__jiter_init(jr *r, jv v, jiter *it) {
    *it = (jiter){.kind = v.t, .sub = v.sub};
    switch (v.t) {
    case JV_UNDEF:
        if (v.u->kind == JU_UNSAFE) return vb__jerr_undef(r, v);
        return true;
    case JV_STR: it->s = v.s; return true;
    case JV_LIST:
    case JV_TUPLE:
        it->v = v.l->v;
        it->n = v.l->n;
        return true;
    case JV_DICT: it->sub = JVIEW_KEYS; __attribute__((fallthrough));
    case JV_VIEW: it->d = v.d; return true;
    case JV_RANGE: it->r = v.r; return true;
    case JV_GEN: it->g = v.g; return true;
    default:
        return vb__jerr(r, "'%s' object is not iterable, expected a list, a text or a mapping",
                        vb__jv_type_name(v));
    }
}

bool vb__jiter_next(jr *r, jiter *it, jv *out, bool *more) {
    *more = true;
    if (!vb__jwork(r, 1)) return false;
    switch (it->kind) {
    case JV_STR: {
        if (it->off >= it->s->len) break;
        uint32_t cp, n = vb__jutf8(it->s->s + it->off, it->s->s + it->s->len, &cp), at = it->off;
        it->off += n;
        return vb__jstr_part(r, it->s, at, at + n, out);
    }
    case JV_LIST:
    case JV_TUPLE:
        if (it->i >= it->n) break;
        *out = it->v[it->i++];
        return true;
    case JV_DICT:
    case JV_VIEW: {
        if (it->i >= it->d->n) break;
        const jentry *e = &it->d->e[it->i++];
        if (it->sub != JVIEW_ITEMS) {
            *out = it->sub == JVIEW_KEYS ? e->k : e->v;
            return true;
        }
        jv *pair = vb__jalloc(r, 2 * sizeof(jv));
        if (pair == NULL) return false;
        pair[0] = e->k;
        pair[1] = e->v;
        return vb__jv_list(r, JV_TUPLE, pair, 2, out);
    }
    case JV_RANGE:
        if (it->i >= it->r->n) break;
        *out = vb__jv_int((int64_t)((uint64_t)it->r->start + (uint64_t)it->r->step * it->i++));
        return true;
    case JV_GEN: return vb__jgen_next(r, it->g, out, more);
    default: break;
    }
    *more = false;
    return true;
}

bool vb__jv_collect(jr *r, jv v, jv **items, uint32_t *n) {
    jiter it;
    uint32_t cap = 0;
    *items = (jv *)vb__jnothing; /* not written to: its capacity is 0 */
    *n = 0;
    if (!vb__jiter_init(r, v, &it)) return false;
    int64_t len;
    if (v.t != JV_GEN && v.t != JV_UNDEF && vb__jv_len(r, v, &len) && len > 0) {
        *items = vb__jalloc(r, (size_t)len * sizeof(jv));
        if (*items == NULL) return false;
        cap = (uint32_t)len;
    }
    for (;;) {
        jv x;
        bool more;
        if (!vb__jiter_next(r, &it, &x, &more)) return false;
        if (!more) return true;
        if (!vb__jpush(r, items, n, &cap, x)) return false;
    }
}

bool vb__jv_contains(jr *r, jv item, jv in, bool *out) {
    *out = false;
    if (in.t == JV_STR) {
        if (item.t != JV_STR)
            return item.t == JV_UNDEF && item.u->kind == JU_UNSAFE
                       ? vb__jerr_undef(r, item)
                       : vb__jerr(r, "'in' needs a text on its left, not %s, expected a text",
                                  vb__jv_type_name(item));
        if (!vb__jwork(r, 1 + (in.s->len >> 3))) return false;
        *out = vb__jstr_find(in.s, 0, in.s->len, item.s) != UINT32_MAX;
        return true;
    }
    if (in.t == JV_DICT || (in.t == JV_VIEW && in.sub == JVIEW_KEYS)) {
        jv v;
        return vb__jdict_get(r, in.d, item, &v, out);
    }
    if (in.t == JV_RANGE && (item.t == JV_INT || item.t == JV_BOOL)) {
        int64_t i = as_int(item), off;
        if (in.r->n == 0 || __builtin_sub_overflow(i, in.r->start, &off)) return true;
        *out = off % in.r->step == 0 && off / in.r->step >= 0 && off / in.r->step < in.r->n;
        return true;
    }
    jiter it;
    switch (in.t) {
    case JV_UNDEF:
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
    case JV_VIEW:
    case JV_GEN: break;
    default:
        return vb__jerr(r, "argument of type '%s' is not iterable, expected a list, a text or a mapping",
                        vb__jv_type_name(in));
    }
    if (!vb__jiter_init(r, in, &it)) return false;
    for (;;) {
        jv x;
        bool more;
        if (!vb__jiter_next(r, &it, &x, &more)) return false;
        if (!more) return true;
        if (!vb__jv_equal(r, x, item, out)) return false;
        if (*out) return true;
    }
}

/* ---- JSON ---- */

bool vb__jv_from_json(jr *r, const json_t *j, bool ours, int depth, jv *out) {
    if (depth > JINJA_VALUE_DEPTH)
        return vb__jerr_code(r, VB_E_LIMIT, "JSON nested too deep, expected at most %d levels",
                             JINJA_VALUE_DEPTH);
    switch (json_typeof(j)) {
    case JSON_NULL: *out = vb__jv_none(); return true;
    case JSON_TRUE: *out = vb__jv_bool(true); return true;
    case JSON_FALSE: *out = vb__jv_bool(false); return true;
    case JSON_INTEGER: *out = vb__jv_int(json_integer_value(j)); return true;
    case JSON_REAL: *out = vb__jv_float(json_real_value(j)); return true;
    case JSON_STRING:
        return vb__jwork(r, (int64_t)json_string_length(j) / 8) &&
               vb__jstr_borrow(r, json_string_value(j), json_string_length(j), ours, out);
    case JSON_ARRAY: {
        size_t n = json_array_size(j);
        if (n > UINT32_MAX / 64)
            return vb__jerr_code(r, VB_E_LIMIT, "a list is too long, expected fewer items");
        jv *v = vb__jalloc(r, n * sizeof(jv));
        if (v == NULL) return false;
        for (size_t i = 0; i < n; i++)
            if (!vb__jv_from_json(r, json_array_get(j, i), ours, depth + 1, &v[i])) return false;
        return vb__jv_list(r, JV_LIST, v, (uint32_t)n, out);
    }
    case JSON_OBJECT: {
        jdict *d;
        size_t n = json_object_size(j);
        if (n > UINT32_MAX / 64)
            return vb__jerr_code(r, VB_E_LIMIT, "a mapping is too large, expected fewer keys");
        if (!vb__jdict_new(r, (uint32_t)n, &d)) return false;
        for (void *it = json_object_iter((json_t *)j); it != NULL;
             it = json_object_iter_next((json_t *)j, it)) {
            jv k, v;
            if (!vb__jstr_borrow(r, json_object_iter_key(it), json_object_iter_key_len(it), ours, &k) ||
                !vb__jv_from_json(r, json_object_iter_value(it), ours, depth + 1, &v) ||
                !vb__jdict_set(r, d, k, v))
                return false;
        }
        *out = (jv){.t = JV_DICT, .d = d};
        return true;
    }
    }
    return vb__jerr_code(r, VB_E_INTERNAL, "a JSON value of unknown kind");
}
