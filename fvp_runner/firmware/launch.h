/* npu_memplan_npu_launch of the generated code, on the driver: totals over all launches. */
#ifndef NPU_MEMPLAN_LAUNCH_H
#define NPU_MEMPLAN_LAUNCH_H

#include <stdint.h>

#include "ethosu.h"

struct launch_totals {
  uint32_t calls;
  uint64_t cycles;
  uint64_t beats[ETHOSU_PORT_COUNTERS];
  enum ethosu_result last;
};

const struct launch_totals *launch_totals(void);

#endif
