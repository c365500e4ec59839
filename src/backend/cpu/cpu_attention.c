/* The launchers of kv_append and attention. Contracts: ops/kv_append.h, ops/attention.h.
 *
 * A call is cut into tiles: query heads of one KV head for consecutive rows of one sequence, so that K and V
 * are read once for all of them; which (row, head) pairs share a tile follows the head-chunk plan, of which a tile
 * takes as many chunks as fit. With enough tiles for all threads each tile is one item. With few (decode, a verify block at depth), blocks or
 * spans of keys become items, their partial results are kept, and a second region folds them in the
 * contract's order; a long context goes in rounds, so that scratch has a fixed size. Both ways give the same
 * bits, because the contract folds blocks within a span, and spans, in one order. */
#include "backend/cpu/cpu_backend.h"
#include "backend/head_chunk.h"
#include "backend/ops/attention.h"
#include "backend/ops/kv_append.h"
#include "base/alloc.h"
#include "base/fault.h"

enum {
    BLOCK = VB_ATTN_BLOCK,
    SPAN = VB_ATTN_SPAN_BLOCKS,
    LANES = VB_ATTN_LANES,
    PARTS_PER_THREAD = 6,
    MODEL_THREADS = 64
};

typedef struct tile_rec {
    int32_t seq, row, rows; /* rows row.. of the sequence's rows in this call */
    int32_t head, heads;    /* query heads */
    int32_t b0, b1;         /* blocks with a key visible to any of the rows */
} tile_rec;

/* Blocks b0..b1-1 of a tile, of one span, in a round of split work. */
typedef struct unit_rec {
    int32_t tile, b0, b1;
    float *part;
} unit_rec;

struct vb__cpu_attention {
    tile_rec *tiles; /* [max_tiles] */
    unit_rec *units; /* [max_units] */
    int32_t max_tiles, max_units;
    int64_t part_floats; /* of a tile of LANES lanes, the largest head width */
    float *parts;        /* [max_parts * part_floats], shared: split work */
    int64_t max_floats;
    float *own;       /* per thread: 2 partials */
    uint8_t *scratch; /* per thread: VB_ATTN_SCRATCH */
};

vb_err vb__cpu_attention_init(vb__cpu_backend *be, vb_error *err) {
    int32_t heads = be->o.max_heads > 0 ? be->o.max_heads : 1, rows = be->o.max_rows > 0 ? be->o.max_rows : 1;
    int32_t dim = be->o.max_head_dim > 0 ? be->o.max_head_dim : 2;
    if (dim > VB_ATTN_DIM)
        return vb__fail(err, VB_E_ARGUMENT, "head_dim: %d, expected at most %d", dim, (int)VB_ATTN_DIM);
    int32_t threads = vb__pool_threads(be->pool);
    struct vb__cpu_attention *s = vb__calloc(VB_TAG_SCRATCH, 1, sizeof *s);
    if (s == NULL) goto memory;
    be->attention = s;
    s->max_tiles = rows * heads;
    s->max_units = 4096;
    s->part_floats = vb__attn_part_floats(LANES, dim);
    s->max_floats = s->part_floats * PARTS_PER_THREAD * threads;
    s->tiles = vb__calloc(VB_TAG_SCRATCH, (size_t)s->max_tiles, sizeof *s->tiles);
    s->units = vb__calloc(VB_TAG_SCRATCH, (size_t)s->max_units, sizeof *s->units);
    s->parts = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)s->max_floats * sizeof(float));
    s->own = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)(2 * s->part_floats * threads) * sizeof(float));
    s->scratch = vb__alloc_aligned(VB_TAG_SCRATCH, (size_t)threads * VB_ATTN_SCRATCH);
    if (s->tiles == NULL || s->units == NULL || s->parts == NULL || s->own == NULL || s->scratch == NULL)
        goto memory;
    return VB_OK;
memory:
    return vb__fail(err, VB_E_MEMORY, "attention scratch: out of memory");
}

void vb__cpu_attention_fini(vb__cpu_backend *be) {
    struct vb__cpu_attention *s = be->attention;
    if (s == NULL) return;
    vb__free(s->tiles);
    vb__free(s->units);
    vb__free(s->parts);
    vb__free(s->own);
    vb__free(s->scratch);
    vb__free(s);
    be->attention = NULL;
}

/* ---- kv_append ---- */

