/* Drafting as the scheduler sees it: somebody who may propose tokens behind the pending one, and who is shown every
 * committed row. Whatever is proposed, the text does not change; only how many rows a step commits does. */
#ifndef VB_ENGINE_DRAFTING_H
#define VB_ENGINE_DRAFTING_H
#include "base/error.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct vb__draft_vocab;
struct vb__engine;
struct vb__req;
struct vb__slot;
struct vb__step_seq;
struct vb__cpu_backend_options;
struct vb__weight_source;
struct vb_model_options;

/* What is wrong with o's drafting options for a model, as far as it can be seen before anything is loaded: a drafter that is not there, of
 * another kind, or of other sizes than the model's (both are named). */
VB_MUST_USE vb_err vb__drafting_check(const struct vb__weight_source *model, const struct vb_model_options *o, vb_error *err);
/* Reads the drafters that o->draft names and gates their widths. A drafter asked for by name that does not fit is an error
 * with both numbers; `auto` takes what fits. */
VB_MUST_USE vb_err vb__drafting_open(struct vb__engine *e, const struct vb_model_options *o, vb_error *err);
/* Before the backend is made: raises its bounds to what the drafter that `spec` names for the model at `model` needs. A
 * drafter that cannot be read changes nothing; open says why. */
void vb__drafting_widen(const char *model, const char *spec, struct vb__cpu_backend_options *bo);
void vb__drafting_close(struct vb__engine *e);

/* A request starts on a slot whose sequence holds seq->length tokens. */
void vb__drafting_begin(struct vb__engine *e, struct vb__slot *s);
/* The slot's sequence was reset. */
void vb__drafting_forget(struct vb__engine *e, struct vb__slot *s);
/* How many tokens, at most `max`, will be proposed behind the slot's pending one, and who does it (0: plain decode). Those that need no
 * forward are in `out` at once. */
int32_t vb__drafting_plan(struct vb__engine *e, struct vb__slot *s, int32_t *out, int32_t max);
/* Makes the planned drafts of plan[0..n-1] (their slots have requests), all sequences of a drafter in one call, behind row row0 of
 * row_tokens. A drafter that fails leaves plan[i].drafts at 0. */
void vb__drafting_run(struct vb__engine *e, struct vb__step_seq *plan, int32_t n);
/* What a forward must keep for the drafters: hidden rows of all rows; taps (layers, ascending; NULL and 0: none). */
bool vb__drafting_wants_hidden(const struct vb__engine *e);
const int32_t *vb__drafting_taps(const struct vb__engine *e, int32_t *n);
/* plan[i].keep rows of each slot became part of its sequence (the request's fed counts them already); slots without a request are
 * left out. */
void vb__drafting_commit(struct vb__engine *e, struct vb__step_seq *plan, int32_t n);
/* Times of a finished step in which every sequence decoded, for the policy; tokens: that all of them got. */
void vb__drafting_observe(struct vb__engine *e, int32_t n_seqs, int32_t rows, int32_t tokens, double draft_s, double verify_s);
/* Name of a kind number ("none", "lookup", "mtp", "dflash", "model", "auto"); widths that the gate declined. */
const char *vb__draft_kind_name(int32_t kind);
int32_t vb__drafting_declined(const struct vb__engine *e, int32_t out[16]);
/* Another fixed width (0: the policy's), other kinds among those loaded, for coming proposals. */
void vb__drafting_set_kinds(struct vb__engine *e, uint32_t kinds);
void vb__drafting_set_width(struct vb__engine *e, int32_t width);
/* Which ids MTP and DFlash drafts choose among (NULL without such drafters). */
struct vb__draft_vocab *vb__drafting_vocab(struct vb__engine *e);
/* The gate (NULL without drafting), the kinds that were loaded (bit mask; any thread), and a kind's number by name (-1: unknown). */
struct vb__gate *vb__drafting_gate(struct vb__engine *e);
uint32_t vb__drafting_kinds(const struct vb__engine *e);
/* The one kind that a request asked for by name, or else the engine's options did; VB_DRAFT_NONE with auto or none. */
int32_t vb__drafting_asked(const struct vb__engine *e, const struct vb__req *r);
int32_t vb__draft_kind_parse(const char *name, size_t len);

#endif
