/* model/config: what is read from good files, which keys are required, which values are refused and how that reads. */
#include "base/json.h"
#include "model/config.h"
#include "model/quant_spec.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const char qwen35[] =
    "{\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":true,\"eos_token_id\":[7,9],\"text_config\":{"
    "\"model_type\":\"qwen3_5_text\",\"vocab_size\":288,\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":32,\"hidden_act\":\"silu\",\"rms_norm_eps\":1e-06,"
    "\"max_position_embeddings\":4096,\"full_attention_interval\":2,\"linear_conv_kernel_dim\":4,\"linear_key_head_dim\":32,"
    "\"linear_num_key_heads\":2,\"linear_num_value_heads\":6,\"linear_value_head_dim\":24,\"eos_token_id\":9,"
    "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000000,\"partial_rotary_factor\":0.25},"
    "\"mtp_num_hidden_layers\":1}}";

static const char llama[] =
    "{\"model_type\":\"llama\",\"vocab_size\":288,\"hidden_size\":96,\"intermediate_size\":160,\"num_hidden_layers\":3,"
    "\"num_attention_heads\":3,\"max_position_embeddings\":4096}";

static const char qwen3[] =
    "{\"model_type\":\"qwen3\",\"vocab_size\":288,\"hidden_size\":64,\"intermediate_size\":160,\"num_hidden_layers\":4,"
    "\"num_attention_heads\":6,\"num_key_value_heads\":2,\"max_position_embeddings\":4096,\"rope_theta\":1000000}";

static const char dflash[] =
    "{\"architectures\":[\"DFlashDraftModel\"],\"model_type\":\"qwen3\",\"hidden_size\":512,\"intermediate_size\":1536,"
    "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":128,\"vocab_size\":16384,"
    "\"rope_theta\":100000.0,\"num_target_layers\":12,\"dflash_config\":{\"mask_token_id\":16377,\"target_layer_ids\":[1,5,9]}}";

/* A copy of the document with the value at a dotted path replaced (NULL text: removed). */
static char *edited(const char *text, const char *path, const char *value) {
    json_t *root = json_loads(text, 0, NULL), *at = root;
    char p[200];
    (void)snprintf(p, sizeof p, "%s", path);
    char *key = p;
    for (char *dot = strchr(key, '.'); dot != NULL; key = dot + 1, dot = strchr(key, '.')) {
        *dot = '\0';
        if (json_object_get(at, key) == NULL) json_object_set_new(at, key, json_object());
        at = json_object_get(at, key);
    }
    if (value == NULL) json_object_del(at, key);
    else json_object_set_new(at, key, json_loads(value, JSON_DECODE_ANY, NULL));
    char *out = json_dumps(root, 0);
    json_decref(root);
    return out;
}

static vb_err parse(const char *text, vb__model_config *m, vb_error *err) {
    return vb__config_parse(text, strlen(text), "config.json", m, err);
}

static vb__model_config good(const char *text) {
    vb__model_config m;
    vb_error err;
    if (parse(text, &m, &err) != VB_OK) fail_msg("%s", err.text);
    return m;
}

static vb__model_config good_edit(const char *text, const char *path, const char *value) {
    char *t = edited(text, path, value);
    vb__model_config m = good(t);
    free(t);
    return m;
}

static void refused(const char *text, const char *path, const char *value, const char *says) {
    char *t = edited(text, path, value);
    vb__model_config m;
    vb_error err = {0};
    if (parse(t, &m, &err) == VB_OK) fail_msg("%s = %s was taken", path, value);
    if (strstr(err.text, says) == NULL || strncmp(err.text, "config.json", 11) != 0)
        fail_msg("%s = %s: \"%s\" lacks \"%s\"", path, value == NULL ? "(removed)" : value, err.text, says);
    free(t);
}

