/* Launchers of the gated delta net: conv, delta, and the replay of an accepted tape alone. Items are heads of
 * sequences (delta: column blocks of heads); the owner of an item is the only one to write its state, tail and
 * tape, and a call's tape_in and tape_out differ, so items need no order. */
#include "backend/cpu/cpu_backend.h"
#include "base/alloc.h"
#include "base/fault.h"
#include <string.h>
#include <xmmintrin.h>

typedef struct thread_scratch {
    float *state; /* [VB_DELTA_SCRATCH], 64-byte aligned */
    float *replay_k, *replay_decay; /* [VB_DELTA_MAX_REPLAY][dk], [VB_DELTA_MAX_REPLAY] */
    float *decay, *beta; /* [max_rows] */
} thread_scratch;
enum { FIXED_SCRATCH = VB_DELTA_SCRATCH + VB_DELTA_MAX_REPLAY * VB_DELTA_MAX_DK + VB_DELTA_MAX_REPLAY };

struct vb__cpu_delta {
    float *memory;
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
    for (size_t t = 0; t < threads; t++) {
        float *p = be->delta->memory + t * each;
        float *k = p + VB_DELTA_SCRATCH, *g = k + VB_DELTA_MAX_REPLAY * VB_DELTA_MAX_DK, *gates = p + FIXED_SCRATCH;
        be->delta->thread[t] = (thread_scratch){p, k, g, gates, gates + rows};
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

enum { TILE = 16 }; /* rows of a conv item; at least taps-1 */

static int32_t tiles_of(int32_t rows) { return rows <= TILE ? 1 : (rows + TILE - 1) / TILE; }

typedef struct conv_call {
    const vb__kernels *k;
    const vb__conv_args *a;
    int64_t channels;
    float q_scale;
    bool commit; /* replay only: no rows, whatever the sequences say */
} conv_call;

/* One head's channels of one tile of rows. The first tile keeps the tail: it alone reads it. */
static void conv_tile(const conv_call *c, const vb__seq_rows *s, int32_t tile, int32_t h) {
    const vb__conv_args *a = c->a;
    const vb__delta_layout *l = &a->lay;
    int32_t v = h - 2 * l->nk, at = tile * TILE;
    int64_t ch = v < 0 ? (int64_t)h * l->dk : 2 * (int64_t)l->nk * l->dk + (int64_t)v * l->dv;
    vb__conv_head head = {
        .n = v < 0 ? l->dk : l->dv,
        .taps = l->taps,
        .replay = s->replay,
        .before = at,
        .tail = s->conv_tail + l->conv_off + ch,
        .tail_stride = c->channels,
        .tape_stride = l->tape_stride,
        .keep = tile == 0,
        .norm = v < 0,
        .scale = h < l->nk ? c->q_scale : 1.0f,
    };
    if (s->replay > 0) head.tape_in = s->tape_in + tape_conv(l) + ch;
    if (!c->commit) {
        head.rows = s->rows - at < TILE ? s->rows - at : TILE;
        head.certain = s->certain; /* of the sequence: the tail may come from later tiles */
        head.m = a->m + (s->row0 + at) * a->ms + ch;
        head.ms = a->ms;
        head.w = a->w + ch * l->taps;
        head.out = a->out + (s->row0 + at) * a->outs + ch;
        head.outs = a->outs;
    }
    c->k->conv(&head);
    for (int64_t t = s->certain > at ? s->certain - at : 0; t < head.rows; t++)
        copy_out(s->tape_out + (at + t - s->certain) * l->tape_stride + tape_conv(l) + ch, head.m + t * a->ms, head.n);
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

static void conv_run(vb__cpu_backend *be, const vb__conv_args *a, bool commit) {
    const vb__delta_layout *l = &a->lay;
    check_layout(l);
    conv_call c = {.k = &be->k, .a = a, .commit = commit};
    c.channels = 2 * (int64_t)l->nk * l->dk + (int64_t)l->nv * l->dv;
    c.q_scale = (float)(1.0 / __builtin_sqrt((double)l->dk));
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
    int32_t blocks; /* of columns in a head */
    bool commit;
    bool fault;
} delta_call;

/* Decay and beta of a head's rows into the thread's scratch. The owner of a head's first block also writes what
 * the tape holds once a head. */
static void make_gates(const delta_call *c, const vb__seq_rows *s, int32_t head, int32_t key, bool owner,
                       const thread_scratch *scratch) {
    const vb__delta_args *a = c->a;
    const vb__delta_layout *l = &a->lay;
    c->k->delta_gates(scratch->decay, scratch->beta, a->a + s->row0 * a->as_ + head, a->as_,
                      a->b + s->row0 * a->bs + head, a->bs, a->neg_exp_a[head], a->dt_bias[head], s->rows);
    if (!owner) return;
    bool first_of_key = l->modulo_heads ? head < l->nk : head % (l->nv / l->nk) == 0;
    for (int64_t t = s->certain; t < s->rows; t++) {
        float *tape = s->tape_out + (t - s->certain) * l->tape_stride;
        tape[l->tape_off + head] = scratch->decay[t];
        if (first_of_key)
            copy_out(tape + tape_k(l) + (int64_t)key * l->dk, a->qkv + (s->row0 + t) * a->qkvs + ((int64_t)l->nk + key) * l->dk,
                     l->dk);
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

static float *block_state(const delta_call *c, int32_t item) {
    const vb__delta_layout *l = &c->a->lay;
    int32_t head = item / c->blocks % l->nv;
    return c->a->seqs[item / c->blocks / l->nv].state + l->state_off + (int64_t)head * l->dk * l->dv +
           (int64_t)(item % c->blocks) * VB_DELTA_COLS;
}

static void delta_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const delta_call *c = ctx;
    const vb__delta_args *a = c->a;
    const vb__delta_layout *l = &a->lay;
    const thread_scratch *scratch = &c->scratch->thread[thread];
    for (int32_t i = begin; i < end; i++) {
        int32_t block = i % c->blocks, head = i / c->blocks % l->nv;
        const vb__seq_rows *s = &a->seqs[i / c->blocks / l->nv];
        int32_t key = l->modulo_heads ? head % l->nk : head / (l->nv / l->nk);
        int64_t col = (int64_t)block * VB_DELTA_COLS;
        bool first = i == begin || block == 0; /* of this head here: its gates and tape are not in scratch */
        vb__delta_block b = {
            .dk = l->dk,
            .cols = l->dv - col < VB_DELTA_COLS ? (int32_t)(l->dv - col) : VB_DELTA_COLS,
            .s = block_state(c, i),
            .ss = l->dv,
            .in_decay = scratch->replay_decay,
            .in_k = scratch->replay_k,
            .tape_stride = l->tape_stride,
            .ask_s = i + 1 < end ? block_state(c, i + 1) : NULL,
            .scratch = scratch->state,
        };
        int32_t replay = s->replay, done = 0;
        if (c->fault && replay > 0) replay--; /* planted: the last accepted row is forgotten */
        if (replay > 0) b.in_delta = s->tape_in + tape_delta(l) + (int64_t)head * l->dv + col;
        for (; replay - done > VB_DELTA_MAX_REPLAY; done += VB_DELTA_MAX_REPLAY) { /* more than a kernel takes */
            load_replay(l, s, done, VB_DELTA_MAX_REPLAY, head, key, scratch);
            b.replay = VB_DELTA_MAX_REPLAY;
            c->k->delta(&b);
            b.in_delta += b.tape_stride * VB_DELTA_MAX_REPLAY;
        }
        b.replay = replay - done;
        if (b.replay > 0 && (first || done > 0)) load_replay(l, s, done, b.replay, head, key, scratch);
        if (!c->commit && s->rows > 0) {
            if (first) make_gates(c, s, head, key, block == 0, scratch);
            const float *qkv = a->qkv + s->row0 * a->qkvs;
            b.rows = s->rows;
            b.certain = s->certain;
            b.q = qkv + (int64_t)key * l->dk;
            b.k = qkv + ((int64_t)l->nk + key) * l->dk;
            b.v = qkv + 2 * (int64_t)l->nk * l->dk + (int64_t)head * l->dv + col;
            b.xs = a->qkvs;
            b.decay = scratch->decay;
            b.beta = scratch->beta;
            b.o = a->o + s->row0 * a->os + (int64_t)head * l->dv + col;
            b.os = a->os;
            if (s->certain < s->rows) b.out_delta = s->tape_out + tape_delta(l) + (int64_t)head * l->dv + col;
        }
        if (b.rows > 0 || b.replay > 0) c->k->delta(&b);
    }
    _mm_sfence(); /* for stores past the cache: other threads read after the region */
}

static void delta_run(vb__cpu_backend *be, const vb__delta_args *a, bool commit) {
    const vb__delta_layout *l = &a->lay;
    check_layout(l);
    delta_call c = {.k = &be->k, .a = a, .scratch = be->delta, .commit = commit};
    c.blocks = (l->dv + VB_DELTA_COLS - 1) / VB_DELTA_COLS;
    c.fault = vb__fault_is(VB_FAULT_STATE_COMMIT);
    for (int32_t i = 0; i < a->n_seqs; i++)
        vb_check(commit || (a->seqs[i].rows <= be->o.max_rows && a->seqs[i].certain <= a->seqs[i].rows));
    /* Whole heads where there are enough of them, for gates are made once a head and piece; several, because
     * within a piece the next block's state is asked for in time. */
    int32_t heads = a->n_seqs * l->nv, some = heads / (4 * vb__pool_threads(be->pool));
    int32_t grain = some > 0 ? some * c.blocks : 1;
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
