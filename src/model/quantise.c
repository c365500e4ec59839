#include "model/quantise.h"
#include "base/bf16.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "model/checkpoint.h"
#include "model/halves.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SIDECAR "mtp.safetensors"
#define MAX_SHARD_BYTES 5000000000ll
#define ROWS_AT_ONCE 64
enum { NAME_BYTES = VB_LIMIT_TENSOR_NAME + 64 };

typedef enum out_kind {
    OUT_COPY,
    OUT_NORM, /* 1 + w as f32 */
    OUT_QUANT /* three tensors: name.weight, name.scales, name.biases */
} out_kind;

/* Rows of a source tensor, seen as a matrix of rows of its last dimension. */
typedef struct part {
    int32_t tensor;
    int64_t row0, rows;
} part;

typedef struct out_tensor {
    char *name; /* OUT_QUANT: of the module */
    out_kind kind;
    const char *dtype;
    int32_t dims;
    int64_t shape[VB_LIMIT_TENSOR_DIMS];
    part *parts;
    int32_t n_parts;
    int64_t rows, cols;
    int32_t bits, group;
    bool is_override;
    int32_t file;
} out_tensor;

typedef struct job {
    vb__checkpoint *c;
    const vb__quantise_options *o;
    const char *to;
    vb_error *err;
    json_t *index_of; /* canonical name -> source tensor */
    out_tensor *out;
    int32_t n_out, cap;
    int32_t n_shards;
    bool has_sidecar;
    char **written;
    int32_t n_written;
    int64_t done, total;
    vb__quantise_result result;
    double sums[2];
} job;

static bool starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }
static bool ends(const char *s, const char *tail) {
    size_t n = strlen(s), t = strlen(tail);
    return n >= t && strcmp(s + n - t, tail) == 0;
}
static vb_err no_memory(job *j) { return vb__fail(j->err, VB_E_MEMORY, "%s: no memory to plan its tensors", j->to); }

static bool is_qwen3_5(const job *j) {
    vb__arch a = vb__checkpoint_config(j->c)->arch;
    return a == VB_ARCH_QWEN3_5 || a == VB_ARCH_QWEN3_5_MOE;
}

/* ---- the plan ------------------------------------------------------------------------------------------- */

/* MLX's name of a canonical one. The MTP head keeps the spelling that tells how its norms are stored. */
static void out_name(const job *j, int32_t source, const char *canon, char out[NAME_BYTES]) {
    const char *prefix = "model.";
    vb__tensor_info t;
    vb__checkpoint_tensor(j->c, source, &t);
    if (starts(canon, "mtp.")) prefix = starts(t.name, "mtp.") ? "" : "language_model.";
    else if (strcmp(canon, "lm_head") == 0 || starts(canon, "lm_head.")) prefix = is_qwen3_5(j) ? "language_model." : "";
    else if (is_qwen3_5(j)) prefix = "language_model.model.";
    else if (vb__checkpoint_config(j->c)->arch == VB_ARCH_DFLASH) prefix = "";
    (void)snprintf(out, NAME_BYTES, "%s%s", prefix, canon);
}

static out_tensor *add_out(job *j, int32_t source, const char *canon, int32_t n_parts) {
    char name[NAME_BYTES];
    if (j->n_out == j->cap) {
        int32_t cap = j->cap == 0 ? 256 : 2 * j->cap;
        out_tensor *p = vb__realloc_array(VB_TAG_FORMAT, j->out, (size_t)cap, sizeof *p);
        if (p == NULL) return NULL;
        j->out = p;
        j->cap = cap;
    }
    out_name(j, source, canon, name);
    out_tensor *t = &j->out[j->n_out];
    *t = (out_tensor){.name = vb__strdup(VB_TAG_FORMAT, name),
                      .parts = vb__calloc(VB_TAG_FORMAT, (size_t)n_parts, sizeof *t->parts),
                      .n_parts = n_parts};
    j->n_out++; /* counted also on failure, to be freed */
    t->file = starts(canon, "mtp.") ? -1 : 0;
    if (starts(canon, "mtp.")) j->has_sidecar = true;
    return t->name == NULL || t->parts == NULL ? NULL : t;
}

