/* The state of the searches over distances; see distances.c and small.c for the ideas. */
#ifndef NPU_MEMPLAN_DISTANCES_H
#define NPU_MEMPLAN_DISTANCES_H

#include "common.h"

#define FAR ((int64_t)1 << 61)         /* no limit on a distance */
enum { TRAIL = 1 << 18, SPARE = 8 }; /* changes that can be taken back, of which one step makes a few */

/* Items, and for each pair that may be in each other's way the open zones of origin[first] - origin[second] that are
 * forbidden; general/__init__.py fills it. */
typedef struct {
  int64_t items, pairs;
  const int32_t *first, *second; /* [pairs] */
  const int32_t *zone_at;        /* [pairs + 1]: zones of pair p are (zone_low[z], zone_high[z]), ascending */
  const int64_t *zone_low, *zone_high;
  const int32_t *near_at, *near;          /* pairs of item i are near[near_at[i] .. near_at[i + 1]] */
  const int64_t *modulus, *residue;       /* [items]: of origins */
  const int64_t *size, *home;             /* [items]: bytes; least origin, or the fixed one */
  const int8_t *fixed;                    /* [items] */
  double *weight;                         /* [pairs]: how often a pair failed; kept between calls */
} Network;

/* One call of the search; general/__init__.py fills it. */
typedef struct {
  int64_t ceiling, nodes;
  double trust;       /* probability of trying first the order that `origin` has */
  const int8_t *free; /* [items]: whose order is open; pairs of two others keep the order that `origin` has */
  uint64_t *chance;   /* [1] */
  int64_t *origin;    /* [items]: of a placement; the answer when FOUND */
  int64_t spent;      /* out: choices made */
} Task;

/* One call of `small.c`; general/__init__.py fills it. */
typedef struct {
  int64_t ceiling;
  int64_t nodes, work; /* left */
  int64_t *origin;     /* [items]: out, where FOUND */
} SmallTask;

enum Kind { LEAST, MOST, LOWEST, HIGHEST };

typedef struct {
  int64_t value; /* before */
  int32_t place;
  int8_t kind; /* enum Kind */
} Change;

/* A pair that was put on one side of a zone; the other side is still to be tried while `tried` is 1. */
typedef struct {
  int64_t trail, active;
  int32_t pair, zone;
  int8_t above, tried;
} Decision;

typedef struct {
  const Network *network;
  const Task *task;
  int64_t *bound[4]; /* by Kind: least and most origin of every item, lowest and highest distance of every pair */
  Change *trail;
  int64_t trails;
  int32_t *queue; /* items whose bounds moved: a ring */
  bool *queued;
  int64_t head, waiting;
  int32_t *undecided; /* pairs that the ranges may not keep apart: the first `active` of them */
  int64_t active;
  Decision *decision;
  int64_t depth, left;
  Arena arena;
} Distances;

typedef struct {
  int64_t low, high;
} Range;

static inline bool trail_is_full(const Distances *d) { return d->trails > TRAIL - SPARE; }

static inline void set_bound(Distances *d, enum Kind kind, int32_t place, int64_t value) {
  d->trail[d->trails++] = (Change){d->bound[kind][place], place, (int8_t)kind};
  d->bound[kind][place] = value;
}

/* narrow.c */
void undo(Distances *d, int64_t until);
void enqueue(Distances *d, int32_t item);
int32_t narrow(Distances *d);

#endif
