/* Operators, attributes, indexing and slices. */
#include "text/jinja_int.h"
#include <math.h>
#include <stdio.h>

static const char *const op_text[] = {
    "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};

static bool is_int(jv v) {
    return v.t == JV_BOOL || v.t == JV_INT;
}
static int64_t int_of(jv v) {
    return v.t == JV_BOOL ? v.b : v.i;
}
static bool is_number(jv v) {
    return is_int(v) || v.t == JV_FLOAT;
}
static double float_of(jv v) {
    return v.t == JV_FLOAT ? v.f : (double)int_of(v);
}

static bool too_large(jr *r) {
    return vb__jerr_code(r, VB_E_LIMIT, "an integer is too large, expected at most 64 bits");
}

static bool bad_operands(jr *r, jop op, jv a, jv b) {
    if (a.t == JV_UNDEF) return vb__jerr_undef(r, a);
    if (b.t == JV_UNDEF) return vb__jerr_undef(r, b);
    return vb__jerr(r, "unsupported operand types for %s: '%s' and '%s', expected %s", op_text[op],
                    vb__jv_type_name(a), vb__jv_type_name(b),
                    op == OP_ADD ? "two numbers, two texts or two lists" : "two numbers");
}

static bool power_int(jr *r, int64_t a, int64_t b, jv *out) {
    int64_t v = 1, base = a;
    for (uint64_t e = (uint64_t)b; e > 0; e >>= 1) {
        if ((e & 1) != 0 && __builtin_mul_overflow(v, base, &v)) return too_large(r);
        if (e > 1 && __builtin_mul_overflow(base, base, &base)) {
            if (a == 0 || a == 1 || a == -1) base = 1;
            else return too_large(r);
        }
    }
    *out = vb__jv_int(v);
    return true;
}

static bool int_op(jr *r, jop op, int64_t a, int64_t b, jv *out) {
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case OP_ADD: over = __builtin_add_overflow(a, b, &v); break;
    case OP_SUB: over = __builtin_sub_overflow(a, b, &v); break;
    case OP_MUL: over = __builtin_mul_overflow(a, b, &v); break;
    case OP_DIV:
        if (b == 0) return vb__jerr(r, "division by zero, expected another divisor");
        *out = vb__jv_float((double)((long double)a / (long double)b));
        return true;
    case OP_FLOORDIV:
    case OP_MOD:
        if (b == 0) return vb__jerr(r, "integer division or modulo by zero, expected another divisor");
        if (b == -1) {
            if (op == OP_MOD) v = 0;
            else over = __builtin_sub_overflow((int64_t)0, a, &v);
            break;
        }
        v = op == OP_MOD ? a % b : a / b;
        if (a % b != 0 && ((a < 0) != (b < 0))) v = op == OP_MOD ? v + b : v - 1;
        break;
    default: /* OP_POW */
        if (b >= 0) return power_int(r, a, b, out);
        if (a == 0) return vb__jerr(r, "0 to a negative power, expected another base");
        *out = vb__jv_float(pow((double)a, (double)b));
        return true;
    }
    if (over) return too_large(r);
    *out = vb__jv_int(v);
    return true;
}

static bool float_op(jr *r, jop op, double a, double b, jv *out) {
    double v = 0, m;
    switch (op) {
    case OP_ADD: v = a + b; break;
    case OP_SUB: v = a - b; break;
    case OP_MUL: v = a * b; break;
    case OP_DIV:
        if (b == 0) return vb__jerr(r, "float division by zero, expected another divisor");
        v = a / b;
        break;
    case OP_FLOORDIV:
    case OP_MOD:
        if (b == 0) return vb__jerr(r, "float division or modulo by zero, expected another divisor");
        m = fmod(a, b); /* exact; the result takes the divisor's sign */
        v = (a - m) / b;
        if (m != 0 && (b < 0) != (m < 0)) m += b, v -= 1.0;
        if (m == 0) m = copysign(0.0, b);
        if (op == OP_MOD) {
            v = m;
        } else if (v != 0) {
            double whole = floor(v);
            v = v - whole > 0.5 ? whole + 1.0 : whole;
        } else {
            v = copysign(0.0, a / b);
        }
        break;
    default: /* OP_POW */
        if (a == 0 && b < 0) return vb__jerr(r, "0.0 to a negative power, expected another base");
        if (a < 0 && isfinite(a) && isfinite(b) && floor(b) != b)
            return vb__jerr(r, "a negative number to a broken power, expected a real result");
        v = pow(a, b);
        if (isinf(v) && isfinite(a) && isfinite(b))
            return vb__jerr(r, "the result of ** is too large, expected a finite number");
        break;
    }
    *out = vb__jv_float(v);
    return true;
}

