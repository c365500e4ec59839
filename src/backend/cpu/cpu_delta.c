/* Launchers of the gated delta net: a layer from its projections to its gated norm, and the replay of an accepted
 * tape alone. A layer is one region whose items are the key heads of sequences, each with its value heads, so that
 * what conv makes is used from the cache of the thread that made it; or, where that would leave threads idle, the
 * regions conv (heads), delta (column blocks of heads) and norm. The owner of an item is the only one to write its
 * state, tail and tape, and a call's tape_in and tape_out differ, so items need no order. */
#include "backend/cpu/cpu_backend.h"
#include "base/alloc.h"
#include "base/fault.h"
#include <string.h>
#include <unistd.h>
#include <xmmintrin.h>

typedef struct thread_scratch {
    float *state; /* [VB_DELTA_SCRATCH], 64-byte aligned */
    float *replay_k, *replay_decay; /* [VB_DELTA_MAX_REPLAY][dk], [VB_DELTA_MAX_REPLAY] */
    float *x, *o; /* [NET_X], [NET_O] some rows of a few key heads: of each q, k and its v; and what delta makes of them */
    float *decay, *beta; /* [max_rows] */
} thread_scratch;
enum {
    NET_ROWS = 32,      /* rows of an item that are made at a time: much above what loading the state again costs, */
    NET_DRAFTS = 16,    /*   and the last ones with all rows that are not certain, so many at most */
    NET_ALL = NET_ROWS + NET_DRAFTS,
    NET_KEYS = 8,       /* key heads of an item at most: neighbours, so that long runs of memory are read */
    NET_X = NET_ALL * NET_KEYS * 4 * 128, /* so many with two value heads of 128 each, fewer wider ones */
    NET_O = NET_ALL * NET_KEYS * 2 * 128,
    X_AT = VB_DELTA_SCRATCH + VB_DELTA_MAX_REPLAY * VB_DELTA_MAX_DK + VB_DELTA_MAX_REPLAY,
    O_AT = X_AT + NET_X,
    FIXED_SCRATCH = O_AT + NET_O
};

struct vb__cpu_delta {
    float *memory;
    int64_t l1; /* bytes of the first cache, 0 if not known */
    thread_scratch thread[]; /* of every pool thread */
};

vb_err vb__cpu_delta_init(vb__cpu_backend *be, vb_error *err) {
    size_t threads = (size_t)vb__pool_threads(be->pool);
    size_t rows = ((size_t)be->o.max_rows + 15) / 16 * 16;
    size_t each, floats, bytes;
    bool fits = vb__mul_size(rows, 2, &each) && vb__add_size(each, FIXED_SCRATCH, &each) &&
                vb__mul_size(each, threads, &floats) && vb__mul_size(floats, sizeof(float), &bytes);
    be->delta = vb__calloc(VB_TAG_SCRATCH, 1, sizeof *be->delta + threads * sizeof be->delta->thread[0]);
    if (fits && be->delta != NULL) be->delta->memory = vb__alloc_aligned(VB_TAG_SCRATCH, bytes);
    if (be->delta == NULL || be->delta->memory == NULL) {
        vb__cpu_delta_fini(be);
        return vb__fail(err, VB_E_MEMORY, "CPU backend: out of memory for delta-net scratch");
    }
    be->delta->l1 = sysconf(_SC_LEVEL1_DCACHE_SIZE);
    for (size_t t = 0; t < threads; t++) {
        float *p = be->delta->memory + t * each;
        float *k = p + VB_DELTA_SCRATCH, *g = k + VB_DELTA_MAX_REPLAY * VB_DELTA_MAX_DK, *gates = p + FIXED_SCRATCH;
        be->delta->thread[t] = (thread_scratch){p, k, g, p + X_AT, p + O_AT, gates, gates + rows};
    }
    return VB_OK;
}

void vb__cpu_delta_fini(vb__cpu_backend *be) {
    if (be->delta != NULL) vb__free(be->delta->memory);
    vb__free(be->delta);
    be->delta = NULL;
}

static void check_layout(const vb__delta_layout *l) {
    vb_check(l->dk >= 1 && l->dk <= VB_DELTA_MAX_DK && l->dv >= 1 && l->dv <= VB_CONV_MAX_N && l->nk >= 1 &&
             l->nv % l->nk == 0 && l->taps >= 2 && l->taps <= VB_CONV_MAX_TAPS);
}

