/* Tokenizers from the tokenizer.ggml.* fields of a GGUF file: byte-level BPE ("gpt2") and SentencePiece BPE
 * with scores ("llama"). */
#include "base/alloc.h"
#include "text/tokenizer_parts.h"
#define XXH_INLINE_ALL
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define WHERE "tokenizer.ggml."
#define SHOW(n) ((int)((n) > 40 ? 40 : (n)))
enum { SPM_TOKEN_MAX = 512 };

static vb_err no_memory(vb_error *err) { return vb__fail(err, VB_E_MEMORY, WHERE "tokens: out of memory"); }

static int32_t type_of(const vb__gguf_vocab *g, size_t id) {
    return g->types == NULL ? VB_GGUF_NORMAL : g->types[id];
}

/* ---- vocabulary ---- */

static vb_err load_tokens(const vb__gguf_vocab *g, vb__tokenizer *t, vb_error *err) {
    if (g->n_tokens == 0 || g->n_tokens > VB_LIMIT_VOCAB)
        return vb__fail(err, VB_E_LIMIT, WHERE "tokens: %zu tokens, expected 1..%d", g->n_tokens,
                        VB_LIMIT_VOCAB);
    if (vb__vocabulary_init(&t->model, g->n_tokens, 8 * g->n_tokens) != VB_OK) return no_memory(err);
    for (size_t i = 0; i < g->n_tokens; i++) {
        const vb__gguf_string *s = &g->tokens[i];
        if (vb__utf8_check(s->text, s->len) != s->len)
            return vb__fail(err, VB_E_FORMAT, WHERE "tokens[%zu]: is not UTF-8", i);
        /* Filler and unused entries may repeat a string; the first of them is found. */
        int32_t first = vb__vocabulary_find(&t->model, s->text, s->len);
        vb_err e = vb__vocabulary_add(&t->model, s->text, s->len, (int32_t)i, false);
        if (e == VB_E_LIMIT)
            return vb__fail(err, e, WHERE "tokens[%zu]: has %zu bytes, expected at most %d", i, s->len,
                            VB_LIMIT_TOKEN_BYTES);
        if (e != VB_OK) return no_memory(err);
        if (first >= 0 && type_of(g, i) == VB_GGUF_NORMAL && type_of(g, (size_t)first) == VB_GGUF_NORMAL)
            return vb__fail(err, VB_E_MISMATCH, WHERE "tokens: \"%.*s\" has the ids %d and %zu", SHOW(s->len),
                            s->text, first, i);
    }
    return VB_OK;
}

/* Control tokens are special; user-defined ones are added tokens too. */
static vb_err load_added(const vb__gguf_vocab *g, vb__tokenizer *t, vb_error *err) {
    for (size_t i = 0; i < g->n_tokens; i++) {
        int32_t type = type_of(g, i);
        if (type < VB_GGUF_NORMAL || type > VB_GGUF_BYTE)
            return vb__fail(err, VB_E_FORMAT, WHERE "token_type[%zu]: is %d, expected 1..6", i, type);
        if (type != VB_GGUF_CONTROL && type != VB_GGUF_USER_DEFINED && type != VB_GGUF_UNKNOWN) continue;
        vb__added_token x = {.text = (char *)g->tokens[i].text,
                             .len = g->tokens[i].len,
                             .id = (int32_t)i,
                             .special = type != VB_GGUF_USER_DEFINED};
        if (x.len == 0 || vb__vocabulary_find(&t->added.names, x.text, x.len) >= 0) continue;
        VB_TRY(vb__tokenizer_add_token(t, &x, (int32_t)g->n_tokens, WHERE "tokens: ", err));
    }
    return VB_OK;
}

