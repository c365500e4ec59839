/* Sampling. The definition is docs/numerics.md, "Sampling"; see sampler.h. Compiled with -mfma.
 *
 * Selection without a sort: both top-k and top-p ask for the shortest prefix of the sorted order whose weight
 * reaches a target (weight 1 and target k; weight w_i and target top_p * S). A radix descent over the keys
 * finds the key at which that happens, and what lies above it needs no order. For top-k the row is thinned
 * out first: the k-th best of the maxima of blocks of 64 is a bound that k tokens reach. */
#include "engine/sampler.h"
#include "base/alloc.h"
#include "base/fp_env.h"
#include "base/limits.h"
#include "base/philox.h"
#include "base/vmath.h"
#include <string.h>

enum { BLOCK = 64, CHUNK = 16 * BLOCK };

struct vb__sampler {
    int32_t vocab;
    float *z;         /* [vocab] the row as the steps so far made it; -inf: masked */
    float *block_max; /* [(vocab + 63) / 64] */
    uint32_t *key;    /* [vocab] of list entry i: order of z as an unsigned integer */
    uint32_t *sub;    /* [vocab] list entries that a radix descent still looks at */
    float *e;         /* [vocab] exp(z - max) of list entry i */
    uint64_t *weight; /* [vocab] of list entry i */
    int32_t *id;      /* [vocab] the list: survivors, ascending */
    uint64_t hist[2][2048];
};

vb_err vb__sampler_create(int32_t vocab, vb__sampler **out, vb_error *err) {
    if (vocab < 1 || vocab > VB_LIMIT_VOCAB)
        return vb__fail(err, VB_E_RANGE, "sampler: vocabulary of %d, expected 1 to %d", vocab,
                        (int)VB_LIMIT_VOCAB);
    vb__sampler *s = vb__calloc(VB_TAG_ENGINE, 1, sizeof *s);
    if (s) {
        size_t n = (size_t)vocab;
        s->vocab = vocab;
        s->z = vb__alloc_aligned(VB_TAG_ENGINE, n * sizeof *s->z);
        s->block_max = vb__alloc_aligned(VB_TAG_ENGINE, (n + BLOCK - 1) / BLOCK * sizeof *s->block_max);
        s->key = vb__alloc_aligned(VB_TAG_ENGINE, n * sizeof *s->key);
        s->sub = vb__alloc_aligned(VB_TAG_ENGINE, n * sizeof *s->sub);
        s->e = vb__alloc_aligned(VB_TAG_ENGINE, n * sizeof *s->e);
        s->weight = vb__alloc_aligned(VB_TAG_ENGINE, n * sizeof *s->weight);
        s->id = vb__alloc_aligned(VB_TAG_ENGINE, n * sizeof *s->id);
    }
    if (!s || !s->z || !s->block_max || !s->key || !s->sub || !s->e || !s->weight || !s->id) {
        vb__sampler_destroy(s);
        return vb__fail(err, VB_E_MEMORY, "sampler: out of memory for a vocabulary of %d", vocab);
    }
    *out = s;
    return VB_OK;
}

void vb__sampler_destroy(vb__sampler *s) {
    if (!s) return;
    vb__free(s->z);
    vb__free(s->block_max);
    vb__free(s->key);
    vb__free(s->sub);
    vb__free(s->e);
    vb__free(s->weight);
    vb__free(s->id);
    vb__free(s);
}

bool vb__sampling_needs_counts(const vb_sampling *o) {
    return o->repeat_penalty != 1.0f || o->presence_penalty != 0.0f || o->frequency_penalty != 0.0f;
}

/* ---- Passes over the row ------------------------------------------------------------------------------- */

/* z = x with masked ids at -inf; true when all of x is finite. The finite check looks at every raw logit,
 * masked or not. */
static bool load(float *restrict z, const float *restrict x, const uint32_t *tokens, const uint32_t *grammar,
                 int32_t n) {
    uint32_t top = 0; /* bit 31 is set where an exponent is all ones */
    for (int32_t i = 0; i < n; i++) {
        top |= (vb__bits32(x[i]) & 0x7f800000u) + 0x00800000u;
        z[i] = x[i];
    }
    if (!tokens && !grammar) return !(top >> 31);
    for (int32_t i = 0; i < n; i += 32) {
        uint32_t allowed = (tokens ? tokens[i / 32] : UINT32_MAX) & (grammar ? grammar[i / 32] : UINT32_MAX);
        if (allowed == UINT32_MAX) continue;
        int32_t m = n - i < 32 ? n - i : 32;
        for (int32_t j = 0; j < m; j++)
            if (!(allowed >> j & 1)) z[i + j] = -__builtin_inff();
    }
    return !(top >> 31);
}

