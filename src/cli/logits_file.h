/* --logits-out: a safetensors file with one tensor `logits`, f32 [rows, vocabulary], written row by row. */
#ifndef VB_CLI_LOGITS_FILE_H
#define VB_CLI_LOGITS_FILE_H
#include "verbatim/vb_error.h"
#include <stdint.h>
#include <stdio.h>

typedef struct vb__logits_file {
    FILE *f; /* path + ".part", renamed when complete */
    char *path, *temp;
    int64_t rows;
    int32_t vocab;
} vb__logits_file;

VB_MUST_USE vb_err vb__logits_file_open(vb__logits_file *w, const char *path, int32_t vocab, vb_error *err);
VB_MUST_USE vb_err vb__logits_file_row(vb__logits_file *w, const float *logits, vb_error *err);
VB_MUST_USE vb_err vb__logits_file_commit(vb__logits_file *w, vb_error *err);
/* Removes what was written; no-op after commit or on a zeroed struct. */
void vb__logits_file_abort(vb__logits_file *w);

#endif