typedef struct append_ctx {
    const vb__cpu_backend *be;
    const vb__kv_layout *kv;
    const float *k, *v;
    int64_t ks, vs;
    const vb__seq_rows *seqs;
    int32_t n_seqs;
} append_ctx;

/* Rows that share cache lines of a page: a line of K has the positions of 16 rows, one of V those of 2. Threads that write
 * to one line take it from each other at every store. */
enum { APPEND_GROUP = 16, APPEND_VALUES = 2048 /* of k, to a thread at least: about 2 us */ };

static int32_t append_groups(const vb__seq_rows *s) {
    if (s->rows == 0) return 0;
    return (s->pos0 + s->rows - 1) / APPEND_GROUP - s->pos0 / APPEND_GROUP + 1;
}

static void append_group(const append_ctx *c, const vb__seq_rows *s, int32_t group, int32_t head) {
    int32_t start = (s->pos0 / APPEND_GROUP + group) * APPEND_GROUP, end = start + APPEND_GROUP;
    int32_t p = start > s->pos0 ? start : s->pos0, dim = c->kv->head_dim;
    if (end > s->pos0 + s->rows) end = s->pos0 + s->rows;
    uint8_t *to = s->pages[p / BLOCK] + c->kv->page_off + head * vb__kv_head_bytes(dim);
    for (; p < end; p++) {
        int64_t row = s->row0 + p - s->pos0;
        if (!c->be->k.kv_append(to, 1, dim, p % BLOCK, c->k + row * c->ks + head * dim, c->v + row * c->vs + head * dim))
            __atomic_store_n(&s->failed[p - s->pos0], 1, __ATOMIC_RELAXED); /* perhaps by several threads */
    }
}

/* Items are heads of groups of rows of the sequences one after the other (which need not be the order of the call's rows). */
static void append_item(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    (void)thread;
    const append_ctx *c = ctx;
    int32_t at = 0, heads = c->kv->kv_heads;
    for (int32_t i = 0, n; i < c->n_seqs && at < end; at += n, i++) {
        n = append_groups(&c->seqs[i]) * heads;
        for (int32_t j = begin > at ? begin - at : 0; j < n && at + j < end; j++)
            append_group(c, &c->seqs[i], j / heads, j % heads);
    }
}

void vb__cpu_kv_append(vb__backend *base, const vb__kv_layout *kv, const float *k, int64_t ks, const float *v,
                       int64_t vs, const vb__seq_rows *seqs, int32_t n_seqs) {
    vb__cpu_backend *be = vb__cpu_of(base);
    append_ctx c = {be, kv, k, v, ks, vs, seqs, n_seqs};
    int32_t rows = 0, items = 0;
    for (int32_t i = 0; i < n_seqs; i++) {
        rows += seqs[i].rows;
        items += append_groups(&seqs[i]) * kv->kv_heads;
    }
    int32_t chunks = (int32_t)((int64_t)rows * kv->kv_heads * kv->head_dim / APPEND_VALUES) + 1;
    vb__parallel_for(be->pool, items, (items + chunks - 1) / chunks, append_item, &c);
}

/* ---- attention: tiles ---- */

typedef struct attn_ctx {
    vb__cpu_backend *be;
    const vb__attention_args *a;
    struct vb__cpu_attention *s;
    int32_t n_tiles;
    bool fault; /* the planted one: with several rows of a sequence, keys fold by eights */
    /* split work */
    int32_t n_units, group; /* group: blocks of a unit; SPAN with one partial each, else one per block */
    int64_t slot;           /* floats of the largest tile's partial */
    float *acc;             /* [n_tiles][2] partials: of the span under way, of the spans before it */
    int32_t round0, round1; /* blocks of every tile done before, and after, this round (from its b0) */
} attn_ctx;

/* Blocks that any of rows row..row+rows-1 sees; an empty range where there is none. */
static void tile_blocks(const vb__attention_args *a, tile_rec *r) {
    vb__attn_tile t = {
        .pos0 = a->seqs[r->seq].pos0 + r->row, .visible_end = a->seqs[r->seq].visible_end, .window = a->window};
    int32_t lo, hi, unused;
    vb__attn_visible(&t, 0, &lo, &unused);
    vb__attn_visible(&t, r->rows - 1, &unused, &hi);
    r->b0 = lo / BLOCK;
    r->b1 = lo < hi ? (hi + BLOCK - 1) / BLOCK : r->b0;
}

