#include "format/shards.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

#define INDEX "model.safetensors.index.json"
#define SINGLE "model.safetensors"
#define SIDECAR "mtp.safetensors"

static vb_err add_file(vb__shards *s, const char *folder, const char *name, vb_error *err) {
    if (s->n_files >= VB_LIMIT_SHARDS)
        return vb__fail(err, VB_E_LIMIT, "%s: names more than %d files", INDEX, VB_LIMIT_SHARDS);
    vb__safetensors *files =
        vb__realloc_array(VB_TAG_FORMAT, s->files, (size_t)s->n_files + 1, sizeof *s->files);
    char *path = vb__path_join(folder, name);
    vb_err e = VB_E_MEMORY;
    if (files != NULL) s->files = files;
    if (files == NULL || path == NULL) vb__fail_store(err, VB_E_MEMORY, "%s: no memory", name);
    else e = vb__safetensors_open(path, &s->files[s->n_files], err);
    if (e == VB_OK) s->n_files++;
    vb__free(path);
    return e;
}

static int32_t find_file(const vb__shards *s, const char *name) {
    for (int32_t i = 0; i < s->n_files; i++)
        if (strcmp(s->files[i].file, name) == 0) return i;
    return -1;
}

/* ---- the index ------------------------------------------------------------------------------------------ */

/* Opens every shard that the map names; `seen` is an empty object, used as a set of the names. */
static vb_err open_named(vb__shards *s, const char *folder, json_t *map, json_t *seen, vb_error *err) {
    const char *tensor;
    json_t *v;
    char b[80];
    json_object_foreach(map, tensor, v) {
        if (!json_is_string(v) || strlen(json_string_value(v)) != json_string_length(v))
            return vb__fail(err, VB_E_FORMAT, "%s: weight_map.%s: %s, expected a file name", INDEX, tensor,
                            vb__json_is(v, b, sizeof b));
        const char *name = json_string_value(v);
        if (json_object_get(seen, name) != NULL) continue;
        if (!vb__path_plain_name(name))
            return vb__fail(err, VB_E_FORMAT, "%s: weight_map.%s: names \"%s\", expected a file of the same folder", INDEX,
                            tensor, name);
        vb_error why = {0};
        vb_err e = add_file(s, folder, name, &why);
        if (e == VB_E_NOT_FOUND) return vb__fail(err, e, "%s: weight_map.%.80s: %s", INDEX, tensor, why.text);
        if (e != VB_OK) return vb__fail(err, e, "%s", why.text);
        if (json_object_set_new(seen, name, json_true()) != 0)
            return vb__fail(err, VB_E_MEMORY, "%s: no memory for its files", INDEX);
    }
    return VB_OK;
}

/* The map names more tensors than the shards hold: says which. */
static vb_err name_missing(const vb__shards *s, json_t *map, vb_error *err) {
    json_t *held = json_object(), *v;
    vb_err e = VB_OK;
    for (int32_t f = 0; f < s->n_files; f++)
        for (int32_t i = 0; i < s->files[f].count; i++)
            if (json_object_set_new(held, s->files[f].tensors[i].name, json_true()) != 0) e = VB_E_MEMORY;
    if (e != VB_OK) vb__fail_store(err, e, "%s: no memory", INDEX);
    const char *name;
    if (e == VB_OK) json_object_foreach(map, name, v) {
        if (json_object_get(held, name) == NULL) {
            e = vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: is missing from %s, where the index places it", INDEX, name,
                         json_string_value(v));
            break;
        }
    }
    json_decref(held);
    return e;
}

/* Both directions: what a shard holds is in the map under that shard, and the map names nothing else. */
static vb_err check_map(const vb__shards *s, json_t *map, vb_error *err) {
    size_t total = 0;
    for (int32_t f = 0; f < s->n_files; f++)
        for (int32_t i = 0; i < s->files[f].count; i++, total++) {
            const char *name = s->files[f].tensors[i].name;
            const json_t *v = json_object_get(map, name);
            if (v == NULL)
                return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: is not in %s", s->files[f].file, name, INDEX);
            if (strcmp(json_string_value(v), s->files[f].file) != 0)
                return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: %s places it in %s", s->files[f].file, name, INDEX,
                                json_string_value(v));
        }
    if (total == json_object_size(map)) return VB_OK;
    return name_missing(s, map, err);
}

/* The number decides nothing, and files whose tensors were taken out later still have the old one: a word, no error. */
static vb_err check_total(const vb__shards *s, const json_t *root, vb_error *err) {
    const json_t *meta = json_object_get(root, "metadata");
    if (!json_is_object(meta) || vb__json_get((vb__json_at){meta, ""}, "total_size") == NULL) return VB_OK;
    double claimed = 0;
    uint64_t total = 0;
    /* some writers spell it as a real number */
    VB_TRY(vb__json_number((vb__json_at){meta, INDEX ": metadata."}, "total_size", 0, 9e18, &claimed, err));
    for (int32_t f = 0; f < s->n_files; f++)
        for (int32_t i = 0; i < s->files[f].count; i++) total += s->files[f].tensors[i].bytes;
    if ((uint64_t)claimed != total)
        vb__log(VB_LOG_WARN, "load", "file=%s total_size=%.0f tensors=%llu: the index is not of these bytes", INDEX, claimed,
                (unsigned long long)total);
    return VB_OK;
}

