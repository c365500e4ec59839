#include "format/gguf.h"
#include "base/file.h"
#include "base/limits.h"
#include "format/gguf_blocks.h"
#include <stdlib.h>
#include <string.h>

/* A place in the file that never passes its end: every read says how many bytes it wants first. */
typedef struct cursor {
    const uint8_t *data;
    uint64_t at, size;
    const char *file;
    vb_error *err;
} cursor;

static const uint8_t kind_size[VB_GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static const char *const kind_name[VB_GGUF_KINDS] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                     "bool", "string", "array", "u64", "i64", "f64"};

static uint64_t little(const uint8_t *p, int bytes) {
    uint64_t v = 0;
    for (int i = bytes - 1; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

static vb_err need(cursor *c, uint64_t bytes, const char *what) {
    if (bytes <= c->size - c->at) return VB_OK;
    return vb__fail(c->err, VB_E_FORMAT, "%s: %s: needs %llu bytes at offset %llu, the file has %llu (is it truncated?)", c->file,
                    what, (unsigned long long)bytes, (unsigned long long)c->at, (unsigned long long)c->size);
}

static vb_err read_int(cursor *c, int bytes, const char *what, uint64_t *out) {
    VB_TRY(need(c, (uint64_t)bytes, what));
    *out = little(c->data + c->at, bytes);
    c->at += (uint64_t)bytes;
    return VB_OK;
}

/* A name: 1..max bytes without NUL, copied. */
static vb_err read_name(cursor *c, vb__arena *arena, uint64_t max, const char *what, const char **out) {
    uint64_t n;
    VB_TRY(read_int(c, 8, what, &n));
    if (n < 1 || n > max)
        return vb__fail(c->err, VB_E_FORMAT, "%s: %s: has %llu bytes, expected 1..%llu", c->file, what, (unsigned long long)n,
                        (unsigned long long)max);
    VB_TRY(need(c, n, what));
    const char *p = (const char *)c->data + c->at;
    if (memchr(p, 0, n) != NULL) return vb__fail(c->err, VB_E_FORMAT, "%s: %s: holds a NUL byte", c->file, what);
    *out = vb__arena_strndup(arena, p, n);
    c->at += n;
    return *out == NULL ? vb__fail(c->err, VB_E_MEMORY, "%s: no memory for its names", c->file) : VB_OK;
}

/* ---- keys ----------------------------------------------------------------------------------------------- */

static vb_err read_array(cursor *c, vb__gguf_key *k) {
    uint64_t element, bytes;
    VB_TRY(read_int(c, 4, k->name, &element));
    VB_TRY(read_int(c, 8, k->name, &k->count));
    if (element >= VB_GGUF_KINDS || element == VB_GGUF_ARRAY)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%s: key %s: is an array of type %llu, expected numbers, bools or strings", c->file,
                        k->name, (unsigned long long)element);
    k->element = (vb__gguf_kind)element;
    k->data = c->data + c->at;
    if (element != VB_GGUF_STRING) {
        if (__builtin_mul_overflow(k->count, (uint64_t)kind_size[element], &bytes)) bytes = UINT64_MAX;
        VB_TRY(need(c, bytes, k->name));
        c->at += bytes;
        return VB_OK;
    }
    if (k->count > (c->size - c->at) / 8) return need(c, UINT64_MAX, k->name); /* each takes 8 bytes at least */
    for (uint64_t i = 0; i < k->count; i++) {
        VB_TRY(read_int(c, 8, k->name, &bytes));
        VB_TRY(need(c, bytes, k->name));
        c->at += bytes;
    }
    return VB_OK;
}

static vb_err read_key(cursor *c, vb__gguf *g, vb__gguf_key *k) {
    uint64_t kind;
    VB_TRY(read_name(c, &g->arena, 1024, "a key's name", &k->name));
    VB_TRY(read_int(c, 4, k->name, &kind));
    if (kind >= VB_GGUF_KINDS)
        return vb__fail(c->err, VB_E_FORMAT, "%s: key %s: has type %llu, expected 0..12", c->file, k->name, (unsigned long long)kind);
    k->kind = (vb__gguf_kind)kind;
    if (kind == VB_GGUF_ARRAY) return read_array(c, k);
    if (kind == VB_GGUF_STRING) VB_TRY(read_int(c, 8, k->name, &k->count));
    else k->count = kind_size[kind];
    VB_TRY(need(c, k->count, k->name));
    k->data = c->data + c->at;
    c->at += k->count;
    if (kind == VB_GGUF_BOOL && *k->data > 1)
        return vb__fail(c->err, VB_E_FORMAT, "%s: key %s: is %d, expected a bool 0 or 1", c->file, k->name, *k->data);
    return VB_OK;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const vb__gguf_key *)a)->name, ((const vb__gguf_key *)b)->name);
}

