/* engine/memo and the lines of gate.memo and tune.memo: any bytes give widths within the limits, or nothing. */
#include "base/limits.h"
#include "engine/draft_policy.h"
#include "engine/gate.h"
#include "engine/memo.h"
#include "engine/tuned.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int holds) {
    if (!holds) abort();
}

static void line(void *user, const char *rest) {
    int *n = user;
    int32_t width = -1, threads = -1, kind = -1;
    vb__gate_state s = VB_GATE_UNKNOWN;
    (*n)++;
    must(strlen(rest) < VB_MEMO_LINE_MAX && strchr(rest, '\n') == NULL);
    if (vb__gate_memo_parse(rest, &width, &s)) must(width >= 2 && width <= VB_LIMIT_DRAFT_WIDTH && s != VB_GATE_UNKNOWN);
    if (vb__tuned_parse(rest, &threads, &kind, &width))
        must(threads > 0 && kind > VB_DRAFT_NONE && kind < VB_DRAFT_KINDS && width >= 2 && width <= VB_LIMIT_DRAFT_WIDTH);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int n = 0, ends = 0;
    for (size_t i = 0; i < size; i++) ends += data[i] == '\n';
    vb__memo_scan((const char *)data, size, "k", line, &n);
    must(n <= ends);
    return 0;
}
