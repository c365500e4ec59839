/* What `tune` found for a model on a device: the best width of each drafter. Lines of $VERBATIM_HOME/tune.memo. */
#ifndef VB_ENGINE_TUNED_H
#define VB_ENGINE_TUNED_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb__engine;

/* One word that names model, contract, activations, level, CPU and build. */
void vb__device_key(const struct vb__engine *e, char *buf, size_t size);
/* An error when the file cannot be written. */
VB_MUST_USE vb_err vb__tuned_writable(vb_error *err);
VB_MUST_USE vb_err vb__tuned_store(const struct vb__engine *e, int32_t kind, int32_t width, double ratio, vb_error *err);
/* What stands behind the key in a line: "tTHREADS KIND WIDTH RATIO". False for anything else. */
bool vb__tuned_parse(const char *rest, int32_t *threads, int32_t *kind, int32_t *width);
/* widths[kind], 0 where nothing is stored. n: kinds. */
void vb__tuned_load(const struct vb__engine *e, int32_t *widths, int32_t n);

#endif