static void qwen3_5_is_read(void **state) {
    (void)state;
    vb__model_config m = good(qwen35);
    assert_int_equal(m.arch, VB_ARCH_QWEN3_5);
    assert_int_equal(m.layer_type[0], VB_LAYER_LINEAR);
    assert_int_equal(m.layer_type[1], VB_LAYER_FULL);
    assert_int_equal(m.rope.rotated, 8);
    assert_true(m.rope.theta == 1e7);
    assert_true(m.tied && m.zero_centred_norms && m.qk_norm && m.output_gate && !m.attention_bias);
    assert_int_equal(m.mtp_layers, 1);
    assert_int_equal(m.lin_nv, 6);
    assert_int_equal(m.lin_dv, 24);
    assert_int_equal(m.n_eos, 2);
    assert_int_equal(m.eos[0], 9);
    assert_int_equal(m.eos[1], 7);
    assert_true(m.eps == 1e-6f);
    m = good_edit(qwen35, "text_config.layer_types",
                  "[\"full_attention\",\"linear_attention\",\"linear_attention\",\"full_attention\"]");
    assert_int_equal(m.layer_type[0], VB_LAYER_FULL); /* wins over the interval */
    m = good_edit(qwen35, "text_config.tie_word_embeddings", "false");
    assert_false(m.tied); /* the inner one wins */
    m = good_edit(qwen35, "text_config.rope_parameters.partial_rotary_factor", NULL);
    assert_int_equal(m.rope.rotated, 8); /* 0.25 */
    m = good_edit(qwen35, "text_config.mtp_num_hidden_layers", NULL);
    assert_true(m.mtp_silent && m.mtp_layers == 0);
    /* text-only: the same keys at the top */
    json_t *root = json_loads(qwen35, 0, NULL);
    char *flat = json_dumps(json_object_get(root, "text_config"), 0);
    m = good(flat);
    assert_int_equal(m.lin_taps, 4);
    refused(flat, "head_dim", NULL, "config.json: head_dim: is missing");
    free(flat);
    json_decref(root);
}

static void every_key_of_qwen3_5_is_required(void **state) {
    (void)state;
    static const char *const keys[] = {
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
        "head_dim", "rms_norm_eps", "max_position_embeddings", "full_attention_interval", "linear_conv_kernel_dim",
        "linear_key_head_dim", "linear_num_key_heads", "linear_num_value_heads", "linear_value_head_dim"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char path[100], says[200];
        (void)snprintf(path, sizeof path, "text_config.%s", keys[i]);
        (void)snprintf(says, sizeof says, "config.json: text_config.%s: is missing, expected ", keys[i]);
        refused(qwen35, path, NULL, says);
        (void)snprintf(says, sizeof says, "config.json: text_config.%s: is \"x\", expected ", keys[i]);
        refused(qwen35, path, "\"x\"", says);
        (void)snprintf(says, sizeof says, "config.json: text_config.%s: is -1, expected ", keys[i]);
        refused(qwen35, path, "-1", says);
    }
    refused(qwen35, "text_config.rope_parameters.rope_theta", NULL, "text_config.rope_theta: is missing");
    refused(qwen35, "model_type", NULL, "model_type: is missing");
}

static void values_that_cannot_be_are_refused(void **state) {
    (void)state;
    refused(qwen35, "model_type", "\"gpt2\"", "model_type: is \"gpt2\", expected qwen3_5");
    refused(qwen35, "model_type", "\"qwen3_5_moe\"", "text_config.model_type: is \"qwen3_5_text\"");
    refused(qwen35, "text_config", "[]", "text_config: is an array of 0, expected an object");
    refused(qwen35, "text_config.vocab_size", "4194305", "vocab_size: is 4194305, expected an integer 1..4194304");
    refused(qwen35, "text_config.num_hidden_layers", "1025", "num_hidden_layers: is 1025");
    refused(qwen35, "text_config.num_key_value_heads", "3", "num_key_value_heads: is 3, expected a divisor");
    refused(qwen35, "text_config.head_dim", "65537", "head_dim: is 65537");
    refused(qwen35, "text_config.num_attention_heads", "65536", "2 * num_attention_heads * head_dim: is 4194304");
    refused(qwen35, "text_config.hidden_act", "\"gelu\"", "hidden_act: is \"gelu\", expected silu");
    refused(qwen35, "text_config.rms_norm_eps", "0", "rms_norm_eps: is 0");
    refused(qwen35, "text_config.layer_types", "[\"full_attention\"]", "layer_types: has 1 entries, expected num_hidden_layers 4");
    refused(qwen35, "text_config.layer_types", "[1,2,3,4]", "layer_types[0]: is 1");
    refused(qwen35, "text_config.layer_types", "[\"full_attention\",\"full_attention\",\"mamba\",\"full_attention\"]",
            "layer_types[2]: is \"mamba\"");
    refused(qwen35, "text_config.layer_types",
            "[\"full_attention\",\"full_attention\",\"sliding_attention\",\"full_attention\"]", "layer_types[2]");
    refused(qwen35, "text_config.linear_num_value_heads", "5", "linear_num_value_heads: is 5, expected a multiple");
    refused(qwen35, "text_config.attn_output_gate", "false", "attn_output_gate: is false");
    refused(qwen35, "text_config.mtp_use_dedicated_embeddings", "true", "mtp_use_dedicated_embeddings");
    refused(qwen35, "text_config.rope_parameters.rope_type", "\"dynamic\"", "rope_parameters.rope_type: is \"dynamic\"");
    refused(qwen35, "text_config.rope_parameters.rope_type", "\"longrope\"", "rope_parameters.rope_type: is \"longrope\"");
    refused(qwen35, "text_config.rope_parameters.type", "\"linear\"", "rope_parameters.type: is \"linear\" but rope_type is");
    refused(qwen35, "text_config.rope_parameters.partial_rotary_factor", "0.1", "partial_rotary_factor: is 0.1, which rotates 3");
    refused(qwen35, "text_config.rope_parameters.partial_rotary_factor", "1.5", "partial_rotary_factor: is 1.5");
    refused(qwen35, "text_config.rope_parameters.rope_theta", "1", "rope_theta: is 1");
    refused(qwen35, "text_config.eos_token_id", "288", "eos_token_id: is 288, expected a token id below 288");
    refused(qwen35, "text_config.eos_token_id", "\"x\"", "eos_token_id: is \"x\"");
    refused(qwen35, "eos_token_id", "[0,1,2,3,4,5,6,7,8,10,11,12,13,14,15,16,17]", "eos_token_id: has more than 16");
}

