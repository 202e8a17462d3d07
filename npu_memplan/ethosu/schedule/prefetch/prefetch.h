/* A program on the timing model, with copies of its constants; made by search.py.
 *
 * This is the timing model of time/timeline.py, and the free bytes and the rule of tests/support/prefetch_oracle.py once more, for
 * the searches that run them thousands of times: the same doubles by the same operations in the same order, which tests compare
 * exactly. Structs have the names that their contents have in Python. Times are cycles.
 */
#ifndef NPU_MEMPLAN_PREFETCH_H
#define NPU_MEMPLAN_PREFETCH_H

#include "common.h"

enum { MEMORIES = 8, CHANNELS = 8, MODELS = 4 }; /* at most; search.py has the same numbers */

/* Operations, constants in the order of their first readers, and what each may need. Tables of pairs say latency or memory
 * time first: `x_at[n] .. x_at[n + 1]` are the entries of need n. */
typedef struct {
  int64_t operations, constants, memories;
  int64_t most_kernels, most_transfers; /* in flight */
  int64_t awaits_response, shares_ram;
  int64_t stream, far; /* the memories of commands, and of constants */
  int64_t fetch_bytes, copy_words;      /* of commands, by a request before the first operation; 0: they are there already */
  int64_t in_turn; /* a memory serves kernels and transfers one after the other; else both by halves */
  double begin, launch, copy_fetch;
  double transfer_start, sharing;      /* cycles before a transfer's first request; times what sharing takes */
  double command_latency;              /* of a request for commands behind a wait for a transfer */
  double pause, pause_period;          /* cycles in which no commands come; twice the time from one such pause to the next */
  const double *fetch;                 /* [operations]: cycles of the stream's memory */
  const int32_t *words;                /* [operations]: of the stream */
  const int32_t *reads;                /* [operations]: the constant, or -1 */
  const int32_t *slow, *fast;          /* [operations]: what it needs with constants in place, and from a copy */
  const int32_t *wait_at, *wait;       /* [operations + 1]: how many kernels may be unfinished */
  const int32_t *awaited_at, *awaited; /* [operations + 1]: operations whose transfers must be over */
  const int64_t *size;                 /* [constants]: bytes */
  const int32_t *first, *last, *readers; /* [constants]: operations, and how many */
  const int32_t *span_at, *span;       /* [constants + 1]: what each transfer of a constant needs */
  const double *least;                 /* [constants]: cycles of `far`, copied or not */
  const double *work;                  /* [operations + 1]: from there on, cycles that kernels take at least */
  const int8_t *transfers;             /* [needs]: whether it is no kernel's */
  const double *multipliers, *output, *blocks, *jobs, *depends;
  const int32_t *layout;               /* [needs]: a number for each layout of SHRAM, from 1 */
  const double *input_latency, *input_asking, *output_latency, *output_cycles;
  const int32_t *input_at, *weight_at, *pass_at; /* [needs + 1] */
  const double *input, *weight;        /* pairs: latency, cycles of asking */
  const double *pass;                  /* pairs: cycles in use, latency */
  const int32_t *memory;               /* of each pair of `pass` */
  const int32_t *request_at, *channel; /* [needs + 1]; of each pair of `request` */
  const double *request;               /* pairs: latency, cycles of asking; of readers slower than their memories */
} TimedProgram;

/* Bytes that are free before any copy is made. */
typedef struct {
  int64_t limit, grain, placed, rows;
  const int64_t *used; /* [operations] */
  const int64_t *held; /* [rows][4], if `placed`: first and last operation, first byte and the one after; by `start` */
} FreeCapacity;

/* Parameters of the greedy rule. */
typedef struct {
  int64_t fifo, from_top;
  int8_t *stays;   /* [constants] */
  int32_t *max_lead; /* [constants]: operations early at most, -1: any */
} Choice;

/* The schedule that the rule makes: copies in the order in which they are sent. */
typedef struct {
  int64_t cycles, count;
  int32_t *constant, *before, *unfinished; /* [constants] */
  int64_t *at;
  int64_t *others; /* [MODELS]: cycles of the same under other models of time */
} DmaSchedule;

/* The state of the local search: a choice that costs so much, with so many operations left to be run on the clock. The cost of a
 * schedule is the largest part of a reference that it takes, under the model that makes it or under another; `alone` of its copies
 * above `spare` raise it. */
typedef struct {
  double cost, least, spare; /* `least`: of the best schedule so far */
  int64_t left, models;
  const double *reference; /* [models] */
  const double *alone;     /* [constants] */
  uint64_t *chance;        /* [1] */
} Search;