static bool repeat(jr *r, jv a, int64_t n, jv *out) {
    if (n < 0) n = 0;
    if (a.t == JV_STR) {
        if (n > 0 && a.s->len > 0 && n > (1 << 30) / (int64_t)a.s->len)
            return vb__jerr_code(r, VB_E_LIMIT, "a repeated text is too long, expected at most 1 GiB");
        jsb b;
        vb__jsb_init(r, &b);
        for (int64_t i = 0; i < n && a.s->len > 0; i++)
            if (!vb__jsb_put_str(&b, a.s)) return false;
        return vb__jsb_take(&b, out);
    }
    int64_t total;
    if (__builtin_mul_overflow(n, (int64_t)a.l->n, &total) || total > (1 << 26))
        return vb__jerr_code(r, VB_E_LIMIT, "a repeated list is too long, expected fewer items");
    if (!vb__jwork(r, total / 8)) return false;
    jv *v = vb__jalloc(r, (size_t)total * sizeof(jv));
    if (v == NULL) return false;
    for (int64_t i = 0; i < n && a.l->n > 0; i++) memcpy(v + i * a.l->n, a.l->v, a.l->n * sizeof(jv));
    return vb__jv_list(r, a.t, v, (uint32_t)total, out);
}

/* Text that escape or safe made takes in other text only escaped. */
static bool escaped(jr *r, jv v, jv *out) {
    static const jargs none = {0};
    if (v.t == JV_STR && v.s->markup) {
        *out = v;
        return true;
    }
    return vb__jfilter_call(r, vb__jfilter_find("escape", 6), v, &none, out);
}

static bool add(jr *r, jv a, jv b, jv *out) {
    if (a.t == JV_STR && b.t == JV_STR) {
        if (a.s->markup || b.s->markup) {
            if (!escaped(r, a, &a) || !escaped(r, b, &b) || !vb__jstr_concat(r, a.s, b.s, out)) return false;
            ((jstr *)out->s)->markup = true;
            return true;
        }
        return vb__jstr_concat(r, a.s, b.s, out);
    }
    if (a.t == b.t && (a.t == JV_LIST || a.t == JV_TUPLE)) {
        size_t n = (size_t)a.l->n + b.l->n;
        if (n > (1 << 26)) return vb__jerr_code(r, VB_E_LIMIT, "a list is too long, expected fewer items");
        jv *v = vb__jalloc(r, n * sizeof(jv));
        if (v == NULL || !vb__jwork(r, 1 + (int64_t)n / 8)) return false;
        if (a.l->n != 0) memcpy(v, a.l->v, a.l->n * sizeof(jv));
        if (b.l->n != 0) memcpy(v + a.l->n, b.l->v, b.l->n * sizeof(jv));
        return vb__jv_list(r, a.t, v, (uint32_t)n, out);
    }
    return bad_operands(r, OP_ADD, a, b);
}

bool vb__jop_binary(jr *r, jop op, jv a, jv b, jv *out) {
    if (is_number(a) && is_number(b)) {
        if (is_int(a) && is_int(b)) return int_op(r, op, int_of(a), int_of(b), out);
        return float_op(r, op, float_of(a), float_of(b), out);
    }
    if (op == OP_ADD) return add(r, a, b, out);
    if (op == OP_MUL) {
        if (is_int(b) && (a.t == JV_STR || a.t == JV_LIST || a.t == JV_TUPLE))
            return repeat(r, a, int_of(b), out);
        if (is_int(a) && (b.t == JV_STR || b.t == JV_LIST || b.t == JV_TUPLE))
            return repeat(r, b, int_of(a), out);
    }
    if (op == OP_MOD && a.t == JV_STR && a.s->markup)
        return vb__jerr_code(r, VB_E_UNSUPPORTED,
                             "formatting escaped text is not supported, expected plain text");
    if (op == OP_MOD && a.t == JV_STR) return vb__jformat_percent(r, a.s, b, out);
    return bad_operands(r, op, a, b);
}

