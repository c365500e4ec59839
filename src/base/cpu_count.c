#include "base/cpu_count.h"
#include "base/cpu.h"
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 1024, MOST = CPU_SETSIZE };

/* The first line of a small file; false if there is none. */
static bool first_line(const char *path, char *line, size_t size) {
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    bool got = fgets(line, (int)size, f) != NULL;
    (void)fclose(f);
    return got;
}

/* Two numbers of a limit: microseconds in a period of so many. */
static int32_t whole_cpus(const char *quota, const char *period) {
    long long q = strtoll(quota, NULL, 10), p = strtoll(period, NULL, 10);
    if (q <= 0 || p <= 0) return 0; /* "max", -1 */
    long long n = q / p + (q % p != 0);
    return n > INT32_MAX ? 0 : (int32_t)n;
}

/* Limit of one group, 0 for none. */
static int32_t quota_v2(const char *folder) {
    char path[PATH], line[128];
    if (snprintf(path, sizeof path, "%s/cpu.max", folder) >= PATH || !first_line(path, line, sizeof line)) return 0;
    const char *period = strchr(line, ' ');
    return period == NULL ? 0 : whole_cpus(line, period);
}
static int32_t quota_v1(const char *folder) {
    char path[PATH], quota[64], period[64];
    if (snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder) >= PATH || !first_line(path, quota, sizeof quota)) return 0;
    if (snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder) >= PATH || !first_line(path, period, sizeof period)) return 0;
    return whole_cpus(quota, period);
}

/* The least limit of `group` ("/a/b") and all groups above it, the mount itself last: in a container the path may be the
 * host's and not there, and the mount the group. */
static int32_t least_of(const char *mount, const char *group, int32_t (*limit)(const char *)) {
    char folder[PATH];
    int32_t least = 0;
    int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (n < 0 || n >= PATH) return 0;
    for (size_t top = strlen(mount);;) {
        int32_t cpus = limit(folder);
        if (cpus > 0 && (least == 0 || cpus < least)) least = cpus;
        char *slash = strrchr(folder + top, '/');
        if (slash == NULL) return least;
        *slash = '\0';
    }
}

static int32_t lesser(int32_t a, int32_t b) { return a == 0 || (b != 0 && b < a) ? b : a; }

int32_t vb__cpu_quota(const char *root) {
    char path[PATH], line[PATH], mount[PATH];
    int32_t least = 0;
    (void)snprintf(path, sizeof path, "%.200s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (f == NULL) return 0;
    for (int lines = 0; lines < 64 && fgets(line, sizeof line, f) != NULL; lines++) { /* hierarchy:controllers:group */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL) continue;
        *group++ = '\0';
        controllers++;
        if (strcmp(group, "/") == 0) group++; /* the mount itself */
        if (controllers[0] == '\0') {
            (void)snprintf(mount, sizeof mount, "%.200s/sys/fs/cgroup", root);
            least = lesser(least, least_of(mount, group, quota_v2));
            continue;
        }
        bool cpu = false;
        char name[128], *rest = NULL;
        (void)snprintf(name, sizeof name, "%s", controllers);
        for (char *c = strtok_r(name, ",", &rest); c != NULL; c = strtok_r(NULL, ",", &rest)) cpu = cpu || strcmp(c, "cpu") == 0;
        if (!cpu) continue;
        (void)snprintf(mount, sizeof mount, "%.200s/sys/fs/cgroup/%.100s", root, controllers);
        if (access(mount, F_OK) != 0) (void)snprintf(mount, sizeof mount, "%.200s/sys/fs/cgroup/cpu", root);
        least = lesser(least, least_of(mount, group, quota_v1));
    }
    (void)fclose(f);
    return least;
}

int32_t vb__cpu_cores_of(const char *root, const bool *allowed, int32_t n) {
    bool seen[MOST] = {false};
    int32_t cores = 0;
    for (int32_t cpu = 0; cpu < n && cpu < MOST; cpu++) {
        char path[PATH], line[256];
        if (!allowed[cpu]) continue;
        long first = cpu;
        (void)snprintf(path, sizeof path, "%.200s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, cpu);
        if (first_line(path, line, sizeof line)) {
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