static void divide(float *z, float t, int32_t n) {
    for (int32_t i = 0; i < n; i++) z[i] = z[i] / t;
}

/* Largest of each block of 64; n may end within a block. A maximum has no order (and here no NaN). */
static void block_maxima(float *restrict max, const float *restrict z, int32_t n) {
    for (int32_t b = 0; b * BLOCK < n; b++) {
        const float *x = z + (int64_t)b * BLOCK;
        float m[16];
        int32_t count = n - b * BLOCK < BLOCK ? n - b * BLOCK : BLOCK;
        for (int32_t j = 0; j < 16; j++) m[j] = -__builtin_inff();
        if (count == BLOCK) {
            for (int32_t i = 0; i < BLOCK; i += 16)
                for (int32_t j = 0; j < 16; j++) m[j] = x[i + j] > m[j] ? x[i + j] : m[j];
        } else {
            for (int32_t i = 0; i < count; i++) m[0] = x[i] > m[0] ? x[i] : m[0];
        }
        for (int32_t h = 8; h >= 1; h /= 2)
            for (int32_t j = 0; j < h; j++) m[j] = m[j + h] > m[j] ? m[j + h] : m[j];
        max[b] = m[0];
    }
}

/* Bias and penalties touch single tokens. */
static void edit(vb__sampler *s, const vb__sample_row *r) {
    const vb_sampling *o = r->options;
    for (int32_t i = 0; i < r->n_bias; i++) {
        vb_assert(r->bias[i].id >= 0 && r->bias[i].id < s->vocab);
        s->z[r->bias[i].id] = s->z[r->bias[i].id] + r->bias[i].bias;
    }
    if (!r->counts || !vb__sampling_needs_counts(o)) return;
    for (uint32_t i = 0; i < r->counts->n; i++) {
        const vb__token_count *c = &r->counts->entries[i];
        if (c->id >= s->vocab) continue;
        float z = s->z[c->id];
        z = z > 0.0f ? z / o->repeat_penalty : z * o->repeat_penalty;
        if (c->answer > 0) {
            z = z - o->presence_penalty;
            z = z - (float)c->answer * o->frequency_penalty;
        }
        s->z[c->id] = z;
    }
}

static float maximum(const float *x, int32_t n) {
    float m = -__builtin_inff();
    for (int32_t i = 0; i < n; i++) m = x[i] > m ? x[i] : m;
    return m;
}

/* The first id whose z is the row's largest value. */
static int32_t first_of(const vb__sampler *s, const float *z, float max) {
    int32_t b = 0;
    while (s->block_max[b] != max) b++;
    int32_t i = b * BLOCK;
    while (z[i] != max) i++;
    return i;
}

/* The largest value beside that of `best`, which is its block's largest. */
static float second_to(const vb__sampler *s, const float *z, int32_t best) {
    const int32_t blocks = (s->vocab + BLOCK - 1) / BLOCK, own = best / BLOCK, at = own * BLOCK;
    const int32_t end = at + BLOCK < s->vocab ? at + BLOCK : s->vocab;
    float before = maximum(s->block_max, own), behind = maximum(s->block_max + own + 1, blocks - own - 1);
    float beside = maximum(z + at, best - at), after = maximum(z + best + 1, end - best - 1);
    before = before > behind ? before : behind;
    beside = beside > after ? beside : after;
    return before > beside ? before : beside;
}

/* exp(x) for x <= 0 in the sequence of vb__expf, without branches so that loops over it become vector code.
 */
static inline float exp_negative(float x) {
    float t = __builtin_fmaf(x, VB_LOG2E, VB_EXP_MAGIC);
    float n = t - VB_EXP_MAGIC;
    float r = __builtin_fmaf(-n, VB_LN2_HI, x);
    r = __builtin_fmaf(-n, VB_LN2_LO, r);
    float q = __builtin_fmaf(VB_EXP_C6, r, VB_EXP_C5);
    q = __builtin_fmaf(q, r, VB_EXP_C4);
    q = __builtin_fmaf(q, r, VB_EXP_C3);
    q = __builtin_fmaf(q, r, VB_EXP_C2);
    float p = __builtin_fmaf(r * r, q, r) + 1.0f;
    uint32_t y = vb__bits32(p) + (vb__bits32(t) << 23);
    return vb__float32(y & -(uint32_t)(x >= VB_EXP_LO));
}