static vb_err open_index(vb__shards *s, const char *folder, const char *path, vb_error *err) {
    json_t *root = NULL, *map = NULL, *seen = json_object();
    vb_err e;
    VB_TRY_OUT(vb__json_read(path, VB_LIMIT_SAFETENSORS_HEADER, NULL, &root, err));
    if (!json_is_object(root)) {
        e = vb__fail(err, VB_E_FORMAT, "%s: is no object, expected one with weight_map", INDEX);
        goto out;
    }
    VB_TRY_OUT(vb__json_object((vb__json_at){root, INDEX ": "}, "weight_map", &map, err));
    if (json_object_size(map) == 0 || json_object_size(map) > VB_LIMIT_TENSORS) {
        e = vb__fail(err, VB_E_LIMIT, "%s: weight_map: has %zu tensors, expected 1..%d", INDEX, json_object_size(map),
                     VB_LIMIT_TENSORS);
        goto out;
    }
    VB_TRY_OUT(open_named(s, folder, map, seen, err));
    VB_TRY_OUT(check_map(s, map, err));
    VB_TRY_OUT(check_total(s, root, err));
out:
    json_decref(seen);
    json_decref(root);
    return e;
}

/* ---- the set -------------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b) {
    const vb__shard_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->t->name, (*y)->t->name);
}

static vb_err collect(vb__shards *s, int32_t sidecar, vb_error *err) {
    size_t n = 0, at = 0;
    for (int32_t f = 0; f < s->n_files; f++) n += (size_t)s->files[f].count;
    if (n > VB_LIMIT_TENSORS)
        return vb__fail(err, VB_E_LIMIT, "%s: the files hold %zu tensors, expected at most %d", s->files[0].file, n,
                        VB_LIMIT_TENSORS);
    s->tensors = vb__calloc(VB_TAG_FORMAT, n, sizeof *s->tensors);
    vb__shard_tensor **sorted = vb__calloc(VB_TAG_FORMAT, n, sizeof *sorted);
    vb_err e = VB_OK;
    if (s->tensors == NULL || sorted == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "%s: no memory for %zu tensors", s->files[0].file, n);
        goto out;
    }
    for (int32_t f = 0; f < s->n_files; f++)
        for (int32_t i = 0; i < s->files[f].count; i++, at++) {
            s->tensors[at] = (vb__shard_tensor){&s->files[f].tensors[i], s->files[f].file, f == sidecar};
            sorted[at] = &s->tensors[at];
        }
    s->count = (int32_t)n;
    if (n > 1) qsort(sorted, n, sizeof *sorted, by_name);
    for (size_t i = 1; i < n; i++)
        if (strcmp(sorted[i - 1]->t->name, sorted[i]->t->name) == 0) {
            e = vb__fail(err, VB_E_FORMAT, "%s: tensor %s: is also in %s, expected it once", sorted[i]->file,
                         sorted[i]->t->name, sorted[i - 1]->file);
            goto out;
        }
out:
    vb__free(sorted);
    return e;
}

vb_err vb__shards_open(const char *folder, vb__shards *out, vb_error *err) {
    vb__shards s = {0};
    int32_t sidecar = -1;
    char *index = vb__path_join(folder, INDEX), *single = vb__path_join(folder, SINGLE);
    char *side = vb__path_join(folder, SIDECAR);
    vb_err e = VB_OK;
    if (index == NULL || single == NULL || side == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "%s: no memory", folder);
        goto out;
    }
    if (vb__file_exists(index)) {
        VB_TRY_OUT(open_index(&s, folder, index, err));
        if (find_file(&s, SINGLE) < 0 && vb__file_exists(single)) {
            e = vb__fail(err, VB_E_MISMATCH, "%s: lies beside %s, which does not name it, expected one of the two", SINGLE,
                         INDEX);
            goto out;
        }
    } else if (vb__file_exists(single)) {
        VB_TRY_OUT(add_file(&s, folder, SINGLE, err));
    } else {
        e = vb__fail(err, VB_E_NOT_FOUND, "%s: has neither %s nor %s", folder, SINGLE, INDEX);
        goto out;
    }
    if (find_file(&s, SIDECAR) < 0 && vb__file_exists(side)) {
        sidecar = s.n_files;
        VB_TRY_OUT(add_file(&s, folder, SIDECAR, err));
    }
    VB_TRY_OUT(collect(&s, sidecar, err));
out:
    vb__free(index);
    vb__free(single);
    vb__free(side);
    if (e == VB_OK) *out = s;
    else vb__shards_close(&s);
    return e;
}

void vb__shards_close(vb__shards *s) {
    for (int32_t i = 0; i < s->n_files; i++) vb__safetensors_close(&s->files[i]);
    vb__free(s->files);
    vb__free(s->tensors);
    *s = (vb__shards){0};
}
