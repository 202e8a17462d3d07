/* The state of the local search; see eject.c for the idea. */
#ifndef NPU_MEMPLAN_EJECT_H
#define NPU_MEMPLAN_EJECT_H

#include "common.h"
#include "fill.h"

/* What stays between calls; `Memory` of exact/ejection.py. */
typedef struct {
  const int32_t *near_at; /* [items + 1]: item b conflicts with near[near_at[b] .. near_at[b + 1]] */
  const int32_t *near;
  const int64_t *value; /* [items], at least 1: penalty for leaving the item out, before anything is learned */
  int64_t *penalty;     /* [items]: the same, learned */
  uint64_t *chance;     /* [1] */
  int64_t *low;         /* [items]: offsets of a placement, -1 for what is left out; at the end those of the last one */
} Memory;

/* Item `items`, with the entry `entries`, is nobody: below the lowest, above the highest. */
typedef struct {
  const Graph *graph;
  const Memory *memory;
  int64_t ceiling;
  int32_t items, entries;
  int32_t *owner;         /* [entries + 1]: the item of an entry of `cover` */
  int32_t *below, *above; /* [entries + 1]: its neighbours in its section */
  int32_t *bottom;        /* [sections]: lowest entry */
  int64_t *top, *high;    /* [items + 1]: least end, greatest offset */
  bool *rises, *sinks;    /* [items + 1]: whether its low, its high may change */
  int32_t *rising;        /* placed items by `top`: those below come first */
  int32_t *latest;        /* placed items by `high` */
  int64_t placed;
  int32_t *out; /* items left out */
  int64_t outs;
  int64_t *mark;          /* [items]: the last step that met this item as a neighbour */
  int32_t *ends, *begins; /* of `rising` and `latest`, what conflicts with one item */
  Arena arena;
} Eject;

/* order.c: the partial order, and what it leaves each item */
void link_item(Eject *e, int32_t item, int64_t at);
void unlink_item(Eject *e, int32_t item);
int64_t highest(const Eject *e, int32_t item);
void settle(Eject *e);
void sort_placed(Eject *e);

/* sort.c */
void sort_indices(const int64_t *key, int32_t *order, int64_t count);

#endif