bool vb__jop_compare(jr *r, jop op, jv a, jv b, bool *out) {
    int c;
    switch (op) {
    case OP_EQ: return vb__jv_equal(r, a, b, out);
    case OP_NE:
        if (!vb__jv_equal(r, a, b, out)) return false;
        *out = !*out;
        return true;
    case OP_IN: return vb__jv_contains(r, a, b, out);
    case OP_NOTIN:
        if (!vb__jv_contains(r, a, b, out)) return false;
        *out = !*out;
        return true;
    default: break;
    }
    if (!vb__jv_compare(r, a, b, op_text[op], &c)) return false;
    *out = c != 2 && (op == OP_LT ? c < 0 : op == OP_LE ? c <= 0 : op == OP_GT ? c > 0 : c >= 0);
    return true;
}

bool vb__jop_negate(jr *r, jv a, bool plus, jv *out) {
    if (a.t == JV_FLOAT) {
        *out = vb__jv_float(plus ? a.f : -a.f);
        return true;
    }
    if (is_int(a)) {
        int64_t v = int_of(a);
        if (!plus && __builtin_sub_overflow((int64_t)0, v, &v)) return too_large(r);
        *out = vb__jv_int(v);
        return true;
    }
    if (a.t == JV_UNDEF) return vb__jerr_undef(r, a);
    return vb__jerr(r, "bad operand type for unary %c: '%s', expected a number", plus ? '+' : '-',
                    vb__jv_type_name(a));
}

/* ---- attributes and items ---- */

/* Values behind a dot that are no methods. */
static bool plain_attr(jr *r, jv obj, const jstr *name, jv *out, bool *found) {
    *found = true;
    switch (obj.t) {
    case JV_NAMESPACE: {
        const jv *v = vb__jdict_text(obj.d, name->s, name->len);
        if (v != NULL) *out = *v;
        *found = v != NULL;
        return true;
    }
    case JV_LOOP: return vb__jloop_attr(r, obj.loop, name, out, found);
    case JV_CYCLER:
        *found = vb__jstr_same(name, "current");
        if (*found) *out = obj.cy->items->v[obj.cy->pos];
        return true;
    case JV_RANGE:
        if (vb__jstr_same(name, "start")) *out = vb__jv_int(obj.r->start);
        else if (vb__jstr_same(name, "stop")) *out = vb__jv_int(obj.r->stop);
        else if (vb__jstr_same(name, "step")) *out = vb__jv_int(obj.r->step);
        else *found = false;
        return true;
    case JV_BOOL:
    case JV_INT:
        if (vb__jstr_same(name, "real") || vb__jstr_same(name, "numerator")) *out = vb__jv_int(int_of(obj));
        else if (vb__jstr_same(name, "imag")) *out = vb__jv_int(0);
        else if (vb__jstr_same(name, "denominator")) *out = vb__jv_int(1);
        else *found = false;
        return true;
    case JV_FLOAT:
        if (vb__jstr_same(name, "real")) *out = obj;
        else if (vb__jstr_same(name, "imag")) *out = vb__jv_float(0.0);
        else *found = false;
        return true;
    case JV_TUPLE:
        *found = obj.l->group && (vb__jstr_same(name, "grouper") || vb__jstr_same(name, "list"));
        if (*found) *out = obj.l->v[vb__jstr_same(name, "list")];
        return true;
    case JV_MACRO: {
        const jast *n = obj.m->node;
        if (vb__jstr_same(name, "name")) *out = n->type == N_MACRO ? n->v : vb__jv_none();
        else if (vb__jstr_same(name, "arguments"))
            return vb__jv_list(r, JV_TUPLE, n->params->names, n->params->n, out);
        else if (vb__jstr_same(name, "caller")) *out = vb__jv_bool(n->params->caller);
        else if (vb__jstr_same(name, "catch_kwargs")) *out = vb__jv_bool(n->params->kwargs);
        else if (vb__jstr_same(name, "catch_varargs")) *out = vb__jv_bool(n->params->varargs);
        else *found = false;
        return true;
    }
    default: *found = false; return true;
    }
}

/* A method of obj as a value. */
static bool method_attr(jr *r, jv obj, const jstr *name, uint32_t id, jv *out, bool *found) {
    *found = false;
    if (id == M_NONE) return true;
    switch (vb__jmethod_on(obj, id)) {
    case JM_OK: {
        jmethod *m = vb__jalloc(r, sizeof(*m));
        if (m == NULL) return false;
        *m = (jmethod){obj, (uint16_t)id};
        *out = (jv){.t = JV_METHOD, .me = m};
        *found = true;
        return true;
    }
    case JM_UNSAFE: {
        jv key;
        *found = true;
        return vb__jstr_borrow(r, name->s, name->len, true, &key) &&
               vb__jv_undef(r, JU_UNSAFE, obj.t, key, out);
    }
    default: return true;
    }
}

