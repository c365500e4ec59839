#include "base/cgroup.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH = 1024, LINES = 256 };

bool vb__cgroup_line(const char *folder, const char *file, const char *key, char *line, size_t size) {
    char path[PATH];
    int n = snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = n < 0 || n >= PATH ? NULL : fopen(path, "re");
    if (f == NULL) return false;
    size_t k = strlen(key);
    bool got = false;
    for (int i = 0; i < LINES && !got && fgets(line, (int)size, f) != NULL; i++) got = strncmp(line, key, k) == 0;
    (void)fclose(f);
    if (got) memmove(line, line + k, strlen(line + k) + 1);
    return got;
}

static void group_and_above(const char *mount, const char *group, int version, vb__cgroup_fn *fn, void *ctx) {
    char folder[PATH];
    int n = snprintf(folder, sizeof folder, "%s%s", mount, group);
    if (n < 0 || n >= PATH) return;
    for (char *slash; fn(ctx, folder, version), (slash = strrchr(folder + strlen(mount), '/')) != NULL;) *slash = '\0';
}

static bool names(const char *controllers, const char *controller) {
    size_t n = strlen(controller);
    for (const char *c = controllers; c != NULL; c = strchr(c, ',')) {
        if (*c == ',') c++;
        if (strncmp(c, controller, n) == 0 && (c[n] == ',' || c[n] == '\0')) return true;
    }
    return false;
}

void vb__cgroup_each(const char *root, const char *controller, vb__cgroup_fn *fn, void *ctx) {
    char path[PATH], line[PATH], mount[PATH];
    (void)snprintf(path, sizeof path, "%.200s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    if (f == NULL) return;
    for (int lines = 0; lines < LINES && fgets(line, sizeof line, f) != NULL; lines++) { /* hierarchy:controllers:group */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL) continue;
        *group++ = '\0';
        controllers++;
        if (strcmp(group, "/") == 0) group++; /* the mount itself */
        bool two = controllers[0] == '\0';
        if (!two && !names(controllers, controller)) continue;
        (void)snprintf(mount, sizeof mount, "%.200s/sys/fs/cgroup%s%.100s", root, two ? "" : "/", controllers);
        if (!two && access(mount, F_OK) != 0) (void)snprintf(mount, sizeof mount, "%.200s/sys/fs/cgroup/%.60s", root, controller);
        group_and_above(mount, group, two ? 2 : 1, fn, ctx);
    }
    (void)fclose(f);
}
