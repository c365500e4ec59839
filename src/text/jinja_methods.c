/* Methods: which type has which, and those of everything but strings. */
#include "text/jinja_int.h"
#include <math.h>
#include <stdio.h>

static const char *const names[M_COUNT] = {"",
#define NAME(name) #name,
                                           JINJA_METHODS(NAME)
#undef NAME
};

static const uint8_t lengths[M_COUNT] = {0,
#define LENGTH(name) sizeof(#name) - 1,
                                         JINJA_METHODS(LENGTH)
#undef LENGTH
};

uint32_t vb__jmethod_find(const char *s, size_t n) {
    for (uint32_t i = 1; i < M_COUNT; i++)
        if (lengths[i] == n && names[i][0] == s[0] && memcmp(names[i], s, n) == 0) return i;
    return M_NONE;
}

const char *vb__jmethod_name(uint32_t id) {
    return names[id];
}

static jmethod_is on_dict(uint32_t id) {
    switch (id) {
    case M_clear:
    case M_pop:
    case M_popitem:
    case M_setdefault:
    case M_update: return JM_UNSAFE;
    case M_copy:
    case M_fromkeys:
    case M_get:
    case M_items:
    case M_keys:
    case M_values: return JM_OK;
    default: return JM_NONE;
    }
}

static jmethod_is on_list(uint32_t id) {
    switch (id) {
    case M_append:
    case M_clear:
    case M_pop:
    case M_reverse:
    case M_insert:
    case M_sort:
    case M_extend:
    case M_remove: return JM_UNSAFE;
    case M_copy:
    case M_count:
    case M_index: return JM_OK;
    default: return JM_NONE;
    }
}

static jmethod_is on_str(uint32_t id) {
    switch (id) {
    case M_capitalize:
    case M_casefold:
    case M_center:
    case M_count:
    case M_encode:
    case M_endswith:
    case M_expandtabs:
    case M_find:
    case M_format:
    case M_format_map:
    case M_index:
    case M_isalnum:
    case M_isalpha:
    case M_isascii:
    case M_isdecimal:
    case M_isdigit:
    case M_isidentifier:
    case M_islower:
    case M_isnumeric:
    case M_isprintable:
    case M_isspace:
    case M_istitle:
    case M_isupper:
    case M_join:
    case M_ljust:
    case M_lower:
    case M_lstrip:
    case M_maketrans:
    case M_partition:
    case M_removeprefix:
    case M_removesuffix:
    case M_replace:
    case M_rfind:
    case M_rindex:
    case M_rjust:
    case M_rpartition:
    case M_rsplit:
    case M_rstrip:
    case M_split:
    case M_splitlines:
    case M_startswith:
    case M_strip:
    case M_swapcase:
    case M_title:
    case M_translate:
    case M_upper:
    case M_zfill: return JM_OK;
    default: return JM_NONE;
    }
}

jmethod_is vb__jmethod_on(jv self, uint32_t id) {
    switch (self.t) {
    case JV_STR: return on_str(id);
    case JV_DICT: return on_dict(id);
    case JV_LIST: return on_list(id);
    case JV_TUPLE:
    case JV_RANGE: return id == M_count || id == M_index ? JM_OK : JM_NONE;
    case JV_BOOL:
    case JV_INT:
        return id == M_as_integer_ratio || id == M_bit_count || id == M_bit_length || id == M_conjugate ||
                       id == M_from_bytes || id == M_to_bytes
                   ? JM_OK
                   : JM_NONE;
    case JV_FLOAT:
        return id == M_as_integer_ratio || id == M_conjugate || id == M_fromhex || id == M_hex ||
                       id == M_is_integer
                   ? JM_OK
                   : JM_NONE;
    case JV_FUNC: return self.sub == JF_DICT && id == M_fromkeys ? JM_OK : JM_NONE;
    case JV_CYCLER: return id == M_next || id == M_reset ? JM_OK : JM_NONE;
    case JV_LOOP: return id == M_cycle || id == M_changed ? JM_OK : JM_NONE;
    default: return JM_NONE;
    }
}

static bool fromkeys(jr *r, const jargs *a, jv *out) {
    jv s[2];
    jdict *d;
    jv *keys;
    uint32_t n;
    if (!vb__jbind(r, "fromkeys", "/iterable value?", a, s) || !vb__jv_collect(r, s[0], &keys, &n) ||
        !vb__jdict_new(r, n, &d))
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (!vb__jdict_set(r, d, keys[i], s[1].t == JV_ABSENT ? vb__jv_none() : s[1])) return false;
    *out = (jv){.t = JV_DICT, .d = d};
    return true;
}

