/* The NPU's time while a program runs: `TimingModel` of time/timeline.py, `SharedMemory` of time/sharing.py, and `TimedRun` of
 * timed_program.py, which is `Clock`. */
#include "prefetch.h"

/* Round to the nearest whole number, to the even one of two. */
int64_t round_cycles(double cycles) {
  int64_t below = (int64_t)cycles;
  double rest = cycles - (double)below;
  return below + (rest > 0.5 || (rest == 0.5 && below % 2));
}

static double later_of(double a, double b) { return b > a ? b : a; }

/* Cycles by which an adapter delays the commands of the next kernel on average. */
static double pause_of(const Clock *clock) {
  const TimedProgram *program = clock->program;
  const TimingModel *m = &clock->model;
  if (!program->pause || !m->kernels) {
    return 0.0;
  }
  double rest = later_of(0.0, program->pause - (clock->kernel[m->kernels - 1] - m->start));
  return rest * rest / program->pause_period;
}

void clock_begin(Clock *clock) {
  memset(&clock->model, 0, sizeof clock->model);
  clock->model.now = clock->program->begin;
}

SavedClock clock_save(const Clock *clock) {
  const TimingModel *m = &clock->model;
  return (SavedClock){*m, m->kernels ? clock->kernel[m->kernels - 1] : 0.0,
                   m->transfers ? clock->transfer[m->transfers - 1] : 0.0};
}

void clock_restore(Clock *clock, const SavedClock *then) {
  TimingModel *m = &clock->model;
  *m = then->model;
  if (m->kernels) {
    clock->kernel[m->kernels - 1] = then->kernel;
  }
  if (m->transfers) {
    clock->transfer[m->transfers - 1] = then->transfer;
  }
}

double clock_busy(const Clock *clock, int64_t memory) {
  const SharedMemory *shared = &clock->model.memory[memory];
  return later_of(shared->client[KERNELS].end, shared->client[TRANSFERS].end);
}

double clock_total(const Clock *clock) {
  const TimingModel *m = &clock->model;
  double last = m->now;
  for (int64_t i = 0; i < clock->program->memories; i++) {
    last = later_of(last, clock_busy(clock, i));
  }
  for (int64_t i = max_of(0, m->kernels - 2); i < m->kernels; i++) {
    last = later_of(last, clock->kernel[i]);
  }
  for (int64_t i = max_of(0, m->transfers - 2); i < m->transfers; i++) {
    last = later_of(last, clock->transfer[i]);
  }
  return last;
}

/* The time in which another transfer can start without making the kernels after it late; negative: it would. */
double clock_idle(const Clock *clock) {
  const TimingModel *m = &clock->model;
  int64_t before = m->transfers - clock->program->most_transfers;
  return later_of(m->now, m->fetch) - (before >= 0 ? clock->transfer[before] : 0.0);
}

/* Wait until no more than `unfinished` of `count` things are. */
static void await(TimingModel *m, const double *ends, int64_t count, int64_t unfinished) {
  if (count > unfinished) {
    m->now = later_of(m->now, ends[count - 1 - unfinished]);
  }
}

/* The last operation of `client` ends no sooner than its loads have passed this memory. */
static void delay(Clock *clock, Client client, const Queue *queue) {
  TimingModel *m = &clock->model;
  double passed = queue->end + queue->latency, stop = passed + m->answer[client];
  if (client == TRANSFERS) {
    clock->transfer[m->transfers - 1] = later_of(clock->transfer[m->transfers - 1], stop);
  } else if (passed > m->write) {
    m->output = later_of(m->output, passed - m->writing);
    m->write = passed;
    m->end = clock->program->awaits_response ? stop : passed;
    m->block = (passed - m->start) / m->blocks;
    clock->kernel[m->kernels - 1] = stop;
  }
}

