/* First fit with a list, for each item, of those begun earlier that live when it begins. */
#include "scale.h"

enum { FEW = 48 }; /* ranges up to which sorting by insertion is faster */

typedef struct {
  int64_t low, high;
} Range;

static int compare_whole(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

static int compare_low(const void *a, const void *b) {
  int64_t x = ((const Range *)a)->low, y = ((const Range *)b)->low;
  return (x > y) - (x < y);
}

/* Pairs that meet, counted only until they are more than `limit`; or NO_MEMORY. */
int64_t npu_memplan_count_pairs(const Items *items, int64_t limit) {
  Arena arena = {0};
  int64_t *ends = take(&arena, items->count, sizeof *ends);
  if (ends == NULL) {
    return NO_MEMORY;
  }
  memcpy(ends, items->last, (size_t)items->count * sizeof *ends);
  qsort(ends, (size_t)items->count, sizeof *ends, compare_whole);
  int64_t total = 0, ended = 0;
  for (int64_t i = 0; i < items->count && total <= limit; i++) {
    while (ended < items->count && ends[ended] <= items->first[i]) {
      ended++;
    }
    total += i - ended;
  }
  free_all(&arena);
  return total;
}

/* Fill in, for each item, earlier[start[i] .. start[i + 1]]: those begun earlier that still live when it begins. */
int64_t npu_memplan_list_pairs(const Items *items, int64_t *start, int32_t *earlier) {
  Arena arena = {0};
  int32_t *live = take(&arena, items->count, sizeof *live);
  if (live == NULL) {
    return NO_MEMORY;
  }
  int64_t lives = 0, found = 0;
  for (int64_t i = 0; i < items->count; i++) {
    int64_t kept = 0;
    for (int64_t j = 0; j < lives; j++) {
      if (items->last[live[j]] > items->first[i]) {
        live[kept++] = live[j];
      }
    }
    lives = kept;
    memcpy(earlier + found, live, (size_t)lives * sizeof *live);
    found += lives;
    start[i + 1] = found;
    live[lives++] = (int32_t)i;
  }
  free_all(&arena);
  return found;
}

static void sort_by_low(Range *range, int64_t count) {
  if (count > FEW) {
    qsort(range, (size_t)count, sizeof *range, compare_low);
    return;
  }
  for (int64_t q = 1; q < count; q++) {
    Range moving = range[q];
    int64_t hole = q;
    for (; hole > 0 && range[hole - 1].low > moving.low; hole--) {
      range[hole] = range[hole - 1];
    }
    range[hole] = moving;
  }
}

/* Lowest offset for item i outside `count` ranges of bytes, sorted by their start. */
static int64_t lowest_gap(const Items *items, int64_t i, const Range *range, int64_t count) {
  int64_t at = 0;
  for (int64_t q = 0; q < count && range[q].low < at + items->size[i]; q++) {
    if (range[q].high > at) {
      at = round_up(range[q].high, items->align[i]);
    }
  }
  return at;
}

/* Offsets of all items, placed in `order` around those that have a `preset` offset >= 0; the height, or NO_MEMORY. */
int64_t npu_memplan_fit_pairs(const Items *items, const int64_t *order, const int64_t *start, const int32_t *earlier,
                              const int64_t *preset, int64_t *offset) {
  Arena arena = {0};
  int64_t height = 0, room = 1024;
  Range *range = take(&arena, room, sizeof *range);
  memcpy(offset, preset, (size_t)items->count * sizeof *offset);
  for (int64_t k = 0; k < items->count && !arena.failed; k++) {
    int64_t i = order[k], later = i + 1, found = 0;
    if (preset[i] < 0) {
      while (later < items->count && items->first[later] < items->last[i]) {
        later++;
      }
      if (!RESERVE(&arena, range, room, start[i + 1] - start[i] + later - i)) {
        break;
      }
      for (int64_t q = start[i]; q < start[i + 1]; q++) {
        int32_t j = earlier[q];
        if (offset[j] >= 0) {
          range[found++] = (Range){offset[j], offset[j] + items->size[j]};
        }
      }
      for (int64_t j = i + 1; j < later; j++) {
        if (offset[j] >= 0) {
          range[found++] = (Range){offset[j], offset[j] + items->size[j]};
        }
      }
      sort_by_low(range, found);
      offset[i] = lowest_gap(items, i, range, found);
    }
    height = max_of(height, offset[i] + items->size[i]);
  }
  height = arena.failed ? NO_MEMORY : height;
  free_all(&arena);
  return height;
}
