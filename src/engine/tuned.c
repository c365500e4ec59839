#include "engine/tuned.h"
#include "base/cpu.h"
#include "engine/draft_policy.h"
#include "engine/drafting.h"
#include "engine/engine.h"
#include "engine/home.h"
#include <stdio.h>
#include <string.h>

static const char memo_name[] = "tune.memo";
enum { MEMO_MAX = 1 << 20 };

void vb__device_key(const vb__engine *e, char *buf, size_t size) {
    char device[96];
    (void)snprintf(device, sizeof device, "%s", vb__cpu_brand());
    for (char *p = device; *p != '\0'; p++)
        if (*p <= ' ') *p = '_';
    const char *more = e->level == VB_CPU_AVX2 && vb__cpu_vnni() ? "+vnni" : "";
    (void)snprintf(buf, size, "%s/contract%d/a%d/%s%s/%s/%s/gcc%d.%d", e->fingerprint, VB_CONTRACT, e->activations,
                   vb__cpu_level_name(e->level), more, device, VB_VERSION, __GNUC__, __GNUC_MINOR__);
}

vb_err vb__tuned_writable(vb_error *err) { return vb__home_append(memo_name, "", err); }

vb_err vb__tuned_store(const vb__engine *e, int32_t kind, int32_t width, double ratio, vb_error *err) {
    char key[256], line[384];
    vb__device_key(e, key, sizeof key);
    (void)snprintf(line, sizeof line, "%s t%d %s %d %.3f\n", key, e->threads, vb__draft_kind_name(kind), width, ratio);
    return vb__home_append(memo_name, line, err);
}

void vb__tuned_load(const vb__engine *e, int32_t *widths, int32_t n) {
    char path[4096], key[256], line[512], name[16];
    memset(widths, 0, (size_t)n * sizeof *widths);
    vb__device_key(e, key, sizeof key);
    if (e->fingerprint[0] == '\0' || !vb__home_path(memo_name, path, sizeof path)) return;
    FILE *f = fopen(path, "re");
    if (f == NULL) return;
    size_t len = strlen(key), total = 0;
    while (fgets(line, sizeof line, f) != NULL && (total += strlen(line)) < MEMO_MAX) {
        int threads, width;
        double ratio;
        if (strncmp(line, key, len) != 0 || sscanf(line + len, " t%d %15s %d %lf", &threads, name, &width, &ratio) != 4) continue;
        int32_t kind = vb__draft_kind_parse(name, strlen(name));
        if (threads == e->threads && kind > 0 && kind < n && width >= 2 && width <= VB_LIMIT_DRAFT_WIDTH) widths[kind] = width;
    }
    (void)fclose(f);
}
