#include "base/cpu_count.h"
#include "base/cgroup.h"
#include "base/cpu.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 512, MOST = CPU_SETSIZE };

/* Two numbers of a limit: microseconds in a period of so many; 0 for none. */
static int32_t whole_cpus(const char *quota, const char *period) {
    long long q = strtoll(quota, NULL, 10), p = strtoll(period, NULL, 10);
    if (q <= 0 || p <= 0) return 0; /* "max", -1 */
    long long n = q / p + (q % p != 0);
    return n > INT32_MAX ? 0 : (int32_t)n;
}

static void least_quota(void *ctx, const char *folder, int version) {
    int32_t *least = ctx, cpus = 0;
    char quota[128], period[128], *space;
    if (version == 2 && vb__cgroup_line(folder, "cpu.max", "", quota, sizeof quota) && (space = strchr(quota, ' ')) != NULL)
        cpus = whole_cpus(quota, space);
    if (version == 1 && vb__cgroup_line(folder, "cpu.cfs_quota_us", "", quota, sizeof quota) &&
        vb__cgroup_line(folder, "cpu.cfs_period_us", "", period, sizeof period))
        cpus = whole_cpus(quota, period);
    if (cpus > 0 && (*least == 0 || cpus < *least)) *least = cpus;
}

int32_t vb__cpu_quota(const char *root) {
    int32_t least = 0;
    vb__cgroup_each(root, "cpu", least_quota, &least);
    return least;
}

int32_t vb__cpu_cores_of(const char *root, const bool *allowed, int32_t n) {
    bool seen[MOST] = {false};
    int32_t cores = 0;
    for (int32_t cpu = 0; cpu < n && cpu < MOST; cpu++) {
        char path[PATH], line[256];
        if (!allowed[cpu]) continue;
        long first = cpu;
        (void)snprintf(path, sizeof path, "%.200s/sys/devices/system/cpu/cpu%d/topology", root, cpu);
        if (vb__cgroup_line(path, "thread_siblings_list", "", line, sizeof line)) {
            char *end;
            long v = strtol(line, &end, 10);
            if (end != line && v >= 0 && v < MOST) first = v;
        }
        if (!seen[first]) cores++;
        seen[first] = true;
    }
    return cores;
}

/* CPUs in the affinity mask; of allowed, if it is known which. */
static int32_t affinity(bool *allowed) {
    cpu_set_t set;
    memset(allowed, 0, MOST * sizeof *allowed);
    if (sched_getaffinity(0, sizeof set, &set) != 0) { /* more than MOST */
        long n = sysconf(_SC_NPROCESSORS_ONLN);
        return n < 1 ? 1 : n > INT32_MAX ? INT32_MAX : (int32_t)n;
    }
    for (int32_t cpu = 0; cpu < MOST; cpu++) allowed[cpu] = CPU_ISSET((size_t)cpu, &set);
    return CPU_COUNT(&set) < 1 ? 1 : CPU_COUNT(&set);
}

static int32_t within_quota(int32_t n) {
    int32_t quota = vb__cpu_quota("");
    return quota > 0 && quota < n ? quota : n;
}

int32_t vb__cpu_count(void) {
    bool allowed[MOST];
    return within_quota(affinity(allowed));
}

int32_t vb__cpu_cores(void) {
    bool allowed[MOST];
    int32_t cpus = affinity(allowed), cores = vb__cpu_cores_of("", allowed, MOST);
    return within_quota(cores > 0 ? cores : cpus);
}
