/* How many CPUs and cores the process may use. `root` is "" but in tests, which make their own /proc and /sys. */
#ifndef VB_BASE_CPU_COUNT_H
#define VB_BASE_CPU_COUNT_H
#include <stdbool.h>
#include <stdint.h>

/* The CPU quota of the process's cgroup and those above it, version 2 or 1, in whole CPUs, rounded up; 0: there is none. What cannot
 * be read sets no bound. */
int32_t vb__cpu_quota(const char *root);
/* Cores that the CPUs 0 .. n-1 with allowed[cpu] belong to: CPUs whose list of siblings begins with the same one share a core; one
 * without a list is a core of its own. */
int32_t vb__cpu_cores_of(const char *root, const bool *allowed, int32_t n);

#endif