/* obj[key] where that exists. */
static bool plain_item(jr *r, jv obj, jv key, jv *out, bool *found) {
    *found = false;
    int64_t i, n;
    switch (obj.t) {
    case JV_DICT:
        if (key.t == JV_LIST || key.t == JV_DICT) return true;
        return vb__jdict_get(r, obj.d, key, out, found);
    case JV_NAMESPACE: return true;
    case JV_STR:
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE:
        if (!is_int(key)) return true;
        if (!vb__jv_len(r, obj, &n)) return false;
        i = int_of(key);
        if (i < 0) i += n;
        if (i < 0 || i >= n) return true;
        *found = true;
        if (obj.t == JV_RANGE) {
            *out = vb__jv_int((int64_t)((uint64_t)obj.r->start + (uint64_t)obj.r->step * (uint64_t)i));
        } else if (obj.t == JV_STR) {
            uint32_t at = vb__jstr_offset(obj.s, (uint32_t)i), cp;
            if (!vb__jwork(r, obj.s->len == obj.s->chars ? 1 : obj.s->len / 8)) return false;
            return vb__jstr_part(r, obj.s, at, at + vb__jutf8(obj.s->s + at, obj.s->s + obj.s->len, &cp),
                                 out);
        } else {
            *out = obj.l->v[i];
        }
        return true;
    default: return true;
    }
}

static bool hidden(const jstr *name) {
    return name->len > 0 && name->s[0] == '_';
}

bool vb__jop_getattr(jr *r, jv obj, const jstr *name, uint32_t method, jv *out) {
    bool found;
    jv key;
    if (obj.t == JV_UNDEF) return vb__jerr_undef(r, obj);
    if (!hidden(name)) {
        if (!plain_attr(r, obj, name, out, &found)) return false;
        if (found) return true;
        if (!method_attr(r, obj, name, method, out, &found)) return false;
        if (found) return true;
    }
    if (obj.t == JV_DICT) {
        const jv *v = vb__jdict_text(obj.d, name->s, name->len);
        if (v != NULL) {
            *out = *v;
            return true;
        }
    }
    return vb__jstr_borrow(r, name->s, name->len, true, &key) && vb__jv_undef(r, JU_ATTR, obj.t, key, out);
}

bool vb__jop_getitem(jr *r, jv obj, jv key, jv *out) {
    bool found;
    if (obj.t == JV_UNDEF) return vb__jerr_undef(r, obj);
    if (!plain_item(r, obj, key, out, &found)) return false;
    if (found) return true;
    if (key.t == JV_STR) {
        if (obj.t == JV_DICT || !hidden(key.s)) {
            uint32_t id = hidden(key.s) ? M_NONE : vb__jmethod_find(key.s->s, key.s->len);
            if (!hidden(key.s) && !plain_attr(r, obj, key.s, out, &found)) return false;
            if (found) return true;
            if (!method_attr(r, obj, key.s, id, out, &found)) return false;
            if (found) return true;
        }
        return vb__jv_undef(r, JU_ATTR, obj.t, key, out);
    }
    return vb__jv_undef(r, JU_ELEMENT, obj.t, key, out);
}

bool vb__jop_attr_path(jr *r, jv obj, jv path, jv def, jv *out) {
    *out = obj;
    if (path.t != JV_STR) return vb__jop_getitem(r, obj, path, out);
    const char *p = path.s->s, *end = p + path.s->len;
    for (;;) {
        const char *q = memchr(p, '.', (size_t)(end - p));
        if (q == NULL) q = end;
        bool digits = q > p;
        int64_t i = 0;
        for (const char *c = p; c < q; c++) {
            digits = digits && *c >= '0' && *c <= '9' && i < 100000000;
            if (digits) i = i * 10 + (*c - '0');
        }
        jv key;
        if (digits) key = vb__jv_int(i);
        else if (!vb__jstr_borrow(r, p, (size_t)(q - p), true, &key)) return false;
        if (!vb__jwork(r, 2) || !vb__jop_getitem(r, *out, key, out)) return false;
        if (out->t == JV_UNDEF && def.t != JV_ABSENT && def.t != JV_NONE) *out = def;
        if (q == end) return true;
        p = q + 1;
    }
}

/* ---- slices ---- */

