/* The kernel table: one entry per operation, filled for a level: the C reference first, then each level
 * overwrites what it has. No dispatch anywhere else. */
#ifndef VB_BACKEND_CPU_KERNELS_H
#define VB_BACKEND_CPU_KERNELS_H
#include "backend/ops/argmax.h"
#include "backend/ops/attention.h"
#include "backend/ops/conv.h"
#include "backend/ops/delta.h"
#include "backend/ops/elementwise.h"
#include "backend/ops/kv_append.h"
#include "backend/ops/rmsnorm.h"
#include "backend/ops/rope.h"
#include "backend/ops/route.h"
#include "backend/ops/act_quant.h"
#include "backend/ops/linear_bf16.h"
#include "backend/ops/linear_q.h"
#include "base/cpu.h"

typedef struct vb__kernels {
    vb__cpu_level level;
    /* linear (cpu_linear.c) */
    vb__act_quant_fn *act_quant;
    vb__linear_q_fn *linear_q;
    vb__act_bf16_fn *act_bf16; /* in the form that linear_bf16 takes, whose elements have */
    int32_t act_bf16_size;     /*   so many bytes */
    vb__linear_bf16_fn *linear_bf16;
    /* rowwise (cpu_rowwise.c) */
    vb__rmsnorm_fn *rmsnorm;
    vb__rmsnorm_gated_fn *rmsnorm_gated;
    vb__rope_table_fn *rope_table;
    vb__rope_fn *rope;
    vb__swiglu_fn *swiglu;
    vb__unary_fn *unary[VB_UNARIES];
    vb__argmax_fn *argmax;
    /* attention (cpu_attention.c) */
    vb__kv_append_fn *kv_append;
    vb__attn_blocks_fn *attn_blocks;
    vb__attn_fold_fn *attn_fold;
    vb__attn_finish_fn *attn_finish;
    /* delta net (cpu_delta.c) */
    vb__conv_fn *conv;
    vb__delta_fn *delta;
    vb__delta_gates_fn *delta_gates;
    /* experts (cpu_moe.c) */
    vb__route_fn *route;
    vb__combine_fn *combine;
} vb__kernels;

void vb__kernels_init(vb__kernels *k, vb__cpu_level level);

#endif
