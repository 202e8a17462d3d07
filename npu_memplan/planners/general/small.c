/* The search that general/__init__.py calls.
 *
 * A state is the least origins and the difference constraints that led to them. A pair is put into one of the ranges
 * between its forbidden zones; pairs that have one range left are put there at once.
 */
#include "distances.h"

enum { DEEPEST = 400, FORCED_PAIRS = 1000 }; /* choices on top of each other; up to which all pairs are looked at */

/* `origin[to] >= origin[item] + distance`, of the item whose list it is in. */
typedef struct {
  int64_t distance;
  int32_t to, next; /* -1: the last */
} Edge;

/* What is known after so many choices. */
typedef struct {
  int64_t *least;  /* [items] */
  int32_t *edges;  /* [items]: the first of each item, -1 for none */
  int32_t *open;   /* [pairs]: undecided ones, in order */
  int32_t *ranges; /* of the pair that is chosen: those that are left */
} Level;

typedef struct {
  const Network *network;
  SmallTask *task;
  const int64_t *most; /* [items] */
  Level level[DEEPEST + 2];
  Edge *edge;
  int32_t edge_count, most_ranges;
  int32_t *waiting;
  bool *queued;
  Arena arena;
} Small;

static int64_t align(const Network *n, int32_t i, int64_t at) {
  return at + modulo(n->residue[i] - at, n->modulus[i]);
}

static bool take_level(Small *s, int32_t depth) {
  Level *level = &s->level[depth];
  if (level->least == NULL) {
    TAKE(&s->arena, level->least, s->network->items);
    TAKE(&s->arena, level->edges, s->network->items);
    TAKE(&s->arena, level->open, s->network->pairs);
    TAKE(&s->arena, level->ranges, s->most_ranges);
  }
  return !s->arena.failed;
}

/* Raise least origins until all constraints hold; false when one passes its limit. */
static bool raise_origins(Small *s, Level *level, int32_t first, int32_t second) {
  int32_t count = 0;
  bool fits = true;
  s->waiting[count++] = first;
  s->waiting[count++] = second;
  s->queued[first] = s->queued[second] = true;
  while (count > 0) {
    int32_t i = s->waiting[--count];
    s->queued[i] = false;
    for (int32_t e = fits ? level->edges[i] : -1; e >= 0; e = s->edge[e].next) {
      int32_t j = s->edge[e].to;
      int64_t at = level->least[i] + s->edge[e].distance;
      if (at > level->least[j]) {
        level->least[j] = align(s->network, j, at);
        if (level->least[j] > s->most[j]) {
          fits = false;
          break;
        }
        if (!s->queued[j]) {
          s->queued[j] = true;
          s->waiting[count++] = j;
        }
      }
    }
  }
  return fits;
}

static void add_edge(Small *s, Level *level, int32_t from, int32_t to, int64_t distance) {
  s->edge[s->edge_count] = (Edge){distance, to, level->edges[from]};
  level->edges[from] = s->edge_count++;
}

/* Range `r` of pair `p`: from the zone below it to that above it; false where there is none. */
static bool lowest_distance(const Network *n, int32_t p, int32_t r, int64_t *low) {
  *low = r > 0 ? n->zone_high[n->zone_at[p] + r - 1] : 0;
  return r > 0;
}

static bool highest_distance(const Network *n, int32_t p, int32_t r, int64_t *high) {
  int32_t z = n->zone_at[p] + r;
  bool is_limited = z < n->zone_at[p + 1];
  *high = is_limited ? n->zone_low[z] : 0;
  return is_limited;
}

/* Keep the pair in the range; false when that can not be. */
static bool restrict_pair(Small *s, Level *level, int32_t p, int32_t r) {
  const Network *n = s->network;
  int64_t low, high;
  if (lowest_distance(n, p, r, &low)) {
    add_edge(s, level, n->second[p], n->first[p], low);
  }
  if (highest_distance(n, p, r, &high)) {
    add_edge(s, level, n->first[p], n->second[p], -high);
  }
  return raise_origins(s, level, n->first[p], n->second[p]);
}

static bool is_wrong(const Small *s, const Level *level, int32_t p) {
  const Network *n = s->network;
  int64_t distance = level->least[n->first[p]] - level->least[n->second[p]];
  for (int32_t z = n->zone_at[p]; z < n->zone_at[p + 1]; z++) {
    if (n->zone_low[z] < distance && distance < n->zone_high[z]) {
      return true;
    }
  }
  return false;
}

/* Whether a pair that is apart has both its ranges: of one zone, and far from its limits. */
static bool is_loose(const Small *s, const Level *level, int32_t p) {
  const Network *n = s->network;
  int32_t a = n->first[p], b = n->second[p], z = n->zone_at[p];
  return n->zone_at[p + 1] == z + 1 && level->least[a] - n->zone_low[z] <= s->most[b] &&
         level->least[b] + n->zone_high[z] <= s->most[a];
}

/* Ranges that the limits leave, into `found`; how many. */
static int32_t list_ranges(const Small *s, const Level *level, int32_t p, int32_t *found) {
  const Network *n = s->network;
  int32_t a = n->first[p], b = n->second[p], count = 0;
  for (int32_t r = 0; r <= n->zone_at[p + 1] - n->zone_at[p]; r++) {
    int64_t low, high;
    bool can = !lowest_distance(n, p, r, &low) || level->least[b] + low <= s->most[a];
    if (can && (!highest_distance(n, p, r, &high) || level->least[a] - high <= s->most[b])) {
      found[count++] = r;
    }
  }
  return count;
}