/* Query heads and rows of a tile for a sequence with `rows` rows. merge: chunks of one KV head share a tile as far as they
 * fit, so that K and V are read once for all of them. */
static void tile_shape(const vb__attention_args *a, int32_t rows, bool merge, int32_t *heads, int32_t *tile_rows) {
    int32_t gqa = a->heads / a->kv.kv_heads;
    vb__head_chunk plan;
    if (!a->head_chunk) *heads = 1;
    else if (vb__head_chunk_plan(rows, a->heads, a->kv.kv_heads, &plan)) {
        int32_t fit = merge ? LANES / (plan.heads_per_chunk * rows) : 1;
        int32_t tiles = (plan.per_kv + fit - 1) / fit;
        *heads = (plan.per_kv + tiles - 1) / tiles * plan.heads_per_chunk;
    } else *heads = gqa < LANES ? gqa : LANES;
    *tile_rows = LANES / *heads;
}

static int32_t cut_tiles(const vb__attention_args *a, struct vb__cpu_attention *s, bool merge) {
    int32_t n = 0, gqa = a->heads / a->kv.kv_heads;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        int32_t heads, rows, all = a->seqs[i].rows;
        if (all == 0) continue;
        tile_shape(a, all, merge, &heads, &rows);
        /* The longest first: rows descend. */
        for (int32_t row = (all - 1) / rows * rows; row >= 0; row -= rows)
            for (int32_t kv = 0; kv < a->kv.kv_heads; kv++)
                for (int32_t first = 0; first < gqa; first += heads) {
                    vb_assert(n < s->max_tiles);
                    tile_rec *r = &s->tiles[n++];
                    *r = (tile_rec){.seq = i,
                                    .row = row,
                                    .rows = all - row < rows ? all - row : rows,
                                    .head = kv * gqa + first,
                                    .heads = gqa - first < heads ? gqa - first : heads};
                    tile_blocks(a, r);
                }
    }
    return n;
}

static void make_tiles(attn_ctx *c, int32_t threads) {
    c->n_tiles = cut_tiles(c->a, c->s, true);
    if (c->n_tiles < threads) c->n_tiles = cut_tiles(c->a, c->s, false);
}

static vb__attn_tile open_tile(const attn_ctx *c, const tile_rec *r, int32_t thread) {
    const vb__attention_args *a = c->a;
    const vb__seq_rows *seq = &a->seqs[r->seq];
    int32_t kv_head = r->head / (a->heads / a->kv.kv_heads);
    return (vb__attn_tile){
        .q = a->q + (seq->row0 + r->row) * a->qs + r->head * a->qh,
        .qs = a->qs,
        .qh = a->qh,
        .rows = r->rows,
        .heads = r->heads,
        .dim = a->kv.head_dim,
        .scale = a->scale,
        .pages = seq->pages,
        .k_off = a->kv.page_off + kv_head * vb__kv_head_bytes(a->kv.head_dim),
        .pos0 = seq->pos0 + r->row,
        .visible_end = seq->visible_end,
        .window = a->window,
        .scratch = c->s->scratch + (int64_t)thread * VB_ATTN_SCRATCH,
    };
}

static void finish_lane(const attn_ctx *c, const tile_rec *r, float *part, int32_t lane) {
    const vb__attention_args *a = c->a;
    int32_t lanes = r->rows * r->heads, dim = a->kv.head_dim;
    int64_t row = a->seqs[r->seq].row0 + r->row + lane / r->heads, head = r->head + lane % r->heads;
    const float *gate = a->gate == NULL ? NULL : a->gate + row * a->gs + head * a->gh;
    float *po = vb__attn_part_o(part, lanes, lane, dim), l = part[vb__attn_round16(lanes) + lane];
    c->be->k.attn_finish(a->o + row * a->os + head * dim, po, l, gate, dim);
}

static void clear_part(float *part, int32_t lanes) {
    for (int32_t i = 0; i < lanes; i++) part[vb__attn_round16(lanes) + i] = 0.0f;
}

static int32_t span_end(int32_t b, int32_t b1) {
    int32_t end = (b / SPAN + 1) * SPAN;
    return end < b1 ? end : b1;
}

/* ---- a tile is an item ---- */

