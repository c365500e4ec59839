/* route and combine, C reference. Contract and order: ops/route.h. */
#include "backend/ops/route.h"
#include "backend/cpu/ref/sum16.h"
#include "backend/cpu/route_choose.h"
#include "base/vmath.h"

void vb__route_ref(VB_ROUTE_ARGS) {
    float m = -__builtin_inff(), s[16] = {0};
    for (int32_t i = 0; i < n; i++)
        if (x[i] > m) m = x[i];
    for (int32_t i = 0; i < n; i++) {
        p[i] = vb__expf(x[i] - m);
        s[i % 16] = s[i % 16] + p[i];
    }
    float sum = vb__tree16_ref(s);
    for (int32_t i = 0; i < n; i++) p[i] = p[i] / sum;
    vb__route_choose(ids, w, p, n, k);
}

void vb__combine_ref(VB_COMBINE_ARGS) {
    float share = vb__sigmoidf(gate);
    for (int32_t j = 0; j < n; j++) {
        float acc = 0.0f;
        for (int32_t i = 0; i < k; i++) acc = __builtin_fmaf(w[i], e[slot[i] * es + j], acc);
        y[j] = (acc + s[j] * share) + r[j];
    }
}
