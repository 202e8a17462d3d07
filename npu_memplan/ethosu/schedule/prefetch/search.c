/* Local search from the greedy schedule: a few constants at a time change; called by search.py. */
#include "prefetch.h"

enum { TOGETHER = 4, NEAR = 3, LEAST = 8 }; /* constants that change at once, how far apart; operations a trial counts for */
static const double NEARBY = 0.7, STAY = 0.25, SENT = 0.85;
static const int32_t AHEAD[] = {1, 2, 3, 4, 5, 6, 7, 9, 12, 16, 24, 32};
enum { AHEADS = sizeof AHEAD / sizeof *AHEAD };

typedef struct {
  int32_t constant, max_lead, earliest;
  int8_t stays;
} Change;

static int64_t draw(const Search *s, int64_t count) { return (int64_t)(chance(s->chance) * (double)count); }

/* A constant near another, as they are sorted by who reads them, or any. */
static int32_t drawn(const Search *s, int64_t near, int64_t count) {
  bool nearby = chance(s->chance) < NEARBY;
  return (int32_t)(nearby ? modulo(near + draw(s, 2 * NEAR + 1) - NEAR, count) : draw(s, count));
}

/* Let a constant stay where it is, or send it when it can be, mostly so many operations early; what it was before. */
static Change change(const Search *s, const Line *line, Wish *wish, int32_t constant) {
  Change before = {constant, wish->max_lead[constant], earliest(line, wish, constant), wish->stays[constant]};
  double what = chance(s->chance);
  wish->stays[constant] = what < STAY;
  wish->max_lead[constant] = what >= STAY && what < SENT ? AHEAD[draw(s, AHEADS)] : -1;
  return before;
}

static void undo(Wish *wish, Change before) {
  wish->max_lead[before.constant] = before.max_lead;
  wish->stays[before.constant] = before.stays;
}

/* The operation before which a constant was sent; that of its first reader where it was not. */
static int32_t sent_before(const Line *line, const Sent *sent, int32_t constant) {
  for (int64_t i = 0; i < sent->count; i++) {
    if (sent->constant[i] == constant) {
      return sent->before[i];
    }
  }
  return line->first[constant];
}

/* The operation before `until` from which on a constant that waits from `now` on, in place of `then`, changes `run`;
 * `until`: none. A constant that waits in both and finds no place in one finds none in the other. Where the first that
 * waits goes first, one that is looked at keeps others waiting. */
static int32_t differs(Greedy *g, Run *run, int32_t constant, int32_t then, int32_t now, int32_t until) {
  int32_t from = now < then ? now : then, to = now < then ? then : now;
  to = to < until ? to : until;
  if (!g->wish->fifo && now < then) {
    from = first_chance(g, run, constant, from, to);
  } else if (!g->wish->fifo) {
    from = sent_before(g->line, &run->sent, constant);
  } else {
    while (from < to && run->reached[from] < constant) {
      from++;
    }
  }
  return from < to ? from : until;
}

/* The operation until which a changed wish makes the schedule that it made before; all: for good. */
static int32_t same_until(Greedy *g, const Wish *wish, Run *run, const Change *before, int64_t changes) {
  int32_t until = (int32_t)g->line->operations;
  g->wish = wish;
  for (int64_t i = 0; i < changes; i++) {
    int32_t k = before[i].constant, first = g->line->first[k];
    if (wish->stays[k] != before[i].stays) { /* its first reader does not wait for a copy, or no longer */
      until = first < until ? first : until;
    }
    until = differs(g, run, k, before[i].earliest, earliest(g->line, wish, k), until);
  }
  return until;
}

static void keep(Sent *best, const Sent *found) {
  size_t count = (size_t)found->count;
  best->cycles = found->cycles;
  best->count = found->count;
  memcpy(best->constant, found->constant, count * sizeof *best->constant);
  memcpy(best->before, found->before, count * sizeof *best->before);
  memcpy(best->unfinished, found->unfinished, count * sizeof *best->unfinished);
  memcpy(best->at, found->at, count * sizeof *best->at);
  memcpy(best->others, found->others, MODELS * sizeof *best->others);
}

static double cost(const Search *s, const Sent *sent) {
  double most = (double)sent->cycles / s->reference[0];
  for (int64_t m = 1; m < s->models; m++) {
    double part = (double)sent->others[m - 1] / s->reference[m];
    most = part > most ? part : most;
  }
  return most;
}

/* Time a schedule under the other models. */
static void time_otherwise(const Search *s, const Line *const *others, Sent *sent, Run *scratch) {
  for (int64_t m = 1; m < s->models; m++) {
    sent->others[m - 1] = replay(others[m - 1], scratch, sent);
  }
}

/* Change the wish, and go on from what is not slower. */
static void look_on(Greedy *g, Search *s, const Line *const *others, Wish *wish, Sent *best, Run *run, Run *trial, Run *scratch) {
  int64_t constants = g->line->constants;
  double least = cost(s, best), now = 0;
  Change before[TOGETHER];
  schedule(g, wish, run, NEVER, NULL, 0);
  for (; s->left > 0; s->left -= max_of(LEAST, g->line->operations)) {
    int64_t near = draw(s, constants), changes = 1 + draw(s, TOGETHER);
    for (int64_t i = 0; i < changes; i++) {
      before[i] = change(s, g->line, wish, drawn(s, near, constants));
    }
    int32_t until = same_until(g, wish, run, before, changes);
    if (until == g->line->operations) {
      continue;
    }
    int64_t most = (int64_t)(s->cost * s->reference[0] + 0.5); /* a whole number of cycles, but for rounding */
    schedule(g, wish, trial, most, run, until);
    bool in_time = trial->sent.cycles <= most;
    if (in_time) {
      time_otherwise(s, others, &trial->sent, scratch);
      now = cost(s, &trial->sent);
    }
    if (in_time && now <= s->cost) {
      s->cost = now;
      if (now < least) {
        least = now;
        keep(best, &trial->sent);
      }
      keep_run(run, trial, until);
    } else {
      while (changes > 0) {
        undo(wish, before[--changes]);
      }
    }
  }
}

/* Look on from a wish, for as many operations on the clock as are left: FOUND, or NO_MEMORY. With nothing left, what
 * becomes of the wish itself. `others`: the program under the other models.
 */
int64_t npu_memplan_prefetch(const Line *line, const Line *const *others, const Free *free, Search *search, Wish *wish, Sent *best) {
  Arena arena = {0};
  Greedy g;
  Run run, trial;
  bool ready = take_greedy(&arena, &g, line, free) && take_run(&arena, &run, line) && take_run(&arena, &trial, line);
  if (ready && search->left > 0) {
    Run scratch = {0};
    ready = search->models < 2 || take_run(&arena, &scratch, line);
    if (ready) {
      look_on(&g, search, others, wish, best, &run, &trial, &scratch);
    }
  } else if (ready) {
    schedule(&g, wish, &run, NEVER, NULL, 0);
    time_otherwise(search, others, &run.sent, &trial);
    keep(best, &run.sent);
  }
  free_all(&arena);
  return ready ? FOUND : NO_MEMORY;
}