static vb_err load_names(const vb__gguf_vocab *g, vb__tokenizer *t, vb_error *err) {
    const struct {
        const char *name;
        int32_t id;
    } names[] = {{"bos", g->bos},     {"eos", g->eos}, {"padding", g->pad},
                 {"unknown", g->unk}, {"eot", g->eot}, {"eom", g->eom}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].id != VB_NO_TOKEN && (names[i].id < 0 || (size_t)names[i].id >= g->n_tokens))
            return vb__fail(err, VB_E_RANGE, WHERE "%s_token_id: is %d, expected 0..%zu", names[i].name,
                            names[i].id, g->n_tokens - 1);
    t->named[VB_TOKEN_BOS] = g->bos;
    t->named[VB_TOKEN_EOS] = g->eos;
    t->named[VB_TOKEN_PAD] = g->pad;
    t->named[VB_TOKEN_UNK] = g->unk;
    const int32_t ends[] = {g->eos, g->eot, g->eom};
    for (size_t i = 0; i < 3; i++) {
        bool known = ends[i] < 0;
        for (size_t k = 0; k < t->n_eos; k++) known = known || t->eos[k] == ends[i];
        if (!known) t->eos[t->n_eos++] = ends[i];
    }
    if (g->add_bos && g->bos >= 0) t->before[t->n_before++] = g->bos;
    if (g->add_eos && g->eos >= 0) t->after[t->n_after++] = g->eos;
    return VB_OK;
}

/* ---- gpt2 ---- */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define QWEN2 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL
#define QWEN35                                                                                               \
    CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL
#define LLAMA3 CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define O200K                                                                                                \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTIONS "?|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER     \
    "*" CONTRACTIONS "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL
#define TEKKEN                                                                                               \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER                      \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL
#define DEEPSEEK3                                                                                            \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"     \
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL
/* Letters with case of the older DeepSeek files, their wide punctuation, and CJK. By number: an editor that normalises text would
 * change what the ranges span. */
#define DEEPSEEK_WORDS                                                                                       \
    "\\s?[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                      \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}\\x{37F}"           \
    "\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}"                   \
    "\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}"            \
    "\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"        \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"        \
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}\\x{1FBE}"          \
    "\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"        \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}"                   \
    "\\x{2119}-\\x{211D}\\x{2124}\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}"          \
    "\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}"                   \
    "\\x{2C7E}-\\x{2CE4}\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}"         \
    "\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"        \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}\\x{10400}-\\x{1044F}"                         \
    "\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"                   \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]+"
#define DEEPSEEK_PUNCT "\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]+"
#define CJK "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

typedef struct pre_kind {
    const char *names[16];           /* NULL-terminated */
    const char *patterns[6];         /* NULL-terminated; each splits the pieces of the one before */
    bool nfc, ignore_merges, digits; /* digits: one by one, before the patterns */
    bool digits_last;
    bool bos; /* first where the file does not say */
} pre_kind;

static const pre_kind kinds[] = {
    {{"qwen2", "deepseek-r1-qwen", "megrez"}, {QWEN2}, .nfc = true},
    {{"stablelm2", "hunyuan"}, {QWEN2}, .nfc = false},
    {{"qwen35"}, {QWEN35}, .nfc = true},
    {{"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "smaug-bpe"}, {LLAMA3}, .ignore_merges = true, .bos = true},
    {{"glm4", "chatglm-bpe", "dbrx"}, {LLAMA3}, .nfc = false},
    {{"gpt-4o", "llama4", "o200k"}, {O200K}, .nfc = false},
    {{"tekken"}, {TEKKEN}, .ignore_merges = true, .bos = true},
    {{"gpt-2", "default", "phi-2", "mpt", "olmo", "roberta-bpe", "jina-es", "jina-de"}, {GPT2}, .nfc = false},
    {{"smollm", "starcoder", "refact", "command-r", "codeshell"}, {GPT2}, .digits = true},
    {{"deepseek-llm"}, {"[\\r\\n]", DEEPSEEK_WORDS, DEEPSEEK_PUNCT, "\\s+$", CJK}, .digits_last = true},
    {{"deepseek-coder"}, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK}, .digits_last = true},
    {{"deepseek-v3"}, {"\\p{N}{1,3}", "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]+", DEEPSEEK3}, .nfc = false},
};

static const pre_kind *find_kind(const char *name) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t k = 0; kinds[i].names[k] != NULL; k++)
            if (strcmp(kinds[i].names[k], name) == 0) return &kinds[i];
    return NULL;
}

