#include "model/checkpoint.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/vmath.h"
#include "format/gguf_blocks.h"
#include "model/checkpoint_impl.h"
#include "model/halves.h"
#include "model/quant_spec.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define CONFIG "config.json"
#define MLX_PREFIX "language_model.model."

/* ---- names ---------------------------------------------------------------------------------------------- */

static bool in_files(const vb__checkpoint *c, const char *prefix, const char *name) {
    size_t n = strlen(prefix);
    for (int32_t i = 0; i < c->count; i++)
        if (vb__starts(c->tensors[i].t->name, prefix) && strcmp(c->tensors[i].t->name + n, name) == 0) return true;
    return false;
}

/* The prefix of the text stack is where the embedding (of a drafter: fc) is; the config does not say it. */
static vb_err find_prefix(vb__checkpoint *c, vb_error *err) {
    static const char *const all[] = {"model.language_model.", MLX_PREFIX, "model.", ""};
    bool drafter = c->config.arch == VB_ARCH_DFLASH;
    const char *key = drafter ? "fc.weight" : "embed_tokens.weight";
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!in_files(c, all[i], key)) continue;
        if (c->prefix != NULL)
            return vb__fail(err, VB_E_FORMAT, "%s: tensors %s%s and %s%s are both there, expected one", c->tensors[0].file,
                            c->prefix, key, all[i], key);
        c->prefix = all[i];
    }
    if (c->prefix == NULL)
        return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s%s: is missing, expected it to tell the layout of names",
                        c->count == 0 ? c->shards.files[0].file : c->tensors[0].file, drafter ? "" : "model.", key);
    return VB_OK;
}

static void classify(vb__checkpoint *c, vb__ck_tensor *t) {
    const char *name = t->t->name;
    static const char *const vision[] = {"model.visual.", "visual.", "vision_tower.", "model.vision_tower."};
    t->role = VB_CK_TEXT;
    for (size_t i = 0; i < sizeof vision / sizeof *vision; i++)
        if (vb__starts(name, vision[i])) t->role = VB_CK_VISION;
    if (t->role == VB_CK_VISION) return;
    if (vb__ends(name, ".rotary_emb.inv_freq")) {
        t->role = VB_CK_IGNORED;
    } else if (vb__starts(name, "mtp.") || vb__starts(name, "language_model.mtp.")) {
        t->canon = strstr(name, "mtp.");
        c->mtp_prefix = name == t->canon ? "" : "language_model.";
    } else if (vb__starts(name, "lm_head.") || vb__starts(name, "language_model.lm_head.")) {
        t->canon = strstr(name, "lm_head.");
        c->head_prefix = name == t->canon ? "" : "language_model.";
    } else if (vb__starts(name, c->prefix)) {
        t->canon = name + strlen(c->prefix);
    } else {
        t->role = VB_CK_UNKNOWN;
    }
}

/* A canonical name as the files spell it. */
static const char *spelled(const vb__checkpoint *c, const char *canon, char buf[VB_CK_NAME_MAX]) {
    const char *prefix = c->prefix;
    if (c->n_ggufs > 0) return vb__gguf_model_spelled(c, canon, buf);
    if (vb__starts(canon, "mtp.")) prefix = c->mtp_prefix;
    else if (vb__starts(canon, "lm_head.")) prefix = c->head_prefix;
    (void)snprintf(buf, VB_CK_NAME_MAX, "%s%s", prefix, canon);
    return buf;
}

static const char *any_file(const vb__checkpoint *c) {
    if (c->n_ggufs > 0) return c->ggufs[0].file;
    return c->shards.n_files == 1 ? c->shards.files[0].file : "model.safetensors.index.json";
}

static vb__ck_tensor *find(const vb__checkpoint *c, const char *canon) {
    int32_t lo = 0, hi = c->n_canon;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        vb__ck_tensor *t = &c->tensors[c->by_canon[mid]];
        int d = strcmp(canon, t->canon);
        if (d == 0) return t;
        if (d < 0) hi = mid;
        else lo = mid + 1;
    }
    return NULL;
}

static vb__ck_tensor *find2(const vb__checkpoint *c, const char *module, const char *tail) {
    char name[VB_CK_NAME_MAX];
    int n = snprintf(name, sizeof name, "%s%s", module, tail);
    return n < 0 || (size_t)n >= sizeof name ? NULL : find(c, name);
}

/* ---- opening -------------------------------------------------------------------------------------------- */

static int by_canonical(const void *a, const void *b, void *ctx) {
    const vb__checkpoint *c = ctx;
    return strcmp(c->tensors[*(const int32_t *)a].canon, c->tensors[*(const int32_t *)b].canon);
}

static vb_err sort_names(vb__checkpoint *c, vb_error *err) {
    c->by_canon = vb__calloc(VB_TAG_FORMAT, (size_t)c->count, sizeof *c->by_canon);
    if (c->by_canon == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory for its names", c->path);
    for (int32_t i = 0; i < c->count; i++)
        if (c->tensors[i].canon != NULL) c->by_canon[c->n_canon++] = i;
    if (c->n_canon > 1) qsort_r(c->by_canon, (size_t)c->n_canon, sizeof *c->by_canon, by_canonical, c);
    for (int32_t i = 1; i < c->n_canon; i++) {
        const vb__ck_tensor *a = &c->tensors[c->by_canon[i - 1]], *b = &c->tensors[c->by_canon[i]];
        if (strcmp(a->canon, b->canon) == 0)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: is the same as %s in %s, expected one of them", b->file,
                            b->t->name, a->t->name, a->file);
    }
    return VB_OK;
}

