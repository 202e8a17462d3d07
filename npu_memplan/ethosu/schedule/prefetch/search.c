/* Local search from the greedy schedule: a few constants at a time change; called by search.py. */
#include "prefetch.h"

enum { TOGETHER = 4, NEAR = 3, LEAST = 8 }; /* constants that change at once, how far apart; operations a trial counts for */
static const double NEARBY = 0.7, STAY = 0.25, SENT = 0.85;
static const int32_t MAX_LEADS[] = {1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 24, 32};
enum { LEADS = sizeof MAX_LEADS / sizeof *MAX_LEADS };

typedef struct {
  int32_t constant, max_lead, earliest;
  int8_t stays;
} Change;

static int64_t draw(const Search *s, int64_t count) { return (int64_t)(chance(s->chance) * (double)count); }

/* A constant near another, as they are sorted by who reads them, or any. */
static int32_t draw_constant(const Search *s, int64_t near, int64_t count) {
  bool nearby = chance(s->chance) < NEARBY;
  return (int32_t)(nearby ? modulo(near + draw(s, 2 * NEAR + 1) - NEAR, count) : draw(s, count));
}

/* Let a constant stay where it is, or send it when it can be, mostly so many operations early; return what it was before. */
static Change change_constant(const Search *s, const TimedProgram *program, Choice *choice, int32_t constant) {
  Change before = {constant, choice->max_lead[constant], earliest(program, choice, constant), choice->stays[constant]};
  double what = chance(s->chance);
  choice->stays[constant] = what < STAY;
  choice->max_lead[constant] = what >= STAY && what < SENT ? MAX_LEADS[draw(s, LEADS)] : -1;
  return before;
}

static void undo_change(Choice *choice, Change before) {
  choice->max_lead[before.constant] = before.max_lead;
  choice->stays[before.constant] = before.stays;
}

/* The operation before which a constant was sent; that of its first reader where it was not. */
static int32_t sent_before(const TimedProgram *program, const DmaSchedule *copies, int32_t constant) {
  for (int64_t i = 0; i < copies->count; i++) {
    if (copies->constant[i] == constant) {
      return copies->before[i];
    }
  }
  return program->first[constant];
}

/* The operation before `until` from which on a constant that waits from `now` on, in place of `then`, changes `run`;
 * `until`: none. A constant that waits in both and finds no place in one finds none in the other. Where the first that
 * waits goes first, one that is looked at keeps others waiting. */
static int32_t first_difference(Greedy *g, Run *run, int32_t constant, int32_t then, int32_t now, int32_t until) {
  int32_t from = now < then ? now : then, to = now < then ? then : now;
  to = to < until ? to : until;
  if (!g->choice->fifo && now < then) {
    from = first_chance(g, run, constant, from, to);
  } else if (!g->choice->fifo) {
    from = sent_before(g->program, &run->copies, constant);
  } else {
    while (from < to && run->reached[from] < constant) {
      from++;
    }
  }
  return from < to ? from : until;
}

/* The operation until which a changed choice makes the schedule that it made before; all: for good. */
static int32_t unchanged_until(Greedy *g, const Choice *choice, Run *run, const Change *before, int64_t changes) {
  int32_t until = (int32_t)g->program->operations;
  g->choice = choice;
  for (int64_t i = 0; i < changes; i++) {
    int32_t k = before[i].constant, first = g->program->first[k];
    if (choice->stays[k] != before[i].stays) { /* its first reader does not wait for a copy, or no longer */
      until = first < until ? first : until;
    }
    until = first_difference(g, run, k, before[i].earliest, earliest(g->program, choice, k), until);
  }
  return until;
}

static void keep_schedule(DmaSchedule *best, const DmaSchedule *found) {
  size_t count = (size_t)found->count;
  best->cycles = found->cycles;
  best->count = found->count;
  memcpy(best->constant, found->constant, count * sizeof *best->constant);
  memcpy(best->before, found->before, count * sizeof *best->before);
  memcpy(best->unfinished, found->unfinished, count * sizeof *best->unfinished);
  memcpy(best->at, found->at, count * sizeof *best->at);
  memcpy(best->others, found->others, MODELS * sizeof *best->others);
}

static double cost(const Search *s, const DmaSchedule *copies) {
  double most = (double)copies->cycles / s->reference[0], alone = 0;
  for (int64_t m = 1; m < s->models; m++) {
    double part = (double)copies->others[m - 1] / s->reference[m];
    most = part > most ? part : most;
  }
  for (int64_t i = 0; i < copies->count; i++) {
    alone += s->alone[copies->constant[i]];
  }
  return alone > s->spare ? most * (1 + (alone - s->spare)) : most;
}

/* Time a schedule under the other models. */
static void time_other_models(const Search *s, const TimedProgram *const *others, DmaSchedule *copies, Run *scratch) {
  for (int64_t m = 1; m < s->models; m++) {
    copies->others[m - 1] = replay(others[m - 1], scratch, copies);
  }
}

/* Change the choice, and go on from what is not slower. */
static void search_on(Greedy *g, Search *s, const TimedProgram *const *others, Choice *choice, DmaSchedule *best, Run *run, Run *trial, Run *scratch) {
  int64_t constants = g->program->constants;
  double least = s->least, now = 0;
  Change before[TOGETHER];
  schedule(g, choice, run, NEVER, NULL, 0);
  for (; s->left > 0; s->left -= max_of(LEAST, g->program->operations)) {
    int64_t near = draw(s, constants), changes = 1 + draw(s, TOGETHER);
    for (int64_t i = 0; i < changes; i++) {
      before[i] = change_constant(s, g->program, choice, draw_constant(s, near, constants));
    }
    int32_t until = unchanged_until(g, choice, run, before, changes);
    if (until == g->program->operations) {
      continue;
    }
    int64_t most = (int64_t)(s->cost * s->reference[0] + 0.5); /* a whole number of cycles, but for rounding */
    schedule(g, choice, trial, most, run, until);
    bool in_time = trial->copies.cycles <= most;
    if (in_time) {
      time_other_models(s, others, &trial->copies, scratch);
      now = cost(s, &trial->copies);
    }
    if (in_time && now <= s->cost) {
      s->cost = now;
      if (now < least) {
        least = now;
        keep_schedule(best, &trial->copies);
      }
      keep_run(run, trial, until);
    } else {
      while (changes > 0) {
        undo_change(choice, before[--changes]);
      }
    }
  }
}

/* Search on from a choice, for as many operations on the clock as are left: FOUND, or NO_MEMORY. With nothing left, make the
 * schedule of the choice itself. `others`: the program under the other models.
 */
int64_t npu_memplan_prefetch(const TimedProgram *program, const TimedProgram *const *others, const FreeCapacity *capacity, Search *search, Choice *choice, DmaSchedule *best) {
  Arena arena = {0};
  Greedy g;
  Run run, trial;
  bool ready = take_greedy(&arena, &g, program, capacity) && take_run(&arena, &run, program) && take_run(&arena, &trial, program);
  if (ready && search->left > 0) {
    Run scratch = {0};
    ready = search->models < 2 || take_run(&arena, &scratch, program);
    if (ready) {
      search_on(&g, search, others, choice, best, &run, &trial, &scratch);
    }
  } else if (ready) {
    schedule(&g, choice, &run, NEVER, NULL, 0);
    time_other_models(search, others, &run.copies, &trial);
    keep_schedule(best, &run.copies);
  }
  free_all(&arena);
  return ready ? FOUND : NO_MEMORY;
}
