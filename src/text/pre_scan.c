#include "text/pre_scan.h"
#include <string.h>

/* The patterns, as they stand in the files. */
#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
static const struct {
    vb__pre_scan scan;
    const char *pattern;
} known[] = {
    {VB_SCAN_GPT2, "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {VB_SCAN_QWEN2,
     CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
    {VB_SCAN_QWEN35, CONTRACTIONS
     "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES},
    {VB_SCAN_LLAMA3,
     CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES},
};

vb__pre_scan vb__pre_scan_of(const char *pattern, size_t n) {
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strlen(known[i].pattern) == n && memcmp(known[i].pattern, pattern, n) == 0) return known[i].scan;
    return VB_SCAN_NONE;
}

const char *vb__pre_scan_pattern(size_t i) {
    return i < sizeof known / sizeof *known ? known[i].pattern : NULL;
}

enum { L = 1, N, S, P, X }; /* letter, digit, space, other ASCII, beyond ASCII */
/* clang-format off */
#define X16 X,X,X,X,X,X,X,X,X,X,X,X,X,X,X,X
static const uint8_t class_of[256] = {
    P,P,P,P,P,P,P,P,P,S,S,S,S,S,P,P, P,P,P,P,P,P,P,P,P,P,P,P,P,P,P,P,
    S,P,P,P,P,P,P,P,P,P,P,P,P,P,P,P, N,N,N,N,N,N,N,N,N,N,P,P,P,P,P,P,
    P,L,L,L,L,L,L,L,L,L,L,L,L,L,L,L, L,L,L,L,L,L,L,L,L,L,L,P,P,P,P,P,
    P,L,L,L,L,L,L,L,L,L,L,L,L,L,L,L, L,L,L,L,L,L,L,L,L,L,L,P,P,P,P,P,
    X16, X16, X16, X16, X16, X16, X16, X16,
};
/* clang-format on */

static inline int class_at(const char *t, size_t n, size_t i) {
    return i < n ? class_of[(unsigned char)t[i]] : 0;
}

static inline size_t run_of(int class, const char *t, size_t n, size_t i) {
    while (i < n && class_of[(unsigned char)t[i]] == class) i++;
    return i;
}

/* Length of the contraction at t[i] == '\'', 0 if there is none. */
static size_t contraction(const char *t, size_t n, size_t i, bool any_case) {
    if (i + 1 >= n) return 0;
    char a = t[i + 1], b = i + 2 < n ? t[i + 2] : '\0';
    if (any_case) {
        if (a >= 'A' && a <= 'Z') a = (char)(a + 32);
        if (b >= 'A' && b <= 'Z') b = (char)(b + 32);
    }
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    return (a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l') ? 3 : 0;
}

static bool newline(char c) { return c == '\n' || c == '\r'; }

/* \s*[\r\n]+ (when `lines`), \s+(?!\S), \s+ at a white space that none of the earlier alternatives takes. */
static size_t spaces(const char *t, size_t n, size_t i, bool lines) {
    size_t end = run_of(S, t, n, i);
    if (class_at(t, n, end) == X) return i;
    if (lines)
        for (size_t k = end; k > i; k--)
            if (newline(t[k - 1])) return k;
    return end == n || end - i == 1 ? end : end - 1;
}

static size_t scan_gpt2(const char *t, size_t n, size_t i) {
    if (t[i] == '\'') {
        size_t k = contraction(t, n, i, false);
        if (k != 0) return i + k;
    }
    size_t from = i + (t[i] == ' ');
    int class = class_at(t, n, from);
    if (class == X) return i;
    if (class == 0 || class == S) return spaces(t, n, i, false);
    size_t end = run_of(class, t, n, from);
    return class_at(t, n, end) == X ? i : end;
}

static size_t scan_cl100k(const char *t, size_t n, size_t i, size_t digits) {
    int class = class_of[(unsigned char)t[i]], next = class_at(t, n, i + 1);
    if (class == X) return i;
    if (class == N) {
        if (digits == 1) return i + 1;
        size_t end = i;
        while (end < i + digits && class_at(t, n, end) == N) end++;
        return end < i + digits && class_at(t, n, end) == X ? i : end;
    }
    if (t[i] == '\'') {
        if (next == X) return i; /* U+017F is an s */
        size_t k = contraction(t, n, i, true);
        if (k != 0) return i + k;
    }
    if (class == L || (next == L && !newline(t[i]))) {
        size_t end = run_of(L, t, n, i + 1);
        return class_at(t, n, end) == X ? i : end;
    }
    if (next == X && !newline(t[i])) return i;
    if (class == P || (t[i] == ' ' && next == P)) {
        size_t end = run_of(P, t, n, i + 1);
        if (class_at(t, n, end) == X) return i;
        while (end < n && newline(t[end])) end++;
        return end;
    }
    return spaces(t, n, i, true);
}

size_t vb__pre_scan_next(vb__pre_scan scan, const char *text, size_t n, size_t from) {
    switch (scan) {
    case VB_SCAN_GPT2: return scan_gpt2(text, n, from);
    case VB_SCAN_LLAMA3: return scan_cl100k(text, n, from, 3);
    case VB_SCAN_QWEN2:
    case VB_SCAN_QWEN35: return scan_cl100k(text, n, from, 1);
    default: return from;
    }
}
