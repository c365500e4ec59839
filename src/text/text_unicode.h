/* UTF-8 and the character classes that tokenizers use, and Unicode normalisation in linear time. Tables are
 * utf8proc's. Not here: regular expressions (text_regex.h). All functions are pure; any thread. */
#ifndef VB_TEXT_UNICODE_H
#define VB_TEXT_UNICODE_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes with, when `track` is set, one origin byte for each: 1 = user data, 0 = the template's. The memory is
 * kept between uses. `max` is a hard limit on len. */
typedef struct vb__textbuf {
    char *data;
    uint8_t *user; /* cap bytes when track, else NULL */
    size_t len, cap, max;
    bool track;
} vb__textbuf;

void vb__textbuf_init(vb__textbuf *b, size_t max);
void vb__textbuf_fini(vb__textbuf *b);
void vb__textbuf_clear(vb__textbuf *b, bool track);
VB_MUST_USE vb_err vb__textbuf_reserve(vb__textbuf *b, size_t more);
/* user: the origin of all n bytes; origins: one each, wins over `user` when not NULL. */
VB_MUST_USE vb_err vb__textbuf_put(vb__textbuf *b, const char *s, size_t n, bool user);
VB_MUST_USE vb_err vb__textbuf_copy(vb__textbuf *b, const char *s, size_t n, const uint8_t *origins);

/* n when s is UTF-8 (no surrogates, no overlong forms), else the offset of the first bad byte. */
size_t vb__utf8_check(const char *s, size_t n);
/* The character at s[*pos] of valid UTF-8, *pos < n; moves *pos behind it. */
static inline uint32_t vb__utf8_next(const char *s, size_t n, size_t *pos) {
    const unsigned char *p = (const unsigned char *)s + *pos;
    (void)n;
    if (p[0] < 0x80) {
        *pos += 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *pos += 2;
        return (uint32_t)(p[0] & 31) << 6 | (p[1] & 63);
    }
    if (p[0] < 0xf0) {
        *pos += 3;
        return (uint32_t)(p[0] & 15) << 12 | (uint32_t)(p[1] & 63) << 6 | (p[2] & 63);
    }
    *pos += 4;
    return (uint32_t)(p[0] & 7) << 18 | (uint32_t)(p[1] & 63) << 12 | (uint32_t)(p[2] & 63) << 6 |
           (p[3] & 63);
}
/* Bytes of the character whose first byte is c. */
static inline size_t vb__utf8_len(unsigned char c) { return c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4; }
/* Writes 1..4 bytes; returns their number. */
size_t vb__utf8_put(char out[4], uint32_t c);

bool vb__char_is_space(uint32_t c);   /* property White_Space: U+180E is not one */
bool vb__char_is_mark(uint32_t c);    /* general category M of Unicode 9 */
bool vb__char_is_numeric(uint32_t c); /* categories Nd, Nl, No */
bool vb__char_is_digit(uint32_t c);   /* category Nd */
bool vb__char_is_punct(uint32_t c);   /* ASCII punctuation (symbols too) and the P categories */
bool vb__char_is_word(uint32_t c);    /* Alphabetic, M, Nd, Pc, ZWNJ and ZWJ */
/* Lower case without regard to context; returns 1 or 2 characters. */
int vb__char_lower(uint32_t c, uint32_t out[2]);

typedef enum vb__nf { VB_NFC, VB_NFD, VB_NFKC, VB_NFKD } vb__nf;

/* Work space of vb__normalize_unicode, kept between calls. */
typedef struct vb__nf_work {
    int32_t *chars;
    size_t cap;
} vb__nf_work;
void vb__nf_work_fini(vb__nf_work *w);

/* Appends the normal form of valid UTF-8 to out and sets *changed; when nothing would change, *changed is
 * false and out is left alone. Where characters of both origins meet in one sequence, the result is user
 * data. Linear in n for any input (a run of combining marks is sorted by counting). VB_E_MEMORY, VB_E_LIMIT.
 */
VB_MUST_USE vb_err vb__normalize_unicode(vb__nf kind, const char *s, size_t n, const uint8_t *user,
                                         vb__nf_work *work, vb__textbuf *out, bool *changed);

#endif