static bool dict_method(jr *r, jv self, uint32_t id, const jargs *a, jv *out) {
    jv s[2];
    bool found;
    switch (id) {
    case M_get:
        if (!vb__jbind(r, "get", "/key default?", a, s) || !vb__jdict_get(r, self.d, s[0], out, &found))
            return false;
        if (!found) *out = s[1].t == JV_ABSENT ? vb__jv_none() : s[1];
        return true;
    case M_items:
    case M_keys:
    case M_values:
        if (!vb__jbind(r, names[id], "/", a, s)) return false;
        *out = (jv){.t = JV_VIEW,
                    .sub = id == M_keys     ? JVIEW_KEYS
                           : id == M_values ? JVIEW_VALUES
                                            : JVIEW_ITEMS,
                    .d = self.d};
        return true;
    case M_copy:
        if (!vb__jbind(r, "copy", "/", a, s)) return false;
        *out = self; /* nothing can change it */
        return true;
    default: return fromkeys(r, a, out);
    }
}

static bool seq_method(jr *r, jv self, uint32_t id, const jargs *a, jv *out) {
    jv s[3];
    if (id == M_copy) {
        if (!vb__jbind(r, "copy", "/", a, s)) return false;
        *out = self;
        return true;
    }
    jv *items;
    uint32_t n;
    if (!vb__jbind(r, names[id], id == M_count ? "/value" : "/value start? stop?", a, s) ||
        !vb__jv_collect(r, self, &items, &n))
        return false;
    int64_t from = 0, to = n, count = 0;
    if (id == M_index) {
        if (!vb__jarg_int(r, "index", s[1], 0, &from) || !vb__jarg_int(r, "index", s[2], n, &to))
            return false;
        if (from < 0) from = from + n < 0 ? 0 : from + n;
        if (to < 0) to += n;
        if (to > n) to = n;
    }
    for (int64_t i = from; i < to; i++) {
        bool same;
        if (!vb__jv_equal(r, items[i], s[0], &same)) return false;
        if (same && id == M_index) {
            *out = vb__jv_int(i);
            return true;
        }
        count += same;
    }
    if (id == M_index)
        return vb__jerr(r, "the value is not in the %s, expected one that is", vb__jv_type_name(self));
    *out = vb__jv_int(count);
    return true;
}

static bool number_method(jr *r, jv self, uint32_t id, const jargs *a, jv *out) {
    if (a->n != 0 || a->n_kw != 0) return vb__jerr(r, "%s() takes no arguments, expected none", names[id]);
    int64_t i = self.t == JV_BOOL ? self.b : self.t == JV_INT ? self.i : 0;
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    switch (id) {
    case M_bit_length: *out = vb__jv_int(u == 0 ? 0 : 64 - __builtin_clzll(u)); return true;
    case M_bit_count: *out = vb__jv_int(__builtin_popcountll(u)); return true;
    case M_conjugate: *out = self.t == JV_FLOAT ? self : vb__jv_int(i); return true;
    case M_is_integer: *out = vb__jv_bool(isfinite(self.f) && floor(self.f) == self.f); return true;
    case M_as_integer_ratio:
        if (self.t != JV_FLOAT) {
            jv *v = vb__jalloc(r, 2 * sizeof(jv));
            if (v == NULL) return false;
            v[0] = vb__jv_int(i);
            v[1] = vb__jv_int(1);
            return vb__jv_list(r, JV_TUPLE, v, 2, out);
        }
        break;
    default: break;
    }
    return vb__jerr_code(r, VB_E_UNSUPPORTED, "%s.%s() is not supported, expected another way",
                         vb__jv_type_name(self), names[id]);
}

static bool loop_method(jr *r, jloop *l, uint32_t id, const jargs *a, jv *out) {
    if (a->n_kw != 0) return vb__jerr(r, "loop.%s() takes no keyword arguments, expected none", names[id]);
    if (id == M_cycle) {
        if (a->n == 0) return vb__jerr(r, "no items for cycling given, expected some");
        *out = a->pos[l->index0 % a->n];
        return true;
    }
    jv now, *v = vb__jalloc(r, a->n * sizeof(jv));
    bool same = false;
    if (v == NULL) return false;
    if (a->n != 0) memcpy(v, a->pos, a->n * sizeof(jv));
    if (!vb__jv_list(r, JV_TUPLE, v, a->n, &now)) return false;
    if (l->has_changed && !vb__jv_equal(r, l->changed, now, &same)) return false;
    l->has_changed = true;
    l->changed = now;
    *out = vb__jv_bool(!same);
    return true;
}

bool vb__jmethod_call(jr *r, jv self, uint32_t id, const jargs *a, jv *out) {
    switch (self.t) {
    case JV_STR: return vb__jstr_method(r, self.s, id, a, out);
    case JV_DICT: return dict_method(r, self, id, a, out);
    case JV_LIST:
    case JV_TUPLE:
    case JV_RANGE: return seq_method(r, self, id, a, out);
    case JV_FUNC: return fromkeys(r, a, out);
    case JV_LOOP: return loop_method(r, self.loop, id, a, out);
    case JV_CYCLER:
        if (a->n != 0 || a->n_kw != 0)
            return vb__jerr(r, "%s() takes no arguments, expected none", names[id]);
        if (id == M_reset) {
            self.cy->pos = 0;
            *out = vb__jv_none();
        } else {
            *out = self.cy->items->v[self.cy->pos];
            self.cy->pos = (self.cy->pos + 1) % self.cy->items->n;
        }
        return true;
    default: return number_method(r, self, id, a, out);
    }
}
