/* rope_freqs: vectors computed from the formulas in f64 elsewhere (every max(1, R/16)-th frequency); refusals. */
#include "model/rope_freqs.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

enum { PICKED = 8 };
static const struct {
    const char *name;
    vb__rope_config config;
    float freqs[PICKED], m;
} vectors[] = {
    {"default", {.type = VB_ROPE_DEFAULT, .theta = 10000000.0, .rotated = 64, .factor = 1.0, .low_freq_factor = 0.0,
      .high_freq_factor = 0.0, .original_max = 0.0, .beta_fast = 32.0, .beta_slow = 1.0, .attention_factor = -1.0,
      .mscale = 0.0, .mscale_all_dim = 0.0, .truncate = true},
     {0x1.0000000000000p+0f, 0x1.111aee0000000p-3f, 0x1.235a720000000p-6f, 0x1.36d21a0000000p-9f, 0x1.4b96be0000000p-12f, 0x1.61bea20000000p-15f, 0x1.7961820000000p-18f, 0x1.9298ac0000000p-21f}, 0x1.0000000000000p+0f},
    {"linear", {.type = VB_ROPE_LINEAR, .theta = 10000.0, .rotated = 16, .factor = 4.0, .low_freq_factor = 0.0,
      .high_freq_factor = 0.0, .original_max = 0.0, .beta_fast = 32.0, .beta_slow = 1.0, .attention_factor = -1.0,
      .mscale = 0.0, .mscale_all_dim = 0.0, .truncate = true},
     {0x1.0000000000000p-2f, 0x1.43d1360000000p-4f, 0x1.99999a0000000p-6f, 0x1.030dc40000000p-7f, 0x1.47ae140000000p-9f, 0x1.9e7c6e0000000p-11f, 0x1.0624de0000000p-12f, 0x1.4b96be0000000p-14f}, 0x1.0000000000000p+0f},
    {"llama 3.1", {.type = VB_ROPE_LLAMA3, .theta = 500000.0, .rotated = 128, .factor = 8.0, .low_freq_factor = 1.0,
      .high_freq_factor = 4.0, .original_max = 8192.0, .beta_fast = 32.0, .beta_slow = 1.0, .attention_factor = -1.0,
      .mscale = 0.0, .mscale_all_dim = 0.0, .truncate = true},
     {0x1.0000000000000p+0f, 0x1.8d275e0000000p-3f, 0x1.3411900000000p-5f, 0x1.ddee9c0000000p-8f, 0x1.132ba80000000p-11f, 0x1.1f91f00000000p-15f, 0x1.be21880000000p-18f, 0x1.5a0f4e0000000p-20f}, 0x1.0000000000000p+0f},
    {"llama 3.2", {.type = VB_ROPE_LLAMA3, .theta = 500000.0, .rotated = 64, .factor = 32.0, .low_freq_factor = 1.0,
      .high_freq_factor = 4.0, .original_max = 8192.0, .beta_fast = 32.0, .beta_slow = 1.0, .attention_factor = -1.0,
      .mscale = 0.0, .mscale_all_dim = 0.0, .truncate = true},
     {0x1.0000000000000p+0f, 0x1.8d275e0000000p-3f, 0x1.3411900000000p-5f, 0x1.ddee9c0000000p-8f, 0x1.c26c460000000p-12f, 0x1.1f91f00000000p-17f, 0x1.be21880000000p-20f, 0x1.5a0f4e0000000p-22f}, 0x1.0000000000000p+0f},
    {"yarn", {.type = VB_ROPE_YARN, .theta = 1000000.0, .rotated = 128, .factor = 4.0, .low_freq_factor = 0.0,
      .high_freq_factor = 0.0, .original_max = 32768.0, .beta_fast = 32.0, .beta_slow = 1.0, .attention_factor = -1.0,
      .mscale = 0.0, .mscale_all_dim = 0.0, .truncate = true},
     {0x1.0000000000000p+0f, 0x1.6c310e0000000p-3f, 0x1.030dc40000000p-5f, 0x1.6046ee0000000p-8f, 0x1.3c1d660000000p-11f, 0x1.74eea60000000p-15f, 0x1.0945660000000p-17f, 0x1.7961820000000p-20f}, 0x1.237d380000000p+0f},
    {"yarn, not truncated", {.type = VB_ROPE_YARN, .theta = 10000.0, .rotated = 64, .factor = 40.0, .low_freq_factor = 0.0,
      .high_freq_factor = 0.0, .original_max = 4096.0, .beta_fast = 32.0, .beta_slow = 1.0, .attention_factor = -1.0,
      .mscale = 1.0, .mscale_all_dim = 0.5, .truncate = false},
     {0x1.0000000000000p+0f, 0x1.43d1360000000p-2f, 0x1.99999a0000000p-4f, 0x1.c603c40000000p-6f, 0x1.6a06660000000p-8f, 0x1.7adee00000000p-11f, 0x1.a36e2e0000000p-16f, 0x1.0945660000000p-17f}, 0x1.27dd660000000p+0f},
    {"yarn, attention factor", {.type = VB_ROPE_YARN, .theta = 10000.0, .rotated = 32, .factor = 16.0, .low_freq_factor = 0.0,
      .high_freq_factor = 0.0, .original_max = 2048.0, .beta_fast = 16.0, .beta_slow = 2.0, .attention_factor = 1.25,
      .mscale = 0.0, .mscale_all_dim = 0.0, .truncate = true},
     {0x1.0000000000000p+0f, 0x1.43d1360000000p-2f, 0x1.99999a0000000p-4f, 0x1.8cad160000000p-6f, 0x1.851eb80000000p-9f, 0x1.9e7c6e0000000p-13f, 0x1.0624de0000000p-14f, 0x1.4b96be0000000p-16f}, 0x1.4000000000000p+0f},
    {"yarn, ends meet", {.type = VB_ROPE_YARN, .theta = 10000000.0, .rotated = 16, .factor = 2.0, .low_freq_factor = 0.0,
      .high_freq_factor = 0.0, .original_max = 3.0, .beta_fast = 32.0, .beta_slow = 32.0, .attention_factor = -1.0,
      .mscale = 0.0, .mscale_all_dim = 0.0, .truncate = true},
     {0x1.0000000000000p+0f, 0x1.111aee0000000p-3f, 0x1.235a720000000p-6f, 0x1.36d21a0000000p-9f, 0x1.4b96be0000000p-12f, 0x1.61bea20000000p-15f, 0x1.7961820000000p-18f, 0x1.9298ac0000000p-21f}, 0x1.11be9c0000000p+0f},
};