/* Offsets inside a tape row of one layer. */
static int64_t tape_k(const vb__delta_layout *l) { return l->tape_off + l->nv; }
static int64_t tape_delta(const vb__delta_layout *l) { return tape_k(l) + (int64_t)l->nk * l->dk; }
static int64_t tape_conv(const vb__delta_layout *l) { return tape_delta(l) + (int64_t)l->nv * l->dv; }

/* Copies into a tape go past the cache: they are read in another call, after everything else has been. */
static void copy_out(float *dst, const float *src, int64_t n) {
    if (((uintptr_t)dst & 63) != 0) {
        memcpy(dst, src, (size_t)n * sizeof(float));
        return;
    }
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        for (int64_t j = i; j < i + 16; j += 4) _mm_stream_ps(dst + j, _mm_loadu_ps(src + j));
    for (; i < n; i++) dst[i] = src[i];
}

/* Channel at which head h (q heads, k heads, v heads) starts. */
static int64_t channel_of(const vb__delta_layout *l, int32_t h) {
    int64_t v = h - 2 * (int64_t)l->nk;
    return v < 0 ? (int64_t)h * l->dk : 2 * (int64_t)l->nk * l->dk + v * l->dv;
}

enum { TILE = 16 }; /* rows of a conv item; at least taps-1 */

static int32_t tiles_of(int32_t rows) { return rows <= TILE ? 1 : (rows + TILE - 1) / TILE; }

typedef struct conv_call {
    const vb__kernels *k;
    const vb__conv_args *a;
    int64_t channels;
    float q_scale;
    bool commit; /* replay only: no rows, whatever the sequences say */
} conv_call;

/* One head's channels of rows at .. at+rows-1, to out. The first rows' call keeps the tail: it alone reads it. The head that
 * follows, if there is one (else -1), and where its rows go, if that is known, are asked for meanwhile. */
static void conv_rows(const conv_call *c, const vb__seq_rows *s, int32_t at, int32_t rows, int32_t h, float *out, int64_t outs,
                      int32_t follows, const float *follows_out) {
    const vb__conv_args *a = c->a;
    const vb__delta_layout *l = &a->lay;
    int64_t ch = channel_of(l, h);
    vb__conv_head head = {
        .n = h < 2 * l->nk ? l->dk : l->dv,
        .taps = l->taps,
        .replay = s->replay,
        .before = at,
        .tail = s->conv_tail + l->conv_off + ch,
        .tail_stride = c->channels,
        .tape_stride = l->tape_stride,
        .keep = at == 0,
        .norm = h < 2 * l->nk,
        .scale = h < l->nk ? c->q_scale : 1.0f,
    };
    if (s->replay > 0) head.tape_in = s->tape_in + tape_conv(l) + ch;
    if (!c->commit) {
        head.rows = rows;
        head.certain = s->certain; /* of the sequence: the tail may come from later rows */
        head.m = a->m + (s->row0 + at) * a->ms + ch;
        head.ms = a->ms;
        head.w = a->w + ch * l->taps;
        head.out = out;
        head.outs = outs;
        head.tape_from = s->certain > at ? s->certain - at : 0;
        if (head.tape_from < rows)
            head.tape_out = s->tape_out + (at + head.tape_from - s->certain) * l->tape_stride + tape_conv(l) + ch;
        if (follows >= 0) {
            head.ask = channel_of(l, follows) - ch;
            head.ask_out = follows_out;
        }
    }
    c->k->conv(&head);
}

/* The same of one tile of rows, to where the call wants it. */
static void conv_tile(const conv_call *c, const vb__seq_rows *s, int32_t tile, int32_t h) {
    const vb__conv_args *a = c->a;
    int32_t at = tile * TILE, rows = s->rows - at < TILE ? s->rows - at : TILE;
    float *out = c->commit ? NULL : a->out + (s->row0 + at) * a->outs + channel_of(&a->lay, h);
    conv_rows(c, s, at, rows, h, out, a->outs, h + 1 < 2 * a->lay.nk + a->lay.nv ? h + 1 : -1, NULL);
}