bool vb__gguf_pre_adds_bos(const char *pre) {
    const pre_kind *k = pre == NULL ? NULL : find_kind(pre);
    return k != NULL && k->bos;
}

static vb_err load_pre(const char *name, vb__tokenizer *t, vb_error *err) {
    const pre_kind *k = find_kind(name == NULL ? "default" : name);
    if (k == NULL)
        return vb__fail(err, VB_E_UNSUPPORTED, WHERE "pre: pre-tokenizer \"%.60s\" is not supported", name);
    const vb__pre_step digits = {.kind = VB_PRE_DIGITS, .behavior = VB_PRE_ISOLATED};
    if (k->nfc)
        VB_TRY(vb__norm_add(&t->normalizer, (vb__norm_step){.kind = VB_NORM_NF, .form = VB_NFC}, err));
    if (k->digits) VB_TRY(vb__pre_add(&t->pre, digits, err));
    for (size_t i = 0; k->patterns[i] != NULL; i++)
        VB_TRY(vb__pre_add_regex(&t->pre, k->patterns[i], strlen(k->patterns[i]), WHERE "pre", err));
    if (k->digits_last) VB_TRY(vb__pre_add(&t->pre, digits, err));
    t->bpe.byte_level = true;
    t->bpe.ignore_merges = k->ignore_merges;
    return vb__dec_add(&t->decoder, (vb__dec_step){.kind = VB_DEC_BYTE_LEVEL}, err);
}

static vb_err load_merges(const vb__gguf_vocab *g, vb__tokenizer *t, vb_error *err) {
    if (g->n_merges > (size_t)4 * VB_LIMIT_VOCAB)
        return vb__fail(err, VB_E_LIMIT, WHERE "merges: %zu, expected at most %d", g->n_merges,
                        4 * VB_LIMIT_VOCAB);
    vb__buffer both;
    vb__buffer_init(&both, 2 * VB_LIMIT_TOKEN_BYTES);
    vb_err e = VB_OK;
    for (size_t i = 0; e == VB_OK && i < g->n_merges; i++) {
        const char *s = g->merges[i].text;
        size_t n = g->merges[i].len;
        /* A part may itself begin with a space character only as the byte's stand-in, so one space divides.
         */
        const char *space = n < 2 ? NULL : memchr(s + 1, ' ', n - 1);
        if (space == NULL) {
            e = vb__fail(err, VB_E_FORMAT, WHERE "merges[%zu]: \"%.*s\", expected two parts", i, SHOW(n), s);
            break;
        }
        size_t left = (size_t)(space - s), right = n - left - 1;
        vb__buffer_clear(&both);
        (void)vb__buffer_append(&both, s, left);
        if (vb__buffer_append(&both, space + 1, right) != VB_OK) {
            e = vb__fail(err, both.error, WHERE "merges[%zu]: %s", i, vb_err_message(both.error));
            break;
        }
        int32_t a = vb__vocabulary_find(&t->model, s, left),
                b = vb__vocabulary_find(&t->model, space + 1, right),
                id = vb__vocabulary_find(&t->model, both.data, both.len);
        if (a < 0 || b < 0 || id < 0)
            e = vb__fail(err, VB_E_MISMATCH, WHERE "merges[%zu]: \"%.*s\" has a part that is not a token", i,
                         SHOW(n), s);
        else if (vb__bpe_add_merge(&t->bpe, a, b, (uint32_t)i, id, g->n_merges) != VB_OK) e = no_memory(err);
    }
    vb__buffer_fini(&both);
    return e;
}

