#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h> /* PATH_MAX; here <limits.h> is the one beside this file */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *vb__path_join(const char *dir, const char *name) {
    size_t d = strlen(dir), n = strlen(name);
    bool slash = d != 0 && dir[d - 1] != '/';
    char *p = vb__alloc(VB_TAG_MISC, d + n + 2);
    if (p == NULL) return NULL;
    memcpy(p, dir, d);
    if (slash) p[d++] = '/';
    memcpy(p + d, name, n + 1);
    return p;
}

const char *vb__path_base(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

bool vb__path_plain_name(const char *name) {
    if (name[0] == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0) return false;
    for (const char *p = name; *p != '\0'; p++)
        if (*p == '/' || *p == '\\' || (unsigned char)*p < 0x20 || *p == 0x7f) return false;
    return true;
}

bool vb__file_exists(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

bool vb__file_is_dir(const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

vb_err vb__file_read(const char *path, size_t max, vb__buffer *out, vb_error *err) {
    /* O_NONBLOCK: opening a pipe must not wait for a writer. */
    if (path[0] == '\0') return vb__fail(err, VB_E_NOT_FOUND, "file name: is empty, expected a readable file");
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        vb_err code = errno == ENOENT || errno == ENOTDIR ? VB_E_NOT_FOUND : VB_E_IO;
        return vb__fail(err, code, "%s: cannot be opened: %s, expected a readable file", path, strerror(errno));
    }
    vb_err e = VB_OK;
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        e = vb__fail(err, VB_E_IO, "%s: is not a regular file, expected one", path);
        goto out;
    }
    if ((uint64_t)st.st_size > max) {
        e = vb__fail(err, VB_E_LIMIT, "%s: has %lld bytes, expected at most %zu", path, (long long)st.st_size, max);
        goto out;
    }
    size_t left = (size_t)st.st_size;
    e = vb__buffer_reserve(out, left);
    if (e != VB_OK) {
        e = vb__fail(err, e, "%s: no memory for %zu bytes", path, left);
        goto out;
    }
    char block[1 << 14];
    size_t total = 0;
    for (;;) {
        ssize_t n = read(fd, block, sizeof block);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            e = vb__fail(err, VB_E_IO, "%s: cannot be read: %s", path, strerror(errno));
            goto out;
        }
        if (n == 0) break;
        total += (size_t)n;
        if (total > max) {
            e = vb__fail(err, VB_E_LIMIT, "%s: grew over %zu bytes while it was read", path, max);
            goto out;
        }
        e = vb__buffer_append(out, block, (size_t)n);
        if (e != VB_OK) {
            e = vb__fail(err, e, "%s: no memory for %zu bytes", path, total);
            goto out;
        }
    }
out:
    (void)close(fd);
    return e;
}

/* ---- writing -------------------------------------------------------------------------------------------- */

enum { FILE_WRITE_BUFFER = 1 << 20 };

vb_err vb__file_target(const char *path, char **target, vb_error *err) {
    struct stat st, link;
    if (path[0] == '\0') return vb__fail(err, VB_E_NOT_FOUND, "file name: is empty, expected a file to write");
    bool there = stat(path, &st) == 0;
    if (there && !S_ISREG(st.st_mode))
        return vb__fail(err, VB_E_IO, "%s: is not a regular file, expected one that can be replaced", path);
    char whole[PATH_MAX];
    bool is_link = there && lstat(path, &link) == 0 && S_ISLNK(link.st_mode);
    *target = vb__strdup(VB_TAG_MISC, is_link && realpath(path, whole) != NULL ? whole : path);
    return *target != NULL ? VB_OK : vb__fail(err, VB_E_MEMORY, "%s: out of memory", path);
}

static vb_err writer_fail(vb__file_writer *w, vb_error *err, const char *what) {
    vb_err e = vb__fail(err, VB_E_IO, "%s: cannot be %s: %s", w->temp, what, strerror(errno));
    vb__file_writer_abort(w);
    return e;
}

vb_err vb__file_writer_open(vb__file_writer *w, const char *path, vb_error *err) {
    *w = (vb__file_writer){.fd = -1};
    VB_TRY(vb__file_target(path, &w->path, err));
    path = w->path;
    size_t n = strlen(path);
    w->temp = vb__alloc(VB_TAG_MISC, n + 6);
    w->buf = vb__alloc(VB_TAG_MISC, FILE_WRITE_BUFFER);
    if (w->path == NULL || w->temp == NULL || w->buf == NULL) {
        vb_err e = vb__fail(err, VB_E_MEMORY, "%s: no memory for writing", path);
        vb__file_writer_abort(w);
        return e;
    }
    memcpy(w->temp, path, n);
    memcpy(w->temp + n, ".part", 6);
    w->fd = open(w->temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (w->fd < 0) return writer_fail(w, err, "created");
    return VB_OK;
}

static vb_err writer_flush(vb__file_writer *w, const char *data, size_t n, vb_error *err) {
    while (n != 0) {
        ssize_t k = write(w->fd, data, n);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) return writer_fail(w, err, "written");
        data += k;
        n -= (size_t)k;
    }
    return VB_OK;
}

vb_err vb__file_writer_put(vb__file_writer *w, const void *data, size_t n, vb_error *err) {
    const char *p = data;
    while (n != 0) {
        if (w->used == FILE_WRITE_BUFFER) {
            VB_TRY(writer_flush(w, w->buf, w->used, err));
            w->used = 0;
        }
        size_t k = FILE_WRITE_BUFFER - w->used < n ? FILE_WRITE_BUFFER - w->used : n;
        memcpy(w->buf + w->used, p, k);
        w->used += k;
        p += k;
        n -= k;
    }
    return VB_OK;
}

vb_err vb__file_writer_commit(vb__file_writer *w, vb_error *err) {
    VB_TRY(writer_flush(w, w->buf, w->used, err));
    if (fsync(w->fd) != 0) return writer_fail(w, err, "written");
    int fd = w->fd;
    w->fd = -1;
    if (close(fd) != 0) return writer_fail(w, err, "written");
    if (rename(w->temp, w->path) != 0) return writer_fail(w, err, "renamed");
    const char *base = vb__path_base(w->path);
    size_t n = (size_t)(base - w->path);
    char *dir = n == 0 ? vb__strdup(VB_TAG_MISC, ".") : vb__strndup(VB_TAG_MISC, w->path, n);
    if (dir != NULL) { /* the name itself must survive a power cut; not every file system can do it */
        int d = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (d >= 0) {
            (void)fsync(d);
            (void)close(d);
        }
        vb__free(dir);
    }
    vb__free(w->temp);
    w->temp = NULL;
    vb__file_writer_abort(w);
    return VB_OK;
}

void vb__file_writer_abort(vb__file_writer *w) {
    if (w->fd > 0) (void)close(w->fd);
    if (w->temp != NULL) (void)unlink(w->temp);
    vb__free(w->path);
    vb__free(w->temp);
    vb__free(w->buf);
    *w = (vb__file_writer){.fd = -1};
}

vb_err vb__file_write(const char *path, const void *data, size_t n, vb_error *err) {
    vb__file_writer w;
    VB_TRY(vb__file_writer_open(&w, path, err));
    VB_TRY(vb__file_writer_put(&w, data, n, err));
    return vb__file_writer_commit(&w, err);
}