static void conv_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const conv_call *c = ctx;
    const vb__delta_layout *l = &c->a->lay;
    int32_t heads = 2 * l->nk + l->nv, tile = begin / heads;
    const vb__seq_rows *s = c->a->seqs;
    (void)thread;
    if (!c->commit)
        for (; tile >= tiles_of(s->rows); s++) tile -= tiles_of(s->rows);
    else
        for (; tile >= 1; s++) tile--;
    for (int32_t i = begin; i < end; i++) {
        conv_tile(c, s, tile, i % heads);
        if (i % heads < heads - 1) continue;
        if (++tile == (c->commit ? 1 : tiles_of(s->rows))) {
            tile = 0;
            s++;
        }
    }
    _mm_sfence(); /* for copy_out: other threads read after the region */
}

static conv_call conv_call_of(const vb__cpu_backend *be, const vb__conv_args *a, bool commit) {
    const vb__delta_layout *l = &a->lay;
    check_layout(l);
    return (conv_call){.k = &be->k, .a = a, .commit = commit, .channels = channel_of(l, 2 * l->nk + l->nv),
                       .q_scale = (float)(1.0 / __builtin_sqrt((double)l->dk))};
}

static void conv_run(vb__cpu_backend *be, const vb__conv_args *a, bool commit) {
    const vb__delta_layout *l = &a->lay;
    conv_call c = conv_call_of(be, a, commit);
    int64_t tiles = 0, rows = 0;
    for (int32_t i = 0; i < a->n_seqs; i++) {
        tiles += commit ? 1 : tiles_of(a->seqs[i].rows);
        rows += commit ? 1 : a->seqs[i].rows;
    }
    if (tiles == 0) return;
    /* Neighbouring heads of a tile lie side by side in memory, so many of them make a piece: at least 4096
     * exponentials, and half of a tile where there are enough. */
    int32_t heads = 2 * l->nk + l->nv;
    int64_t each = l->dk * (rows / tiles + 1), grain = each >= 4096 ? 1 : (4096 + each - 1) / each;
    if (tiles >= 2 * (int64_t)vb__pool_threads(be->pool) && grain < heads / 2) grain = heads / 2;
    vb__parallel_for(be->pool, (int32_t)(tiles * heads), (int32_t)grain, conv_items, &c);
}

void vb__cpu_conv(vb__backend *base, const vb__conv_args *a) { conv_run(vb__cpu_of(base), a, false); }

typedef struct delta_call {
    const vb__kernels *k;
    const vb__delta_args *a;
    struct vb__cpu_delta *scratch;
    int32_t cols;   /* of a block, the last of a head has what is left */
    int32_t blocks; /* in a head */
    bool commit;
    bool fault;
} delta_call;

/* Some rows of one value head of one sequence, and where its inputs and output lie. */
typedef struct head_rows {
    const vb__seq_rows *s;
    int32_t head, key;
    int32_t at, rows;      /* rows at .. at+rows-1 of the sequence: all from the first that is not certain on */
    const float *q, *k, *v; /* row t at + t*xs */
    int64_t xs;
    float *o; /* row t at + t*os */
    int64_t os;
} head_rows;

static int32_t key_of(const vb__delta_layout *l, int32_t head) { return l->modulo_heads ? head % l->nk : head / (l->nv / l->nk); }

/* Decay and beta of these rows into the thread's scratch. The owner of a head's first block also writes what the
 * tape holds once a head. */
static void make_gates(const delta_call *c, const head_rows *h, bool owner, const thread_scratch *scratch) {
    const vb__delta_args *a = c->a;
    const vb__delta_layout *l = &a->lay;
    const vb__seq_rows *s = h->s;
    int32_t head = h->head;
    int64_t row = s->row0 + h->at;
    c->k->delta_gates(scratch->decay, scratch->beta, a->a + row * a->as_ + head, a->as_, a->b + row * a->bs + head, a->bs,
                      a->neg_exp_a[head], a->dt_bias[head], h->rows);
    if (!owner) return;
    bool first_of_key = l->modulo_heads ? head < l->nk : head % (l->nv / l->nk) == 0;
    for (int64_t t = s->certain > h->at ? s->certain - h->at : 0; t < h->rows; t++) {
        float *tape = s->tape_out + (h->at + t - s->certain) * l->tape_stride;
        tape[l->tape_off + head] = scratch->decay[t];
        if (first_of_key) copy_out(tape + tape_k(l) + (int64_t)h->key * l->dk, h->k + t * h->xs, l->dk);
    }
}

