/* The gated delta net: every level's kernel against the reference; and through the launchers, with conv: blocks
 * of every width and accept length against stepping row by row (outputs, state, tail), batches against single
 * sequences, thread counts, prefill chunks, the planted fault; accuracy against f64. */
#include "base/fault.h"
#include "rowwise_test.h"

typedef struct shape {
    int32_t dk, cols, rows, certain, replay;
    fill kind;
} shape;

static void one_block(shape c) {
    int64_t ss = c.cols + rnd_below(40), xs = 2 * c.dk + c.cols + rnd_below(5), os = c.cols + rnd_below(5),
            at = 16, ts = at + VB_DELTA_COLS + 16; /* every other tape is aligned, which is another way of storing */
    if (rnd() & 1) at = 1 + rnd_below(15), ts += rnd_below(5);
    float *s = new_filled(c.dk * ss, c.kind), *x = new_filled(c.rows * xs, c.kind), *in = new_filled(c.replay * ts, c.kind),
          *in_k = new_filled((c.replay + 1) * (c.dk + 1), c.kind);
    float *gates = new_filled(2 * c.rows, c.kind), *o = new_filled(c.rows * os, FILL_NORMAL),
          *tape = new_filled(c.rows * ts, FILL_NORMAL), *scratch = new_floats(VB_DELTA_SCRATCH);
    if (c.kind == FILL_NORMAL) /* decays and betas as they are in life, unit keys */
        for (int32_t i = 0; i < 2 * c.rows; i++) gates[i] = vb__sigmoidf(gates[i]);
    vb__delta_block b = {.dk = c.dk, .cols = c.cols, .rows = c.rows, .certain = c.certain, .replay = c.replay, .ss = ss, .q = x,
                         .k = x + c.dk, .v = x + 2 * c.dk, .xs = xs, .decay = gates, .beta = gates + c.rows, .os = os,
                         .in_decay = in_k, .in_k = in_k + c.replay, .in_delta = in + at, .tape_stride = ts, .scratch = scratch,
                         .ask_s = rnd() & 1 ? s : NULL};
    float *want_s = copy_of(s, c.dk * ss), *want_o = copy_of(o, c.rows * os), *want_tape = copy_of(tape, c.rows * ts);
    b.s = want_s;
    b.o = want_o;
    b.out_delta = want_tape + at;
    vb__delta_ref(&b);
    FOR_LEVELS(level) {
        vb__kernels k;
        vb__kernels_init(&k, level);
        float *got_s = copy_of(s, c.dk * ss), *got_o = copy_of(o, c.rows * os), *got_tape = copy_of(tape, c.rows * ts);
        fill_with(scratch, VB_DELTA_SCRATCH, FILL_BITS); /* what lies there before does not matter */
        b.s = got_s;
        b.o = got_o;
        b.out_delta = got_tape + at;
        k.delta(&b);
        expect_same("delta o", level, got_o, want_o, c.rows * os);
        expect_same("delta state", level, got_s, want_s, c.dk * ss);
        expect_same("delta tape", level, got_tape, want_tape, c.rows * ts);
        vb__free(got_s);
        vb__free(got_o);
        vb__free(got_tape);
    }
    float *all[] = {s, x, in, in_k, gates, o, tape, scratch, want_s, want_o, want_tape};
    for (int i = 0; i < 11; i++) vb__free(all[i]);
}

static void levels_return_the_same_bits(void **state) {
    (void)state;
    say_skipped("delta");
    static const int32_t dks[] = {1, 3, 24, 32, 67, 128};
    for (int32_t cols = 1; cols <= VB_DELTA_COLS; cols++)
        for (int d = 0; d < 6; d++)
            for (fill kind = 0; kind < FILLS; kind++) {
                int32_t rows = rnd_below(6);
                one_block((shape){dks[d], cols, rows, rnd_below(rows + 1), rnd() & 1 ? rnd_below(17) : 0, kind});
            }
    for (int32_t rows = 0; rows <= 16; rows++)
        for (int32_t certain = 0; certain <= rows; certain++)
            for (int32_t cols = 32; cols <= 64; cols += 32)
                one_block((shape){32, cols - rnd_below(9), rows, certain, rnd_below(17), FILL_NORMAL});
    one_block((shape){512, 32, 5, 1, 16, FILL_NORMAL});
    one_block((shape){512, 64, 5, 1, 16, FILL_NORMAL});
}

