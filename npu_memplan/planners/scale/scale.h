/* Items of one pool as arrays, sorted by their first point; scale/__init__.py fills them. */
#ifndef NPU_MEMPLAN_SCALE_H
#define NPU_MEMPLAN_SCALE_H

#include "common.h"

typedef struct {
  int64_t count, points;
  const int64_t *first, *last; /* ranks of points: the item lives in [first, last) */
  const int64_t *size, *align; /* bytes */
} Items;

#endif
