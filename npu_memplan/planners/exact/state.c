/* The exact search's state before the first choice: all floors at 0, nothing placed. */
#include "fill.h"

static void take_items(Fill *f) {
  Arena *arena = &f->arena;
  int64_t items = f->graph->items, entries = f->graph->cover_at[items];
  TAKE(arena, f->start, items);
  TAKE(arena, f->supported, items);
  TAKE(arena, f->first, items);
  TAKE(arena, f->final, items);
  TAKE(arena, f->placed, items);
  TAKE(arena, f->seen, items);
  TAKE(arena, f->hash_1, items);
  TAKE(arena, f->hash_2, items);
  TAKE(arena, f->order, items);
  TAKE(arena, f->member, entries);
  TAKE(arena, f->entry, entries);
  TAKE(arena, f->slot, entries);
}

static void take_sections(Fill *f) {
  Arena *arena = &f->arena;
  int64_t sections = f->graph->sections;
  TAKE(arena, f->floor, sections);
  TAKE(arena, f->rest, sections);
  TAKE(arena, f->active, sections);
  TAKE(arena, f->crossing, sections);
  TAKE(arena, f->witness, sections);
  TAKE(arena, f->begun_1, sections);
  TAKE(arena, f->begun_2, sections);
  TAKE(arena, f->moved, sections);
}

static void take_stacks(Fill *f) {
  Arena *arena = &f->arena;
  int64_t items = f->graph->items;
  /* each choice places an item or moves at least one floor up; more is made where that is not enough */
  f->choice_room = f->part_room = 2 * items + 8 * f->graph->sections + 64;
  f->option_room = 4096 + items;
  f->floor_room = f->start_room = 8192;
  TAKE(arena, f->choice, f->choice_room);
  TAKE(arena, f->parts, f->part_room);
  TAKE(arena, f->option, f->option_room);
  TAKE(arena, f->option_score, items + 1);
  TAKE(arena, f->floor_trail, f->floor_room);
  TAKE(arena, f->start_trail, f->start_room);
}

static void fill_item(Fill *f, int32_t b) {
  const Graph *g = f->graph;
  f->hash_1[b] = mix((uint64_t)b * UINT64_C(0x9E3779B97F4A7C15) + UINT64_C(0x632BE59BD9B4E019));
  f->hash_2[b] = mix(f->hash_1[b] ^ UINT64_C(0xA5A5A5A5A5A5A5A5));
  f->first[b] = g->cover[g->cover_at[b]];
  f->final[b] = g->cover[g->cover_at[b + 1] - 1];
  f->begun_1[f->first[b]] += f->hash_1[b];
  f->begun_2[f->first[b]] += f->hash_2[b];
  for (int32_t s = f->first[b]; s < f->final[b]; s++) {
    f->crossing[s]++;
  }
  for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
    int32_t s = g->cover[q], i = g->member_at[s] + f->active[s];
    f->rest[s] += g->size[b];
    f->member[i] = b;
    f->entry[i] = q;
    f->slot[q] = i;
    f->active[s]++;
  }
}

bool begin_fill(Fill *f, const Graph *graph, Call *call) {
  *f = (Fill){.graph = graph, .call = call, .left = call->nodes, .top = -1};
  f->now = (Part){.lo = 0, .hi = graph->sections, .parent = -1, .next = -1};
  take_items(f);
  take_sections(f);
  take_stacks(f);
  if (f->arena.failed) {
    return false;
  }
  for (int64_t b = 0; b < graph->items; b++) {
    fill_item(f, (int32_t)b);
  }
  for (int64_t s = 0; s < graph->sections; s++) {
    f->witness[s] = f->member[graph->member_at[s]];
    f->moved[f->moved_count++] = (int32_t)s;
  }
  return true;
}
