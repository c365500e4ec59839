/* The JSON of bench as a table for a person. */
#include "base/buffer.h"
#include "base/json.h"
#include "verbatim/verbatim.h"

static double number(const json_t *o, const char *key) { return json_number_value(json_object_get(o, key)); }

static void classes_line(vb__buffer *b, const char *what, const json_t *o) {
    double sum = 0;
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)o, key, v) sum += json_number_value(v);
    (void)vb__buffer_printf(b, "%-10s", what);
    json_object_foreach((json_t *)(uintptr_t)o, key, v) (void)vb__buffer_printf(
        b, "  %s %.2f ms (%.0f%%)", key, 1e3 * json_number_value(v), sum > 0 ? 100 * json_number_value(v) / sum : 0);
    (void)vb__buffer_puts(b, "\n");
}

static void table(vb__buffer *b, const json_t *j) {
    const json_t *decode = json_object_get(j, "decode"), *pre = json_object_get(j, "prefill"), *w;
    const json_t *memory = json_object_get(j, "memory"), *spread = json_object_get(j, "spread");
    size_t i;
    const char *s[4], *const keys[4] = {"geometry", "weights", "level", "cpu"};
    for (int k = 0; k < 4; k++) {
        s[k] = json_string_value(json_object_get(j, keys[k]));
        if (s[k] == NULL) s[k] = "?";
    }
    (void)vb__buffer_printf(b, "%s, weights %s, %d-bit activations; level %s%s, %d threads, %s\n", s[0], s[1],
                            (int)number(j, "activations"), s[2], json_is_true(json_object_get(j, "vnni")) ? " with VNNI" : "", (int)number(j, "threads"), s[3]);
    (void)vb__buffer_printf(b, "limits    read %.1f GB/s (spread %.0f%%), contract %.0f GMAC/s (spread %.0f%%)\n",
                            number(j, "read_gb_per_s"), 100 * number(spread, "read"), number(j, "contract_gops"),
                            100 * number(spread, "contract"));
    (void)vb__buffer_printf(b, "decode    %.1f tokens/s, %.1f MB a token, %.1f GB/s: %.0f%% of read (spread %.0f%%), at %d tokens\n",
                            number(decode, "tokens_per_s"), number(decode, "bytes_per_token") / 1e6,
                            number(decode, "gb_per_s"), number(decode, "percent_of_read"), 100 * number(spread, "decode"),
                            (int)number(j, "ctx"));
    (void)vb__buffer_printf(b, "prefill   %.1f tokens/s of %d tokens: %.0f%% of contract (spread %.0f%%)\n",
                            number(pre, "tokens_per_s"), (int)number(pre, "tokens"), number(pre, "percent_of_contract"),
                            100 * number(spread, "prefill"));
    (void)vb__buffer_puts(b, "rows        ms   to one row   to the limit   spread   after full acceptance, ms\n");
    json_array_foreach(json_object_get(j, "widths"), i, w) (void)vb__buffer_printf(
        b, "%4d  %8.2f   %10.2f   %12.2f   %5.0f%%   %25.2f\n", (int)number(w, "rows"), 1e3 * number(w, "seconds"),
        number(w, "ratio"), number(w, "factor"), 100 * number(w, "spread"), 1e3 * number(w, "seconds_accepted"));
    (void)vb__buffer_puts(b, "time by class\n");
    classes_line(b, "  1 row", json_object_get(j, "classes"));
    classes_line(b, "  16 rows", json_object_get(j, "classes_16_rows"));
    classes_line(b, "  prefill", json_object_get(j, "classes_prefill"));
    (void)vb__buffer_printf(b, "memory    resident %.1f MB: %.2f of the packed weights (%.1f MB) behind the context (%.1f MB)\n",
                            number(memory, "resident_bytes") / 1e6, number(memory, "times_packed"),
                            number(memory, "packed_bytes") / 1e6, number(memory, "context_bytes") / 1e6);
    (void)vb__buffer_printf(b, "load      %.2f s; 8 decode steps made %d allocations\n", number(j, "load_s"),
                            (int)number(j, "step_allocations"));
}

vb_err vb_bench_text(const char *json, char **text, vb_error *err) {
    json_t *j = NULL;
    VB_TRY(vb__json_parse(json, __builtin_strlen(json), (size_t)1 << 20, "bench", &j, err));
    vb__buffer b;
    vb__buffer_init(&b, (size_t)1 << 20);
    table(&b, j);
    json_decref(j);
    char *out = vb__buffer_take(&b);
    vb__buffer_fini(&b);
    if (out == NULL) return vb__fail(err, VB_E_MEMORY, "bench: out of memory");
    *text = out;
    return VB_OK;
}
