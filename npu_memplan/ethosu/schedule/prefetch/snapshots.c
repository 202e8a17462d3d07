/* States of a schedule on its way: a schedule that differs from another one later goes on from the last state before.
 */
#include "prefetch.h"

bool take_run(Arena *arena, Run *run, const Line *line) {
  int64_t transfers = line->operations + line->span_at[line->constants], count = line->operations / STRIDE + 1;
  TAKE(arena, run->sent.constant, line->constants);
  TAKE(arena, run->sent.before, line->constants);
  TAKE(arena, run->sent.unfinished, line->constants);
  TAKE(arena, run->sent.at, line->constants);
  TAKE(arena, run->sent.others, MODELS);
  TAKE(arena, run->kernel, line->operations);
  TAKE(arena, run->transfer, transfers);
  TAKE(arena, run->started, transfers);
  TAKE(arena, run->reached, line->operations);
  TAKE(arena, run->at, count);
  for (int64_t i = 0; i < count && !arena->failed; i++) {
    TAKE(arena, run->at[i].not_before, line->constants);
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
  snapshot->instant = clock_now(&g->clock);
  snapshot->left = g->left;
  snapshot->sent = g->sent->count;
  memcpy(snapshot->not_before, g->not_before, (size_t)g->line->constants * sizeof *g->not_before);
}

static void take_over_copies(Greedy *g, const Sent *same, int64_t count) {
  Sent *sent = g->sent;
  memcpy(sent->constant, same->constant, (size_t)count * sizeof *sent->constant);
  memcpy(sent->before, same->before, (size_t)count * sizeof *sent->before);
  memcpy(sent->unfinished, same->unfinished, (size_t)count * sizeof *sent->unfinished);
  memcpy(sent->at, same->at, (size_t)count * sizeof *sent->at);
  sent->count = count;
  for (int64_t i = 0; i < count; i++) {
    fill_copy(g, i);
  }
}

/* To the state of `same` before an operation, a multiple of STRIDE; what waits then is the wish's. */
void go_on(Greedy *g, const Run *same, int32_t operation) {
  const Snapshot *snapshot = &same->at[operation / STRIDE];
  const Moment *m = &snapshot->instant.moment;
  memcpy(g->clock.kernel, same->kernel, (size_t)m->kernels * sizeof *g->clock.kernel);
  memcpy(g->clock.transfer, same->transfer, (size_t)m->transfers * sizeof *g->clock.transfer);
  memcpy(g->clock.started, same->started, (size_t)m->transfers * sizeof *g->clock.started);
  memcpy(g->run->reached, same->reached, (size_t)operation * sizeof *same->reached);
  clock_return(&g->clock, &snapshot->instant);
  g->left = snapshot->left;
  take_over_copies(g, &same->sent, snapshot->sent);
  int32_t *end = &g->next[g->line->constants];
  for (int32_t k = 0; k < g->line->constants; k++) {
    if (!g->wish->stays[k] && !g->copied[k] && g->line->first[k] >= operation) {
      g->not_before[k] = snapshot->not_before[k];
      *end = k;
      end = &g->next[k];
    }
  }
  *end = -1;
}