static void exp_below(float *restrict e, const float *restrict z, float max, int32_t n) {
    for (int32_t i = 0; i < n; i++) e[i] = exp_negative(z[i] - max);
}

/* rne(e * 2^40) for 0 <= e <= 1: the product is exact, adding 1.5 * 2^52 rounds it into the low bits. */
static inline uint64_t weight_of(float e) {
    union {
        double f;
        uint64_t u;
    } v = {.f = (double)e * 0x1p40 + 0x1.8p52};
    return v.u - 0x4338000000000000ull;
}

/* Unsigned integers in the order of z; -0 and +0 are one value. */
static inline uint32_t key_of(float z) {
    uint32_t u = vb__bits32(z + 0.0f);
    return u ^ ((uint32_t)((int32_t)u >> 31) | 0x80000000u);
}

static float float_of_key(uint32_t k) {
    return vb__float32(k >> 31 ? k ^ 0x80000000u : ~k);
}

/* ---- Selection ----------------------------------------------------------------------------------------- */

typedef struct cut {
    uint32_t key;  /* entries with a larger key are in */
    uint64_t ties; /* and so many of those with this key, lowest ids first */
} cut;

/* Where the weight of entries, best first, reaches target (1 <= target <= sum of weights). weight NULL: 1
 * each. Entries with equal keys have equal weights. O(n): three passes, each over what the one before left.
 */
static cut find_cut(vb__sampler *s, const uint32_t *key, const uint64_t *weight, int32_t n, uint64_t target) {
    static const struct { int shift, bits; } digits[] = {{21, 11}, {10, 11}, {0, 10}};
    uint32_t prefix = 0;
    int32_t left = n;
    for (int k = 0; k < 3; k++) {
        int shift = digits[k].shift;
        uint32_t last = (1u << digits[k].bits) - 1;
        /* two histograms, because neighbours often meet in one bucket and would wait for each other */
        memset(s->hist, 0, sizeof s->hist);
        for (int32_t i = 0; i < left; i++) {
            uint32_t p = k == 0 ? (uint32_t)i : s->sub[i];
            s->hist[i & 1][key[p] >> shift & last] += weight ? weight[p] : 1;
        }
        uint32_t d = last;
        for (; d > 0 && s->hist[0][d] + s->hist[1][d] < target; d--) target -= s->hist[0][d] + s->hist[1][d];
        vb_assert(s->hist[0][d] + s->hist[1][d] >= target);
        prefix |= d << shift;
        int32_t kept = 0;
        for (int32_t i = 0; i < left; i++) {
            uint32_t p = k == 0 ? (uint32_t)i : s->sub[i];
            s->sub[kept] = p;
            kept += (key[p] >> shift & last) == d;
        }
        left = kept;
    }
    uint64_t each = weight ? weight[s->sub[0]] : 1;
    return (cut){prefix, (target + each - 1) / each};
}

/* Keeps of the list what the cut lets through, in ascending order of ids. */
static int32_t apply_cut(vb__sampler *s, int32_t n, cut c) {
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) { /* no branches: which way they go is as good as random */
        uint32_t k = s->key[i];
        bool tie = k == c.key && c.ties > 0;
        c.ties -= tie;
        s->key[kept] = k;
        s->id[kept] = s->id[i];
        kept += k > c.key || tie;
    }
    return kept;
}

/* The list becomes the k best of z (fewer when fewer are above -inf); keys are filled. block_max is z's. */
static int32_t select_best(vb__sampler *s, const float *z, int32_t k) {
    int32_t blocks = (s->vocab + BLOCK - 1) / BLOCK;
    float bound = -__builtin_inff();
    if (k <= blocks) {
        for (int32_t b = 0; b < blocks; b++) s->key[b] = key_of(s->block_max[b]);
        bound = float_of_key(find_cut(s, s->key, NULL, blocks, (uint64_t)k).key);
    }
    int32_t n = 0;
    for (int32_t b = 0; b < blocks; b++) {
        if (s->block_max[b] < bound) continue;
        int32_t end = (b + 1) * BLOCK < s->vocab ? (b + 1) * BLOCK : s->vocab;
        for (int32_t i = b * BLOCK; i < end; i++) {
            s->id[n] = i;
            s->key[n] = key_of(z[i]);
            n += z[i] >= bound && z[i] > -__builtin_inff();
        }
    }
    if (n > k) n = apply_cut(s, n, find_cut(s, s->key, NULL, n, (uint64_t)k));
    return n;
}

