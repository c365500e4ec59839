/* Packing: a matrix as the file has it into panels of 16 outputs. Values never change, with the one exception of
 * F16 and F32 matrices, which are rounded to bf16. A panel is an item, so that loading uses every thread. */
#include "backend/cpu/pack.h"
#include "backend/ops/packed_ref.h"
#include "base/alloc.h"
#include "base/bf16.h"
#include <stdbool.h>
#include <string.h>

enum { SLACK = 16384 }; /* bytes behind the last panel that a kernel may read, never use */

typedef struct job {
    const vb__matrix *src;
    vb__cpu_weight *w;
    uint8_t *to;
    uint8_t *rows; /* BLOCKS: row_size bytes for each thread */
    size_t row_size;
} job;

/* ---- bf16 ---------------------------------------------------------------------------------------------- */

static uint16_t element_bf16(const vb__matrix *src, int64_t i) {
    uint16_t h;
    float f;
    if (src->kind == VB_MATRIX_F32) {
        memcpy(&f, (const uint8_t *)src->data + 4 * i, 4);
        return vb__to_bf16(f);
    }
    memcpy(&h, (const uint8_t *)src->data + 2 * i, 2);
    return src->kind == VB_MATRIX_BF16 ? h : vb__to_bf16(vb__f16_widen(h));
}

static void pack_bf16(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const job *j = ctx;
    const vb__bpanels *b = &j->w->b;
    (void)thread;
    for (int32_t p = begin; p < end; p++) {
        uint8_t *panel = j->to + 2 * p * b->panel_stride;
        for (int32_t o = 0; o < VB_PANEL && p * VB_PANEL + o < b->n; o++) {
            int64_t row = (int64_t)(p * VB_PANEL + o) * b->k;
            uint8_t *to = panel + 4 * o;
            int32_t k = 0;
            if (j->src->kind == VB_MATRIX_BF16)
                for (; k + 1 < b->k; k += 2) memcpy(to + 32 * k, (const uint8_t *)j->src->data + 2 * (row + k), 4);
            for (; k < b->k; k++) {
                uint16_t h = element_bf16(j->src, row + k);
                memcpy(to + 64 * (k / 2) + 2 * (k % 2), &h, 2);
            }
        }
    }
}

/* ---- affine -------------------------------------------------------------------------------------------- */

/* Eight 4-bit codes of a word to the four bytes of the layout: byte j = code j | code 4+j << 4. */
static uint32_t spread4(uint32_t v) {
    uint32_t lo = v & 0xffff, hi = v >> 16;
    lo = (lo | lo << 8) & 0x00ff00ff;
    hi = (hi | hi << 8) & 0x00ff00ff;
    lo = (lo | lo << 4) & 0x0f0f0f0f;
    hi = (hi | hi << 4) & 0x0f0f0f0f;
    return lo | hi << 4;
}

/* Eight codes from k on of a little-endian bit stream. */
static void codes8(const uint8_t *row, int32_t bits, int32_t k, uint8_t code[8]) {
    uint64_t v = 0;
    memcpy(&v, row + (size_t)k / 8 * (size_t)bits, (size_t)bits); /* 8 codes are exactly `bits` bytes */
    for (int i = 0; i < 8; i++) code[i] = (uint8_t)(v >> (i * bits) & ((1u << bits) - 1));
}

static void pack_codes(const vb__qpanels *q, const vb__matrix *src, int32_t o, uint8_t *panel) {
    size_t row_bytes = (size_t)q->k / 8 * (size_t)src->bits;
    const uint8_t *row = (const uint8_t *)src->data + (size_t)o * row_bytes;
    int32_t lane = o % VB_PANEL * 4;
    for (int32_t k = 0; k < q->k; k += q->unit) {
        uint8_t *to = panel + (int64_t)(k / q->unit) * q->unit_bytes + lane;
        int32_t end = k + q->unit < q->k ? k + q->unit : q->k;
        for (int32_t i = k; i < end; i += 8) {
            if (src->bits == 4) {
                uint32_t v;
                memcpy(&v, row + i / 2, 4);
                v = spread4(v);
                memcpy(to, &v, 4);
                to += 64;
                continue;
            }
            uint8_t code[8];
            codes8(row, src->bits, i, code);
            if (q->code_bits == 4) {
                for (int j = 0; j < 4; j++) to[j] = (uint8_t)(code[j] | code[4 + j] << 4);
                to += 64;
            } else {
                memcpy(to, code, 4);
                memcpy(to + 64, code + 4, 4);
                to += 128;
            }
        }
    }
}

