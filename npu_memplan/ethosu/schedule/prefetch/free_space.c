/* Free bytes of one pool over the operations of a program: `FreeCapacity` and `FreeRanges` of free_space.py. */
#include "prefetch.h"

enum { FIRST, LAST, START, STOP, ROW };

bool take_room(Arena *arena, Room *room, const Free *free, const Line *line) {
  *room = (Room){.free = free, .operations = line->operations};
  TAKE(arena, room->used, line->operations);
  TAKE(arena, room->held, ROW * (free->rows + line->constants));
  return !arena->failed;
}

/* As it is before any copy. */
void room_empty(Room *room) {
  memcpy(room->used, room->free->used, (size_t)room->operations * sizeof *room->used);
  room->rows = room->free->rows;
  memcpy(room->held, room->free->held, (size_t)(ROW * room->rows) * sizeof *room->held);
}

static int64_t rounded(const Room *room, int64_t size) { return round_up(size, room->free->grain); }

static bool meets(const int64_t *row, int64_t first, int64_t last) { return row[FIRST] <= last && row[LAST] >= first; }

/* The last operation in [first, last] at which less than `size` bytes are free; -1: none. */
int64_t room_full_at(const Room *room, int64_t size, int64_t first, int64_t last) {
  int64_t most = room->free->limit - size;
  for (int64_t i = last; i >= first; i--) {
    if (room->used[i] > most) {
      return i;
    }
  }
  return -1;
}

static int64_t highest(const Room *room, int64_t size, int64_t first, int64_t last) {
  int64_t end = 0, at = -1;
  for (const int64_t *row = room->held; row < room->held + ROW * room->rows; row += ROW) {
    if (meets(row, first, last)) {
      at = row[START] - end >= size ? row[START] - size : at;
      end = max_of(end, row[STOP]);
    }
  }
  return room->free->limit - end >= size ? room->free->limit - size : at;
}

static int64_t smallest(const Room *room, int64_t size, int64_t first, int64_t last) {
  int64_t end = 0, at = -1, least = NEVER;
  for (const int64_t *row = room->held; row < room->held + ROW * room->rows; row += ROW) {
    if (meets(row, first, last)) {
      int64_t hole = row[START] - end;
      if (hole >= size && hole < least) {
        least = hole;
        at = end;
      }
      end = max_of(end, row[STOP]);
    }
  }
  return at < 0 && size <= room->free->limit - end ? end : at;
}

/* Where `size` bytes are free from operation `first` to `last`, both included; -1: nowhere. */
int64_t room_find(const Room *room, int64_t size, int64_t first, int64_t last, bool from_top) {
  if (!room->free->placed) {
    return room_full_at(room, size, first, last) < 0 ? 0 : -1;
  }
  return from_top ? highest(room, rounded(room, size), first, last) : smallest(room, size, first, last);
}

/* Where `find` found nothing: the operation at which that may change. */
int64_t room_tight_until(const Room *room, int64_t first, int64_t last) {
  int64_t least = NEVER;
  if (room->free->placed) {
    for (const int64_t *row = room->held; row < room->held + ROW * room->rows; row += ROW) {
      least = meets(row, first, last) ? min_of(least, row[LAST]) : least;
    }
  }
  return least == NEVER ? last : least;
}

/* Fill what `find` found. */
void room_fill(Room *room, int64_t size, int64_t first, int64_t last, int64_t at) {
  int64_t taken = rounded(room, size);
  for (int64_t i = first; i <= last; i++) {
    room->used[i] += taken;
  }
  if (!room->free->placed) {
    return;
  }
  int64_t *end = room->held + ROW * room->rows++, *row = end;
  while (row > room->held && row[START - ROW] >= at) {
    row -= ROW;
  }
  memmove(row + ROW, row, (size_t)(end - row) * sizeof *row);
  row[FIRST] = first;
  row[LAST] = last;
  row[START] = at;
  row[STOP] = at + taken;
}
