#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/text_regex.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include <pcre2.h>
#include <stdint.h>
#include <string.h>

enum { PATTERN_MAX = 64 << 10, TRANSLATED_MAX = 1 << 20, JIT_STACK_MAX = 8 << 20, HEAP_KIB = 64 << 10 };
enum { STEPS = 20000000 };

struct vb__regex {
    pcre2_code *code;
    char *translated;
    bool jit;
};

/* White_Space, and its complement; both as the inside of a class. */
#define SPACES                                                                                               \
    "\\t-\\r\\x20\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define NO_SPACES                                                                                            \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}\\x{21}-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}"          \
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{10FFFF}"
#define WORDS                                                                                                \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{"     \
    "1F170}-\\x{1F189}"
#define HEX "0-9A-Fa-f"

/* Long names of categories, which PCRE2 does not know. */
static const char *const property_names[][2] = {
    {"letter", "L"},
    {"mark", "M"},
    {"number", "N"},
    {"punctuation", "P"},
    {"punct", "P"},
    {"symbol", "S"},
    {"separator", "Z"},
    {"other", "C"},
    {"alpha", "Alphabetic"},
    {"digit", "Nd"},
    {"decimalnumber", "Nd"},
    {"lower", "Lowercase"},
    {"upper", "Uppercase"},
    {"space", "White_Space"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"control", "Cc"},
    {"cntrl", "Cc"},
};

static vb_err unsupported(vb_error *err, const char *what, const char *name, size_t at) {
    return vb__fail(err, VB_E_UNSUPPORTED, "%s: %s at byte %zu of the regular expression is not supported",
                    what, name, at);
}

/* \p{Name} or \pX at p[i] ('p' or 'P'); returns the index behind it, 0 when malformed. */
static size_t put_property(vb__buffer *b, const char *p, size_t n, size_t i) {
    if (i + 1 >= n) return 0;
    if (p[i + 1] != '{') {
        (void)vb__buffer_printf(b, "\\%c%c", p[i], p[i + 1]);
        return i + 2;
    }
    const char *close = memchr(p + i, '}', n - i);
    if (close == NULL || (size_t)(close - p) - i > 48) return 0;
    size_t end = (size_t)(close - p), from = i + 2;
    bool negated = from < end && p[from] == '^';
    char plain[64];
    size_t k = 0;
    for (size_t j = from + negated; j < end; j++)
        if (p[j] != '_' && p[j] != ' ' && p[j] != '-')
            plain[k++] = (char)(p[j] >= 'A' && p[j] <= 'Z' ? p[j] + 32 : p[j]);
    plain[k] = '\0';
    const char *name = NULL;
    for (size_t j = 0; j < sizeof property_names / sizeof *property_names; j++)
        if (strcmp(plain, property_names[j][0]) == 0) name = property_names[j][1];
    (void)vb__buffer_printf(b, "\\%c{%s", p[i], negated ? "^" : "");
    if (name != NULL) (void)vb__buffer_puts(b, name);
    else (void)vb__buffer_append(b, p + from + negated, end - from - negated);
    (void)vb__buffer_putc(b, '}');
    return end + 1;
}

/* The escape at p[i] ('\\'); *next is set to the index behind it. */
static vb_err put_escape(vb__buffer *b, const char *p, size_t n, size_t i, bool in_class, size_t *next,
                         const char *what, vb_error *err) {
    if (i + 1 >= n) return vb__fail(err, VB_E_FORMAT, "%s: the regular expression ends in a backslash", what);
    char c = p[i + 1];
    *next = i + 2;
    const char *text = NULL;
    switch (c) {
    case 's': text = in_class ? SPACES : "[" SPACES "]"; break;
    case 'S': text = in_class ? NO_SPACES : "[^" SPACES "]"; break;
    case 'w': text = in_class ? WORDS : "[" WORDS "]"; break;
    case 'W':
        if (in_class) return unsupported(err, what, "\\W inside a class", i);
        text = "[^" WORDS "]";
        break;
    case 'h': text = in_class ? HEX : "[" HEX "]"; break;
    case 'H':
        if (in_class) return unsupported(err, what, "\\H inside a class", i);
        text = "[^" HEX "]";
        break;
    case 'b':
        if (!in_class) text = "(?:(?<=[" WORDS "])(?![" WORDS "])|(?<![" WORDS "])(?=[" WORDS "]))";
        break;
    case 'B':
        if (!in_class) text = "(?:(?<=[" WORDS "])(?=[" WORDS "])|(?<![" WORDS "])(?![" WORDS "]))";
        break;
    case 'v': text = "\\x0B"; break;
    case 'C':
    case 'g':
    case 'k': return unsupported(err, what, "a sub-expression call or reference", i);
    case 'u': {
        if (i + 6 > n || strspn(p + i + 2, "0123456789abcdefABCDEF") < 4)
            return vb__fail(err, VB_E_FORMAT,
                            "%s: \\u at byte %zu of the regular expression needs 4 hex digits", what, i);
        (void)vb__buffer_printf(b, "\\x{%.4s}", p + i + 2);
        *next = i + 6;
        return VB_OK;
    }
    case 'p':
    case 'P':
        *next = put_property(b, p, n, i + 1);
        if (*next == 0)
            return vb__fail(err, VB_E_FORMAT, "%s: malformed \\p at byte %zu of the regular expression", what,
                            i);
        return VB_OK;
    default: break;
    }
    if (text != NULL) (void)vb__buffer_puts(b, text);
    else (void)vb__buffer_append(b, p + i, 2);
    return VB_OK;
}