/* Zero-centred norms: files whose conv1d is [C, 1, K] are raw (w), those with [C, K, 1] are converted (1 + w). The MTP
 * head goes by the spelling of its names, because it may come from elsewhere than the trunk: language_model.mtp.* was
 * converted along with it, mtp.* is raw. */
static vb_err find_norm_rule(vb__checkpoint *c, vb_error *err) {
    const vb__ck_tensor *first = NULL;
    bool raw = strcmp(c->prefix, MLX_PREFIX) != 0;
    for (int32_t i = 0; i < c->count; i++) {
        const vb__ck_tensor *t = &c->tensors[i];
        if (t->canon == NULL || !vb__ends(t->canon, ".linear_attn.conv1d.weight") || t->t->dims != 3) continue;
        bool this_raw = t->t->shape[2] != 1;
        if (first != NULL && this_raw != raw)
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: is laid out otherwise than %s, expected one layout", t->file,
                            t->t->name, first->t->name);
        first = t;
        raw = this_raw;
    }
    for (int32_t i = 0; i < c->count; i++) {
        vb__ck_tensor *t = &c->tensors[i];
        if (t->canon != NULL) t->raw_norms = vb__starts(t->t->name, "mtp.") || raw;
    }
    return VB_OK;
}

static vb_err read_config(vb__checkpoint *c, vb_error *err) {
    char *path = vb__path_join(c->path, CONFIG);
    if (path == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory", c->path);
    vb__buffer_init(&c->config_text, VB_LIMIT_JSON_BYTES);
    vb_err e = vb__file_read(path, VB_LIMIT_JSON_BYTES, &c->config_text, err);
    vb__free(path);
    VB_TRY(e);
    VB_TRY(vb__json_parse(vb__buffer_str(&c->config_text), c->config_text.len, VB_LIMIT_JSON_BYTES, CONFIG, &c->root, err));
    VB_TRY(vb__config_from_json(c->root, CONFIG, &c->config, err));
    return vb__quant_spec_check(c->root, CONFIG, err);
}

static vb_err name_tensors(vb__checkpoint *c, vb_error *err) {
    c->tensors = vb__calloc(VB_TAG_FORMAT, (size_t)c->shards.count, sizeof *c->tensors);
    if (c->tensors == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory for its tensors", c->path);
    c->count = c->shards.count;
    for (int32_t i = 0; i < c->count; i++) {
        const vb__shard_tensor *s = &c->shards.tensors[i];
        c->tensors[i] = (vb__ck_tensor){.t = s->t, .file = s->file, .block = -1};
        if (s->sidecar && !vb__starts(s->t->name, "mtp.") && !vb__starts(s->t->name, "language_model.mtp."))
            return vb__fail(err, VB_E_FORMAT, "%s: tensor %s: has no place in this file, expected mtp.* only", s->file,
                            s->t->name);
    }
    VB_TRY(find_prefix(c, err));
    c->mtp_prefix = "";
    c->head_prefix = strcmp(c->prefix, MLX_PREFIX) == 0 ? "language_model." : "";
    for (int32_t i = 0; i < c->count; i++) classify(c, &c->tensors[i]);
    VB_TRY(sort_names(c, err));
    return find_norm_rule(c, err);
}

/* ---- the MTP head --------------------------------------------------------------------------------------- */

/* Marks the tensors of an expected module; notes the first module without one. */
static void expect_mtp(vb__checkpoint *c, const char *module, const char *const *tails, size_t n_tails) {
    bool found = false;
    for (size_t i = 0; i < n_tails; i++) {
        vb__ck_tensor *t = find2(c, module, tails[i]);
        if (t == NULL) continue;
        t->mtp_known = true;
        if (i == 0) found = true;
    }
    if (found || c->missing_mtp[0] != '\0') return;
    char name[VB_CK_NAME_MAX];
    (void)snprintf(name, sizeof name, "%.*s%s", VB_LIMIT_TENSOR_NAME, module, tails[0]);
    (void)spelled(c, name, c->missing_mtp);
}

static void expect_matrix(vb__checkpoint *c, const char *module, bool bias) {
    static const char *const tails[] = {".weight", ".scales", ".biases", ".bias"};
    expect_mtp(c, module, tails, bias ? 4 : 3);
    if (bias && find2(c, module, ".bias") == NULL && c->missing_mtp[0] == '\0') {
        char name[VB_CK_NAME_MAX];
        (void)snprintf(name, sizeof name, "%.*s.bias", VB_LIMIT_TENSOR_NAME, module);
        (void)spelled(c, name, c->missing_mtp);
    }
}

static void expect_vector(vb__checkpoint *c, const char *module) {
    static const char *const tails[] = {".weight"};
    expect_mtp(c, module, tails, 1);
}

static void expect_experts(vb__checkpoint *c, const char *mlp) {
    static const char *const projections[] = {"gate_proj", "up_proj", "down_proj"};
    static const char *const none[] = {""}, *const fused[] = {"gate_up_proj", "down_proj"};
    char name[VB_CK_NAME_MAX];
    for (int i = 0; i < 2; i++) {
        (void)snprintf(name, sizeof name, "%s.experts.%s", mlp, fused[i]);
        vb__ck_tensor *t = find(c, name);
        if (t == NULL) continue;
        /* one fused tensor promises the other; in GGUF only gate and up are ever joined */
        for (int j = 0; j < 2; j++) {
            bool apart = j == 1 && c->n_ggufs > 0;
            (void)snprintf(name, sizeof name, "%s.%s.%s", mlp, apart ? "switch_mlp" : "experts", fused[j]);
            if (apart) expect_matrix(c, name, false);
            else expect_mtp(c, name, none, 1);
        }
        return;
    }
    (void)snprintf(name, sizeof name, "%s.switch_mlp.gate_proj.weight", mlp);
    bool stacked = find(c, name) != NULL;
    for (int32_t e = 0; e < (stacked ? 1 : c->config.experts); e++)
        for (int p = 0; p < 3; p++) {
            if (stacked) (void)snprintf(name, sizeof name, "%s.switch_mlp.%s", mlp, projections[p]);
            else (void)snprintf(name, sizeof name, "%s.experts.%d.%s", mlp, e, projections[p]);
            expect_matrix(c, name, false);
        }
}

static void expect_mtp_layer(vb__checkpoint *c, int32_t layer) {
    const vb__model_config *m = &c->config;
    static const char *const dense[] = {"gate_proj", "up_proj", "down_proj"};
    static const char *const attention[] = {"q_proj", "k_proj", "v_proj", "o_proj"};
    char name[128];
#define EXPECT(what, ...)                                                                                    \
    do {                                                                                                     \
        (void)snprintf(name, sizeof name, __VA_ARGS__);                                                      \
        what;                                                                                                \
    } while (0)
    EXPECT(expect_vector(c, name), "mtp.layers.%d.input_layernorm", layer);
    for (int i = 0; i < 4; i++)
        EXPECT(expect_matrix(c, name, i < 3 ? m->attention_bias : m->o_bias), "mtp.layers.%d.self_attn.%s", layer,
               attention[i]);
    EXPECT(expect_vector(c, name), "mtp.layers.%d.self_attn.q_norm", layer);
    EXPECT(expect_vector(c, name), "mtp.layers.%d.self_attn.k_norm", layer);
    EXPECT(expect_vector(c, name), "mtp.layers.%d.post_attention_layernorm", layer);
    bool moe = m->arch == VB_ARCH_QWEN3_5_MOE;
    if (moe) {
        EXPECT(expect_matrix(c, name, false), "mtp.layers.%d.mlp.gate", layer);
        EXPECT(expect_matrix(c, name, false), "mtp.layers.%d.mlp.shared_expert_gate", layer);
        EXPECT(expect_experts(c, name), "mtp.layers.%d.mlp", layer);
    }
    for (int i = 0; i < 3; i++)
        EXPECT(expect_matrix(c, name, false), "mtp.layers.%d.mlp.%s%s", layer, moe ? "shared_expert." : "", dense[i]);
#undef EXPECT
}

static void find_mtp(vb__checkpoint *c) {
    vb__model_config *m = &c->config;
    if (m->arch != VB_ARCH_QWEN3_5 && m->arch != VB_ARCH_QWEN3_5_MOE) return;
    if (m->mtp_layers == 0 && find(c, "mtp.fc.weight") != NULL) m->mtp_layers = 1; /* its presence decides */
    if (m->mtp_layers == 0) return;
    expect_matrix(c, "mtp.fc", false);
    expect_vector(c, "mtp.pre_fc_norm_embedding");
    expect_vector(c, "mtp.pre_fc_norm_hidden");
    for (int32_t i = 0; i < m->mtp_layers; i++) expect_mtp_layer(c, i);
    expect_vector(c, "mtp.norm");
    if (c->missing_mtp[0] != '\0')
        vb__log(VB_LOG_WARN, "load", "model=%s mtp=absent missing=%s: the model runs without its MTP head", c->path,
                c->missing_mtp);
}

const char *vb__checkpoint_missing_mtp(const vb__checkpoint *c) {
    return c->missing_mtp[0] == '\0' ? NULL : c->missing_mtp;
}

static vb_err open_any(const char *path, bool folder, vb__checkpoint **out, vb_error *err) {
    vb__checkpoint *c = vb__calloc(VB_TAG_FORMAT, 1, sizeof *c);
    if (c == NULL) return vb__fail(err, VB_E_MEMORY, "%s: no memory", path);
    vb_err e = VB_OK;
    vb__arena_init(&c->names, VB_TAG_FORMAT, 0);
    c->path = vb__strdup(VB_TAG_FORMAT, path);
    if (c->path == NULL) {
        e = vb__fail(err, VB_E_MEMORY, "%s: no memory", path);
        goto out;
    }
    if (folder) {
        VB_TRY_OUT(read_config(c, err));
        VB_TRY_OUT(vb__shards_open(path, &c->shards, err));
        VB_TRY_OUT(name_tensors(c, err));
    } else {
        VB_TRY_OUT(vb__gguf_model_open(c, path, err));
        VB_TRY_OUT(sort_names(c, err));
    }
    find_mtp(c);
out:
    if (e == VB_OK) *out = c;
    else vb__checkpoint_close(c);
    return e;
}

vb_err vb__checkpoint_open(const char *path, vb__checkpoint **out, vb_error *err) {
    if (vb__file_is_dir(path)) return open_any(path, true, out, err);
    if (!vb__file_exists(path) || !vb__ends(path, ".gguf"))
        return vb__fail(err, vb__file_exists(path) ? VB_E_UNSUPPORTED : VB_E_NOT_FOUND,
                        "%s: is neither a folder with %s and safetensors files nor a .gguf file", path, CONFIG);
    return open_any(path, false, out, err);
}

vb_err vb__checkpoint_open_gguf(const char *path, vb__checkpoint **out, vb_error *err) {
    return open_any(path, false, out, err);
}

void vb__checkpoint_close(vb__checkpoint *c) {
    if (c == NULL) return;
    vb__shards_close(&c->shards);
    json_decref(c->root);
    vb__buffer_fini(&c->config_text);
    for (int32_t i = 0; i < c->n_ggufs; i++) vb__gguf_close(&c->ggufs[i]);
    vb__free(c->ggufs);
    vb__arena_fini(&c->names);
    vb__free(c->scratch);
    vb__free(c->tensors);
    vb__free(c->by_canon);
    vb__free(c->path);
    vb__free(c);
}

const vb__model_config *vb__checkpoint_config(const vb__checkpoint *c) { return &c->config; }
const vb__gguf *vb__checkpoint_gguf(const vb__checkpoint *c) { return c->n_ggufs > 0 ? &c->ggufs[0] : NULL; }
const char *vb__checkpoint_path(const vb__checkpoint *c) { return c->path; }

/* ---- matrices ------------------------------------------------------------------------------------------- */

/* Where a matrix lies: a whole tensor, or rows of one expert in a stack of them. */
typedef struct place {
    vb__ck_tensor *weight;
    char module[VB_CK_NAME_MAX]; /* canonical module of `weight`, for its scales and the quantisation block */
    int32_t expert;              /* -1: the tensor is the matrix */
    int32_t part, parts;         /* gate_up_proj: rows part*n .. of parts*n */
} place;

/* "X.experts.7.up_proj" that the file does not number: experts.gate_up_proj, experts.down_proj or switch_mlp.up_proj. */
static bool find_stacked(const vb__checkpoint *c, const char *module, place *p) {
    const char *at = strstr(module, ".experts.");
    if (at == NULL) return false;
    const char *digits = at + 9;
    char *rest;
    if (*digits < '0' || *digits > '9') return false;
    long e = strtol(digits, &rest, 10);
    if (*rest != '.' || e >= c->config.experts) return false;
    const char *proj = rest + 1;
    int base = (int)(at - module);
    bool gate = strcmp(proj, "gate_proj") == 0, up = strcmp(proj, "up_proj") == 0;
    if (!gate && !up && strcmp(proj, "down_proj") != 0) return false;
    p->expert = (int32_t)e;
    p->parts = gate || up ? 2 : 1;
    p->part = up ? 1 : 0;
    (void)snprintf(p->module, sizeof p->module, "%.*s.experts.%s", base, module, gate || up ? "gate_up_proj" : "down_proj");
    p->weight = find(c, p->module);
    if (p->weight != NULL) return true;
    p->parts = 1;
    p->part = 0;
    (void)snprintf(p->module, sizeof p->module, "%.*s.switch_mlp.%s", base, module, proj);
    p->weight = find2(c, p->module, ".weight");
    return p->weight != NULL;
}

static bool find_matrix(const vb__checkpoint *c, const char *module, place *p) {
    if (strlen(module) > VB_LIMIT_TENSOR_NAME) return false;
    *p = (place){.expert = -1, .parts = 1};
    (void)snprintf(p->module, sizeof p->module, "%s", module);
    p->weight = find2(c, module, ".weight");
    return p->weight != NULL || find_stacked(c, module, p);
}

bool vb__checkpoint_has(const vb__checkpoint *c, const char *module) {
    place p;
    return strlen(module) <= VB_LIMIT_TENSOR_NAME && (find(c, module) != NULL || find_matrix(c, module, &p));
}

static const char *shape_text(const vb__st_tensor *t, char *buf, size_t size) {
    size_t at = 0;
    for (int32_t i = 0; i < t->dims && at < size; i++)
        at += (size_t)snprintf(buf + at, size - at, "%s%lld", i == 0 ? "[" : ", ", (long long)t->shape[i]);
    if (at < size) (void)snprintf(buf + at, size - at, "%s", t->dims == 0 ? "[]" : "]");
    return buf;
}

/* Where the sizes come from, for messages. */
static const char *sizes_of(const vb__checkpoint *c) { return c->n_ggufs > 0 ? "the file's keys" : CONFIG; }

static uint64_t row_size(const vb__ck_tensor *t, int64_t cols) {
    if (t->block < 0) return (uint64_t)cols * vb__dtype_size(t->t->dtype);
    const vb__gguf_type_info *b = vb__gguf_type_get((uint32_t)t->block);
    return (uint64_t)(cols / b->block) * (uint64_t)b->bytes;
}

/* The part of tensor t that belongs to the place: rows of `cols` elements. */
static vb_err slice(const vb__checkpoint *c, const place *p, const vb__ck_tensor *t, int64_t n, int64_t cols, const uint8_t **out, vb_error *err) {
    const vb__st_tensor *s = t->t;
    char a[160], b[80];
    bool stack = p->expert >= 0;
    int64_t rows = n * p->parts;
    const int64_t *shape = s->shape + (stack ? 1 : 0);
    bool row = s->dims == 1 && rows == 1 && s->shape[0] == cols; /* GGUF's shared expert gate */
    if (!row && (s->dims != (stack ? 3 : 2) || shape[0] != rows || shape[1] != cols || (stack && s->shape[0] != c->config.experts))) {
        if (stack) (void)snprintf(b, sizeof b, "[%d, %lld, %lld]", c->config.experts, (long long)rows, (long long)cols);
        else (void)snprintf(b, sizeof b, "[%lld, %lld]", (long long)rows, (long long)cols);
        return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: has shape %s, expected %s by %s", t->file, s->name,
                        shape_text(s, a, sizeof a), b, sizes_of(c));
    }
    uint64_t row_bytes = row_size(t, cols);
    uint64_t first = (stack ? (uint64_t)p->expert * (uint64_t)rows : 0) + (uint64_t)p->part * (uint64_t)n;
    *out = s->data + first * row_bytes; /* inside the tensor: its bytes were checked against its shape */
    return VB_OK;
}

static vb_err dtype_fail(const vb__ck_tensor *t, const char *expected, vb_error *err) {
    return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: has dtype %s, expected %s", t->file, t->t->name,
                    vb__dtype_name(t->t->dtype), expected);
}

