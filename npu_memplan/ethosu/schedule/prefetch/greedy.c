/* Each constant is sent as soon as the port is idle and its bytes are free. */
#include "prefetch.h"

/* The operation before which a constant may be sent; the one that reads it first where it stays. */
int32_t earliest(const TimedProgram *program, const Choice *choice, int32_t constant) {
  int32_t first = program->first[constant], max_lead = choice->max_lead[constant];
  if (choice->stays[constant]) {
    return first;
  }
  return max_lead < 0 || max_lead > first ? 0 : first - max_lead;
}

static void reset_waiting(Greedy *g) {
  int32_t *end = &g->next[g->program->constants];
  g->left = 0;
  for (int32_t k = 0; k < g->program->constants; k++) {
    g->copied[k] = 0;
    g->left += g->program->least[k];
    g->not_before[k] = 0;
    if (!g->choice->stays[k]) {
      *end = k;
      end = &g->next[k];
    }
  }
  *end = -1;
}

/* A copy before operation `index` into bytes that all but the last `unfinished` operations have left: its place, or
 * -1; `of` is how many may be unfinished. */
static int64_t place_copy(Greedy *g, int32_t constant, int32_t index, int32_t unfinished, int32_t *of) {
  bool from_top = g->choice->from_top;
  int64_t size = g->program->size[constant], last = g->program->last[constant], first = max_of(0, index - unfinished);
  int32_t *not_before = &g->not_before[constant];
  int64_t full = room_full_at(&g->room, size, first, last);
  if (full >= 0) {
    if (unfinished) {
      *not_before = (int32_t)max_of(*not_before, full + 1);
    }
    return -1;
  }
  if (unfinished == 1 && index > 1) {
    int64_t at = room_find(&g->room, size, first - 1, last, from_top);
    if (at >= 0) {
      *of = 2;
      return at;
    }
  }
  int64_t at = room_find(&g->room, size, first, last, from_top);
  if (at < 0 && unfinished) {
    *not_before = (int32_t)max_of(*not_before, room_tight_until(&g->room, first, last) + unfinished + 1);
  }
  *of = unfinished;
  return at;
}

/* Take the bytes of the copy that was sent as the `number`-th. */
void fill_copy(Greedy *g, int64_t number) {
  const DmaSchedule *copies = g->copies;
  int32_t constant = copies->constant[number];
  int64_t first = max_of(0, copies->before[number] - copies->unfinished[number]);
  room_fill(&g->room, g->program->size[constant], first, g->program->last[constant], copies->at[number]);
  g->copied[constant] = 1;
}

static void send_copy(Greedy *g, int32_t constant, int32_t index, int64_t at, int32_t unfinished) {
  DmaSchedule *copies = g->copies;
  copies->constant[copies->count] = constant;
  copies->before[copies->count] = index;
  copies->unfinished[copies->count] = unfinished;
  copies->at[copies->count] = at;
  fill_copy(g, copies->count++);
  clock_send(&g->clock, constant, unfinished);
  g->left -= g->program->least[constant];
}

/* The first operation in [from, until) before which a constant that does not wait in `run` might have been sent there;
 * `until`: none. */
int32_t first_chance(Greedy *g, Run *run, int32_t constant, int32_t from, int32_t until) {
  int64_t done = 0;
  int32_t unfinished;
  room_empty(&g->room);
  g->copies = &run->copies;
  g->not_before[constant] = 0;
  for (int32_t index = from; index < until; index++) {
    for (; done < run->copies.count && run->copies.before[done] < index; done++) {
      fill_copy(g, done);
    }
    if (constant <= run->reached[index] && g->not_before[constant] <= index && place_copy(g, constant, index, 1, &unfinished) >= 0) {
      return index;
    }
  }
  return until;
}

/* Whether an operation ends sooner with a copy that is made now. */
static bool ends_sooner(Greedy *g, int32_t constant, int32_t index, int32_t unfinished) {
  SavedClock before = clock_save(&g->clock);
  clock_send(&g->clock, constant, unfinished);
  clock_step(&g->clock, index, true);
  double copied = g->clock.model.end;
  clock_restore(&g->clock, &before);
  clock_step(&g->clock, index, false);
  bool sooner = copied < g->clock.model.end;
  clock_restore(&g->clock, &before);
  return sooner;
}