static void experts_are_read(void **state) {
    (void)state;
    char *a = edited(qwen35, "model_type", "\"qwen3_5_moe\""), *b = edited(a, "text_config.model_type", "\"qwen3_5_moe_text\""),
         *c = edited(b, "text_config.num_experts", "8"), *d = edited(c, "text_config.num_experts_per_tok", "3"),
         *e = edited(d, "text_config.moe_intermediate_size", "24"),
         *moe = edited(e, "text_config.shared_expert_intermediate_size", "48");
    vb__model_config m = good_edit(moe, "text_config.intermediate_size", NULL);
    assert_int_equal(m.experts, 8);
    assert_int_equal(m.expert_intermediate, 24);
    assert_int_equal(m.shared_intermediate, 48);
    good_edit(moe, "text_config.mlp_only_layers", "[]");
    refused(moe, "text_config.mlp_only_layers", "[1]", "mlp_only_layers");
    refused(moe, "text_config.norm_topk_prob", "false", "norm_topk_prob");
    refused(moe, "text_config.num_experts_per_tok", "9", "num_experts_per_tok: is 9, expected an integer 1..8");
    refused(moe, "text_config.num_experts", NULL, "num_experts: is missing");
    free(a), free(b), free(c), free(d), free(e), free(moe);
}

