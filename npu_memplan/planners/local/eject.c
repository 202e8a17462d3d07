/* Local search under a ceiling: place what is left out, and leave out what is then in its way.
 *
 * The placed items form a partial order (order.c); `low` is the least offset that it leaves each of them, `high` the
 * greatest one under the ceiling, and `low <= high`. So `low` is a valid placement, and item b can go to offset y if
 * every placed item that it conflicts with can end by y or can begin at y + size of b; those that can do neither are
 * ejected.
 *
 * Of the offsets on which b would rest, one with the least sum of penalties of what it ejects is taken. An item that
 * found no free place becomes dearer: what is hard to place stays, what is easy makes way. The answer is a placement of
 * all items, or none within the budget; it is never a proof.
 */
#include "eject.h"

enum { FADE_EVERY = 100, FADE = 50 }; /* every so many choices, what was learned fades by 1/50 */

static bool take_state(Eject *e) {
  Arena *arena = &e->arena;
  TAKE(arena, e->owner, e->entries + 1);
  TAKE(arena, e->below, e->entries + 1);
  TAKE(arena, e->above, e->entries + 1);
  TAKE(arena, e->bottom, e->graph->sections);
  TAKE(arena, e->top, e->items + 1);
  TAKE(arena, e->high, e->items + 1);
  TAKE(arena, e->rises, e->items + 1);
  TAKE(arena, e->sinks, e->items + 1);
  TAKE(arena, e->rising, e->items);
  TAKE(arena, e->latest, e->items);
  TAKE(arena, e->out, e->items);
  TAKE(arena, e->mark, e->items);
  TAKE(arena, e->ends, e->items + 1);
  TAKE(arena, e->begins, e->items + 1);
  return !arena->failed;
}

static void leave_out(Eject *e, int32_t b) {
  e->memory->low[b] = -1;
  unlink_item(e, b);
  e->out[e->outs++] = b;
}

static void nobody_is_linked(Eject *e) {
  const Graph *g = e->graph;
  for (int32_t b = 0; b < e->items; b++) {
    for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
      e->owner[q] = b;
    }
  }
  e->owner[e->entries] = e->items;
  for (int32_t q = 0; q <= e->entries; q++) {
    e->below[q] = e->above[q] = e->entries;
  }
  for (int64_t s = 0; s < g->sections; s++) {
    e->bottom[s] = e->entries;
  }
  e->high[e->items] = e->ceiling;
}

/* Link the given placement from the bottom up, then leave out what has no place under the ceiling, from the top down. */
static void start(Eject *e) {
  const Graph *g = e->graph;
  int64_t *low = e->memory->low;
  nobody_is_linked(e);
  for (int32_t b = 0; b < e->items; b++) {
    e->mark[b] = low[b] + g->size[b];
  }
  sort_indices(e->mark, e->latest, e->items);
  memset(e->mark, 0, (size_t)e->items * sizeof *e->mark);
  for (int32_t i = 0; i < e->items; i++) {
    int32_t b = e->latest[i];
    if (low[b] < 0) {
      e->out[e->outs++] = b;
      continue;
    }
    e->rising[e->placed++] = b;
    link_item(e, b, low[b]);
    e->top[b] = low[b] + g->size[b];
  }
  memcpy(e->latest, e->rising, (size_t)e->items * sizeof *e->latest);
  for (int64_t i = e->placed - 1; i >= 0; i--) {
    int32_t b = e->rising[i];
    e->high[b] = highest(e, b);
    if (e->high[b] < low[b]) {
      leave_out(e, b);
    }
  }
  settle(e);
  sort_placed(e);
}

static void fade(const Eject *e) {
  const Memory *m = e->memory;
  for (int32_t b = 0; b < e->items; b++) {
    m->penalty[b] -= (m->penalty[b] - m->value[b]) / FADE;
  }
}

/* Neighbours of item b that are placed, by the end and by the begin that they can have at least and at most. */
static int64_t meet(Eject *e, int32_t b, int64_t step) {
  const Memory *m = e->memory;
  int64_t met = 0, other = 0;
  for (int32_t k = m->near_at[b]; k < m->near_at[b + 1]; k++) {
    e->mark[m->near[k]] = step;
  }
  for (int64_t i = 0; i < e->placed; i++) {
    e->ends[met] = e->rising[i];
    e->begins[other] = e->latest[i];
    met += e->mark[e->rising[i]] == step;
    other += e->mark[e->latest[i]] == step;
  }
  return met;
}

