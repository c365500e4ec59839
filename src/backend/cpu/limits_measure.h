/* What this machine could do at most, measured: the limits that `bench` compares with. */
#ifndef VB_BACKEND_CPU_LIMITS_MEASURE_H
#define VB_BACKEND_CPU_LIMITS_MEASURE_H
#include "base/cpu.h"
#include "base/pool.h"

/* GB/s (1e9 bytes) read from memory by all threads of the pool, best of some passes over 1 GiB (less where memory is
 * short; 0 when there is none), more than a cache holds. Takes about half a second. */
double vb__read_bandwidth(vb__pool *pool);

/* 1e9 multiply-accumulates a second (each counted once) of all threads of the pool in a register-resident loop of one segment
 * of linear_q (4-bit codes, 8-bit activations, G = 64, with bias) with its float operations: what a product could
 * reach if unpacking, loads and stores cost nothing. `level` not above the CPU's. Takes about 0.1 s. */
double vb__contract_gops(vb__cpu_level level, vb__pool *pool);

/* One thread's loop of a level; returns the multiply-accumulates done. */
typedef int64_t vb__contract_loop_fn(int32_t iterations);
vb__contract_loop_fn vb__contract_loop_ref, vb__contract_loop_avx2, vb__contract_loop_avxvnni, vb__contract_loop_avx512, vb__contract_loop_amx;

/* The loop for what kernels of this level use here. */
vb__contract_loop_fn *vb__contract_loop(vb__cpu_level level);

/* Reads `bytes` (a multiple of 512) from p, 64-byte aligned; the value only keeps the loads alive. */
typedef uint64_t vb__read_loop_fn(const uint8_t *p, int64_t bytes);
vb__read_loop_fn vb__read_loop_ref, vb__read_loop_avx2, vb__read_loop_avx512;

#endif
