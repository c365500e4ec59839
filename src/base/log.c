#include "base/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

static vb__log_fn *log_fn;
static void *log_user;
static vb__log_level log_level = VB_LOG_WARN;

void vb__log_set(vb__log_fn *fn, void *user, vb__log_level level) {
    log_fn = fn;
    log_user = user;
    log_level = level;
}

vb__log_level vb__log_get_level(void) { return log_level; }

void vb__log(vb__log_level level, const char *area, const char *fmt, ...) {
    if (level < log_level) return;
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    for (char *p = text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
    if (log_fn != NULL) {
        log_fn(log_user, level, area, text);
        return;
    }
    static const char *const names[] = {"debug", "info", "warn", "error"};
    struct timespec now;
    struct tm tm;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &tm);
    fprintf(stderr, "%04d-%02d-%02dT%02d:%02d:%02d.%03ldZ level=%s area=%s %s\n", tm.tm_year + 1900,
            tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec, now.tv_nsec / 1000000, names[level],
            area, text);
}
