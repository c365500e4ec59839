#include "engine/memo.h"
#include "base/alloc.h"
#include "base/buffer.h"
#include "base/file.h"
#include "engine/home.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HOME_PATH_MAX = 4096 };

void vb__memo_scan(const char *text, size_t n, const char *key, vb__memo_rest *rest, void *user) {
    const size_t len = strlen(key);
    for (const char *at = text, *end = text + n; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) return;
        size_t size = (size_t)(stop - at);
        char line[VB_MEMO_LINE_MAX];
        if (size < sizeof line && size > len && memcmp(at, key, len) == 0 && at[len] == ' ' && memchr(at, '\0', size) == NULL) {
            memcpy(line, at + len + 1, size - len - 1);
            line[size - len - 1] = '\0';
            rest(user, line);
        }
        at = stop + 1;
    }
}

/* O_NONBLOCK: a pipe in the file's place must not be waited for. -1 with errno. */
static int open_regular(const char *path, int flags, struct stat *st) {
    int fd = open(path, flags | O_NONBLOCK | O_CLOEXEC, 0600);
    if (fd < 0) return -1;
    if (fstat(fd, st) == 0 && S_ISREG(st->st_mode)) return fd;
    (void)close(fd);
    errno = EINVAL;
    return -1;
}

/* The last `max` bytes of a file, from the beginning of a line on. */
static vb_err read_end(int fd, off_t size, size_t max, vb__buffer *b) {
    off_t at = size > (off_t)max ? size - (off_t)max : 0;
    bool inside = at > 0;
    char block[1 << 14];
    for (;;) {
        ssize_t n = pread(fd, block, sizeof block, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return VB_E_IO;
        const char *from = block;
        if (inside && n > 0) { /* the line that the cut goes through */
            from = memchr(block, '\n', (size_t)n);
            inside = from == NULL;
            from = inside ? block + n : from + 1;
        }
        VB_TRY(vb__buffer_append(b, from, (size_t)(block + n - from)));
        at += n;
        if (n == 0 || at >= size) return VB_OK; /* lines that come meanwhile are for the next time */
    }
}

void vb__memo_read(const char *name, const char *key, vb__memo_rest *rest, void *user) {
    char path[HOME_PATH_MAX];
    struct stat st;
    int fd = vb__home_path(name, path, sizeof path) ? open_regular(path, O_RDONLY, &st) : -1;
    if (fd < 0) return;
    vb__buffer b;
    vb__buffer_init(&b, 2 * VB_MEMO_MAX);
    if (read_end(fd, st.st_size, VB_MEMO_MAX, &b) == VB_OK) vb__memo_scan(vb__buffer_str(&b), b.len, key, rest, user);
    vb__buffer_fini(&b);
    (void)close(fd);
}

/* The file with its last half alone takes the place of the whole. Lines that others append meanwhile may be lost: then they are measured
 * again. */
static void shorten(const char *path) {
    struct stat st;
    vb_error err;
    vb__buffer b;
    int fd = open_regular(path, O_RDONLY, &st);
    if (fd < 0) return;
    vb__buffer_init(&b, 2 * VB_MEMO_MAX);
    if (read_end(fd, st.st_size, VB_MEMO_MAX / 2, &b) == VB_OK) (void)!vb__file_write(path, vb__buffer_str(&b), b.len, &err);
    vb__buffer_fini(&b);
    (void)close(fd);
}

vb_err vb__memo_append(const char *name, const char *line, vb_error *err) {
    char path[HOME_PATH_MAX], text[VB_MEMO_LINE_MAX + 1];
    struct stat st;
    VB_TRY(vb__home_create(err));
    if (!vb__home_path(name, path, sizeof path)) return vb__fail(err, VB_E_RANGE, "VERBATIM_HOME: the path is too long");
    size_t n = strlen(line);
    if (n >= VB_MEMO_LINE_MAX) return vb__fail(err, VB_E_RANGE, "%s: a line of %zu bytes, expected less than %d", path, n, VB_MEMO_LINE_MAX);
    int fd = open_regular(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, &st);
    if (fd < 0 && errno == EINVAL) return vb__fail(err, VB_E_IO, "%s: is not a regular file, expected one or none", path);
    if (fd < 0) return vb__fail(err, VB_E_IO, "%s: cannot be opened (%s)", path, strerror(errno));
    /* A line that was cut short must not take ours with it. */
    char last = '\n';
    size_t lead = st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 && last != '\n';
    text[0] = '\n';
    memcpy(text + lead, line, n);
    ssize_t wrote = n > 0 ? write(fd, text, n + lead) : 0;
    int rc = close(fd);
    if (wrote != (ssize_t)(n > 0 ? n + lead : 0) || rc != 0) return vb__fail(err, VB_E_IO, "%s: could not be written", path);
    if (st.st_size > VB_MEMO_MAX) shorten(path);
    return VB_OK;
}
