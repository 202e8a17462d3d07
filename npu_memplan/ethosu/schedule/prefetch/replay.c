/* The time that a schedule takes under another model than that which made it. */
#include "prefetch.h"

/* Cycles of the copies `sent` on `line`, which has the same operations and constants. */
int64_t replay(const Line *line, Run *scratch, const Sent *sent) {
  Clock clock = {.line = line, .kernel = scratch->kernel, .transfer = scratch->transfer, .started = scratch->started};
  int32_t *copied = scratch->sent.constant; /* the copy of each constant, -1: none */
  int64_t next = 0;
  for (int64_t k = 0; k < line->constants; k++) {
    copied[k] = -1;
  }
  clock_begin(&clock);
  for (int32_t index = 0; index < line->operations; index++) {
    for (; next < sent->count && sent->before[next] == index; next++) {
      copied[sent->constant[next]] = (int32_t)next;
      clock_send(&clock, sent->constant[next], sent->unfinished[next]);
    }
    clock_step(&clock, index, line->reads[index] >= 0 && copied[line->reads[index]] >= 0);
  }
  return whole(clock_total(&clock));
}
