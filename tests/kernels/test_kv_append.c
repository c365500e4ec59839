/* kv_append: where values go, what is not finite, and every level against the reference. `--bench` prints
 * times. */
#include "base/bf16.h"
#include "base/clock.h"
#include "base/fp_env.h"
#include "kv_case.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static vb__cpu_level g_level;

/* The layout said in another way than vb__kv_k_index: walk it in order. */
static void layout_walk(void **state) {
    (void)state;
    static const int32_t dims[] = {2, 16, 48, 80, 128, 256};
    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++) {
        int32_t dim = dims[i], at = 0;
        for (int32_t group = 0; group < 4; group++)
            for (int32_t pair = 0; pair < dim / 2; pair++)
                for (int32_t key = 0; key < 16; key++)
                    for (int32_t d = 0; d < 2; d++, at++)
                        assert_int_equal(vb__kv_k_index(dim, group * 16 + key, pair * 2 + d), at);
        at = 0;
        for (int32_t pair = 0; pair < 32; pair++)
            for (int32_t d = 0; d < dim; d++)
                for (int32_t key = 0; key < 2; key++, at++)
                    assert_int_equal(vb__kv_v_index(dim, pair * 2 + key, d), at);
        assert_int_equal(vb__kv_head_bytes(dim), 64 * dim * 4);
    }
}

static void every_level_writes_the_same(void **state) {
    (void)state;
    rng r = {11};
    for (int32_t round = 0; round < 60; round++) {
        static const int32_t dims[] = {2, 6, 16, 24, 32, 48, 64, 80, 128, 256};
        int32_t dim = dims[rng_int(&r, 0, 9)], heads = rng_int(&r, 1, 4), rows = rng_int(&r, 1, 40);
        int32_t n_seqs = rng_int(&r, 1, 3), pad = rng_int(&r, 0, 3) * 64,
                ks = heads * dim + rng_int(&r, 0, 5);
        int64_t page_bytes = pad + heads * vb__kv_head_bytes(dim) + 64;
        float *k = malloc((size_t)(rows * n_seqs * ks) * 4), *v = malloc((size_t)(rows * n_seqs * ks) * 4);
        rng_fill(&r, k, (int64_t)rows * n_seqs * ks, (kind)(round % KINDS));
        rng_fill(&r, v, (int64_t)rows * n_seqs * ks, (kind)(round % KINDS));
        vb__seq_rows seqs[3];
        uint8_t *pages[3][4], failed[3][40];
        int32_t pos[3];
        for (int32_t i = 0; i < n_seqs; i++) pos[i] = rng_int(&r, 0, 200);
        uint8_t *want = NULL;
        for (int32_t run = 0; run < 2 + (int32_t)g_level * 2; run++) {
            /* run 0: the reference row by row; the others: launchers */
            uint8_t *all = calloc(12, (size_t)page_bytes);
            memset(failed, 0, sizeof failed);
            for (int32_t i = 0; i < n_seqs; i++) {
                for (int32_t p = 0; p < 4; p++) pages[i][p] = all + (i * 4 + p) * page_bytes;
                /* the call's rows are in descending order of sequences: row0 is not the running sum */
                seqs[i] = (vb__seq_rows){.row0 = (n_seqs - 1 - i) * rows,
                                         .rows = rows,
                                         .pos0 = pos[i],
                                         .pages = pages[i],
                                         .failed = failed[i]};
            }
            vb__kv_layout lay = {.page_off = pad, .kv_heads = heads, .head_dim = dim};
            if (run == 0) {
                for (int32_t i = 0; i < n_seqs; i++)
                    for (int32_t j = 0; j < rows; j++) {
                        int32_t p = pos[i] + j;
                        const float *kr = k + (seqs[i].row0 + j) * ks, *vr = v + (seqs[i].row0 + j) * ks;
                        bool ok = vb__kv_append_ref(pages[i][p / 64] + pad, heads, dim, p % 64, kr, vr),
                             want_ok = true;
                        for (int32_t d = 0; d < heads * dim; d++) {
                            uint16_t kb = vb__to_bf16(kr[d]), vb = vb__to_bf16(vr[d]);
                            bool kf = (kb & 0x7f80) != 0x7f80, vf = (vb & 0x7f80) != 0x7f80;
                            want_ok = want_ok && kf && vf;
                            const uint16_t *kp =
                                (const uint16_t *)(const void *)(pages[i][p / 64] + pad +
                                                                 d / dim * vb__kv_head_bytes(dim));
                            assert_int_equal(kp[vb__kv_k_index(dim, p % 64, d % dim)], kf ? kb : 0);
                            assert_int_equal(kp[64 * dim + vb__kv_v_index(dim, p % 64, d % dim)],
                                             vf ? vb : 0);
                        }
                        assert_int_equal(ok, want_ok);
                    }
                want = all;
                continue;
            }
            vb__cpu_backend *be =
                case_backend((vb__cpu_level)((run - 1) / 2), run % 2 == 1 ? 1 : 3, 8, 1, 16);
            vb__cpu_kv_append(&be->base, &lay, k, ks, v, ks, seqs, n_seqs);
            assert_memory_equal(all, want, (size_t)page_bytes * 12);
            for (int32_t i = 0; i < n_seqs; i++)
                for (int32_t j = 0; j < rows; j++) {
                    bool bad = false;
                    for (int32_t d = 0; d < heads * dim; d++) {
                        float kx = k[(seqs[i].row0 + j) * ks + d], vx = v[(seqs[i].row0 + j) * ks + d];
                        bad = bad || !(fabsf(kx) < 0x1.ffp127f) || !(fabsf(vx) < 0x1.ffp127f);
                    }
                    assert_int_equal(failed[i][j], bad);
                }
            case_backend_free(be);
            free(all);
        }
        free(want);
        free(k);
        free(v);
    }
}

