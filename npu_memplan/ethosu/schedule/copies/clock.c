/* The NPU's time while a program runs: `Clock` of time/timeline.py, and `Run` of course.py. */
#include "travel.h"

static double later(double a, double b) { return b > a ? b : a; }

bool take_clock(Arena *arena, Clock *clock, const Line *line) {
  int64_t transfers = line->operations + line->span_at[line->pieces];
  clock->line = line;
  TAKE(arena, clock->kernel, line->operations);
  TAKE(arena, clock->transfer, transfers);
  TAKE(arena, clock->started, transfers);
  return !arena->failed;
}

void clock_begin(Clock *clock) {
  memset(&clock->moment, 0, sizeof clock->moment);
  clock->moment.now = clock->line->begin;
}

double clock_total(const Clock *clock) {
  const Moment *m = &clock->moment;
  double last = m->now;
  for (int64_t i = 0; i < clock->line->memories; i++) {
    last = later(last, m->busy[i]);
  }
  for (int64_t i = max_of(0, m->kernels - 2); i < m->kernels; i++) {
    last = later(last, clock->kernel[i]);
  }
  for (int64_t i = max_of(0, m->transfers - 2); i < m->transfers; i++) {
    last = later(last, clock->transfer[i]);
  }
  return last;
}

/* How long another transfer can start without making the kernels behind it late; negative: it would. */
double clock_idle(const Clock *clock) {
  const Moment *m = &clock->moment;
  int64_t before = m->transfers - clock->line->most_transfers;
  return later(m->now, m->fetch) - (before >= 0 ? clock->transfer[before] : 0.0);
}

/* Wait until no more than `unfinished` of `count` things are. */
static void await(Moment *m, const double *ends, int64_t count, int64_t unfinished) {
  if (count > unfinished) {
    m->now = later(m->now, ends[count - 1 - unfinished]);
  }
}

static void fetch_commands(Clock *clock, double cycles) {
  double *busy = &clock->moment.busy[clock->line->stream];
  *busy = later(*busy, clock->moment.now) + cycles;
}

/* When what need n loads, asked for from `start` on, has passed; who else uses its memories takes turns with it. */
static double pass(Clock *clock, int32_t n, double start) {
  const Line *line = clock->line;
  double stop = start;
  for (int32_t i = line->pass_at[n]; i < line->pass_at[n + 1]; i++) {
    double *busy = &clock->moment.busy[line->memory[i]], occupied = line->pass[2 * i], latency = line->pass[2 * i + 1];
    double free = *busy;
    if (free > start) {
      double shared = occupied < free - start ? occupied : free - start;
      *busy = free + occupied;
      stop = later(stop, start + latency + occupied + shared);
    } else {
      *busy = start + occupied;
      stop = later(stop, start + latency + occupied);
    }
  }
  return stop;
}

static void transfer(Clock *clock, int32_t n, int32_t tag) {
  const Line *line = clock->line;
  Moment *m = &clock->moment;
  int64_t before = m->transfers - line->most_transfers;
  if (before >= 0) {
    m->now = later(m->now, clock->transfer[before]);
  }
  double stop = pass(clock, n, m->now) + line->output_latency[n];
  clock->transfer[m->transfers] = later(stop, m->transfers ? clock->transfer[m->transfers - 1] : 0.0);
  clock->started[m->transfers++] = tag;
}

/* When the pairs from `from` to `to`, which share their memories with nobody, have passed. */
static double alone(const double *pairs, int32_t from, int32_t to, double start) {
  double stop = 0.0;
  for (int32_t i = from; i < to; i++) {
    stop = later(stop, start + pairs[2 * i] + pairs[2 * i + 1]);
  }
  return stop;
}

static void kernel(Clock *clock, int32_t n) {
  const Line *line = clock->line;
  Moment *m = &clock->moment;
  int64_t before = m->kernels - line->most_kernels;
  if (before >= 0) {
    m->now = later(m->now, clock->kernel[before]);
  }
  double blocks = line->blocks[n], jobs = line->jobs[n], multipliers = line->multipliers[n], output = line->output[n];
  double start = later(later(m->now, m->fetch), m->end - line->depends[n] * m->block) + line->launch;
  double first = start + line->input_latency[n] + line->input_asking[n] / jobs;
  double multiply = later(first, m->write);
  double fetched = later(first, alone(line->input, line->input_at[n], line->input_at[n + 1], start));
  double weighed = alone(line->weight, line->weight_at[n], line->weight_at[n + 1], later(m->now, m->multipliers));
  double multiplied = later(later(multiply + multipliers, fetched + multipliers / jobs), weighed);
  double put = later(multiply + multipliers / blocks, m->output);
  double made = later(put + output, multiplied + output / blocks);
  double writing = line->output_cycles[n];
  double write = later(put + output / blocks, m->write);
  double written = later(later(made + writing / blocks, write + writing), pass(clock, n, start));
  double stop = written + line->output_latency[n];
  m->fetch = fetched;
  m->multipliers = multiplied;
  m->output = made;
  m->write = written;
  m->end = line->awaits_response ? stop : written;
  m->block = (written - start) / blocks;
  clock->kernel[m->kernels++] = stop;
}

/* Start the transfers of a piece, when no more than `unfinished` kernels before it are. */
void clock_send(Clock *clock, int32_t piece, int64_t unfinished) {
  const Line *line = clock->line;
  await(&clock->moment, clock->kernel, clock->moment.kernels, unfinished);
  for (int32_t i = line->span_at[piece]; i < line->span_at[piece + 1]; i++) {
    fetch_commands(clock, line->copy_fetch);
    transfer(clock, line->span[i], -1 - piece);
  }
}

static bool waited_for(const Line *line, int32_t operation, int32_t tag) {
  for (int32_t i = line->behind_at[operation]; i < line->behind_at[operation + 1]; i++) {
    if (line->behind[i] == tag) {
      return true;
    }
  }
  return false;
}

/* Run an operation, with its constants from the copy if there is one. */
void clock_step(Clock *clock, int32_t operation, bool copied) {
  const Line *line = clock->line;
  Moment *m = &clock->moment;
  for (int32_t i = line->wait_at[operation]; i < line->wait_at[operation + 1]; i++) {
    await(m, clock->kernel, m->kernels, line->wait[i]);
  }
  fetch_commands(clock, line->fetch[operation]);
  for (int64_t younger = 0; younger < line->most_transfers && younger < m->transfers; younger++) {
    int32_t tag = clock->started[m->transfers - 1 - younger];
    if ((copied && tag == -1 - line->reads[operation]) || waited_for(line, operation, tag)) {
      await(m, clock->transfer, m->transfers, younger);
      break;
    }
  }
  int32_t n = copied ? line->fast[operation] : line->slow[operation];
  if (line->transfers[n]) {
    transfer(clock, n, operation);
  } else {
    kernel(clock, n);
  }
}
