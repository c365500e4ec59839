#include "base/buffer.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void vb__buffer_init(vb__buffer *b, size_t max) { *b = (vb__buffer){.max = max}; }

void vb__buffer_fini(vb__buffer *b) {
    vb__free(b->data);
    *b = (vb__buffer){.max = b->max};
}

void vb__buffer_clear(vb__buffer *b) {
    b->len = 0;
    b->error = VB_OK;
    if (b->data != NULL) b->data[0] = '\0';
}

vb_err vb__buffer_reserve(vb__buffer *b, size_t more) {
    if (b->error != VB_OK) return b->error;
    if (more > b->max || b->len > b->max - more) return b->error = VB_E_LIMIT;
    size_t need = b->len + more + 1;
    if (need <= b->cap) return VB_OK;
    size_t cap = b->cap < 64 ? 64 : b->cap;
    while (cap < need) cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    char *data = vb__realloc_array(VB_TAG_MISC, b->data, cap, 1);
    if (data == NULL) return b->error = VB_E_MEMORY;
    b->data = data;
    b->cap = cap;
    b->data[b->len] = '\0'; /* also where nothing is appended: an empty file is an empty text */
    return VB_OK;
}

vb_err vb__buffer_append(vb__buffer *b, const void *data, size_t n) {
    VB_TRY(vb__buffer_reserve(b, n));
    if (n != 0) memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return VB_OK;
}

vb_err vb__buffer_puts(vb__buffer *b, const char *s) { return vb__buffer_append(b, s, strlen(s)); }
vb_err vb__buffer_putc(vb__buffer *b, char c) { return vb__buffer_append(b, &c, 1); }

vb_err vb__buffer_printf(vb__buffer *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    vb_err e = n < 0 ? VB_E_INTERNAL : vb__buffer_reserve(b, (size_t)n);
    if (e == VB_OK) {
        (void)vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
    return e;
}

const char *vb__buffer_str(const vb__buffer *b) { return b->data == NULL ? "" : b->data; }

char *vb__buffer_take(vb__buffer *b) {
    if (b->error == VB_OK && b->data == NULL) (void)vb__buffer_append(b, "", 0);
    char *p = b->error == VB_OK ? b->data : NULL;
    if (p == NULL) vb__free(b->data);
    *b = (vb__buffer){.max = b->max};
    return p;
}