/* Commands pass the port while others work; they take of the memory's time. The first operation waits for its own. */
static void fetch_commands(Clock *clock, double cycles, int64_t words) {
  TimingModel *m = &clock->model;
  Queue *queue = m->memory[clock->program->stream].client;
  Client last = queue[TRANSFERS].end > queue[KERNELS].end ? TRANSFERS : KERNELS;
  queue += last;
  if (queue->end > later_of(m->now, queue->begin)) {
    queue->end += cycles;
    delay(clock, last, queue);
  } else {
    queue->settled = queue->begin = queue->end = later_of(m->now, queue->end) + cycles;
  }
  if (clock->program->fetch_bytes && !m->kernels && !m->transfers) {
    m->now += (double)((4 * words + clock->program->fetch_bytes - 1) / clock->program->fetch_bytes) * clock->program->command_latency;
  }
}

/* Another operation of `client` begins: nothing makes those before it later any more. */
static void settle(Clock *clock, Client client, double answer) {
  for (int64_t i = 0; i < clock->program->memories; i++) {
    Queue *queue = &clock->model.memory[i].client[client];
    queue->settled = queue->begin = queue->end;
  }
  clock->model.answer[client] = answer;
}

/* The time when all that need n loads, requested from `start` on, has passed. The last operation of the other client is as late as
 * sharing its memories makes it. */
static double pass_memories(Clock *clock, int32_t n, double start, Client client) {
  const TimedProgram *program = clock->program;
  double stop = start;
  for (int32_t i = program->pass_at[n]; i < program->pass_at[n + 1]; i++) {
    Queue *mine = &clock->model.memory[program->memory[i]].client[client];
    Queue *other = &clock->model.memory[program->memory[i]].client[!client];
    double occupied = program->pass[2 * i], others = program->in_turn ? other->end : other->settled;
    double begin = later_of(later_of(start, mine->settled), others);
    double alone = later_of(0.0, other->begin - begin);
    alone = alone < occupied ? alone : occupied;
    double shared = later_of(0.0, other->end - later_of(begin, other->begin));
    shared = shared < occupied - alone ? shared : occupied - alone;
    shared *= program->sharing;
    mine->begin = begin;
    mine->end = begin + occupied + shared;
    mine->latency = program->pass[2 * i + 1];
    stop = later_of(stop, mine->end + mine->latency);
    if (shared > 0) {
      other->end += shared;
      delay(clock, !client, other);
    }
  }
  for (int32_t i = program->request_at[n]; i < program->request_at[n + 1]; i++) {
    double *asking = &clock->model.asking[program->channel[i]];
    double begun = later_of(start, *asking);
    *asking = begun + program->request[2 * i + 1];
    stop = later_of(stop, begun + program->request[2 * i] + program->request[2 * i + 1]);
  }
  return stop;
}

static void run_transfer(Clock *clock, int32_t n, int32_t tag) {
  const TimedProgram *program = clock->program;
  TimingModel *m = &clock->model;
  int64_t before = m->transfers - program->most_transfers;
  if (before >= 0) {
    m->now = later_of(m->now, clock->transfer[before]);
  }
  settle(clock, TRANSFERS, program->output_latency[n]);
  double stop = pass_memories(clock, n, m->now + program->transfer_start, TRANSFERS) + program->output_latency[n];
  clock->transfer[m->transfers] = later_of(stop, m->transfers ? clock->transfer[m->transfers - 1] : 0.0);
  clock->started[m->transfers++] = tag;
}

/* The time when the pairs from `from` to `to`, which do not share their memories, have passed. */
static double end_alone(const double *pairs, int32_t from, int32_t to, double start) {
  double stop = 0.0;
  for (int32_t i = from; i < to; i++) {
    stop = later_of(stop, start + pairs[2 * i] + pairs[2 * i + 1]);
  }
  return stop;
}

