#include "launch.h"

#include "cache.h"
#include "npu_memplan_runtime.h"

static struct launch_totals totals;

const struct launch_totals *launch_totals(void) { return &totals; }

int32_t npu_memplan_npu_launch(void *context, uint32_t region_config, const uint32_t *command_stream, uint32_t bytes,
                               const void *const bases[], const uint32_t base_bytes[], int32_t count) {
  (void)context; /* the driver has one NPU */
  for (int32_t i = 1; i < count; i++) npu_memplan_cache_clean(bases[i], base_bytes[i]);
  totals.last = ethosu_run(command_stream, bytes, bases, count, region_config);
  for (int32_t i = 1; i < count; i++) npu_memplan_cache_invalidate(bases[i], base_bytes[i]);
  totals.calls++;
  totals.cycles += ethosu_last()->cycles;
  for (int32_t i = 0; i < ETHOSU_PORT_COUNTERS; i++) totals.beats[i] += ethosu_last()->beats[i];
  return (int32_t)totals.last;
}
