/* The choice of experts, which no vector width changes: static inline, for the variants of ops/route.h. */
#ifndef VB_BACKEND_CPU_ROUTE_CHOOSE_H
#define VB_BACKEND_CPU_ROUTE_CHOOSE_H
#include <stdint.h>

/* Destroys p. A chosen p is replaced by -2, below the -1 that a NaN counts as. */
static inline void vb__route_choose(int32_t *ids, float *w, float *p, int32_t n, int32_t k) {
    float sum = 0.0f;
    for (int32_t i = 0; i < k; i++) {
        float best = -1.0f;
        int32_t id = -1;
        for (int32_t e = 0; e < n; e++)
            if (p[e] > best) {
                best = p[e];
                id = e;
            }
        for (int32_t e = 0; id < 0; e++) /* only NaN are left: the lowest of them */
            if (p[e] != p[e]) id = e;
        ids[i] = id;
        w[i] = p[id];
        sum = sum + w[i];
        p[id] = -2.0f;
    }
    for (int32_t i = 0; i < k; i++) w[i] = w[i] / sum;
}

#endif
