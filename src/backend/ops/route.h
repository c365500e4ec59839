/* route: p = softmax(x); ids = the k experts of the largest p, w[i] = p[ids[i]] / (p[ids[0]] + ... +
 * p[ids[k-1]]) combine: y[j] = r[j] + (sum over ranks i of w[i] * e_i[j], then + s[j] * sigmoid(gate))
 *
 * shapes    route, one row: x (n) logits; p (n) scratch, may be x; ids, w (k). combine, one row: w (k); e_i,
 * the output of the expert of rank i, at e + slot[i]*es, n long; s (n) the shared expert; r (n) residual
 * limits    1 <= k <= n <= 4096 (route); 1 <= k, 0 <= n (combine); no alignment required; y may equal r
 * class     cpu: every variant returns the reference's bits
 * order     route: m = the largest x; p[i] = exp(x[i] - m); 16 partial sums, element i goes to sum i % 16 by
 * addition from +0, i ascending; then for h = 8, 4, 2, 1: s[i] = s[i] + s[i + h] for i < h; p[i] = p[i] /
 * s[0]. Experts by p descending, the lower id on ties; a p that is NaN comes after all others. The sum of the
 *           chosen in rank order by additions; each divided by it.
 *           combine: fma(w[i], e_i[j], acc) in rank order from +0; s[j] * sigmoid(gate) rounded, then added;
 * r[j] added. FTZ and DAZ on. NaN in, NaN out (payload unspecified). threads   rows are independent;
 * combine's columns as well cost      combine reads 4*n*(k + 2) bytes a row, writes 4*n
 */
#ifndef VB_OPS_ROUTE_H
#define VB_OPS_ROUTE_H
#include <stdint.h>

#define VB_ROUTE_ARGS int32_t *ids, float *w, float *p, const float *x, int32_t n, int32_t k
#define VB_COMBINE_ARGS                                                                                      \
    float *y, const float *e, int64_t es, const int32_t *slot, const float *w, int32_t k, const float *s,    \
        float gate, const float *r, int32_t n
typedef void vb__route_fn(VB_ROUTE_ARGS);
typedef void vb__combine_fn(VB_COMBINE_ARGS);
vb__route_fn vb__route_ref, vb__route_avx2, vb__route_avx512;
vb__combine_fn vb__combine_ref, vb__combine_avx2, vb__combine_avx512;

#endif