static bool slice_index(jr *r, jv v, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (v.t == JV_ABSENT || v.t == JV_NONE) return true;
    if (v.t == JV_UNDEF) return vb__jerr_undef(r, v);
    if (!is_int(v))
        return vb__jerr(r, "a slice index is %s, expected an integer or none", vb__jv_type_name(v));
    *out = int_of(v);
    return true;
}

static int64_t clamp(int64_t i, int64_t n, int64_t lo, int64_t hi) {
    if (i < 0) i = i < -n ? -1 : i + n; /* below the start */
    return i < lo ? lo : i > hi ? hi : i;
}

static bool slice_text(jr *r, const jstr *s, int64_t start, int64_t step, int64_t count, jv *out) {
    if (!vb__jwork(r, s->chars == s->len ? 1 : s->len / 8)) return false;
    if (step == 1) {
        uint32_t from = vb__jstr_offset(s, (uint32_t)start),
                 to = vb__jstr_offset(s, (uint32_t)(start + count));
        return vb__jstr_part(r, s, from, to, out);
    }
    jsb b;
    vb__jsb_init(r, &b);
    bool ascii = vb__jstr_chars(s) == s->len;
    uint32_t at = count == 0 ? 0 : vb__jstr_offset(s, (uint32_t)start);
    for (int64_t i = 0; i < count; i++) {
        uint32_t cp, n = vb__jutf8(s->s + at, s->s + s->len, &cp);
        if (!vb__jsb_put_part(&b, s, at, at + n)) return false;
        if (i + 1 == count) break;
        if (ascii) {
            at = (uint32_t)((int64_t)at + step);
            continue;
        }
        for (int64_t k = step < 0 ? -step : step; k > 0; k--) {
            if (step > 0) at += vb__jutf8(s->s + at, s->s + s->len, &cp);
            else
                for (at--; ((unsigned char)s->s[at] & 0xc0) == 0x80; at--) {}
        }
    }
    return vb__jsb_take(&b, out);
}

bool vb__jop_slice(jr *r, jv obj, jv vstart, jv vstop, jv vstep, jv *out) {
    int64_t n, start, stop, step;
    if (obj.t == JV_UNDEF) return vb__jerr_undef(r, obj);
    if (obj.t != JV_STR && obj.t != JV_LIST && obj.t != JV_TUPLE && obj.t != JV_RANGE)
        return vb__jerr(r, "a slice of '%s', expected a text or a list", vb__jv_type_name(obj));
    if (!vb__jv_len(r, obj, &n) || !slice_index(r, vstep, 1, &step)) return false;
    if (step == 0) return vb__jerr(r, "slice step cannot be zero, expected another number");
    if (step < -INT32_MAX) step = -INT32_MAX;
    if (step > INT32_MAX) step = INT32_MAX;
    if (!slice_index(r, vstart, step > 0 ? 0 : n - 1, &start) ||
        !slice_index(r, vstop, step > 0 ? n : -n - 1, &stop))
        return false;
    start = step > 0 ? clamp(start, n, 0, n) : clamp(start, n, -1, n - 1);
    stop = step > 0 ? clamp(stop, n, 0, n) : clamp(stop, n, -1, n - 1);
    int64_t count = step > 0 ? (stop > start ? (stop - start + step - 1) / step : 0)
                             : (start > stop ? (start - stop - step - 1) / -step : 0);
    if (count == 0) start = 0;
    if (obj.t == JV_STR) return slice_text(r, obj.s, start, step, count, out);
    if (obj.t == JV_RANGE) {
        jrange *x = vb__jalloc(r, sizeof(*x));
        if (x == NULL) return false;
        uint64_t first = (uint64_t)obj.r->start + (uint64_t)obj.r->step * (uint64_t)start;
        uint64_t by = (uint64_t)obj.r->step * (uint64_t)step; /* what would overflow is never read */
        *x = (jrange){(int64_t)first, (int64_t)by, (int64_t)(first + by * (uint64_t)count), count};
        *out = (jv){.t = JV_RANGE, .r = x};
        return true;
    }
    if (step == 1) return vb__jv_list(r, obj.t, obj.l->v + start, (uint32_t)count, out);
    jv *v = vb__jalloc(r, (size_t)count * sizeof(jv));
    if (v == NULL || !vb__jwork(r, count / 4)) return false;
    for (int64_t i = 0; i < count; i++) v[i] = obj.l->v[start + i * step];
    return vb__jv_list(r, obj.t, v, (uint32_t)count, out);
}
