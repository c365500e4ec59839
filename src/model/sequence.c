#include "model/sequence.h"
#include "base/alloc.h"
#include "base/fault.h"
#include <string.h>
#include <xxhash.h>

struct vb__page_pool {
    vb__backend *be;
    uint8_t *base;
    int64_t page_bytes;
    int32_t n_pages, n_free;
    int32_t *free_ids; /* stack */
    int32_t *refs;     /* [n_pages] */
    uint8_t *dirty;    /* [n_pages]: was handed out before, so must be zeroed */
};

vb_err vb__page_pool_create(vb__backend *be, int64_t page_bytes, int32_t n_pages, vb__page_pool **out, vb_error *err) {
    vb__page_pool *p = vb__calloc(VB_TAG_STATE, 1, sizeof *p);
    if (p == NULL) return vb__fail(err, VB_E_MEMORY, "KV pages: out of memory");
    p->be = be;
    p->page_bytes = page_bytes;
    p->n_pages = n_pages;
    p->free_ids = vb__calloc(VB_TAG_STATE, (size_t)n_pages, sizeof *p->free_ids);
    p->refs = vb__calloc(VB_TAG_STATE, (size_t)n_pages, sizeof *p->refs);
    p->dirty = vb__calloc(VB_TAG_STATE, (size_t)n_pages, 1);
    size_t bytes;
    void *base = NULL;
    if (p->free_ids == NULL || p->refs == NULL || p->dirty == NULL ||
        !vb__mul_size((size_t)page_bytes, (size_t)n_pages, &bytes) || be->ops->alloc(be, bytes, &base) != VB_OK) {
        vb__page_pool_destroy(p);
        return vb__fail(err, VB_E_MEMORY, "KV pages: out of memory for %d pages of %lld bytes", n_pages,
                        (long long)page_bytes);
    }
    p->base = base;
    for (int32_t i = 0; i < n_pages; i++) p->free_ids[i] = n_pages - 1 - i;
    p->n_free = n_pages;
    *out = p;
    return VB_OK;
}

void vb__page_pool_destroy(vb__page_pool *p) {
    if (p == NULL) return;
    p->be->ops->free(p->be, p->base);
    vb__free(p->free_ids);
    vb__free(p->refs);
    vb__free(p->dirty);
    vb__free(p);
}

int32_t vb__page_pool_free_count(const vb__page_pool *p) { return p->n_free; }
int32_t vb__page_pool_count(const vb__page_pool *p) { return p->n_pages; }

static uint8_t *page_ptr(const vb__page_pool *p, int32_t id) { return p->base + (int64_t)id * p->page_bytes; }

/* -1 when none is free. `zero` false: the caller overwrites all of it. */
static int32_t page_take(vb__page_pool *p, bool zero) {
    if (p->n_free == 0) return -1;
    int32_t id = p->free_ids[--p->n_free];
    p->refs[id] = 1;
    if (zero && p->dirty[id]) p->be->ops->zero(p->be, page_ptr(p, id), (size_t)p->page_bytes);
    p->dirty[id] = 1;
    return id;
}

static void page_release(vb__page_pool *p, int32_t id) {
    vb_check(p->refs[id] > 0);
    if (--p->refs[id] == 0) p->free_ids[p->n_free++] = id;
}

static int32_t pages_for(int32_t length) { return (length + VB_PAGE_POSITIONS - 1) / VB_PAGE_POSITIONS; }

