/* Whole small files: read with a limit, written so that a reader sees the old file or the new one and never
 * half of one. Large files that stay on disk are mapped (format/mapped.h). */
#ifndef VB_BASE_FILE_H
#define VB_BASE_FILE_H
#include "base/buffer.h"
#include <stdbool.h>

/* "dir/name", the caller's (vb__free). NULL when out of memory. */
char *vb__path_join(const char *dir, const char *name);
/* The part behind the last '/'; borrowed. */
const char *vb__path_base(const char *path);
/* True when `name` is one plain file name: not empty, no '/', no backslash, not "." or "..", no control bytes. */
bool vb__path_plain_name(const char *name);
bool vb__file_exists(const char *path); /* a regular file, links followed */
bool vb__file_is_dir(const char *path);

/* Appends the file's bytes to `out`. Regular files only (links followed). VB_E_NOT_FOUND, VB_E_IO, VB_E_LIMIT when
 * larger than `max` bytes. Errors begin with the path. */
VB_MUST_USE vb_err vb__file_read(const char *path, size_t max, vb__buffer *out, vb_error *err);

/* The path at which a file named `path` is made or replaced: where links lead, else `path` itself; the caller's
 * (vb__free). VB_E_IO for what is there and is no regular file: renaming onto a device would remove it. */
VB_MUST_USE vb_err vb__file_target(const char *path, char **target, vb_error *err);

/* A file in the making: path + ".part", renamed to `path` by commit. The path is resolved by vb__file_target. */
typedef struct vb__file_writer {
    int fd;
    char *path, *temp;
    char *buf; /* bytes not yet written */
    size_t used;
} vb__file_writer;

VB_MUST_USE vb_err vb__file_writer_open(vb__file_writer *w, const char *path, vb_error *err);
VB_MUST_USE vb_err vb__file_writer_put(vb__file_writer *w, const void *data, size_t n, vb_error *err);
/* Writes out, fsyncs, renames, fsyncs the folder. The writer is finished, also on failure. */
VB_MUST_USE vb_err vb__file_writer_commit(vb__file_writer *w, vb_error *err);
/* Removes the temporary file; no-op after commit or on a zeroed writer. */
void vb__file_writer_abort(vb__file_writer *w);
VB_MUST_USE vb_err vb__file_write(const char *path, const void *data, size_t n, vb_error *err);

#endif