static void pack_scales(const vb__qpanels *q, const vb__matrix *src, int32_t o, uint8_t *panel) {
    int32_t groups = q->k / q->group, lane = o % VB_PANEL;
    int64_t size = vb__scale_size(q->scale_kind);
    for (int32_t g = 0; g < groups; g++) {
        int64_t from = (int64_t)o * groups + g;
        uint8_t *to = panel + (int64_t)(g * q->group / q->unit) * q->unit_bytes + q->codes_bytes +
                      g * q->group % q->unit / q->group * q->scale_stride + lane * size;
        if (q->scale_kind == src->scale_kind) {
            memcpy(to, (const uint8_t *)src->scales + from * size, (size_t)size);
            memcpy(to + VB_PANEL * size, (const uint8_t *)src->biases + from * size, (size_t)size);
        } else { /* f32 that bf16 holds exactly */
            memcpy(to, (const uint8_t *)src->scales + from * 4 + 2, 2);
            memcpy(to + VB_PANEL * size, (const uint8_t *)src->biases + from * 4 + 2, 2);
        }
    }
}

static void pack_affine(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const job *j = ctx;
    const vb__qpanels *q = &j->w->q;
    (void)thread;
    for (int32_t p = begin; p < end; p++) {
        uint8_t *panel = j->to + p * q->panel_stride;
        for (int32_t o = p * VB_PANEL; o < q->n && o < (p + 1) * VB_PANEL; o++) {
            pack_codes(q, j->src, o, panel);
            pack_scales(q, j->src, o, panel);
        }
    }
}

/* ---- blocks -------------------------------------------------------------------------------------------- */

static uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}

/* To a half, for values that a half holds exactly (NaN keeps being one). */
static uint16_t exact_half(float f) {
    uint32_t u = float_bits(f), sign = u >> 16 & 0x8000, e = u >> 23 & 255, m = u & 0x7fffff;
    if (e == 255) return (uint16_t)(sign | 0x7c00 | m >> 13);
    if (e >= 113) return (uint16_t)(sign | (e - 112) << 10 | m >> 13);
    if (e < 103) return (uint16_t)sign;
    return (uint16_t)(sign | (m | 0x800000) >> (126 - e));
}

static void put_scale(vb__scale_kind kind, float f, uint8_t *to) {
    uint16_t h = kind == VB_SCALE_F16 ? exact_half(f) : (uint16_t)(float_bits(f) >> 16);
    if (kind == VB_SCALE_F32) memcpy(to, &f, 4);
    else memcpy(to, &h, 2);
}

static void pack_block_row(const vb__qpanels *q, int32_t o, const int8_t *codes, const float *scales, const float *biases,
                           uint8_t *panel) {
    int32_t lane = o % VB_PANEL, size = vb__scale_size(q->scale_kind);
    const uint64_t tops = 0x8080808080808080u, offset = (uint64_t)q->offset * 0x0101010101010101u;
    int32_t step = q->code_bits == 4 ? 64 : 128;
    for (int32_t k = 0; k < q->k; k += q->unit) {
        uint8_t *to = panel + (int64_t)(k / q->unit) * q->unit_bytes + 4 * lane;
        int32_t end = k + q->unit < q->k ? k + q->unit : q->k;
        for (int32_t i = k; i < end; i += 8, to += step) {
            uint64_t v;
            memcpy(&v, codes + i, 8);
            v = ((v & ~tops) + (offset & ~tops)) ^ ((v ^ offset) & tops); /* eight sums, no carry between them */
            uint32_t first = (uint32_t)v, second = (uint32_t)(v >> 32), both = first | second << 4;
            if (step == 64) {
                memcpy(to, &both, 4);
            } else {
                memcpy(to, &first, 4);
                memcpy(to + 64, &second, 4);
            }
        }
    }
    for (int32_t g = 0; g < q->k / q->group; g++) {
        uint8_t *to = panel + (int64_t)(g * q->group / q->unit) * q->unit_bytes + q->codes_bytes +
                      g * q->group % q->unit / q->group * q->scale_stride + lane * size;
        put_scale(q->scale_kind, scales[g], to);
        if (q->has_bias) put_scale(q->scale_kind, biases[g], to + VB_PANEL * size);
    }
}

