#include "base/fault.h"
#include "base/log.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { UNREAD = -1 };
static _Atomic int g_fault = UNREAD;

static const char *const names[VB_FAULTS] = {
    [VB_FAULT_NONE] = "none",
    [VB_FAULT_LINEAR_ROWS] = "linear-rows",
    [VB_FAULT_ATTENTION_ROWS] = "attention-rows",
    [VB_FAULT_ROPE_ROWS] = "rope-rows",
    [VB_FAULT_STATE_COMMIT] = "state-commit",
    [VB_FAULT_KV_TRUNCATE] = "kv-truncate",
    [VB_FAULT_DRAFT_CRASH] = "draft-crash",
};

const char *vb__fault_name(vb__fault kind) {
    return (unsigned)kind < VB_FAULTS ? names[kind] : "unknown";
}

/* VB_FAULTS: an unknown kind. */
static int kind_of(const char *s) {
    int kind = VB_FAULT_NONE;
    if (s != NULL && s[0] != '\0')
        while (kind < VB_FAULTS && strcmp(s, names[kind]) != 0) kind++;
    return kind;
}

vb_err vb__fault_check(vb_error *err) {
    const char *s = getenv("VERBATIM_FAULT");
    if (kind_of(s) < VB_FAULTS) return VB_OK;
    return vb__fail(err, VB_E_ARGUMENT, "VERBATIM_FAULT: is \"%.60s\", expected one of those in verbatim verify --help", s);
}

static int read_environment(void) {
    const char *s = getenv("VERBATIM_FAULT");
    int kind = kind_of(s);
    if (kind == VB_FAULTS) kind = VB_FAULT_NONE;
    int unread = UNREAD; /* the thread that stores first is the one that logs */
    if (!atomic_compare_exchange_strong(&g_fault, &unread, kind)) return unread;
    if (kind != VB_FAULT_NONE)
        vb__log(VB_LOG_WARN, "fault",
                "VERBATIM_FAULT=%s: A FAULT IS PLANTED ON PURPOSE. Results of this process are wrong.", names[kind]);
    else if (s != NULL && s[0] != '\0' && strcmp(s, names[VB_FAULT_NONE]) != 0)
        vb__log(VB_LOG_WARN, "fault", "VERBATIM_FAULT=%s: unknown kind, ignored", s);
    return kind;
}

bool vb__fault_is(vb__fault kind) {
    int f = atomic_load_explicit(&g_fault, memory_order_relaxed);
    if (f == UNREAD) f = read_environment();
    return f == (int)kind;
}

void vb__fault_set(vb__fault kind) { atomic_store(&g_fault, (int)kind); }
