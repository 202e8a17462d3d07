/* The partial order of the placed items (which is below which), as linked lists, one a section; and what it leaves each
 * of them: `low`, its least offset, and `high`, its greatest one under the ceiling. */
#include "eject.h"

/* Put item b above all that end by `at`, in each of its sections. */
void link_item(Eject *e, int32_t b, int64_t at) {
  const Graph *g = e->graph;
  int32_t nobody = e->entries, under = nobody;
  for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
    int32_t s = g->cover[q], over = e->bottom[s];
    if (under + 1 < nobody && e->owner[under + 1] == e->owner[under] && g->cover[under + 1] == s) {
      under++; /* what is below in the section before mostly does here */
      over = e->above[under];
    } else {
      under = nobody;
    }
    while (over != nobody && e->top[e->owner[over]] <= at) {
      under = over;
      over = e->above[over];
    }
    e->below[q] = under;
    e->above[q] = over;
    if (under == nobody) {
      e->bottom[s] = q;
    } else {
      e->above[under] = q;
    }
    if (over != nobody) {
      e->below[over] = q;
    }
  }
}

/* Take item b out of its sections; those next to it may move. */
void unlink_item(Eject *e, int32_t b) {
  const Graph *g = e->graph;
  int32_t nobody = e->entries;
  for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
    int32_t under = e->below[q], over = e->above[q];
    if (under == nobody) {
      e->bottom[g->cover[q]] = over;
    } else {
      e->above[under] = over;
    }
    if (over != nobody) {
      e->below[over] = under;
    }
    e->rises[e->owner[over]] = e->sinks[e->owner[under]] = true;
  }
}

/* Greatest offset of item b below what is above it. */
int64_t highest(const Eject *e, int32_t b) {
  const Graph *g = e->graph;
  int64_t roof = NEVER;
  for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
    roof = min_of(roof, e->high[e->owner[e->above[q]]]);
  }
  int64_t at = roof - g->size[b];
  return g->align[b] == 1 ? at : at - modulo(at, g->align[b]);
}

/* Least offset of item b above what is below it. */
static int64_t lowest(const Eject *e, int32_t b) {
  const Graph *g = e->graph;
  int64_t floor = 0;
  for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
    floor = max_of(floor, e->top[e->owner[e->below[q]]]);
  }
  return round_up(floor, g->align[b]);
}

static void rise(Eject *e, int32_t b) {
  const Graph *g = e->graph;
  int64_t *low = e->memory->low;
  low[b] = lowest(e, b);
  if (low[b] + g->size[b] != e->top[b]) {
    e->top[b] = low[b] + g->size[b];
    for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
      e->rises[e->owner[e->above[q]]] = true;
    }
  }
}

static void sink(Eject *e, int32_t b) {
  const Graph *g = e->graph;
  int64_t at = highest(e, b);
  if (at != e->high[b]) {
    e->high[b] = at;
    for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
      e->sinks[e->owner[e->below[q]]] = true;
    }
  }
}

/* Least and greatest offsets of all that may move, and of those next to what moved. */
void settle(Eject *e) {
  const int64_t *low = e->memory->low;
  for (int64_t i = 0; i < e->placed; i++) {
    int32_t b = e->rising[i];
    if (e->rises[b] && low[b] >= 0) {
      rise(e, b);
    }
    e->rises[b] = false;
  }
  for (int64_t i = e->placed - 1; i >= 0; i--) {
    int32_t b = e->rising[i];
    if (e->sinks[b] && low[b] >= 0) {
      sink(e, b);
    }
    e->sinks[b] = false;
  }
}

/* Sort items by key (they nearly are), without what is left out; how many stay. */
static int64_t sort_kept(int32_t *order, int64_t count, const int64_t *low, const int64_t *key) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; i++) {
    int32_t b = order[i];
    if (low[b] < 0) {
      continue;
    }
    int64_t j = kept++;
    for (; j > 0 && key[order[j - 1]] > key[b]; j--) {
      order[j] = order[j - 1];
    }
    order[j] = b;
  }
  return kept;
}

/* Both orders of the placed items again, after some moved and some were left out. */
void sort_placed(Eject *e) {
  sort_kept(e->latest, e->placed, e->memory->low, e->high);
  e->placed = sort_kept(e->rising, e->placed, e->memory->low, e->top);
}