static void dense_families_are_read(void **state) {
    (void)state;
    vb__model_config m = good(llama);
    assert_int_equal(m.kv_heads, 3);
    assert_int_equal(m.head_dim, 32);
    assert_int_equal(m.rope.rotated, 32);
    assert_true(m.rope.theta == 1e4 && m.eps == 1e-6f && !m.tied && !m.attention_bias && !m.o_bias && !m.qk_norm);
    m = good_edit(llama, "attention_bias", "true");
    assert_true(m.attention_bias && m.o_bias && !m.mlp_bias);
    m = good_edit(llama, "mlp_bias", "true");
    assert_true(m.mlp_bias);
    refused(llama, "sliding_window", "4096", "sliding_window: is set, expected null");
    refused(llama, "layer_types", "[\"full_attention\",\"sliding_attention\",\"full_attention\"]",
            "layer_types[1]: is \"sliding_attention\", expected full_attention as there is no sliding_window");
    char *off = edited(llama, "use_sliding_window", "false"); /* left over from another family */
    m = good_edit(off, "sliding_window", "4096");
    assert_true(m.sliding_window == 0 && m.layer_type[2] == VB_LAYER_FULL);
    free(off);
    char *mistral = edited(llama, "model_type", "\"mistral\"");
    m = good_edit(mistral, "sliding_window", "null");
    assert_true(m.sliding_window == 0 && m.layer_type[0] == VB_LAYER_FULL);
    char *window = edited(mistral, "sliding_window", "4096");
    m = good_edit(window, "use_sliding_window", "false"); /* which the stock implementation of mistral does not read */
    assert_true(m.sliding_window == 4096 && m.layer_type[0] == VB_LAYER_SLIDING && m.layer_type[2] == VB_LAYER_SLIDING);
    refused(window, "layer_types", "[\"sliding_attention\",\"full_attention\",\"full_attention\"]", "layer_types[1]: is \"full_attention\"");
    free(mistral), free(window);
    refused(llama, "num_attention_heads", "5", "head_dim: is missing, expected it as hidden_size 96");
    m = good(qwen3);
    assert_int_equal(m.head_dim, 128);
    assert_true(m.qk_norm && !m.attention_bias && m.sliding_window == 0);
    m = good_edit(qwen3, "sliding_window", "100"); /* a number, but off */
    assert_int_equal(m.sliding_window, 0);
    char *use = edited(qwen3, "use_sliding_window", "true"), *win = edited(use, "sliding_window", "100");
    m = good_edit(win, "max_window_layers", "2");
    assert_int_equal(m.sliding_window, 100);
    assert_int_equal(m.layer_type[1], VB_LAYER_FULL);
    assert_int_equal(m.layer_type[2], VB_LAYER_SLIDING);
    m = good(use); /* what is not said is 4096 from layer 28 on; null is no window */
    assert_true(m.sliding_window == 4096 && m.layer_type[3] == VB_LAYER_FULL);
    m = good_edit(use, "num_hidden_layers", "30");
    assert_true(m.layer_type[27] == VB_LAYER_FULL && m.layer_type[28] == VB_LAYER_SLIDING && m.layer_type[29] == VB_LAYER_SLIDING);
    m = good_edit(use, "sliding_window", "null");
    assert_int_equal(m.sliding_window, 0);
    free(use), free(win);
    char *q2 = edited(qwen3, "model_type", "\"qwen2\"");
    m = good_edit(q2, "head_dim", "16");
    assert_true(m.attention_bias && !m.o_bias && !m.qk_norm);
    free(q2);
    /* not read by the stock implementation of these, which rotates everything */
    m = good_edit(qwen3, "partial_rotary_factor", "1.0");
    assert_int_equal(m.rope.rotated, 128);
    refused(qwen3, "partial_rotary_factor", "0.5", "partial_rotary_factor: leaves 64 of 128 dims unrotated, expected 1 or no such key");
    refused(llama, "rope_parameters", "{\"rope_type\":\"default\",\"partial_rotary_factor\":0.5}", "partial_rotary_factor: leaves 16 of 32");
}

static void rope_scaling_is_read(void **state) {
    (void)state;
    vb__model_config m = good_edit(llama, "rope_scaling", "{\"type\":\"linear\",\"factor\":2.5}");
    assert_int_equal(m.rope.type, VB_ROPE_LINEAR);
    assert_true(m.rope.factor == 2.5);
    m = good_edit(llama, "rope_scaling", "{\"rope_type\":\"llama3\",\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
                                         "\"original_max_position_embeddings\":64}");
    assert_int_equal(m.rope.type, VB_ROPE_LLAMA3);
    assert_true(m.rope.original_max == 64 && m.rope.high_freq_factor == 4);
    m = good_edit(llama, "rope_parameters", "{\"rope_type\":\"yarn\",\"rope_theta\":5e5,\"original_max_position_embeddings\":1024}");
    assert_true(m.rope.theta == 5e5 && m.rope.factor == 4 && m.rope.beta_fast == 32 && m.rope.beta_slow == 1);
    assert_true(m.rope.attention_factor < 0 && m.rope.truncate && m.rope.mscale == 0);
    char *outer = edited(llama, "original_max_position_embeddings", "2048");
    m = good_edit(outer, "rope_parameters", "{\"rope_type\":\"yarn\",\"factor\":4,\"original_max_position_embeddings\":1024}");
    assert_true(m.rope.original_max == 2048);
    free(outer);
    m = good_edit(llama, "rope_scaling", "null");
    assert_int_equal(m.rope.type, VB_ROPE_DEFAULT);
    refused(llama, "rope_scaling", "{\"type\":\"linear\"}", "rope_scaling.factor: is missing");
    refused(llama, "rope_scaling", "{\"type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4}",
            "high_freq_factor: is 4, expected more than");
    refused(llama, "rope_scaling", "{\"type\":\"llama3\",\"factor\":8,\"high_freq_factor\":4}", "low_freq_factor: is missing");
    refused(llama, "rope_scaling", "[]", "rope_scaling: is an array");
    char *both = edited(llama, "rope_parameters", "{\"rope_type\":\"default\"}");
    refused(both, "rope_scaling", "{\"type\":\"linear\",\"factor\":2}", "rope_scaling: differs from rope_parameters");
    free(both);
}

