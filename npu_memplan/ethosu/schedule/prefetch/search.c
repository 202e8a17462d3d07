/* Local search from the greedy schedule: a few constants at a time change; called by native_search.py. */
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

/* Whether no constant that was changed is sent otherwise: it was drawn as it is, or with another lead that reaches back
 * behind the first operation. */
static bool same_schedule(const Line *line, const Wish *wish, const Change *before, int64_t changes) {
  for (int64_t i = 0; i < changes; i++) {
    int32_t k = before[i].constant;
    if (wish->stays[k] != before[i].stays || earliest(line, wish, k) != before[i].earliest) {
      return false;
    }
  }
  return true;
}

static void keep(Sent *best, const Sent *found) {
  size_t count = (size_t)found->count;
  best->cycles = found->cycles;
  best->count = found->count;
  memcpy(best->constant, found->constant, count * sizeof *best->constant);
  memcpy(best->before, found->before, count * sizeof *best->before);
  memcpy(best->unfinished, found->unfinished, count * sizeof *best->unfinished);
  memcpy(best->at, found->at, count * sizeof *best->at);
}

/* Change the wish, and go on from what is not slower. */
static void look_on(Greedy *g, Search *s, Wish *wish, Sent *best, Sent *found) {
  int64_t constants = g->line->constants;
  Change before[TOGETHER];
  for (; s->left > 0; s->left -= max_of(LEAST, g->line->operations)) {
    int64_t near = draw(s, constants), changes = 1 + draw(s, TOGETHER);
    for (int64_t i = 0; i < changes; i++) {
      before[i] = change(s, g->line, wish, drawn(s, near, constants));
    }
    if (same_schedule(g->line, wish, before, changes)) {
      continue;
    }
    schedule(g, wish, found, s->cycles);
    if (found->cycles <= s->cycles) {
      s->cycles = found->cycles;
      if (found->cycles < best->cycles) {
        keep(best, found);
      }
    } else {
      while (changes > 0) {
        undo(wish, before[--changes]);
      }
    }
  }
}

static bool take_sent(Arena *arena, Sent *sent, int64_t constants) {
  TAKE(arena, sent->constant, constants);
  TAKE(arena, sent->before, constants);
  TAKE(arena, sent->unfinished, constants);
  TAKE(arena, sent->at, constants);
  return !arena->failed;
}

/* Look on from a wish, for as many operations on the clock as are left: FOUND, or NO_MEMORY. With nothing left, what
 * becomes of the wish itself.
 */
int64_t npu_memplan_prefetch(const Line *line, const Free *free, Search *search, Wish *wish, Sent *best) {
  Arena arena = {0};
  Greedy g;
  Sent found;
  bool ready = take_greedy(&arena, &g, line, free) && take_sent(&arena, &found, line->constants);
  if (ready && search->left > 0) {
    look_on(&g, search, wish, best, &found);
  } else if (ready) {
    schedule(&g, wish, best, NEVER);
  }
  free_all(&arena);
  return ready ? FOUND : NO_MEMORY;
}
