/* Floors rise: no section's floor is lower than the least start of an item that still covers it.
 *
 * An item starts at or above the floors of all its sections, on its alignment. Each pass raises the starts of items in
 * sections whose floor moved, then the floors of sections whose items moved, until nothing does.
 */
#include "fill.h"

typedef struct {
  int64_t near, far; /* sections [near, far) whose least start may have changed */
} Range;

/* Starts of the items in sections that moved. */
static Range lift_starts(Fill *f) {
  const Graph *g = f->graph;
  Range range = {g->sections, 0};
  int64_t *start = f->start;
  for (int64_t i = 0; i < f->moved_count; i++) {
    int32_t s = f->moved[i];
    int64_t floor = f->floor[s];
    range.near = min_of(range.near, s);
    range.far = max_of(range.far, s + 1);
    const int32_t *member = f->member + g->member_at[s], *end = member + f->active[s];
    for (; member < end; member++) {
      int32_t b = *member;
      if (floor > start[b]) {
        f->start_trail[f->start_trails++] = (Moved){start[b], b};
        start[b] = round_up(floor, g->align[b]);
        range.near = min_of(range.near, f->first[b]);
        range.far = max_of(range.far, f->final[b] + 1);
      }
    }
  }
  f->moved_count = 0;
  return range;
}

/* The least start in section s, or one that is at its floor; the section's witness begins there. */
static int64_t least_start(Fill *f, int64_t s) {
  int64_t low = NEVER, floor = f->floor[s];
  const int32_t *member = f->member + f->graph->member_at[s], *end = member + f->active[s];
  for (; member < end; member++) {
    if (f->start[*member] < low) {
      low = f->start[*member];
      f->witness[s] = *member;
      if (low <= floor) {
        break; /* no start is below the floor */
      }
    }
  }
  return low;
}

/* Floors in the range; false when a section's remaining bytes pass the ceiling. */
static bool lift_floors(Fill *f, Range range) {
  int64_t ceiling = f->call->ceiling;
  for (int64_t s = range.near; s < range.far; s++) {
    if (f->active[s] == 0) {
      continue;
    }
    int64_t floor = f->floor[s];
    int32_t b = f->witness[s];
    if (f->placed[b] || f->start[b] > floor) {
      int64_t low = least_start(f, s);
      if (low > floor) {
        lift_floor(f, (int32_t)s, low);
        floor = low;
      }
    }
    if (floor + f->rest[s] > ceiling) {
      f->call->weight[s] += 1.0;
      return false;
    }
  }
  return true;
}

bool raise_floors(Fill *f) {
  int64_t entries = f->graph->cover_at[f->graph->items], sections = f->graph->sections;
  while (f->moved_count > 0) {
    /* a pass moves each entry and each section once at most; the choice that follows moves sections once more */
    if (!RESERVE(&f->arena, f->start_trail, f->start_room, f->start_trails + entries) ||
        !RESERVE(&f->arena, f->floor_trail, f->floor_room, f->floor_trails + 2 * sections)) {
      return false;
    }
    Range range = lift_starts(f);
    if (!lift_floors(f, range)) {
      return false;
    }
  }
  return true;
}