/* ---- llama ---- */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b) {
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Neighbours merge when their text together is a token; the token with the highest score goes first. So every
 * way to cut a token in two is a rule, and its rank is the place of the token's score. */
static vb_err rules_of_scores(const vb__gguf_vocab *g, vb__tokenizer *t, scored *list, vb_error *err) {
    size_t n = 0;
    for (size_t i = 0; i < g->n_tokens; i++) {
        if (!isfinite(g->scores[i])) return vb__fail(err, VB_E_FORMAT, WHERE "scores[%zu]: is not finite", i);
        if (type_of(g, i) != VB_GGUF_NORMAL && type_of(g, i) != VB_GGUF_USER_DEFINED) continue;
        if (vb__vocabulary_find(&t->model, g->tokens[i].text, g->tokens[i].len) != (int32_t)i) continue;
        list[n++] = (scored){g->scores[i], (int32_t)i};
    }
    qsort(list, n, sizeof *list, by_score);
    uint32_t rank = 0;
    for (size_t k = 0; k < n; k++) {
        const vb__gguf_string *s = &g->tokens[list[k].id];
        if (k > 0 && list[k].score != list[k - 1].score) rank++;
        if (s->len > SPM_TOKEN_MAX) {
            if (type_of(g, (size_t)list[k].id) != VB_GGUF_NORMAL) continue;
            return vb__fail(err, VB_E_LIMIT, WHERE "tokens[%d]: has %zu bytes, expected at most %d",
                            list[k].id, s->len, SPM_TOKEN_MAX);
        }
        for (size_t at = 1; at < s->len; at++) {
            if (((unsigned char)s->text[at] & 0xc0) == 0x80) continue;
            int32_t a = vb__vocabulary_find(&t->model, s->text, at),
                    b = vb__vocabulary_find(&t->model, s->text + at, s->len - at);
            if (a < 0 || b < 0) continue;
            if (vb__bpe_add_merge(&t->bpe, a, b, rank, list[k].id, 4 * g->n_tokens) != VB_OK)
                return no_memory(err);
        }
    }
    return VB_OK;
}

static vb_err own_copy(const char *s, char **out, size_t *n, vb_error *err) {
    *n = strlen(s);
    *out = vb__strdup(VB_TAG_TEXT, s);
    return *out == NULL ? no_memory(err) : VB_OK;
}

#define BLANK "\xe2\x96\x81" /* U+2581, which stands for a space */

static vb_err load_spm_steps(const vb__gguf_vocab *g, vb__tokenizer *t, vb_error *err) {
    vb__norm_step prepend = {.kind = VB_NORM_PREPEND}, replace = {.kind = VB_NORM_REPLACE};
    vb__dec_step back = {.kind = VB_DEC_REPLACE}, strip = {.kind = VB_DEC_STRIP, .start = 1};
    if (g->add_space_prefix) {
        VB_TRY(own_copy(BLANK, &prepend.content, &prepend.n_content, err));
        VB_TRY(vb__norm_add(&t->normalizer, prepend, err));
    }
    /* A step that is not complete when memory runs out is added all the same, so that it is freed. */
    vb_err e = own_copy(" ", &replace.pattern, &replace.n_pattern, err);
    if (e == VB_OK) e = own_copy(BLANK, &replace.content, &replace.n_content, err);
    VB_TRY(vb__norm_add(&t->normalizer, replace, err));
    VB_TRY(e);
    e = own_copy(BLANK, &back.pattern, &back.n_pattern, err);
    if (e == VB_OK) e = own_copy(" ", &back.content, &back.n_content, err);
    VB_TRY(vb__dec_add(&t->decoder, back, err));
    VB_TRY(e);
    VB_TRY(vb__dec_add(&t->decoder, (vb__dec_step){.kind = VB_DEC_BYTE_FALLBACK}, err));
    VB_TRY(vb__dec_add(&t->decoder, (vb__dec_step){.kind = VB_DEC_FUSE}, err));
    if (!g->add_space_prefix) return VB_OK;
    VB_TRY(own_copy(" ", &strip.content, &strip.n_content, err));
    return vb__dec_add(&t->decoder, strip, err);
}

static vb_err load_spm(const vb__gguf_vocab *g, vb__tokenizer *t, vb_error *err) {
    if (g->scores == NULL)
        return vb__fail(err, VB_E_FORMAT, WHERE "scores: is missing, expected %zu numbers", g->n_tokens);
    t->bpe.byte_fallback = true;
    t->bpe.fuse_unk = true;
    t->bpe.unk = g->unk;
    VB_TRY(load_spm_steps(g, t, err));
    scored *list = vb__realloc_array(VB_TAG_TEXT, NULL, g->n_tokens, sizeof *list);
    if (list == NULL) return no_memory(err);
    vb_err e = rules_of_scores(g, t, list, err);
    vb__free(list);
    return e;
}

/* ---- the whole ---- */

static void hash_text(XXH3_state_t *s, const char *text, size_t n) {
    uint64_t len = n;
    XXH3_128bits_update(s, &len, sizeof len);
    if (n > 0) XXH3_128bits_update(s, text, n);
}

static vb_err fingerprint(const vb__gguf_vocab *g, vb__tokenizer *t, vb_error *err) {
    XXH3_state_t *s = XXH3_createState();
    if (s == NULL) return no_memory(err);
    XXH3_128bits_reset(s);
    hash_text(s, g->model, strlen(g->model));
    hash_text(s, g->pre, g->pre == NULL ? 0 : strlen(g->pre));
    for (size_t i = 0; i < g->n_tokens; i++) hash_text(s, g->tokens[i].text, g->tokens[i].len);
    for (size_t i = 0; i < g->n_merges; i++) hash_text(s, g->merges[i].text, g->merges[i].len);
    if (g->types != NULL) XXH3_128bits_update(s, g->types, g->n_tokens * sizeof *g->types);
    if (g->scores != NULL) XXH3_128bits_update(s, g->scores, g->n_tokens * sizeof *g->scores);
    const int32_t rest[] = {
        g->bos, g->eos, g->eot, g->eom, g->unk, g->pad, g->add_bos, g->add_eos, g->add_space_prefix};
    XXH3_128bits_update(s, rest, sizeof rest);
    XXH128_hash_t h = XXH3_128bits_digest(s);
    XXH3_freeState(s);
    t->hash = (vb__text_hash){h.low64, h.high64};
    return VB_OK;
}

vb_err vb__tokenizer_from_gguf(const vb__gguf_vocab *g, vb__tokenizer **out, vb_error *err) {
    vb__tokenizer *t = NULL;
    bool spm = strcmp(g->model, "llama") == 0;
    if (!spm && strcmp(g->model, "gpt2") != 0)
        return vb__fail(err, VB_E_UNSUPPORTED,
                        WHERE "model: \"%.60s\" is not supported, expected gpt2 or llama", g->model);
    VB_TRY(vb__tokenizer_new(&t, err));
    vb_err e;
    VB_TRY_OUT(load_tokens(g, t, err));
    VB_TRY_OUT(load_names(g, t, err));
    if (spm) {
        VB_TRY_OUT(load_spm(g, t, err));
    } else {
        VB_TRY_OUT(load_pre(g->pre, t, err));
        VB_TRY_OUT(load_merges(g, t, err));
    }
    VB_TRY_OUT(vb__decoder_prepare(&t->decoder, err));
    VB_TRY_OUT(load_added(g, t, err));
    VB_TRY_OUT(vb__tokenizer_finish(t, err));
    VB_TRY_OUT(fingerprint(g, t, err));
    *out = t;
    t = NULL;
out:
    vb__tokenizer_destroy(t);
    return e;
}
