/* $VERBATIM_HOME: where memos, tune results and pulled models live. Default $XDG_CACHE_HOME/verbatim, else
 * ~/.cache/verbatim. */
#ifndef VB_ENGINE_HOME_H
#define VB_ENGINE_HOME_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>

/* home + "/" + name into buf; false when there is no home or it does not fit. */
bool vb__home_path(const char *name, char *buf, size_t size);
/* Makes the folder (0700) and its parents. */
VB_MUST_USE vb_err vb__home_create(vb_error *err);

#endif