static bool plain_float(const char *dtype) {
    return strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0 || strcmp(dtype, "F32") == 0;
}

/* Fills a matrix (or a stack of `lead` of them); it is quantised when the group divides its width. */
static vb_err set_matrix(job *j, out_tensor *t, const vb__tensor_info *from, int64_t lead, int64_t rows, int64_t cols) {
    if (!plain_float(from->dtype))
        return vb__fail(j->err, VB_E_UNSUPPORTED, "%s: tensor %s: has dtype %s, expected BF16, F16 or F32 (is the model quantised "
                        "already?)", from->file, from->name, from->dtype);
    t->dims = 0;
    if (lead > 0) t->shape[t->dims++] = lead;
    t->shape[t->dims++] = rows;
    t->shape[t->dims++] = cols;
    t->rows = (lead > 0 ? lead : 1) * rows;
    t->cols = cols;
    t->dtype = from->dtype;
    t->bits = j->o->bits;
    t->group = j->o->group;
    bool router = ends(t->name, ".mlp.gate") || ends(t->name, ".mlp.shared_expert_gate");
    if (router && vb__checkpoint_config(j->c)->experts > 0) {
        t->bits = 8;
        t->group = 64;
        t->is_override = true;
    }
    if (cols > 0 && cols % t->group == 0) {
        t->kind = OUT_QUANT;
        return VB_OK;
    }
    t->kind = OUT_COPY;
    t->is_override = false;
    size_t n = strlen(t->name); /* of the module; the tensor ends in .weight */
    char *full = vb__alloc(VB_TAG_FORMAT, n + 8);
    if (full == NULL) return no_memory(j);
    memcpy(full, t->name, n);
    memcpy(full + n, ".weight", 8);
    vb__free(t->name);
    t->name = full;
    return VB_OK;
}

/* "X.experts.0.P.weight" and its siblings become one stack "X.switch_mlp.P"; others than 0 are done with it. */
static vb_err plan_numbered(job *j, int32_t i, const vb__tensor_info *t, const char *at) {
    char *rest, name[NAME_BYTES];
    int base = (int)(at - t->canonical);
    int32_t experts = vb__checkpoint_config(j->c)->experts;
    if (strtol(at + 9, &rest, 10) != 0) return VB_OK;
    char proj[32];
    (void)snprintf(proj, sizeof proj, "%.*s", (int)strcspn(rest + 1, "."), *rest == '.' ? rest + 1 : "");
    (void)snprintf(name, sizeof name, "%.*s.switch_mlp.%s", base, t->canonical, proj);
    out_tensor *out = add_out(j, i, name, experts);
    if (out == NULL) return no_memory(j);
    for (int32_t e = 0; e < experts; e++) {
        (void)snprintf(name, sizeof name, "%.*s.experts.%d.%s.weight", base, t->canonical, e, proj);
        const json_t *v = json_object_get(j->index_of, name);
        vb__tensor_info s;
        if (v != NULL) vb__checkpoint_tensor(j->c, (int32_t)json_integer_value(v), &s);
        if (v == NULL || s.dims != 2 || s.shape[0] != t->shape[0] || s.shape[1] != t->shape[1] || strcmp(s.dtype, t->dtype) != 0)
            return vb__fail(j->err, VB_E_MISMATCH, "%s: tensor %s: is missing or unlike that of expert 0", t->file, name);
        out->parts[e] = (part){(int32_t)json_integer_value(v), 0, s.shape[0]};
    }
    return set_matrix(j, out, t, experts, t->shape[0], t->shape[1]);
}