/* Whether rounding to bf16 changes any of n values. Stops at the first. */
static bool rounds(const uint8_t *data, int64_t n, vb__dtype dtype) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = dtype == VB_DTYPE_F32 ? vb__load_u32(data + 4 * i) : vb__f16_to_bits(vb__load_u16(data + 2 * i));
        if ((uint32_t)vb__bits_to_bf16(u) << 16 != u) return true;
    }
    return false;
}

static vb_err plain_matrix(vb__checkpoint *c, const place *p, int32_t n, int32_t k, vb__matrix *out, vb_error *err) {
    const uint8_t *data;
    vb__dtype dtype = p->weight->t->dtype;
    if (dtype == VB_DTYPE_BF16) out->kind = VB_MATRIX_BF16;
    else if (dtype == VB_DTYPE_F16) out->kind = VB_MATRIX_F16;
    else if (dtype == VB_DTYPE_F32) out->kind = VB_MATRIX_F32;
    else return dtype_fail(p->weight, "BF16, F16 or F32 (or U32 with .scales beside it)", err);
    VB_TRY(slice(c, p, p->weight, n, k, &data, err));
    out->data = data;
    if (dtype != VB_DTYPE_BF16 && rounds(data, (int64_t)n * k, dtype)) {
        if (c->rounded++ == 0) c->first_rounded = p->weight->t->name;
    }
    return VB_OK;
}

