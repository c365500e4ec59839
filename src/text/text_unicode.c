#include "text/text_unicode.h"
#include "base/alloc.h"
#include <string.h>
#include <utf8proc.h>

/* ---- text with origins ---- */

void vb__textbuf_init(vb__textbuf *b, size_t max) { *b = (vb__textbuf){.max = max}; }

void vb__textbuf_fini(vb__textbuf *b) {
    vb__free(b->data);
    vb__free(b->user);
    *b = (vb__textbuf){.max = b->max};
}

void vb__textbuf_clear(vb__textbuf *b, bool track) {
    b->len = 0;
    if (track != b->track) { /* the next reserve allocates both parts anew */
        vb__free(b->data);
        vb__free(b->user);
        b->data = NULL;
        b->user = NULL;
        b->cap = 0;
        b->track = track;
    }
}

vb_err vb__textbuf_reserve(vb__textbuf *b, size_t more) {
    if (more > b->max || b->len > b->max - more) return VB_E_LIMIT;
    size_t need = b->len + more;
    if (need <= b->cap && b->data != NULL) return VB_OK;
    size_t cap = b->cap < 256 ? 256 : b->cap * 2;
    if (cap < need) cap = need;
    char *data = vb__realloc_array(VB_TAG_TEXT, b->data, cap, 1);
    if (data == NULL) return VB_E_MEMORY;
    b->data = data;
    if (b->track) {
        uint8_t *user = vb__realloc_array(VB_TAG_TEXT, b->user, cap, 1);
        if (user == NULL) return VB_E_MEMORY;
        b->user = user;
    }
    b->cap = cap;
    return VB_OK;
}

vb_err vb__textbuf_put(vb__textbuf *b, const char *s, size_t n, bool user) {
    VB_TRY(vb__textbuf_reserve(b, n));
    if (n == 0) return VB_OK;
    memcpy(b->data + b->len, s, n);
    if (b->track) memset(b->user + b->len, user, n);
    b->len += n;
    return VB_OK;
}

vb_err vb__textbuf_copy(vb__textbuf *b, const char *s, size_t n, const uint8_t *origins) {
    if (origins == NULL || !b->track) return vb__textbuf_put(b, s, n, false);
    VB_TRY(vb__textbuf_reserve(b, n));
    if (n == 0) return VB_OK;
    memcpy(b->data + b->len, s, n);
    memcpy(b->user + b->len, origins, n);
    b->len += n;
    return VB_OK;
}

/* ---- UTF-8 ---- */

static size_t skip_ascii(const char *s, size_t n, size_t i) {
    while (i + 8 <= n) {
        uint64_t w;
        memcpy(&w, s + i, 8);
        w &= 0x8080808080808080u;
        if (w != 0) return i + (size_t)__builtin_ctzll(w) / 8;
        i += 8;
    }
    while (i < n && (unsigned char)s[i] < 0x80) i++;
    return i;
}

size_t vb__utf8_check(const char *s, size_t n) {
    const unsigned char *p = (const unsigned char *)s;
    for (size_t i = skip_ascii(s, n, 0); i < n; i = skip_ascii(s, n, i)) {
        unsigned c = p[i], low = 0x80, high = 0xbf;
        size_t more;
        if (c >= 0xc2 && c <= 0xdf) more = 1;
        else if (c >= 0xe0 && c <= 0xef)
            more = 2, low = c == 0xe0 ? 0xa0 : 0x80, high = c == 0xed ? 0x9f : 0xbf;
        else if (c >= 0xf0 && c <= 0xf4)
            more = 3, low = c == 0xf0 ? 0x90 : 0x80, high = c == 0xf4 ? 0x8f : 0xbf;
        else return i;
        if (more >= n - i || p[i + 1] < low || p[i + 1] > high) return i;
        for (size_t k = 2; k <= more; k++)
            if ((p[i + k] & 0xc0) != 0x80) return i;
        i += more + 1;
    }
    return n;
}

