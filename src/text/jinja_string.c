/* Strings of a template: bytes with a length in code points and an origin per byte. Parts share their bytes;
 * a string that was made last is extended in place, so that text built piece by piece is not copied over and
 * over. */
#include "text/jinja_int.h"

uint32_t vb__jutf8(const char *s, const char *end, uint32_t *cp) {
    const unsigned char *p = (const unsigned char *)s;
    size_t left = (size_t)(end - s);
    if (left == 0) {
        *cp = 0;
        return 0;
    }
    if (p[0] < 0x80 || left < 2) {
        *cp = p[0];
        return 1;
    }
    if (p[0] < 0xe0) {
        *cp = ((p[0] & 0x1fu) << 6) | (p[1] & 0x3fu);
        return 2;
    }
    if (p[0] < 0xf0 && left >= 3) {
        *cp = ((p[0] & 0xfu) << 12) | ((p[1] & 0x3fu) << 6) | (p[2] & 0x3fu);
        return 3;
    }
    if (left >= 4) {
        *cp = ((p[0] & 7u) << 18) | ((p[1] & 0x3fu) << 12) | ((p[2] & 0x3fu) << 6) | (p[3] & 0x3fu);
        return 4;
    }
    *cp = 0xfffd;
    return 1;
}

uint32_t vb__jutf8_put(char *s, uint32_t cp) {
    if (cp < 0x80) {
        s[0] = (char)cp;
        return 1;
    }
    if (cp < 0x800) {
        s[0] = (char)(0xc0 | (cp >> 6));
        s[1] = (char)(0x80 | (cp & 0x3f));
        return 2;
    }
    if (cp < 0x10000) {
        s[0] = (char)(0xe0 | (cp >> 12));
        s[1] = (char)(0x80 | ((cp >> 6) & 0x3f));
        s[2] = (char)(0x80 | (cp & 0x3f));
        return 3;
    }
    s[0] = (char)(0xf0 | (cp >> 18));
    s[1] = (char)(0x80 | ((cp >> 12) & 0x3f));
    s[2] = (char)(0x80 | ((cp >> 6) & 0x3f));
    s[3] = (char)(0x80 | (cp & 0x3f));
    return 4;
}

uint32_t vb__jstr_chars(const jstr *s) {
    if (s->chars != UINT32_MAX) return s->chars;
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->len; i++) n += ((unsigned char)s->s[i] & 0xc0) != 0x80;
    ((jstr *)s)->chars = n; /* only strings of one rendering come here uncounted */
    return n;
}

uint32_t vb__jstr_offset(const jstr *s, uint32_t cp) {
    uint32_t chars = vb__jstr_chars(s);
    if (chars == s->len) return cp;
    if (cp >= chars) return s->len;
    uint32_t at = 0;
    if (cp > chars / 2) { /* from the nearer end */
        for (at = s->len, cp = chars - cp; cp > 0; cp--)
            for (at--; ((unsigned char)s->s[at] & 0xc0) == 0x80; at--) {}
        return at;
    }
    for (; cp > 0; cp--)
        for (at++; at < s->len && ((unsigned char)s->s[at] & 0xc0) == 0x80; at++) {}
    return at;
}

bool vb__jstr_ours_at(const jstr *s, uint32_t byte) {
    if (s->runs == NULL) return s->ours;
    uint32_t lo = 0, hi = s->n_runs - 1;
    while (lo < hi) {
        uint32_t mid = (lo + hi) / 2;
        if (byte >= s->runs[mid].end) lo = mid + 1;
        else hi = mid;
    }
    return s->runs[lo].ours;
}

bool vb__jstr_same(const jstr *s, const char *z) {
    return strlen(z) == s->len && memcmp(s->s, z, s->len) == 0;
}

/* ---- building ---- */

bool vb__jsb_init(jr *r, jsb *b) {
    *b = (jsb){.r = r};
    return true;
}

static bool add_run(jsb *b, uint32_t end, bool ours) {
    if (b->n_runs > 0 && b->runs[b->n_runs - 1].ours == ours) {
        b->runs[b->n_runs - 1].end = end;
        return true;
    }
    if (b->n_runs == b->cap_runs) {
        uint32_t cap = b->cap_runs == 0 ? 4 : b->cap_runs * 2;
        jrun *m = vb__jalloc(b->r, cap * sizeof(*m));
        if (m == NULL) return false;
        if (b->n_runs != 0) memcpy(m, b->runs, b->n_runs * sizeof(*m));
        b->runs = m;
        b->cap_runs = cap;
    }
    b->runs[b->n_runs++] = (jrun){end, ours};
    return true;
}

