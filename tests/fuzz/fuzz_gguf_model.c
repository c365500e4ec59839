/* A GGUF file as a whole checkpoint: any bytes open and are asked for what their config implies, or give an error with a
 * sentence. The file is a memory file. */
#include "base/log.h"
#include "model/checkpoint_impl.h"
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void ask(vb__checkpoint *c) {
    const vb__model_config *m = vb__checkpoint_config(c);
    vb_error err = {0};
    vb__matrix w;
    if (m->layers < 1 || m->heads % m->kv_heads != 0 || m->rope.rotated % 2 != 0 || m->n_eos > VB_MAX_EOS) abort();
    if (vb__checkpoint_matrix(c, "embed_tokens", m->vocab, m->hidden, &w, &err) == VB_OK && w.kind == VB_MATRIX_BLOCKS) {
        int8_t *codes = malloc((size_t)w.k);
        float *scales = malloc((size_t)(w.k / w.group) * 8);
        if (codes == NULL || scales == NULL) abort();
        w.unpack(w.format, (const uint8_t *)w.data + (w.n - 1) * w.row_bytes, w.k, codes, scales, scales + w.k / w.group);
        for (int32_t i = 0; i < w.k; i++)
            if (codes[i] < -w.offset || codes[i] + w.offset >= 1 << w.bits) abort();
        free(codes);
        free(scales);
    }
    (void)!vb__checkpoint_matrix(c, "layers.0.self_attn.q_proj", m->heads * m->head_dim, m->hidden, &w, &err);
    (void)!vb__checkpoint_matrix(c, "layers.0.mlp.experts.1.up_proj", m->expert_intermediate, m->hidden, &w, &err);
    if (m->hidden <= 4096) {
        float v[4096];
        (void)!vb__checkpoint_vector(c, "norm", VB_VECTOR_NORM, m->hidden, v, &err);
    }
    if (vb__checkpoint_finish(c, &err) != VB_OK && err.text[0] == '\0') abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int fd = -1;
    vb__log_set(NULL, NULL, VB_LOG_ERROR);
    if (fd < 0) fd = memfd_create("fuzz", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != (ssize_t)size) return 0;
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    vb__checkpoint *c = NULL;
    vb_error err = {0};
    if (vb__checkpoint_open_gguf(path, &c, &err) != VB_OK) {
        if (err.text[0] == '\0') abort();
        return 0;
    }
    ask(c);
    vb__checkpoint_close(c);
    return 0;
}