static int bench(void) {
    enum { HEADS = 2, DIM = 256, ROWS = 512 };
    static float k[ROWS * HEADS * DIM], v[ROWS * HEADS * DIM];
    static uint8_t memory[ROWS / 64][HEADS * 64 * DIM * 4], failed[ROWS];
    uint8_t *pages[ROWS / 64];
    rng r = {5};
    rng_fill(&r, k, ROWS * HEADS * DIM, NORMAL);
    rng_fill(&r, v, ROWS * HEADS * DIM, NORMAL);
    for (int32_t i = 0; i < ROWS / 64; i++) pages[i] = memory[i];
    for (int32_t level = 0; level <= (int32_t)g_level; level++)
        for (int32_t rows = 1; rows <= ROWS; rows = rows == 1 ? 16 : rows * 32) {
            vb__cpu_backend *be = case_backend((vb__cpu_level)level, 1, ROWS, 1, DIM);
            vb__seq_rows s = {.rows = rows, .pages = pages, .failed = failed};
            vb__kv_layout lay = {.kv_heads = HEADS, .head_dim = DIM};
            double least = 1e9;
            for (int32_t i = 0; i < 200; i++) {
                double t0 = vb__now();
                vb__cpu_kv_append(&be->base, &lay, k, HEADS * DIM, v, HEADS * DIM, &s, 1);
                double t = vb__now() - t0;
                if (t < least) least = t;
            }
            printf("%-7s %3d rows, 2 heads of 256: %8.2f us, %.2f us a row, %6.2f GB/s\n",
                   vb__cpu_level_name((vb__cpu_level)level), rows, least * 1e6, least * 1e6 / rows,
                   rows * (double)HEADS * DIM * 12 / least * 1e-9);
            case_backend_free(be);
        }
    return 0;
}

int main(int argc, char **argv) {
    vb_error err;
    if (vb__cpu_detect(&g_level, &err) != VB_OK) return 77;
    vb__fp_enter();
    if (argc > 1 && strcmp(argv[1], "--bench") == 0) return bench();
    for (int32_t l = (int32_t)g_level + 1; l < VB_CPU_LEVELS; l++)
        printf("kv_append: %s skipped, the CPU lacks it\n", vb__cpu_level_name((vb__cpu_level)l));
    const struct CMUnitTest tests[] = {cmocka_unit_test(layout_walk),
                                       cmocka_unit_test(every_level_writes_the_same)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
