#include "format/safetensors.h"
#include "base/file.h"
#include "base/json.h"
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    uint8_t size;
} dtypes[VB_DTYPE_COUNT] = {
    [VB_DTYPE_BOOL] = {"BOOL", 1}, [VB_DTYPE_U8] = {"U8", 1},     [VB_DTYPE_I8] = {"I8", 1},
    [VB_DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [VB_DTYPE_F8_E5M2] = {"F8_E5M2", 1},
    [VB_DTYPE_U16] = {"U16", 2},   [VB_DTYPE_I16] = {"I16", 2},   [VB_DTYPE_F16] = {"F16", 2},
    [VB_DTYPE_BF16] = {"BF16", 2}, [VB_DTYPE_U32] = {"U32", 4},   [VB_DTYPE_I32] = {"I32", 4},
    [VB_DTYPE_F32] = {"F32", 4},   [VB_DTYPE_U64] = {"U64", 8},   [VB_DTYPE_I64] = {"I64", 8},
    [VB_DTYPE_F64] = {"F64", 8},
};

const char *vb__dtype_name(vb__dtype t) { return dtypes[t].name; }
size_t vb__dtype_size(vb__dtype t) { return dtypes[t].size; }

static uint64_t read_u64(const uint8_t *p) {
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--) v = v << 8 | p[i];
    return v;
}

/* ---- one entry of the header ---------------------------------------------------------------------------- */

static vb_err parse_dtype(const char *file, const char *name, const json_t *entry, vb__dtype *out, vb_error *err) {
    const json_t *v = json_object_get(entry, "dtype");
    char b[80];
    if (json_is_string(v))
        for (int t = 0; t < VB_DTYPE_COUNT; t++)
            if (strcmp(json_string_value(v), dtypes[t].name) == 0) {
                *out = (vb__dtype)t;
                return VB_OK;
            }
    return vb__fail(err, json_is_string(v) ? VB_E_UNSUPPORTED : VB_E_FORMAT,
                    "%s: tensor %s: dtype %s, expected BF16, F16, F32 or another whole-byte type", file, name,
                    vb__json_is(v, b, sizeof b));
}

static vb_err parse_shape(const char *file, const char *name, const json_t *entry, vb__st_tensor *t, uint64_t *bytes,
                          vb_error *err) {
    const json_t *v = json_object_get(entry, "shape");
    char b[80];
    if (!json_is_array(v) || json_array_size(v) > VB_LIMIT_TENSOR_DIMS)
        return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: shape %s, expected an array of at most %d sizes", file, name,
                        vb__json_is(v, b, sizeof b), VB_LIMIT_TENSOR_DIMS);
    t->dims = (int32_t)json_array_size(v);
    uint64_t n = dtypes[t->dtype].size;
    bool wraps = false, empty = false;
    for (int32_t i = 0; i < t->dims; i++) {
        const json_t *d = json_array_get(v, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: shape[%d] %s, expected a size", file, name, i,
                            vb__json_is(d, b, sizeof b));
        t->shape[i] = json_integer_value(d);
        if (t->shape[i] == 0) empty = true;
        wraps = wraps || __builtin_mul_overflow(n, (uint64_t)t->shape[i], &n);
    }
    if (wraps && !empty)
        return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: shape has more than 2^64 bytes", file, name);
    *bytes = empty ? 0 : n;
    return VB_OK;
}

static vb_err parse_tensor(const vb__safetensors *s, const char *name, const json_t *entry, const uint8_t *data,
                           uint64_t data_size, vb__st_tensor *t, vb_error *err) {
    const char *file = s->file;
    char b[80];
    if (!json_is_object(entry))
        return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: %s, expected an object", file, name,
                        vb__json_is(entry, b, sizeof b));
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)entry, key, v) {
        if (strcmp(key, "dtype") != 0 && strcmp(key, "shape") != 0 && strcmp(key, "data_offsets") != 0)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: has a field \"%s\", expected dtype, shape and data_offsets",
                            file, name, key);
    }
    uint64_t bytes = 0;
    VB_TRY(parse_dtype(file, name, entry, &t->dtype, err));
    VB_TRY(parse_shape(file, name, entry, t, &bytes, err));
    const json_t *o = json_object_get(entry, "data_offsets");
    const json_t *o0 = json_array_get(o, 0), *o1 = json_array_get(o, 1);
    if (!json_is_array(o) || json_array_size(o) != 2 || !json_is_integer(o0) || !json_is_integer(o1) ||
        json_integer_value(o0) < 0 || json_integer_value(o1) < json_integer_value(o0))
        return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: data_offsets %s, expected [begin, end] with begin <= end", file,
                        name, json_is_array(o) ? "are not two ascending sizes" : vb__json_is(o, b, sizeof b));
    uint64_t begin = (uint64_t)json_integer_value(o0), end = (uint64_t)json_integer_value(o1);
    if (end > data_size)
        return vb__fail(err, VB_E_FORMAT,
                        "%s: tensor %s: ends at byte %llu of the data, expected at most %llu (is the file truncated?)", file,
                        name, (unsigned long long)end, (unsigned long long)data_size);
    if (end - begin != bytes)
        return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: has %llu bytes, expected %llu by its shape and dtype", file, name,
                        (unsigned long long)(end - begin), (unsigned long long)bytes);
    t->data = data + begin;
    t->bytes = bytes;
    return VB_OK;
}

/* ---- the file ------------------------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const vb__st_tensor *x = a, *y = b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1; /* empty tensors first */
    return strcmp(x->name, y->name);
}

