/* Launchers of the gated delta net: conv, delta, and the replay of an accepted tape alone. Items are heads of
 * sequences (delta: column blocks of heads); the owner of an item is the only one to write its state, tail and
 * tape, and a call's tape_in and tape_out differ, so items need no order. */
#include "backend/cpu/cpu_backend.h"
#include "base/alloc.h"
#include "base/fault.h"
#include <string.h>

typedef struct thread_scratch {
    float *state; /* [VB_DELTA_SCRATCH], 64-byte aligned */
    float *decay, *beta; /* [max_rows] */
} thread_scratch;

struct vb__cpu_delta {
    float *memory;
    thread_scratch thread[]; /* of every pool thread */
};

vb_err vb__cpu_delta_init(vb__cpu_backend *be, vb_error *err) {
    size_t threads = (size_t)vb__pool_threads(be->pool);
    size_t rows = ((size_t)be->o.max_rows + 15) / 16 * 16;
    size_t each, floats, bytes;
    bool fits = vb__mul_size(rows, 2, &each) && vb__add_size(each, VB_DELTA_SCRATCH, &each) &&
                vb__mul_size(each, threads, &floats) && vb__mul_size(floats, sizeof(float), &bytes);
    be->delta = vb__calloc(VB_TAG_SCRATCH, 1, sizeof *be->delta + threads * sizeof be->delta->thread[0]);
    if (fits && be->delta != NULL) be->delta->memory = vb__alloc_aligned(VB_TAG_SCRATCH, bytes);
    if (be->delta == NULL || be->delta->memory == NULL) {
        vb__cpu_delta_fini(be);
        return vb__fail(err, VB_E_MEMORY, "CPU backend: out of memory for delta-net scratch");
    }
    for (size_t t = 0; t < threads; t++) {
        float *p = be->delta->memory + t * each;
        be->delta->thread[t] = (thread_scratch){p, p + VB_DELTA_SCRATCH, p + VB_DELTA_SCRATCH + rows};
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

typedef struct conv_call {
    const vb__kernels *k;
    const vb__conv_args *a;
    int64_t channels;
    float q_scale;
    bool commit; /* replay only: no rows, whatever the sequences say */
} conv_call;

static void conv_items(void *ctx, int32_t begin, int32_t end, int32_t thread) {
    const conv_call *c = ctx;
    const vb__conv_args *a = c->a;
    const vb__delta_layout *l = &a->lay;
    int32_t heads = 2 * l->nk + l->nv;
    (void)thread;
    for (int32_t i = begin; i < end; i++) {
        const vb__seq_rows *s = &a->seqs[i / heads];
        if (c->commit && s->replay == 0) continue;
        int32_t h = i % heads, v = h - 2 * l->nk;
        int64_t ch = v < 0 ? (int64_t)h * l->dk : 2 * (int64_t)l->nk * l->dk + (int64_t)v * l->dv;
        vb__conv_head head = {
            .n = v < 0 ? l->dk : l->dv,
            .taps = l->taps,
            .rows = c->commit ? 0 : s->rows,
            .certain = c->commit ? 0 : s->certain,
            .replay = s->replay,
            .tail = s->conv_tail + l->conv_off + ch,
            .tail_stride = c->channels,
            .tape_stride = l->tape_stride,
            .norm = v < 0,
            .scale = h < l->nk ? c->q_scale : 1.0f,
        };
        if (s->replay > 0) head.tape_in = s->tape_in + tape_conv(l) + ch;
        if (head.certain < head.rows) head.tape_out = s->tape_out + tape_conv(l) + ch;
        if (!c->commit) {
            head.m = a->m + s->row0 * a->ms + ch;
            head.ms = a->ms;
            head.w = a->w + ch * l->taps;
            head.out = a->out + s->row0 * a->outs + ch;
            head.outs = a->outs;
        }
        c->k->conv(&head);
    }
}

static void conv_run(vb__cpu_backend *be, const vb__conv_args *a, bool commit) {
    const vb__delta_layout *l = &a->lay;
    check_layout(l);
    conv_call c = {.k = &be->k, .a = a, .commit = commit};
    c.channels = 2 * (int64_t)l->nk * l->dk + (int64_t)l->nv * l->dv;
    c.q_scale = (float)(1.0 / __builtin_sqrt((double)l->dk));
    int64_t rows = 0;
    for (int32_t i = 0; i < a->n_seqs; i++) rows += commit ? 1 : a->seqs[i].rows;
    /* About 4096 exponentials a piece. */
    int64_t per_head = l->dk * (rows / (a->n_seqs > 0 ? a->n_seqs : 1) + 1);
    int32_t grain = per_head >= 4096 ? 1 : (int32_t)(4096 / per_head);
    vb__parallel_for(be->pool, a->n_seqs * (2 * l->nk + l->nv), grain, conv_items, &c);
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
            memcpy(tape + tape_k(l) + (int64_t)key * l->dk,
                   a->qkv + (s->row0 + t) * a->qkvs + ((int64_t)l->nk + key) * l->dk, (size_t)l->dk * sizeof(float));
    }
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
        vb__delta_block b = {
            .dk = l->dk,
            .cols = l->dv - col < VB_DELTA_COLS ? (int32_t)(l->dv - col) : VB_DELTA_COLS,
            .replay = s->replay,
            .s = s->state + l->state_off + (int64_t)head * l->dk * l->dv + col,
            .ss = l->dv,
            .tape_stride = l->tape_stride,
            .scratch = scratch->state,
        };
        if (c->fault && b.replay > 0) b.replay--; /* planted: the last accepted row is forgotten */
        if (b.replay > 0) {
            b.in_decay = s->tape_in + l->tape_off + head;
            b.in_k = s->tape_in + tape_k(l) + (int64_t)key * l->dk;
            b.in_delta = s->tape_in + tape_delta(l) + (int64_t)head * l->dv + col;
        }
        for (int32_t left = b.replay; left > VB_DELTA_MAX_REPLAY; left -= VB_DELTA_MAX_REPLAY) {
            b.replay = VB_DELTA_MAX_REPLAY;
            c->k->delta(&b);
            b.replay = left - VB_DELTA_MAX_REPLAY;
            b.in_decay += b.tape_stride * VB_DELTA_MAX_REPLAY;
            b.in_k += b.tape_stride * VB_DELTA_MAX_REPLAY;
            b.in_delta += b.tape_stride * VB_DELTA_MAX_REPLAY;
        }
        if (!c->commit && s->rows > 0) {
            if (i == begin || block == 0) make_gates(c, s, head, key, block == 0, scratch);
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
}

static void delta_run(vb__cpu_backend *be, const vb__delta_args *a, bool commit) {
    const vb__delta_layout *l = &a->lay;
    check_layout(l);
    delta_call c = {.k = &be->k, .a = a, .scratch = be->delta, .commit = commit};
    c.blocks = (l->dv + VB_DELTA_COLS - 1) / VB_DELTA_COLS;
    c.fault = vb__fault_is(VB_FAULT_STATE_COMMIT);
    for (int32_t i = 0; i < a->n_seqs; i++)
        vb_check(commit || (a->seqs[i].rows <= be->o.max_rows && a->seqs[i].certain <= a->seqs[i].rows));
    /* Whole heads where there are enough of them: gates are then made once, and the state is read in order. */
    int32_t heads = a->n_seqs * l->nv;
    int32_t grain = heads >= 4 * vb__pool_threads(be->pool) ? c.blocks : 1;
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