/* Fused experts: [E, 2I, H] gives gate and up, [E, H, I] gives down. */
static vb_err plan_fused(job *j, int32_t i, const vb__tensor_info *t) {
    char name[NAME_BYTES];
    bool pair = ends(t->canonical, "gate_up_proj");
    int base = (int)(strstr(t->canonical, ".experts.") - t->canonical);
    int64_t experts = t->shape[0], rows = t->shape[1] / (pair ? 2 : 1);
    if (experts < 1 || experts > VB_LIMIT_EXPERTS || (pair && t->shape[1] % 2 != 0))
        return vb__fail(j->err, VB_E_MISMATCH, "%s: tensor %s: has %lld experts of %lld rows", t->file, t->name,
                        (long long)experts, (long long)t->shape[1]);
    for (int half = 0; half < (pair ? 2 : 1); half++) {
        (void)snprintf(name, sizeof name, "%.*s.switch_mlp.%s", base, t->canonical,
                       !pair ? "down_proj" : half == 0 ? "gate_proj" : "up_proj");
        out_tensor *out = add_out(j, i, name, (int32_t)experts);
        if (out == NULL) return no_memory(j);
        for (int64_t e = 0; e < experts; e++) out->parts[e] = (part){i, e * t->shape[1] + half * rows, rows};
        VB_TRY(set_matrix(j, out, t, experts, rows, t->shape[2]));
    }
    return VB_OK;
}

static bool zero_centred(const char *canon) {
    if (ends(canon, ".linear_attn.norm.weight")) return false;
    return strcmp(canon, "norm.weight") == 0 || ends(canon, "layernorm.weight") || ends(canon, ".q_norm.weight") ||
           ends(canon, ".k_norm.weight");
}

static vb_err plan_tensor(job *j, int32_t i) {
    vb__tensor_info t;
    vb__checkpoint_tensor(j->c, i, &t);
    if (t.canonical == NULL) return VB_OK; /* vision, or refused below by finish */
    if (ends(t.canonical, ".scales") || ends(t.canonical, ".biases"))
        return vb__fail(j->err, VB_E_UNSUPPORTED, "%s: tensor %s: the model is quantised already, expected BF16, F16 or F32", t.file,
                        t.name);
    const char *at = strstr(t.canonical, ".experts.");
    if (at != NULL && at[9] >= '0' && at[9] <= '9' && t.dims == 2) return plan_numbered(j, i, &t, at);
    if (at != NULL && t.dims == 3) return plan_fused(j, i, &t);
    bool stacked = strstr(t.canonical, ".switch_mlp.") != NULL && t.dims == 3;
    bool matrix = ends(t.canonical, ".weight") && (t.dims == 2 || stacked);
    char module[NAME_BYTES];
    (void)snprintf(module, sizeof module, "%.*s", (int)(strlen(t.canonical) - (matrix ? 7 : 0)), t.canonical);
    out_tensor *out = add_out(j, i, module, 1);
    if (out == NULL) return no_memory(j);
    int64_t rows = 1;
    for (int32_t d = 0; d + 1 < t.dims; d++) rows *= t.shape[d];
    out->parts[0] = (part){i, 0, rows};
    if (matrix) return set_matrix(j, out, &t, stacked ? t.shape[0] : 0, stacked ? t.shape[1] : t.shape[0], t.shape[t.dims - 1]);
    out->kind = OUT_COPY;
    out->dtype = t.dtype;
    out->dims = t.dims;
    memcpy(out->shape, t.shape, sizeof out->shape);
    out->rows = rows;
    out->cols = t.dims == 0 ? 1 : t.shape[t.dims - 1];
    if (t.dims == 3 && ends(t.canonical, ".conv1d.weight")) { /* [C, 1, K] to [C, K, 1]: the same bytes */
        out->shape[1] = t.shape[1] * t.shape[2];
        out->shape[2] = 1;
    }
    bool shift = zero_centred(t.canonical) && vb__checkpoint_norm_is_raw(j->c, i) && out->file == 0;
    if (shift && t.dims == 1 && plain_float(t.dtype)) {
        out->kind = OUT_NORM;
        out->dtype = "F32";
    }
    return VB_OK;
}

static size_t dtype_bytes(const char *dtype) {
    if (strcmp(dtype, "BF16") == 0 || strcmp(dtype, "F16") == 0 || ends(dtype, "16")) return 2;
    if (ends(dtype, "64")) return 8;
    return ends(dtype, "32") ? 4 : 1;
}

