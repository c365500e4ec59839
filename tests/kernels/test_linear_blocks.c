/* linear_q on matrices of block formats (signed codes, groups of 16, no biases, every kind of scale): every level and the
 * embedding against an oracle that reads codes and scales as the file has them. */
#include "linear_support.h"

enum { MAX_ROWS = 101 };
static int n_levels;

typedef struct format {
    const char *name;
    int bits, offset, group, bias;
    vb__scale_kind kind;
} format;

static const format formats[] = {
    {"Q4_0", 4, 8, 32, 0, VB_SCALE_F16},   {"Q4_1", 4, 0, 32, 1, VB_SCALE_F16},  {"Q5_0", 5, 16, 32, 0, VB_SCALE_F16},
    {"Q5_1", 5, 0, 32, 1, VB_SCALE_F16},   {"Q8_0", 8, 128, 32, 0, VB_SCALE_F16}, {"Q4_K", 4, 0, 32, 1, VB_SCALE_F32},
    {"Q5_K", 5, 0, 32, 1, VB_SCALE_F32},   {"Q6_K", 6, 32, 16, 0, VB_SCALE_F32}, {"IQ4_NL", 8, 128, 32, 0, VB_SCALE_F16},
    {"MXFP4", 5, 12, 32, 0, VB_SCALE_BF16},
};

/* The test's own block format: scales, biases, codes of a row. */
static void unpack(int32_t which, const void *row, int32_t k, int8_t *codes, float *scales, float *biases) {
    size_t groups = (size_t)(k / formats[which].group);
    memcpy(scales, row, groups * 4);
    memcpy(biases, (const uint8_t *)row + groups * 4, groups * 4);
    memcpy(codes, (const uint8_t *)row + groups * 8, (size_t)k);
}

static float exact(vb__scale_kind kind, int extreme) {
    uint16_t h = (uint16_t)rng();
    if (!extreme || rng() % 4 != 0) h = (uint16_t)((h & 0x83ff) | (8 + h % 5) << 10);
    if (kind == VB_SCALE_F16) return half_value(h);
    float f = extreme && rng() % 8 == 0 ? from_bits((uint32_t)rng()) : uniform() * 0.1f;
    return kind == VB_SCALE_F32 ? f : vb__from_bf16(vb__to_bf16(f));
}

static vb__matrix blocks_matrix(int which, int n, int k, int extreme) {
    const format *f = &formats[which];
    int64_t groups = k / f->group, row = groups * 8 + k;
    uint8_t *d = malloc((size_t)(n * row));
    for (int o = 0; o < n; o++) {
        for (int64_t g = 0; g < 2 * groups; g++) {
            float v = exact(f->kind, extreme);
            memcpy(d + o * row + 4 * g, &v, 4);
        }
        for (int i = 0; i < k; i++) {
            int top = (1 << f->bits) - 1, c = extreme == 2 ? (rng() % 2 != 0 ? top : 0) : (int)(rng() % (uint64_t)(top + 1));
            d[o * row + groups * 8 + i] = (uint8_t)(int8_t)(c - f->offset);
        }
    }
    return (vb__matrix){.kind = VB_MATRIX_BLOCKS, .n = n, .k = k, .data = d, .bits = f->bits, .group = f->group,
                        .scale_kind = f->kind, .name = f->name, .row_bytes = row, .format = which, .offset = f->offset,
                        .has_bias = f->bias, .unpack = unpack};
}

