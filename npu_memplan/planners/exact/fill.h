/* The state of the exact search; see fill.c for the idea. */
#ifndef NPU_MEMPLAN_FILL_H
#define NPU_MEMPLAN_FILL_H

#include "common.h"

/* The problem as sections; exact/__init__.py fills it. */
typedef struct {
  int64_t items, sections;
  const int64_t *size, *align; /* [items], bytes */
  const int32_t *cover_at;     /* [items + 1]: sections of item b are cover[cover_at[b] .. cover_at[b + 1]], ascending */
  const int32_t *cover;
  const int32_t *member_at; /* [sections + 1]: items of section s are member[member_at[s] .. member_at[s + 1]] */
  const int32_t *member;
  const int32_t *twin; /* [items]: an equal item that must be placed before this one, or -1 */
} Graph;

/* One call of the search; exact/__init__.py fills it. */
typedef struct {
  int64_t ceiling;     /* bytes */
  int64_t phase;       /* ceiling modulo what all alignments divide: with equal headroom, equal phases align alike */
  int64_t nodes;       /* choices allowed */
  int64_t rule;        /* which section next: of `section_key` */
  int64_t memo_mask;   /* entries of the memo less one, a power of two less one */
  double noise;        /* amplitude of random numbers added to the scores */
  const double *score; /* [items]: items of high score are tried first */
  double *weight;      /* [sections]: 1 and how often a section failed */
  uint64_t *chance;    /* [1] */
  uint64_t *memo;      /* [2][memo_mask + 1]: nogoods; kept between calls */
  int64_t *offset;     /* [items]: the answer */
  int64_t choices;     /* out: made */
  int64_t most_placed; /* out: items placed at once at most */
} Call;

/* Sections [lo, hi) that are still to be filled; a failure goes back to choice `parent`. */
typedef struct {
  int64_t lo, hi, parent;
  int64_t next; /* the part after it, -1 for none */
} Part;

/* A choice: what is on the floor of `section`, and all that takes it back. */
typedef struct {
  Part part; /* in which it is; part.next is the agenda at that time */
  int64_t parts, floor_trail, start_trail, placed;
  int64_t section, option, options, tried; /* options[option .. option + options], `tried` of them begun */
  uint64_t hash_1, hash_2;                 /* of the state */
} Choice;

typedef struct {
  int64_t at; /* before */
  int32_t of; /* section or item */
} Moved;

typedef struct {
  const Graph *graph;
  Call *call;
  /* items */
  int64_t *start;         /* least offset under the present floors */
  int64_t *supported;     /* 2 * turn + whether all its floors are its start */
  int32_t *first, *final; /* sections */
  bool *placed, *seen;
  uint64_t *hash_1, *hash_2;
  int32_t *order; /* placed items, as they were placed */
  int64_t placed_count;
  /* sections */
  int64_t *floor, *rest; /* bytes; bytes not yet placed */
  int32_t *active;       /* items not yet placed */
  int32_t *crossing;     /* items not yet placed that reach beyond the section */
  int32_t *witness;      /* a member that begins on the floor, when last seen: while it does, the floor stays */
  uint64_t *begun_1, *begun_2; /* hashes of items not yet placed whose first section this is */
  /* entries: the active members of a section come first in its slice; entry[i] is the place of slot i in `cover`,
   * slot[q] its inverse. Slots are swapped, and swapped back in reverse order */
  int32_t *member, *entry, *slot;
  /* sections whose floor moved */
  int32_t *moved;
  int64_t moved_count;
  /* what is taken back */
  Moved *floor_trail, *start_trail;
  int64_t floor_trails, floor_room, start_trails, start_room;
  /* choices, their options, and the parts still to be filled */
  Choice *choice;
  int64_t top, choice_room;
  int32_t *option;
  double *option_score;
  int64_t option_end, option_room;
  Part *parts;
  int64_t part_count, part_room;
  Part now; /* now.parent: the choice that a failure goes back to; now.next: the agenda */
  int64_t left, turn; /* choices; sections were compared */
  Arena arena;        /* owns all arrays */
} Fill;

/* state.c: false without memory */
bool begin_fill(Fill *f, const Graph *graph, Call *call);

/* floors.c: false when the state cannot be filled under the ceiling */
bool raise_floors(Fill *f);

/* parts.c */
bool split(Fill *f);
bool is_known_to_fail(const Fill *f, uint64_t *hash_1, uint64_t *hash_2);
void remember_failure(const Fill *f, const Choice *choice);

/* choices.c */
bool push_choice(Fill *f, uint64_t hash_1, uint64_t hash_2);

/* moves.c */
void place(Fill *f, int32_t item, int64_t at);
void lift_floor(Fill *f, int32_t section, int64_t level);
void undo_choice(Fill *f, const Choice *choice);

#endif