static int64_t out_bytes(const out_tensor *t) {
    int64_t n = t->rows * t->cols;
    if (t->kind == OUT_QUANT) return n * t->bits / 8 + n / t->group * 4;
    return n * (int64_t)dtype_bytes(t->dtype);
}

static vb_err plan(job *j) {
    int32_t n = vb__checkpoint_tensor_count(j->c);
    vb__tensor_info t;
    int32_t vision = 0;
    for (int32_t i = 0; i < n; i++) {
        vb__checkpoint_tensor(j->c, i, &t);
        if (t.canonical == NULL) vision++;
        else if (json_object_set_new(j->index_of, t.canonical, json_integer(i)) != 0) return no_memory(j);
    }
    if (vision > 0) vb__log(VB_LOG_INFO, "quantise", "tensors=%d: not of the text model, left out", vision);
    for (int32_t i = 0; i < n; i++) VB_TRY(plan_tensor(j, i));
    int64_t in_shard = 0;
    j->n_shards = 1;
    for (int32_t i = 0; i < j->n_out; i++) {
        out_tensor *o = &j->out[i];
        int64_t bytes = out_bytes(o);
        j->result.bytes_out += bytes;
        for (int32_t p = 0; p < o->n_parts; p++) {
            vb__checkpoint_tensor(j->c, o->parts[p].tensor, &t);
            j->total += o->parts[p].rows * o->cols * (int64_t)dtype_bytes(t.dtype);
        }
        if (o->file < 0) continue;
        if (in_shard > 0 && in_shard + bytes > MAX_SHARD_BYTES) {
            j->n_shards++;
            in_shard = 0;
        }
        in_shard += bytes;
        o->file = j->n_shards - 1;
    }
    j->result.bytes_in = j->total;
    return VB_OK;
}

/* ---- writing tensors ------------------------------------------------------------------------------------ */

static void widen(const uint8_t *src, const char *dtype, int64_t n, float *out) {
    if (strcmp(dtype, "F32") == 0) memcpy(out, src, (size_t)n * 4);
    else if (strcmp(dtype, "BF16") == 0)
        for (int64_t i = 0; i < n; i++) out[i] = vb__from_bf16(vb__load_u16(src + 2 * i));
    else
        for (int64_t i = 0; i < n; i++) out[i] = vb__f16_to_float(vb__load_u16(src + 2 * i));
}

typedef struct rows_ctx {
    const uint8_t *src;
    const char *dtype;
    int32_t cols, bits, group;
    float *wide;             /* [ROWS_AT_ONCE][cols] */
    uint8_t *codes;          /* [ROWS_AT_ONCE][cols*bits/8] */
    uint16_t *scales, *biases; /* of the first row of this block */
    double sums[ROWS_AT_ONCE][2];
    bool bad[ROWS_AT_ONCE];
} rows_ctx;

static void quantise_rows(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    (void)thread;
    rows_ctx *r = ctx;
    int64_t groups = r->cols / r->group;
    for (int32_t i = begin; i < end; i++) {
        float *x = r->wide + (int64_t)i * r->cols;
        widen(r->src + (int64_t)i * r->cols * (int64_t)dtype_bytes(r->dtype), r->dtype, r->cols, x);
        r->sums[i][0] = r->sums[i][1] = 0;
        r->bad[i] = !vb__quantise_row(x, r->cols, r->bits, r->group, r->codes + (int64_t)i * r->cols * r->bits / 8,
                                      r->scales + i * groups, r->biases + i * groups, r->sums[i]);
    }
}

static vb_err advance(job *j, int64_t bytes) {
    j->done += bytes;
    if (j->o->progress != NULL && !j->o->progress(j->o->user, j->done, j->total))
        return vb__fail(j->err, VB_E_CANCELLED, "%s: quantising was stopped", j->to);
    return VB_OK;
}

