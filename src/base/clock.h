/* Monotonic time in seconds. Never part of a result. */
#ifndef VB_BASE_CLOCK_H
#define VB_BASE_CLOCK_H
#include <time.h>

static inline double vb__now(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#endif
