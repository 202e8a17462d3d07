/* Bounds of origins and ranges of distances, narrowed until nothing moves; what was changed can be taken back. */
#include "distances.h"

void undo(Distances *d, int64_t until) {
  while (d->trails > until) {
    Change change = d->trail[--d->trails];
    d->bound[change.kind][change.place] = change.value;
  }
}

void enqueue(Distances *d, int32_t item) {
  if (!d->queued[item]) {
    int64_t tail = d->head + d->waiting++;
    d->queued[item] = true;
    d->queue[tail < d->network->items ? tail : tail - d->network->items] = item;
  }
}

static int32_t dequeue(Distances *d) {
  int32_t item = d->queue[d->head];
  d->head = d->head + 1 < d->network->items ? d->head + 1 : 0;
  d->waiting--;
  d->queued[item] = false;
  return item;
}

/* The distances of pair p that its range and the bounds of its items leave, its ends not inside a zone. */
static Range range_of(const Distances *d, int32_t p) {
  const Network *n = d->network;
  const int64_t *least = d->bound[LEAST], *most = d->bound[MOST];
  int32_t a = n->first[p], b = n->second[p];
  Range range = {max_of(d->bound[LOWEST][p], least[a] - most[b]), min_of(d->bound[HIGHEST][p], most[a] - least[b])};
  for (int32_t z = n->zone_at[p]; z < n->zone_at[p + 1]; z++) {
    if (n->zone_low[z] < range.low && range.low < n->zone_high[z]) {
      range.low = n->zone_high[z];
    }
  }
  for (int32_t z = n->zone_at[p + 1] - 1; z >= n->zone_at[p]; z--) {
    if (n->zone_low[z] < range.high && range.high < n->zone_high[z]) {
      range.high = n->zone_low[z];
    }
  }
  return range;
}

/* `at` modulo `step`, never negative; most steps are powers of two, which need no division. */
static inline int64_t remainder_of(int64_t at, int64_t step) {
  return step & (step - 1) ? modulo(at, step) : at & (step - 1);
}

/* Keep item i's origin in [low, high]; false when none is left. */
static inline bool clip(Distances *d, int32_t i, int64_t low, int64_t high) {
  const Network *n = d->network;
  int64_t *least = &d->bound[LEAST][i], *most = &d->bound[MOST][i], step = n->modulus[i];
  if (low <= *least - step && high >= *most + step) {
    return true; /* however it is aligned */
  }
  low += remainder_of(n->residue[i] - low, step);
  high -= remainder_of(high - n->residue[i], step);
  if (low <= *least && high >= *most) {
    return true;
  }
  if (low > *least) {
    set_bound(d, LEAST, i, low);
  }
  if (high < *most) {
    set_bound(d, MOST, i, high);
  }
  if (*least > *most) {
    return false;
  }
  enqueue(d, i);
  return true;
}

/* Narrow both items of pair p; false when no distance is left (or no room to remember). */
static bool narrow_pair(Distances *d, int32_t p) {
  int32_t a = d->network->first[p], b = d->network->second[p];
  const int64_t *least = d->bound[LEAST], *most = d->bound[MOST];
  Range range = range_of(d, p);
  if (range.low > range.high || trail_is_full(d)) {
    return false;
  }
  return clip(d, a, least[b] + range.low, most[b] + range.high) &&
         clip(d, b, least[a] - range.high, most[a] - range.low);
}

/* Narrow all bounds until nothing moves; -1, or the pair that has no distance left. */
int32_t narrow(Distances *d) {
  const Network *n = d->network;
  int32_t failed = -1;
  while (d->waiting > 0) {
    int32_t i = dequeue(d);
    for (int32_t q = n->near_at[i]; q < n->near_at[i + 1] && failed < 0; q++) {
      if (!narrow_pair(d, n->near[q])) {
        failed = n->near[q];
      }
    }
  }
  return failed;
}