/* row: scratch of one row per thread: codes, scales, biases. */
static void pack_blocks(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const job *j = ctx;
    const vb__qpanels *q = &j->w->q;
    uint8_t *row = j->rows + (size_t)thread * j->row_size;
    float *scales = (float *)(void *)row, *biases = scales + q->k / q->group;
    int8_t *codes = (int8_t *)(biases + q->k / q->group);
    for (int32_t p = begin; p < end; p++) {
        uint8_t *panel = j->to + p * q->panel_stride;
        for (int32_t o = p * VB_PANEL; o < q->n && o < (p + 1) * VB_PANEL; o++) {
            j->src->unpack(j->src->format, (const uint8_t *)j->src->data + o * j->src->row_bytes, q->k, codes, scales, biases);
            pack_block_row(q, o, codes, scales, biases, panel);
        }
    }
}

/* True when the low halves of all f32 values are zero: bf16 then holds them exactly. */
static bool fits_bf16(const void *p, int64_t count) {
    uint32_t any = 0;
    for (int64_t i = 0; i < count; i++) {
        uint16_t low;
        memcpy(&low, (const uint8_t *)p + 4 * i, 2);
        any |= low;
    }
    return any == 0;
}

/* ---- memory -------------------------------------------------------------------------------------------- */

enum { PIECE_LEAST = 4 << 20, PIECE_MOST = 64 << 20 };

typedef struct vb__weight_piece {
    vb__weight_store *store;
    uint8_t *memory;
    size_t size, used;
    int32_t matrices; /* that lie here */
} piece;

/* `bytes` zeroed bytes, 64-byte aligned, SLACK readable bytes behind them; NULL when out of memory. */
static uint8_t *store_take(vb__weight_store *store, size_t bytes, piece **out) {
    piece *p = store->current;
    bytes = (bytes + 63) / 64 * 64;
    if (p == NULL || p->size - p->used < bytes) {
        size_t size = store->total;
        if (size < PIECE_LEAST) size = PIECE_LEAST;
        if (size > PIECE_MOST) size = PIECE_MOST;
        if (size < bytes) size = bytes;
        p = vb__calloc(VB_TAG_WEIGHTS, 1, sizeof *p);
        if (p == NULL) return NULL;
        p->memory = vb__alloc_aligned(VB_TAG_WEIGHTS, size + SLACK);
        if (p->memory == NULL) {
            vb__free(p);
            return NULL;
        }
        p->store = store;
        p->size = size;
        store->current = p;
    }
    uint8_t *at = p->memory + p->used;
    p->used += bytes;
    p->matrices++;
    store->total += bytes;
    *out = p;
    return at;
}

static void store_give(piece *p) {
    if (p == NULL || --p->matrices > 0) return;
    if (p->store->current == p) p->store->current = NULL;
    vb__free(p->memory);
    vb__free(p);
}

/* ---- entry --------------------------------------------------------------------------------------------- */

