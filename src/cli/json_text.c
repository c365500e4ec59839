/* JSON for people. See json_text.h. Depth is bounded by the producer, which is our own library. */
#include "cli/json_text.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 48, COLUMNS = 16 };

static bool flat(const json_t *v) {
    if (json_is_object(v)) return false;
    if (!json_is_array(v)) return true;
    for (size_t i = 0; i < json_array_size(v); i++)
        if (json_is_object(json_array_get(v, i)) || json_is_array(json_array_get(v, i))) return false;
    return true;
}

/* "bytes" fields also say MiB or GiB. */
static void scalar(char *out, size_t size, const char *key, const json_t *v) {
    if (json_is_integer(v)) {
        double n = (double)json_integer_value(v);
        size_t len = key ? strlen(key) : 0;
        bool bytes =
            key && ((len >= 5 && strcmp(key + len - 5, "bytes") == 0) || strncmp(key, "bytes", 5) == 0);
        if (bytes && fabs(n) >= 1024.0 * 1024.0)
            snprintf(out, size, "%lld (%.1f %s)", (long long)json_integer_value(v),
                     fabs(n) >= 0x1p30 ? n / 0x1p30 : n / 0x1p20, fabs(n) >= 0x1p30 ? "GiB" : "MiB");
        else snprintf(out, size, "%lld", (long long)json_integer_value(v));
    } else if (json_is_real(v)) snprintf(out, size, "%.4g", json_real_value(v));
    else if (json_is_string(v)) snprintf(out, size, "%s", json_string_value(v));
    else snprintf(out, size, "%s", json_is_true(v) ? "yes" : json_is_false(v) ? "no" : "-");
}

/* An array whose members are objects with flat values and the same keys. */
static bool is_table(const json_t *a) {
    const json_t *first = json_array_get(a, 0);
    if (json_array_size(a) < 2 || !json_is_object(first) || json_object_size(first) > COLUMNS) return false;
    for (size_t i = 0; i < json_array_size(a); i++) {
        json_t *o = json_array_get(a, i), *v;
        const char *key;
        if (!json_is_object(o) || json_object_size(o) != json_object_size(first)) return false;
        json_object_foreach(o, key,
                            v) if (!flat(v) || json_is_array(v) || !json_object_get(first, key)) return false;
    }
    return true;
}

static void table(FILE *out, const json_t *a, int indent) {
    const char *keys[COLUMNS];
    int width[COLUMNS], n = 0;
    char cell[256];
    const char *key;
    json_t *v;
    json_object_foreach(json_array_get(a, 0), key, v) {
        keys[n] = key;
        width[n] = (int)strlen(key);
        for (size_t i = 0; i < json_array_size(a); i++) {
            scalar(cell, sizeof cell, NULL, json_object_get(json_array_get(a, i), key));
            if ((int)strlen(cell) > width[n]) width[n] = (int)strlen(cell) < CELL ? (int)strlen(cell) : CELL;
        }
        n++;
    }
    fprintf(out, "%*s", indent, "");
    for (int k = 0; k < n; k++) fprintf(out, "%s%-*s", k ? "  " : "", k + 1 < n ? width[k] : 0, keys[k]);
    fputc('\n', out);
    for (size_t i = 0; i < json_array_size(a); i++) {
        fprintf(out, "%*s", indent, "");
        for (int k = 0; k < n; k++) {
            scalar(cell, sizeof cell, NULL, json_object_get(json_array_get(a, i), keys[k]));
            fprintf(out, "%s%-*s", k ? "  " : "", k + 1 < n ? width[k] : 0, cell);
        }
        fputc('\n', out);
    }
}

static void print(FILE *out, const json_t *value, int indent) {
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)(uintptr_t)value, key, v) {
        char text[512];
        if (flat(v) && !json_is_array(v)) {
            scalar(text, sizeof text, key, v);
            fprintf(out, "%*s%s: %s\n", indent, "", key, text);
        } else if (flat(v)) {
            fprintf(out, "%*s%s:", indent, "", key);
            for (size_t i = 0; i < json_array_size(v); i++) {
                scalar(text, sizeof text, NULL, json_array_get(v, i));
                fprintf(out, " %s", text);
            }
            fputc('\n', out);
        } else {
            fprintf(out, "%*s%s:\n", indent, "", key);
            if (json_is_object(v)) print(out, v, indent + 2);
            else if (is_table(v)) table(out, v, indent + 2);
            else
                for (size_t i = 0; i < json_array_size(v); i++) {
                    json_t *item = json_array_get(v, i);
                    if (json_is_object(item)) {
                        print(out, item, indent + 2);
                        if (i + 1 < json_array_size(v)) fputc('\n', out);
                    } else {
                        char *dump = json_dumps(item, JSON_COMPACT | JSON_ENCODE_ANY);
                        fprintf(out, "%*s%s\n", indent + 2, "", dump ? dump : "");
                        free(dump);
                    }
                }
        }
    }
}

void vb__json_text(FILE *out, const json_t *value) {
    print(out, value, 0);
}
