/* Python's notions of characters: white space, letters, digits, and case with the full mappings. */
#include "text/jinja_int.h"
#include "text/jinja_unicode_tables.h"
#include <utf8proc.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static bool in_ranges(const cp_range *t, size_t n, uint32_t cp) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > t[mid].last) lo = mid + 1;
        else hi = mid;
    }
    return lo < n && cp >= t[lo].first;
}

static const full_map *find_map(const full_map *t, size_t n, uint32_t cp) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (cp > t[mid].cp) lo = mid + 1;
        else hi = mid;
    }
    return lo < n && t[lo].cp == cp ? &t[lo] : NULL;
}

static utf8proc_category_t category(uint32_t cp) {
    return utf8proc_category((utf8proc_int32_t)cp);
}

bool vb__jcp_space(uint32_t cp) {
    if (cp < 0x80) return (cp >= 9 && cp <= 13) || (cp >= 28 && cp <= 32);
    return cp == 0x85 || cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) || cp == 0x2028 ||
           cp == 0x2029 || cp == 0x202f || cp == 0x205f || cp == 0x3000;
}

bool vb__jcp_printable(uint32_t cp) {
    if (cp < 0x7f) return cp >= 0x20;
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

bool vb__jcp_alpha(uint32_t cp) {
    if (cp < 0x80) return (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
    utf8proc_category_t c = category(cp);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool vb__jcp_decimal(uint32_t cp, int *value) {
    if (cp < 0x80) {
        *value = (int)cp - '0';
        return cp >= '0' && cp <= '9';
    }
    if (category(cp) != UTF8PROC_CATEGORY_ND) return false;
    /* Runs of ten begin at the zero; a run may follow another, so count from the run's first digit. */
    uint32_t first = cp;
    while (category(first - 1) == UTF8PROC_CATEGORY_ND) first--;
    *value = (int)((cp - first) % 10);
    return true;
}

bool vb__jcp_digit(uint32_t cp) {
    int v;
    return vb__jcp_decimal(cp, &v) || in_ranges(digit_not_decimal, COUNT(digit_not_decimal), cp);
}

bool vb__jcp_numeric(uint32_t cp) {
    if (cp < 0x80) return cp >= '0' && cp <= '9';
    utf8proc_category_t c = category(cp);
    return (c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO) ||
           in_ranges(numeric_letter, COUNT(numeric_letter), cp);
}

bool vb__jcp_lower(uint32_t cp) {
    if (cp < 0x80) return cp >= 'a' && cp <= 'z';
    return category(cp) == UTF8PROC_CATEGORY_LL || in_ranges(other_lower, COUNT(other_lower), cp);
}

bool vb__jcp_upper(uint32_t cp) {
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z';
    return category(cp) == UTF8PROC_CATEGORY_LU || in_ranges(other_upper, COUNT(other_upper), cp);
}

bool vb__jcp_title(uint32_t cp) {
    return cp >= 0x80 && category(cp) == UTF8PROC_CATEGORY_LT;
}

bool vb__jcp_word(uint32_t cp) {
    return cp == '_' || vb__jcp_alpha(cp) || vb__jcp_numeric(cp);
}

static bool cased(uint32_t cp) {
    return vb__jcp_lower(cp) || vb__jcp_upper(cp) || vb__jcp_title(cp);
}

static bool case_ignorable(uint32_t cp) {
    switch (cp) {
    case 0x27:
    case 0x2e:
    case 0x3a:
    case 0xb7:
    case 0x387:
    case 0x55f:
    case 0x5f4:
    case 0x2018:
    case 0x2019:
    case 0x2024:
    case 0x2027:
    case 0xfe13:
    case 0xfe52:
    case 0xfe55:
    case 0xff07:
    case 0xff0e:
    case 0xff1a: return true;
    default: break;
    }
    switch (category(cp)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
    }
}

int vb__jcp_map(uint32_t cp, jcase to, uint32_t out[3]) {
    const full_map *m = NULL;
    if (cp < 0x80) {
        bool letter = (cp | 0x20) >= 'a' && (cp | 0x20) <= 'z';
        out[0] = !letter ? cp : to == JC_UPPER || to == JC_TITLE ? cp & ~0x20u : cp | 0x20;
        return 1;
    }
    if (to == JC_UPPER) m = find_map(full_upper, COUNT(full_upper), cp);
    if (to == JC_TITLE) m = find_map(full_title, COUNT(full_title), cp);
    if (m != NULL) {
        int n = 0;
        for (; n < 3 && m->to[n] != 0; n++) out[n] = m->to[n];
        return n;
    }
    if (to == JC_LOWER && cp == 0x130) {
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    utf8proc_int32_t c = (utf8proc_int32_t)cp;
    if (to == JC_FOLD) {
        utf8proc_int32_t buf[8];
        int last = 0;
        utf8proc_ssize_t n = utf8proc_decompose_char(c, buf, 8, UTF8PROC_CASEFOLD, &last);
        if (n < 1 || n > 3) n = 1, buf[0] = c;
        for (int i = 0; i < (int)n; i++) out[i] = (uint32_t)buf[i];
        return (int)n;
    }
    out[0] = (uint32_t)(to == JC_UPPER   ? utf8proc_toupper(c)
                        : to == JC_LOWER ? utf8proc_tolower(c)
                                         : utf8proc_totitle(c));
    return 1;
}

/* A capital sigma at `at` ends a word: a cased letter before it, none behind it, signs in between ignored. */
static bool final_sigma(const char *from, const char *at, const char *to) {
    const char *q = at;
    bool before = false;
    uint32_t cp;
    while (q > from) {
        const char *end = q;
        for (q--; q > from && ((unsigned char)*q & 0xc0) == 0x80; q--) {}
        vb__jutf8(q, end, &cp);
        if (!case_ignorable(cp)) {
            before = cased(cp);
            break;
        }
    }
    if (!before) return false;
    for (q = at + 2; q < to;) {
        q += vb__jutf8(q, to, &cp);
        if (!case_ignorable(cp)) return !cased(cp);
    }
    return true;
}

static bool put_mapped(jsb *b, const jstr *s, const char *from, const char *at, const char *to, uint32_t cp,
                       jcase c) {
    uint32_t out[3];
    bool ours = vb__jstr_ours_at(s, (uint32_t)(at - s->s));
    if (c == JC_LOWER && cp == 0x3a3) return vb__jsb_cp(b, final_sigma(from, at, to) ? 0x3c2 : 0x3c3, ours);
    int n = vb__jcp_map(cp, c, out);
    for (int i = 0; i < n; i++)
        if (!vb__jsb_cp(b, out[i], ours)) return false;
    return true;
}

bool vb__jstr_case(jsb *b, const jstr *s, uint32_t from, uint32_t to, jcase c) {
    if (!vb__jwork(b->r, (to - from) / 4)) return false;
    const char *p = s->s + from, *end = s->s + to;
    for (uint32_t cp, n; p < end; p += n) {
        n = vb__jutf8(p, end, &cp);
        if (!put_mapped(b, s, s->s + from, p, end, cp, c)) return false;
    }
    return true;
}

bool vb__jstr_swapcase(jsb *b, const jstr *s) {
    const char *p = s->s, *end = p + s->len;
    for (uint32_t cp, n; p < end; p += n) {
        n = vb__jutf8(p, end, &cp);
        bool ok = vb__jcp_upper(cp) ? put_mapped(b, s, s->s, p, end, cp, JC_LOWER)
                  : vb__jcp_lower(cp)
                      ? put_mapped(b, s, s->s, p, end, cp, JC_UPPER)
                      : vb__jsb_put_part(b, s, (uint32_t)(p - s->s), (uint32_t)(p - s->s) + n);
        if (!ok) return false;
    }
    return true;
}

bool vb__jstr_title(jsb *b, const jstr *s) {
    if (!vb__jwork(b->r, s->len / 4)) return false;
    const char *p = s->s, *end = p + s->len;
    bool inside = false;
    for (uint32_t cp, n; p < end; p += n) {
        n = vb__jutf8(p, end, &cp);
        if (!put_mapped(b, s, s->s, p, end, cp, inside ? JC_LOWER : JC_TITLE)) return false;
        inside = cased(cp);
    }
    return true;
}

bool vb__jstr_capitalize(jsb *b, const jstr *s) {
    if (!vb__jwork(b->r, s->len / 4)) return false;
    const char *p = s->s, *end = p + s->len;
    for (uint32_t cp, n; p < end; p += n) {
        n = vb__jutf8(p, end, &cp);
        if (!put_mapped(b, s, s->s, p, end, cp, p == s->s ? JC_TITLE : JC_LOWER)) return false;
    }
    return true;
}