/* How far a range moves an origin. */
static int64_t distance_moved(const Network *n, int32_t p, int32_t r, int64_t distance) {
  int64_t low, high, moved = 0;
  if (lowest_distance(n, p, r, &low)) {
    moved = max_of(moved, low - distance);
  }
  if (highest_distance(n, p, r, &high)) {
    moved = max_of(moved, distance - high);
  }
  return moved;
}

static void sort_by_distance(const Network *n, int32_t p, int32_t *ranges, int32_t count, int64_t distance) {
  for (int32_t k = 1; k < count; k++) {
    int32_t r = ranges[k], at = k;
    for (; at > 0 && distance_moved(n, p, ranges[at - 1], distance) > distance_moved(n, p, r, distance); at--) {
      ranges[at] = ranges[at - 1];
    }
    ranges[at] = r;
  }
}

/* Put pairs with one range into it, until none is left; the position of the pair to choose for, -1 when origins are a
 * placement, and the verdict when there is none. */
static int force_pairs(Small *s, Level *level, int32_t *count, int32_t *chosen, int32_t *ranges) {
  for (;;) {
    int32_t best = -1, fewest = 0;
    s->task->work -= *count;
    if (s->task->work < 0) {
      return LIMIT;
    }
    bool few = *count <= FORCED_PAIRS;
    for (int32_t k = 0; k < *count; k++) {
      int32_t p = level->open[k];
      bool wrong = is_wrong(s, level, p);
      if (!wrong && (!few || is_loose(s, level, p))) {
        continue;
      }
      int32_t options = list_ranges(s, level, p, level->ranges);
      if (options == 0) {
        return INFEASIBLE;
      }
      if ((wrong || options == 1) && (best < 0 || options < fewest)) {
        best = k;
        fewest = options;
        if (options == 1) {
          break;
        }
      }
    }
    if (best < 0) {
      *chosen = -1;
      return FOUND;
    }
    *chosen = level->open[best];
    (*count)--;
    memmove(&level->open[best], &level->open[best + 1], (size_t)(*count - best) * sizeof *level->open);
    *ranges = list_ranges(s, level, *chosen, level->ranges);
    if (fewest > 1) {
      return FOUND;
    }
    if (!restrict_pair(s, level, *chosen, level->ranges[0])) {
      return INFEASIBLE;
    }
  }
}

static int descend(Small *s, int32_t depth, int32_t count) {
  const Network *n = s->network;
  Level *level = &s->level[depth], *below = level + 1;
  int32_t p, ranges;
  int verdict = force_pairs(s, level, &count, &p, &ranges);
  if (verdict != FOUND) {
    return verdict;
  }
  if (p < 0) {
    memcpy(s->task->origin, level->least, (size_t)n->items * sizeof *level->least);
    return FOUND;
  }
  sort_by_distance(n, p, level->ranges, ranges, level->least[n->first[p]] - level->least[n->second[p]]);
  int32_t edges = s->edge_count;
  for (int32_t k = 0; k < ranges; k++) {
    if (--s->task->nodes < 0 || depth > DEEPEST) {
      return LIMIT;
    }
    if (!take_level(s, depth + 1)) {
      return NO_MEMORY;
    }
    memcpy(below->least, level->least, (size_t)n->items * sizeof *level->least);
    memcpy(below->edges, level->edges, (size_t)n->items * sizeof *level->edges);
    memcpy(below->open, level->open, (size_t)count * sizeof *level->open);
    s->edge_count = edges;
    if (restrict_pair(s, below, p, level->ranges[k])) {
      verdict = descend(s, depth + 1, count);
      if (verdict != INFEASIBLE) {
        return verdict;
      }
    }
  }
  return INFEASIBLE;
}

/* FOUND (`origin` is a placement below the ceiling), INFEASIBLE (proven), LIMIT (nodes or work spent) or NO_MEMORY. */
int npu_memplan_small(const Network *network, SmallTask *task) {
  Small s = {.network = network, .task = task};
  int64_t *most;
  int verdict = NO_MEMORY;
  for (int32_t p = 0; p < network->pairs; p++) {
    s.most_ranges = (int32_t)max_of(s.most_ranges, network->zone_at[p + 1] - network->zone_at[p] + 1);
  }
  TAKE(&s.arena, most, network->items);
  TAKE(&s.arena, s.edge, 2 * network->pairs);
  TAKE(&s.arena, s.waiting, network->items);
  TAKE(&s.arena, s.queued, network->items);
  if (take_level(&s, 0)) {
    s.most = most;
    verdict = FOUND;
    for (int32_t i = 0; i < network->items; i++) {
      most[i] = network->fixed[i] ? network->home[i] : task->ceiling - network->size[i];
      s.level[0].least[i] = network->home[i];
      s.level[0].edges[i] = -1;
      if (network->home[i] + network->size[i] > task->ceiling || network->home[i] > most[i]) {
        verdict = INFEASIBLE;
      }
    }
    for (int32_t p = 0; p < network->pairs; p++) {
      s.level[0].open[p] = p;
    }
    verdict = verdict == FOUND ? descend(&s, 0, (int32_t)network->pairs) : verdict;
  }
  free_all(&s.arena);
  return verdict;
}
