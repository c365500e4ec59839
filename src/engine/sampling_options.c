/* Resolution of sampling options. See sampling_options.h. */
#include "engine/sampling_options.h"
#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/random.h>

static vb_err read_float(vb__json_at at, const char *key, double lo, double hi, uint32_t bit, uint32_t *set,
                         float *out, vb_error *err) {
    if (!vb__json_get(at, key)) return VB_OK;
    double d = 0;
    VB_TRY(vb__json_number(at, key, lo, hi, &d, err));
    *out = (float)d;
    *set |= bit;
    return VB_OK;
}

static vb_err read_eos(vb__json_at at, vb__generation_config *out, vb_error *err) {
    json_t *v = vb__json_get(at, "eos_token_id");
    if (!v) return VB_OK;
    if (!json_is_array(v)) {
        VB_TRY(vb__json_i32(at, "eos_token_id", 0, VB_LIMIT_VOCAB - 1, &out->eos[0], err));
        out->n_eos = 1;
        return VB_OK;
    }
    if (json_array_size(v) > VB_GENERATION_EOS_MAX)
        return vb__fail(err, VB_E_LIMIT, "%seos_token_id: has %zu ids, expected at most %d", at.where,
                        json_array_size(v), (int)VB_GENERATION_EOS_MAX);
    for (size_t i = 0; i < json_array_size(v); i++) {
        json_t *id = json_array_get(v, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= VB_LIMIT_VOCAB) {
            char is[64];
            return vb__fail(err, VB_E_FORMAT, "%seos_token_id[%zu]: %s, expected a token id", at.where, i,
                            vb__json_is(id, is, sizeof is));
        }
        out->eos[out->n_eos++] = (int32_t)json_integer_value(id);
    }
    return VB_OK;
}

static vb_err read_config(json_t *root, const char *file, vb__generation_config *out, vb_error *err) {
    char where[128];
    if (!json_is_object(root)) {
        char is[64];
        return vb__fail(err, VB_E_FORMAT, "%s: %s, expected an object", file,
                        vb__json_is(root, is, sizeof is));
    }
    snprintf(where, sizeof where, "%.100s: ", file);
    vb__json_at at = {root, where};
    vb_sampling *s = &out->sampling;
    bool given = vb__json_get(at, "do_sample") != NULL, sample = false;
    VB_TRY(vb__json_bool_or(at, "do_sample", false, &sample, err));
    VB_TRY(read_float(at, "temperature", 0, 100, VB_SET_TEMPERATURE, &s->set, &s->temperature, err));
    VB_TRY(read_float(at, "top_p", 0, 1, VB_SET_TOP_P, &s->set, &s->top_p, err));
    VB_TRY(read_float(at, "min_p", 0, 1, VB_SET_MIN_P, &s->set, &s->min_p, err));
    VB_TRY(read_float(at, "repetition_penalty", 1e-3, 100, VB_SET_REPEAT_PENALTY, &s->set, &s->repeat_penalty,
                      err));
    if (vb__json_get(at, "top_k")) {
        VB_TRY(vb__json_i32(at, "top_k", INT32_MIN, INT32_MAX, &s->top_k, err));
        s->set |= VB_SET_TOP_K;
    }
    if (given && !sample) s->temperature = 0.0f;
    else if (given && !(s->set & VB_SET_TEMPERATURE)) s->temperature = 1.0f;
    if (given) s->set |= VB_SET_TEMPERATURE;
    return read_eos(at, out, err);
}

vb_err vb__generation_config_parse(const char *text, size_t len, const char *file, vb__generation_config *out,
                                   vb_error *err) {
    json_t *root = NULL;
    vb__generation_config c = {0};
    VB_TRY(vb__json_parse(text, len, VB_LIMIT_GENERATION_CONFIG, file, &root, err));
    vb_err e = read_config(root, file, &c, err);
    json_decref(root);
    if (e == VB_OK) *out = c;
    return e;
}

vb_err vb__generation_config_read(const char *folder, vb__generation_config *out, vb_error *err) {
    static const char name[] = "generation_config.json";
    vb__generation_config c = {0};
    char *path = vb__path_join(folder, name);
    if (!path) return vb__fail(err, VB_E_MEMORY, "%s: out of memory", name);
    vb_err e = VB_OK;
    if (vb__file_exists(path)) {
        json_t *root = NULL;
        e = vb__json_read(path, VB_LIMIT_GENERATION_CONFIG, name, &root, err);
        if (e == VB_OK) e = read_config(root, name, &c, err);
        json_decref(root);
    }
    vb__free(path);
    if (e == VB_OK) *out = c;
    return e;
}