/* What VERBATIM_FAULT=attention-rows does in place of the contract's order. */
static void fold_by_eights(const attn_ctx *c, const tile_rec *r, vb__attn_tile *t, float *sum, float *part) {
    int32_t lanes = r->rows * r->heads;
    clear_part(sum, lanes);
    for (int32_t key = r->b0 * BLOCK; key < r->b1 * BLOCK; key += 8) {
        t->key_lo = key;
        t->key_hi = key + 8;
        c->be->k.attn_blocks(t, key / BLOCK, key / BLOCK + 1, false, part);
        c->be->k.attn_fold(sum, part, lanes, 0, lanes, t->dim);
    }
}

static void whole_tiles(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const attn_ctx *c = ctx;
    float *sum = c->s->own + (int64_t)thread * 2 * c->s->part_floats, *span = sum + c->s->part_floats;
    for (int32_t i = begin; i < end; i++) {
        const tile_rec *r = &c->s->tiles[i];
        vb__attn_tile t = open_tile(c, r, thread);
        int32_t lanes = r->rows * r->heads;
        if (r->b0 >= r->b1) clear_part(sum, lanes);
        bool fault = c->fault && c->a->seqs[r->seq].rows > 1;
        if (fault) fold_by_eights(c, r, &t, sum, span);
        for (int32_t b = r->b0, e; b < r->b1 && !fault; b = e) {
            e = span_end(b, r->b1);
            c->be->k.attn_blocks(&t, b, e, false, b == r->b0 ? sum : span);
            if (b != r->b0) c->be->k.attn_fold(sum, span, lanes, 0, lanes, t.dim);
        }
        for (int32_t lane = 0; lane < lanes; lane++) finish_lane(c, r, sum, lane);
    }
}

/* ---- few tiles: blocks or spans are items ---- */

static void split_units(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const attn_ctx *c = ctx;
    for (int32_t i = begin; i < end; i++) {
        const unit_rec *u = &c->s->units[i];
        vb__attn_tile t = open_tile(c, &c->s->tiles[u->tile], thread);
        c->be->k.attn_blocks(&t, u->b0, u->b1, c->group < SPAN, u->part);
    }
}

/* Folds this round's partials of lanes lane0..lane1-1 of a tile, and finishes them after the last round. */
static void fold_tile(const attn_ctx *c, int32_t tile, int32_t lane0, int32_t lane1) {
    const tile_rec *r = &c->s->tiles[tile];
    int32_t lanes = r->rows * r->heads, dim = c->a->kv.head_dim;
    int64_t one = vb__attn_part_floats(lanes, dim);
    float *span = c->acc + tile * 2 * c->slot, *sum = span + c->slot;
    vb__attn_fold_fn *fold = c->be->k.attn_fold;
    for (int32_t i = 0; i < c->n_units; i++) {
        const unit_rec *u = &c->s->units[i];
        if (u->tile != tile) continue;
        if (c->group == SPAN) {
            fold(sum, u->part, lanes, lane0, lane1, dim);
            continue;
        }
        for (int32_t b = u->b0; b < u->b1; b++) {
            fold(span, u->part + (b - u->b0) * one, lanes, lane0, lane1, dim);
            if (b % SPAN != SPAN - 1 && b != r->b1 - 1) continue;
            fold(sum, span, lanes, lane0, lane1, dim);
            for (int32_t j = lane0; j < lane1; j++) span[vb__attn_round16(lanes) + j] = 0.0f;
        }
    }
    if (r->b0 + c->round1 < r->b1) return;
    for (int32_t j = lane0; j < lane1; j++) finish_lane(c, r, sum, j);
}

/* Items: the lanes of the tiles, one after the other. */
static void split_fold(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    (void)thread;
    const attn_ctx *c = ctx;
    int32_t at = 0;
    for (int32_t i = 0; i < c->n_tiles && at < end; i++) {
        const tile_rec *r = &c->s->tiles[i];
        int32_t lanes = r->rows * r->heads, first = begin > at ? begin - at : 0;
        int32_t stop = end - at < lanes ? end - at : lanes;
        at += lanes;
        /* A tile that had been finished in an earlier round is left alone. */
        if (first < stop && (r->b0 + c->round0 < r->b1 || c->round0 == 0)) fold_tile(c, i, first, stop);
    }
}

/* This round's units: of every tile, blocks b0 + round0 .. b0 + round1. The round of a tile starts and ends
 * at its own b0 plus a number of blocks, cut where spans end. */
