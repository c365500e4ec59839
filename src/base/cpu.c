#include "base/cpu.h"
#include <cpuid.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[VB_CPU_LEVELS] = {"c", "avx2", "avx512", "amx"};

const char *vb__cpu_level_name(vb__cpu_level level) { return names[level]; }

static uint64_t xgetbv0(void) {
    uint32_t lo, hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

static bool has(uint32_t reg, int bit) { return (reg >> bit & 1) != 0; }

/* Linux grants the 8 KiB tile state only on request (arch_prctl ARCH_REQ_XCOMP_PERM, feature 18). */
static bool amx_permission(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static int detected = -1; /* level, or -2 without FMA3 */
static bool vnni;         /* AVX-VNNI: vpdpbusd on ymm */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void detect(void) {
    uint32_t a, b, c, d, b7 = 0, c7 = 0, d7 = 0;
    detected = -2;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, 27) /* OSXSAVE */ || !has(c, 28) /* AVX */) return;
    bool fma = has(c, 12), f16c = has(c, 29);
    uint64_t xcr = xgetbv0();
    if (!fma || (xcr & 0x6) != 0x6) return;
    detected = VB_CPU_C;
    if (!__get_cpuid_count(7, 0, &a, &b7, &c7, &d7) || !has(b7, 5) || !f16c) return;
    detected = VB_CPU_AVX2;
    vnni = __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, 4);
    bool avx512 = has(b7, 16) && has(b7, 17) && has(b7, 30) && has(b7, 31) && has(c7, 1) && has(c7, 11);
    if (!avx512 || (xcr & 0xe6) != 0xe6) return;
    detected = VB_CPU_AVX512;
    bool amx = has(d7, 22) && has(d7, 24) && has(d7, 25) && has(c7, 8) /* GFNI */;
    amx = amx && __get_cpuid_count(7, 1, &a, &b, &c, &d) && has(a, 5) /* AVX512_BF16 */;
    if (!amx || (xcr & 0x60000) != 0x60000 || !amx_permission()) return;
    detected = VB_CPU_AMX;
}

vb_err vb__cpu_detect(vb__cpu_level *out, vb_error *err) {
    (void)pthread_once(&once, detect);
    if (detected < 0) return vb__fail(err, VB_E_DEVICE, "CPU: no FMA3, expected an x86-64 CPU of 2013 or later");
    *out = (vb__cpu_level)detected;
    return VB_OK;
}

bool vb__cpu_vnni(void) {
    const char *use = getenv("VERBATIM_VNNI");
    (void)pthread_once(&once, detect);
    return vnni && (use == NULL || strcmp(use, "0") != 0);
}

vb_err vb__cpu_select(vb__cpu_level *out, vb_error *err) {
    vb__cpu_level best;
    VB_TRY(vb__cpu_detect(&best, err));
    const char *want = getenv("VERBATIM_CPU"), *use = getenv("VERBATIM_VNNI");
    if (use != NULL && use[0] != '\0' && strcmp(use, "0") != 0 && strcmp(use, "1") != 0)
        return vb__fail(err, VB_E_ARGUMENT, "VERBATIM_VNNI: '%.20s', expected 0 or 1", use);
    if (want == NULL || want[0] == '\0') {
        *out = best;
        return VB_OK;
    }
    for (int i = 0; i < VB_CPU_LEVELS; i++) {
        if (strcmp(want, names[i]) != 0) continue;
        if (i > (int)best)
            return vb__fail(err, VB_E_ARGUMENT, "VERBATIM_CPU: this CPU lacks %s, expected a level up to %s",
                            want, names[best]);
        *out = (vb__cpu_level)i;
        return VB_OK;
    }
    return vb__fail(err, VB_E_ARGUMENT, "VERBATIM_CPU: unknown level '%s', expected c, avx2, avx512 or amx", want);
}

const char *vb__cpu_brand(void) {
    static char brand[49];
    uint32_t regs[12];
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) < 0x80000004u) return "unknown CPU";
    for (uint32_t i = 0; i < 3; i++)
        if (!__get_cpuid(0x80000002u + i, &regs[4 * i], &regs[4 * i + 1], &regs[4 * i + 2], &regs[4 * i + 3]))
            return "unknown CPU";
    memcpy(brand, regs, 48);
    return brand + strspn(brand, " ");
}