static void unpack_blocks(int32_t format, const void *row, int32_t k, int8_t *codes, float *scales, float *biases) {
    vb__gguf_codes((vb__gguf_type)format, row, k, codes, scales, biases);
}

static vb_err blocks_matrix(const vb__checkpoint *c, const place *p, int32_t n, int32_t k, vb__matrix *out, vb_error *err) {
    static const struct {
        int8_t type, bits;
        uint8_t offset;
        vb__scale_kind scales;
    } kinds[] = {
        {VB_GGUF_TYPE_Q4_0, 4, 8, VB_SCALE_F16},   {VB_GGUF_TYPE_Q4_1, 4, 0, VB_SCALE_F16},
        {VB_GGUF_TYPE_Q5_0, 5, 16, VB_SCALE_F16},  {VB_GGUF_TYPE_Q5_1, 5, 0, VB_SCALE_F16},
        {VB_GGUF_TYPE_Q8_0, 8, 128, VB_SCALE_F16}, {VB_GGUF_TYPE_Q4_K, 4, 0, VB_SCALE_F32},
        {VB_GGUF_TYPE_Q5_K, 5, 0, VB_SCALE_F32},   {VB_GGUF_TYPE_Q6_K, 6, 32, VB_SCALE_F32},
        {VB_GGUF_TYPE_IQ4_NL, 8, 128, VB_SCALE_F16}, {VB_GGUF_TYPE_MXFP4, 5, 12, VB_SCALE_BF16},
    };
    const vb__gguf_type_info *b = vb__gguf_type_get((uint32_t)p->weight->block);
    size_t i = 0;
    while (kinds[i].type != p->weight->block) i++;
    const uint8_t *data;
    VB_TRY(slice(c, p, p->weight, n, k, &data, err));
    out->kind = VB_MATRIX_BLOCKS;
    out->data = data;
    out->row_bytes = (int64_t)row_size(p->weight, k);
    out->format = p->weight->block;
    out->bits = kinds[i].bits;
    out->offset = kinds[i].offset;
    out->scale_kind = kinds[i].scales;
    out->group = b->group;
    out->has_bias = b->bias;
    out->unpack = unpack_blocks;
    return VB_OK;
}

