/* Generated: what main.c needs to know of toy. */
#ifndef NPU_MEMPLAN_PROGRAM_H
#define NPU_MEMPLAN_PROGRAM_H

#include <stdint.h>

#include "toy.h"

#define PROGRAM_NAME "toy"
#define PROGRAM_RUN toy_run
#define PROGRAM_INIT (void)
#define PROGRAM_RESET (void)
#define PROGRAM_NPU_CONFIG 0x00003008u /* ethos-u55-256; 0: no NPU is used */
#define PROGRAM_ADAPTERS 0 /* timing adapters to set */
#define PROGRAM_POISON 0xa5
#define PROGRAM_GUARD 0xc3
#define PROGRAM_POOLS 1
#define PROGRAM_INPUTS 1
#define PROGRAM_OUTPUTS 1
#define PROGRAM_INPUT_WORDS 4u

_Static_assert(TOY_POOL_COUNT == 1, "the plan has another number of pools");
_Static_assert(TOY_SRAM_BYTES == 64, "pool sram is not the planned size");
_Static_assert(TOY_SRAM_BYTES <= 0x200000, "pool sram is bigger than ISRAM");

#ifdef PROGRAM_TABLES /* main.c alone */
struct slot {
  uint32_t pool, offset, bytes;
};
static uint8_t npu_memplan_pool_0[4096 + 64 + 4096] __attribute__((aligned(16), section(".bss.npu_memplan_pool_0")));
static uint8_t *const pools[] = {npu_memplan_pool_0 + 4096};
static const uint32_t pool_bytes[] = {TOY_SRAM_BYTES};
static const uint32_t guard_bytes[] = {4096};
static const struct slot inputs[] = {{TOY_INPUT_0_POOL, TOY_INPUT_0_OFFSET, TOY_INPUT_0_BYTES}};
static const struct slot outputs[] = {{TOY_OUTPUT_0_POOL, TOY_OUTPUT_0_OFFSET, TOY_OUTPUT_0_BYTES}};
#endif

#endif