vb_err vb__seq_create(const vb__model *m, vb__page_pool *pool, int32_t max_length, int32_t max_rows, int32_t tape_rows,
                      vb__seq **out, vb_error *err) {
    vb__backend *be = m->be;
    vb__seq *s = vb__calloc(VB_TAG_STATE, 1, sizeof *s);
    if (s == NULL) return vb__fail(err, VB_E_MEMORY, "sequence: out of memory");
    s->model = m;
    s->pool = pool;
    s->max_pages = pages_for(max_length);
    s->max_rows = max_rows;
    s->tape_rows = tape_rows;
    s->pages = vb__calloc(VB_TAG_STATE, (size_t)s->max_pages, sizeof *s->pages);
    s->page_ids = vb__calloc(VB_TAG_STATE, (size_t)s->max_pages, sizeof *s->page_ids);
    s->failed = vb__calloc(VB_TAG_STATE, (size_t)max_rows, 1);
    vb_err e = s->pages == NULL || s->page_ids == NULL || s->failed == NULL ? VB_E_MEMORY : VB_OK;
    const int64_t floats[4] = {m->state_floats, m->conv_floats, tape_rows * m->tape_stride, tape_rows * m->tape_stride};
    float **const dst[4] = {&s->state, &s->conv_tail, &s->tape[0], &s->tape[1]};
    for (int i = 0; i < 4 && e == VB_OK; i++) {
        if (floats[i] == 0) continue;
        void *p = NULL;
        e = be->ops->alloc(be, (size_t)floats[i] * sizeof(float), &p);
        *dst[i] = p;
    }
    if (e != VB_OK) {
        vb__seq_destroy(s);
        return vb__fail(err, e, "sequence: out of memory for its state (%lld bytes)",
                        (long long)((floats[0] + floats[1] + floats[2] + floats[3]) * 4));
    }
    *out = s;
    return VB_OK;
}

static void release_pages(vb__seq *s, int32_t keep) {
    while (s->n_pages > keep) {
        s->n_pages--;
        page_release(s->pool, s->page_ids[s->n_pages]);
        s->pages[s->n_pages] = NULL;
    }
}

void vb__seq_destroy(vb__seq *s) {
    if (s == NULL) return;
    vb__backend *be = s->model->be;
    release_pages(s, 0);
    be->ops->free(be, s->state);
    be->ops->free(be, s->conv_tail);
    be->ops->free(be, s->tape[0]);
    be->ops->free(be, s->tape[1]);
    vb__free(s->pages);
    vb__free(s->page_ids);
    vb__free(s->failed);
    vb__free(s);
}

void vb__seq_reset(vb__seq *s) {
    vb__backend *be = s->model->be;
    release_pages(s, 0);
    s->length = s->replay = s->ran = s->certain = 0;
    if (s->state != NULL) be->ops->zero(be, s->state, (size_t)s->model->state_floats * sizeof(float));
    if (s->conv_tail != NULL) be->ops->zero(be, s->conv_tail, (size_t)s->model->conv_floats * sizeof(float));
}

vb_err vb__seq_reserve(vb__seq *s, int32_t length) {
    int32_t need = pages_for(length);
    if (need > s->max_pages) return VB_E_CONTEXT_FULL;
    vb__page_pool *p = s->pool;
    while (s->n_pages < need) {
        int32_t id = page_take(p, true);
        if (id < 0) return VB_E_MEMORY;
        s->page_ids[s->n_pages] = id;
        s->pages[s->n_pages++] = page_ptr(p, id);
    }
    /* Pages from the first written position on must be this sequence's own. The MTP row of the last position is
     * written one step later than the rest of it. */
    int32_t first = s->model->mtp != NULL && s->length > 0 ? s->length - 1 : s->length;
    for (int32_t i = first / VB_PAGE_POSITIONS; i < need; i++) {
        int32_t old = s->page_ids[i];
        if (p->refs[old] == 1) continue;
        int32_t id = page_take(p, false);
        if (id < 0) return VB_E_MEMORY;
        p->be->ops->copy(p->be, page_ptr(p, id), page_ptr(p, old), (size_t)p->page_bytes);
        page_release(p, old);
        s->page_ids[i] = id;
        s->pages[i] = page_ptr(p, id);
    }
    return VB_OK;
}

vb_err vb__seq_commit(vb__seq *s, int32_t n) {
    vb_check(n >= s->certain && n <= s->ran);
    s->replay = n - s->certain;
    if (vb__fault_is(VB_FAULT_KV_TRUNCATE) && n < s->ran && s->ran > 1) n++; /* planted: one rejected row stays */
    s->length += n;
    s->ran = s->certain = 0;
    for (int32_t i = 0; i < n; i++)
        if (s->failed[i]) return VB_E_NONFINITE;
    return VB_OK;
}

void vb__seq_flush(vb__seq *s) {
    if (s->replay == 0) return;
    const vb__model *m = s->model;
    vb__backend *be = m->be;
    const vb__seq_rows r = {.pages = s->pages, .state = s->state, .conv_tail = s->conv_tail,
                            .tape_in = s->tape[s->cur], .replay = s->replay, .tape_out = s->tape[1 - s->cur]};
    for (int32_t i = 0; i < m->cfg.layers; i++)
        if (m->layers[i].type == VB_LAYER_LINEAR) be->ops->delta_commit(be, &m->layers[i].delta, &r, 1);
    s->replay = 0;
}

