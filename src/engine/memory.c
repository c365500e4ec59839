#include "engine/memory.h"
#include "base/cgroup.h"
#include "engine/draft_vocab.h"
#include <stdlib.h>

/* A number of a small system file; -1 when it is not there or not a number ("max"). */
static int64_t number(const char *folder, const char *file, const char *key) {
    char line[256], *end;
    if (!vb__cgroup_line(folder, file, key, line, sizeof line)) return -1;
    long long v = strtoll(line, &end, 10);
    return end != line ? v : -1;
}

/* What is left under a group's limit. Pages of files in the cache that were not used of late make room at once and count as free. */
static void least_left(void *ctx, const char *folder, int version) {
    int64_t *least = ctx, limit, used, cached;
    limit = number(folder, version == 2 ? "memory.max" : "memory.limit_in_bytes", "");
    used = number(folder, version == 2 ? "memory.current" : "memory.usage_in_bytes", "");
    cached = number(folder, "memory.stat", version == 2 ? "inactive_file " : "total_inactive_file ");
    if (limit < 0 || used < 0) return;
    if (cached > 0) used = cached < used ? used - cached : 0;
    int64_t left = used < limit ? limit - used : 0;
    if (left < *least) *least = left;
}

int64_t vb__memory_left(const char *root) {
    int64_t least = INT64_MAX / 4;
    vb__cgroup_each(root, "memory", least_left, &least);
    return least;
}

int64_t vb__memory_available(void) {
    int64_t kb = number("/proc", "meminfo", "MemAvailable:"), left = vb__memory_left("");
    return kb >= 0 && kb * 1024 < left ? kb * 1024 : left;
}

int64_t vb__memory_sequence(const vb__model *m, bool drafts) {
    return 4 * (m->state_floats + m->conv_floats + (drafts ? 2 * VB_LIMIT_DRAFT_WIDTH * m->tape_stride : 0)) +
           (drafts ? vb__draft_vocab_bytes(m->cfg.vocab, 1) : 0);
}

int64_t vb__memory_fits(int64_t page_bytes, int64_t bytes) {
    if (bytes <= 0) return 0;
    if (page_bytes <= 0) return VB_LIMIT_CONTEXT;
    int64_t n = bytes / page_bytes * VB_PAGE_POSITIONS;
    return n > VB_LIMIT_CONTEXT ? VB_LIMIT_CONTEXT : n;
}
