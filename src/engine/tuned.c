#include "engine/tuned.h"
#include "base/build_id.h"
#include "base/cpu.h"
#include "engine/draft_policy.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/memo.h"
#include <stdio.h>
#include <string.h>

static const char memo_name[] = "tune.memo";

void vb__device_key(const vb__engine *e, char *buf, size_t size) {
    char device[96];
    (void)snprintf(device, sizeof device, "%s", vb__cpu_brand());
    for (char *p = device; *p != '\0'; p++)
        if (*p <= ' ') *p = '_';
    const char *more = e->level == VB_CPU_AVX2 && vb__cpu_vnni() ? "+vnni" : "";
    (void)snprintf(buf, size, "%s/contract%d/a%d/%s%s/%s/%s/%s", e->fingerprint, VB_CONTRACT, e->activations,
                   vb__cpu_level_name(e->level), more, device, VB_VERSION, vb__build_compiler());
}

vb_err vb__tuned_writable(vb_error *err) { return vb__memo_append(memo_name, "", err); }

vb_err vb__tuned_store(const vb__engine *e, int32_t kind, int32_t width, double ratio, vb_error *err) {
    char key[256], line[384];
    vb__device_key(e, key, sizeof key);
    (void)snprintf(line, sizeof line, "%s t%d %s %d %.3f\n", key, e->threads, vb__draft_kind_name(kind), width, ratio);
    return vb__memo_append(memo_name, line, err);
}

bool vb__tuned_parse(const char *rest, int32_t *threads, int32_t *kind, int32_t *width) {
    int t, w, used = 0;
    char name[16];
    double ratio;
    if (sscanf(rest, "t%9d %15[a-z] %9d %15lf%n", &t, name, &w, &ratio, &used) != 4 || rest[used] != '\0') return false;
    int32_t k = vb__draft_kind_parse(name, strlen(name));
    if (t < 1 || k <= VB_DRAFT_NONE || w < 2 || w > VB_LIMIT_DRAFT_WIDTH) return false;
    *threads = t;
    *kind = k;
    *width = w;
    return true;
}

typedef struct loading {
    int32_t *widths, n, threads;
} loading;

static void tuned_line(void *user, const char *rest) {
    const loading *l = user;
    int32_t threads, kind, width;
    if (vb__tuned_parse(rest, &threads, &kind, &width) && threads == l->threads && kind < l->n) l->widths[kind] = width;
}

void vb__tuned_load(const vb__engine *e, int32_t *widths, int32_t n) {
    char key[256];
    loading l = {widths, n, e->threads};
    memset(widths, 0, (size_t)n * sizeof *widths);
    vb__device_key(e, key, sizeof key);
    if (e->fingerprint[0] != '\0') vb__memo_read(memo_name, key, tuned_line, &l);
}
