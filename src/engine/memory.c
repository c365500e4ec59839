#include "engine/memory.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One number of a small system file; -1 when it is not there or not a number ("max"). */
static int64_t read_number(const char *path, const char *key) {
    FILE *f = fopen(path, "re");
    if (f == NULL) return -1;
    char line[256];
    int64_t n = -1;
    while (fgets(line, sizeof line, f) != NULL) {
        size_t k = strlen(key);
        if (strncmp(line, key, k) != 0) continue;
        char *end;
        long long v = strtoll(line + k, &end, 10);
        if (end != line + k) n = v;
        break;
    }
    (void)fclose(f);
    return n;
}

int64_t vb__memory_available(void) {
    int64_t kb = read_number("/proc/meminfo", "MemAvailable:");
    int64_t bytes = kb < 0 ? INT64_MAX / 4 : kb * 1024;
    int64_t max = read_number("/sys/fs/cgroup/memory.max", ""), used = read_number("/sys/fs/cgroup/memory.current", "");
    if (max >= 0 && used >= 0 && max - used < bytes) bytes = max - used;
    return bytes < 0 ? 0 : bytes;
}

int64_t vb__memory_sequence(const vb__model *m, bool drafts) {
    return 4 * (m->state_floats + m->conv_floats + (drafts ? 2 * VB_LIMIT_DRAFT_WIDTH * m->tape_stride : 0));
}

int64_t vb__memory_fits(int64_t page_bytes, int64_t bytes) {
    if (bytes <= 0) return 0;
    if (page_bytes <= 0) return VB_LIMIT_CONTEXT;
    int64_t n = bytes / page_bytes * VB_PAGE_POSITIONS;
    return n > VB_LIMIT_CONTEXT ? VB_LIMIT_CONTEXT : n;
}
