/* One line per event, key=value, time first, to a callback (default: stderr). Never called inside kernels
 * or the token loop. */
#ifndef VB_BASE_LOG_H
#define VB_BASE_LOG_H
#include "base/error.h"

typedef enum vb__log_level { VB_LOG_DEBUG, VB_LOG_INFO, VB_LOG_WARN, VB_LOG_ERROR } vb__log_level;
typedef void vb__log_fn(void *user, vb__log_level level, const char *area, const char *text);

/* fn NULL: stderr. Lines below `level` are dropped before formatting. Set before threads start. */
void vb__log_set(vb__log_fn *fn, void *user, vb__log_level level);
vb__log_level vb__log_get_level(void);
/* Any thread; a line is written whole. Control characters are replaced. */
void vb__log(vb__log_level level, const char *area, const char *fmt, ...) VB_PRINTF(3, 4);

#endif