static void gates_are_the_same(void **state) {
    (void)state;
    for (int32_t rows = 0; rows <= 70; rows++)
        for (fill kind = 0; kind < FILLS; kind++) {
            float *a = new_filled(rows * 5, kind), *b = new_filled(rows * 3, kind), want[140], got[140];
            float neg_exp_a = -fabsf(rnd_fill(kind)), bias = rnd_fill(kind);
            vb__delta_gates_ref(want, want + rows, a, 5, b, 3, neg_exp_a, bias, rows);
            FOR_LEVELS(level) {
                vb__kernels k;
                vb__kernels_init(&k, level);
                k.delta_gates(got, got + rows, a, 5, b, 3, neg_exp_a, bias, rows);
                expect_same("gates", level, got, want, 2 * rows);
            }
            vb__free(a);
            vb__free(b);
        }
}

/* ---- through the launchers: a layer with its inputs, and sequences over it ---- */

enum { MAX_ROWS = 64, TAPE_ROWS = 40 };

typedef struct layer {
    vb__delta_layout lay;
    int64_t c, state, tail, tape; /* channels; floats of a sequence's state, tail and tape row, padding included */
    float *w, *neg_exp_a, *dt_bias;
    float *m, *a, *b; /* raw rows of the longest sequence, [LONG] */
} layer;

enum { LONG = 96 };

static layer new_layer(int32_t nk, int32_t nv, int32_t dk, int32_t dv, int32_t taps, bool modulo) {
    layer l = {.lay = {.nk = nk, .nv = nv, .dk = dk, .dv = dv, .taps = taps, .modulo_heads = modulo}};
    l.c = 2 * (int64_t)nk * dk + (int64_t)nv * dv;
    l.lay.state_off = 3; /* another layer's floats lie before and after */
    l.state = 3 + (int64_t)nv * dk * dv + 2;
    l.lay.conv_off = 5;
    l.tail = 5 + (taps - 1) * l.c + 1;
    bool aligned = nv % 16 == 0; /* then its parts of a tape are, too, as in real models */
    l.lay.tape_off = aligned ? 16 : 7;
    l.tape = l.lay.tape_stride = l.lay.tape_off + nv + (int64_t)nk * dk + (int64_t)nv * dv + l.c + (aligned ? 16 : 4);
    l.w = new_filled(l.c * taps, FILL_NORMAL);
    l.neg_exp_a = new_floats(nv);
    l.dt_bias = new_filled(nv, FILL_NORMAL);
    for (int i = 0; i < nv; i++) l.neg_exp_a[i] = -vb__expf(rnd_normal() - 2.0f);
    l.m = new_filled(LONG * l.c, FILL_NORMAL);
    l.a = new_filled((int64_t)LONG * nv, FILL_NORMAL);
    l.b = new_filled((int64_t)LONG * nv, FILL_NORMAL);
    return l;
}
static void free_layer(layer *l) {
    float *all[] = {l->w, l->neg_exp_a, l->dt_bias, l->m, l->a, l->b};
    for (int i = 0; i < 6; i++) vb__free(all[i]);
}

typedef struct sequence {
    float *state, *tail, *tape[2];
    int32_t side, replay; /* tape[side] is what the next call reads */
    int32_t length;       /* rows that are committed, tape included */
} sequence;

static sequence new_sequence(const layer *l) {
    return (sequence){.state = new_floats(l->state), .tail = new_floats(l->tail),
                      .tape = {new_floats(TAPE_ROWS * l->tape), new_floats(TAPE_ROWS * l->tape)}};
}
static void free_sequence(sequence *s) {
    vb__free(s->state);
    vb__free(s->tail);
    vb__free(s->tape[0]);
    vb__free(s->tape[1]);
}
static sequence clone_sequence(const layer *l, const sequence *s) {
    sequence n = *s;
    n.state = copy_of(s->state, l->state);
    n.tail = copy_of(s->tail, l->tail);
    for (int i = 0; i < 2; i++) n.tape[i] = copy_of(s->tape[i], TAPE_ROWS * l->tape);
    return n;
}

