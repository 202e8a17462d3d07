/* Each constant is sent as soon as the port is idle and its bytes are free. */
#include "prefetch.h"

/* The operation before which a constant may be sent; the one that reads it first where it stays. */
int32_t earliest(const Line *line, const Wish *wish, int32_t constant) {
  int32_t first = line->first[constant], max_lead = wish->max_lead[constant];
  if (wish->stays[constant]) {
    return first;
  }
  return max_lead < 0 || max_lead > first ? 0 : first - max_lead;
}

static void everyone_waits(Greedy *g) {
  int32_t *end = &g->next[g->line->constants];
  g->left = 0;
  for (int32_t k = 0; k < g->line->constants; k++) {
    g->copied[k] = 0;
    g->left += g->line->least[k];
    g->not_before[k] = 0;
    if (!g->wish->stays[k]) {
      *end = k;
      end = &g->next[k];
    }
  }
  *end = -1;
}

/* A copy before operation `index` into bytes that all but the last `unfinished` operations have left: its place, or
 * -1; `of` is how many may be unfinished. */
static int64_t place(Greedy *g, int32_t constant, int32_t index, int32_t unfinished, int32_t *of) {
  bool from_top = g->wish->from_top;
  int64_t size = g->line->size[constant], last = g->line->last[constant], first = max_of(0, index - unfinished);
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

/* Take the bytes of the copy that was sent as number `sent`. */
void fill_copy(Greedy *g, int64_t sent) {
  const Sent *s = g->sent;
  int32_t constant = s->constant[sent];
  int64_t first = max_of(0, s->before[sent] - s->unfinished[sent]);
  room_fill(&g->room, g->line->size[constant], first, g->line->last[constant], s->at[sent]);
  g->copied[constant] = 1;
}

static void send_copy(Greedy *g, int32_t constant, int32_t index, int64_t at, int32_t unfinished) {
  Sent *sent = g->sent;
  sent->constant[sent->count] = constant;
  sent->before[sent->count] = index;
  sent->unfinished[sent->count] = unfinished;
  sent->at[sent->count] = at;
  fill_copy(g, sent->count++);
  clock_send(&g->clock, constant, unfinished);
  g->left -= g->line->least[constant];
}

/* The first operation in [from, until) before which a constant that does not wait in `run` might have been sent there;
 * `until`: none. */
int32_t first_chance(Greedy *g, Run *run, int32_t constant, int32_t from, int32_t until) {
  int64_t copies = 0;
  int32_t unfinished;
  room_empty(&g->room);
  g->sent = &run->sent;
  g->not_before[constant] = 0;
  for (int32_t index = from; index < until; index++) {
    for (; copies < run->sent.count && run->sent.before[copies] < index; copies++) {
      fill_copy(g, copies);
    }
    if (constant <= run->reached[index] && g->not_before[constant] <= index && place(g, constant, index, 1, &unfinished) >= 0) {
      return index;
    }
  }
  return until;
}

/* Whether an operation ends sooner with a copy that is made now. */
static bool ends_sooner(Greedy *g, int32_t constant, int32_t index, int32_t unfinished) {
  Instant before = clock_now(&g->clock);
  clock_send(&g->clock, constant, unfinished);
  clock_step(&g->clock, index, true);
  double copied = g->clock.moment.end;
  clock_return(&g->clock, &before);
  clock_step(&g->clock, index, false);
  bool sooner = copied < g->clock.moment.end;
  clock_return(&g->clock, &before);
  return sooner;
}

/* Send what is read next, or leave it where it is. */
static void in_time(Greedy *g, int32_t constant, int32_t index) {
  int32_t unfinished;
  int64_t at = place(g, constant, index, 1, &unfinished);
  if (at < 0) {
    at = place(g, constant, index, 0, &unfinished);
  }
  if (at >= 0 && (g->line->readers[constant] > 1 || ends_sooner(g, constant, index, unfinished))) {
    send_copy(g, constant, index, at, unfinished);
  }
}

/* Send what is read later, while the port is idle; the constant after which none was looked at, -1: none was. */
static int32_t ahead(Greedy *g, int32_t index) {
  int32_t *link = &g->next[g->line->constants], unfinished;
  if (clock_idle(&g->clock) < 0) {
    return -1;
  }
  while (*link >= 0) {
    int32_t constant = *link;
    int64_t at = -1;
    bool may = g->not_before[constant] <= index && earliest(g->line, g->wish, constant) <= index;
    if (may && index < g->line->first[constant]) {
      at = place(g, constant, index, 1, &unfinished);
    }
    if (at >= 0) {
      send_copy(g, constant, index, at, unfinished);
      *link = g->next[constant];
      if (clock_idle(&g->clock) < 0) {
        return constant;
      }
    } else {
      if (g->wish->fifo && earliest(g->line, g->wish, constant) <= index) {
        return constant;
      }
      link = &g->next[constant];
    }
  }
  return (int32_t)g->line->constants;
}

/* Take a constant from those that wait; whether it waited. */
static bool taken(Greedy *g, int32_t constant) {
  int32_t *link = &g->next[g->line->constants];
  while (*link >= 0 && *link != constant) {
    link = &g->next[*link];
  }
  if (*link < 0) {
    return false;
  }
  *link = g->next[constant];
  return true;
}

bool take_greedy(Arena *arena, Greedy *g, const Line *line, const Free *free) {
  *g = (Greedy){.line = line, .clock = {.line = line}};
  TAKE(arena, g->next, line->constants + 1);
  TAKE(arena, g->not_before, line->constants);
  TAKE(arena, g->copied, line->constants);
  return take_room(arena, &g->room, free, line) && !arena->failed;
}

/* Whether the rest takes more than `most` cycles in any case: of its kernels, or of the memory of constants. */
static bool too_late(const Greedy *g, int32_t next, int64_t most) {
  const Moment *m = &g->clock.moment;
  return m->output + g->line->work[next] > (double)most + 1 || clock_busy(&g->clock, g->line->far) + g->left > (double)most + 1;
}

/* The schedule of a wish; of one that takes more than `most` cycles only that (as NEVER). `same`: a schedule that is the
 * same before operation `until`. */
void schedule(Greedy *g, const Wish *wish, Run *run, int64_t most, const Run *same, int32_t until) {
  int32_t begin = same == NULL ? 0 : until - until % STRIDE;
  Sent *sent = g->sent = &run->sent;
  g->wish = wish;
  g->run = run;
  g->clock.kernel = run->kernel;
  g->clock.transfer = run->transfer;
  g->clock.started = run->started;
  clock_begin(&g->clock);
  room_empty(&g->room);
  everyone_waits(g);
  sent->count = 0;
  if (begin) {
    go_on(g, same, begin);
  }
  for (int32_t index = begin; index < g->line->operations; index++) {
    int32_t constant = g->line->reads[index];
    bool first = constant >= 0 && g->line->first[constant] == index;
    if (index % STRIDE == 0) {
      take_snapshot(g, index);
    }
    if (first && taken(g, constant)) {
      in_time(g, constant, index);
    }
    if (first && !g->copied[constant]) {
      g->left -= g->line->least[constant];
    }
    run->reached[index] = ahead(g, index);
    clock_step(&g->clock, index, constant >= 0 && g->copied[constant]);
    if (too_late(g, index + 1, most)) {
      sent->cycles = NEVER;
      return;
    }
  }
  sent->cycles = whole(clock_total(&g->clock));
}
