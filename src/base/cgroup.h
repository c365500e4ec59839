/* The control groups of the process: where a container or a service manager sets bounds. */
#ifndef VB_BASE_CGROUP_H
#define VB_BASE_CGROUP_H
#include <stdbool.h>
#include <stddef.h>

/* One group: the folder of its files, of version 1 or 2. */
typedef void vb__cgroup_fn(void *ctx, const char *folder, int version);
/* Calls fn for the group of the process under `controller` ("cpu", "memory") and for all groups above it, the mount itself
 * last: in a container the path may be the host's and not be there, and the mount is the group. Folders need not exist.
 * `root` is "" but in tests, which make a /proc and a /sys of their own. */
void vb__cgroup_each(const char *root, const char *controller, vb__cgroup_fn *fn, void *ctx);
/* The first line of a file of a group that begins with `key`, without it; false if there is none. */
bool vb__cgroup_line(const char *folder, const char *file, const char *key, char *line, size_t size);

#endif
