/* The NPU's time while a program runs: `TimingModel` of time/timeline.py, `SharedMemory` of time/sharing.py, and `TimedRun` of
 * timed_program.py. */
#include "prefetch.h"

/* To the nearest whole number, to the even one of two. */
int64_t whole(double cycles) {
  int64_t below = (int64_t)cycles;
  double rest = cycles - (double)below;
  return below + (rest > 0.5 || (rest == 0.5 && below % 2));
}

static double later(double a, double b) { return b > a ? b : a; }

void clock_begin(Clock *clock) {
  memset(&clock->moment, 0, sizeof clock->moment);
  clock->moment.now = clock->line->begin;
}

Instant clock_now(const Clock *clock) {
  const Moment *m = &clock->moment;
  return (Instant){*m, m->kernels ? clock->kernel[m->kernels - 1] : 0.0,
                   m->transfers ? clock->transfer[m->transfers - 1] : 0.0};
}

void clock_return(Clock *clock, const Instant *then) {
  Moment *m = &clock->moment;
  *m = then->moment;
  if (m->kernels) {
    clock->kernel[m->kernels - 1] = then->kernel;
  }
  if (m->transfers) {
    clock->transfer[m->transfers - 1] = then->transfer;
  }
}

double clock_busy(const Clock *clock, int64_t memory) {
  const SharedMemory *shared = &clock->moment.memory[memory];
  return later(shared->client[KERNELS].end, shared->client[TRANSFERS].end);
}

double clock_total(const Clock *clock) {
  const Moment *m = &clock->moment;
  double last = m->now;
  for (int64_t i = 0; i < clock->line->memories; i++) {
    last = later(last, clock_busy(clock, i));
  }
  for (int64_t i = max_of(0, m->kernels - 2); i < m->kernels; i++) {
    last = later(last, clock->kernel[i]);
  }
  for (int64_t i = max_of(0, m->transfers - 2); i < m->transfers; i++) {
    last = later(last, clock->transfer[i]);
  }
  return last;
}

/* How long another transfer can start without making the kernels after it late; negative: it would. */
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

/* The last operation of `client` ends no sooner than its loads have passed this memory. */
static void delay(Clock *clock, Client client, const Queue *queue) {
  Moment *m = &clock->moment;
  double passed = queue->end + queue->latency, stop = passed + m->answer[client];
  if (client == TRANSFERS) {
    clock->transfer[m->transfers - 1] = later(clock->transfer[m->transfers - 1], stop);
  } else if (passed > m->write) {
    m->output = later(m->output, passed - m->writing);
    m->write = passed;
    m->end = clock->line->awaits_response ? stop : passed;
    m->block = (passed - m->start) / m->blocks;
    clock->kernel[m->kernels - 1] = stop;
  }
}

/* Commands that are brought on demand are needed now. */
static void await_commands(Clock *clock, int64_t words) {
  const Line *line = clock->line;
  Moment *m = &clock->moment;
  m->needed += 4 * words;
  while (m->there < m->needed) {
    m->there += line->fetch_bytes;
    m->arrived = later(m->arrived, m->now) + line->fetch_latency + line->fetch_cycles;
  }
  m->now = later(m->now, m->arrived);
}

/* Commands pass the port while others work; they take of the memory's time. */
static void fetch_commands(Clock *clock, double cycles, int64_t words) {
  Moment *m = &clock->moment;
  Queue *queue = m->memory[clock->line->stream].client;
  Client last = queue[TRANSFERS].end > queue[KERNELS].end ? TRANSFERS : KERNELS;
  queue += last;
  if (queue->end > later(m->now, queue->begin)) {
    queue->end += cycles;
    delay(clock, last, queue);
  } else {
    queue->settled = queue->begin = queue->end = later(m->now, queue->end) + cycles;
  }
  if (clock->line->fetch_bytes) {
    await_commands(clock, words);
  }
}

/* Another operation of `client` begins: nothing makes those before it later any more. */
static void settle(Clock *clock, Client client, double answer) {
  for (int64_t i = 0; i < clock->line->memories; i++) {
    Queue *queue = &clock->moment.memory[i].client[client];
    queue->settled = queue->begin = queue->end;
  }
  clock->moment.answer[client] = answer;
}