static void make_units(attn_ctx *c, float *parts) {
    c->n_units = 0;
    for (int32_t i = 0; i < c->n_tiles; i++) {
        const tile_rec *r = &c->s->tiles[i];
        int32_t b = r->b0 + c->round0, end = r->b0 + c->round1 < r->b1 ? r->b0 + c->round1 : r->b1;
        for (int32_t e; b < end; b = e) {
            e = (b / c->group + 1) * c->group;
            if (e > end) e = end;
            c->s->units[c->n_units++] = (unit_rec){.tile = i, .b0 = b, .b1 = e, .part = parts};
            parts += c->group < SPAN ? (e - b) * c->slot : c->slot;
        }
    }
}

/* Blocks of a tile in a round such that every round fits the scratch; 0 if none does. */
static int32_t round_blocks(const attn_ctx *c, int32_t longest) {
    int64_t slots = (c->s->max_floats / c->slot) / c->n_tiles - 2; /* two are the accumulators */
    if (slots < 1) return 0;
    int64_t n = slots;
    if (c->group == SPAN) {
        /* tiles start anywhere in a span, rounds may not cut one: see run_split */
        n = slots > 1 ? (slots - 1) * SPAN : 0;
    }
    int64_t per_unit = c->s->max_units / c->n_tiles - 1;
    if (n > per_unit * c->group) n = per_unit * c->group;
    return (int32_t)(n < longest ? n : longest);
}

static void run_split(attn_ctx *c, int32_t longest, int32_t blocks_a_round) {
    int32_t lanes = 0;
    for (int32_t i = 0; i < c->n_tiles; i++) {
        tile_rec *r = &c->s->tiles[i];
        int32_t n = r->rows * r->heads;
        clear_part(c->acc + i * 2 * c->slot, n);
        clear_part(c->acc + (i * 2 + 1) * c->slot, n);
        lanes += n;
    }
    float *parts = c->acc + c->n_tiles * 2 * c->slot;
    for (c->round0 = 0; c->round0 == 0 || c->round0 < longest; c->round0 = c->round1) {
        c->round1 = c->round0 + blocks_a_round;
        make_units(c, parts);
        vb__parallel_for(c->be->pool, c->n_units, 1, split_units, c);
        int32_t grain = lanes / (2 * vb__pool_threads(c->be->pool));
        vb__parallel_for(c->be->pool, lanes, grain > 1 ? grain : 1, split_fold, c);
    }
}

/* Time of the tiles handed out in order to `threads` (at most MODEL_THREADS) threads, whole or (group > 0) cut where groups of
 * blocks end, in blocks times lanes. K and V of a block cost about as much as 4 lanes, 16 where tiles compute. */
static int64_t shared_time(const attn_ctx *c, int32_t threads, int32_t group, int64_t *total) {
    int64_t busy[MODEL_THREADS] = {0};
    int32_t reading = c->be->k.level >= VB_CPU_AMX ? 16 : 4;
    *total = 0;
    for (int32_t i = 0; i < c->n_tiles; i++) {
        const tile_rec *r = &c->s->tiles[i];
        for (int32_t b = r->b0, end; b < r->b1; b = end) {
            end = group > 0 && (b / group + 1) * group < r->b1 ? (b / group + 1) * group : r->b1;
            int64_t cost = (int64_t)(end - b) * (r->rows * r->heads + reading);
            int32_t best = 0;
            for (int32_t j = 1; j < threads; j++)
                if (busy[j] < busy[best]) best = j;
            busy[best] += cost;
            *total += cost;
        }
    }
    int64_t longest = 0;
    for (int32_t j = 0; j < threads; j++) longest = busy[j] > longest ? busy[j] : longest;
    return longest;
}

/* Cuts the rows of the last tiles, those that are left when every thread has had the same number of whole ones, so that all
 * threads share them, where that pays: three tiles on two threads would keep one of them waiting for a third of the time. */