static vb_err write_quant(job *j, const out_tensor *t, vb__file_writer *w) {
    rows_ctx *r = vb__calloc(VB_TAG_FORMAT, 1, sizeof *r);
    size_t groups = (size_t)(t->cols / t->group), row_bytes = (size_t)(t->cols * t->bits / 8);
    float *wide = vb__calloc(VB_TAG_FORMAT, ROWS_AT_ONCE * (size_t)t->cols, sizeof *wide);
    uint8_t *codes = vb__calloc(VB_TAG_FORMAT, ROWS_AT_ONCE, row_bytes);
    uint16_t *scales = vb__calloc(VB_TAG_FORMAT, (size_t)t->rows, groups * 2 * sizeof *scales);
    uint16_t *biases = scales == NULL ? NULL : scales + (size_t)t->rows * groups;
    vb_err e = VB_OK;
    if (r == NULL || wide == NULL || codes == NULL || scales == NULL) {
        e = no_memory(j);
        goto out;
    }
    *r = (rows_ctx){.cols = (int32_t)t->cols, .bits = t->bits, .group = t->group, .wide = wide, .codes = codes};
    size_t at = 0; /* group of the tensor */
    for (int32_t p = 0; p < t->n_parts; p++) {
        vb__tensor_info s;
        vb__checkpoint_tensor(j->c, t->parts[p].tensor, &s);
        int64_t src_row = t->cols * (int64_t)dtype_bytes(s.dtype);
        r->dtype = s.dtype;
        for (int64_t row = 0; row < t->parts[p].rows; row += ROWS_AT_ONCE) {
            int64_t left = t->parts[p].rows - row;
            int32_t n = left < ROWS_AT_ONCE ? (int32_t)left : ROWS_AT_ONCE;
            r->src = (const uint8_t *)s.data + (t->parts[p].row0 + row) * src_row;
            r->scales = scales + at;
            r->biases = biases + at;
            vb__parallel_for(j->o->pool, n, 4, quantise_rows, r);
            for (int32_t i = 0; i < n; i++) {
                if (r->bad[i]) {
                    e = vb__fail(j->err, VB_E_UNSUPPORTED, "%s: tensor %s: row %lld has a value that is not finite", s.file, s.name,
                                 (long long)(t->parts[p].row0 + row + i));
                    goto out;
                }
                j->sums[0] += r->sums[i][0];
                j->sums[1] += r->sums[i][1];
            }
            VB_TRY_OUT(vb__file_writer_put(w, codes, (size_t)n * row_bytes, j->err));
            VB_TRY_OUT(advance(j, n * src_row));
            at += (size_t)n * groups;
        }
    }
    VB_TRY_OUT(vb__file_writer_put(w, scales, (size_t)t->rows * groups * sizeof *scales, j->err));
    VB_TRY_OUT(vb__file_writer_put(w, biases, (size_t)t->rows * groups * sizeof *biases, j->err));
    j->result.matrices++;
    j->result.weights += t->rows * t->cols;
out:
    vb__free(r);
    vb__free(wide);
    vb__free(codes);
    vb__free(scales);
    return e;
}

static vb_err write_plain(job *j, const out_tensor *t, vb__file_writer *w) {
    for (int32_t p = 0; p < t->n_parts; p++) {
        vb__tensor_info s;
        vb__checkpoint_tensor(j->c, t->parts[p].tensor, &s);
        size_t size = dtype_bytes(s.dtype);
        const uint8_t *src = (const uint8_t *)s.data + t->parts[p].row0 * t->cols * (int64_t)size;
        int64_t n = t->parts[p].rows * t->cols;
        if (t->kind == OUT_COPY) VB_TRY(vb__file_writer_put(w, src, (size_t)n * size, j->err));
        for (int64_t i = 0; t->kind == OUT_NORM && i < n; i++) {
            float v;
            widen(src + i * (int64_t)size, s.dtype, 1, &v);
            v = 1.0f + v;
            VB_TRY(vb__file_writer_put(w, &v, 4, j->err));
        }
        VB_TRY(advance(j, n * (int64_t)size));
    }
    return VB_OK;
}

/* ---- files ---------------------------------------------------------------------------------------------- */

