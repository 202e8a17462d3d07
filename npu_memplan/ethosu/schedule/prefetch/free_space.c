/* Free bytes of one pool over the operations of a program: `FreeCapacity` and `FreeRanges` of copies.py. */
#include "prefetch.h"

enum { FIRST, LAST, START, STOP, ROW };

bool take_room(Arena *arena, Room *room, const FreeCapacity *capacity, const TimedProgram *program) {
  *room = (Room){.capacity = capacity, .operations = program->operations};
  TAKE(arena, room->used, program->operations);
  TAKE(arena, room->held, ROW * (capacity->rows + program->constants));
  return !arena->failed;
}

/* Empty the room as it is before any copy. */
void room_empty(Room *room) {
  memcpy(room->used, room->capacity->used, (size_t)room->operations * sizeof *room->used);
  room->rows = room->capacity->rows;
  memcpy(room->held, room->capacity->held, (size_t)(ROW * room->rows) * sizeof *room->held);
}

static int64_t round_size(const Room *room, int64_t size) { return round_up(size, room->capacity->grain); }

static bool overlaps(const int64_t *row, int64_t first, int64_t last) { return row[FIRST] <= last && row[LAST] >= first; }

/* The last operation in [first, last] at which less than `size` bytes are free; -1: none. */
int64_t room_full_at(const Room *room, int64_t size, int64_t first, int64_t last) {
  int64_t most = room->capacity->limit - size;
  for (int64_t i = last; i >= first; i--) {
    if (room->used[i] > most) {
      return i;
    }
  }
  return -1;
}

static int64_t find_highest(const Room *room, int64_t size, int64_t first, int64_t last) {
  int64_t end = 0, at = -1;
  for (const int64_t *row = room->held; row < room->held + ROW * room->rows; row += ROW) {
    if (overlaps(row, first, last)) {
      at = row[START] - end >= size ? row[START] - size : at;
      end = max_of(end, row[STOP]);
    }
  }
  return room->capacity->limit - end >= size ? room->capacity->limit - size : at;
}

static int64_t find_smallest(const Room *room, int64_t size, int64_t first, int64_t last) {
  int64_t end = 0, at = -1, least = NEVER;
  for (const int64_t *row = room->held; row < room->held + ROW * room->rows; row += ROW) {
    if (overlaps(row, first, last)) {
      int64_t hole = row[START] - end;
      if (hole >= size && hole < least) {
        least = hole;
        at = end;
      }
      end = max_of(end, row[STOP]);
    }
  }
  return at < 0 && size <= room->capacity->limit - end ? end : at;
}

/* The first of `size` bytes that are free from operation `first` to `last`, both included; -1: nowhere. */
int64_t room_find(const Room *room, int64_t size, int64_t first, int64_t last, bool from_top) {
  if (!room->capacity->placed) {
    return room_full_at(room, size, first, last) < 0 ? 0 : -1;
  }
  return from_top ? find_highest(room, round_size(room, size), first, last) : find_smallest(room, size, first, last);
}

/* The operation at which it may change that `room_find` found nothing. */
int64_t room_tight_until(const Room *room, int64_t first, int64_t last) {
  int64_t least = NEVER;
  if (room->capacity->placed) {
    for (const int64_t *row = room->held; row < room->held + ROW * room->rows; row += ROW) {
      least = overlaps(row, first, last) ? min_of(least, row[LAST]) : least;
    }
  }
  return least == NEVER ? last : least;
}

/* Fill what `room_find` found. */
void room_fill(Room *room, int64_t size, int64_t first, int64_t last, int64_t at) {
  int64_t taken = round_size(room, size);
  for (int64_t i = first; i <= last; i++) {
    room->used[i] += taken;
  }
  if (!room->capacity->placed) {
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
