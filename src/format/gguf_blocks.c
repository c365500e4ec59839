#include "format/gguf_blocks.h"
#include <stddef.h>
#include <string.h>

const vb__gguf_type_info *vb__gguf_type_get(uint32_t type) {
    static const vb__gguf_type_info infos[] = {
        [VB_GGUF_TYPE_F32] = {"F32", 1, 4, 0, false},       [VB_GGUF_TYPE_F16] = {"F16", 1, 2, 0, false},
        [VB_GGUF_TYPE_Q4_0] = {"Q4_0", 32, 18, 32, false},  [VB_GGUF_TYPE_Q4_1] = {"Q4_1", 32, 20, 32, true},
        [VB_GGUF_TYPE_Q5_0] = {"Q5_0", 32, 22, 32, false},  [VB_GGUF_TYPE_Q5_1] = {"Q5_1", 32, 24, 32, true},
        [VB_GGUF_TYPE_Q8_0] = {"Q8_0", 32, 34, 32, false},  [VB_GGUF_TYPE_Q4_K] = {"Q4_K", 256, 144, 32, true},
        [VB_GGUF_TYPE_Q5_K] = {"Q5_K", 256, 176, 32, true}, [VB_GGUF_TYPE_Q6_K] = {"Q6_K", 256, 210, 16, false},
        [VB_GGUF_TYPE_IQ4_NL] = {"IQ4_NL", 32, 18, 32, false}, [VB_GGUF_TYPE_BF16] = {"BF16", 1, 2, 0, false},
        [VB_GGUF_TYPE_MXFP4] = {"MXFP4", 32, 17, 32, false},
    };
    if (type >= sizeof infos / sizeof *infos || infos[type].name == NULL) return NULL;
    return &infos[type];
}

const char *vb__gguf_type_name(uint32_t type) {
    static const char *const others[] = {
        [4] = "Q4_2",     [5] = "Q4_3",     [9] = "Q8_1",      [10] = "Q2_K",     [11] = "Q3_K",       [15] = "Q8_K",       [16] = "IQ2_XXS",
        [17] = "IQ2_XS",  [18] = "IQ3_XXS", [19] = "IQ1_S",    [21] = "IQ3_S",    [22] = "IQ2_S",      [23] = "IQ4_XS",     [24] = "I8",
        [25] = "I16",     [26] = "I32",     [27] = "I64",      [28] = "F64",      [29] = "IQ1_M",      [31] = "Q4_0_4_4",   [32] = "Q4_0_4_8",
        [33] = "Q4_0_8_8", [34] = "TQ1_0",  [35] = "TQ2_0",    [36] = "IQ4_NL_4_4", [37] = "IQ4_NL_4_8", [38] = "IQ4_NL_8_8",
    };
    const vb__gguf_type_info *info = vb__gguf_type_get(type);
    if (info != NULL) return info->name;
    return type < sizeof others / sizeof *others ? others[type] : NULL;
}

/* ---- numbers -------------------------------------------------------------------------------------------- */