/* Decay and k of rows first .. first+n-1 of the accepted tape into the thread's scratch. */
static void load_replay(const vb__delta_layout *l, const vb__seq_rows *s, int64_t first, int32_t n, int32_t head, int32_t key,
                        const thread_scratch *scratch) {
    for (int64_t t = 0; t < n; t++) {
        const float *tape = s->tape_in + (first + t) * l->tape_stride;
        const float *delta = tape + tape_delta(l) + (int64_t)head * l->dv;
        for (int64_t i = 0; i < l->dv; i += 16) __builtin_prefetch(delta + i);
        scratch->replay_decay[t] = tape[l->tape_off + head];
        memcpy(scratch->replay_k + t * l->dk, tape + tape_k(l) + (int64_t)key * l->dk, (size_t)l->dk * sizeof(float));
    }
}

static float *block_state(const delta_call *c, const vb__seq_rows *s, int32_t head, int32_t block) {
    const vb__delta_layout *l = &c->a->lay;
    return s->state + l->state_off + (int64_t)head * l->dk * l->dv + (int64_t)block * c->cols;
}

/* The kernel's calls for one block of a head. fresh: what the head needs in scratch is not there yet. ask: the state
 * of the block that follows, or NULL. */
static void block_rows(const delta_call *c, const head_rows *h, int32_t block, bool fresh, const float *ask,
                       const thread_scratch *scratch) {
    const vb__delta_layout *l = &c->a->lay;
    const vb__seq_rows *s = h->s;
    int64_t col = (int64_t)block * c->cols, at = tape_delta(l) + (int64_t)h->head * l->dv + col;
    vb__delta_block b = {
        .dk = l->dk,
        .cols = l->dv - col < c->cols ? (int32_t)(l->dv - col) : c->cols,
        .s = block_state(c, s, h->head, block),
        .ss = l->dv,
        .in_decay = scratch->replay_decay,
        .in_k = scratch->replay_k,
        .tape_stride = l->tape_stride,
        .ask_s = ask,
        .scratch = scratch->state,
    };
    int32_t replay = h->at == 0 ? s->replay : 0, done = 0;
    if (c->fault && replay > 0) replay--; /* planted: the last accepted row is forgotten */
    if (replay > 0) b.in_delta = s->tape_in + at;
    for (; replay - done > VB_DELTA_MAX_REPLAY; done += VB_DELTA_MAX_REPLAY) { /* more than a kernel takes */
        load_replay(l, s, done, VB_DELTA_MAX_REPLAY, h->head, h->key, scratch);
        b.replay = VB_DELTA_MAX_REPLAY;
        c->k->delta(&b);
        b.in_delta += b.tape_stride * VB_DELTA_MAX_REPLAY;
    }
    b.replay = replay - done;
    if (b.replay > 0 && (fresh || done > 0)) load_replay(l, s, done, b.replay, h->head, h->key, scratch);
    if (!c->commit && h->rows > 0) {
        if (fresh) make_gates(c, h, block == 0, scratch);
        b.rows = h->rows;
        b.certain = s->certain - h->at < h->rows ? s->certain - h->at : h->rows;
        b.q = h->q;
        b.k = h->k;
        b.v = h->v + col;
        b.xs = h->xs;
        b.decay = scratch->decay;
        b.beta = scratch->beta;
        b.o = h->o + col;
        b.os = h->os;
        if (b.certain < b.rows) b.out_delta = s->tape_out + at;
    }
    if (b.rows > 0 || b.replay > 0) c->k->delta(&b);
}

