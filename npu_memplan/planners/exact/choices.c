/* Which section is filled next, and what may lie on its floor.
 *
 * A section is chosen only if every candidate on its floor rests there in all of its sections: where one could still
 * sink lower elsewhere, that section decides first. Candidates are tried by score, with some chance.
 */
#include "fill.h"

/* The less, the sooner a section is filled. One candidate is no choice: it comes first under every rule. */
static double section_key(int64_t rule, int64_t count, int64_t slack, int64_t floor, double weight, int64_t ceiling) {
  double candidates = (double)count, low = (double)floor, height = (double)ceiling;
  if (count <= 1) {
    return -1.0;
  }
  switch (rule) {
    case 0:
      return candidates + low / (height + 1.0);
    case 1:
      return low + candidates * 1e-3;
    case 2:
      return low + (double)slack / (height + 1.0);
    case 3:
      return candidates / weight + low / (height + 1.0) * 1e-6;
    case 4:
      return low / weight + candidates * 1e-3;
    default:
      return candidates * ((double)slack + height * 0.01) / weight;
  }
}

static bool twin_is_placed(const Fill *f, int32_t b) {
  int32_t twin = f->graph->twin[b];
  return twin < 0 || f->placed[twin];
}

/* Whether item b, which starts at `floor`, could not lie lower if it were for some of its sections. */
static bool rests(Fill *f, int32_t b, int64_t floor) {
  const Graph *g = f->graph;
  if (f->supported[b] < 2 * f->turn) {
    f->supported[b] = 2 * f->turn + 1;
    for (int32_t q = g->cover_at[b]; q < g->cover_at[b + 1]; q++) {
      if (f->floor[g->cover[q]] < floor) {
        f->supported[b] = 2 * f->turn;
        break;
      }
    }
  }
  return f->supported[b] != 2 * f->turn;
}

/* The key of section s, or a number not below `least` when it cannot be chosen or need not be looked at further. */
static double key_of(Fill *f, int64_t s, double least) {
  const Call *call = f->call;
  int64_t floor = f->floor[s], slack = call->ceiling - floor - f->rest[s];
  int64_t candidates = slack > 0; /* that nothing begins at the floor */
  double weight = call->weight[s];
  if (slack > 0 && section_key(call->rule, 2, slack, floor, weight, call->ceiling) >= least) {
    return least; /* something begins at the floor, and keys only grow with the count */
  }
  const int32_t *member = f->member + f->graph->member_at[s], *end = member + f->active[s];
  for (; member < end; member++) {
    int32_t b = *member;
    if (f->start[b] != floor) {
      continue;
    }
    if (!rests(f, b, floor)) {
      return least;
    }
    if (twin_is_placed(f, b) && ++candidates > 1 &&
        section_key(call->rule, candidates, slack, floor, weight, call->ceiling) >= least) {
      return least;
    }
  }
  return section_key(call->rule, candidates, slack, floor, weight, call->ceiling);
}

static int64_t choose_section(Fill *f) {
  int64_t chosen = -1;
  double least = 1e300;
  f->turn++;
  for (int64_t s = f->now.lo; s < f->now.hi && least >= 0.0; s++) {
    if (f->active[s] > 0) {
      double key = key_of(f, s, least);
      if (key < least) {
        chosen = s;
        least = key;
      }
    }
  }
  return chosen;
}

/* Options of section s from `option` on, best score first, last of all that nothing begins at its floor. */
static int64_t list_options(Fill *f, int64_t s, int32_t *option) {
  const Call *call = f->call;
  int64_t floor = f->floor[s], found = 0;
  const int32_t *member = f->member + f->graph->member_at[s], *end = member + f->active[s];
  for (; member < end; member++) {
    int32_t b = *member;
    if (f->start[b] != floor || !twin_is_placed(f, b)) {
      continue;
    }
    double value = call->score[b];
    if (call->noise > 0.0) {
      value += call->noise * chance(call->chance);
    }
    int64_t j = found++;
    for (; j > 0 && f->option_score[j - 1] < value; j--) {
      f->option_score[j] = f->option_score[j - 1];
      option[j] = option[j - 1];
    }
    f->option_score[j] = value;
    option[j] = b;
  }
  if (floor + f->rest[s] < call->ceiling) {
    option[found++] = -1;
  }
  return found;
}

/* A choice of the state that has these hashes. False without memory. */
bool push_choice(Fill *f, uint64_t hash_1, uint64_t hash_2) {
  int64_t s = choose_section(f);
  if (!RESERVE(&f->arena, f->choice, f->choice_room, f->top + 2) ||
      !RESERVE(&f->arena, f->option, f->option_room, f->option_end + f->graph->items + 1)) {
    return false;
  }
  Choice *choice = &f->choice[++f->top];
  *choice = (Choice){.part = f->now,
                     .parts = f->part_count,
                     .floor_trail = f->floor_trails,
                     .start_trail = f->start_trails,
                     .placed = f->placed_count,
                     .section = s,
                     .option = f->option_end,
                     .hash_1 = hash_1,
                     .hash_2 = hash_2};
  choice->options = list_options(f, s, f->option + f->option_end);
  f->option_end += choice->options;
  return true;
}
