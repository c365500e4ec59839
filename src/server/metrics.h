/* Counters of the server, updated with relaxed atomics from any thread and rendered as Prometheus text. */
#ifndef VB_SERVER_METRICS_H
#define VB_SERVER_METRICS_H
#include "base/buffer.h"
#include "verbatim/verbatim.h"
#include <stdatomic.h>

enum { VB_METRIC_BUCKETS = 14 };

typedef struct vb__histogram {
    atomic_ullong bucket[VB_METRIC_BUCKETS + 1];
    atomic_ullong microseconds, count;
} vb__histogram;

typedef struct vb__metrics {
    atomic_ullong requests[6];  /* by hundred of the status */
    atomic_ullong cancelled, refused; /* ended by the client; 429 */
    atomic_ullong finished[4];  /* answers: stop, length, cancelled, error */
    atomic_ullong prompt_tokens, cached_tokens, output_tokens, drafted_tokens, accepted_tokens;
    vb__histogram queue, prefill, first_token, per_token, total;
} vb__metrics;

void vb__metrics_count(atomic_ullong *c, uint64_t n);
void vb__histogram_add(vb__histogram *h, double seconds);
void vb__metrics_write(const vb__metrics *m, const vb_async_stats *engine, int32_t connections, vb__buffer *out);

#endif