/* One call with rows[i] rows, certain[i] of them certain, of every sequence; row t of a sequence takes the layer's
 * raw row `length + t`. Outputs to o. */
static void call(vb__cpu_backend *be, const layer *l, sequence *seqs, int32_t n, const int32_t *rows, const int32_t *certain,
                 float *o) {
    vb__seq_rows sr[4];
    int32_t total = 0;
    int64_t nv = l->lay.nv, dv = l->lay.dv;
    float *m = new_floats(MAX_ROWS * l->c), *qkv = new_floats(MAX_ROWS * l->c), *a = new_floats(MAX_ROWS * nv),
          *b = new_floats(MAX_ROWS * nv);
    for (int32_t i = 0; i < n; i++) {
        sequence *s = &seqs[i];
        sr[i] = (vb__seq_rows){.row0 = total, .rows = rows[i], .certain = certain[i], .state = s->state, .conv_tail = s->tail,
                               .tape_in = s->tape[s->side], .replay = s->replay, .tape_out = s->tape[1 - s->side]};
        memcpy(m + total * l->c, l->m + s->length * l->c, (size_t)(rows[i] * l->c) * sizeof(float));
        memcpy(a + total * nv, l->a + s->length * nv, (size_t)(rows[i] * nv) * sizeof(float));
        memcpy(b + total * nv, l->b + s->length * nv, (size_t)(rows[i] * nv) * sizeof(float));
        total += rows[i];
    }
    vb__cpu_conv(&be->base, &(vb__conv_args){.lay = l->lay, .m = m, .ms = l->c, .w = l->w, .out = qkv, .outs = l->c, .seqs = sr,
                                             .n_seqs = n});
    vb__cpu_delta(&be->base, &(vb__delta_args){.lay = l->lay, .qkv = qkv, .qkvs = l->c, .a = a, .b = b, .as_ = nv, .bs = nv,
                                               .neg_exp_a = l->neg_exp_a, .dt_bias = l->dt_bias, .o = o, .os = nv * dv,
                                               .seqs = sr, .n_seqs = n});
    for (int32_t i = 0; i < n; i++) {
        seqs[i].length += certain[i];
        seqs[i].replay = 0;
        seqs[i].side = 1 - seqs[i].side;
    }
    vb__free(m);
    vb__free(qkv);
    vb__free(a);
    vb__free(b);
}

static void accept_rows(sequence *s, int32_t n) {
    s->replay = n;
    s->length += n;
}

static void commit(vb__cpu_backend *be, const layer *l, sequence *s) {
    vb__seq_rows sr = {.state = s->state, .conv_tail = s->tail, .tape_in = s->tape[s->side], .replay = s->replay};
    vb__cpu_delta_commit(&be->base, &l->lay, &sr, 1);
    s->replay = 0;
}

/* States after every row by single certain rows on the C level, and all outputs. */
typedef struct chain {
    sequence at[LONG + 1];
    float *o;
} chain;

static chain new_chain(const layer *l) {
    chain c = {.o = new_floats((int64_t)LONG * l->lay.nv * l->lay.dv)};
    vb__cpu_backend be;
    backend_open(&be, VB_CPU_C, 1, MAX_ROWS);
    c.at[0] = new_sequence(l);
    for (int32_t t = 0; t < LONG; t++) {
        c.at[t + 1] = clone_sequence(l, &c.at[t]);
        call(&be, l, &c.at[t + 1], 1, &(int32_t){1}, &(int32_t){1}, c.o + (int64_t)t * l->lay.nv * l->lay.dv);
    }
    backend_close(&be);
    return c;
}
static void free_chain(chain *c) {
    for (int32_t t = 0; t <= LONG; t++) free_sequence(&c->at[t]);
    vb__free(c->o);
}

