/* How many CPUs and cores and how much memory there are for the process, from trees of files as kernels and containers show
 * them. */
#include "base/cpu.h"
#include "base/cpu_count.h"
#include "engine/memory.h"
#include "testdir.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <cmocka.h>

typedef struct file {
    const char *path, *text;
} file;

/* Makes the folders of a path below d, too. */
static void put(const testdir *d, const char *path, const char *text) {
    char folder[200];
    (void)snprintf(folder, sizeof folder, "%s", path);
    for (char *p = strchr(folder, '/'); p != NULL; p = strchr(p + 1, '/')) {
        *p = '\0';
        (void)mkdir(testdir_file(d, folder), 0700);
        *p = '/';
    }
    testdir_puts(d, path, text);
}

/* The CPU quota, or the memory left in MiB, -1 for no limit. */
static int32_t bound_of(bool memory, const file *files) {
    testdir d;
    testdir_make(&d);
    for (; files->path != NULL; files++) put(&d, files->path, files->text);
    int64_t left = memory ? vb__memory_left(d.path) : 0;
    int32_t got = !memory ? vb__cpu_quota(d.path) : left > INT32_MAX * (int64_t)1048576 ? -1 : (int32_t)(left / 1048576);
    testdir_remove(&d);
    return got;
}
#define QUOTA(...) bound_of(false, (const file[]){__VA_ARGS__, {NULL, NULL}})
#define LEFT(...) bound_of(true, (const file[]){__VA_ARGS__, {NULL, NULL}})

