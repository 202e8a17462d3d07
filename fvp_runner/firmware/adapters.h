/* Timing adapters of Arm's FVPs and FPGA images: bridges that give the memory behind an AXI port its speed. */
#ifndef NPU_MEMPLAN_ADAPTERS_H
#define NPU_MEMPLAN_ADAPTERS_H

#include <stdint.h>

#define ADAPTER_SETTINGS 8

/* In the order of the registers: most reads, writes and both that may be unfinished (0: no limit), cycles of latency
 * of a read and of a write, cycles in which requests pass and are held, words in a period (0: no limit). */
struct adapter {
  uint32_t base;
  uint32_t settings[ADAPTER_SETTINGS];
};

/* How many of the adapters are there and have the settings when they are read back. */
uint32_t adapters_set(const struct adapter *adapters, uint32_t count);

#endif