static void drafters_are_read(void **state) {
    (void)state;
    vb__model_config m = good(dflash);
    assert_int_equal(m.arch, VB_ARCH_DFLASH);
    assert_int_equal(m.block_size, 16);
    assert_int_equal(m.n_taps, 3);
    assert_int_equal(m.taps[2], 9);
    assert_int_equal(m.mask_token, 16377);
    assert_int_equal(m.causal, -1);
    assert_true(m.qk_norm && !m.zero_centred_norms);
    m = good_edit(dflash, "is_causal", "false");
    assert_int_equal(m.causal, 0);
    m = good_edit(dflash, "dflash_config.causal", "true");
    assert_int_equal(m.causal, 1);
    m = good_edit(dflash, "dflash_config.block_size", "8");
    assert_int_equal(m.block_size, 8);
    m = good_edit(dflash, "architectures", NULL); /* known by its block */
    assert_int_equal(m.arch, VB_ARCH_DFLASH);
    refused(dflash, "architectures", "[\"DFlash2DraftModel\"]", "architectures: is \"DFlash2DraftModel\"");
    refused(dflash, "markov_rank", "4", "markov_rank: belongs to a derivative");
    refused(dflash, "draft_vocab_size", "32000", "draft_vocab_size");
    refused(dflash, "dflash_config.selector_rank", "4", "dflash_config.selector_rank: is not supported");
    refused(dflash, "dflash_config.mask_token_id", "16384", "mask_token_id: is 16384");
    refused(dflash, "dflash_config.mask_token_id", NULL, "mask_token_id: is missing");
    refused(dflash, "dflash_config.target_layer_ids", "[1,1]", "target_layer_ids[1]: is 1, expected strictly ascending");
    refused(dflash, "dflash_config.target_layer_ids", "[1,12]", "target_layer_ids[1]: is 12");
    refused(dflash, "dflash_config.target_layer_ids", "[]", "target_layer_ids: is empty");
    refused(dflash, "num_target_layers", NULL, "num_target_layers: is missing");
    refused(dflash, "rope_theta", NULL, "rope_theta: is missing");
    refused(dflash, "layer_types", "[\"sliding_attention\",\"full_attention\",\"full_attention\"]", "sliding_window: is missing");
}

static void default_taps_follow_the_rule(void **state) {
    (void)state;
    static const struct {
        int target, layers, taps[8];
    } cases[] = {{24, 5, {1, 6, 11, 16, 21}},       {28, 5, {1, 7, 13, 19, 25}},  {32, 5, {1, 8, 15, 22, 29}},
                 {36, 5, {1, 9, 17, 25, 33}},       {40, 5, {1, 10, 19, 28, 37}}, {48, 5, {1, 12, 23, 34, 45}},
                 {64, 5, {1, 16, 31, 46, 61}},      {32, 8, {1, 5, 9, 13, 17, 21, 25, 29}}, {32, 1, {16}},
                 {11, 3, {1, 4, 8}} /* 4.5 goes to the even 4 */};
    char *none = edited(dflash, "dflash_config.target_layer_ids", NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char n[16], d[16];
        (void)snprintf(n, sizeof n, "%d", cases[i].target);
        (void)snprintf(d, sizeof d, "%d", cases[i].layers);
        char *a = edited(none, "num_target_layers", n);
        vb__model_config m = good_edit(a, "num_hidden_layers", d);
        free(a);
        assert_int_equal(m.n_taps, cases[i].layers);
        for (int t = 0; t < m.n_taps; t++) assert_int_equal(m.taps[t], cases[i].taps[t]);
    }
    refused(none, "num_target_layers", "5", "target_layer_ids: is missing");
    free(none);
}