size_t vb__utf8_put(char out[4], uint32_t c) {
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xf0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

/* ---- classes ---- */

bool vb__char_is_space(uint32_t c) {
    if (c < 0x80) return c == ' ' || (c >= 9 && c <= 13);
    return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
           c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool vb__char_is_numeric(uint32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

bool vb__char_is_digit(uint32_t c) {
    if (c < 0x80) return c >= '0' && c <= '9';
    return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
}

bool vb__char_is_punct(uint32_t c) {
    if (c < 0x80)
        return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) || (c >= 123 && c <= 126);
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_PC && k <= UTF8PROC_CATEGORY_PO;
}

bool vb__char_is_word(uint32_t c) {
    if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z');
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
    }
    /* Symbols with the property Alphabetic, and the joiners. */
    return (c >= 0x24b6 && c <= 0x24e9) || (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
           (c >= 0x1f170 && c <= 0x1f189) || c == 0x200c || c == 0x200d;
}

int vb__char_lower(uint32_t c, uint32_t out[2]) {
    if (c < 0x80) {
        out[0] = c >= 'A' && c <= 'Z' ? c + 32 : c;
        return 1;
    }
    if (c == 0x130) { /* the one character whose lower case is two */
        out[0] = 'i';
        out[1] = 0x307;
        return 2;
    }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

/* ---- normal forms ---- */

void vb__nf_work_fini(vb__nf_work *w) {
    vb__free(w->chars);
    *w = (vb__nf_work){0};
}

/* Characters that NFC leaves alone and that never combine with one before them. Only a filter for speed: what
 * it does not name takes the full path. */
static bool nfc_inert(uint32_t c) {
    return c < 0x300 || (c >= 0x400 && c <= 0x482) || (c >= 0x48a && c <= 0x52f) ||
           (c >= 0x5d0 && c <= 0x5ea) || (c >= 0x620 && c <= 0x64a) || (c >= 0x2010 && c <= 0x205e) ||
           (c >= 0x20a0 && c <= 0x20bf) || (c >= 0x2190 && c <= 0x22ff) || (c >= 0x2500 && c <= 0x2adb) ||
           (c >= 0x3001 && c <= 0x3029) || (c >= 0x3041 && c <= 0x3096) || (c >= 0x30a0 && c <= 0x30fe) ||
           (c >= 0x3400 && c <= 0x9fff) || (c >= 0xac00 && c <= 0xd7a3) || (c >= 0xe000 && c <= 0xf8ff) ||
           (c >= 0xff01 && c <= 0xffef) || (c >= 0x1f300 && c <= 0x1faff);
}

/* The end of the stretch that has to be normalised together, which begins at the non-ASCII character s[i]:
 * ASCII characters never combine with what stands before them. */
static size_t run_end(vb__nf kind, const char *s, size_t n, size_t i, bool *inert) {
    *inert = kind == VB_NFC;
    while (i < n && (unsigned char)s[i] >= 0x80) {
        uint32_t c = vb__utf8_next(s, n, &i);
        if (*inert && !nfc_inert(c)) *inert = false;
    }
    return i;
}

static vb_err work_reserve(vb__nf_work *w, size_t need) {
    if (need <= w->cap) return VB_OK;
    size_t cap = w->cap * 2 > need ? w->cap * 2 : need + 64;
    int32_t *p = vb__realloc_array(VB_TAG_TEXT, w->chars, cap, sizeof *p);
    if (p == NULL) return VB_E_MEMORY;
    w->chars = p;
    w->cap = cap;
    return VB_OK;
}

/* The stock library normalises by the tables of Unicode 9, and models were trained on what it gives. Marks
 * that came later have combining class 0 there, and characters that came later have no decomposition. */
typedef struct range {
    int32_t first, last;
} range;
static const range late_marks[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
    {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1ace},   {0x1df6, 0x1dfa},
    {0xa82c, 0xa82c},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e}, {0x11839, 0x1183a},
    {0x1193d, 0x1193e}, {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47},
    {0x11a99, 0x11a99}, {0x11d42, 0x11d42}, {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42},
    {0x16ff0, 0x16ff1}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef},
};
/* Marks of any combining class that came later (the gaps between them hold none), for StripAccents. */
static const range late_accents[] = {
    {0x7fd, 0x7fd}, {0x898, 0x8d3}, {0x9fe, 0x9fe}, {0xafa, 0xaff}, {0xb55, 0xb55}, {0xc04, 0xc3c},
    {0xcf3, 0xd00}, {0xd3b, 0xd3c}, {0xd81, 0xd81}, {0xeba, 0xeba}, {0xece, 0xece}, {0x1715, 0x1715},
    {0x180f, 0x180f}, {0x1abf, 0x1ace}, {0x1cf7, 0x1cf7}, {0x1df6, 0x1dfa}, {0xa82c, 0xa82c},
    {0xa8ff, 0xa8ff}, {0x10d24, 0x10f85}, {0x11070, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146},
    {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x1182c, 0x11a99}, {0x11d31, 0x11f42}, {0x13440, 0x13455}, {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87},
    {0x16fe4, 0x16ff1}, {0x1cf00, 0x1cf46}, {0x1e08f, 0x1e4ef},
};
static const range late_decompositions[] = {
    {0x32ff, 0x32ff},   {0xa7f2, 0xa7f4},   {0xab69, 0xab69},   {0x10781, 0x10785}, {0x10787, 0x107b0},
    {0x107b2, 0x107ba}, {0x11938, 0x11938}, {0x1e030, 0x1e06d}, {0x1f16c, 0x1f16c}, {0x1fbf0, 0x1fbf9},
};

static bool in_ranges(const range *r, size_t n, int32_t c) {
    size_t a = 0;
    while (a < n) {
        size_t m = (a + n) / 2;
        if (c > r[m].last) a = m + 1;
        else n = m;
    }
    return r[a].first <= c && c <= r[a].last;
}

static bool is_late_mark(int32_t c) {
    return c >= late_marks[0].first && c <= 0x1e4ef &&
           in_ranges(late_marks, sizeof late_marks / sizeof *late_marks - 1, c);
}

static bool is_late_decomposition(int32_t c) {
    return c >= 0x32ff && c <= 0x1fbf9 &&
           in_ranges(late_decompositions, sizeof late_decompositions / sizeof *late_decompositions - 1, c);
}

bool vb__char_is_mark(uint32_t c) {
    if (c < 0x300) return false;
    if (c == 0x1cf2 || c == 0x1cf3) return true; /* letters since */
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return (k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME) &&
           (c < 0x7fd || c > 0x1e4ef ||
            !in_ranges(late_accents, sizeof late_accents / sizeof *late_accents - 1, (int32_t)c));
}

static int ccc(int32_t c) {
    int k = utf8proc_get_property(c)->combining_class;
    return k != 0 && is_late_mark(c) ? 0 : k;
}

/* Stable sort of marks by combining class: by insertion when few, else by counting, so that a long run of
 * marks costs linear time. tmp has room for n. */
static void sort_marks(int32_t *c, size_t n, int32_t *tmp) {
    if (n <= 24) {
        for (size_t i = 1; i < n; i++) {
            int32_t x = c[i];
            int k = ccc(x);
            size_t j = i;
            for (; j > 0 && ccc(c[j - 1]) > k; j--) c[j] = c[j - 1];
            c[j] = x;
        }
        return;
    }
    size_t at[257] = {0};
    for (size_t i = 0; i < n; i++) at[ccc(c[i]) + 1]++;
    for (int k = 0; k < 256; k++) at[k + 1] += at[k];
    for (size_t i = 0; i < n; i++) tmp[at[ccc(c[i])]++] = c[i];
    memcpy(c, tmp, n * sizeof *c);
}

/* Characters before which no composition reaches, where utf8proc thinks otherwise: U+11A7 stands for "no
 * final consonant", but it is taken for one and dropped; the others are newer than Unicode 9. */
static bool starts_part(int32_t c) { return c == 0x11a7 || c == 0x11930 || (c >= 0x7fd && is_late_mark(c)); }

static vb_err compose(int32_t *c, size_t *len) {
    size_t out = 0;
    for (size_t i = 0; i < *len;) {
        size_t j = i + 1;
        while (j < *len && !starts_part(c[j])) j++;
        utf8proc_ssize_t k = utf8proc_normalize_utf32(
            c + i, (utf8proc_ssize_t)(j - i), (utf8proc_option_t)(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        if (k < 0) return VB_E_INTERNAL;
        memmove(c + out, c + i, (size_t)k * sizeof *c);
        out += (size_t)k;
        i = j;
    }
    *len = out;
    return VB_OK;
}

static vb_err normalize_run(vb__nf kind, const char *s, size_t n, bool user, vb__nf_work *w,
                            vb__textbuf *out) {
    const int compat = kind == VB_NFKC || kind == VB_NFKD ? UTF8PROC_COMPAT : 0;
    size_t len = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = vb__utf8_next(s, n, &i);
        VB_TRY(work_reserve(w, len + 32)); /* the longest decomposition has 18 characters */
        if (is_late_decomposition((int32_t)c)) {
            w->chars[len++] = (int32_t)c;
            continue;
        }
        int last = 0;
        utf8proc_ssize_t k = utf8proc_decompose_char(
            (utf8proc_int32_t)c, w->chars + len, 32,
            (utf8proc_option_t)(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE | compat), &last);
        if (k < 0 || k > 32) return VB_E_INTERNAL;
        len += (size_t)k;
    }
    VB_TRY(work_reserve(w, 2 * len));
    for (size_t i = 0; i < len;) {
        if (ccc(w->chars[i]) == 0) {
            i++;
            continue;
        }
        size_t j = i + 1;
        while (j < len && ccc(w->chars[j]) != 0) j++;
        sort_marks(w->chars + i, j - i, w->chars + len);
        i = j;
    }
    if (kind == VB_NFC || kind == VB_NFKC) { VB_TRY(compose(w->chars, &len)); }
    for (size_t i = 0; i < len; i++) {
        char c[4];
        VB_TRY(vb__textbuf_put(out, c, vb__utf8_put(c, (uint32_t)w->chars[i]), user));
    }
    return VB_OK;
}

/* Origins of a stretch: all of them when equal, else user data. */
static bool run_origin(const uint8_t *user, size_t a, size_t b) {
    return user != NULL && memchr(user + a, 1, b - a) != NULL;
}

vb_err vb__normalize_unicode(vb__nf kind, const char *s, size_t n, const uint8_t *user, vb__nf_work *work,
                             vb__textbuf *out, bool *changed) {
    *changed = false;
    size_t done = 0; /* bytes of s already in out, when *changed */
    for (size_t i = skip_ascii(s, n, 0); i < n; i = skip_ascii(s, n, i)) {
        bool inert;
        size_t end = run_end(kind, s, n, i, &inert);
        if (!inert) {
            size_t start = i > 0 ? i - 1 : 0; /* the ASCII character before may take the first mark */
            if (start < done) start = done;
            VB_TRY(vb__textbuf_copy(out, s + done, start - done, user == NULL ? NULL : user + done));
            VB_TRY(normalize_run(kind, s + start, end - start, run_origin(user, start, end), work, out));
            done = end;
            *changed = true;
        }
        i = end;
    }
    if (*changed) VB_TRY(vb__textbuf_copy(out, s + done, n - done, user == NULL ? NULL : user + done));
    return VB_OK;
}
