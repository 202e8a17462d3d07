/* Cache maintenance around an NPU job. Both do nothing while the data cache is off, as it is
 * after reset; a platform that turns it on may replace them (they are weak). */
#ifndef NPU_MEMPLAN_CACHE_H
#define NPU_MEMPLAN_CACHE_H

#include <stdint.h>

/* Before the NPU reads: write dirty lines of [address, address + bytes) back to memory. */
void npu_memplan_cache_clean(const void *address, uint32_t bytes);
/* After the NPU wrote: drop lines of the range, so that the CPU reads memory. */
void npu_memplan_cache_invalidate(const void *address, uint32_t bytes);

#endif
