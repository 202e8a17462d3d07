/* The time of a schedule under another model than that which made it. */
#include "prefetch.h"

/* Cycles of `program`, which has the same operations and constants, with `copies`. */
int64_t replay(const TimedProgram *program, Run *scratch, const DmaSchedule *copies) {
  Clock clock = {.program = program, .kernel = scratch->kernel, .transfer = scratch->transfer, .started = scratch->started};
  int32_t *copied = scratch->copies.constant; /* the copy of each constant, -1: none */
  int64_t next = 0;
  for (int64_t k = 0; k < program->constants; k++) {
    copied[k] = -1;
  }
  clock_begin(&clock);
  for (int32_t index = 0; index < program->operations; index++) {
    for (; next < copies->count && copies->before[next] == index; next++) {
      copied[copies->constant[next]] = (int32_t)next;
      clock_send(&clock, copies->constant[next], copies->unfinished[next]);
    }
    clock_step(&clock, index, program->reads[index] >= 0 && copied[program->reads[index]] >= 0);
  }
  return round_cycles(clock_total(&clock));
}