/* ---- tensors -------------------------------------------------------------------------------------------- */

static vb_err read_tensor(cursor *c, vb__gguf *g, vb__gguf_tensor *t, uint64_t *offset) {
    uint64_t dims, type;
    VB_TRY(read_name(c, &g->arena, VB_LIMIT_TENSOR_NAME, "a tensor's name", &t->name));
    VB_TRY(read_int(c, 4, t->name, &dims));
    if (dims < 1 || dims > VB_GGUF_DIMS)
        return vb__fail(c->err, VB_E_FORMAT, "%s: tensor %s: has %llu dimensions, expected 1..%d", c->file, t->name,
                        (unsigned long long)dims, VB_GGUF_DIMS);
    t->dims = (int32_t)dims;
    uint64_t elements = 1, ne;
    for (int32_t i = 0; i < VB_GGUF_DIMS; i++) {
        t->ne[i] = 1;
        if (i >= t->dims) continue;
        VB_TRY(read_int(c, 8, t->name, &ne));
        if (ne < 1 || ne > INT64_MAX || __builtin_mul_overflow(elements, ne, &elements) || elements > INT64_MAX / 16)
            return vb__fail(c->err, VB_E_FORMAT, "%s: tensor %s: dimension %d is %llu, expected 1 or more and a product below 2^59",
                            c->file, t->name, i, (unsigned long long)ne);
        t->ne[i] = (int64_t)ne;
    }
    VB_TRY(read_int(c, 4, t->name, &type));
    VB_TRY(read_int(c, 8, t->name, offset));
    const vb__gguf_type_info *info = vb__gguf_type_get((uint32_t)type);
    if (info == NULL) {
        const char *name = vb__gguf_type_name((uint32_t)type);
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%s: tensor %s: has type %llu%s%s%s, expected F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, "
                        "Q8_0, Q4_K, Q5_K, Q6_K, IQ4_NL or MXFP4", c->file, t->name, (unsigned long long)type, name != NULL ? " (" : "",
                        name != NULL ? name : "", name != NULL ? ")" : "");
    }
    t->type = (int32_t)type;
    if (t->ne[0] % info->block != 0)
        return vb__fail(c->err, VB_E_FORMAT, "%s: tensor %s: has rows of %lld elements, expected a multiple of %d as it is %s", c->file,
                        t->name, (long long)t->ne[0], info->block, info->name);
    t->bytes = elements / (uint64_t)info->block * (uint64_t)info->bytes;
    return VB_OK;
}

static int by_place(const void *a, const void *b) {
    const vb__gguf_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return strcmp(x->name, y->name);
}

static int by_tensor_name(const void *a, const void *b) {
    return strcmp((*(const vb__gguf_tensor *const *)a)->name, (*(const vb__gguf_tensor *const *)b)->name);
}

static uint64_t align_up(uint64_t v, uint64_t to) { return (v + to - 1) / to * to; }