vb_err vb__sampling_resolve(const vb_sampling *request, const vb_sampling *flags, const vb_sampling *file,
                            vb_sampling *out, vb_error *err) {
    const vb_sampling *sources[] = {file, flags, request}; /* weakest first */
    vb_sampling r = {.set = VB_SET_TEMPERATURE | VB_SET_TOP_K | VB_SET_TOP_P | VB_SET_MIN_P |
                            VB_SET_REPEAT_PENALTY | VB_SET_PRESENCE_PENALTY | VB_SET_FREQUENCY_PENALTY,
                     .top_p = 1.0f,
                     .repeat_penalty = 1.0f};
    for (int i = 0; i < 3; i++) {
        const vb_sampling *s = sources[i];
        if (!s) continue;
        if (s->set & VB_SET_TEMPERATURE) r.temperature = s->temperature;
        if (s->set & VB_SET_TOP_K) r.top_k = s->top_k;
        if (s->set & VB_SET_TOP_P) r.top_p = s->top_p;
        if (s->set & VB_SET_MIN_P) r.min_p = s->min_p;
        if (s->set & VB_SET_REPEAT_PENALTY) r.repeat_penalty = s->repeat_penalty;
        if (s->set & VB_SET_PRESENCE_PENALTY) r.presence_penalty = s->presence_penalty;
        if (s->set & VB_SET_FREQUENCY_PENALTY) r.frequency_penalty = s->frequency_penalty;
        if (s->set & VB_SET_SEED) {
            r.seed = s->seed;
            r.set |= VB_SET_SEED;
        }
    }
    if (!(r.set & VB_SET_SEED)) {
        ssize_t n;
        do n = getrandom(&r.seed, sizeof r.seed, 0);
        while (n < 0 && errno == EINTR);
        if (n != (ssize_t)sizeof r.seed)
            return vb__fail(err, VB_E_IO, "seed: the system has no random numbers, expected --seed N");
        r.seed >>= 11;
        r.set |= VB_SET_SEED;
    }
    VB_TRY(vb__sampling_check(&r, err));
    *out = r;
    return VB_OK;
}

static vb_err in_range(const char *name, float v, float lo, float hi, vb_error *err) {
    if (v >= lo && v <= hi) return VB_OK; /* false for a NaN */
    return vb__fail(err, VB_E_RANGE, "%s: is %g, expected %g to %g", name, (double)v, (double)lo, (double)hi);
}

vb_err vb__sampling_check(const vb_sampling *s, vb_error *err) {
    if (s->set & VB_SET_TEMPERATURE) VB_TRY(in_range("temperature", s->temperature, 0.0f, 100.0f, err));
    if (s->set & VB_SET_TOP_P) VB_TRY(in_range("top_p", s->top_p, 0.0f, 1.0f, err));
    if (s->set & VB_SET_MIN_P) VB_TRY(in_range("min_p", s->min_p, 0.0f, 1.0f, err));
    if (s->set & VB_SET_REPEAT_PENALTY)
        VB_TRY(in_range("repeat_penalty", s->repeat_penalty, 0.001f, 100.0f, err));
    if (s->set & VB_SET_PRESENCE_PENALTY)
        VB_TRY(in_range("presence_penalty", s->presence_penalty, -100.0f, 100.0f, err));
    if (s->set & VB_SET_FREQUENCY_PENALTY)
        VB_TRY(in_range("frequency_penalty", s->frequency_penalty, -100.0f, 100.0f, err));
    return VB_OK;
}

vb_err vb__logit_bias_check(const vb_logit_bias *bias, int32_t n, int32_t vocab, vb_error *err) {
    if (n < 0 || (n > 0 && bias == NULL))
        return vb__fail(err, VB_E_ARGUMENT, "logit_bias: %d entries, expected 0 or more with their array", n);
    for (int32_t i = 0; i < n; i++) {
        if (bias[i].id < 0 || bias[i].id >= vocab)
            return vb__fail(err, VB_E_RANGE, "logit_bias: token id %d, expected 0 to %d", bias[i].id,
                            vocab - 1);
        if (!isfinite(bias[i].bias))
            return vb__fail(err, VB_E_RANGE, "logit_bias: token id %d has a bias that is not finite",
                            bias[i].id);
    }
    return VB_OK;
}