/* The free place right behind `p` in the byte pool, when p is where the last allocation ended. */
static size_t room_behind(jr *r, const char *p) {
    jblock *k = r->bytes.head;
    return k != NULL && p == k->data + k->used ? k->cap - k->used : 0;
}

static bool claim_behind(jr *r, size_t n) {
    if (r->memory + n > r->memory_max) return false;
    r->bytes.head->used += n;
    r->memory += n;
    return true;
}

static bool reserve(jsb *b, size_t n) {
    if (b->cap - b->len >= n) return true;
    if (n > (1u << 30) || b->len + n > (1u << 30))
        return vb__jerr_code(b->r, VB_E_LIMIT, "a text is too long, expected at most 1 GiB");
    size_t more = b->len + n - b->cap;
    if (b->d != NULL && room_behind(b->r, b->d + b->cap) >= more) {
        size_t room = room_behind(b->r, b->d + b->cap), take = more > b->len   ? more
                                                               : b->len < room ? b->len
                                                                               : more;
        if (claim_behind(b->r, take)) {
            b->cap += (uint32_t)take;
            return true;
        }
    }
    size_t cap = b->cap < 32 ? 64 : (size_t)b->cap * 2;
    if (cap < b->len + n) cap = b->len + n;
    char *m = vb__jbytes(b->r, cap);
    if (m == NULL) return false;
    if (b->len != 0) memcpy(m, b->d, b->len);
    b->d = m;
    b->cap = (uint32_t)cap;
    return true;
}

bool vb__jsb_put(jsb *b, const char *s, size_t n, bool ours) {
    if (n == 0) return true;
    if (!vb__jwork(b->r, 1 + (int64_t)(n >> 6)) || !reserve(b, n)) return false;
    memcpy(b->d + b->len, s, n);
    b->len += (uint32_t)n;
    return add_run(b, b->len, ours);
}

bool vb__jsb_putc(jsb *b, char c, bool ours) {
    return vb__jsb_put(b, &c, 1, ours);
}
bool vb__jsb_puts(jsb *b, const char *s, bool ours) {
    return vb__jsb_put(b, s, strlen(s), ours);
}

bool vb__jsb_cp(jsb *b, uint32_t cp, bool ours) {
    char buf[4];
    return vb__jsb_put(b, buf, vb__jutf8_put(buf, cp), ours);
}

bool vb__jsb_put_part(jsb *b, const jstr *s, uint32_t from, uint32_t to) {
    if (from >= to) return true;
    if (s->runs == NULL) return vb__jsb_put(b, s->s + from, to - from, s->ours);
    uint32_t i = 0;
    while (s->runs[i].end <= from) i++;
    for (; from < to; i++) {
        uint32_t end = s->runs[i].end < to ? s->runs[i].end : to;
        if (!vb__jsb_put(b, s->s + from, end - from, s->runs[i].ours)) return false;
        from = end;
    }
    return true;
}

bool vb__jsb_put_str(jsb *b, const jstr *s) {
    return vb__jsb_put_part(b, s, 0, s->len);
}

static bool header(jr *r, jstr x, jv *out) {
    jstr *s = vb__jalloc(r, sizeof(*s));
    if (s == NULL) return false;
    *s = x;
    *out = (jv){.t = JV_STR, .s = s};
    return true;
}

bool vb__jsb_take(jsb *b, jv *out) {
    jr *r = b->r;
    if (b->d != NULL && b->cap > b->len &&
        room_behind(r, b->d + b->cap) > 0) { /* hand back what was not used */
        size_t back = b->cap - b->len;
        r->bytes.head->used -= back;
        r->memory -= back;
    }
    jstr x = {.s = b->d != NULL ? b->d : "", .len = b->len, .chars = UINT32_MAX};
    if (b->n_runs <= 1) {
        x.ours = b->n_runs == 0 || b->runs[0].ours;
    } else {
        x.runs = b->runs;
        x.n_runs = b->n_runs;
    }
    *b = (jsb){.r = r};
    return header(r, x, out);
}

bool vb__jstr_borrow(jr *r, const char *s, size_t n, bool ours, jv *out) {
    if (n > (1u << 30)) return vb__jerr_code(r, VB_E_LIMIT, "a text is too long, expected at most 1 GiB");
    return header(r, (jstr){.s = s, .len = (uint32_t)n, .chars = UINT32_MAX, .ours = ours}, out);
}

bool vb__jstr_new(jr *r, const char *s, size_t n, bool ours, jv *out) {
    char *m = vb__jbytes(r, n);
    if (m == NULL) return false;
    if (n != 0) memcpy(m, s, n);
    return vb__jstr_borrow(r, m, n, ours, out);
}

