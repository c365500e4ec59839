#include "backend/cpu/kernels.h"

static void linear_kernels(vb__kernels *k, vb__cpu_level level) {
    k->act_quant = vb__act_quant_ref;
    k->linear_q = vb__linear_q_ref;
    k->act_bf16 = vb__act_bf16_ref;
    k->act_bf16_size = sizeof(float);
    k->linear_bf16 = vb__linear_bf16_ref;
    if (level < VB_CPU_AVX2) return;
    k->act_quant = vb__act_quant_avx2;
    k->linear_q = vb__cpu_vnni() ? vb__linear_q_avxvnni : vb__linear_q_avx2;
    k->linear_bf16 = vb__linear_bf16_avx2;
    if (level < VB_CPU_AVX512) return;
    k->act_quant = vb__act_quant_avx512;
    k->linear_q = vb__linear_q_avx512;
    k->linear_bf16 = vb__linear_bf16_avx512;
    if (level < VB_CPU_AMX) return;
    k->linear_q = vb__linear_q_amx;
    k->act_bf16 = vb__act_bf16_amx;
    k->act_bf16_size = sizeof(uint16_t);
    k->linear_bf16 = vb__linear_bf16_amx;
}

void vb__kernels_init(vb__kernels *k, vb__cpu_level level) {
    *k = (vb__kernels){.level = level};
    linear_kernels(k, level);
    /* C reference */
    k->rope_table = vb__rope_table_ref;
    k->rmsnorm = vb__rmsnorm_ref;
    k->rmsnorm_gated = vb__rmsnorm_gated_ref;
    k->rope = vb__rope_ref;
    k->swiglu = vb__swiglu_ref;
    k->unary[VB_UNARY_EXP] = vb__exp_rows_ref;
    k->unary[VB_UNARY_SIGMOID] = vb__sigmoid_rows_ref;
    k->unary[VB_UNARY_SILU] = vb__silu_rows_ref;
    k->unary[VB_UNARY_SOFTPLUS] = vb__softplus_rows_ref;
    k->argmax = vb__argmax_ref;
    k->kv_append = vb__kv_append_ref;
    k->attn_blocks = vb__attn_blocks_ref;
    k->attn_fold = vb__attn_fold_ref;
    k->attn_finish = vb__attn_finish_ref;
    k->conv = vb__conv_ref;
    k->delta = vb__delta_ref;
    k->delta_gates = vb__delta_gates_ref;
    k->route = vb__route_ref;
    k->combine = vb__combine_ref;
    if (level < VB_CPU_AVX2) return;
    /* AVX2 */
    k->rmsnorm = vb__rmsnorm_avx2;
    k->rmsnorm_gated = vb__rmsnorm_gated_avx2;
    k->rope = vb__rope_avx2;
    k->swiglu = vb__swiglu_avx2;
    k->unary[VB_UNARY_EXP] = vb__exp_rows_avx2;
    k->unary[VB_UNARY_SIGMOID] = vb__sigmoid_rows_avx2;
    k->unary[VB_UNARY_SILU] = vb__silu_rows_avx2;
    k->unary[VB_UNARY_SOFTPLUS] = vb__softplus_rows_avx2;
    k->argmax = vb__argmax_avx2;
    k->conv = vb__conv_avx2;
    k->delta = vb__delta_avx2;
    k->delta_gates = vb__delta_gates_avx2;
    k->route = vb__route_avx2;
    k->combine = vb__combine_avx2;
    k->kv_append = vb__kv_append_avx2;
    k->attn_blocks = vb__attn_blocks_avx2;
    k->attn_fold = vb__attn_fold_avx2;
    k->attn_finish = vb__attn_finish_avx2;
    if (level < VB_CPU_AVX512) return;
    /* AVX-512 */
    k->attn_blocks = vb__attn_blocks_avx512;
    k->attn_fold = vb__attn_fold_avx512;
    k->attn_finish = vb__attn_finish_avx512;
    k->rmsnorm = vb__rmsnorm_avx512;
    k->rmsnorm_gated = vb__rmsnorm_gated_avx512;
    k->rope = vb__rope_avx512;
    k->swiglu = vb__swiglu_avx512;
    k->unary[VB_UNARY_EXP] = vb__exp_rows_avx512;
    k->unary[VB_UNARY_SIGMOID] = vb__sigmoid_rows_avx512;
    k->unary[VB_UNARY_SILU] = vb__silu_rows_avx512;
    k->unary[VB_UNARY_SOFTPLUS] = vb__softplus_rows_avx512;
    k->argmax = vb__argmax_avx512;
    k->conv = vb__conv_avx512;
    k->delta = vb__delta_avx512;
    k->delta_gates = vb__delta_gates_avx512;
    k->route = vb__route_avx512;
    k->combine = vb__combine_avx512;
    if (level < VB_CPU_AMX) return;
    /* AMX */
    k->attn_blocks = vb__attn_blocks_amx;
}