static void delta_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const delta_call *c = ctx;
    const vb__delta_args *a = c->a;
    const vb__delta_layout *l = &a->lay;
    const thread_scratch *scratch = &c->scratch->thread[thread];
    for (int32_t i = begin; i < end; i++) {
        int32_t head = i / c->blocks % l->nv, next = i + 1;
        const vb__seq_rows *s = &a->seqs[i / c->blocks / l->nv];
        head_rows h = {.s = s, .head = head, .key = key_of(l, head)};
        if (!c->commit) {
            const float *qkv = a->qkv + s->row0 * a->qkvs;
            h.rows = s->rows;
            h.q = qkv + (int64_t)h.key * l->dk;
            h.k = qkv + ((int64_t)l->nk + h.key) * l->dk;
            h.v = qkv + channel_of(l, 2 * l->nk + head);
            h.xs = a->qkvs;
            h.o = a->o + s->row0 * a->os + (int64_t)head * l->dv;
            h.os = a->os;
        }
        const float *ask = NULL;
        if (next < end) ask = block_state(c, &a->seqs[next / c->blocks / l->nv], next / c->blocks % l->nv, next % c->blocks);
        block_rows(c, &h, i % c->blocks, i == begin || i % c->blocks == 0, ask, scratch);
    }
    _mm_sfence(); /* for stores past the cache: other threads read after the region */
}

static delta_call delta_call_of(const vb__cpu_backend *be, const vb__delta_args *a, bool commit) {
    const vb__delta_layout *l = &a->lay;
    check_layout(l);
    delta_call c = {.k = &be->k, .a = a, .scratch = be->delta, .commit = commit, .cols = 32};
    /* Wide blocks are for the AVX-512 kernel, and for a first cache that has room for other things besides. */
    if (be->level >= VB_CPU_AVX512 && 4 * 4 * VB_DELTA_COLS * (int64_t)l->dk <= 3 * be->delta->l1) c.cols = VB_DELTA_COLS;
    c.blocks = (l->dv + c.cols - 1) / c.cols;
    c.fault = vb__fault_is(VB_FAULT_STATE_COMMIT);
    for (int32_t i = 0; i < a->n_seqs; i++)
        vb_check(commit || (a->seqs[i].rows <= be->o.max_rows && a->seqs[i].certain <= a->seqs[i].rows));
    return c;
}

/* Items for a piece: `some`, because within a piece the next state is asked for in time; but one where an item of a
 * long prompt may be among them. */
static int32_t alike(const vb__seq_rows *seqs, int32_t n_seqs, int32_t some) {
    for (int32_t i = 0; i < n_seqs && n_seqs > 1; i++)
        if (seqs[i].rows > NET_DRAFTS) return 1;
    return some > 0 ? some : 1;
}

static void delta_run(vb__cpu_backend *be, const vb__delta_args *a, bool commit) {
    const vb__delta_layout *l = &a->lay;
    delta_call c = delta_call_of(be, a, commit);
    /* Whole heads where there are enough of them, for gates are made once a head and piece. */
    int32_t heads = a->n_seqs * l->nv, some = heads / (4 * vb__pool_threads(be->pool));
    int32_t grain = some > 0 ? alike(a->seqs, a->n_seqs, some) * c.blocks : 1;
    vb__parallel_for(be->pool, heads * c.blocks, grain, delta_items, &c);
}

void vb__cpu_delta(vb__backend *base, const vb__delta_args *a) { delta_run(vb__cpu_of(base), a, false); }

void vb__cpu_delta_commit(vb__backend *base, const vb__delta_layout *lay, const vb__seq_rows *seqs, int32_t n_seqs) {
    vb__cpu_backend *be = vb__cpu_of(base);
    bool any = false;
    for (int32_t i = 0; i < n_seqs; i++) any = any || seqs[i].replay > 0;
    if (!any) return;
    conv_run(be, &(vb__conv_args){.lay = *lay, .seqs = seqs, .n_seqs = n_seqs}, true);
    delta_run(be, &(vb__delta_args){.lay = *lay, .seqs = seqs, .n_seqs = n_seqs}, true);
}

/* ---- the whole layer ---------------------------------------------------------------------------------------- */

typedef struct net_call {
    const vb__delta_net_args *a;
    conv_call conv;
    delta_call delta;
    int32_t keys, groups; /* key heads of an item, items of a sequence */
} net_call;

/* Asks for the state of a block. */
static void ask_block(const delta_call *c, const float *state) {
    const vb__delta_layout *l = &c->a->lay;
    for (int64_t k = 0; k < l->dk; k++)
        for (int32_t i = 0; i < c->cols && i < l->dv; i += 16) __builtin_prefetch(state + k * l->dv + i, 0, 2);
}