static void expect_at(const layer *l, const chain *c, const sequence *s, vb__cpu_level level, const char *what) {
    expect_same(what, level, s->state, c->at[s->length].state, l->state);
    expect_same(what, level, s->tail, c->at[s->length].tail, l->tail);
}

static void blocks_equal_stepping(vb__cpu_level level, int32_t threads, const layer *l, const chain *c) {
    vb__cpu_backend be;
    backend_open(&be, level, threads, MAX_ROWS);
    int64_t width = (int64_t)l->lay.nv * l->lay.dv;
    float *o = new_floats(MAX_ROWS * width);
    for (int32_t w = 1; w <= 16; w++)
        for (int32_t accepted = 0; accepted < w; accepted++) {
            sequence s = clone_sequence(l, &c->at[9]);
            call(&be, l, &s, 1, &w, &(int32_t){1}, o); /* a verify block: one certain row */
            expect_same("block o", level, o, c->o + 9 * width, w * width);
            expect_at(l, c, &s, level, "state after the certain row"); /* nothing else was written */
            accept_rows(&s, accepted);
            sequence saved = clone_sequence(l, &s);
            commit(&be, l, &saved); /* replayed for a snapshot, */
            expect_at(l, c, &saved, level, "state after commit");
            int32_t next = 1 + rnd_below(16), from = s.length; /* or by the next block */
            call(&be, l, &s, 1, &next, &(int32_t){1}, o);
            expect_same("next block o", level, o, c->o + from * width, next * width);
            expect_at(l, c, &s, level, "state after the next block's certain row");
            free_sequence(&s);
            free_sequence(&saved);
        }
    /* no certain rows; more replayed rows than a kernel takes at once */
    sequence s = clone_sequence(l, &c->at[4]);
    call(&be, l, &s, 1, &(int32_t){TAPE_ROWS}, &(int32_t){0}, o);
    expect_same("40 drafted rows o", level, o, c->o + 4 * width, TAPE_ROWS * width);
    expect_at(l, c, &s, level, "state after no certain row");
    accept_rows(&s, TAPE_ROWS - 1);
    call(&be, l, &s, 1, &(int32_t){3}, &(int32_t){0}, o);
    expect_same("o after 39 replayed rows", level, o, c->o + 43 * width, 3 * width);
    expect_at(l, c, &s, level, "state after 39 replayed rows");
    free_sequence(&s);
    /* prefill chunks */
    for (int32_t chunk = 5; chunk <= MAX_ROWS; chunk += 17) {
        s = new_sequence(l);
        for (int32_t t = 0; t < LONG; t += chunk) {
            int32_t n = LONG - t < chunk ? LONG - t : chunk;
            call(&be, l, &s, 1, &n, &n, o);
            expect_same("prefill o", level, o, c->o + t * width, n * width);
            expect_at(l, c, &s, level, "state after a prefill chunk");
        }
        free_sequence(&s);
    }
    /* neighbours: decode, verify with a tape to replay, prefill, and one that only replays */
    sequence batch[4];
    for (int i = 0; i < 4; i++) batch[i] = clone_sequence(l, &c->at[7 * i]);
    call(&be, l, batch, 4, (int32_t[]){1, 8, 20, 6}, (int32_t[]){1, 1, 20, 1}, o);
    accept_rows(&batch[1], 5);
    accept_rows(&batch[3], 2);
    int32_t from[4], at = 0, rows[] = {1, 8, 12, 0}, certain[] = {1, 1, 12, 0};
    for (int i = 0; i < 4; i++) from[i] = batch[i].length;
    call(&be, l, batch, 4, rows, certain, o);
    for (int i = 0; i < 4; i++) {
        expect_same("batch o", level, o + at * width, c->o + from[i] * width, rows[i] * width);
        at += rows[i];
        expect_at(l, c, &batch[i], level, "state in a batch");
        free_sequence(&batch[i]);
    }
    /* the planted fault: an accepted row is forgotten */
    s = clone_sequence(l, &c->at[9]);
    call(&be, l, &s, 1, &(int32_t){4}, &(int32_t){1}, o);
    accept_rows(&s, 2);
    vb__fault_set(VB_FAULT_STATE_COMMIT);
    commit(&be, l, &s);
    vb__fault_set(VB_FAULT_NONE);
    assert_memory_not_equal(s.state, c->at[s.length].state, (size_t)l->state * sizeof(float));
    free_sequence(&s);
    vb__free(o);
    backend_close(&be);
}