bool vb__jstr_part(jr *r, const jstr *s, uint32_t from, uint32_t to, jv *out) {
    if (from == 0 && to == s->len && !s->markup) {
        *out = (jv){.t = JV_STR, .s = s};
        return true;
    }
    jstr x = {.s = s->s + from,
              .len = to - from,
              .chars = s->chars == s->len ? to - from : UINT32_MAX,
              .ours = s->ours,
              .markup = s->markup};
    if (s->runs != NULL) {
        uint32_t i = 0;
        while (from < to && s->runs[i].end <= from) i++;
        uint32_t k = i;
        while (from < to && s->runs[k].end < to) k++;
        if (i == k) {
            x.ours = s->runs[i].ours;
        } else {
            jrun *runs = vb__jalloc(r, (k - i + 1) * sizeof(*runs));
            if (runs == NULL || !vb__jwork(r, (k - i) / 8)) return false;
            for (uint32_t j = i; j <= k; j++)
                runs[j - i] = (jrun){(s->runs[j].end < to ? s->runs[j].end : to) - from, s->runs[j].ours};
            x.runs = runs;
            x.n_runs = k - i + 1;
        }
    }
    return header(r, x, out);
}

/* The runs of a and b behind one another, neighbours of one origin joined. */
static bool join_runs(jr *r, const jstr *a, const jstr *b, jstr *x) {
    uint32_t na = a->runs == NULL ? 1 : a->n_runs, nb = b->runs == NULL ? 1 : b->n_runs;
    jrun one_a = {a->len, a->ours}, one_b = {b->len, b->ours};
    const jrun *ra = a->runs == NULL ? &one_a : a->runs, *rb = b->runs == NULL ? &one_b : b->runs;
    if (na == 1 && nb == 1 && ra->ours == rb->ours) {
        x->ours = ra->ours;
        return true;
    }
    jrun *runs = vb__jalloc(r, (na + nb) * sizeof(*runs));
    if (runs == NULL || !vb__jwork(r, (na + nb) / 8)) return false;
    memcpy(runs, ra, na * sizeof(*runs));
    uint32_t n = na;
    for (uint32_t i = 0; i < nb; i++) {
        uint32_t end = rb[i].end + a->len;
        if (i == 0 && runs[n - 1].ours == rb[0].ours) runs[n - 1].end = end;
        else runs[n++] = (jrun){end, rb[i].ours};
    }
    x->runs = runs;
    x->n_runs = n;
    return true;
}

bool vb__jstr_concat(jr *r, const jstr *a, const jstr *b, jv *out) {
    if (b->len == 0 && !a->markup) {
        *out = (jv){.t = JV_STR, .s = a};
        return true;
    }
    if (a->len == 0 && !b->markup) {
        *out = (jv){.t = JV_STR, .s = b};
        return true;
    }
    if ((uint64_t)a->len + b->len > (1u << 30))
        return vb__jerr_code(r, VB_E_LIMIT, "a text is too long, expected at most 1 GiB");
    jstr x = {.len = a->len + b->len, .chars = UINT32_MAX};
    if (a->chars != UINT32_MAX && b->chars != UINT32_MAX) x.chars = a->chars + b->chars;
    if (a->len >= 64 && room_behind(r, a->s + a->len) >= b->len && claim_behind(r, b->len)) {
        if (!vb__jwork(r, 1 + (b->len >> 6))) return false;
        memcpy((char *)a->s + a->len, b->s, b->len);
        x.s = a->s;
    } else {
        char *m = vb__jbytes(r, x.len);
        if (m == NULL || !vb__jwork(r, 1 + (x.len >> 6))) return false;
        memcpy(m, a->s, a->len);
        memcpy(m + a->len, b->s, b->len);
        x.s = m;
    }
    return join_runs(r, a, b, &x) && header(r, x, out);
}

/* ---- searching ---- */

uint32_t vb__jstr_find(const jstr *s, uint32_t from, uint32_t to, const jstr *needle) {
    if (from > to || to - from < needle->len) return UINT32_MAX;
    if (needle->len == 0) return from;
    const char *p = memmem(s->s + from, to - from, needle->s, needle->len);
    return p == NULL ? UINT32_MAX : (uint32_t)(p - s->s);
}

uint32_t vb__jstr_rfind(const jstr *s, uint32_t from, uint32_t to, const jstr *needle) {
    if (from > to || to - from < needle->len) return UINT32_MAX;
    if (needle->len == 0) return to;
    for (uint32_t at = to - needle->len;; at--) {
        if (memcmp(s->s + at, needle->s, needle->len) == 0) return at;
        if (at == from) return UINT32_MAX;
    }
}