void vb__seq_truncate_kv(vb__seq *s, int32_t length) {
    vb_check(length <= s->length && s->state == NULL);
    s->length = length;
}

/* ---- Snapshots ---------------------------------------------------------------------------------------------- */

struct vb__snapshot {
    const vb__model *model;
    vb__page_pool *pool;
    int32_t length, n_pages;
    int32_t *page_ids;
    float *state, *conv_tail; /* device */
};

vb_err vb__seq_save(vb__seq *s, vb__snapshot **out) {
    const vb__model *m = s->model;
    vb__backend *be = m->be;
    vb__seq_flush(s);
    vb__snapshot *p = vb__calloc(VB_TAG_STATE, 1, sizeof *p);
    if (p == NULL) return VB_E_MEMORY;
    p->model = m;
    p->pool = s->pool;
    p->length = s->length;
    int32_t n = pages_for(s->length), full = s->length / VB_PAGE_POSITIONS;
    p->page_ids = vb__calloc(VB_TAG_STATE, (size_t)n + 1, sizeof *p->page_ids);
    void *state = NULL, *tail = NULL;
    vb_err e = p->page_ids == NULL ? VB_E_MEMORY : VB_OK;
    if (e == VB_OK && m->state_floats != 0) e = be->ops->alloc(be, (size_t)m->state_floats * sizeof(float), &state);
    p->state = state;
    if (e == VB_OK && m->conv_floats != 0) e = be->ops->alloc(be, (size_t)m->conv_floats * sizeof(float), &tail);
    p->conv_tail = tail;
    if (e == VB_OK && n > full) { /* the partial page is copied, since s will go on writing to it */
        int32_t id = page_take(s->pool, false);
        if (id < 0) e = VB_E_MEMORY;
        else {
            be->ops->copy(be, page_ptr(s->pool, id), s->pages[full], (size_t)s->pool->page_bytes);
            p->page_ids[full] = id;
        }
    }
    if (e != VB_OK) {
        vb__snapshot_destroy(p);
        return e;
    }
    for (int32_t i = 0; i < full; i++) {
        p->page_ids[i] = s->page_ids[i];
        s->pool->refs[s->page_ids[i]]++;
    }
    p->n_pages = n;
    if (state != NULL) be->ops->copy(be, state, s->state, (size_t)m->state_floats * sizeof(float));
    if (tail != NULL) be->ops->copy(be, tail, s->conv_tail, (size_t)m->conv_floats * sizeof(float));
    *out = p;
    return VB_OK;
}

vb_err vb__seq_restore(vb__seq *s, const vb__snapshot *p) {
    const vb__model *m = s->model;
    vb__backend *be = m->be;
    vb_check(p->model == m && p->pool == s->pool);
    if (p->n_pages > s->max_pages) return VB_E_CONTEXT_FULL;
    int32_t full = p->length / VB_PAGE_POSITIONS, own = -1;
    for (int32_t i = 0; i < full; i++) p->pool->refs[p->page_ids[i]]++; /* before s lets go of its own */
    if (p->n_pages > full && p->pool->n_free == 0 && s->n_pages == 0) {
        for (int32_t i = 0; i < full; i++) page_release(p->pool, p->page_ids[i]);
        return VB_E_MEMORY;
    }
    release_pages(s, 0);
    for (int32_t i = 0; i < full; i++) {
        s->page_ids[i] = p->page_ids[i];
        s->pages[i] = page_ptr(p->pool, p->page_ids[i]);
    }
    s->n_pages = full;
    s->length = s->replay = s->ran = s->certain = 0;
    if (p->n_pages > full) {
        own = page_take(p->pool, false);
        if (own < 0) {
            vb__seq_reset(s);
            return VB_E_MEMORY;
        }
        be->ops->copy(be, page_ptr(p->pool, own), page_ptr(p->pool, p->page_ids[full]), (size_t)p->pool->page_bytes);
        s->page_ids[full] = own;
        s->pages[full] = page_ptr(p->pool, own);
        s->n_pages = full + 1;
    }
    s->length = p->length;
    if (s->state != NULL) be->ops->copy(be, s->state, p->state, (size_t)m->state_floats * sizeof(float));
    if (s->conv_tail != NULL) be->ops->copy(be, s->conv_tail, p->conv_tail, (size_t)m->conv_floats * sizeof(float));
    return VB_OK;
}