static void blocks_equal_stepping_at_every_level(void **state) {
    (void)state;
    static const struct { int32_t nk, nv, dk, dv, taps; bool modulo; } shapes[] = {
        {2, 4, 32, 24, 4, false}, {2, 4, 32, 24, 4, true}, {3, 3, 24, 40, 2, false}, {1, 2, 128, 128, 3, false}, {2, 6, 16, 33, 4, true},
        {16, 16, 16, 32, 4, false},
    };
    for (int i = 0; i < 6; i++) {
        layer l = new_layer(shapes[i].nk, shapes[i].nv, shapes[i].dk, shapes[i].dv, shapes[i].taps, shapes[i].modulo);
        chain c = new_chain(&l);
        for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++)
            blocks_equal_stepping(level, 1 + (i + (int)level) % 3, &l, &c);
        free_chain(&c);
        free_layer(&l);
    }
}

/* A whole layer in one region against its three launchers on the C level: output, state, tail, tape. */
static void one_layer_call(const layer *l, const int32_t *rows, const int32_t *certain, const int32_t *replay, int32_t n,
                           vb__cpu_level level, int32_t threads) {
    enum { NET_ROWS_MAX = 160 };
    int64_t nv = l->lay.nv, dv = l->lay.dv, width = nv * dv;
    sequence want[3], got[3];
    vb__seq_rows sw[3], sg[3];
    int32_t total = 0;
    for (int32_t i = 0; i < n; i++) {
        sequence s = new_sequence(l);
        fill_with(s.state, l->state, FILL_NORMAL);
        fill_with(s.tail, l->tail, FILL_NORMAL);
        for (int t = 0; t < 2; t++) fill_with(s.tape[t], TAPE_ROWS * l->tape, FILL_NORMAL);
        want[i] = s;
        got[i] = clone_sequence(l, &s);
        sequence *both[] = {&want[i], &got[i]};
        for (int b = 0; b < 2; b++)
            (b ? sg : sw)[i] = (vb__seq_rows){.row0 = total, .rows = rows[i], .certain = certain[i], .state = both[b]->state,
                                              .conv_tail = both[b]->tail, .tape_in = both[b]->tape[0], .replay = replay[i],
                                              .tape_out = both[b]->tape[1]};
        total += rows[i];
    }
    assert_true(total <= NET_ROWS_MAX);
    float *m = new_filled(NET_ROWS_MAX * l->c, FILL_NORMAL), *qkv = new_floats(NET_ROWS_MAX * l->c);
    float *ab = new_filled(2 * NET_ROWS_MAX * nv, FILL_NORMAL), *z = new_filled(NET_ROWS_MAX * width, FILL_NORMAL);
    float *norm = new_filled(dv, FILL_NORMAL), *o[2] = {new_floats(NET_ROWS_MAX * width), new_floats(NET_ROWS_MAX * width)};
    for (int b = 0; b < 2; b++) {
        vb__cpu_backend be;
        backend_open(&be, b ? level : VB_CPU_C, b ? threads : 1, NET_ROWS_MAX);
        const vb__delta_net_args a = {
            .conv = {.lay = l->lay, .m = m, .ms = l->c, .w = l->w, .out = qkv, .outs = l->c, .seqs = b ? sg : sw, .n_seqs = n},
            .delta = {.lay = l->lay, .qkv = qkv, .qkvs = l->c, .a = ab, .b = ab + nv, .as_ = 2 * nv, .bs = 2 * nv,
                      .neg_exp_a = l->neg_exp_a, .dt_bias = l->dt_bias, .o = o[b], .os = width, .seqs = b ? sg : sw, .n_seqs = n},
            .z = z, .zs = width, .norm = norm, .eps = 1e-6f};
        if (b) {
            vb__cpu_delta_net(&be.base, &a);
        } else {
            vb__cpu_conv(&be.base, &a.conv);
            vb__cpu_delta(&be.base, &a.delta);
            vb__cpu_rmsnorm_gated(&be.base, o[b], dv, o[b], dv, z, dv, norm, (int32_t)(total * nv), (int32_t)dv, a.eps);
        }
        backend_close(&be);
    }
    expect_same("layer o", level, o[1], o[0], total * width);
    for (int32_t i = 0; i < n; i++) {
        expect_same("layer state", level, got[i].state, want[i].state, l->state);
        expect_same("layer tail", level, got[i].tail, want[i].tail, l->tail);
        for (int t = 0; t < 2; t++) expect_same("layer tape", level, got[i].tape[t], want[i].tape[t], TAPE_ROWS * l->tape);
        free_sequence(&got[i]);
        free_sequence(&want[i]);
    }
    float *all[] = {m, qkv, ab, z, norm, o[0], o[1]};
    for (int i = 0; i < 7; i++) vb__free(all[i]);
}

