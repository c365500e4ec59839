/* model/config and its quantization block: any bytes give a config within its limits or an error with a sentence. */
#include "base/json.h"
#include "model/config.h"
#include "model/quant_spec.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    vb__model_config m;
    vb_error err = {0};
    if (vb__config_parse((const char *)data, size, "input", &m, &err) != VB_OK) {
        must(err.text[0] != '\0');
    } else {
        must(m.layers >= 1 && m.layers <= VB_LIMIT_LAYERS && m.heads >= 1 && m.kv_heads >= 1 && m.heads % m.kv_heads == 0);
        must(m.rope.rotated >= 2 && m.rope.rotated % 2 == 0 && m.rope.rotated <= m.head_dim && m.rope.theta > 1);
        must(m.eps > 0 && m.vocab >= 1 && m.hidden >= 1 && m.n_eos <= VB_MAX_EOS && m.n_taps <= VB_MAX_TAPS);
        must((int64_t)m.heads * m.head_dim <= VB_LIMIT_WIDTH);
    }
    json_t *root = NULL;
    if (vb__json_parse((const char *)data, size, 1 << 20, "input", &root, &err) != VB_OK) return 0;
    if (vb__quant_spec_check(root, "input", &err) == VB_OK) {
        vb__quant_spec q = vb__quant_spec_of(root, "lm_head");
        must(!q.given || (q.bits >= 2 && q.bits <= 8 && q.group >= 32));
    }
    json_decref(root);
    return 0;
}
