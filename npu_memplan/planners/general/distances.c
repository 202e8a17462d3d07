/* The search for anything: bounds of origins, and for each pair the distances that are left.
 *
 * Complete: INFEASIBLE is a proof that no placement respects the ceiling (and, where some items are not free, keeps
 * their order). A state is an interval of origins for every item and a range of distances for every pair; forbidden
 * zones are cut off the ends of the ranges, and both are narrowed until nothing moves (narrow.c). When the least
 * origins break no zone they are a placement; else a pair that is in each other's way is put below or above the zone
 * it is in: the pair with least room first, pairs that failed often before others.
 */
#include "distances.h"

/* Origins between home and ceiling; false when an item is higher than that. */
static bool set_origins(Distances *d) {
  const Network *n = d->network;
  for (int32_t i = 0; i < n->items; i++) {
    int64_t most = d->task->ceiling - n->size[i];
    if (n->home[i] > most) {
      return false;
    }
    d->bound[LEAST][i] = n->home[i];
    d->bound[MOST][i] = n->fixed[i] ? n->home[i] : most;
    enqueue(d, i);
  }
  return true;
}

/* Pairs of items that are not free keep the range between zones that their origins lie in; the others are undecided. */
static void set_ranges(Distances *d) {
  const Network *n = d->network;
  const Task *task = d->task;
  for (int32_t p = 0; p < n->pairs; p++) {
    int32_t a = n->first[p], b = n->second[p];
    d->bound[LOWEST][p] = -FAR;
    d->bound[HIGHEST][p] = FAR;
    if (task->free[a] || task->free[b]) {
      d->undecided[d->active++] = p;
      continue;
    }
    int64_t distance = task->origin[a] - task->origin[b];
    for (int32_t z = n->zone_at[p]; z < n->zone_at[p + 1]; z++) {
      if (n->zone_high[z] <= distance) {
        d->bound[LOWEST][p] = max_of(d->bound[LOWEST][p], n->zone_high[z]);
      } else if (distance <= n->zone_low[z]) {
        d->bound[HIGHEST][p] = min_of(d->bound[HIGHEST][p], n->zone_low[z]);
      }
    }
  }
}

/* How soon pair p must be decided about the zone that its least origins are in (the less, the sooner); 1e300 when they
 * are in none. `apart`: whatever is decided from here on, its zones are kept. */
static double urgency(const Distances *d, int32_t p, int32_t *zone, bool *apart) {
  const Network *n = d->network;
  const int64_t *least = d->bound[LEAST], *most = d->bound[MOST];
  int32_t a = n->first[p], b = n->second[p];
  int64_t distance = least[a] - least[b];
  int64_t low = max_of(d->bound[LOWEST][p], least[a] - most[b]);
  int64_t high = min_of(d->bound[HIGHEST][p], most[a] - least[b]);
  double best = 1e300;
  *apart = true;
  for (int32_t z = n->zone_at[p]; z < n->zone_at[p + 1]; z++) {
    if (n->zone_low[z] < high && low < n->zone_high[z]) {
      *apart = false;
      if (n->zone_low[z] < distance && distance < n->zone_high[z]) {
        double below = (double)(n->zone_low[z] - low), above = (double)(high - n->zone_high[z]);
        double tight = below < above ? below : above, wide = below < above ? above : below;
        double key = tight < 0.0 ? -1.0 : (tight + 0.25 * wide + 1.0) / d->network->weight[p];
        if (key < best) {
          best = key;
          *zone = z;
        }
      }
    }
  }
  return best;
}

/* The pair to decide next, -1 when the least origins break no zone. Pairs that are apart become inactive. */
static int32_t choose_pair(Distances *d, int32_t *zone) {
  int32_t chosen = -1;
  double best = 1e300;
  int64_t k = 0;
  while (k < d->active) {
    int32_t p = d->undecided[k], z = 0;
    bool apart;
    double key = urgency(d, p, &z, &apart);
    if (key < best) {
      best = key;
      chosen = p;
      *zone = z;
    }
    if (apart) { /* comes back when the decision is taken back */
      d->active--;
      d->undecided[k] = d->undecided[d->active];
      d->undecided[d->active] = p;
    } else {
      k++;
    }
  }
  return chosen;
}