/* Value head j of a key head. */
static int32_t head_of(const vb__delta_layout *l, int32_t key, int32_t j) {
    return l->modulo_heads ? key + j * l->nk : key * (l->nv / l->nk) + j;
}

/* Rows of an item: key heads key0 .. key0+keys-1 of a sequence. */
typedef struct net_rows {
    const vb__seq_rows *s;
    int32_t key0, keys, at, rows;
} net_rows;

/* The conv head that is q (j = -2), k (-1) or value head j of a key head. */
static int32_t conv_head_of(const vb__delta_layout *l, int32_t key, int32_t j) {
    return j < 0 ? (j + 2) * l->nk + key : 2 * l->nk + head_of(l, key, j);
}

/* conv of the item's heads: of a key head q, k and then its v, [rows][2*dk + per_key*dv]. Heads go by the order in
 * which they lie in memory. */
static void net_conv(const net_call *c, const net_rows *n, float *x) {
    const vb__delta_layout *l = &c->a->conv.lay;
    int32_t per_key = l->nv / l->nk;
    int64_t xs = 2 * (int64_t)l->dk + (int64_t)per_key * l->dv;
    for (int32_t t = 0; t < n->rows || t == 0; t += TILE) {
        int32_t rows = n->rows - t < TILE ? n->rows - t : TILE;
        for (int32_t part = 0; part < 2 + per_key; part++)
            for (int32_t i = 0; i < n->keys; i++) {
                int32_t key = n->key0 + i, j = part - 2, next = -1;
                if (i + 1 < n->keys) next = conv_head_of(l, key + 1, j);
                else if (part < 1 + per_key) next = conv_head_of(l, n->key0, j + 1);
                float *y = x + ((int64_t)i * n->rows + t) * xs + (j < 0 ? part * l->dk : 2 * l->dk + j * l->dv);
                conv_rows(&c->conv, n->s, n->at + t, rows, conv_head_of(l, key, j), y, xs, next,
                          i + 1 < n->keys ? y + n->rows * xs : NULL);
            }
    }
}

/* The gated norm of the item's heads, [rows][per_key][keys][dv] or [rows][keys][per_key][dv] as in memory: row by row. */
static void net_norm(const net_call *c, const net_rows *n, const float *o) {
    const vb__delta_net_args *a = c->a;
    const vb__delta_layout *l = &a->conv.lay;
    int32_t per_key = l->nv / l->nk, runs = l->modulo_heads ? per_key : 1, heads = n->keys * per_key / runs;
    for (int32_t t = 0; t < n->rows; t++)
        for (int32_t j = 0; j < runs; j++) {
            int64_t row = n->s->row0 + n->at + t, ch = (int64_t)head_of(l, n->key0, j) * l->dv;
            const float *x = o + ((int64_t)t * runs + j) * heads * l->dv;
            c->conv.k->rmsnorm_gated(a->delta.o + row * a->delta.os + ch, l->dv, x, l->dv, a->z + row * a->zs + ch, l->dv, a->norm,
                                     heads, l->dv, a->eps);
        }
}

/* All of the item's rows; follows: the state of the item that this thread takes next, or NULL. */
static void net_item(const net_call *c, const vb__seq_rows *s, int32_t key0, int32_t keys, const float *follows,
                     const thread_scratch *scratch) {
    const vb__delta_layout *l = &c->a->conv.lay;
    int32_t per_key = l->nv / l->nk, heads = keys * per_key, blocks = c->delta.blocks;
    int64_t xs = 2 * (int64_t)l->dk + (int64_t)per_key * l->dv, os = (int64_t)heads * l->dv;
    for (int32_t at = 0, rows; at < s->rows || at == 0; at += rows) {
        int32_t left = s->rows - at;
        rows = left <= NET_ALL ? left : NET_ROWS;
        net_rows n = {s, key0, keys, at, rows};
        net_conv(c, &n, scratch->x);
        for (int32_t i = 0; i < heads; i++) {
            int32_t key = i / per_key, j = i % per_key, next = i + 1;
            const float *x = scratch->x + (int64_t)key * rows * xs;
            float *o = scratch->o + (l->modulo_heads ? j * keys + key : i) * l->dv;
            head_rows h = {.s = s, .head = head_of(l, key0 + key, j), .key = key0 + key, .at = at, .rows = rows, .q = x,
                           .k = x + l->dk, .v = x + 2 * l->dk + j * l->dv, .xs = xs, .o = o, .os = os};
            for (int32_t b = 0; b < blocks; b++) {
                const float *ask = rows == left ? follows : NULL;
                if (b + 1 < blocks) ask = block_state(&c->delta, s, h.head, b + 1);
                else if (next < heads) ask = block_state(&c->delta, s, head_of(l, key0 + next / per_key, next % per_key), 0);
                block_rows(&c->delta, &h, b, b == 0, ask, scratch);
            }
        }
        net_norm(c, &n, scratch->o);
        if (rows == 0) return;
    }
}

