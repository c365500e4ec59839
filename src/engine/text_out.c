#include "engine/text_out.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "text/detokenizer.h"
#include "verbatim/verbatim.h"
#include <string.h>

struct vb__text_out {
    vb__detokenizer *detok;
    vb__stop_matcher *stops;
    vb__buffer last; /* what end returns: two pieces together */
    int32_t n_stops;
    char *stop[VB_MAX_STOPS];
};

vb_err vb__text_out_create(const vb__tokenizer *tok, const char *const *stops, int32_t n_stops, vb__text_out **out,
                           vb_error *err) {
    size_t lengths[VB_MAX_STOPS];
    if (n_stops < 0 || n_stops > VB_MAX_STOPS)
        return vb__fail(err, VB_E_RANGE, "stop: %d strings, expected at most %d", n_stops, VB_MAX_STOPS);
    vb__text_out *t = vb__calloc(VB_TAG_ENGINE, 1, sizeof *t);
    if (t == NULL) return vb__fail(err, VB_E_MEMORY, "text: out of memory");
    vb_err e;
    vb__buffer_init(&t->last, 1 << 20);
    for (int32_t i = 0; i < n_stops; i++) {
        lengths[i] = strlen(stops[i]);
        t->stop[i] = vb__strdup(VB_TAG_ENGINE, stops[i]);
        t->n_stops = i + 1;
        if (t->stop[i] == NULL) {
            e = vb__fail(err, VB_E_MEMORY, "stop: out of memory");
            goto out;
        }
    }
    VB_TRY_OUT(vb__detokenizer_create(tok, true, &t->detok, err));
    VB_TRY_OUT(vb__stop_create(stops, lengths, (size_t)n_stops, &t->stops, err));
    *out = t;
    return VB_OK;
out:
    vb__text_out_destroy(t);
    return e;
}

void vb__text_out_destroy(vb__text_out *t) {
    if (t == NULL) return;
    vb__detokenizer_destroy(t->detok);
    vb__stop_destroy(t->stops);
    vb__buffer_fini(&t->last);
    for (int32_t i = 0; i < t->n_stops; i++) vb__free(t->stop[i]);
    vb__free(t);
}

vb_err vb__text_out_push(vb__text_out *t, int32_t id, const char **text, size_t *len, const char **stop) {
    const char *piece;
    size_t n;
    int32_t match = -1;
    *stop = NULL;
    VB_TRY(vb__detokenizer_push(t->detok, id, &piece, &n, NULL));
    VB_TRY(vb__stop_push(t->stops, piece, n, text, len, &match));
    if (match >= 0) *stop = t->stop[match];
    return VB_OK;
}

vb_err vb__text_out_end(vb__text_out *t, const char **text, size_t *len) {
    const char *piece, *passed, *held;
    size_t n, n_passed, n_held;
    int32_t match = -1;
    VB_TRY(vb__detokenizer_end(t->detok, &piece, &n, NULL));
    VB_TRY(vb__stop_push(t->stops, piece, n, &passed, &n_passed, &match));
    vb__buffer_clear(&t->last);
    VB_TRY(vb__buffer_append(&t->last, passed, n_passed));
    if (match < 0) {
        vb__stop_end(t->stops, &held, &n_held);
        VB_TRY(vb__buffer_append(&t->last, held, n_held));
    }
    *text = vb__buffer_str(&t->last);
    *len = t->last.len;
    return VB_OK;
}