static uint32_t load16(const uint8_t *p) { return (uint32_t)p[0] | (uint32_t)p[1] << 8; }
static uint32_t load32(const uint8_t *p) { return load16(p) | load16(p + 2) << 16; }
static float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* fp16 widened, exactly; as integers, because a denormal half is a normal float. */
static float half(const uint8_t *p) {
    uint32_t h = load16(p), sign = (h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3ff;
    if (e == 31) return bits_float(sign | 0x7f800000u | m << 13);
    if (e != 0) return bits_float(sign | (e + 112) << 23 | m << 13);
    if (m == 0) return bits_float(sign);
    uint32_t shift = (uint32_t)__builtin_clz(m) - 21;
    return bits_float(sign | (113 - shift) << 23 | (m << shift & 0x3ff) << 13);
}

/* ---- blocks --------------------------------------------------------------------------------------------- */

static const int8_t iq4_nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
static const int8_t mxfp4[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static void block_32(vb__gguf_type type, const uint8_t *b, int8_t *codes, float *scale, float *bias) {
    const uint8_t *q = b + 2;
    uint32_t high = 0;
    *bias = 0.0f;
    *scale = type == VB_GGUF_TYPE_MXFP4 ? 0.0f : half(b);
    switch (type) {
    case VB_GGUF_TYPE_Q4_1:
        *bias = half(b + 2);
        q = b + 4;
        break;
    case VB_GGUF_TYPE_Q5_0:
        high = load32(b + 2);
        q = b + 6;
        break;
    case VB_GGUF_TYPE_Q5_1:
        *bias = half(b + 2);
        high = load32(b + 4);
        q = b + 8;
        break;
    case VB_GGUF_TYPE_MXFP4: /* 2^(e-128); denormal results count as 0 */
        if (b[0] >= 2) *scale = bits_float((uint32_t)(b[0] - 1) << 23);
        q = b + 1;
        break;
    default: break;
    }
    for (int i = 0; i < 16; i++) { /* low nibbles first */
        codes[i] = (int8_t)(q[i] & 15);
        codes[16 + i] = (int8_t)(q[i] >> 4);
    }
    if (type == VB_GGUF_TYPE_Q5_0 || type == VB_GGUF_TYPE_Q5_1)
        for (int i = 0; i < 32; i++) codes[i] = (int8_t)(codes[i] + (int)(high >> i & 1) * 16);
    int less = type == VB_GGUF_TYPE_Q4_0 ? 8 : type == VB_GGUF_TYPE_Q5_0 ? 16 : 0;
    if (less != 0)
        for (int i = 0; i < 32; i++) codes[i] = (int8_t)(codes[i] - less);
    const int8_t *table = type == VB_GGUF_TYPE_IQ4_NL ? iq4_nl : type == VB_GGUF_TYPE_MXFP4 ? mxfp4 : NULL;
    if (table != NULL)
        for (int i = 0; i < 32; i++) codes[i] = table[codes[i]];
}

/* Eight groups of 32; scales and minima in 6 bits each. */
static void block_k(vb__gguf_type type, const uint8_t *b, int8_t *codes, float *scales, float *biases) {
    bool five = type == VB_GGUF_TYPE_Q5_K;
    float d = half(b), dm = half(b + 2);
    const uint8_t *s = b + 4, *h = b + 16, *q = b + (five ? 48 : 16);
    for (int j = 0; j < 8; j++) {
        int sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        int mn = j < 4 ? s[j + 4] & 63 : s[j + 4] >> 4 | (s[j] >> 6) << 4;
        scales[j] = d * (float)sc;
        biases[j] = -(dm * (float)mn);
        int shift = j % 2 != 0 ? 4 : 0;
        for (int i = 0; i < 32; i++) codes[32 * j + i] = (int8_t)(q[32 * (j / 2) + i] >> shift & 15);
        for (int i = 0; five && i < 32; i++) codes[32 * j + i] = (int8_t)(codes[32 * j + i] + (h[i] >> j & 1) * 16);
    }
}

static void block_6k(const uint8_t *b, int8_t *codes, float *scales) {
    const uint8_t *ql = b, *qh = b + 128;
    float d = half(b + 208);
    for (int g = 0; g < 16; g++) scales[g] = d * (float)(int8_t)b[192 + g];
    for (int n = 0; n < 2; n++)
        for (int c = 0; c < 4; c++)
            for (int l = 0; l < 32; l++) {
                int low = ql[64 * n + 32 * (c % 2) + l] >> (c < 2 ? 0 : 4) & 15;
                codes[128 * n + 32 * c + l] = (int8_t)((low | (qh[32 * n + l] >> 2 * c & 3) << 4) - 32);
            }
}

void vb__gguf_codes(vb__gguf_type type, const uint8_t *row, int64_t k, int8_t *codes, float *scales, float *biases) {
    const vb__gguf_type_info *info = vb__gguf_type_get(type);
    int32_t groups = info->block / info->group;
    for (int64_t b = 0; b < k / info->block; b++) {
        const uint8_t *p = row + b * info->bytes;
        int8_t *c = codes + b * info->block;
        float *s = scales + b * groups, none[16], *m = biases != NULL ? biases + b * groups : none;
        switch (type) {
        case VB_GGUF_TYPE_Q4_K:
        case VB_GGUF_TYPE_Q5_K: block_k(type, p, c, s, m); break;
        case VB_GGUF_TYPE_Q6_K:
            block_6k(p, c, s);
            for (int g = 0; g < 16; g++) m[g] = 0.0f;
            break;
        case VB_GGUF_TYPE_Q8_0:
            *s = half(p);
            *m = 0.0f;
            memcpy(c, p + 2, 32);
            break;
        default: block_32(type, p, c, s, m); break;
        }
    }
}

void vb__gguf_decode(vb__gguf_type type, const uint8_t *row, int64_t k, float *out) {
    const vb__gguf_type_info *info = vb__gguf_type_get(type);
    int8_t codes[256];
    float scales[16], biases[16];
    if (info->group == 0) {
        for (int64_t i = 0; i < k; i++)
            out[i] = type == VB_GGUF_TYPE_F16 ? half(row + 2 * i)
                                              : bits_float(type == VB_GGUF_TYPE_F32 ? load32(row + 4 * i) : load16(row + 2 * i) << 16);
        return;
    }
    for (int64_t b = 0; b < k / info->block; b++) {
        vb__gguf_codes(type, row + b * info->bytes, info->block, codes, scales, biases);
        for (int32_t i = 0; i < info->block; i++) {
            float v = scales[i / info->group] * (float)codes[i];
            out[b * info->block + i] = info->bias ? v + biases[i / info->group] : v;
        }
    }
}