/* Row r of head h in half-split order is row 2j + e of the file, for r = e*D/2 + j. */
static int64_t interleaved_row(int64_t r, int64_t d) {
    int64_t h = r / d, e = r % d / (d / 2), j = r % (d / 2);
    return h * d + 2 * j + e;
}

static bool is_interleaved(const vb__checkpoint *c, const char *canon) {
    return c->interleaved && (strstr(canon, ".self_attn.q_proj.") != NULL || strstr(canon, ".self_attn.k_proj.") != NULL);
}

/* A copy with the rows in half-split order; it lives until the next matrix. */
static vb_err put_rows_back(vb__checkpoint *c, const vb__ck_tensor *t, vb__matrix *m, vb_error *err) {
    size_t row = row_size(t, m->k);
    int64_t d = c->config.head_dim;
    vb__free(c->scratch);
    c->scratch = vb__alloc(VB_TAG_FORMAT, (size_t)m->n * row);
    if (c->scratch == NULL) return vb__fail(err, VB_E_MEMORY, "%s: tensor %s: no memory for a copy", t->file, t->t->name);
    for (int64_t r = 0; r < m->n; r++)
        memcpy(c->scratch + (size_t)r * row, (const uint8_t *)m->data + (size_t)interleaved_row(r, d) * row, row);
    m->data = c->scratch;
    return VB_OK;
}