static void a_layer_equals_its_launchers(void **state) {
    (void)state;
    static const struct { int32_t nk, nv, dk, dv, taps; bool modulo; } shapes[] = {
        {2, 4, 32, 24, 4, false}, {5, 10, 16, 40, 4, true}, {6, 6, 24, 40, 2, false}, {4, 4, 128, 128, 4, false},
        {2, 6, 16, 33, 8, true},  {16, 16, 16, 32, 3, false}, {1, 20, 8, 130, 4, false},
    };
    static const struct { int32_t n, rows[3], certain[3], replay[3]; } calls[] = {
        {1, {1}, {1}, {0}},   {1, {1}, {1}, {3}},    {1, {16}, {1}, {15}},    {1, {17}, {1}, {0}},  {1, {16}, {0}, {2}},
        {1, {49}, {49}, {4}}, {1, {48}, {48}, {0}},  {1, {100}, {84}, {1}},   {1, {97}, {96}, {0}}, {1, {49}, {33}, {0}},
        {1, {30}, {2}, {0}},  {1, {40}, {0}, {0}},   {3, {1, 16, 97}, {1, 1, 97}, {2, 0, 0}},       {3, {2, 0, 5}, {1, 0, 5}, {0, 6, 40}},
    };
    for (int i = 0; i < 7; i++) {
        layer l = new_layer(shapes[i].nk, shapes[i].nv, shapes[i].dk, shapes[i].dv, shapes[i].taps, shapes[i].modulo);
        for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++)
            for (int c = 0; c < 14; c++)
                one_layer_call(&l, calls[c].rows, calls[c].certain, calls[c].replay, calls[c].n, level, 1 + (i + c) % 4);
        free_layer(&l);
    }
}

/* Against f64, with head mapping and formulas written out a second time. */
static void accuracy(void **state) {
    (void)state;
    for (int modulo = 0; modulo < 2; modulo++) {
        layer l = new_layer(2, 4, 32, 16, 4, modulo);
        chain c = new_chain(&l);
        int32_t nk = 2, nv = 4, dk = 32, dv = 16;
        double worst = 0, size = 0;
        for (int32_t n = 0; n < nv; n++) {
            int32_t key = modulo ? n % nk : n / (nv / nk);
            double S[32][16] = {{0}};
            for (int32_t t = 0; t < LONG; t++) {
                double q[32], k[32], v[16], sq = 0, sk = 0;
                for (int part = 0; part < 3; part++)
                    for (int32_t i = 0; i < (part < 2 ? dk : dv); i++) {
                        int64_t ch = part < 2 ? (part * nk + key) * dk + i : 2 * nk * dk + n * dv + i;
                        double y = 0;
                        for (int32_t j = 0; j < 4; j++)
                            if (t - 3 + j >= 0) y += (double)l.w[ch * 4 + j] * l.m[(t - 3 + j) * l.c + ch];
                        y = y / (1 + exp(-y));
                        if (part == 0) q[i] = y, sq += y * y;
                        else if (part == 1) k[i] = y, sk += y * y;
                        else v[i] = y;
                    }
                for (int32_t i = 0; i < dk; i++) {
                    q[i] *= 1 / sqrt(sq + 1e-6) / sqrt(dk);
                    k[i] *= 1 / sqrt(sk + 1e-6);
                }
                double g = exp((double)l.neg_exp_a[n] * log1p(exp((double)l.a[t * nv + n] + l.dt_bias[n])));
                double beta = 1 / (1 + exp(-(double)l.b[t * nv + n]));
                for (int32_t j = 0; j < dv; j++) {
                    double u = 0, o = 0;
                    for (int32_t i = 0; i < dk; i++) u += (S[i][j] *= g) * k[i];
                    double delta = beta * (v[j] - u);
                    for (int32_t i = 0; i < dk; i++) o += (S[i][j] += k[i] * delta) * q[i];
                    worst = fmax(worst, fabs(o - (double)c.o[(int64_t)t * nv * dv + n * dv + j]));
                    size = fmax(size, fabs(o));
                }
            }
        }
        printf("delta: largest error of o against f64 %.2g, largest |o| %.2g\n", worst, size);
        assert_true(worst < 2e-6 * size);
        free_chain(&c);
        free_layer(&l);
    }
}

