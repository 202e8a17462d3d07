/* The exact search: fill sections from below until all items lie under a ceiling.
 *
 * A state is a floor for every section and the set of items not yet placed; it represents all placements of these at
 * or above the floors. The search is complete: INFEASIBLE is a proof. What makes it fast:
 *
 *   floors.c    floors rise to the least start of the items that still cover them, until nothing moves;
 *   parts.c     the state splits at points that no remaining item crosses, and the parts are solved one by one: a part
 *               that fails returns to the choice made before the split; states that failed are remembered by the
 *               headroom above each floor, so a nogood holds for every ceiling of the same phase and across restarts;
 *   choices.c   only canonical placements: an item is on the floor of a section whose candidates cover nothing lower,
 *               or the section's floor is raised to where one could next begin; of equal items only the first unplaced
 *               one is tried; the section with the fewest candidates comes first;
 *   moves.c     what a choice does, and its taking back.
 */
#include "fill.h"

enum { GO_ON = 2 };

/* Where something could next begin above the floor of the choice's section, if nothing begins at it: the start of a
 * higher item, or the top of one that is elsewhere. */
static int64_t next_level(const Fill *f, const Choice *choice) {
  const Graph *g = f->graph;
  int64_t s = choice->section, floor = f->floor[s], level = NEVER;
  for (int64_t k = g->member_at[s]; k < g->member_at[s] + f->active[s]; k++) {
    f->seen[f->member[k]] = true;
  }
  for (int64_t b = 0; b < g->items; b++) {
    if (!f->placed[b] && choice->part.lo <= f->first[b] && f->first[b] < choice->part.hi) {
      int64_t at = f->seen[b] ? f->start[b] : f->start[b] + g->size[b];
      if (floor < at && at < level) {
        level = at;
      }
    }
    f->seen[b] = false;
  }
  return level;
}

/* The next option of the last choice that has one left: an item, or -1 and the level that the floor rises to.
 * GO_ON, INFEASIBLE (there is none) or LIMIT. */
static int next_option(Fill *f, int32_t *item, int64_t *level) {
  while (f->top >= 0) {
    Choice *choice = &f->choice[f->top];
    undo_choice(f, choice);
    if (choice->tried == choice->options) {
      remember_failure(f, choice);
      f->top = choice->part.parent;
      continue;
    }
    if (f->left <= 0) {
      return LIMIT;
    }
    *item = f->option[choice->option + choice->tried++];
    if (*item >= 0) {
      return GO_ON;
    }
    *level = next_level(f, choice);
    if (*level + f->rest[choice->section] <= f->call->ceiling) {
      return GO_ON;
    }
  }
  return INFEASIBLE;
}

static void take_option(Fill *f, int32_t item, int64_t level) {
  const Choice *choice = &f->choice[f->top];
  f->option_end = choice->option + choice->options;
  f->part_count = choice->parts;
  f->now = choice->part;
  f->now.parent = f->top;
  f->left--;
  if (item >= 0) {
    place(f, item, f->floor[choice->section]);
  } else {
    lift_floor(f, (int32_t)choice->section, level);
  }
}

static int search(Fill *f) {
  for (;;) {
    bool open = raise_floors(f);
    uint64_t hash_1 = 0, hash_2 = 0;
    if (open) {
      if (!split(f)) {
        if (f->now.next < 0) {
          return FOUND;
        }
        f->now = f->parts[f->now.next];
        continue;
      }
      open = !is_known_to_fail(f, &hash_1, &hash_2);
    }
    if (open) {
      open = push_choice(f, hash_1, hash_2);
    } else {
      f->moved_count = 0;
      f->top = f->now.parent;
    }
    if (f->arena.failed) {
      return NO_MEMORY;
    }
    int32_t item = -1;
    int64_t level = 0;
    int verdict = next_option(f, &item, &level);
    if (verdict != GO_ON) {
      return verdict;
    }
    take_option(f, item, level);
  }
}

/* FOUND (offsets are filled in), INFEASIBLE (proven), LIMIT (nodes spent) or NO_MEMORY. */
int npu_memplan_fill(const Graph *graph, Call *call) {
  Fill f;
  call->most_placed = 0;
  int verdict = begin_fill(&f, graph, call) ? search(&f) : NO_MEMORY;
  call->choices = call->nodes - f.left;
  free_all(&f.arena);
  return verdict;
}
