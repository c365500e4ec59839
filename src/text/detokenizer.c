#include "text/detokenizer.h"
#include "base/alloc.h"
#include "text/tokenizer_parts.h"

struct vb__detokenizer {
    const vb__tokenizer *t;
    bool skip_special;
    vb__dec_stream stream;
};

vb_err vb__detokenizer_create(const vb__tokenizer *t, bool skip_special, vb__detokenizer **out,
                              vb_error *err) {
    vb__detokenizer *d = vb__calloc(VB_TAG_TEXT, 1, sizeof *d);
    if (d == NULL) return vb__fail(err, VB_E_MEMORY, "detokenizer: out of memory");
    d->t = t;
    d->skip_special = skip_special;
    vb__dec_stream_init(&d->stream);
    *out = d;
    return VB_OK;
}

void vb__detokenizer_destroy(vb__detokenizer *d) {
    if (d == NULL) return;
    vb__dec_stream_fini(&d->stream);
    vb__free(d);
}

void vb__detokenizer_reset(vb__detokenizer *d) { vb__dec_stream_reset(&d->stream); }

vb_err vb__detokenizer_push(vb__detokenizer *d, int32_t id, const char **text, size_t *n, vb_error *err) {
    vb__buffer_clear(&d->stream.out);
    *text = "";
    *n = 0;
    size_t len = 0;
    const char *token = vb__tokenizer_decode_text(d->t, id, &len);
    if (token == NULL || (d->skip_special && vb__tokenizer_is_special(d->t, id))) return VB_OK;
    VB_TRY(vb__decoder_push(&d->t->decoder, &d->stream, token, len, err));
    *text = vb__buffer_str(&d->stream.out);
    *n = d->stream.out.len;
    return VB_OK;
}

vb_err vb__detokenizer_end(vb__detokenizer *d, const char **text, size_t *n, vb_error *err) {
    vb__buffer_clear(&d->stream.out);
    VB_TRY(vb__decoder_end(&d->t->decoder, &d->stream, err));
    vb__dec_stream_reset(&d->stream);
    *text = vb__buffer_str(&d->stream.out);
    *n = d->stream.out.len;
    return VB_OK;
}