/* The smallest integer c with (double)c >= x. */
static uint64_t smallest_reaching(double x) {
    uint64_t c = (uint64_t)x;
    while ((double)c < x) c++;
    while (c > 1 && (double)(c - 1) >= x) c--;
    return c < 1 ? 1 : c;
}

/* Top-p over the list (all: over every id). Returns the new length; the list is then in s->id. */
static int32_t select_nucleus(vb__sampler *s, bool all, int32_t n, float max, float top_p) {
    uint64_t sum = 0;
    if (all) exp_below(s->e, s->z, max, n);
    else
        for (int32_t i = 0; i < n; i++) s->e[i] = exp_negative(s->z[s->id[i]] - max);
    for (int32_t i = 0; i < n; i++) sum += weight_of(s->e[i]);
    uint64_t target = smallest_reaching((double)top_p * (double)sum);
    /* n entries of at most `small` together weigh no more than what may be left out, so the cut is above
     * them. */
    uint64_t small = (sum - target) / (uint64_t)n;
    int32_t left = 0;
    for (int32_t i = 0; i < n; i++) {
        uint64_t w = weight_of(s->e[i]);
        s->weight[left] = w;
        s->id[left] = all ? i : s->id[i];
        left += w > small;
    }
    for (int32_t i = 0; i < left; i++) s->key[i] = key_of(s->z[s->id[i]]);
    return apply_cut(s, left, find_cut(s, s->key, s->weight, left, target));
}

/* Keeps e >= min_p of the list (all: of every id); min_p <= 1. Far below, the exp need not be computed: exp
 * and log are right to 2 units in the last place, the margin is 5000 times that. */
static int32_t select_min_p(vb__sampler *s, bool all, int32_t n, float max, float min_p) {
    float below = vb__logf(min_p) - 0.001f;
    int32_t kept = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t id = all ? i : s->id[i];
        float x = s->z[id] - max;
        if (x >= below && exp_negative(x) >= min_p) s->id[kept++] = id;
    }
    return kept;
}

/* ---- Noise --------------------------------------------------------------------------------------------- */

/* -log(E) of a Philox word. */
static float gumbel(uint32_t r) {
    float v = __builtin_fmaf((float)(r >> 16), 0x1p-16f, ((float)(r & 0xffff) + 0.5f) * 0x1p-32f);
    return -vb__logf(-vb__log1pf(-v));
}

/* No less than gumbel(r): -log1p(-v) >= v >= 2^-(zeros + 1) / 2 where r has that many leading zeros, so that
 * the noise is below (zeros + 1) ln 2, and a word of zeros gives 33 ln 2. One bit is added for safety. */
static inline float gumbel_bound(uint32_t r) {
    int zeros = r ? __builtin_clz(r) : 32;
    return (float)(zeros + 2) * 0.6932f;
}

/* What the choice is after: the survivor with the largest z - log(E), on ties the lowest id. Nobody cares about scores below
 * the bar: that of the leader, or of the second where the margin is wanted. */
typedef struct leader {
    int32_t id;
    float score, second, bar;
    bool wants_second;
} leader;

static inline void challenge(leader *best, int32_t id, float z, uint32_t word) {
    if (z + gumbel_bound(word) < best->bar) return; /* rounding is monotone: it cannot win */
    float score = z + gumbel(word);
    if (id == best->id) return;
    if (score > best->score || (score == best->score && id < best->id)) {
        best->second = best->score;
        best->score = score;
        best->id = id;
    } else if (score > best->second) best->second = score;
    best->bar = best->wants_second ? best->second : best->score;
}

/* The largest noise there is, 33 ln 2, and a little more. */
#define MOST_NOISE 23.0f