static vb_err affine_matrix(vb__checkpoint *c, const place *p, vb__ck_tensor *scales, int32_t n, int32_t k, vb__matrix *out,
                            vb_error *err) {
    char name[VB_CK_NAME_MAX];
    vb__ck_tensor *w = p->weight, *biases = find2(c, p->module, ".biases");
    if (biases == NULL)
        return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: has .scales but no .biases beside it, expected both", w->file,
                        w->t->name);
    vb__quant_spec q = vb__quant_spec_of(c->root, spelled(c, p->module, name));
    if (!q.given)
        return vb__fail(err, VB_E_MISMATCH, "%s: quantization: is missing, expected it as %s has tensor %s", CONFIG,
                        scales->file, scales->t->name);
    if (q.off)
        return vb__fail(err, VB_E_MISMATCH, "%s: quantization.%s: is false, but %s has tensor %s", CONFIG, name, scales->file,
                        scales->t->name);
    if (k % q.group != 0 || (int64_t)k * q.bits % 32 != 0)
        return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: has rows of %d values, expected a multiple of the group size %d",
                        w->file, w->t->name, k, q.group);
    if (w->t->dtype != VB_DTYPE_U32) return dtype_fail(w, "U32 as .scales is beside it", err);
    if (scales->t->dtype != biases->t->dtype) return dtype_fail(biases, "that of .scales", err);
    if (scales->t->dtype == VB_DTYPE_BF16) out->scale_kind = VB_SCALE_BF16;
    else if (scales->t->dtype == VB_DTYPE_F16) out->scale_kind = VB_SCALE_F16;
    else if (scales->t->dtype == VB_DTYPE_F32) out->scale_kind = VB_SCALE_F32;
    else return dtype_fail(scales, "BF16, F16 or F32", err);
    const uint8_t *data, *s, *b;
    VB_TRY(slice(c, p, w, n, (int64_t)k * q.bits / 32, &data, err));
    VB_TRY(slice(c, p, scales, n, k / q.group, &s, err));
    VB_TRY(slice(c, p, biases, n, k / q.group, &b, err));
    out->kind = VB_MATRIX_AFFINE;
    out->bits = q.bits;
    out->group = q.group;
    out->data = data;
    out->scales = s;
    out->biases = b;
    scales->used = biases->used = true;
    return VB_OK;
}

/* The pages of a matrix that was asked for before are packed by now: they need not stay resident. Read again, they come
 * back from the page cache. */
static void release_tensor(const vb__st_tensor *t) {
    const vb__mapped part = {t->data, t->bytes};
    vb__mapped_release(&part, 0, part.size);
}

static void release_last(vb__checkpoint *c) {
    for (int i = 0; i < 3; i++) {
        if (c->last[i] != NULL) release_tensor(c->last[i]);
        c->last[i] = NULL;
    }
}

