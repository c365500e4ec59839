#include "base/error.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *vb_err_name(vb_err code) {
    switch (code) {
#define VB_CASE(name, value, message, exit_code)                                                             \
    case VB_##name: return "VB_" #name;
        VB_ERROR_LIST(VB_CASE)
#undef VB_CASE
    }
    return "VB_E_UNKNOWN";
}

const char *vb_err_message(vb_err code) {
    switch (code) {
#define VB_CASE(name, value, message, exit_code)                                                             \
    case VB_##name: return message;
        VB_ERROR_LIST(VB_CASE)
#undef VB_CASE
    }
    return "unknown error";
}

int vb_err_exit_code(vb_err code) {
    switch (code) {
#define VB_CASE(name, value, message, exit_code)                                                             \
    case VB_##name: return exit_code;
        VB_ERROR_LIST(VB_CASE)
#undef VB_CASE
    }
    return 5;
}

/* Copies `text` into the sentence, keeping its first and last parts when it is too long. Control characters
 * become '?', so that a hostile name cannot break the one-line form. */
static void error_store(vb_error *err, vb_err code, const char *text) {
    size_t n = strlen(text), cap = sizeof err->text - 1;
    err->code = code;
    if (n <= cap) {
        memmove(err->text, text, n + 1);
    } else {
        size_t tail = cap / 2, head = cap - tail - 3;
        memmove(err->text, text, head);
        memcpy(err->text + head, "...", 3);
        memcpy(err->text + head + 3, text + n - tail, tail);
        err->text[cap] = '\0';
    }
    for (char *p = err->text; *p != '\0'; p++)
        if ((unsigned char)*p < 0x20 || *p == 0x7f) *p = '?';
}

vb_err vb__fail_store(vb_error *err, vb_err code, const char *fmt, ...) {
    if (err == NULL) return code;
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (n < 0) text[0] = '\0';
    error_store(err, code, text);
    return code;
}

vb_err vb__fail_prefix(vb_error *err, vb_err code, const char *fmt, ...) {
    if (err == NULL) return code;
    char text[2048];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof text - VB_ERROR_TEXT_MAX - 3, fmt, ap);
    va_end(ap);
    size_t at = n < 0 ? 0 : strlen(text);
    const char *rest = err->code == code ? err->text : vb_err_message(code);
    memcpy(text + at, ": ", 2);
    memcpy(text + at + 2, rest, strlen(rest) + 1);
    error_store(err, code, text);
    return code;
}

void vb__check_failed(const char *expr, const char *file, int line) {
    fprintf(stderr, "verbatim: internal error: %s:%d: check failed: %s\n", file, line, expr);
    fflush(stderr);
    abort();
}
