/* Test helper: a temporary folder, files in it, and safetensors files made from a list of tensors. Static inline, so
 * that each test program has its own. */
#ifndef VB_TESTS_UNIT_TESTDIR_H
#define VB_TESTS_UNIT_TESTDIR_H
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct testdir {
    char path[64];
} testdir;

static inline void testdir_make(testdir *d) {
    static const char pattern[] = "/tmp/verbatim-test-XXXXXX";
    memcpy(d->path, pattern, sizeof pattern);
    if (mkdtemp(d->path) == NULL) abort();
}
static inline const char *testdir_file(const testdir *d, const char *name) {
    static char p[4][512];
    static int turn;
    char *out = p[turn++ & 3];
    (void)snprintf(out, 512, "%s/%s", d->path, name);
    return out;
}
/* Files only, one level of folders below. */
static inline void testdir_clear(const char *path) {
    DIR *dir = opendir(path);
    struct dirent *e;
    char p[512];
    while (dir != NULL && (e = readdir(dir)) != NULL) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
        (void)snprintf(p, sizeof p, "%.200s/%.250s", path, e->d_name);
        struct stat st;
        if (lstat(p, &st) == 0 && S_ISDIR(st.st_mode)) {
            testdir_clear(p);
            (void)rmdir(p);
        } else {
            (void)unlink(p);
        }
    }
    if (dir != NULL) closedir(dir);
}
static inline void testdir_remove(testdir *d) {
    testdir_clear(d->path);
    (void)rmdir(d->path);
}
static inline void testdir_write(const testdir *d, const char *name, const void *data, size_t n) {
    FILE *f = fopen(testdir_file(d, name), "wb");
    if (f == NULL || fwrite(data, 1, n, f) != n || fclose(f) != 0) abort();
}
static inline void testdir_puts(const testdir *d, const char *name, const char *text) {
    testdir_write(d, name, text, strlen(text));
}
/* The whole file, malloc'ed, with a NUL behind. */
static inline char *testdir_read(const char *path, size_t *n) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    if (f == NULL || fstat(fileno(f), &st) != 0) abort();
    char *p = malloc((size_t)st.st_size + 1);
    if (p == NULL || fread(p, 1, (size_t)st.st_size, f) != (size_t)st.st_size) abort();
    fclose(f);
    p[st.st_size] = '\0';
    *n = (size_t)st.st_size;
    return p;
}
/* A safetensors file from a JSON header and its data. */
static inline void testdir_safetensors(const testdir *d, const char *name, const char *header, const void *data, size_t n) {
    size_t h = strlen(header);
    char *buf = calloc(1, 8 + h + n);
    if (buf == NULL) abort();
    for (int i = 0; i < 8; i++) buf[i] = (char)(uint8_t)((uint64_t)h >> 8 * i);
    memcpy(buf + 8, header, h);
    if (n != 0 && data != NULL) memcpy(buf + 8 + h, data, n);
    testdir_write(d, name, buf, 8 + h + n);
    free(buf);
}
/* The folder of shared fixtures; NULL when absent (tests then skip, exit code 77). */
static inline const char *shared_dir(void) {
    static char p[512];
    const char *env = getenv("VERBATIM_SHARED");
#ifdef SOURCE_ROOT
    (void)snprintf(p, sizeof p, "%s", env != NULL ? env : SOURCE_ROOT "/../shared");
#else
    (void)snprintf(p, sizeof p, "%s", env != NULL ? env : "../shared");
#endif
    return access(p, R_OK) == 0 ? p : NULL;
}

#endif