static vb_err header_entry(vb__buffer *b, const char *name, const char *tail, const char *dtype, const int64_t *shape,
                           int32_t dims, uint64_t *at, uint64_t bytes) {
    json_t *s = json_sprintf("%s%s", name, tail);
    char *quoted = s == NULL ? NULL : json_dumps(s, JSON_ENCODE_ANY);
    (void)vb__buffer_printf(b, ",%s:{\"dtype\":\"%s\",\"shape\":[", quoted == NULL ? "\"\"" : quoted, dtype);
    for (int32_t i = 0; i < dims; i++) (void)vb__buffer_printf(b, "%s%lld", i == 0 ? "" : ",", (long long)shape[i]);
    vb_err e = vb__buffer_printf(b, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)*at,
                                 (unsigned long long)(*at + bytes));
    *at += bytes;
    free(quoted); /* jansson's */
    json_decref(s);
    return quoted == NULL ? VB_E_MEMORY : e;
}

static vb_err header_tensor(vb__buffer *b, const out_tensor *t, uint64_t *at) {
    int64_t shape[VB_LIMIT_TENSOR_DIMS];
    memcpy(shape, t->shape, sizeof shape);
    if (t->kind != OUT_QUANT) return header_entry(b, t->name, "", t->dtype, shape, t->dims, at, (uint64_t)out_bytes(t));
    uint64_t n = (uint64_t)(t->rows * t->cols), side = n / (uint64_t)t->group * 2;
    shape[t->dims - 1] = t->cols * t->bits / 32;
    VB_TRY(header_entry(b, t->name, ".weight", "U32", shape, t->dims, at, n * (uint64_t)t->bits / 8));
    shape[t->dims - 1] = t->cols / t->group;
    VB_TRY(header_entry(b, t->name, ".scales", "BF16", shape, t->dims, at, side));
    return header_entry(b, t->name, ".biases", "BF16", shape, t->dims, at, side);
}

static vb_err remember(job *j, const char *path) {
    char **p = vb__realloc_array(VB_TAG_FORMAT, j->written, (size_t)j->n_written + 1, sizeof *p);
    if (p == NULL) return no_memory(j);
    j->written = p;
    p[j->n_written] = vb__strdup(VB_TAG_FORMAT, path);
    if (p[j->n_written] == NULL) return no_memory(j);
    j->n_written++;
    return VB_OK;
}

static void shard_name(const job *j, int32_t file, char out[64]) {
    if (file < 0) (void)snprintf(out, 64, "%s", SIDECAR);
    else if (j->n_shards == 1) (void)snprintf(out, 64, "model.safetensors");
    else (void)snprintf(out, 64, "model-%05d-of-%05d.safetensors", file + 1, j->n_shards);
}

static vb_err write_shard(job *j, int32_t file) {
    char name[64];
    shard_name(j, file, name);
    char *path = vb__path_join(j->to, name);
    vb__buffer b;
    vb__buffer_init(&b, VB_LIMIT_SAFETENSORS_HEADER);
    vb__file_writer w = {.fd = -1};
    uint64_t at = 0;
    vb_err e = VB_OK;
    if (path == NULL) {
        e = no_memory(j);
        goto out;
    }
    (void)vb__buffer_puts(&b, "{\"__metadata__\":{\"format\":\"mlx\"}");
    for (int32_t i = 0; e == VB_OK && i < j->n_out; i++)
        if (j->out[i].file == file) e = header_tensor(&b, &j->out[i], &at);
    (void)vb__buffer_putc(&b, '}');
    while (b.error == VB_OK && b.len % 8 != 0) (void)vb__buffer_putc(&b, ' '); /* data aligned to 8 */
    if (e == VB_OK) e = b.error;
    if (e != VB_OK) {
        e = vb__fail(j->err, e, "%s: the header does not fit into %d bytes", name, VB_LIMIT_SAFETENSORS_HEADER);
        goto out;
    }
    uint64_t len = b.len;
    VB_TRY_OUT(remember(j, path));
    VB_TRY_OUT(vb__file_writer_open(&w, path, j->err));
    VB_TRY_OUT(vb__file_writer_put(&w, &len, 8, j->err)); /* x86-64 only: little-endian */
    VB_TRY_OUT(vb__file_writer_put(&w, vb__buffer_str(&b), b.len, j->err));
    for (int32_t i = 0; i < j->n_out; i++) {
        const out_tensor *t = &j->out[i];
        if (t->file != file) continue;
        if (t->kind == OUT_QUANT) VB_TRY_OUT(write_quant(j, t, &w));
        else VB_TRY_OUT(write_plain(j, t, &w));
    }
    VB_TRY_OUT(vb__file_writer_commit(&w, j->err));
out:
    vb__file_writer_abort(&w);
    vb__buffer_fini(&b);
    vb__free(path);
    return e;
}