/* The words of 256 ids from 4 * first on. 64 counters at once, so that the loop becomes vector code. */
static void words256(uint32_t first, const uint32_t counter[4], const uint32_t key[2], uint32_t word[256]) {
    enum { N = 64 };
    uint32_t c0[N], c1[N], c2[N], c3[N], k0 = key[0], k1 = key[1];
    for (uint32_t i = 0; i < N; i++)
        c0[i] = first + i, c1[i] = counter[1], c2[i] = counter[2], c3[i] = counter[3];
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < N; i++) {
            uint64_t p0 = 0xD2511F53ull * c0[i], p1 = 0xCD9E8D57ull * c2[i];
            c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
            c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
            c1[i] = (uint32_t)p1;
            c3[i] = (uint32_t)p0;
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < N; i++) {
        word[4 * i] = c0[i];
        word[4 * i + 1] = c1[i];
        word[4 * i + 2] = c2[i];
        word[4 * i + 3] = c3[i];
    }
}

/* all: every id above -inf competes, and block_max is z's; else the list. start: any of them (a good one
 * saves work). */
static leader choose(const vb__sampler *s, const vb__sample_row *r, bool all, int32_t n, int32_t start) {
    const uint32_t key[2] = {(uint32_t)r->options->seed, (uint32_t)(r->options->seed >> 32)};
    uint32_t counter[4] = {(uint32_t)start >> 2, (uint32_t)(r->position + 1), r->choice, 0}, word[256];
    vb__philox4x32(counter, key, word);
    const float none = -__builtin_inff();
    leader best = {start, s->z[start] + gumbel(word[start & 3]), none, none, r->wants_margin};
    if (!best.wants_second) best.bar = best.score;
    if (all) {
        for (int32_t i = 0; i < n; i += 256) {
            int32_t m = n - i < 256 ? n - i : 256;
            if (maximum(s->block_max + i / BLOCK, (m + BLOCK - 1) / BLOCK) + MOST_NOISE < best.bar)
                continue;
            words256((uint32_t)i >> 2, counter, key, word);
            for (int32_t j = 0; j < m; j++) challenge(&best, i + j, s->z[i + j], word[j]);
        }
        return best;
    }
    for (int32_t i = 0; i < n; i++) {
        int32_t id = s->id[i];
        if (s->z[id] + MOST_NOISE < best.bar) continue;
        if (counter[0] != (uint32_t)id >> 2) {
            counter[0] = (uint32_t)id >> 2;
            vb__philox4x32(counter, key, word);
        }
        challenge(&best, id, s->z[id], word[id & 3]);
    }
    return best;
}

/* ---- Logprobs ------------------------------------------------------------------------------------------ */

static float log_normaliser(const float *z, int32_t n, float max) {
    float sum[16] = {0}, e[CHUNK];
    for (int32_t i = 0; i < n; i += CHUNK) { /* a multiple of 16, so that element i stays with sum i mod 16 */
        int32_t m = n - i < CHUNK ? n - i : CHUNK, k = 0;
        exp_below(e, z + i, max, m);
        for (; k + 16 <= m; k += 16)
            for (int32_t j = 0; j < 16; j++) sum[j] = sum[j] + e[k + j];
        for (int32_t j = 0; k + j < m; j++) sum[j] = sum[j] + e[k + j];
    }
    for (int32_t h = 8; h >= 1; h /= 2)
        for (int32_t j = 0; j < h; j++) sum[j] = sum[j] + sum[j + h];
    return max + vb__logf(sum[0]);
}

float vb__log_normaliser(const float *logits, int32_t vocab) {
    uint32_t csr = vb__fp_enter();
    float l = log_normaliser(logits, vocab, maximum(logits, vocab));
    vb__fp_leave(csr);
    return l;
}

static void logprobs(vb__sampler *s, const vb__sample_row *r, vb__sample *out) {
    const float *x = r->logits;
    int32_t blocks = (s->vocab + BLOCK - 1) / BLOCK;
    block_maxima(s->block_max, x, s->vocab);
    float l = log_normaliser(x, s->vocab, maximum(s->block_max, blocks));
    out->logprob = x[out->id] - l;
    if (r->top_logprobs < 1) return;
    int32_t n = select_best(s, x, r->top_logprobs);
    for (int32_t i = 0; i < n; i++) { /* insertion into at most 20, ids ascending: ties keep their order */
        int32_t at = i;
        float lp = x[s->id[i]] - l, z = x[s->id[i]];
        for (; at > 0 && x[out->top[at - 1].id] < z; at--) out->top[at] = out->top[at - 1];
        out->top[at] = (vb_top_logprob){s->id[i], lp};
    }
    out->n_top = n;
}

