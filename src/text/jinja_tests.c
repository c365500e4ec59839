/* Tests: what stands behind `is`. */
#include "text/jinja_int.h"
#include <stdio.h>

typedef enum test_id {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_INTEGER,
    IS_FLOAT,
    IS_NUMBER,
    IS_STRING,
    IS_MAPPING,
    IS_ITERABLE,
    IS_SEQUENCE,
    IS_CALLABLE,
    IS_SAMEAS,
    IS_ODD,
    IS_EVEN,
    IS_DIVISIBLEBY,
    IS_LOWER,
    IS_UPPER,
    IS_ESCAPED,
    IS_FILTER,
    IS_TEST,
    IS_IN,
    IS_EQ,
    IS_NE,
    IS_LT,
    IS_LE,
    IS_GT,
    IS_GE,
} test_id;

static const struct {
    const char *name;
    test_id id;
    bool has_arg;
} tests[] = {
    {"defined", IS_DEFINED, false},
    {"undefined", IS_UNDEFINED, false},
    {"none", IS_NONE, false},
    {"boolean", IS_BOOLEAN, false},
    {"true", IS_TRUE, false},
    {"false", IS_FALSE, false},
    {"integer", IS_INTEGER, false},
    {"float", IS_FLOAT, false},
    {"number", IS_NUMBER, false},
    {"string", IS_STRING, false},
    {"mapping", IS_MAPPING, false},
    {"iterable", IS_ITERABLE, false},
    {"sequence", IS_SEQUENCE, false},
    {"callable", IS_CALLABLE, false},
    {"sameas", IS_SAMEAS, true},
    {"odd", IS_ODD, false},
    {"even", IS_EVEN, false},
    {"divisibleby", IS_DIVISIBLEBY, true},
    {"lower", IS_LOWER, false},
    {"upper", IS_UPPER, false},
    {"escaped", IS_ESCAPED, false},
    {"filter", IS_FILTER, false},
    {"test", IS_TEST, false},
    {"in", IS_IN, true},
    {"==", IS_EQ, true},
    {"eq", IS_EQ, true},
    {"equalto", IS_EQ, true},
    {"!=", IS_NE, true},
    {"ne", IS_NE, true},
    {"<", IS_LT, true},
    {"lt", IS_LT, true},
    {"lessthan", IS_LT, true},
    {"<=", IS_LE, true},
    {"le", IS_LE, true},
    {">", IS_GT, true},
    {"gt", IS_GT, true},
    {"greaterthan", IS_GT, true},
    {">=", IS_GE, true},
    {"ge", IS_GE, true},
};

int vb__jtest_find(const char *s, size_t n) {
    for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
        if (strlen(tests[i].name) == n && memcmp(tests[i].name, s, n) == 0) return (int)i;
    return -1;
}

static bool same_object(jv a, jv b) {
    if (a.t != b.t) return false;
    switch (a.t) {
    case JV_NONE: return true;
    case JV_BOOL: return a.b == b.b;
    case JV_INT: return a.i == b.i;
    case JV_FLOAT: return a.f == b.f;
    case JV_STR: return a.s == b.s || (a.s->len == b.s->len && memcmp(a.s->s, b.s->s, a.s->len) == 0);
    case JV_FUNC: return a.sub == b.sub;
    default: return a.p == b.p && a.sub == b.sub;
    }
}

static bool divisible(jr *r, jv v, jv by, bool *out) {
    jv rest;
    if (!vb__jop_binary(r, OP_MOD, v, by, &rest)) return false;
    return vb__jv_equal(r, rest, vb__jv_int(0), out);
}

static bool compare(jr *r, test_id id, jv v, jv arg, bool *out) {
    static const jop ops[] = {OP_EQ, OP_NE, OP_LT, OP_LE, OP_GT, OP_GE};
    return vb__jop_compare(r, ops[id - IS_EQ], v, arg, out);
}

static bool text_case(jr *r, jv v, uint32_t method, bool *out) {
    static const jargs none = {0};
    jv s, b;
    if (!vb__jv_str(r, v, &s) || !vb__jstr_method(r, s.s, method, &none, &b)) return false;
    *out = b.b;
    return true;
}

bool vb__jtest_call(jr *r, int test, jv v, const jargs *a, bool *out) {
    jv arg[1];
    test_id id = tests[test].id;
    if (!vb__jwork(r, 1) || !vb__jbind(r, tests[test].name, tests[test].has_arg ? "other" : "", a, arg))
        return false;
    switch (id) {
    case IS_DEFINED: *out = v.t != JV_UNDEF; return true;
    case IS_UNDEFINED: *out = v.t == JV_UNDEF; return true;
    case IS_NONE: *out = v.t == JV_NONE; return true;
    case IS_BOOLEAN: *out = v.t == JV_BOOL; return true;
    case IS_TRUE: *out = v.t == JV_BOOL && v.b; return true;
    case IS_FALSE: *out = v.t == JV_BOOL && !v.b; return true;
    case IS_INTEGER: *out = v.t == JV_INT; return true;
    case IS_FLOAT: *out = v.t == JV_FLOAT; return true;
    case IS_NUMBER: *out = v.t == JV_INT || v.t == JV_FLOAT || v.t == JV_BOOL; return true;
    case IS_STRING: *out = v.t == JV_STR; return true;
    case IS_MAPPING: *out = v.t == JV_DICT; return true;
    case IS_ITERABLE:
        *out = v.t == JV_UNDEF || v.t == JV_STR || v.t == JV_LIST || v.t == JV_TUPLE || v.t == JV_DICT ||
               v.t == JV_RANGE || v.t == JV_VIEW || v.t == JV_GEN || v.t == JV_LOOP;
        return true;
    case IS_SEQUENCE:
        *out = v.t == JV_UNDEF || v.t == JV_STR || v.t == JV_LIST || v.t == JV_TUPLE || v.t == JV_DICT ||
               v.t == JV_RANGE;
        return true;
    case IS_CALLABLE:
        *out = v.t == JV_FUNC || v.t == JV_METHOD || v.t == JV_MACRO || v.t == JV_LOOP || v.t == JV_JOINER ||
               v.t == JV_UNDEF;
        return true;
    case IS_SAMEAS: *out = same_object(v, arg[0]); return true;
    case IS_ODD:
    case IS_EVEN: {
        jv rest;
        if (!vb__jop_binary(r, OP_MOD, v, vb__jv_int(2), &rest)) return false;
        return vb__jv_equal(r, rest, vb__jv_int(id == IS_ODD), out);
    }
    case IS_DIVISIBLEBY: return divisible(r, v, arg[0], out);
    case IS_LOWER: return text_case(r, v, M_islower, out);
    case IS_UPPER: return text_case(r, v, M_isupper, out);
    case IS_ESCAPED: *out = v.t == JV_STR && v.s->markup; return true;
    case IS_FILTER: *out = v.t == JV_STR && vb__jfilter_find(v.s->s, v.s->len) >= 0; return true;
    case IS_TEST: *out = v.t == JV_STR && vb__jtest_find(v.s->s, v.s->len) >= 0; return true;
    case IS_IN: return vb__jv_contains(r, v, arg[0], out);
    default: return compare(r, id, v, arg[0], out);
    }
}
