/* Drives the tokenizer from scripts and measures it, without an engine.
 *   text_harness FOLDER [--decode]           JSON lines, as `verbatim tokenize --stdin-jsonl`
 *   text_harness FOLDER --bench FILE...      load time and encoding speed of each file, processor time
 * FOLDER holds tokenizer.json; --stdin-tokenizers instead of it reads lines {"tokenizer": {...}} that replace
 * the tokenizer, between the others. */
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "text/detokenizer.h"
#include "text/tokenize_lines.h"
#include "text/tokenizer.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int fail(const vb_error *err) {
    fprintf(stderr, "text_harness: error: %s\n", err->text);
    return vb_err_exit_code(err->code);
}

/* Time of this thread alone: all of it is work, and other programs do not count. */
static double cpu_seconds(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double median(double *x, int n) {
    for (int i = 1; i < n; i++)
        for (int j = i; j > 0 && x[j] < x[j - 1]; j--) {
            double y = x[j];
            x[j] = x[j - 1];
            x[j - 1] = y;
        }
    return x[n / 2];
}

static int bench(const char *folder, char **files, int n_files) {
    enum { LOADS = 5, RUNS = 9 };
    vb_error err;
    double load[LOADS];
    vb__tokenizer *t = NULL;
    for (int i = 0; i < LOADS; i++) {
        vb__tokenizer_destroy(t);
        t = NULL;
        double start = cpu_seconds();
        vb_err e = vb__tokenizer_load(folder, &t, &err);
        if (e != VB_OK) return fail(&err);
        load[i] = cpu_seconds() - start;
    }
    printf("load %s: %.3f s (median of %d)\n", folder, median(load, LOADS), LOADS);
    for (int i = 0; i < n_files; i++) {
        vb__buffer b;
        vb__ids ids = {0};
        double run[RUNS];
        vb__buffer_init(&b, VB_LIMIT_PROMPT_BYTES);
        if (vb__file_read(files[i], VB_LIMIT_PROMPT_BYTES, &b, &err) != VB_OK) return fail(&err);
        for (int k = 0; k < RUNS; k++) {
            ids.len = 0;
            double start = cpu_seconds();
            if (vb__tokenizer_encode(t, b.data, b.len, NULL, &ids, &err) != VB_OK) return fail(&err);
            run[k] = cpu_seconds() - start;
        }
        double mb = (double)b.len * 1e-6, encode = median(run, RUNS);
        vb__buffer text;
        vb__buffer_init(&text, (size_t)1 << 30);
        double start = cpu_seconds();
        if (vb__tokenizer_decode(t, ids.data, ids.len, false, &text, &err) != VB_OK) return fail(&err);
        double decode = cpu_seconds() - start;
        printf("%s: %zu bytes, %zu tokens, encode %.2f MB/s (best %.2f), decode %.2f MB/s\n", files[i], b.len,
               ids.len, mb / encode, mb / run[0], mb / decode);
        vb__buffer_fini(&text);
        vb__ids_fini(&ids);
        vb__buffer_fini(&b);
    }
    vb__tokenizer_destroy(t);
    return 0;
}

/* {"tokenizer": {...}}: replaces *t; answers {"loaded": true} or {"error"}. */
static bool replace_tokenizer(const char *line, size_t n, vb__tokenizer **t, vb__buffer *out) {
    static const char key[] = "{\"tokenizer\": ";
    if (n <= sizeof key || memcmp(line, key, sizeof key - 1) != 0) return false;
    vb_error err;
    vb__tokenizer *fresh = NULL;
    if (vb__tokenizer_parse(line + sizeof key - 1, n - sizeof key, NULL, 0, &fresh, &err) != VB_OK) {
        (void)vb__buffer_puts(out, "{\"error\": ");
        (void)vb__json_put_string(out, err.text, strlen(err.text));
        (void)vb__buffer_puts(out, "}\n");
        return true;
    }
    vb__tokenizer_destroy(*t);
    *t = fresh;
    (void)vb__buffer_puts(out, "{\"loaded\": true}\n");
    return true;
}

/* {"ids": [...], "stream": true}: the pieces of a stream in one string; false when the line asks for no such
 * thing. */
static bool stream_line(const char *line, size_t n, const vb__tokenizer *t, vb__buffer *out) {
    vb_error err;
    json_t *v = NULL;
    if (memmem(line, n, "\"stream\"", 8) == NULL) return false;
    if (vb__json_parse(line, n, VB_LIMIT_PROMPT_BYTES, "line", &v, &err) != VB_OK) return false;
    const json_t *ids = json_object_get(v, "ids");
    vb__detokenizer *d = NULL;
    vb_err e = vb__detokenizer_create(t, json_is_true(json_object_get(v, "skip_special")), &d, &err);
    vb__buffer all;
    vb__buffer_init(&all, (size_t)1 << 30);
    const char *text;
    size_t len;
    for (size_t i = 0; e == VB_OK && i < json_array_size(ids); i++) {
        e = vb__detokenizer_push(d, (int32_t)json_integer_value(json_array_get(ids, i)), &text, &len, &err);
        if (e == VB_OK) e = vb__buffer_append(&all, text, len);
    }
    if (e == VB_OK) e = vb__detokenizer_end(d, &text, &len, &err);
    if (e == VB_OK) e = vb__buffer_append(&all, text, len);
    (void)vb__buffer_puts(out, e == VB_OK ? "{\"text\": " : "{\"error\": ");
    (void)vb__json_put_string(out, e == VB_OK ? vb__buffer_str(&all) : err.text,
                              e == VB_OK ? all.len : strlen(err.text));
    (void)vb__buffer_puts(out, "}\n");
    vb__buffer_fini(&all);
    vb__detokenizer_destroy(d);
    json_decref(v);
    return true;
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: text_harness FOLDER|--stdin-tokenizers [--decode | --bench FILE...]\n");
        return 2;
    }
    if (argc > 3 && strcmp(argv[2], "--bench") == 0) return bench(argv[1], argv + 3, argc - 3);
    bool decode = argc > 2 && strcmp(argv[2], "--decode") == 0;
    vb_error err;
    vb__tokenizer *t = NULL;
    if (strcmp(argv[1], "--stdin-tokenizers") != 0 && vb__tokenizer_load(argv[1], &t, &err) != VB_OK)
        return fail(&err);
    char *line = NULL;
    size_t cap = 0;
    ssize_t n;
    vb__buffer out;
    vb__buffer_init(&out, (size_t)1 << 30);
    while ((n = getline(&line, &cap, stdin)) >= 0) {
        if (n > 0 && line[n - 1] == '\n') n--;
        bool ids = n >= 7 && memcmp(line, "{\"ids\":", 7) == 0;
        if (!replace_tokenizer(line, (size_t)n, &t, &out) &&
            !(ids && t != NULL && stream_line(line, (size_t)n, t, &out)) &&
            (t == NULL || vb__tokenize_line(t, decode || ids, line, (size_t)n, &out, &err) != VB_OK))
            return fail(&err);
        (void)fwrite(vb__buffer_str(&out), 1, out.len, stdout);
        (void)fflush(stdout);
        vb__buffer_clear(&out);
    }
    free(line);
    vb__buffer_fini(&out);
    vb__tokenizer_destroy(t);
    return 0;
}
