/* A growable byte buffer that cannot be created without its maximum size. Errors stick: after one the
 * buffer takes nothing more, so that a chain of appends needs one check at the end. */
#ifndef VB_BASE_BUFFER_H
#define VB_BASE_BUFFER_H
#include "base/alloc.h"
#include "base/error.h"

typedef struct vb__buffer {
    char *data; /* len bytes and a NUL behind them; NULL until the first append */
    size_t len, cap, max;
    vb_err error; /* VB_OK, VB_E_MEMORY or VB_E_LIMIT */
} vb__buffer;

void vb__buffer_init(vb__buffer *b, size_t max);
void vb__buffer_fini(vb__buffer *b);
void vb__buffer_clear(vb__buffer *b); /* keeps the memory, forgets an error */
vb_err vb__buffer_append(vb__buffer *b, const void *data, size_t n);
vb_err vb__buffer_puts(vb__buffer *b, const char *s);
vb_err vb__buffer_putc(vb__buffer *b, char c);
vb_err vb__buffer_printf(vb__buffer *b, const char *fmt, ...) VB_PRINTF(2, 3);
vb_err vb__buffer_reserve(vb__buffer *b, size_t more); /* room for `more` bytes behind len */
/* The text, never NULL; borrowed. */
const char *vb__buffer_str(const vb__buffer *b);
/* The text, now the caller's (vb__free); NULL when an error stuck. The buffer is empty afterwards. */
char *vb__buffer_take(vb__buffer *b);

#endif