/* f64 logarithms differ in the last place, so a rounding may fall on the other side. */
static void near(const char *name, float got, float want) {
    if (!(fabsf(got - want) <= 0x1p-23f * fabsf(want))) fail_msg("%s: got %a, want %a", name, (double)got, (double)want);
}

static void vectors_agree(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        float freqs[256], m;
        int32_t r = vectors[i].config.rotated, step = r / 16 > 1 ? r / 16 : 1;
        assert_int_equal(vb__rope_freqs(&vectors[i].config, freqs, &m, NULL), VB_OK);
        for (int32_t j = 0; j < PICKED; j++) near(vectors[i].name, freqs[j * step], vectors[i].freqs[j]);
        near(vectors[i].name, m, vectors[i].m);
    }
}

static void numbers_without_meaning_are_refused(void **state) {
    (void)state;
    const vb__rope_config good = {.type = VB_ROPE_LLAMA3, .theta = 5e5, .rotated = 8, .factor = 8, .low_freq_factor = 1,
                                  .high_freq_factor = 4, .original_max = 8192};
    float freqs[4], m;
    vb_error err;
    assert_int_equal(vb__rope_freqs(&good, freqs, &m, &err), VB_OK);
    vb__rope_config bad[8];
    for (int i = 0; i < 8; i++) bad[i] = good;
    bad[0].theta = 1.0;
    bad[1].theta = NAN;
    bad[2].rotated = 7;
    bad[3].factor = 0;
    bad[4].high_freq_factor = 1;
    bad[5].original_max = -1;
    bad[6].type = VB_ROPE_YARN; /* without betas */
    bad[7].rotated = 0;
    for (int i = 0; i < 8; i++) assert_int_equal(vb__rope_freqs(&bad[i], freqs, &m, &err), VB_E_FORMAT);
    bad[0].type = (vb__rope_type)17;
    assert_int_equal(vb__rope_freqs(&bad[0], freqs, &m, &err), VB_E_UNSUPPORTED);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_agree),
        cmocka_unit_test(numbers_without_meaning_are_refused),
    };
    return cmocka_run_group_tests_name("rope_freqs", tests, NULL, NULL);
}
