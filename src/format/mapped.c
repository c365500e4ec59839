#include "format/mapped.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t empty_file[1];

vb_err vb__mapped_open(const char *path, vb__mapped *out, vb_error *err) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make it wait */
    if (fd < 0) {
        vb_err code = errno == ENOENT || errno == ENOTDIR ? VB_E_NOT_FOUND : VB_E_IO;
        return vb__fail(err, code, "%s: cannot be opened: %s, expected a readable file", path, strerror(errno));
    }
    vb_err e = VB_OK;
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        e = vb__fail(err, VB_E_IO, "%s: is not a regular file", path);
    } else if (st.st_size == 0) {
        *out = (vb__mapped){empty_file, 0};
    } else {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            e = vb__fail(err, errno == ENOMEM ? VB_E_MEMORY : VB_E_IO, "%s: cannot be mapped: %s", path,
                         strerror(errno));
        else *out = (vb__mapped){p, (uint64_t)st.st_size};
    }
    (void)close(fd);
    return e;
}

void vb__mapped_close(vb__mapped *m) {
    if (m->size != 0) (void)munmap((void *)(uintptr_t)m->data, (size_t)m->size);
    *m = (vb__mapped){0};
}

static void advise(const vb__mapped *m, uint64_t off, uint64_t len, int advice) {
    if (m->size == 0 || off >= m->size || len == 0) return;
    if (len > m->size - off) len = m->size - off;
    /* by address: m may be a part of a mapping */
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)m->data + off, first = begin / page * page;
    (void)madvise((void *)first, (size_t)(begin + len - first), advice);
}

void vb__mapped_will_need(const vb__mapped *m, uint64_t off, uint64_t len) { advise(m, off, len, MADV_WILLNEED); }
void vb__mapped_release(const vb__mapped *m, uint64_t off, uint64_t len) { advise(m, off, len, MADV_DONTNEED); }
