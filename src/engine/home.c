#include "engine/home.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool home_dir(char *buf, size_t size) {
    const char *v = getenv("VERBATIM_HOME"), *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n;
    if (v != NULL && v[0] != '\0') n = snprintf(buf, size, "%s", v);
    else if (xdg != NULL && xdg[0] == '/') n = snprintf(buf, size, "%s/verbatim", xdg);
    else if (home != NULL && home[0] == '/') n = snprintf(buf, size, "%s/.cache/verbatim", home);
    else return false;
    return n > 0 && (size_t)n < size;
}

bool vb__home_path(const char *name, char *buf, size_t size) {
    char dir[PATH_MAX];
    if (!home_dir(dir, sizeof dir)) return false;
    int n = snprintf(buf, size, "%s/%s", dir, name);
    return n > 0 && (size_t)n < size;
}

vb_err vb__home_create(vb_error *err) {
    char dir[PATH_MAX];
    if (!home_dir(dir, sizeof dir)) return vb__fail(err, VB_E_NOT_FOUND, "VERBATIM_HOME: not set, and neither is HOME");
    for (char *p = dir + 1;; p++) {
        if (*p != '/' && *p != '\0') continue;
        char c = *p;
        *p = '\0';
        if (mkdir(dir, 0700) != 0 && errno != EEXIST)
            return vb__fail(err, VB_E_IO, "%s: cannot be made (%s)", dir, strerror(errno));
        *p = c;
        if (c == '\0') return VB_OK;
    }
}