static vb_err write_json(job *j, const char *name, const json_t *doc) {
    char *path = vb__path_join(j->to, name), *text = json_dumps(doc, JSON_INDENT(2));
    vb_err e = path == NULL || text == NULL ? no_memory(j) : remember(j, path);
    size_t n = text == NULL ? 0 : strlen(text);
    if (e == VB_OK) {
        text[n] = '\n'; /* in place of the NUL */
        e = vb__file_write(path, text, n + 1, j->err);
    }
    vb__free(path);
    free(text); /* jansson's */
    return e;
}

static vb_err write_index(job *j) {
    if (j->n_shards == 1) return VB_OK;
    json_t *map = json_object(), *doc = json_pack("{s:{s:I},s:O}", "metadata", "total_size", (json_int_t)0, "weight_map", map);
    char name[NAME_BYTES + 8], file[64];
    json_int_t total = 0;
    vb_err e = map == NULL || doc == NULL ? no_memory(j) : VB_OK;
    static const char *const tails[] = {".weight", ".scales", ".biases"};
    for (int32_t i = 0; e == VB_OK && i < j->n_out; i++) {
        const out_tensor *t = &j->out[i];
        if (t->file < 0) continue;
        shard_name(j, t->file, file);
        total += out_bytes(t);
        for (int k = 0; k < (t->kind == OUT_QUANT ? 3 : 1); k++) {
            (void)snprintf(name, sizeof name, "%s%s", t->name, t->kind == OUT_QUANT ? tails[k] : "");
            if (json_object_set_new(map, name, json_string(file)) != 0) e = no_memory(j);
        }
    }
    if (e == VB_OK) {
        json_integer_set(json_object_get(json_object_get(doc, "metadata"), "total_size"), total);
        e = write_json(j, "model.safetensors.index.json", doc);
    }
    json_decref(map);
    json_decref(doc);
    return e;
}

/* config.json comes last: a folder without it is no model. */
static vb_err write_config(job *j, const char *from) {
    char *path = vb__path_join(from, "config.json");
    json_t *root = NULL;
    json_t *q = json_pack("{s:i,s:i,s:s}", "group_size", (int)j->o->group, "bits", (int)j->o->bits, "mode", "affine");
    vb_err e = VB_OK;
    if (path == NULL || q == NULL) {
        e = no_memory(j);
        goto out;
    }
    VB_TRY_OUT(vb__json_read(path, VB_LIMIT_JSON_BYTES, NULL, &root, j->err));
    for (int32_t i = 0; i < j->n_out; i++) {
        const out_tensor *t = &j->out[i];
        if (t->kind != OUT_QUANT || !t->is_override) continue;
        json_t *own = json_pack("{s:i,s:i}", "group_size", (int)t->group, "bits", (int)t->bits);
        if (json_object_set_new(q, t->name, own) != 0) {
            e = no_memory(j);
            goto out;
        }
    }
    if (json_object_set(root, "quantization", q) != 0 || json_object_set(root, "quantization_config", q) != 0) {
        e = no_memory(j);
        goto out;
    }
    VB_TRY_OUT(write_json(j, "config.json", root));
out:
    json_decref(q);
    json_decref(root);
    vb__free(path);
    return e;
}

