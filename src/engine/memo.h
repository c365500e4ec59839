/* Memos: small files of $VERBATIM_HOME that remember what was measured, one line "KEY REST" each, of which the last one of a key
 * counts. They belong to whoever can write there and may be damaged: what cannot be read is passed over, and the work is done again.
 * Several processes may use one at a time. */
#ifndef VB_ENGINE_MEMO_H
#define VB_ENGINE_MEMO_H
#include "base/error.h"
#include <stddef.h>

enum {
    VB_MEMO_MAX = 1 << 20,   /* bytes of a file that are read: its end */
    VB_MEMO_LINE_MAX = 512,  /* bytes of a line with its end */
};

/* What stands behind the key and one blank; without the end of the line. */
typedef void vb__memo_rest(void *user, const char *rest);

/* Lines of a key in a file's bytes, in order; a line without an end was cut short and is none. `key` has no blank in it. */
void vb__memo_scan(const char *text, size_t n, const char *key, vb__memo_rest *rest, void *user);
/* The same of a file of the home. A file that is missing, no regular file or not readable has no lines. Never waits. */
void vb__memo_read(const char *name, const char *key, vb__memo_rest *rest, void *user);
/* Appends one line ("KEY REST\n"; "": only whether it could), whole or not at all (one write, 0600, no symbolic link). A file that has
 * grown over VB_MEMO_MAX is cut down to the half of that written last. */
VB_MUST_USE vb_err vb__memo_append(const char *name, const char *line, vb_error *err);

#endif