static void oracle(const vb__matrix *m, const float *x, int rows, int activations, float *y) {
    int width = m->group < 32 ? 32 : m->group, groups = m->k / m->group;
    int *a = malloc((size_t)m->k * sizeof *a);
    float *d = malloc((size_t)m->k * sizeof *d);
    for (int r = 0; r < rows; r++) {
        for (int k = 0; k < m->k; k += width) d[k / width] = oracle_quantise(x + r * m->k + k, width, activations, a + k);
        for (int o = 0; o < m->n; o++) {
            const uint8_t *row = (const uint8_t *)m->data + o * m->row_bytes;
            const int8_t *codes = (const int8_t *)row + 8 * groups;
            float total = 0, acc = 0, scale, bias;
            for (int k = 0; k < m->k; k += m->group) {
                if (k % 512 == 0 && k > 0) {
                    total = k == 512 ? acc : total + acc;
                    acc = 0;
                }
                int64_t dot = 0, sum = 0;
                for (int i = k; i < k + m->group; i++) dot += codes[i] * a[i], sum += a[i];
                memcpy(&scale, row + 4 * (k / m->group), 4);
                memcpy(&bias, row + 4 * (groups + k / m->group), 4);
                acc = fmaf((float)dot, scale * d[k / width], acc);
                if (m->has_bias) acc = fmaf(bias, d[k / width] * (float)sum, acc);
            }
            y[r * m->n + o] = m->k > 512 ? total + acc : acc;
        }
    }
    free(a);
    free(d);
}

static void check(int which, int n, int k, int extreme, int activations) {
    static const int counts[] = {1, 2, 5, 16, MAX_ROWS};
    vb__matrix m = blocks_matrix(which, n, k, extreme);
    float *x = malloc((size_t)(MAX_ROWS * k) * 4), *y = malloc((size_t)(MAX_ROWS * n) * 4), *want = malloc((size_t)(MAX_ROWS * n) * 4);
    for (int i = 0; i < MAX_ROWS * k; i++) x[i] = value(extreme == 1 ? 1 : 0);
    oracle(&m, x, MAX_ROWS, activations, want);
    for (int level = 0; level < n_levels; level++) {
        vb__cpu_backend *be = backend(level, 1 + level % 2, activations, MAX_ROWS, k);
        vb__weight *w;
        vb_error err = {0};
        if (vb__cpu_weight_create(&be->base, &m, &w, &err) != VB_OK) fail_msg("%s", err.text);
        for (int i = 0; i < 5; i++) {
            vb__linear_out out = {w, NULL, NULL, 0, y, n};
            vb__cpu_linear(&be->base, x, k, counts[i], &out, 1);
            char what[100];
            (void)snprintf(what, sizeof what, "%s n %d k %d level %s act %d rows %d", m.name, n, k,
                           vb__cpu_level_name((vb__cpu_level)level), activations, counts[i]);
            assert_false(differs(what, want, NULL, NULL, 0, y, n, counts[i], n));
        }
        /* embedding rows: fma(code, scale, bias), or the product */
        float *e = malloc((size_t)k * 4);
        int32_t id = n - 1;
        vb__cpu_embed(&be->base, w, &id, 1, e, k);
        const uint8_t *row = (const uint8_t *)m.data + id * m.row_bytes;
        int groups = k / m.group;
        for (int i = 0; i < k; i++) {
            float scale, bias, c = (float)((const int8_t *)row)[8 * groups + i];
            memcpy(&scale, row + 4 * (i / m.group), 4);
            memcpy(&bias, row + 4 * (groups + i / m.group), 4);
            float v = m.has_bias ? fmaf(c, scale, bias) : c * scale;
            if (to_bits(v) != to_bits(e[i]) && !(isnan(v) && isnan(e[i]))) fail_msg("%s: embedding element %d", m.name, i);
        }
        free(e);
        vb__cpu_weight_destroy(&be->base, w);
        backend_free(be);
    }
    matrix_free(&m);
    free(x), free(y), free(want);
}

static void every_format_gives_the_contracts_bits(void **state) {
    (void)state;
    for (int f = 0; f < 10; f++)
        for (int act = 8; act <= 16; act += 8) check(f, 37, 1120, 0, act);
}

static void ragged_and_extreme(void **state) {
    (void)state;
    static const int ks[] = {32, 64, 96, 512, 544};
    for (int f = 0; f < 10; f++)
        for (int i = 0; i < 5; i++) check(f, 1 + i * 7, ks[i], i % 3, i % 2 ? 16 : 8);
}

int main(void) {
    (void)vb__fp_enter();
    n_levels = levels();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_gives_the_contracts_bits),
        cmocka_unit_test(ragged_and_extreme),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