static vb_err check(const vb__matrix *m, int32_t max_k, vb_error *err) {
    const char *name = m->name != NULL ? m->name : "matrix";
    if (m->n < 1 || m->k < 1)
        return vb__fail(err, VB_E_FORMAT, "%s: shape %d x %d, expected at least 1 x 1", name, m->n, m->k);
    if (m->k > max_k)
        return vb__fail(err, VB_E_RANGE, "%s: input width %d, expected at most %d", name, m->k, max_k);
    if (m->n > INT32_MAX - VB_PANEL)
        return vb__fail(err, VB_E_UNSUPPORTED, "%s: %d output rows, expected fewer", name, m->n);
    if (m->kind <= VB_MATRIX_F32) return VB_OK;
    if (m->kind != VB_MATRIX_AFFINE && m->kind != VB_MATRIX_BLOCKS)
        return vb__fail(err, VB_E_UNSUPPORTED, "%s: unknown matrix kind", name);
    if (m->bits < 2 || m->bits > 8)
        return vb__fail(err, VB_E_UNSUPPORTED, "%s: %d-bit codes, expected 2 to 8", name, m->bits);
    if (m->group != 32 && m->group != 64 && m->group != 128 && (m->group != 16 || m->kind != VB_MATRIX_BLOCKS))
        return vb__fail(err, VB_E_UNSUPPORTED, "%s: quantisation group %d, expected 32, 64 or 128", name, m->group);
    if (m->k % 32 != 0) return vb__fail(err, VB_E_UNSUPPORTED, "%s: input width %d, expected a multiple of 32", name, m->k);
    if (m->k % m->group != 0)
        return vb__fail(err, VB_E_UNSUPPORTED, "%s: input width %d, expected a multiple of the group %d", name, m->k,
                        m->group);
    return VB_OK;
}

vb_err vb__pack(vb__weight_store *store, vb__pool *pool, const vb__matrix *src, int32_t max_k, vb__cpu_weight **out,
                vb_error *err) {
    VB_TRY(check(src, max_k, err));
    vb__cpu_weight *w = vb__calloc(VB_TAG_WEIGHTS, 1, sizeof *w);
    if (w == NULL) return vb__fail(err, VB_E_MEMORY, "%s: out of memory", src->name);
    int32_t panels = (src->n + VB_PANEL - 1) / VB_PANEL;
    w->pub = (vb__weight){.n = src->n, .k = src->k, .quantised = src->kind >= VB_MATRIX_AFFINE};
    if (w->pub.quantised) {
        int64_t groups = (int64_t)src->n * (src->k / src->group);
        w->pub.bits = src->bits;
        w->pub.group = src->group;
        w->q = (vb__qpanels){.n = src->n, .k = src->k, .group = src->group, .has_bias = 1};
        w->q.code_bits = src->bits <= 4 ? 4 : 8;
        w->q.scale_kind = src->scale_kind;
        if (src->kind == VB_MATRIX_BLOCKS) {
            w->q.has_bias = src->has_bias;
            w->q.offset = src->offset;
        } else if (src->scale_kind == VB_SCALE_F32 && fits_bf16(src->scales, groups) && fits_bf16(src->biases, groups))
            w->q.scale_kind = VB_SCALE_BF16;
        vb__qpanels_layout(&w->q);
        w->pub.bytes = panels * w->q.panel_stride;
    } else {
        w->b = (vb__bpanels){.n = src->n, .k = src->k, .kp = (src->k + 31) / 32 * 32};
        w->b.panel_stride = (int64_t)VB_PANEL * w->b.kp;
        w->pub.bits = 16;
        w->pub.bytes = 2 * panels * w->b.panel_stride;
    }
    uint8_t *memory = store_take(store, (size_t)w->pub.bytes, &w->piece);
    if (memory == NULL) {
        vb_err e = vb__fail(err, VB_E_MEMORY, "%s: out of memory, needed %lld bytes", src->name,
                            (long long)w->pub.bytes);
        vb__pack_destroy(w);
        return e;
    }
    w->q.data = memory;
    w->b.data = (const uint16_t *)(const void *)memory;
    job j = {.src = src, .w = w, .to = memory};
    if (src->kind == VB_MATRIX_BLOCKS) {
        j.row_size = ((size_t)(src->k / src->group) * 8 + (size_t)src->k + 63) / 64 * 64;
        j.rows = vb__calloc(VB_TAG_SCRATCH, (size_t)vb__pool_threads(pool), j.row_size);
        if (j.rows == NULL) {
            vb__pack_destroy(w);
            return vb__fail(err, VB_E_MEMORY, "%s: out of memory", src->name);
        }
    }
    vb__parallel_for(pool, panels, 4, src->kind == VB_MATRIX_BLOCKS ? pack_blocks : w->pub.quantised ? pack_affine : pack_bf16, &j);
    vb__free(j.rows);
    *out = w;
    return VB_OK;
}

void vb__pack_destroy(vb__cpu_weight *w) {
    if (w == NULL) return;
    store_give(w->piece);
    vb__free(w);
}