static void share_rest(attn_ctx *c, int32_t threads) {
    tile_rec *tiles = c->s->tiles;
    int32_t n = c->n_tiles, rest = n % threads, from = n - rest, parts = threads;
    if (rest == 0 || n >= 8 * threads) return;
    for (int32_t i = from; i < n; i++)
        if (tiles[i].rows < parts) parts = tiles[i].rows;
    if (parts == 1) return;
    int64_t total, before = shared_time(c, threads, 0, &total), spans = shared_time(c, threads, SPAN, &total) * 9 / 8;
    if (spans < before) before = spans;
    for (int32_t i = rest - 1; i >= 0; i--) { /* from the end: the parts of a tile go where those behind it have been */
        tile_rec whole = tiles[from + i];
        for (int32_t j = parts - 1, end = whole.rows; j >= 0; j--) {
            tile_rec *r = &tiles[from + i * parts + j];
            int32_t row = whole.rows * j / parts;
            *r = whole;
            r->row = whole.row + row;
            r->rows = end - row;
            end = row;
            tile_blocks(c->a, r);
        }
    }
    c->n_tiles = from + rest * parts;
    if (shared_time(c, threads, 0, &total) > before * 15 / 16) make_tiles(c, threads);
}

/* Tiles as they are (0), a partial for each span (SPAN), or one for each block (1): what is done first. Partials of blocks are
 * written and folded lane by lane, which costs most of what the blocks cost (heads of 64, 1 to 8 rows, two threads: 0.7 to 2.5
 * times in all), those of spans next to nothing; both take a second region. */
static int32_t choose_cut(const attn_ctx *c, int32_t threads) {
    int64_t total, whole = shared_time(c, threads, 0, &total), spans = shared_time(c, threads, SPAN, &total);
    int64_t blocks = total / threads + total * 3 / (4 * threads);
    spans += spans / 8;
    if (whole <= spans && whole <= blocks) return 0;
    return spans <= blocks ? SPAN : 1;
}

/* Whether splitting the tiles pays, and then how: fills group, slot, acc; returns blocks of a round, else 0.
 */
static int32_t plan_split(attn_ctx *c, int32_t *longest) {
    int32_t threads = vb__pool_threads(c->be->pool);
    if (threads == 1 || c->n_tiles >= 8 * threads) return 0;
    int32_t lanes = 0, total_blocks = 0;
    *longest = 0;
    for (int32_t i = 0; i < c->n_tiles; i++) {
        const tile_rec *r = &c->s->tiles[i];
        int32_t n = r->b1 - r->b0;
        if (n > *longest) *longest = n;
        if (r->rows * r->heads > lanes) lanes = r->rows * r->heads;
        total_blocks += n;
    }
    /* A second region costs some microseconds, a block of 256 dims about as much. */
    if (*longest < 2 || total_blocks * c->a->kv.head_dim < 4 * 256) return 0;
    int32_t cut = choose_cut(c, threads < MODEL_THREADS ? threads : MODEL_THREADS);
    if (cut == 0) return 0;
    c->slot = vb__attn_part_floats(lanes, c->a->kv.head_dim);
    c->group = SPAN;
    if (cut != SPAN) {
        c->group = total_blocks / (4 * threads);
        c->group = c->group >= 8 ? 8 : c->group >= 4 ? 4 : c->group >= 2 ? 2 : 1; /* divides a span */
    }
    c->acc = c->s->parts;
    int32_t n = round_blocks(c, *longest);
    if (c->group == SPAN && n < *longest) {
        /* Rounds of whole spans need tiles that start at spans; a window's may not. Then blocks. */
        n -= n % SPAN;
        for (int32_t i = 0; i < c->n_tiles; i++)
            if (c->s->tiles[i].b0 % SPAN != 0) n = 0;
        if (n == 0) {
            c->group = 8;
            n = round_blocks(c, *longest);
        }
    }
    return n;
}

void vb__cpu_attention(vb__backend *base, const vb__attention_args *a) {
    vb__cpu_backend *be = vb__cpu_of(base);
    attn_ctx c = {.be = be, .a = a, .s = be->attention, .fault = vb__fault_is(VB_FAULT_ATTENTION_ROWS)};
    int32_t threads = vb__pool_threads(be->pool) < MODEL_THREADS ? vb__pool_threads(be->pool) : MODEL_THREADS;
    make_tiles(&c, threads);
    if (threads > 1) share_rest(&c, threads);
    int32_t longest = 0, blocks_a_round = c.fault ? 0 : plan_split(&c, &longest);
    if (blocks_a_round > 0) run_split(&c, longest, blocks_a_round);
    else vb__parallel_for(be->pool, c.n_tiles, 1, whole_tiles, &c);
}