vb_err vb__checkpoint_matrix(vb__checkpoint *c, const char *module, int32_t n, int32_t k, vb__matrix *out, vb_error *err) {
    place p;
    char name[VB_CK_NAME_MAX], full[VB_CK_NAME_MAX];
    if (!find_matrix(c, module, &p)) {
        (void)snprintf(full, sizeof full, "%.*s.weight", VB_LIMIT_TENSOR_NAME, module);
        return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: is missing, expected shape [%d, %d]", any_file(c),
                        spelled(c, full, name), n, k);
    }
    vb__matrix m = {.n = n, .k = k, .name = p.weight->t->name};
    release_last(c);
    vb__ck_tensor *scales = find2(c, p.module, ".scales");
    if (p.weight->block >= 0) VB_TRY(blocks_matrix(c, &p, n, k, &m, err));
    else if (scales == NULL) VB_TRY(plain_matrix(c, &p, n, k, &m, err));
    else VB_TRY(affine_matrix(c, &p, scales, n, k, &m, err));
    if (is_interleaved(c, p.weight->canon) && n % c->config.head_dim == 0 && c->config.head_dim % 2 == 0)
        VB_TRY(put_rows_back(c, p.weight, &m, err));
    p.weight->used = true;
    if (p.expert < 0) { /* of a stack the next expert is wanted soon */
        c->last[0] = p.weight->t;
        if (m.kind == VB_MATRIX_AFFINE) {
            c->last[1] = scales->t;
            c->last[2] = find2(c, p.module, ".biases")->t;
        }
    }
    *out = m;
    return VB_OK;
}

/* ---- vectors -------------------------------------------------------------------------------------------- */

static vb_err vector_shape(const vb__checkpoint *c, const vb__ck_tensor *t, vb__vector_kind kind, int64_t n, vb_error *err) {
    const vb__st_tensor *s = t->t;
    char a[160];
    if (t->block >= 0) return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: is in a block format, expected F32, F16 or BF16", t->file, s->name);
    if (kind == VB_VECTOR_CONV) {
        int64_t taps = c->config.lin_taps, channels = n / taps;
        bool fits = s->dims == 3 && s->shape[0] == channels && channels * taps == n &&
                    ((s->shape[1] == 1 && s->shape[2] == taps) || (s->shape[1] == taps && s->shape[2] == 1));
        if (c->n_ggufs > 0) fits = s->dims == 2 && s->shape[0] == channels && s->shape[1] == taps && channels * taps == n;
        if (fits) return VB_OK;
        if (c->n_ggufs > 0)
            return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: has shape %s, expected [%lld, %lld] by %s", t->file, s->name,
                            shape_text(s, a, sizeof a), (long long)channels, (long long)taps, sizes_of(c));
        return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: has shape %s, expected [%lld, 1, %lld] or [%lld, %lld, 1] by %s",
                        t->file, s->name, shape_text(s, a, sizeof a), (long long)channels, (long long)taps,
                        (long long)channels, (long long)taps, CONFIG);
    }
    if (s->dims == 1 && s->shape[0] == n) return VB_OK;
    return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: has shape %s, expected [%lld] by %s", t->file, s->name,
                    shape_text(s, a, sizeof a), (long long)n, sizes_of(c));
}

/* Value i of a plain tensor; false for other types. */
static bool widen(vb__dtype dtype, const uint8_t *data, int64_t i, float *out) {
    if (dtype == VB_DTYPE_F32) *out = vb__bits_float(vb__load_u32(data + 4 * i));
    else if (dtype == VB_DTYPE_BF16) *out = vb__bf16_to_float(vb__load_u16(data + 2 * i));
    else if (dtype == VB_DTYPE_F16) *out = vb__f16_to_float(vb__load_u16(data + 2 * i));
    else return false;
    return true;
}

vb_err vb__checkpoint_vector(vb__checkpoint *c, const char *module, vb__vector_kind kind, int64_t n, float *out,
                             vb_error *err) {
    char name[VB_CK_NAME_MAX], full[VB_CK_NAME_MAX];
    vb__ck_tensor *t = strlen(module) > VB_LIMIT_TENSOR_NAME ? NULL : find(c, module);
    if (t == NULL) t = find2(c, module, ".weight");
    if (t == NULL) {
        bool bare = vb__ends(module, ".bias") || vb__ends(module, "_log") || vb__ends(module, "dt_bias");
        (void)snprintf(full, sizeof full, "%.*s%s", VB_LIMIT_TENSOR_NAME, module, bare ? "" : ".weight");
        return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: is missing, expected %lld values", any_file(c),
                        spelled(c, full, name), (long long)n);
    }
    VB_TRY(vector_shape(c, t, kind, n, err));
    for (int64_t i = 0; i < n; i++)
        if (!widen(t->t->dtype, t->t->data, i, &out[i])) return dtype_fail(t, "BF16, F16 or F32", err);
    if (kind == VB_VECTOR_NORM && c->config.zero_centred_norms && t->raw_norms)
        for (int64_t i = 0; i < n; i++) out[i] = 1.0f + out[i];
    int64_t d = c->config.head_dim;
    if (is_interleaved(c, t->canon) && n % d == 0 && d % 2 == 0) {
        const vb__st_tensor *s = t->t;
        for (int64_t i = 0; i < n; i++) (void)widen(s->dtype, s->data, interleaved_row(i, d), &out[i]);
    }
    if (kind == VB_VECTOR_NEG_EXP && c->n_ggufs == 0) /* GGUF stores -exp(A_log) */
        for (int64_t i = 0; i < n; i++) out[i] = -vb__expf(out[i]);
    t->used = true;
    return VB_OK;
}