/* Conv, delta and norm of 18 layers in one region each. */
static void bench_layer(vb__delta_layout lay, float *states, float *tail, float *const *tapes, float *m, float *ab,
                        float *head, float *o, char *evict, size_t evict_bytes) {
    int64_t nv = lay.nv, width = nv * lay.dv, c = 2 * (int64_t)lay.nk * lay.dk + width, tape = lay.tape_stride / 18;
    float *w = new_filled(18 * 4 * c, FILL_NORMAL), *z = new_filled(512 * width, FILL_NORMAL), *qkv = new_floats(512 * c);
    static const struct { int32_t rows, certain, replay; } calls[] = {{1, 1, 0}, {16, 1, 0}, {16, 1, 5}, {512, 512, 0}};
    for (vb__cpu_level level = VB_CPU_AVX2; level <= g_best && level <= VB_CPU_AVX512; level++)
        for (int32_t threads = 1; threads <= 2; threads++) {
            vb__cpu_backend be;
            backend_open(&be, level, threads, 512);
            g_bench_threads = threads;
            printf("layer %-7s %d threads, 18 layers:", vb__cpu_level_name(level), threads);
            for (int i = 0; i < 4; i++) {
                double best = 1;
                for (int r = 0; r < (calls[i].rows == 512 ? 5 : 25); r++) {
                    memset(evict, r, evict_bytes);
                    double start = bench_now();
                    for (int n = 0; n < 18; n++) {
                        lay.tape_off = n * tape;
                        vb__seq_rows s = {.rows = calls[i].rows, .certain = calls[i].certain, .replay = calls[i].replay,
                                          .state = states + n * nv * lay.dk * lay.dv, .conv_tail = tail, .tape_in = tapes[0],
                                          .tape_out = tapes[1]};
                        const vb__delta_net_args a = {
                            .conv = {.lay = lay, .m = m, .ms = c, .w = w + n * 4 * c, .out = qkv, .outs = c, .seqs = &s, .n_seqs = 1},
                            .delta = {.lay = lay, .qkv = qkv, .qkvs = c, .a = ab, .b = ab, .as_ = nv, .bs = nv,
                                      .neg_exp_a = head, .dt_bias = head, .o = o, .os = width, .seqs = &s, .n_seqs = 1},
                            .z = z, .zs = width, .norm = head, .eps = 1e-6f};
                        vb__cpu_delta_net(&be.base, &a);
                    }
                    double t = bench_now() - start;
                    if (t < best) best = t;
                }
                printf(" %d rows replay %d %.2f ms;", calls[i].rows, calls[i].replay, best * 1e3);
            }
            printf(" best of 25\n");
            backend_close(&be);
        }
    vb__free(w);
    vb__free(z);
    vb__free(qkv);
}

