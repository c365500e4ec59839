/* A file mapped read-only. Not for small files (base/file.h). A file that is cut short by someone else while it is
 * mapped raises SIGBUS on access, as with every program that maps files. */
#ifndef VB_FORMAT_MAPPED_H
#define VB_FORMAT_MAPPED_H
#include "base/error.h"
#include <stdint.h>

typedef struct vb__mapped {
    const uint8_t *data; /* never NULL after open, also for an empty file */
    uint64_t size;
} vb__mapped;

/* Regular files only (links are followed). Errors begin with the path. */
VB_MUST_USE vb_err vb__mapped_open(const char *path, vb__mapped *out, vb_error *err);
void vb__mapped_close(vb__mapped *m); /* a zeroed one too */
/* Advice about the pages that hold data[off .. off+len-1]: read them ahead; let the cache have them back. */
void vb__mapped_will_need(const vb__mapped *m, uint64_t off, uint64_t len);
void vb__mapped_release(const vb__mapped *m, uint64_t off, uint64_t len);

#endif