/* Send the constant that is read next, or leave it where it is. */
static void send_in_time(Greedy *g, int32_t constant, int32_t index) {
  int32_t unfinished;
  int64_t at = place_copy(g, constant, index, 1, &unfinished);
  if (at < 0) {
    at = place_copy(g, constant, index, 0, &unfinished);
  }
  if (at >= 0 && (g->program->readers[constant] > 1 || ends_sooner(g, constant, index, unfinished))) {
    send_copy(g, constant, index, at, unfinished);
  }
}

/* Send constants that are read later, while the port is idle; return the constant after which none was looked at, -1: none was. */
static int32_t send_ahead(Greedy *g, int32_t index) {
  int32_t *link = &g->next[g->program->constants], unfinished;
  if (clock_idle(&g->clock) < 0) {
    return -1;
  }
  while (*link >= 0) {
    int32_t constant = *link;
    int64_t at = -1;
    bool may = g->not_before[constant] <= index && earliest(g->program, g->choice, constant) <= index;
    if (may && index < g->program->first[constant]) {
      at = place_copy(g, constant, index, 1, &unfinished);
    }
    if (at >= 0) {
      send_copy(g, constant, index, at, unfinished);
      *link = g->next[constant];
      if (clock_idle(&g->clock) < 0) {
        return constant;
      }
    } else {
      if (g->choice->fifo && earliest(g->program, g->choice, constant) <= index) {
        return constant;
      }
      link = &g->next[constant];
    }
  }
  return (int32_t)g->program->constants;
}

/* Take a constant from those that wait; return whether it waited. */
static bool stop_waiting(Greedy *g, int32_t constant) {
  int32_t *link = &g->next[g->program->constants];
  while (*link >= 0 && *link != constant) {
    link = &g->next[*link];
  }
  if (*link < 0) {
    return false;
  }
  *link = g->next[constant];
  return true;
}

bool take_greedy(Arena *arena, Greedy *g, const TimedProgram *program, const FreeCapacity *capacity) {
  *g = (Greedy){.program = program, .clock = {.program = program}};
  TAKE(arena, g->next, program->constants + 1);
  TAKE(arena, g->not_before, program->constants);
  TAKE(arena, g->copied, program->constants);
  return take_room(arena, &g->room, capacity, program) && !arena->failed;
}

/* Whether the rest takes more than `most` cycles in any case: of its kernels, or of the memory of constants. */
static bool is_too_late(const Greedy *g, int32_t next, int64_t most) {
  const TimingModel *m = &g->clock.model;
  return m->output + g->program->work[next] > (double)most + 1 || clock_busy(&g->clock, g->program->far) + g->left > (double)most + 1;
}

/* Make the schedule of a choice; of one that takes more than `most` cycles only that is said (as NEVER). `same`: a schedule that
 * is the same before operation `until`. */
void schedule(Greedy *g, const Choice *choice, Run *run, int64_t most, const Run *same, int32_t until) {
  int32_t begin = same == NULL ? 0 : until - until % STRIDE;
  DmaSchedule *copies = g->copies = &run->copies;
  g->choice = choice;
  g->run = run;
  g->clock.kernel = run->kernel;
  g->clock.transfer = run->transfer;
  g->clock.started = run->started;
  clock_begin(&g->clock);
  room_empty(&g->room);
  reset_waiting(g);
  copies->count = 0;
  if (begin) {
    resume_schedule(g, same, begin);
  }
  for (int32_t index = begin; index < g->program->operations; index++) {
    int32_t constant = g->program->reads[index];
    bool first = constant >= 0 && g->program->first[constant] == index;
    if (index % STRIDE == 0) {
      take_snapshot(g, index);
    }
    if (first && stop_waiting(g, constant)) {
      send_in_time(g, constant, index);
    }
    if (first && !g->copied[constant]) {
      g->left -= g->program->least[constant];
    }
    run->reached[index] = send_ahead(g, index);
    clock_step(&g->clock, index, constant >= 0 && g->copied[constant]);
    if (is_too_late(g, index + 1, most)) {
      copies->cycles = NEVER;
      return;
    }
  }
  copies->cycles = round_cycles(clock_total(&g->clock));
}
