/* Stacking: each item on top of the highest that is already there in its time. No holes are filled.
 *
 * O(n log points): a tree over time holds, for every node, the highest within its range, and the height that all of
 * its range was raised to.
 */
#include "scale.h"

typedef struct {
  int64_t width; /* leaves: a power of two */
  int64_t *top, *whole;
} Tree;

static int64_t highest_end(const Tree *t, int64_t left, int64_t right) {
  int64_t at = 0, x = left >> 1, y = (right - 1) >> 1;
  for (; left < right; left >>= 1, right >>= 1) {
    if (left & 1) {
      at = max_of(at, t->top[left++]);
    }
    if (right & 1) {
      at = max_of(at, t->top[--right]);
    }
  }
  for (; x > 0; x >>= 1, y >>= 1) {
    at = max_of(at, max_of(t->whole[x], t->whole[y]));
  }
  return at;
}

static void lift_node(Tree *t, int64_t node, int64_t end) {
  t->top[node] = max_of(t->top[node], end);
  t->whole[node] = max_of(t->whole[node], end);
}

static void refresh(Tree *t, int64_t node) {
  t->top[node] = max_of(max_of(t->top[2 * node], t->top[2 * node + 1]), t->whole[node]);
}

static void raise_to(Tree *t, int64_t left, int64_t right, int64_t end) {
  int64_t x = left >> 1, y = (right - 1) >> 1;
  for (; left < right; left >>= 1, right >>= 1) {
    if (left & 1) {
      lift_node(t, left++, end);
    }
    if (right & 1) {
      lift_node(t, --right, end);
    }
  }
  for (; x > 0; x >>= 1, y >>= 1) {
    refresh(t, x);
    refresh(t, y);
  }
}

/* Offsets of all items, placed in `order`; the height, or NO_MEMORY. */
int64_t npu_memplan_stack(const Items *items, const int64_t *order, int64_t *offset) {
  Arena arena = {0};
  Tree tree = {.width = 1};
  while (tree.width < items->points) {
    tree.width *= 2;
  }
  TAKE(&arena, tree.top, 2 * tree.width);
  TAKE(&arena, tree.whole, 2 * tree.width);
  int64_t height = arena.failed ? NO_MEMORY : 0;
  for (int64_t k = 0; k < items->count && !arena.failed; k++) {
    int64_t i = order[k], left = items->first[i] + tree.width, right = items->last[i] + tree.width;
    int64_t at = round_up(highest_end(&tree, left, right), items->align[i]);
    offset[i] = at;
    height = max_of(height, at + items->size[i]);
    raise_to(&tree, left, right, at + items->size[i]);
  }
  free_all(&arena);
  return height;
}