/* What item c costs an item of `size` bytes that is where c can neither end below it nor begin above it. */
static int64_t price(const Eject *e, int32_t c, int64_t size) {
  return e->high[c] - size + 1 < e->top[c] ? e->memory->penalty[c] : 0;
}

/* The offset at which item b does least harm, -1 when it is higher than the ceiling; and that harm. */
static int64_t least_harm(Eject *e, int32_t b, int64_t step, int64_t *least) {
  const Graph *g = e->graph;
  int64_t met = meet(e, b, step), size = g->size[b], at = -1, ties = 0, cost = 0, y = 0, i = 0, j = 0;
  *least = NEVER;
  while (y + size <= e->ceiling) {
    for (; j < met && e->high[e->begins[j]] < y + size; j++) {
      cost += price(e, e->begins[j], size); /* can no longer begin above b */
    }
    for (; i < met && e->top[e->ends[i]] <= y; i++) {
      cost -= price(e, e->ends[i], size); /* can end below b */
    }
    if (cost < *least) {
      *least = cost;
      at = y;
      ties = 1;
    } else if (cost == *least && chance(e->memory->chance) * (double)++ties < 1.0) {
      at = y;
    }
    if (i == met) {
      break;
    }
    y = round_up(e->top[e->ends[i]], g->align[b]);
  }
  return at;
}

/* Place item b at offset `at`, after what is in its way was left out. */
static void put(Eject *e, int32_t b, int64_t at) {
  int64_t i = e->placed;
  for (; i > 0 && e->top[e->rising[i - 1]] > at; i--) {
    e->rising[i] = e->rising[i - 1];
  }
  e->rising[i] = e->latest[e->placed++] = b;
  link_item(e, b, at);
  e->memory->low[b] = at;
  e->top[b] = e->high[b] = -1; /* to be settled */
  e->rises[b] = e->sinks[b] = true;
  settle(e);
  sort_placed(e);
}

static void eject_for(Eject *e, int32_t b, int64_t at) {
  const Memory *m = e->memory;
  m->penalty[b] += m->value[b];
  for (int32_t k = m->near_at[b]; k < m->near_at[b + 1]; k++) {
    int32_t c = m->near[k];
    if (m->low[c] >= 0 && e->top[c] > at && e->high[c] < at + e->graph->size[b]) {
      leave_out(e, c);
    }
  }
}

static int64_t search(Eject *e, int64_t choices) {
  for (int64_t step = 1; step <= choices; step++) {
    if (e->outs == 0) {
      return choices - step + 1;
    }
    if (step % FADE_EVERY == 0) {
      fade(e);
    }
    int64_t i = (int64_t)(chance(e->memory->chance) * (double)e->outs), harm;
    int32_t b = e->out[i];
    e->out[i] = e->out[--e->outs];
    int64_t at = least_harm(e, b, step, &harm);
    if (at < 0) {
      return LIMIT;
    }
    if (harm > 0) {
      eject_for(e, b, at);
    }
    put(e, b, at);
  }
  return e->outs == 0 ? 0 : LIMIT;
}

/* Choices left (0 or more) when all items lie under the ceiling, LIMIT when the choices were not enough, or
 * NO_MEMORY. */
int64_t npu_memplan_eject(const Graph *graph, const Memory *memory, int64_t ceiling, int64_t choices) {
  Eject e = {.graph = graph, .memory = memory, .ceiling = ceiling, .items = (int32_t)graph->items};
  e.entries = graph->cover_at[graph->items];
  int64_t left = NO_MEMORY;
  if (take_state(&e)) {
    start(&e);
    left = search(&e, choices);
  }
  free_all(&e.arena);
  return left;
}

/* How many conflicts the items have, and where those of each begin; with `near`, also which they are. */
int64_t npu_memplan_conflicts(const Graph *graph, int32_t *near_at, int32_t *near) {
  int64_t found = 0;
  Arena arena = {0};
  int32_t *seen = take(&arena, graph->items, sizeof *seen);
  if (seen == NULL) {
    return NO_MEMORY;
  }
  for (int32_t b = 0; b < graph->items; b++) {
    seen[b] = b + 1;
    for (int32_t q = graph->cover_at[b]; q < graph->cover_at[b + 1]; q++) {
      for (int32_t k = graph->member_at[graph->cover[q]]; k < graph->member_at[graph->cover[q] + 1]; k++) {
        int32_t c = graph->member[k];
        if (seen[c] != b + 1) {
          seen[c] = b + 1;
          if (near != NULL) {
            near[found] = c;
          }
          found++;
        }
      }
    }
    near_at[b + 1] = (int32_t)found;
  }
  free_all(&arena);
  return found;
}
