/* States of a schedule on its way: a schedule that differs from another one later goes on from the last state before.
 */
#include "prefetch.h"

bool take_run(Arena *arena, Run *run, const TimedProgram *program) {
  int64_t transfers = program->operations + program->span_at[program->constants], count = program->operations / STRIDE + 1;
  TAKE(arena, run->copies.constant, program->constants);
  TAKE(arena, run->copies.before, program->constants);
  TAKE(arena, run->copies.unfinished, program->constants);
  TAKE(arena, run->copies.at, program->constants);
  TAKE(arena, run->copies.others, MODELS);
  TAKE(arena, run->kernel, program->operations);
  TAKE(arena, run->transfer, transfers);
  TAKE(arena, run->started, transfers);
  TAKE(arena, run->reached, program->operations);
  TAKE(arena, run->at, count);
  for (int64_t i = 0; i < count && !arena->failed; i++) {
    TAKE(arena, run->at[i].not_before, program->constants);
  }
  return !arena->failed;
}

/* `found`, which is `best` up to an operation, takes its place; `best` is what can be overwritten then. */
void keep_run(Run *best, Run *found, int32_t same_until) {
  Run other = *best;
  *best = *found;
  *found = other;
  for (int32_t i = 0; i <= same_until / STRIDE; i++) { /* those that both have were not taken again */
    Snapshot snapshot = best->at[i];
    best->at[i] = found->at[i];
    found->at[i] = snapshot;
  }
}

void take_snapshot(const Greedy *g, int32_t operation) {
  Snapshot *snapshot = &g->run->at[operation / STRIDE];
  snapshot->saved = clock_save(&g->clock);
  snapshot->left = g->left;
  snapshot->copies = g->copies->count;
  memcpy(snapshot->not_before, g->not_before, (size_t)g->program->constants * sizeof *g->not_before);
}

static void take_over_copies(Greedy *g, const DmaSchedule *same, int64_t count) {
  DmaSchedule *copies = g->copies;
  memcpy(copies->constant, same->constant, (size_t)count * sizeof *copies->constant);
  memcpy(copies->before, same->before, (size_t)count * sizeof *copies->before);
  memcpy(copies->unfinished, same->unfinished, (size_t)count * sizeof *copies->unfinished);
  memcpy(copies->at, same->at, (size_t)count * sizeof *copies->at);
  copies->count = count;
  for (int64_t i = 0; i < count; i++) {
    fill_copy(g, i);
  }
}

/* Go on from the state of `same` before an operation, a multiple of STRIDE; what waits then is the choice's. */
void resume_schedule(Greedy *g, const Run *same, int32_t operation) {
  const Snapshot *snapshot = &same->at[operation / STRIDE];
  const TimingModel *m = &snapshot->saved.model;
  memcpy(g->clock.kernel, same->kernel, (size_t)m->kernels * sizeof *g->clock.kernel);
  memcpy(g->clock.transfer, same->transfer, (size_t)m->transfers * sizeof *g->clock.transfer);
  memcpy(g->clock.started, same->started, (size_t)m->transfers * sizeof *g->clock.started);
  memcpy(g->run->reached, same->reached, (size_t)operation * sizeof *same->reached);
  clock_restore(&g->clock, &snapshot->saved);
  g->left = snapshot->left;
  take_over_copies(g, &same->copies, snapshot->copies);
  int32_t *end = &g->next[g->program->constants];
  for (int32_t k = 0; k < g->program->constants; k++) {
    if (!g->choice->stays[k] && !g->copied[k] && g->program->first[k] >= operation) {
      g->not_before[k] = snapshot->not_before[k];
      *end = k;
      end = &g->next[k];
    }
  }
  *end = -1;
}