void vb__snapshot_destroy(vb__snapshot *p) {
    if (p == NULL) return;
    for (int32_t i = 0; i < p->n_pages; i++) page_release(p->pool, p->page_ids[i]);
    p->model->be->ops->free(p->model->be, p->state);
    p->model->be->ops->free(p->model->be, p->conv_tail);
    vb__free(p->page_ids);
    vb__free(p);
}

int32_t vb__snapshot_length(const vb__snapshot *p) { return p->length; }

/* ---- Hashing -------------------------------------------------------------------------------------------------- */

/* Zeroes positions from `used` on in a host copy of one head's K and V. */
static void clear_unused(uint8_t *head, int32_t head_dim, int32_t used) {
    uint16_t *k = (uint16_t *)(void *)head, *v = k + (int64_t)VB_PAGE_POSITIONS * head_dim;
    for (int32_t pos = used; pos < VB_PAGE_POSITIONS; pos++) {
        uint16_t *kp = k + (int64_t)(pos / 16) * (head_dim / 2) * 32 + (pos % 16) * 2;
        for (int32_t d = 0; d < head_dim / 2; d++) kp[(int64_t)d * 32] = kp[(int64_t)d * 32 + 1] = 0;
        uint16_t *vp = v + (int64_t)(pos / 2) * head_dim * 2 + pos % 2;
        for (int32_t d = 0; d < head_dim; d++) vp[(int64_t)d * 2] = 0;
    }
}

static vb_err hash_device(XXH3_state_t *h, vb__backend *be, const void *p, size_t bytes, uint8_t *tmp, size_t tmp_bytes) {
    for (size_t at = 0; at < bytes; at += tmp_bytes) {
        size_t n = bytes - at < tmp_bytes ? bytes - at : tmp_bytes;
        be->ops->download(be, tmp, (const uint8_t *)p + at, n);
        VB_TRY(be->ops->sync(be, NULL));
        (void)XXH3_128bits_update(h, tmp, n);
    }
    return VB_OK;
}

void vb__seq_hash(vb__seq *s, uint8_t out[16]) {
    const vb__model *m = s->model;
    vb__backend *be = m->be;
    vb__seq_flush(s);
    XXH3_state_t *h = XXH3_createState();
    size_t tmp_bytes = (size_t)(m->page_bytes > 65536 ? m->page_bytes : 65536);
    uint8_t *tmp = vb__alloc(VB_TAG_SCRATCH, tmp_bytes);
    vb_check(h != NULL && tmp != NULL);
    (void)XXH3_128bits_reset(h);
    (void)XXH3_128bits_update(h, &s->length, sizeof s->length);
    for (int32_t i = 0; i < pages_for(s->length); i++) {
        be->ops->download(be, tmp, s->pages[i], (size_t)m->page_bytes);
        vb_check(be->ops->sync(be, NULL) == VB_OK);
        int32_t used = s->length - i * VB_PAGE_POSITIONS;
        for (int32_t l = 0; l < m->cfg.layers; l++) {
            const vb__layer *layer = &m->layers[l];
            if (layer->type == VB_LAYER_LINEAR) continue;
            int64_t head_bytes = (int64_t)VB_PAGE_POSITIONS * layer->kv.head_dim * 4;
            for (int32_t k = 0; k < layer->kv.kv_heads; k++) {
                uint8_t *head = tmp + layer->kv.page_off + k * head_bytes;
                if (used < VB_PAGE_POSITIONS) clear_unused(head, layer->kv.head_dim, used);
                (void)XXH3_128bits_update(h, head, (size_t)head_bytes);
            }
        }
    }
    if (s->state != NULL) (void)hash_device(h, be, s->state, (size_t)m->state_floats * 4, tmp, tmp_bytes);
    if (s->conv_tail != NULL) (void)hash_device(h, be, s->conv_tail, (size_t)m->conv_floats * 4, tmp, tmp_bytes);
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, XXH3_128bits_digest(h));
    memcpy(out, c.digest, 16);
    vb__free(tmp);
    (void)XXH3_freeState(h);
}
