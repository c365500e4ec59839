/* Writing logits as safetensors. See logits_file.h. The number of rows is known only at the end, so the
 * header has a fixed size, padded with spaces as the format allows, and is written twice. */
#include "cli/logits_file.h"
#include "base/buffer.h"
#include "base/error.h"
#include "base/file.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

enum { HEADER = 248 }; /* with the length in front: 256 bytes, so that rows are aligned */

static vb_err failed(const vb__logits_file *w, vb_error *err) {
    return vb__fail(err, VB_E_IO, "%.150s: %s, expected to write logits", w->path, strerror(errno));
}

static vb_err put_header(vb__logits_file *w, vb_error *err) {
    char h[HEADER + 1];
    int64_t bytes = w->rows * w->vocab * 4;
    int n = snprintf(h, sizeof h,
                     "{\"logits\":{\"dtype\":\"F32\",\"shape\":[%" PRId64 ",%d],\"data_offsets\":[0,%" PRId64
                     "]}}",
                     w->rows, w->vocab, bytes);
    vb_check(n > 0 && n < HEADER);
    memset(h + n, ' ', (size_t)(HEADER - n));
    uint64_t length = HEADER;
    if (fseeko(w->f, 0, SEEK_SET) != 0 || fwrite(&length, 8, 1, w->f) != 1 || fwrite(h, HEADER, 1, w->f) != 1)
        return failed(w, err);
    return VB_OK;
}

vb_err vb__logits_file_open(vb__logits_file *w, const char *path, int32_t vocab, vb_error *err) {
    vb__buffer b;
    *w = (vb__logits_file){.vocab = vocab};
    VB_TRY(vb__file_target(path, &w->path, err));
    vb__buffer_init(&b, 1 << 16);
    (void)vb__buffer_printf(&b, "%s.part", w->path);
    w->temp = vb__buffer_take(&b);
    vb__buffer_fini(&b);
    if (!w->temp) {
        vb__logits_file_abort(w);
        return vb__fail(err, VB_E_MEMORY, "--logits-out: out of memory");
    }
    w->f = fopen(w->temp, "wb");
    vb_err e = w->f ? put_header(w, err) : failed(w, err);
    if (e != VB_OK) vb__logits_file_abort(w);
    return e;
}

vb_err vb__logits_file_row(vb__logits_file *w, const float *logits, vb_error *err) {
    if (fwrite(logits, sizeof *logits, (size_t)w->vocab, w->f) != (size_t)w->vocab) return failed(w, err);
    w->rows++;
    return VB_OK;
}

vb_err vb__logits_file_commit(vb__logits_file *w, vb_error *err) {
    vb_err e = put_header(w, err);
    if (e == VB_OK && (fflush(w->f) != 0 || fsync(fileno(w->f)) != 0 || rename(w->temp, w->path) != 0))
        e = failed(w, err);
    if (e == VB_OK) {
        fclose(w->f);
        w->f = NULL;
        vb__free(w->temp);
        w->temp = NULL;
    }
    vb__logits_file_abort(w);
    return e;
}

void vb__logits_file_abort(vb__logits_file *w) {
    if (w->f) fclose(w->f);
    if (w->f && w->temp) unlink(w->temp);
    vb__free(w->temp);
    vb__free(w->path);
    *w = (vb__logits_file){0};
}