static vb_err copy_files(job *j, const char *from) {
    static const char *const names[] = {"tokenizer.json",     "tokenizer_config.json", "generation_config.json",
                                        "chat_template.jinja", "chat_template.json",   "special_tokens_map.json",
                                        "added_tokens.json",  "vocab.json",            "merges.txt",
                                        "tokenizer.model"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *src = vb__path_join(from, names[i]), *dst = vb__path_join(j->to, names[i]);
        vb__buffer b;
        vb__buffer_init(&b, VB_LIMIT_JSON_BYTES);
        vb_err e = VB_OK;
        if (src == NULL || dst == NULL) e = no_memory(j);
        if (e == VB_OK && vb__file_exists(src)) {
            e = vb__file_read(src, VB_LIMIT_JSON_BYTES, &b, j->err);
            if (e == VB_OK) e = remember(j, dst);
            if (e == VB_OK) e = vb__file_write(dst, vb__buffer_str(&b), b.len, j->err);
        }
        vb__buffer_fini(&b);
        vb__free(src);
        vb__free(dst);
        VB_TRY(e);
    }
    return VB_OK;
}

/* Makes the folder, or finds it empty. */
static vb_err claim_folder(const char *to, bool *made, vb_error *err) {
    *made = mkdir(to, 0777) == 0;
    if (*made) return VB_OK;
    if (errno != EEXIST)
        return vb__fail(err, VB_E_IO, "%s: cannot be made: %s, expected a folder that can be written", to, strerror(errno));
    DIR *d = opendir(to);
    if (d == NULL) return vb__fail(err, VB_E_IO, "%s: cannot be opened as a folder: %s", to, strerror(errno));
    bool empty = true;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) empty = false;
    (void)closedir(d);
    return empty ? VB_OK : vb__fail(err, VB_E_ARGUMENT, "%s: is not empty, expected a new or an empty folder", to);
}

vb_err vb__quantise_folder(const char *from, const char *to, const vb__quantise_options *o, vb__quantise_result *out,
                           vb_error *err) {
    if (o->bits < 2 || o->bits > 8)
        return vb__fail(err, VB_E_ARGUMENT, "--bits: is %d, expected 2 to 8", o->bits);
    if (o->group != 32 && o->group != 64 && o->group != 128)
        return vb__fail(err, VB_E_ARGUMENT, "--group-size: is %d, expected 32, 64 or 128", o->group);
    job j = {.o = o, .to = to, .err = err, .index_of = json_object()};
    bool made = false;
    vb_err e = VB_OK;
    if (j.index_of == NULL) {
        e = no_memory(&j);
        goto out;
    }
    VB_TRY_OUT(vb__checkpoint_open(from, &j.c, err));
    if (vb__checkpoint_gguf(j.c) != NULL) {
        e = vb__fail(err, VB_E_UNSUPPORTED, "%s: is a GGUF file, expected a folder with config.json", from);
        goto out;
    }
    VB_TRY_OUT(plan(&j));
    if (o->check != NULL) VB_TRY_OUT(o->check(j.c, err));
    VB_TRY_OUT(claim_folder(to, &made, err));
    for (int32_t f = j.has_sidecar ? -1 : 0; f < j.n_shards; f++) VB_TRY_OUT(write_shard(&j, f));
    VB_TRY_OUT(write_index(&j));
    VB_TRY_OUT(copy_files(&j, from));
    VB_TRY_OUT(write_config(&j, from));
    j.result.relative_error = j.sums[1] > 0 ? sqrt(j.sums[0] / j.sums[1]) : 0; /* a report, no weight */
    *out = j.result;
out:
    for (int32_t i = 0; i < j.n_written; i++) {
        if (e != VB_OK) (void)unlink(j.written[i]);
        vb__free(j.written[i]);
    }
    if (e != VB_OK && made) (void)rmdir(to);
    for (int32_t i = 0; i < j.n_out; i++) {
        vb__free(j.out[i].name);
        vb__free(j.out[i].parts);
    }
    vb__free(j.out);
    vb__free(j.written);
    json_decref(j.index_of);
    vb__checkpoint_close(j.c);
    return e;
}
