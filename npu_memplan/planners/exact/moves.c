/* What a choice does to the state, and its taking back in reverse order. */
#include "fill.h"

void lift_floor(Fill *f, int32_t section, int64_t level) {
  f->floor_trail[f->floor_trails++] = (Moved){f->floor[section], section};
  f->floor[section] = level;
  f->moved[f->moved_count++] = section;
}

/* Count item b's hashes and crossings out of its sections (`by` -1) or in again (1). */
static void count_item(Fill *f, int32_t b, int32_t by) {
  f->begun_1[f->first[b]] += by > 0 ? f->hash_1[b] : -f->hash_1[b];
  f->begun_2[f->first[b]] += by > 0 ? f->hash_2[b] : -f->hash_2[b];
  for (int32_t s = f->first[b]; s < f->final[b]; s++) {
    f->crossing[s] += by;
  }
}

/* Put item b at offset `at`: the floors of its sections rise to its end. */
void place(Fill *f, int32_t b, int64_t at) {
  const Graph *g = f->graph;
  int64_t size = g->size[b];
  f->placed[b] = true;
  f->order[f->placed_count++] = b;
  f->call->most_placed = max_of(f->call->most_placed, f->placed_count);
  f->call->offset[b] = at;
  count_item(f, b, -1);
  for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
    int32_t s = g->cover[q];
    lift_floor(f, s, at + size);
    f->rest[s] -= size;
    /* its slot changes places with that of the last active member */
    int32_t i = f->slot[q], j = g->member_at[s] + --f->active[s];
    int32_t other = f->member[j], e = f->entry[j];
    f->member[j] = b;
    f->entry[j] = q;
    f->slot[q] = j;
    f->member[i] = other;
    f->entry[i] = e;
    f->slot[e] = i;
  }
}

/* The state as it was when `choice` was made. */
void undo_choice(Fill *f, const Choice *choice) {
  const Graph *g = f->graph;
  while (f->floor_trails > choice->floor_trail) {
    Moved moved = f->floor_trail[--f->floor_trails];
    f->floor[moved.of] = moved.at;
  }
  while (f->start_trails > choice->start_trail) {
    Moved moved = f->start_trail[--f->start_trails];
    f->start[moved.of] = moved.at;
  }
  while (f->placed_count > choice->placed) {
    int32_t b = f->order[--f->placed_count];
    f->placed[b] = false;
    count_item(f, b, 1);
    for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
      f->rest[g->cover[q]] += g->size[b];
      f->active[g->cover[q]]++;
    }
  }
}