static vb_err translate(const char *p, size_t n, vb__buffer *b, const char *what, vb_error *err) {
    int in_class = 0; /* depth: a class inside a class adds its items */
    for (size_t i = 0; i < n;) {
        char c = p[i];
        if (c == '\\') {
            VB_TRY(put_escape(b, p, n, i, in_class > 0, &i, what, err));
        } else if (in_class == 0) {
            (void)vb__buffer_putc(b, c);
            i++;
            if (c == '[') {
                in_class = 1;
                if (i < n && p[i] == '^') (void)vb__buffer_putc(b, p[i++]);
                if (i < n && p[i] == ']') { /* a bracket in first place is a character */
                    (void)vb__buffer_puts(b, "\\]");
                    i++;
                }
            }
        } else if (c == '[') {
            const char *close = i + 1 < n && p[i + 1] == ':' ? memmem(p + i, n - i, ":]", 2) : NULL;
            if (close == NULL) {
                if (i + 1 < n && (p[i + 1] == '^' || p[i + 1] == ']'))
                    return unsupported(err, what, "a negated or empty class inside a class", i);
                in_class++;
                i++;
                continue;
            }
            size_t end = (size_t)(close - p) + 2;
            (void)vb__buffer_append(b, p + i, end - i);
            i = end;
        } else if (c == '&' && i + 1 < n && p[i + 1] == '&') {
            return unsupported(err, what, "a class intersection (&&)", i);
        } else {
            i++;
            if (c == ']' && --in_class > 0) continue;
            (void)vb__buffer_putc(b, c);
        }
    }
    return b->error;
}

vb_err vb__regex_create(const char *pattern, size_t len, const char *what, vb__regex **out, vb_error *err) {
    if (len > PATTERN_MAX)
        return vb__fail(err, VB_E_LIMIT, "%s: the regular expression has %zu bytes, expected at most %d",
                        what, len, PATTERN_MAX);
    vb__buffer b;
    vb__buffer_init(&b, TRANSLATED_MAX);
    vb__regex *r = vb__calloc(VB_TAG_TEXT, 1, sizeof *r);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    vb_err e = r == NULL || context == NULL ? vb__fail(err, VB_E_MEMORY, "%s: out of memory", what) : VB_OK;
    if (e != VB_OK) goto out;
    VB_TRY_OUT(translate(pattern, len, &b, what, err));
    size_t n = b.len;
    r->translated = vb__buffer_take(&b);
    if (r->translated == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "%s: out of memory", what);
        goto out;
    }
    (void)pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    int code;
    PCRE2_SIZE at;
    r->code =
        pcre2_compile((PCRE2_SPTR)r->translated, n,
                      PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &code, &at, context);
    if (r->code == NULL) {
        PCRE2_UCHAR text[160];
        (void)pcre2_get_error_message(code, text, sizeof text);
        e = vb__fail(err, VB_E_FORMAT, "%s: regular expression, byte %zu after translation: %s", what,
                     (size_t)at, (const char *)text);
        goto out;
    }
    r->jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    *out = r;
    r = NULL;
out:
    pcre2_compile_context_free(context);
    vb__buffer_fini(&b);
    vb__regex_destroy(r);
    return e;
}

void vb__regex_destroy(vb__regex *r) {
    if (r == NULL) return;
    pcre2_code_free(r->code);
    vb__free(r->translated);
    vb__free(r);
}

const char *vb__regex_translated(const vb__regex *r) { return r->translated; }

void vb__regex_scratch_fini(vb__regex_scratch *s) {
    pcre2_match_data_free(s->match_data);
    pcre2_match_context_free(s->match_context);
    pcre2_jit_stack_free(s->jit_stack);
    *s = (vb__regex_scratch){0};
}

static vb_err scratch_init(vb__regex_scratch *s) {
    if (s->match_data == NULL) s->match_data = pcre2_match_data_create(1, NULL);
    if (s->match_context == NULL) s->match_context = pcre2_match_context_create(NULL);
    if (s->jit_stack == NULL) s->jit_stack = pcre2_jit_stack_create(32 << 10, JIT_STACK_MAX, NULL);
    if (s->match_data == NULL || s->match_context == NULL || s->jit_stack == NULL) return VB_E_MEMORY;
    pcre2_jit_stack_assign(s->match_context, NULL, s->jit_stack);
    (void)pcre2_set_match_limit(s->match_context, STEPS);
    (void)pcre2_set_heap_limit(s->match_context, HEAP_KIB);
    return VB_OK;
}

vb_err vb__regex_find(const vb__regex *r, vb__regex_scratch *s, const char *text, size_t len, size_t from,
                      bool *found, size_t *begin, size_t *end, vb_error *err) {
    if (s->jit_stack == NULL && scratch_init(s) != VB_OK)
        return vb__fail(err, VB_E_MEMORY, "regular expression: out of memory");
    int rc = PCRE2_ERROR_JIT_STACKLIMIT;
    if (r->jit)
        rc = pcre2_jit_match(r->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK, s->match_data,
                             s->match_context);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter keeps its stack on the heap */
        rc = pcre2_match(r->code, (PCRE2_SPTR)text, len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         s->match_data, s->match_context);
    if (rc == PCRE2_ERROR_NOMATCH) {
        *found = false;
        return VB_OK;
    }
    if (rc < 0)
        return vb__fail(err, rc == PCRE2_ERROR_NOMEMORY ? VB_E_MEMORY : VB_E_LIMIT,
                        "regular expression: gave up at byte %zu of a text of %zu (PCRE2 error %d)", from,
                        len, rc);
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->match_data);
    *found = true;
    *begin = v[0];
    *end = v[1] < v[0] ? v[0] : v[1];
    return VB_OK;
}