/* ---- the end, and listings ------------------------------------------------------------------------------ */

static const char *type_name(const vb__ck_tensor *t) {
    return t->block >= 0 ? vb__gguf_type_get((uint32_t)t->block)->name : vb__dtype_name(t->t->dtype);
}

vb_err vb__checkpoint_leftover(const vb__checkpoint *c, vb_error *err) {
    char a[160];
    bool mtp_whole = c->missing_mtp[0] == '\0';
    for (int32_t i = 0; i < c->count; i++) {
        const vb__ck_tensor *t = &c->tensors[i];
        bool spare_mtp = t->canon != NULL && vb__starts(t->canon, "mtp.") && (t->mtp_known || !mtp_whole);
        if (t->used || t->role == VB_CK_VISION || t->role == VB_CK_IGNORED || spare_mtp) continue;
        return vb__fail(err, VB_E_MISMATCH, "%s: tensor %s: (%s %s) has no place in a %s model of this config", t->file,
                        t->t->name, type_name(t), shape_text(t->t, a, sizeof a), vb__arch_name(c->config.arch));
    }
    return VB_OK;
}

vb_err vb__checkpoint_finish(vb__checkpoint *c, vb_error *err) {
    int64_t vision = 0, vision_bytes = 0;
    VB_TRY(vb__checkpoint_leftover(c, err));
    for (int32_t i = 0; i < c->count; i++) {
        if (c->tensors[i].role != VB_CK_VISION) continue;
        vision++;
        vision_bytes += (int64_t)c->tensors[i].t->bytes;
    }
    if (vision > 0)
        vb__log(VB_LOG_INFO, "load", "model=%s vision_tensors=%lld bytes=%lld: skipped", c->path, (long long)vision,
                (long long)vision_bytes);
    if (c->rounded > 0)
        vb__log(VB_LOG_WARN, "load", "model=%s matrices=%d first=%s: values were rounded to bf16", c->path, c->rounded,
                c->first_rounded);
    return VB_OK;
}

int32_t vb__checkpoint_tensor_count(const vb__checkpoint *c) { return c->count; }

void vb__checkpoint_tensor(const vb__checkpoint *c, int32_t i, vb__tensor_info *out) {
    const vb__ck_tensor *t = &c->tensors[i];
    *out = (vb__tensor_info){.name = t->t->name,
                             .dtype = type_name(t),
                             .file = t->file,
                             .dims = t->t->dims,
                             .bytes = (int64_t)t->t->bytes,
                             .canonical = t->canon,
                             .data = t->t->data};
    memcpy(out->shape, t->t->shape, sizeof out->shape);
}

bool vb__checkpoint_norm_is_raw(const vb__checkpoint *c, int32_t i) {
    return c->config.zero_centred_norms && c->tensors[i].raw_norms;
}

static int by_file_name(const void *a, const void *b, void *ctx) {
    const vb__checkpoint *c = ctx;
    return strcmp(c->tensors[*(const int32_t *)a].t->name, c->tensors[*(const int32_t *)b].t->name);
}

void vb__checkpoint_fingerprint(const vb__checkpoint *c, char out[33]) {
    XXH3_state_t *h = XXH3_createState();
    int32_t *order = vb__calloc(VB_TAG_FORMAT, (size_t)c->count, sizeof *order);
    vb_check(h != NULL && order != NULL); /* a few kilobytes */
    (void)XXH3_128bits_reset(h);
    (void)XXH3_128bits_update(h, vb__buffer_str(&c->config_text), c->config_text.len);
    for (int32_t i = 0; i < c->n_ggufs; i++) /* keys and descriptions: what lies in front of the data */
        (void)XXH3_128bits_update(h, c->ggufs[i].map.data, c->ggufs[i].n_tensors > 0 ? (size_t)(c->ggufs[i].tensors[0].data - c->ggufs[i].map.data) : c->ggufs[i].map.size);
    for (int32_t i = 0; i < c->count; i++) order[i] = i;
    /* by name, so that the division into files does not matter */
    if (c->count > 1) qsort_r(order, (size_t)c->count, sizeof *order, by_file_name, (void *)(uintptr_t)c);
    for (int32_t i = 0; i < c->count; i++) {
        const vb__st_tensor *t = c->tensors[order[i]].t;
        const char *type = type_name(&c->tensors[order[i]]);
        (void)XXH3_128bits_update(h, t->name, strlen(t->name) + 1);
        (void)XXH3_128bits_update(h, type, strlen(type) + 1);
        (void)XXH3_128bits_update(h, t->shape, (size_t)t->dims * sizeof *t->shape);
        (void)XXH3_128bits_update(h, t->data, t->bytes);
        release_tensor(t);
    }
    XXH128_hash_t d = XXH3_128bits_digest(h);
    (void)snprintf(out, 33, "%016llx%016llx", (unsigned long long)d.high64, (unsigned long long)d.low64);
    vb__free(order);
    (void)XXH3_freeState(h);
}