static void quotas(void **state) {
    (void)state;
    const file two = {"proc/self/cgroup", "0::/a/b\n"}, root = {"proc/self/cgroup", "0::/\n"};
    /* Version 2 */
    assert_int_equal(QUOTA(root), 0);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", "max 100000\n"}), 0);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", "200000 100000\n"}), 2);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", "150000 100000\n"}), 2);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", "1000 100000\n"}), 1);
    assert_int_equal(QUOTA(two, {"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}), 4);
    assert_int_equal(QUOTA(two, {"sys/fs/cgroup/a/b/cpu.max", "max 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "300000 100000\n"}), 3);
    assert_int_equal(QUOTA(two, {"sys/fs/cgroup/a/b/cpu.max", "400000 100000\n"}, {"sys/fs/cgroup/a/cpu.max", "300000 100000\n"},
                           {"sys/fs/cgroup/cpu.max", "700000 100000\n"}), 3);
    /* The host's path in a container: only the mount is there. */
    assert_int_equal(QUOTA(two, {"sys/fs/cgroup/cpu.max", "500000 100000\n"}), 5);
    /* Version 1, under either name of the mount; and both versions at once */
    const file one = {"proc/self/cgroup", "12:memory:/x\n3:cpu,cpuacct:/docker/7f\n0::/\n"};
    assert_int_equal(QUOTA(one, {"sys/fs/cgroup/cpu,cpuacct/docker/7f/cpu.cfs_quota_us", "250000\n"},
                           {"sys/fs/cgroup/cpu,cpuacct/docker/7f/cpu.cfs_period_us", "100000\n"}), 3);
    assert_int_equal(QUOTA(one, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n"}), 2);
    assert_int_equal(QUOTA(one, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}), 0);
    assert_int_equal(QUOTA({"proc/self/cgroup", "2:cpuacct:/\n1:cpuset:/\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
                           {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000\n"}), 0);
    assert_int_equal(QUOTA(one, {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "900000\n"}, {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
                           {"sys/fs/cgroup/cpu.max", "200000 100000\n"}), 2);
    /* What makes no sense sets no bound. */
    assert_int_equal(QUOTA({"proc/self/cgroup", ""}), 0);
    assert_int_equal(QUOTA({"proc/self/cgroup", "nothing\n::\n0:\n:::::\n0::\n"}), 0);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", ""}), 0);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", "200000"}), 0);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", "200000 0\n"}), 0);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", "-5 100000\n"}), 0);
    assert_int_equal(QUOTA(root, {"sys/fs/cgroup/cpu.max", "9223372036854775807 1\n"}), 0);
    char far[900];
    memset(far, 'x', sizeof far);
    memcpy(far, "0::/", 4);
    far[sizeof far - 1] = '\0';
    assert_int_equal(QUOTA({"proc/self/cgroup", far}, {"sys/fs/cgroup/cpu.max", "200000 100000\n"}), 2);
    assert_int_equal(vb__cpu_quota("/nowhere"), 0);
}

static void memory(void **state) {
    (void)state;
    const file two = {"proc/self/cgroup", "0::/a/b\n"}, one = {"proc/self/cgroup", "4:memory:/c\n1:cpu:/\n0::/\n"};
    assert_int_equal(LEFT(two), -1);
    assert_int_equal(LEFT({"nothing", ""}), -1);
    assert_int_equal(LEFT(two, {"sys/fs/cgroup/a/b/memory.max", "max\n"}, {"sys/fs/cgroup/a/b/memory.current", "4194304\n"}), -1);
    assert_int_equal(LEFT(two, {"sys/fs/cgroup/a/b/memory.max", "104857600\n"}, {"sys/fs/cgroup/a/b/memory.current", "41943040\n"}), 60);
    /* Files in the cache make room. */
    assert_int_equal(LEFT(two, {"sys/fs/cgroup/a/b/memory.max", "104857600\n"}, {"sys/fs/cgroup/a/b/memory.current", "41943040\n"},
                          {"sys/fs/cgroup/a/b/memory.stat", "anon 5\nfile 31457280\ninactive_file 20971520\nactive_file 7\n"}), 80);
    /* The least of all levels */
    assert_int_equal(LEFT(two, {"sys/fs/cgroup/a/b/memory.max", "104857600\n"}, {"sys/fs/cgroup/a/b/memory.current", "41943040\n"},
                          {"sys/fs/cgroup/a/memory.max", "209715200\n"}, {"sys/fs/cgroup/a/memory.current", "178257920\n"}), 30);
    /* Used beyond the limit; a container that shows the mount alone; version 1, with and without a limit */
    assert_int_equal(LEFT(two, {"sys/fs/cgroup/a/b/memory.max", "1048576\n"}, {"sys/fs/cgroup/a/b/memory.current", "41943040\n"}), 0);
    assert_int_equal(LEFT(two, {"sys/fs/cgroup/memory.max", "104857600\n"}, {"sys/fs/cgroup/memory.current", "1048576\n"}), 99);
    assert_int_equal(LEFT(one, {"sys/fs/cgroup/memory/c/memory.limit_in_bytes", "104857600\n"},
                          {"sys/fs/cgroup/memory/c/memory.usage_in_bytes", "10485760\n"},
                          {"sys/fs/cgroup/memory/c/memory.stat", "inactive_file 1\ntotal_inactive_file 5242880\n"}), 95);
    assert_int_equal(LEFT(one, {"sys/fs/cgroup/memory/c/memory.limit_in_bytes", "9223372036854771712\n"},
                          {"sys/fs/cgroup/memory/c/memory.usage_in_bytes", "10485760\n"}), -1);
    assert_int_equal(LEFT(two, {"sys/fs/cgroup/memory.max", "junk\n"}, {"sys/fs/cgroup/memory.current", "\n"}), -1);
}

static int32_t cores_of(const char *const *siblings, int32_t n, uint32_t mask) {
    testdir d;
    bool allowed[32];
    testdir_make(&d);
    for (int32_t i = 0; i < n; i++) {
        char path[128];
        allowed[i] = (mask >> i & 1) != 0;
        (void)snprintf(path, sizeof path, "sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", i);
        if (siblings[i] != NULL) put(&d, path, siblings[i]);
    }
    int32_t got = vb__cpu_cores_of(d.path, allowed, n);
    testdir_remove(&d);
    return got;
}

static void cores(void **state) {
    (void)state;
    static const char *const pairs[] = {"0-1\n", "0-1\n", "2-3\n", "2-3\n"}, *const far[] = {"0,4\n", "1,5\n", "2,6\n", "3,7\n", "0,4\n", "1,5\n", "2,6\n", "3,7\n"};
    static const char *const hybrid[] = {"0-1\n", "0-1\n", "2\n", "3\n"}, *const odd[] = {NULL, "", "x\n", "99999999\n", "-3\n", "5"};
    assert_int_equal(cores_of(pairs, 4, 0xf), 2);
    assert_int_equal(cores_of(pairs, 4, 0x5), 2);
    assert_int_equal(cores_of(pairs, 4, 0x3), 1);
    assert_int_equal(cores_of(pairs, 4, 0x2), 1); /* its first sibling is not allowed, the core is */
    assert_int_equal(cores_of(pairs, 4, 0), 0);
    assert_int_equal(cores_of(far, 8, 0xff), 4);
    assert_int_equal(cores_of(far, 8, 0x13), 2);
    assert_int_equal(cores_of(hybrid, 4, 0xf), 3);
    static const char *const four[] = {"0-3\n", "0-3\n", "0-3\n", "0-3\n"};
    assert_int_equal(cores_of(four, 4, 0xe), 1);
    assert_int_equal(cores_of(odd, 6, 0x3f), 6);
}

static void here(void **state) {
    (void)state;
    int32_t cpus = vb__cpu_count(), n = vb__cpu_cores();
    printf("%d CPUs, %d cores, quota %d\n", cpus, n, vb__cpu_quota(""));
    assert_true(cpus >= 1 && n >= 1 && n <= cpus);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(quotas), cmocka_unit_test(memory), cmocka_unit_test(cores), cmocka_unit_test(here)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
