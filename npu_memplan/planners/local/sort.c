/* Indices in order of a key: quicksort, small runs by insertion. Which of equal keys comes first is arbitrary, but
 * always the same: placements depend on it. */
#include "eject.h"

enum { SMALL = 15 };

static void swap(int32_t *a, int32_t *b) {
  int32_t other = *a;
  *a = *b;
  *b = other;
}

static void insert(const int64_t *key, int32_t *order, int64_t low, int64_t high) {
  for (int64_t i = low + 1; i <= high; i++) {
    int32_t moving = order[i];
    int64_t j = i;
    for (; j > low && key[moving] < key[order[j - 1]]; j--) {
      order[j] = order[j - 1];
    }
    order[j] = moving;
  }
}

/* Part order[low .. high] at the median of its first, middle and last key; where that one went. */
static int64_t partition(const int64_t *key, int32_t *order, int64_t low, int64_t high) {
  int64_t middle = (low + high) / 2;
  if (key[order[middle]] < key[order[low]]) {
    swap(&order[low], &order[middle]);
  }
  if (key[order[high]] < key[order[middle]]) {
    swap(&order[high], &order[middle]);
  }
  if (key[order[middle]] < key[order[low]]) {
    swap(&order[low], &order[middle]);
  }
  int64_t pivot = key[order[middle]], i = low, j = high - 1;
  swap(&order[high], &order[middle]);
  for (;;) {
    while (i < high && key[order[i]] < pivot) {
      i++;
    }
    while (j >= low && pivot < key[order[j]]) {
      j--;
    }
    if (i >= j) {
      break;
    }
    swap(&order[i++], &order[j--]);
  }
  swap(&order[i], &order[high]);
  return i;
}

/* The longer side waits, so the depth is the logarithm of `count`. */
static void sort_range(const int64_t *key, int32_t *order, int64_t low, int64_t high) {
  while (high - low >= SMALL) {
    int64_t i = partition(key, order, low, high);
    if (high - i > i - low) {
      sort_range(key, order, low, i - 1);
      low = i + 1;
    } else {
      sort_range(key, order, i + 1, high);
      high = i - 1;
    }
  }
  insert(key, order, low, high);
}

void sort_indices(const int64_t *key, int32_t *order, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    order[i] = (int32_t)i;
  }
  sort_range(key, order, 0, count - 1);
}