/* The 0.8B geometry: 18 layers of 16 heads of 128 x 128; every layer's state is read from memory. */
static void bench(void) {
    enum { LAYERS = 18, NH = 16, D = 128, CH = 3 * NH * D, ROWS = 512 };
    vb__delta_layout lay = {.nk = NH, .nv = NH, .dk = D, .dv = D, .taps = 4};
    int64_t per_layer = (int64_t)NH * D * D, tape = NH + 2 * NH * D + CH;
    lay.tape_stride = LAYERS * tape;
    float *states = new_filled(LAYERS * per_layer, FILL_NORMAL), *tail = new_floats(3 * CH), *qkv = new_filled(ROWS * CH, FILL_NORMAL);
    float *ab = new_filled(ROWS * NH, FILL_NORMAL), *o = new_floats(ROWS * NH * D), *head = new_filled(D, FILL_NORMAL);
    float *tapes[2] = {new_filled(16 * lay.tape_stride, FILL_DENORMAL), new_floats(16 * lay.tape_stride)};
    size_t evict_bytes = 64 << 20;
    char *evict = vb__alloc_aligned(VB_TAG_MISC, evict_bytes);
    for (int64_t i = 0; i < ROWS * CH; i++) qkv[i] *= 0.088f;
    for (int i = 0; i < D; i++) head[i] = -0.1f;
    static const struct { int32_t rows, certain, replay; } calls[] = {{1, 1, 0}, {16, 1, 0}, {16, 1, 5}, {16, 1, 15}, {512, 512, 0}};
    for (vb__cpu_level level = VB_CPU_C; level <= g_best && level <= VB_CPU_AVX512; level++)
        for (int32_t threads = 1; threads <= 2; threads++) {
            vb__cpu_backend be;
            backend_open(&be, level, threads, ROWS);
            g_bench_threads = threads;
            printf("delta %-7s %d threads, 18 layers:", vb__cpu_level_name(level), threads);
            for (int i = 0; i < 5; i++) {
                if (calls[i].rows == 512 && level == VB_CPU_C) continue;
                double times[9], t = 0;
                int runs = level == VB_CPU_C || calls[i].rows == 512 ? 3 : 9;
                for (int r = 0; r < runs; r++) {
                    memset(evict, r, evict_bytes);
                    double start = bench_now();
                    for (int n = 0; n < LAYERS; n++) {
                        lay.tape_off = n * tape;
                        vb__seq_rows s = {.rows = calls[i].rows, .certain = calls[i].certain, .replay = calls[i].replay,
                                          .state = states + n * per_layer, .conv_tail = tail, .tape_in = tapes[0],
                                          .tape_out = tapes[1]};
                        vb__cpu_delta(&be.base, &(vb__delta_args){.lay = lay, .qkv = qkv, .qkvs = CH, .a = ab, .b = ab, .as_ = NH,
                                                                  .bs = NH, .neg_exp_a = head, .dt_bias = head, .o = o,
                                                                  .os = NH * D, .seqs = &s, .n_seqs = 1});
                    }
                    times[r] = bench_now() - start;
                    for (int j = r; j > 0 && times[j] < times[j - 1]; j--) {
                        double swap = times[j];
                        times[j] = times[j - 1];
                        times[j - 1] = swap;
                    }
                }
                t = times[runs / 2];
                printf(" %d rows replay %d %.2f ms", calls[i].rows, calls[i].replay, t * 1e3);
                if (calls[i].rows == 1) printf(" (%.1f GB/s)", 8e-9 * (double)(LAYERS * per_layer) / t);
                printf(";");
            }
            printf("\n");
            backend_close(&be);
        }
    bench_layer(lay, states, tail, tapes, qkv, ab, head, o, evict, evict_bytes);
    float *all[] = {states, tail, qkv, ab, o, head, tapes[0], tapes[1]};
    for (int i = 0; i < 8; i++) vb__free(all[i]);
    vb__free(evict);
}

int main(int argc, char **argv) {
    test_begin();
    if (is_bench(argc, argv)) {
        bench();
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(levels_return_the_same_bits),
        cmocka_unit_test(gates_are_the_same),
        cmocka_unit_test(blocks_equal_stepping_at_every_level),
        cmocka_unit_test(a_layer_equals_its_launchers),
        cmocka_unit_test(accuracy),
    };
    return cmocka_run_group_tests_name("delta", tests, NULL, NULL);
}