/* ---- The pick ------------------------------------------------------------------------------------------ */

static vb_err pick(vb__sampler *s, const vb__sample_row *r, vb__sample *out, vb_error *err) {
    const vb_sampling *o = r->options;
    int32_t n = s->vocab, blocks = (n + BLOCK - 1) / BLOCK;
    bool greedy = o->temperature < 1e-5f;
    bool edits = r->n_bias > 0 || (r->counts && vb__sampling_needs_counts(o));
    bool finite = true;
    for (int32_t i = 0; i < n; i += CHUNK) { /* a chunk stays in the first cache for all that is done to it */
        int32_t m = n - i < CHUNK ? n - i : CHUNK;
        /* the grammar mask comes after bias and penalties, but -inf stays -inf through both */
        finite &= load(s->z + i, r->logits + i, r->token_mask ? r->token_mask + i / 32 : NULL,
                       r->grammar_mask ? r->grammar_mask + i / 32 : NULL, m);
        if (edits) continue;
        if (!greedy) divide(s->z + i, o->temperature, m);
        block_maxima(s->block_max + i / BLOCK, s->z + i, m);
    }
    if (!finite)
        return vb__fail(err, VB_E_NONFINITE, "logits at position %lld: not finite, expected finite values",
                        (long long)r->position);
    if (edits) {
        edit(s, r);
        if (!greedy) divide(s->z, o->temperature, n);
        block_maxima(s->block_max, s->z, n);
    }
    float max = maximum(s->block_max, blocks);
    if (max == -__builtin_inff())
        return vb__fail(err, VB_E_NOT_FOUND,
                        "sampling at position %lld: no token is left, expected one that the masks allow",
                        (long long)r->position);
    if (max == __builtin_inff())
        return vb__fail(err, VB_E_NONFINITE,
                        "logits at position %lld: out of range after bias, penalties and temperature",
                        (long long)r->position);
    int32_t best = first_of(s, s->z, max);
    vb__sample result = {.id = best, .survivors = 1, .margin = __builtin_inff()};
    if (greedy && r->wants_margin) result.margin = max - second_to(s, s->z, best);
    if (!greedy) {
        bool all = true;
        if (o->top_k > 0 && o->top_k < n) {
            n = select_best(s, s->z, o->top_k);
            all = false;
        }
        if (o->top_p < 1.0f && n > 1) {
            n = select_nucleus(s, all, n, max, o->top_p);
            all = false;
        }
        if (o->min_p > 0.0f) {
            n = select_min_p(s, all, n, max, o->min_p);
            all = false;
        }
        if (all)
            for (int32_t i = result.survivors = 0; i < n; i++)
                result.survivors += s->z[i] > -__builtin_inff();
        else result.survivors = n;
        vb_assert(result.survivors > 0);
        if (result.survivors > 1) {
            const leader first = choose(s, r, all, n, best);
            result.id = first.id;
            result.margin = first.score - first.second;
        }
        else if (!all) result.id = s->id[0];
    }
    if (r->top_logprobs >= 0) logprobs(s, r, &result);
    *out = result;
    return VB_OK;
}

bool vb__sampler_wants_best(const vb__sample_row *r) {
    const vb_sampling *o = r->options;
    return o->temperature < 1e-5f && r->n_bias == 0 && r->grammar_mask == NULL && r->top_logprobs < 0 &&
           (r->counts == NULL || !vb__sampling_needs_counts(o));
}

bool vb__sampler_known(const vb__sample_row *r) {
    return r->known_best && vb__sampler_wants_best(r) &&
           (r->token_mask == NULL || (r->token_mask[r->best / 32] >> (r->best % 32) & 1) != 0);
}

vb_err vb__sampler_pick(vb__sampler *s, const vb__sample_row *row, vb__sample *out, vb_error *err) {
    vb_check(row->top_logprobs <= VB_TOP_LOGPROBS_MAX && row->position >= 0);
    if (vb__sampler_known(row)) {
        *out = (vb__sample){.id = row->best, .survivors = 1, .margin = row->margin};
        return VB_OK;
    }
    uint32_t csr = vb__fp_enter();
    vb_err e = pick(s, row, out, err);
    vb__fp_leave(csr);
    return e;
}