static vb_err check_places(const vb__safetensors *s, const uint8_t *data, uint64_t data_size, vb_error *err) {
    uint64_t at = 0;
    for (int32_t i = 0; i < s->count; i++) {
        const vb__st_tensor *t = &s->tensors[i];
        uint64_t begin = (uint64_t)(t->data - data);
        if (begin < at)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: overlaps tensor %s in the data", s->file, t->name,
                            s->tensors[i - 1].name);
        if (begin > at)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: a hole of %llu bytes lies in front of its data", s->file,
                            t->name, (unsigned long long)(begin - at));
        at = begin + t->bytes;
    }
    if (at < data_size)
        return vb__fail(err, VB_E_FORMAT, "%s: %llu bytes follow the last tensor (%s), expected the end of the file", s->file,
                        (unsigned long long)(data_size - at), s->count == 0 ? "none" : s->tensors[s->count - 1].name);
    return VB_OK;
}

/* The JSON of a header costs up to 100 times its size in memory; the count of its values is bounded first. */
static bool header_too_rich(const char *s, uint64_t n) {
    uint64_t values = 0;
    for (uint64_t i = 0; i < n; i++) values += (uint64_t)(s[i] == ',') + (uint64_t)(s[i] == '[' || s[i] == '{');
    return values > 16ull * VB_LIMIT_TENSORS;
}

static vb_err check_metadata(const vb__safetensors *s, json_t *meta, vb_error *err) {
    const char *key;
    json_t *v;
    if (!json_is_object(meta))
        return vb__fail(err, VB_E_FORMAT, "%s: __metadata__: is no object, expected one of strings", s->file);
    json_object_foreach(meta, key, v) {
        if (!json_is_string(v))
            return vb__fail(err, VB_E_FORMAT, "%s: __metadata__: \"%s\" is no string, expected strings only", s->file, key);
    }
    return VB_OK;
}

static vb_err parse_header(vb__safetensors *s, json_t *header, const uint8_t *data, uint64_t data_size, vb_error *err) {
    char b[80];
    if (!json_is_object(header))
        return vb__fail(err, VB_E_FORMAT, "%s: the header %s, expected an object", s->file,
                        vb__json_is(header, b, sizeof b));
    size_t n = json_object_size(header);
    if (n > VB_LIMIT_TENSORS)
        return vb__fail(err, VB_E_LIMIT, "%s: has %zu tensors, expected at most %d", s->file, n, VB_LIMIT_TENSORS);
    s->tensors = vb__arena_alloc(&s->arena, n * sizeof *s->tensors);
    if (s->tensors == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory for %zu tensors", s->file, n);
    const char *key;
    json_t *entry;
    json_object_foreach(header, key, entry) {
        if (strcmp(key, "__metadata__") == 0) {
            VB_TRY(check_metadata(s, entry, err));
            continue;
        }
        size_t len = strlen(key);
        if (len == 0 || len > VB_LIMIT_TENSOR_NAME)
            return vb__fail(err, VB_E_LIMIT, "%s: a tensor's name has %zu bytes, expected 1..%d", s->file, len,
                            VB_LIMIT_TENSOR_NAME);
        vb__st_tensor *t = &s->tensors[s->count];
        VB_TRY(parse_tensor(s, key, entry, data, data_size, t, err));
        t->name = vb__arena_strndup(&s->arena, key, len);
        if (t->name == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory for the names", s->file);
        s->count++;
    }
    if (s->count > 1) qsort(s->tensors, (size_t)s->count, sizeof *s->tensors, by_place);
    return check_places(s, data, data_size, err);
}

vb_err vb__safetensors_parse(const vb__mapped *map, const char *file, vb__safetensors *out, vb_error *err) {
    vb__safetensors s = {0};
    json_t *header = NULL;
    vb_err e;
    vb__arena_init(&s.arena, VB_TAG_FORMAT, 0);
    s.file = vb__arena_strndup(&s.arena, file, strlen(file));
    if (s.file == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "%s: no memory", file);
        goto out;
    }
    if (map->size < 8) {
        e = vb__fail(err, VB_E_FORMAT, "%s: has %llu bytes, expected a header length of 8 bytes at least", file,
                     (unsigned long long)map->size);
        goto out;
    }
    uint64_t len = read_u64(map->data);
    if (len > map->size - 8) {
        e = vb__fail(err, VB_E_FORMAT, "%s: the header claims %llu bytes, the file has %llu behind its length", file,
                     (unsigned long long)len, (unsigned long long)(map->size - 8));
        goto out;
    }
    if (len > VB_LIMIT_SAFETENSORS_HEADER || header_too_rich((const char *)map->data + 8, len)) {
        e = vb__fail(err, VB_E_LIMIT, "%s: the header of %llu bytes is too large, expected at most %d bytes and %d tensors",
                     file, (unsigned long long)len, VB_LIMIT_SAFETENSORS_HEADER, VB_LIMIT_TENSORS);
        goto out;
    }
    VB_TRY_OUT(vb__json_parse((const char *)map->data + 8, (size_t)len, VB_LIMIT_SAFETENSORS_HEADER, file, &header, err));
    VB_TRY_OUT(parse_header(&s, header, map->data + 8 + len, map->size - 8 - len, err));
    s.map = *map;
out:
    json_decref(header);
    if (e == VB_OK) *out = s;
    else vb__arena_fini(&s.arena);
    return e;
}

vb_err vb__safetensors_open(const char *path, vb__safetensors *out, vb_error *err) {
    vb__mapped map;
    VB_TRY(vb__mapped_open(path, &map, err));
    vb_err e = vb__safetensors_parse(&map, vb__path_base(path), out, err);
    if (e != VB_OK) vb__mapped_close(&map);
    return e;
}

void vb__safetensors_close(vb__safetensors *s) {
    vb__mapped_close(&s->map);
    vb__arena_fini(&s->arena);
    *s = (vb__safetensors){0};
}
