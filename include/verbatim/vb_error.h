/* Errors of the whole project: one negative enum, its names and messages from one list, and the sentence
 * that goes with an error where a person must act on it. Not here: logging (base/log.h). */
#ifndef VERBATIM_VB_ERROR_H
#define VERBATIM_VB_ERROR_H

/* X(name, value, message, exit code). New entries go at the end of their group; values are stable. */
#define VB_ERROR_LIST(X)                                                                                     \
    X(OK, 0, "success", 0)                                                                                   \
    X(E_ARGUMENT, -1, "invalid argument", 2)                                                                 \
    X(E_RANGE, -2, "value out of range", 2)                                                                  \
    X(E_NOT_FOUND, -10, "not found", 3)                                                                      \
    X(E_IO, -11, "input or output failed", 3)                                                                \
    X(E_FORMAT, -12, "malformed data", 3)                                                                    \
    X(E_UNSUPPORTED, -13, "not supported", 3)                                                                \
    X(E_LIMIT, -14, "a limit was exceeded", 3)                                                               \
    X(E_MISMATCH, -15, "parts do not fit each other", 3)                                                     \
    X(E_MEMORY, -20, "out of memory", 4)                                                                     \
    X(E_CONTEXT_FULL, -21, "the context is full", 4)                                                         \
    X(E_DEVICE, -22, "the device lacks what is needed", 4)                                                   \
    X(E_BUSY, -23, "too much is waiting", 4)                                                                 \
    X(E_DIFFERENCE, -30, "a check found a difference", 1)                                                    \
    X(E_NONFINITE, -31, "a logit is not finite", 5)                                                          \
    X(E_CANCELLED, -32, "cancelled", 5)                                                                      \
    X(E_INTERNAL, -40, "internal error", 5)

typedef enum vb_err {
#define VB_ERROR_ENUM(name, value, message, code) VB_##name = (value),
    VB_ERROR_LIST(VB_ERROR_ENUM)
#undef VB_ERROR_ENUM
} vb_err;

#define VB_ERROR_TEXT_MAX 256

/* code and one sentence ("FILE or FIELD: what, expected what"), always NUL-terminated. */
typedef struct vb_error {
    vb_err code;
    char text[VB_ERROR_TEXT_MAX];
} vb_error;

#if defined(__GNUC__)
#define VB_MUST_USE __attribute__((warn_unused_result))
#define VB_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#define VB_API __attribute__((visibility("default")))
#else
#define VB_MUST_USE
#define VB_PRINTF(fmt, first)
#define VB_API
#endif

/* Static strings; never NULL. vb_err_exit_code is the process exit code of interfaces documented in the manual. */
VB_API const char *vb_err_name(vb_err code);
VB_API const char *vb_err_message(vb_err code);
VB_API int vb_err_exit_code(vb_err code);

#endif