/* What follows is seen in this library only, so that calls are plain calls. */
#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* clock.c */
typedef enum { KERNELS, TRANSFERS } Client;

/* The queue of one client of a memory: its last operation is served in [begin, end), all before it until `settled`. */
typedef struct {
  double settled, begin, end, latency;
} Queue;

typedef struct {
  Queue client[2];
} SharedMemory;

typedef struct {
  double now, fetch, multipliers, output, write, end, block, writing, start, blocks, putting;
  double answer[2]; /* latency of the last kernel's and the last transfer's output */
  int64_t kernels, transfers;
  SharedMemory memory[MEMORIES];
  double asking[CHANNELS]; /* until when each reader makes requests */
  int64_t layout;          /* of the last kernel; 0: none */
} TimingModel;

typedef struct {
  const TimedProgram *program;
  TimingModel model;
  double *kernel, *transfer; /* when those that were started end */
  int32_t *started;          /* of each transfer: its operation, or -1 - constant */
} Clock;

/* A state of the clock to return to. What has begun since may have made its last kernel and its last transfer later. */
typedef struct {
  TimingModel model;
  double kernel, transfer;
} SavedClock;

SavedClock clock_save(const Clock *clock);
void clock_restore(Clock *clock, const SavedClock *then);
void clock_begin(Clock *clock);
void clock_send(Clock *clock, int32_t constant, int64_t unfinished);
void clock_step(Clock *clock, int32_t operation, bool copied);
double clock_idle(const Clock *clock);
double clock_busy(const Clock *clock, int64_t memory);
double clock_total(const Clock *clock);
int64_t round_cycles(double cycles);

/* free_space.c */
typedef struct {
  const FreeCapacity *capacity;
  int64_t operations;
  int64_t *used;
  int64_t *held;
  int64_t rows;
} Room;

bool take_room(Arena *arena, Room *room, const FreeCapacity *capacity, const TimedProgram *program);
void room_empty(Room *room);
int64_t room_full_at(const Room *room, int64_t size, int64_t first, int64_t last);
int64_t room_find(const Room *room, int64_t size, int64_t first, int64_t last, bool from_top);
int64_t room_tight_until(const Room *room, int64_t first, int64_t last);
void room_fill(Room *room, int64_t size, int64_t first, int64_t last, int64_t at);

/* snapshots.c */
enum { STRIDE = 4 }; /* operations from one snapshot to the next */

/* The state before an operation. */
typedef struct {
  SavedClock saved;
  double left;         /* of Greedy */
  int64_t copies;        /* copies so far */
  int32_t *not_before; /* of Greedy */
} Snapshot;

/* A schedule and the states on its way, from which another one that is the same up to there can go on. */
typedef struct {
  DmaSchedule copies;
  double *kernel, *transfer; /* of Clock */
  int32_t *started;
  int32_t *reached; /* [operations]: the last constant that was looked at before it, -1: none */
  Snapshot *at; /* [operations / STRIDE + 1] */
} Run;

/* greedy.c */
typedef struct {
  const TimedProgram *program;
  const Choice *choice;
  DmaSchedule *copies;
  Run *run;
  Clock clock;
  Room room;
  int32_t *next;       /* [constants + 1]: what is waiting after a constant, by first readers; the last entry is the head */
  int32_t *not_before; /* [constants]: no bytes are free for a copy before this operation */
  int8_t *copied;      /* [constants] */
  double left;         /* cycles of the memory of constants for constants that are neither sent nor read */
} Greedy;

int32_t earliest(const TimedProgram *program, const Choice *choice, int32_t constant);
bool take_greedy(Arena *arena, Greedy *greedy, const TimedProgram *program, const FreeCapacity *capacity);
void fill_copy(Greedy *greedy, int64_t number);
int32_t first_chance(Greedy *greedy, Run *run, int32_t constant, int32_t from, int32_t until);
void schedule(Greedy *greedy, const Choice *choice, Run *run, int64_t most, const Run *same, int32_t until);

/* replay.c */
int64_t replay(const TimedProgram *program, Run *scratch, const DmaSchedule *copies);

/* snapshots.c */
bool take_run(Arena *arena, Run *run, const TimedProgram *program);
void keep_run(Run *best, Run *found, int32_t same_until);
void take_snapshot(const Greedy *greedy, int32_t operation);
void resume_schedule(Greedy *greedy, const Run *same, int32_t operation);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
#endif