/* When what need n loads, requested from `start` on, has passed. The last operation of the other client is as late as
 * sharing its memories makes it. */
static double pass(Clock *clock, int32_t n, double start, Client client) {
  const Line *line = clock->line;
  double stop = start;
  for (int32_t i = line->pass_at[n]; i < line->pass_at[n + 1]; i++) {
    Queue *mine = &clock->moment.memory[line->memory[i]].client[client];
    Queue *other = &clock->moment.memory[line->memory[i]].client[!client];
    double occupied = line->pass[2 * i], others = line->in_turn ? other->end : other->settled;
    double begin = later(later(start, mine->settled), others);
    double alone = later(0.0, other->begin - begin);
    alone = alone < occupied ? alone : occupied;
    double shared = later(0.0, other->end - later(begin, other->begin));
    shared = shared < occupied - alone ? shared : occupied - alone;
    shared *= line->sharing;
    mine->begin = begin;
    mine->end = begin + occupied + shared;
    mine->latency = line->pass[2 * i + 1];
    stop = later(stop, mine->end + mine->latency);
    if (shared > 0) {
      other->end += shared;
      delay(clock, !client, other);
    }
  }
  for (int32_t i = line->request_at[n]; i < line->request_at[n + 1]; i++) {
    double *asking = &clock->moment.asking[line->channel[i]];
    double begun = later(start, *asking);
    *asking = begun + line->request[2 * i + 1];
    stop = later(stop, begun + line->request[2 * i] + line->request[2 * i + 1]);
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
  settle(clock, TRANSFERS, line->output_latency[n]);
  double stop = pass(clock, n, m->now + line->transfer_start, TRANSFERS) + line->output_latency[n];
  clock->transfer[m->transfers] = later(stop, m->transfers ? clock->transfer[m->transfers - 1] : 0.0);
  clock->started[m->transfers++] = tag;
}

/* When the pairs from `from` to `to`, which do not share their memories, have passed. */
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
  settle(clock, KERNELS, line->output_latency[n]);
  double blocks = line->blocks[n], jobs = line->jobs[n], multipliers = line->multipliers[n], output = line->output[n];
  double free = line->shares_ram ? m->multipliers : m->fetch;
  double start = later(later(m->now, free), m->end - line->depends[n] * m->block) + line->launch;
  double first = start + line->input_latency[n] + line->input_asking[n] / jobs;
  double multiply = later(first, line->awaits_response ? m->write : m->output);
  double fetched = later(first, alone(line->input, line->input_at[n], line->input_at[n + 1], start));
  double weighed = alone(line->weight, line->weight_at[n], line->weight_at[n + 1], later(m->now, m->multipliers));
  double multiplied = later(later(multiply + multipliers, fetched + multipliers / jobs), weighed);
  double put = later(multiply + multipliers / blocks, m->output);
  double writing = line->output_cycles[n], passed = pass(clock, n, start, KERNELS);
  double made = later(later(put + output, multiplied + output / blocks), passed - writing / blocks);
  double write = later(put + output / blocks, m->write);
  double written = later(later(made + writing / blocks, write + writing), passed);
  double stop = written + line->output_latency[n];
  m->fetch = fetched;
  m->multipliers = multiplied;
  m->output = made;
  m->write = written;
  m->end = line->awaits_response ? stop : written;
  m->block = (written - start) / blocks;
  m->writing = writing / blocks;
  m->start = start;
  m->blocks = blocks;
  clock->kernel[m->kernels++] = stop;
}

/* Start the transfers of a constant, when no more than `unfinished` kernels before it are. */
void clock_send(Clock *clock, int32_t constant, int64_t unfinished) {
  const Line *line = clock->line;
  await(&clock->moment, clock->kernel, clock->moment.kernels, unfinished);
  for (int32_t i = line->span_at[constant]; i < line->span_at[constant + 1]; i++) {
    fetch_commands(clock, line->copy_fetch, line->copy_words);
    transfer(clock, line->span[i], -1 - constant);
  }
}

static bool waited_for(const Line *line, int32_t operation, int32_t tag) {
  for (int32_t i = line->awaited_at[operation]; i < line->awaited_at[operation + 1]; i++) {
    if (line->awaited[i] == tag) {
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
  fetch_commands(clock, line->fetch[operation], line->words[operation]);
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
