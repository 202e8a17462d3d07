/* Parts and nogoods.
 *
 * Between two sections that no remaining item crosses, the state splits into parts that have nothing to do with each
 * other. A part that failed once fails wherever it has as little headroom, under any ceiling of the same phase: so
 * states are known by the items that begin in their sections and by the headroom above each floor.
 */
#include "fill.h"

/* Split the present part: the first piece is the present one now, the others wait for it. False when nothing is left
 * to place in it. */
bool split(Fill *f) {
  Part whole = f->now;
  int64_t begin = whole.lo, pieces = 0;
  bool any_left = false;
  if (!RESERVE(&f->arena, f->parts, f->part_room, f->part_count + f->graph->sections)) {
    return true;
  }
  for (int64_t s = whole.lo; s < whole.hi; s++) {
    any_left = any_left || f->active[s] > 0;
    if (f->crossing[s] > 0) {
      continue;
    }
    if (any_left && pieces++ == 0) {
      f->now.lo = begin;
      f->now.hi = s + 1;
    } else if (any_left) {
      f->parts[f->part_count] = (Part){begin, s + 1, whole.parent, f->now.next};
      f->now.next = f->part_count++;
    }
    any_left = false;
    begin = s + 1;
  }
  return pieces > 0;
}

bool is_known_to_fail(const Fill *f, uint64_t *hash_1, uint64_t *hash_2) {
  const Call *call = f->call;
  uint64_t h1 = UINT64_C(0x2545F4914F6CDD1D), h2 = UINT64_C(0x9E6C63D0876A9A47) ^ (uint64_t)call->phase;
  for (int64_t s = f->now.lo; s < f->now.hi; s++) {
    if (f->active[s] > 0) {
      uint64_t headroom = (uint64_t)(call->ceiling - f->floor[s]);
      uint64_t z = mix((uint64_t)s * UINT64_C(0xC2B2AE3D27D4EB4F) + headroom * UINT64_C(0xD6E8FEB86659FD93));
      h1 += f->begun_1[s] + z;
      h2 += f->begun_2[s] + (z ^ (z >> 29)) * UINT64_C(0xBF58476D1CE4E5B9);
    }
  }
  *hash_1 = h1;
  *hash_2 = h2;
  uint64_t slot = h1 & (uint64_t)call->memo_mask;
  return call->memo[slot] == h1 && call->memo[(uint64_t)call->memo_mask + 1 + slot] == h2;
}

void remember_failure(const Fill *f, const Choice *choice) {
  uint64_t mask = (uint64_t)f->call->memo_mask, slot = choice->hash_1 & mask;
  f->call->memo[slot] = choice->hash_1;
  f->call->memo[mask + 1 + slot] = choice->hash_2;
}
