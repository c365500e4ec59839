/* Helpers of the AVX-512 linear kernels, also used by AMX. Static inline only. */
#ifndef VB_BACKEND_X86_LINEAR_AVX512_H
#define VB_BACKEND_X86_LINEAR_AVX512_H
#include "backend/ops/linear_bf16.h"
#include "backend/ops/linear_q.h"
#include <immintrin.h>

#define VB_INLINE static inline __attribute__((always_inline))

/* Bytes ahead of the weight stream that are asked for; the hardware's own prefetch stops at 4 KiB pages. */
enum { VB_AHEAD = 3072 };

/* 16 scales (or biases) as f32. */
VB_INLINE __m512 vb__scales16(const uint8_t *p, vb__scale_kind kind) {
    if (kind == VB_SCALE_F32) return _mm512_loadu_ps(p);
    __m256i h = _mm256_loadu_si256((const __m256i *)(const void *)p);
    if (kind == VB_SCALE_F16) return _mm512_cvtph_ps(h);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

VB_INLINE __m512i vb__bcast4(const int8_t *a) {
    int32_t v;
    __builtin_memcpy(&v, a, sizeof v);
    return _mm512_set1_epi32(v);
}

/* + bias, + residual, and the store of one row of a panel; never beyond n. */
VB_INLINE void vb__panel_store(float *y, int32_t o, int32_t n, const float *bias, const float *residual, __m512 v) {
    __mmask16 m = n - o >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << (n - o)) - 1);
    if (bias != NULL) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, bias + o));
    if (residual != NULL) v = _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, residual + o));
    _mm512_mask_storeu_ps(y + o, m, v);
}

/* Where the segments of one slice of a panel lie: segment i has its codes at codes + (i >> shift) * code_unit +
 * (i & mask) * code_seg and its scales at scales + (i >> shift) * scale_unit + ((i & mask) >> per_group) * scale_seg. */
typedef struct vb__qslice {
    const uint8_t *codes, *scales;
    int32_t code_unit, code_seg, scale_unit, scale_seg;
    int32_t shift, mask, per_group;
    int32_t segs; /* in this slice */
    vb__scale_kind kind;
    int32_t has_bias, offset;
} vb__qslice;

VB_INLINE vb__qslice vb__qslice_of(const vb__qpanels *w, const uint8_t *panel, int32_t k, int32_t seg) {
    vb__qslice s;
    const uint8_t *unit = panel + (int64_t)(k / w->unit) * w->unit_bytes;
    int32_t left = w->k - k;
    s.codes = unit;
    s.scales = unit + w->codes_bytes;
    s.code_unit = s.scale_unit = w->unit_bytes;
    s.code_seg = seg * VB_PANEL * w->code_bits / 8;
    s.scale_seg = w->scale_stride;
    s.mask = w->unit / seg - 1;
    s.shift = s.mask == 0 ? 0 : s.mask == 1 ? 1 : 2;
    s.per_group = w->group > seg ? 1 : 0;
    s.segs = (left < VB_SLICE ? left : VB_SLICE) / seg;
    s.kind = w->scale_kind;
    s.has_bias = w->has_bias;
    s.offset = w->offset;
    return s;
}
VB_INLINE const uint8_t *vb__qslice_codes(const vb__qslice *s, int32_t i) {
    return s->codes + (i >> s->shift) * s->code_unit + (i & s->mask) * s->code_seg;
}
VB_INLINE const uint8_t *vb__qslice_scales(const vb__qslice *s, int32_t i) {
    return s->scales + (i >> s->shift) * s->scale_unit + ((i & s->mask) >> s->per_group) * s->scale_seg;
}

#endif
