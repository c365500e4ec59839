/* The object of `run --json`. See result_json.h. */
#include "cli/result_json.h"

static json_t *ids_json(const int32_t *ids, int64_t n) {
    json_t *a = json_array();
    for (int64_t i = 0; i < n; i++) json_array_append_new(a, json_integer(ids[i]));
    return a;
}

static double rate(double n, double seconds) {
    return seconds > 0 ? n / seconds : 0;
}

static json_t *draft_json(const vb_result *r) {
    json_t *at = json_array(), *proposed = json_array(), *declined = json_array();
    for (int i = 0; i < 15 && r->proposed_at[i] > 0; i++) {
        json_array_append_new(at, json_integer(r->accepted_at[i]));
        json_array_append_new(proposed, json_integer(r->proposed_at[i]));
    }
    for (int i = 0; i < r->n_declined; i++) json_array_append_new(declined, json_integer(r->declined[i]));
    return json_pack("{s:s, s:i, s:I, s:I, s:I, s:f, s:o, s:o, s:o, s:{s:f, s:f, s:f}}", "kind",
                     r->draft_kind ? r->draft_kind : "none", "width", (int)r->draft_width, "rounds",
                     (json_int_t)r->rounds, "proposed", (json_int_t)r->proposed, "accepted",
                     (json_int_t)r->accepted, "mean_accepted",
                     r->rounds > 0 ? (double)r->accepted / (double)r->rounds : 0.0, "accepted_by_position",
                     at, "proposed_by_position", proposed, "declined", declined, "seconds", "draft",
                     r->draft_s, "verify", r->verify_s, "commit", r->commit_s);
}

static json_t *logprobs_json(const vb_result *r, int32_t top) {
    json_t *a = json_array();
    for (int32_t i = 0; i < r->count; i++) {
        json_t *best = json_array();
        for (int32_t k = 0; k < top && r->top; k++) {
            const vb_top_logprob *t = &r->top[(int64_t)i * top + k];
            if (t->id >= 0)
                json_array_append_new(
                    best, json_pack("{s:i, s:f}", "id", (int)t->id, "logprob", (double)t->logprob));
        }
        json_array_append_new(a, json_pack("{s:i, s:f, s:o}", "id", (int)r->ids[i], "logprob",
                                           (double)r->logprobs[i], "top", best));
    }
    return a;
}

json_t *vb__result_json(const vb_result *r, const vb_model_info *info, const int32_t *prompt,
                        int32_t n_prompt, int32_t top_logprobs) {
    static const char *const finish[] = {"stop", "length", "cancelled"};
    json_t *o = json_pack(
        "{s:s%, s:o, s:o, s:s, s:I, s:s, s:{s:f, s:f, s:f, s:f, s:f}, s:{s:s, s:i, s:i, s:s, s:i}, s:o, s:i}",
        "text", r->text ? r->text : "", r->text ? r->text_len : (size_t)0, "token_ids",
        ids_json(r->ids, r->count), "prompt_token_ids", ids_json(prompt, n_prompt), "finish_reason",
        finish[r->finish], "seed", (json_int_t)r->sampling.seed, "logits_sha256", r->logits_sha256, "timings",
        "load_s", info->load_s, "prefill_s", r->prefill_s, "decode_s", r->decode_s, "prefill_tokens_per_s",
        rate(n_prompt - r->cached_tokens, r->prefill_s), "decode_tokens_per_s",
        rate(r->count > 0 ? r->count - 1 : 0, r->decode_s), "numerics", "class", info->klass, "contract",
        (int)info->contract, "activations", (int)info->activations, "level", info->level, "threads",
        (int)info->threads, "draft", draft_json(r), "cached_tokens", (int)r->cached_tokens);
    if (o && r->stop) json_object_set_new(o, "stop", json_string(r->stop));
    if (o && top_logprobs >= 0 && r->logprobs)
        json_object_set_new(o, "logprobs", logprobs_json(r, top_logprobs));
    return o;
}
