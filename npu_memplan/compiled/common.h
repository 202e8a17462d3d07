/* What every compiled search uses: verdicts, chance, hashing, offsets, arrays.
 *
 * Sizes and offsets are bytes in int64_t; indices of items and sections are int32_t.
 */
#ifndef NPU_MEMPLAN_COMMON_H
#define NPU_MEMPLAN_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What a search says; Python has the same numbers in compiled/__init__.py. */
enum { FOUND = 1, INFEASIBLE = 0, LIMIT = -1, NO_MEMORY = -2 };

#define NEVER ((int64_t)1 << 62)

static inline int64_t min_of(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t max_of(int64_t a, int64_t b) { return a > b ? a : b; }

/* The least multiple of `step` not below `at`, which is not negative. */
static inline int64_t round_up(int64_t at, int64_t step) { return step == 1 ? at : (at + step - 1) / step * step; }

/* `at` modulo `step`, never negative. */
static inline int64_t modulo(int64_t at, int64_t step) {
  int64_t rest = at % step;
  return rest < 0 ? rest + step : rest;
}

/* A well mixed 64-bit hash of `x` (splitmix64). */
static inline uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= UINT64_C(0xBF58476D1CE4E5B9);
  x ^= x >> 27;
  x *= UINT64_C(0x94D049BB133111EB);
  return x ^ (x >> 31);
}

/* A number in [0, 1); `state` is not 0 and moves on (xorshift). */
static inline double chance(uint64_t *state) {
  uint64_t x = *state;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  *state = x;
  return (double)(x >> 11) / 9007199254740992.0;
}

/* Zeroed arrays that are freed together. After a failure nothing is read or written any more: look at `failed`. */
typedef struct Block {
  struct Block *next;
  int64_t padding; /* what follows is aligned for anything */
} Block;

typedef struct {
  Block *blocks;
  bool failed;
} Arena;

static inline void *take(Arena *arena, int64_t count, size_t element_bytes) {
  Block *block = calloc(1, sizeof *block + (size_t)max_of(count, 1) * element_bytes);
  if (block == NULL) {
    arena->failed = true;
    return NULL;
  }
  block->next = arena->blocks;
  arena->blocks = block;
  return block + 1;
}

#define TAKE(arena, array, count) ((array) = take(arena, count, sizeof *(array)))

/* A larger copy of an array of `*room` elements; the old one is freed with the rest. */
static inline void *larger(Arena *arena, const void *array, int64_t *room, int64_t wanted, size_t element_bytes) {
  int64_t more = max_of(wanted, 2 * *room);
  void *copy = take(arena, more, element_bytes);
  if (copy != NULL) {
    memcpy(copy, array, (size_t)*room * element_bytes);
    *room = more;
  }
  return copy;
}

/* Whether `array` has, by now, room for `wanted` elements. */
#define RESERVE(arena, array, room, wanted) \
  ((wanted) <= (room) || ((array) = larger(arena, array, &(room), wanted, sizeof *(array))) != NULL)

static inline void free_all(Arena *arena) {
  while (arena->blocks != NULL) {
    Block *next = arena->blocks->next;
    free(arena->blocks);
    arena->blocks = next;
  }
}

#endif