static void quantisation_is_checked(void **state) {
    (void)state;
    static const struct {
        const char *text, *says; /* says NULL: good */
    } cases[] = {
        {"{}", NULL},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64}}", NULL},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"mode\":\"affine\",\"a.b\":{\"bits\":8,\"group_size\":32},\"c\":false}}", NULL},
        {"{\"quantization_config\":{\"bits\":4,\"group_size\":64}}", NULL},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"mode\":\"mxfp4\"}}", "quantization.mode: is \"mxfp4\", expected affine"},
        {"{\"quantization\":{\"bits\":7,\"group_size\":64}}", NULL},
        {"{\"quantization\":{\"bits\":1,\"group_size\":64}}", "quantization.bits: is 1"},
        {"{\"quantization\":{\"bits\":9,\"group_size\":64}}", "quantization.bits: is 9"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":48}}", "quantization.group_size: is 48"},
        {"{\"quantization\":{\"bits\":4}}", "quantization.group_size: is missing"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"a\":{\"bits\":1,\"group_size\":64}}}", "quantization.a.bits: is 1"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"a\":true}}", NULL},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"vision_tower.a\":{\"bits\":8,\"group_size\":32,\"mode\":\"mxfp8\"}}}", NULL},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64,\"a\":{\"bits\":8,\"group_size\":32,\"mode\":\"mxfp8\"}}}",
         "quantization.a.mode: is \"mxfp8\", expected affine"},
        {"{\"quantization\":{\"bits\":4,\"group_size\":64},\"quantization_config\":{\"bits\":8,\"group_size\":64}}", "differs from"},
        {"{\"quantization_config\":{\"quant_method\":\"fp8\"}}", "quant_method: is \"fp8\""},
        {"{\"quantization\":4}", "quantization: is 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *root = json_loads(cases[i].text, 0, NULL);
        vb_error err = {0};
        vb_err e = vb__quant_spec_check(root, "config.json", &err);
        if ((e == VB_OK) != (cases[i].says == NULL)) fail_msg("%s: %s", cases[i].text, err.text);
        if (e != VB_OK && strstr(err.text, cases[i].says) == NULL) fail_msg("\"%s\" lacks \"%s\"", err.text, cases[i].says);
        if (i == 2) {
            vb__quant_spec q = vb__quant_spec_of(root, "a.b");
            assert_true(q.given && !q.off && q.bits == 8 && q.group == 32);
            q = vb__quant_spec_of(root, "c");
            assert_true(q.given && q.off);
            q = vb__quant_spec_of(root, "d");
            assert_true(q.given && !q.off && q.bits == 4 && q.group == 64);
        }
        json_decref(root);
    }
}

/* Keys with another prefix than the tensors': the file's own first, then the others. */
static void quantisation_keys_have_prefixes(void **state) {
    (void)state;
    json_t *root = json_loads("{\"quantization\":{\"bits\":4,\"group_size\":64,\"a\":true,"
                              "\"model.language_model.layers.0.x\":{\"bits\":8,\"group_size\":64},"
                              "\"language_model.model.layers.1.x\":{\"bits\":5,\"group_size\":64},"
                              "\"model.layers.2.x\":{\"bits\":6,\"group_size\":32},\"layers.2.x\":{\"bits\":2,\"group_size\":32},"
                              "\"lm_head\":{\"bits\":3,\"group_size\":128}}}", 0, NULL);
    static const struct {
        const char *module;
        int bits;
    } cases[] = {{"language_model.model.layers.0.x", 8}, {"model.layers.0.x", 8}, {"layers.0.x", 8}, {"model.layers.1.x", 5},
                 {"language_model.model.layers.1.x", 5}, {"model.language_model.layers.2.x", 6}, {"model.layers.2.x", 6},
                 {"layers.2.x", 2},                      {"language_model.lm_head", 3},          {"lm_head", 3},
                 {"model.layers.3.x", 4},                {"a", 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        vb__quant_spec q = vb__quant_spec_of(root, cases[i].module);
        if (q.bits != cases[i].bits || q.off) fail_msg("%s: %d bits, expected %d", cases[i].module, q.bits, cases[i].bits);
    }
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_5_is_read),
        cmocka_unit_test(every_key_of_qwen3_5_is_required),
        cmocka_unit_test(values_that_cannot_be_are_refused),
        cmocka_unit_test(experts_are_read),
        cmocka_unit_test(dense_families_are_read),
        cmocka_unit_test(rope_scaling_is_read),
        cmocka_unit_test(drafters_are_read),
        cmocka_unit_test(default_taps_follow_the_rule),
        cmocka_unit_test(quantisation_is_checked),
        cmocka_unit_test(quantisation_keys_have_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
