/* Rotary frequencies of a config: default, linear, llama3 and YaRN scaling, in f64 by base/vmath, each frequency
 * and the factor rounded once to f32. The formulas are docs/numerics.md, "Row-wise"; operations run in the order
 * in which rope_freqs.c writes them, so the bits are the same everywhere. */
#ifndef VB_MODEL_ROPE_FREQS_H
#define VB_MODEL_ROPE_FREQS_H
#include "model/config.h"

/* freqs: r->rotated / 2 floats; *m: the factor on cos and sin (1 except for YaRN). VB_E_UNSUPPORTED for a scaling
 * type that is not one of these, VB_E_FORMAT for numbers without a meaning; then nothing is written. */
VB_MUST_USE vb_err vb__rope_freqs(const vb__rope_config *r, float *freqs, float *m, vb_error *err);

#endif
