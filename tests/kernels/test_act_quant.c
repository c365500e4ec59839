/* act_quant: every level against the reference on ordinary and hostile rows; the reference against the contract. */
#include "linear_support.h"

enum { K = 1024, MOST = 70 };
static int n_levels;

static vb__qact make(int rows, int k, int group, int planes) {
    vb__qact q = {.rows = rows, .k = k, .seg = vb__qact_seg(group), .width = vb__qact_width(group), .planes = planes};
    size_t cells = (size_t)rows * (size_t)k;
    q.a = vb__alloc_aligned(VB_TAG_SCRATCH, cells * (size_t)planes + 64);
    q.dd = vb__alloc_aligned(VB_TAG_SCRATCH, cells / (size_t)q.seg * 8 + 64);
    q.sums = vb__alloc_aligned(VB_TAG_SCRATCH, cells / (size_t)q.seg * 4 + 64);
    return q;
}
static void drop(vb__qact *q) {
    vb__free(q->a);
    vb__free(q->dd);
    vb__free(q->sums);
}

static void fill(float *x, int64_t n, int kind) {
    for (int64_t i = 0; i < n; i++) x[i] = value(kind == 2 && rng() % 100 ? 0 : kind);
    /* group maxima at the edges of the rule */
    static const float edges[] = {0x1p-64f, 0x0.fffffep-64f, 0x1p-126f, 3.4028235e38f, -3.4028235e38f, 0.0f, -0.0f};
    for (int e = 0; e < 7 && n >= 64 * (e + 1); e++)
        if (kind == 3) {
            for (int i = 0; i < 64; i++) x[64 * e + i] = edges[e] * (i % 3 ? 0.5f : 1.0f);
        }
}

static void levels_agree(void **state) {
    (void)state;
    float *x = malloc(sizeof(float) * MOST * (K + 3));
    for (int kind = 0; kind < 4; kind++)
        for (int group = 16; group <= 128; group *= 2)
            for (int planes = 1; planes <= 2; planes++)
                for (int rows = 1; rows <= MOST; rows += rows < 3 ? 1 : 22) {
                    fill(x, (int64_t)rows * (K + 3), kind);
                    vb__qact want = make(rows, K, group, planes);
                    vb__act_quant_ref(&want, x, K + 3, 0, rows);
                    for (int level = 1; level < n_levels; level++) {
                        vb__kernels k;
                        vb__kernels_init(&k, (vb__cpu_level)level);
                        vb__qact got = make(rows, K, group, planes);
                        k.act_quant(&got, x, K + 3, 0, rows / 2);
                        k.act_quant(&got, x, K + 3, rows / 2, rows);
                        size_t segs = (size_t)rows * K / (size_t)want.seg;
                        assert_memory_equal(got.a, want.a, (size_t)rows * K * (size_t)planes);
                        assert_memory_equal(got.sums, want.sums, segs * 4);
                        for (size_t i = 0; i < 2 * segs; i++)
                            if (to_bits(got.dd[i]) != to_bits(want.dd[i]))
                                assert_true(isnan(got.dd[i]) && isnan(want.dd[i]));
                        drop(&got);
                    }
                    drop(&want);
                }
    free(x);
}

static void reference_is_the_contract(void **state) {
    (void)state;
    float x[3 * 128];
    for (int kind = 0; kind < 4; kind++)
        for (int planes = 1; planes <= 2; planes++)
            for (int round = 0; round < 50; round++) {
                fill(x, 3 * 128, kind);
                vb__qact q = make(3, 128, 64, planes);
                vb__act_quant_ref(&q, x, 128, 0, 3);
                for (int r = 0; r < 3; r++)
                    for (int g = 0; g < 2; g++) {
                        int a[64], sum = 0;
                        float d = oracle_quantise(x + r * 128 + g * 64, 64, planes * 8, a);
                        for (int i = 0; i < 64; i++) {
                            const int8_t *at = q.a + g * 64 * planes * 3 + r * 64 + i;
                            int got = planes == 1 ? at[0] : 256 * at[0] + at[3 * 64];
                            assert_int_equal(got, a[i]);
                            assert_true(planes == 2 || (got >= -127 && got <= 127));
                            if (planes == 2) assert_true(at[0] >= -127);
                            sum += a[i];
                        }
                        float want = d * (float)sum, *dd = q.dd + g * 2 * 3 + r;
                        assert_true(to_bits(dd[0]) == to_bits(d) || (isnan(d) && isnan(dd[0])));
                        assert_true(to_bits(dd[3]) == to_bits(want) || (isnan(want) && isnan(dd[3])));
                        assert_int_equal(q.sums[g * 3 + r], sum);
                    }
                drop(&q);
            }
}

static int bench_act_quant(void) {
    enum { ROWS = 512 };
    float *x = vb__alloc_aligned(VB_TAG_SCRATCH, sizeof(float) * ROWS * K);
    fill(x, ROWS * K, 0);
    for (int planes = 1; planes <= 2; planes++) {
        vb__qact q = make(ROWS, K, 64, planes);
        for (int level = 0; level < n_levels; level++) {
            vb__kernels k;
            vb__kernels_init(&k, (vb__cpu_level)level);
            double best = 1e9;
            for (int i = 0; i < 20; i++) {
                double t = vb__now();
                k.act_quant(&q, x, K, 0, ROWS);
                t = vb__now() - t;
                if (t < best) best = t;
            }
            printf("%s, %d-bit: %.2f elements a ns\n", vb__cpu_level_name((vb__cpu_level)level), 8 * planes,
                   ROWS * K / best / 1e9);
        }
        drop(&q);
    }
    vb__free(x);
    return 0;
}

int main(int argc, char **argv) {
    (void)vb__fp_enter();
    n_levels = levels();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench_act_quant();
    const struct CMUnitTest tests[] = {cmocka_unit_test(levels_agree), cmocka_unit_test(reference_is_the_contract)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