/* Tensors follow each other, each at the next multiple of the alignment, and the last one ends the file (padded or not). */
static vb_err check_places(const vb__gguf *g, const uint8_t *base, uint64_t size, vb_error *err) {
    uint64_t at = 0;
    for (int32_t i = 0; i < g->n_tensors; i++) {
        const vb__gguf_tensor *t = &g->tensors[i];
        uint64_t begin = (uint64_t)(t->data - base), due = align_up(at, g->alignment);
        if (begin < at)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: overlaps tensor %s in the data", g->file, t->name,
                            g->tensors[i - 1].name);
        if (begin != due)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: a hole of %llu bytes lies in front of its data", g->file, t->name,
                            (unsigned long long)(begin - due));
        at = begin + t->bytes;
    }
    if (align_up(at, g->alignment) < size)
        return vb__fail(err, VB_E_FORMAT, "%s: %llu bytes follow the last tensor (%s), expected the end of the file", g->file,
                        (unsigned long long)(size - at), g->n_tensors == 0 ? "none" : g->tensors[g->n_tensors - 1].name);
    return VB_OK;
}

static vb_err check_names(vb__gguf *g, vb_error *err) {
    size_t n = (size_t)g->n_tensors;
    const vb__gguf_tensor **sorted = vb__arena_alloc(&g->arena, n * sizeof *sorted);
    if (sorted == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory for its names", g->file);
    for (size_t i = 0; i < n; i++) sorted[i] = &g->tensors[i];
    if (n > 1) qsort(sorted, n, sizeof *sorted, by_tensor_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: is there twice", g->file, sorted[i]->name);
    return VB_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------- */

static vb_err parse_head(cursor *c, vb__gguf *g, uint64_t *n_tensors, uint64_t *n_keys) {
    uint64_t version;
    VB_TRY(need(c, 4, "the magic"));
    if (memcmp(c->data, "GGUF", 4) != 0) return vb__fail(c->err, VB_E_FORMAT, "%s: does not begin with GGUF", c->file);
    c->at = 4;
    VB_TRY(read_int(c, 4, "the version", &version));
    if (version != 2 && version != 3)
        return vb__fail(c->err, VB_E_UNSUPPORTED, "%s: has version %llu, expected 2 or 3, little-endian", c->file,
                        (unsigned long long)version);
    g->version = (uint32_t)version;
    VB_TRY(read_int(c, 8, "the number of tensors", n_tensors));
    VB_TRY(read_int(c, 8, "the number of keys", n_keys));
    /* a tensor takes 32 bytes and a key 14 at least, so the file bounds what is allocated for them */
    uint64_t left = c->size - c->at;
    if (*n_tensors > VB_LIMIT_TENSORS || *n_tensors > left / 32)
        return vb__fail(c->err, VB_E_LIMIT, "%s: claims %llu tensors, expected at most %d and what fits into the file", c->file,
                        (unsigned long long)*n_tensors, VB_LIMIT_TENSORS);
    if (*n_keys > 65536 || *n_keys > left / 14)
        return vb__fail(c->err, VB_E_LIMIT, "%s: claims %llu keys, expected at most 65536 and what fits into the file", c->file,
                        (unsigned long long)*n_keys);
    return VB_OK;
}

static vb_err parse_keys(cursor *c, vb__gguf *g, uint64_t n) {
    g->keys = vb__arena_alloc(&g->arena, n * sizeof *g->keys);
    if (g->keys == NULL) return vb__fail(c->err, VB_E_MEMORY, "%s: no memory for %llu keys", c->file, (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++, g->n_keys++) VB_TRY(read_key(c, g, &g->keys[i]));
    if (n > 1) qsort(g->keys, n, sizeof *g->keys, by_key);
    for (uint64_t i = 1; i < n; i++)
        if (strcmp(g->keys[i - 1].name, g->keys[i].name) == 0)
            return vb__fail(c->err, VB_E_FORMAT, "%s: key %s: is there twice", c->file, g->keys[i].name);
    int64_t alignment = 32;
    if (vb__gguf_find(g, "general.alignment") != NULL)
        VB_TRY(vb__gguf_int(g, "general.alignment", 1, 1 << 20, &alignment, c->err));
    if ((alignment & (alignment - 1)) != 0)
        return vb__fail(c->err, VB_E_FORMAT, "%s: key general.alignment: is %lld, expected a power of two", c->file,
                        (long long)alignment);
    g->alignment = (uint32_t)alignment;
    return VB_OK;
}

static vb_err parse_tensors(cursor *c, vb__gguf *g, uint64_t n) {
    g->tensors = vb__arena_alloc(&g->arena, n * sizeof *g->tensors);
    uint64_t *offsets = vb__arena_alloc(&g->arena, n * sizeof *offsets);
    if (g->tensors == NULL || offsets == NULL)
        return vb__fail(c->err, VB_E_MEMORY, "%s: no memory for %llu tensors", c->file, (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++, g->n_tensors++) VB_TRY(read_tensor(c, g, &g->tensors[i], &offsets[i]));
    uint64_t base = align_up(c->at, g->alignment);
    if (base > c->size) base = c->size; /* a file of keys alone need not be padded */
    uint64_t size = c->size - base;
    for (uint64_t i = 0; i < n; i++) {
        vb__gguf_tensor *t = &g->tensors[i];
        if (offsets[i] > size || t->bytes > size - offsets[i])
            return vb__fail(c->err, VB_E_FORMAT, "%s: tensor %s: takes %llu bytes at %llu of the data, which has %llu (is the file "
                            "truncated?)", c->file, t->name, (unsigned long long)t->bytes, (unsigned long long)offsets[i],
                            (unsigned long long)size);
        t->data = c->data + base + offsets[i];
    }
    if (n > 1) qsort(g->tensors, n, sizeof *g->tensors, by_place);
    VB_TRY(check_names(g, c->err));
    return check_places(g, c->data + base, size, c->err);
}

vb_err vb__gguf_parse(const vb__mapped *map, const char *file, vb__gguf *out, vb_error *err) {
    vb__gguf g = {0};
    cursor c = {.data = map->data, .size = map->size, .err = err};
    uint64_t n_tensors, n_keys;
    vb_err e;
    vb__arena_init(&g.arena, VB_TAG_FORMAT, 0);
    g.file = c.file = vb__arena_strndup(&g.arena, file, strlen(file));
    if (g.file == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "%s: no memory", file);
        goto out;
    }
    VB_TRY_OUT(parse_head(&c, &g, &n_tensors, &n_keys));
    VB_TRY_OUT(parse_keys(&c, &g, n_keys));
    VB_TRY_OUT(parse_tensors(&c, &g, n_tensors));
    g.map = *map;
out:
    if (e == VB_OK) *out = g;
    else vb__arena_fini(&g.arena);
    return e;
}

vb_err vb__gguf_open(const char *path, vb__gguf *out, vb_error *err) {
    vb__mapped map;
    VB_TRY(vb__mapped_open(path, &map, err));
    vb_err e = vb__gguf_parse(&map, vb__path_base(path), out, err);
    if (e != VB_OK) vb__mapped_close(&map);
    return e;
}

void vb__gguf_close(vb__gguf *g) {
    vb__mapped_close(&g->map);
    vb__arena_fini(&g->arena);
    *g = (vb__gguf){0};
}

/* ---- getters -------------------------------------------------------------------------------------------- */

const vb__gguf_key *vb__gguf_find(const vb__gguf *g, const char *name) {
    int32_t lo = 0, hi = g->n_keys;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        int d = strcmp(name, g->keys[mid].name);
        if (d == 0) return &g->keys[mid];
        if (d < 0) hi = mid;
        else lo = mid + 1;
    }
    return NULL;
}

static const char *kind_of(const vb__gguf_key *k) { return k == NULL ? "missing" : kind_name[k->kind]; }

/* False when it is no integer, or one above 2^63 - 1. */
static bool as_int(const vb__gguf_key *k, int64_t *out) {
    uint64_t v;
    switch (k->kind) {
    case VB_GGUF_U8:
    case VB_GGUF_U16:
    case VB_GGUF_U32:
    case VB_GGUF_U64:
        v = little(k->data, kind_size[k->kind]);
        *out = (int64_t)v;
        return v <= INT64_MAX;
    case VB_GGUF_I8: *out = (int8_t)k->data[0]; return true;
    case VB_GGUF_I16: *out = (int16_t)little(k->data, 2); return true;
    case VB_GGUF_I32: *out = (int32_t)little(k->data, 4); return true;
    case VB_GGUF_I64: *out = (int64_t)little(k->data, 8); return true;
    default: return false;
    }
}

vb_err vb__gguf_int(const vb__gguf *g, const char *name, int64_t lo, int64_t hi, int64_t *out, vb_error *err) {
    const vb__gguf_key *k = vb__gguf_find(g, name);
    int64_t v;
    if (k == NULL || !as_int(k, &v))
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: is %s, expected an integer %lld..%lld", g->file, name, kind_of(k),
                        (long long)lo, (long long)hi);
    if (v < lo || v > hi)
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: is %lld, expected an integer %lld..%lld", g->file, name, (long long)v,
                        (long long)lo, (long long)hi);
    *out = v;
    return VB_OK;
}

vb_err vb__gguf_i32(const vb__gguf *g, const char *name, int32_t lo, int32_t hi, int32_t *out, vb_error *err) {
    int64_t v;
    VB_TRY(vb__gguf_int(g, name, lo, hi, &v, err));
    *out = (int32_t)v;
    return VB_OK;
}

vb_err vb__gguf_number(const vb__gguf *g, const char *name, double lo, double hi, double *out, vb_error *err) {
    const vb__gguf_key *k = vb__gguf_find(g, name);
    double v;
    int64_t i;
    float f;
    if (k != NULL && k->kind == VB_GGUF_F32) {
        memcpy(&f, k->data, 4);
        v = f;
    } else if (k != NULL && k->kind == VB_GGUF_F64) {
        memcpy(&v, k->data, 8);
    } else if (k != NULL && as_int(k, &i)) {
        v = (double)i;
    } else {
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: is %s, expected a number %.9g..%.9g", g->file, name, kind_of(k), lo, hi);
    }
    if (!(v >= lo && v <= hi))
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: is %.9g, expected a number %.9g..%.9g", g->file, name, v, lo, hi);
    *out = v;
    return VB_OK;
}

vb_err vb__gguf_bool(const vb__gguf *g, const char *name, bool *out, vb_error *err) {
    const vb__gguf_key *k = vb__gguf_find(g, name);
    if (k == NULL || k->kind != VB_GGUF_BOOL)
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: is %s, expected a bool", g->file, name, kind_of(k));
    *out = *k->data != 0;
    return VB_OK;
}

vb_err vb__gguf_bytes(const vb__gguf *g, const char *name, const char **out, size_t *len, vb_error *err) {
    const vb__gguf_key *k = vb__gguf_find(g, name);
    if (k == NULL || k->kind != VB_GGUF_STRING)
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: is %s, expected a string", g->file, name, kind_of(k));
    *out = (const char *)k->data;
    *len = (size_t)k->count;
    return VB_OK;
}

vb_err vb__gguf_array(const vb__gguf *g, const char *name, vb__gguf_kind element, uint64_t max, const vb__gguf_key **out,
                      vb_error *err) {
    const vb__gguf_key *k = vb__gguf_find(g, name);
    if (k == NULL || k->kind != VB_GGUF_ARRAY || k->element != element)
        return vb__fail(err, VB_E_FORMAT, "%s: key %s: is %s%s, expected an array of %s", g->file, name, kind_of(k),
                        k != NULL && k->kind == VB_GGUF_ARRAY ? " of something else" : "", kind_name[element]);
    if (k->count > max)
        return vb__fail(err, VB_E_LIMIT, "%s: key %s: has %llu elements, expected at most %llu", g->file, name,
                        (unsigned long long)k->count, (unsigned long long)max);
    *out = k;
    return VB_OK;
}

const char *vb__gguf_next_string(const uint8_t **at, size_t *len) {
    *len = (size_t)little(*at, 8);
    const char *s = (const char *)*at + 8;
    *at += 8 + *len;
    return s;
}