static void net_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const net_call *c = ctx;
    const vb__delta_layout *l = &c->a->conv.lay;
    const vb__seq_rows *seqs = c->a->conv.seqs;
    const thread_scratch *scratch = &c->delta.scratch->thread[thread];
    for (int32_t i = begin; i < end; i++) {
        const vb__seq_rows *s = &seqs[i / c->groups];
        int32_t key0 = i % c->groups * c->keys, keys = l->nk - key0 < c->keys ? l->nk - key0 : c->keys, next = i + 1;
        const float *follows = NULL;
        if (next < end)
            follows = block_state(&c->delta, &seqs[next / c->groups], head_of(l, next % c->groups * c->keys, 0), 0);
        if (i == begin) ask_block(&c->delta, block_state(&c->delta, s, head_of(l, key0, 0), 0));
        net_item(c, s, key0, keys, follows, scratch);
    }
    _mm_sfence(); /* for stores past the cache: other threads read after the region */
}

/* Key heads of an item; 0 where items would leave threads idle or do not fit in scratch. */
static int32_t keys_of_item(const vb__cpu_backend *be, const vb__conv_args *a) {
    const vb__delta_layout *l = &a->lay;
    int64_t per_key = l->nv / l->nk, all = (int64_t)a->n_seqs * l->nk, threads = vb__pool_threads(be->pool);
    for (int32_t i = 0; i < a->n_seqs; i++)
        if (a->seqs[i].rows - a->seqs[i].certain > NET_DRAFTS) return 0;
    for (int32_t keys = NET_KEYS; keys > 0; keys /= 2) {
        int64_t items = (int64_t)a->n_seqs * ((l->nk + keys - 1) / keys), rounds = (items + threads - 1) / threads;
        bool fits = keys * NET_ALL * (2 * l->dk + per_key * l->dv) <= NET_X && keys * NET_ALL * per_key * l->dv <= NET_O;
        if (fits && 5 * all >= 4 * keys * rounds * threads) return keys;
    }
    return 0;
}

void vb__cpu_delta_net(vb__backend *base, const vb__delta_net_args *a) {
    vb__cpu_backend *be = vb__cpu_of(base);
    const vb__delta_layout *l = &a->conv.lay;
    int32_t keys = keys_of_item(be, &a->conv), rows = 0;
    if (keys > 0) {
        net_call c = {.a = a, .conv = conv_call_of(be, &a->conv, false), .delta = delta_call_of(be, &a->delta, false),
                      .keys = keys, .groups = (l->nk + keys - 1) / keys};
        int32_t items = a->conv.n_seqs * c.groups, some = items / (4 * vb__pool_threads(be->pool));
        if (a->conv.n_seqs == 1) vb__parallel_shares(be->pool, items, 1, net_items, &c); /* items are alike */
        else vb__parallel_for(be->pool, items, alike(a->conv.seqs, a->conv.n_seqs, some), net_items, &c);
        return;
    }
    vb__cpu_conv(base, &a->conv);
    vb__cpu_delta(base, &a->delta);
    for (int32_t i = 0; i < a->conv.n_seqs; i++) rows += a->conv.seqs[i].rows;
    vb_check(a->zs == (int64_t)l->nv * l->dv && a->delta.os == a->zs); /* then every head is an item */
    int64_t row0 = a->conv.seqs[0].row0;
    float *o = a->delta.o + row0 * a->delta.os;
    vb__cpu_rmsnorm_gated(base, o, l->dv, o, l->dv, a->z + row0 * a->zs, l->dv, a->norm, rows * l->nv, l->dv, a->eps);
}