/* Whether pair p is tried above zone z first: as in the given placement, or where there is more room. */
static bool is_above_first(Distances *d, int32_t p, int32_t z) {
  const Network *n = d->network;
  const Task *task = d->task;
  const int64_t *least = d->bound[LEAST], *most = d->bound[MOST];
  int32_t a = n->first[p], b = n->second[p];
  int64_t below = n->zone_low[z] - max_of(d->bound[LOWEST][p], least[a] - most[b]);
  int64_t above = min_of(d->bound[HIGHEST][p], most[a] - least[b]) - n->zone_high[z];
  if (chance(task->chance) < task->trust) {
    return 2 * (task->origin[a] - task->origin[b]) > n->zone_low[z] + n->zone_high[z];
  }
  return below == above ? chance(task->chance) < 0.5 : above > below;
}

/* Back to the last decision that has a side left, and take it; false when there is none. */
static bool next_side(Distances *d) {
  while (d->depth > 0) {
    Decision *decision = &d->decision[d->depth - 1];
    undo(d, decision->trail);
    d->active = decision->active;
    if (decision->tried < 2) {
      int32_t p = decision->pair, z = decision->zone;
      bool above = decision->tried++ == 0 ? decision->above : !decision->above;
      d->left--;
      if (above) {
        set_bound(d, LOWEST, p, d->network->zone_high[z]);
      } else {
        set_bound(d, HIGHEST, p, d->network->zone_low[z]);
      }
      d->head = 0;
      enqueue(d, d->network->first[p]);
      return true;
    }
    d->depth--;
  }
  return false;
}

static int search(Distances *d) {
  for (;;) {
    int32_t failed = narrow(d);
    if (failed < 0) {
      int32_t zone = 0, chosen = choose_pair(d, &zone);
      if (chosen < 0) {
        return FOUND;
      }
      if (d->left <= 0 || trail_is_full(d) || d->depth == d->network->pairs) {
        return LIMIT;
      }
      bool above = is_above_first(d, chosen, zone);
      d->decision[d->depth++] = (Decision){d->trails, d->active, chosen, zone, above, 0};
    } else {
      d->network->weight[failed] += 1.0;
      if (trail_is_full(d)) {
        return LIMIT;
      }
    }
    if (!next_side(d)) {
      return INFEASIBLE;
    }
  }
}

static bool take_state(Distances *d) {
  int64_t items = d->network->items, pairs = d->network->pairs;
  Arena *arena = &d->arena;
  TAKE(arena, d->bound[LEAST], items);
  TAKE(arena, d->bound[MOST], items);
  TAKE(arena, d->bound[LOWEST], pairs);
  TAKE(arena, d->bound[HIGHEST], pairs);
  TAKE(arena, d->trail, TRAIL);
  TAKE(arena, d->queue, items);
  TAKE(arena, d->queued, items);
  TAKE(arena, d->undecided, pairs);
  TAKE(arena, d->decision, pairs + 1);
  return !arena->failed;
}

/* FOUND (`origin` is a placement), INFEASIBLE (proven), LIMIT (nodes spent) or NO_MEMORY. */
int npu_memplan_distances(const Network *network, Task *task) {
  Distances d = {.network = network, .task = task, .left = task->nodes};
  int verdict = NO_MEMORY;
  if (take_state(&d)) {
    set_ranges(&d);
    verdict = set_origins(&d) ? search(&d) : INFEASIBLE;
  }
  if (verdict == FOUND) {
    memcpy(task->origin, d.bound[LEAST], (size_t)network->items * sizeof *task->origin);
  }
  task->spent = task->nodes - d.left;
  free_all(&d.arena);
  return verdict;
}