static void run_kernel(Clock *clock, int32_t n) {
  const TimedProgram *program = clock->program;
  TimingModel *m = &clock->model;
  int64_t before = m->kernels - program->most_kernels;
  if (before >= 0) {
    m->now = later_of(m->now, clock->kernel[before]);
  }
  settle(clock, KERNELS, program->output_latency[n]);
  double blocks = program->blocks[n], jobs = program->jobs[n], multipliers = program->multipliers[n], output = program->output[n];
  double idle_from = program->shares_ram ? m->multipliers : m->fetch;
  double start = later_of(later_of(m->now, idle_from), m->end - program->depends[n] * m->block) + program->launch + pause_of(clock);
  double first = start + program->input_latency[n] + program->input_asking[n] / jobs;
  double ready = program->awaits_response ? m->write : m->output;
  if (program->layout[n] == m->layout && !program->awaits_response) {
    ready = later_of(m->multipliers, ready - m->putting);
  }
  double multiply = later_of(first, ready);
  double fetched = later_of(first, end_alone(program->input, program->input_at[n], program->input_at[n + 1], start));
  double weighed = end_alone(program->weight, program->weight_at[n], program->weight_at[n + 1], later_of(m->now, m->multipliers));
  double multiplied = later_of(later_of(multiply + multipliers, fetched + multipliers / jobs), weighed);
  double put = later_of(multiply + multipliers / blocks, m->output);
  double writing = program->output_cycles[n], passed = pass_memories(clock, n, start, KERNELS);
  double made = later_of(later_of(put + output, multiplied + output / blocks), passed - writing / blocks);
  double write = later_of(put + output / blocks, m->write);
  double written = later_of(later_of(made + writing / blocks, write + writing), passed);
  double stop = written + program->output_latency[n];
  m->fetch = fetched;
  m->multipliers = multiplied;
  m->output = made;
  m->write = written;
  m->end = program->awaits_response ? stop : written;
  m->block = (written - start) / blocks;
  m->writing = writing / blocks;
  m->start = start;
  m->blocks = blocks;
  m->putting = output / blocks;
  m->layout = program->layout[n];
  clock->kernel[m->kernels++] = stop;
}

/* Start the transfers of a constant, when no more than `unfinished` kernels before it are. */
void clock_send(Clock *clock, int32_t constant, int64_t unfinished) {
  const TimedProgram *program = clock->program;
  await(&clock->model, clock->kernel, clock->model.kernels, unfinished);
  for (int32_t i = program->span_at[constant]; i < program->span_at[constant + 1]; i++) {
    fetch_commands(clock, program->copy_fetch, program->copy_words);
    run_transfer(clock, program->span[i], -1 - constant);
  }
}

static bool is_awaited(const TimedProgram *program, int32_t operation, int32_t tag) {
  for (int32_t i = program->awaited_at[operation]; i < program->awaited_at[operation + 1]; i++) {
    if (program->awaited[i] == tag) {
      return true;
    }
  }
  return false;
}

/* Run an operation, with its constants from the copy if there is one. */
void clock_step(Clock *clock, int32_t operation, bool copied) {
  const TimedProgram *program = clock->program;
  TimingModel *m = &clock->model;
  for (int32_t i = program->wait_at[operation]; i < program->wait_at[operation + 1]; i++) {
    await(m, clock->kernel, m->kernels, program->wait[i]);
  }
  fetch_commands(clock, program->fetch[operation], program->words[operation]);
  for (int64_t younger = 0; younger < program->most_transfers && younger < m->transfers; younger++) {
    int32_t tag = clock->started[m->transfers - 1 - younger];
    if ((copied && tag == -1 - program->reads[operation]) || is_awaited(program, operation, tag)) {
      double now = m->now;
      await(m, clock->transfer, m->transfers, younger);
      m->now += m->now > now ? program->command_latency : 0.0;
      break;
    }
  }
  int32_t n = copied ? program->fast[operation] : program->slow[operation];
  if (program->transfers[n]) {
    run_transfer(clock, n, operation);
  } else {
    run_kernel(clock, n);
  }
}
