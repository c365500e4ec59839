/* Making and forwarding errors inside the project. The public half is verbatim/vb_error.h. */
#ifndef VB_BASE_ERROR_H
#define VB_BASE_ERROR_H
#include "verbatim/vb_error.h"

/* Fills *err (may be NULL) and returns code. A text too long keeps its beginning and its end, with "..." in
 * between, because the end says what was expected. */
vb_err vb__fail_store(vb_error *err, vb_err code, const char *fmt, ...) VB_PRINTF(3, 4);
/* A macro, so that the compiler sees which code comes back. */
#define vb__fail(err, code, ...) (vb__fail_store(err, code, __VA_ARGS__), (code))

/* Puts "prefix: " in front of the sentence in *err (no-op when err is NULL); returns `code`. */
vb_err vb__fail_prefix(vb_error *err, vb_err code, const char *fmt, ...) VB_PRINTF(3, 4);

/* Forwards an error to the caller. */
#define VB_TRY(call)                                                                                         \
    do {                                                                                                     \
        vb_err vb_try_e_ = (call);                                                                           \
        if (vb_try_e_ != VB_OK) return vb_try_e_;                                                            \
    } while (0)

/* Forwards an error through the cleanup label `out`; the function has a variable `vb_err e`. */
#define VB_TRY_OUT(call)                                                                                     \
    do {                                                                                                     \
        e = (call);                                                                                          \
        if (e != VB_OK) goto out;                                                                            \
    } while (0)

/* vb_check: always on, for what only our own bug can break; prints the place and aborts.
 * vb_assert: the same in debug builds only. */
_Noreturn void vb__check_failed(const char *expr, const char *file, int line);
#define vb_check(expr) ((expr) ? (void)0 : vb__check_failed(#expr, __FILE__, __LINE__))
#ifdef NDEBUG
#define vb_assert(expr) ((void)sizeof(expr))
#else
#define vb_assert(expr) vb_check(expr)
#endif

#endif
