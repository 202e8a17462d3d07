/* First fit without lists of pairs: what is placed is scanned in order of offset.
 *
 * Placed items stand in linked blocks, so that putting one in moves few others, and blocks that are of another time are
 * skipped whole.
 */
#include "scale.h"

enum { BLOCK = 128 };

typedef struct {
  int64_t low, high;    /* bytes */
  int32_t begins, ends; /* time */
} Placed;

typedef struct {
  Placed placed[BLOCK]; /* by `low` */
  int64_t count, next;  /* next: -1 for none */
  int64_t earliest, latest;
} Blocks;

typedef struct {
  Blocks *block;
  int64_t used, left; /* blocks; steps */
} Scan;

/* The lowest gap for an item, as far as the steps reach. */
static int64_t lowest_gap(Scan *s, int64_t size, int64_t align, int64_t begins, int64_t ends) {
  int64_t at = 0;
  for (int64_t x = 0; x >= 0; x = s->block[x].next) {
    const Blocks *block = &s->block[x];
    if (block->count > 0 && block->placed[0].low >= at + size) {
      break;
    }
    s->left--;
    if (block->earliest >= ends || begins >= block->latest) {
      continue;
    }
    s->left -= block->count;
    for (int64_t k = 0; k < block->count; k++) {
      const Placed *other = &block->placed[k];
      if (other->begins < ends && begins < other->ends && other->high > at) {
        if (other->low >= at + size) {
          break;
        }
        at = round_up(other->high, align);
      }
    }
  }
  return at;
}

static void measure_blocks(Blocks *block) {
  block->earliest = INT64_MAX;
  block->latest = -1;
  for (int64_t k = 0; k < block->count; k++) {
    block->earliest = min_of(block->earliest, block->placed[k].begins);
    block->latest = max_of(block->latest, block->placed[k].ends);
  }
}

/* The upper half of a full block moves to a new one after it. */
static void split(Scan *s, Blocks *block) {
  int64_t half = BLOCK / 2;
  Blocks *added = &s->block[s->used];
  memcpy(added->placed, block->placed + half, (size_t)half * sizeof *block->placed);
  added->next = block->next;
  block->next = s->used++;
  added->count = block->count = half;
  measure_blocks(added);
  measure_blocks(block);
}

static void insert_item(Scan *s, Placed item) {
  int64_t x = 0;
  while (s->block[x].next >= 0 && s->block[s->block[x].next].placed[0].low < item.low) {
    x = s->block[x].next;
  }
  Blocks *block = &s->block[x];
  if (block->count == BLOCK) {
    split(s, block);
    if (s->block[block->next].placed[0].low < item.low) {
      block = &s->block[block->next];
    }
  }
  int64_t k = block->count++;
  for (; k > 0 && block->placed[k - 1].low > item.low; k--) {
    block->placed[k] = block->placed[k - 1];
  }
  block->placed[k] = item;
  block->earliest = min_of(block->earliest, item.begins);
  block->latest = max_of(block->latest, item.ends);
}

/* Offsets of all items, placed in `order`: those that have a `preset` offset >= 0 come first and keep it. The height,
 * LIMIT past `steps`, or NO_MEMORY. */
int64_t npu_memplan_fit_scan(const Items *items, const int64_t *order, const int64_t *preset, int64_t *offset,
                             int64_t steps) {
  Arena arena = {0};
  Scan scan = {.used = 1, .left = steps};
  int64_t height = 0;
  if (TAKE(&arena, scan.block, 4 * (items->count / BLOCK + 2)) == NULL) {
    return NO_MEMORY;
  }
  scan.block[0] = (Blocks){.next = -1, .earliest = INT64_MAX, .latest = -1};
  for (int64_t k = 0; k < items->count && height >= 0; k++) {
    int64_t i = order[k], begins = items->first[i], ends = items->last[i], at = preset[i];
    if (at < 0) {
      at = lowest_gap(&scan, items->size[i], items->align[i], begins, ends);
    }
    offset[i] = at;
    height = scan.left < 0 ? LIMIT : max_of(height, at + items->size[i]);
    insert_item(&scan, (Placed){at, at + items->size[i], (int32_t)begins, (int32_t)ends});
  }
  free_all(&arena);
  return height;
}
