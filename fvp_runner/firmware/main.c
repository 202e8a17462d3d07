/* Runs inferences of the generated program, one or INPUT_STEPS, on its planned pools and prints what came out.
 *
 * Each line starts with a word that says what it is; a reader needs no state but the last OUTPUT. */
#include <stdint.h>
#include <string.h>

#include "adapters.h"
#include "board.h"
#include "crc32.h"
#include "exit.h"
#include "inputs.h"
#include "launch.h"
#define PROGRAM_TABLES
#include "program.h"
#include "stack.h"
#include "uart.h"

#define LINE_BYTES 32u

static int fail(const char *what) {
  uart_text("ERROR ");
  uart_text(what);
  uart_text("\nNPU_MEMPLAN FAIL\n");
  return 1;
}

static void print_npu_error(void) {
  const struct ethosu_info *last = ethosu_last();
  uart_text("ERROR npu ");
  uart_decimal((uint32_t)launch_totals()->last);
  uart_text(" status=");
  uart_hex32(last->status);
  uart_text(" queue_read=");
  uart_decimal(last->queue_read);
  uart_text(" launch=");
  uart_decimal(launch_totals()->calls);
  uart_text(": ");
  uart_text(ethosu_text(launch_totals()->last));
  uart_text("\n");
}

static void fill_guards(void) {
  for (int32_t i = 0; i < PROGRAM_POOLS; i++) {
    memset(pools[i] - guard_bytes[i], PROGRAM_GUARD, guard_bytes[i]);
    memset(pools[i] + pool_bytes[i], PROGRAM_GUARD, guard_bytes[i]);
  }
}

/* One line for each pool with changed bytes around it: where the first is, from the pool's start, and how many. */
static int32_t print_guards(void) {
  int32_t broken = 0;
  for (int32_t i = 0; i < PROGRAM_POOLS; i++) {
    const int32_t guard = (int32_t)guard_bytes[i], size = (int32_t)pool_bytes[i];
    int32_t first = 0;
    uint32_t changed = 0;
    if (guard == 0) continue; /* there was no room */
    for (int32_t offset = -guard; offset < size + guard; offset = offset == -1 ? size : offset + 1) {
      if (pools[i][offset] != PROGRAM_GUARD && changed++ == 0) first = offset;
    }
    if (changed == 0) continue;
    uart_text("GUARD ");
    uart_decimal((uint32_t)i);
    uart_text(" offset=");
    uart_signed(first);
    uart_text(" bytes=");
    uart_decimal(changed);
    uart_text("\n");
    broken++;
  }
  return broken;
}

static uint32_t used; /* bytes of the input image that inferences have read */

/* Poison, then resident constants and states as they start: what the local runner does too. */
static const char *fill_pools(void) {
  for (int32_t i = 0; i < PROGRAM_POOLS; i++) memset(pools[i], PROGRAM_POISON, pool_bytes[i]);
  PROGRAM_INIT(pools);
  PROGRAM_RESET(pools);
  const struct input_image *image = (const struct input_image *)(const void *)npu_memplan_inputs;
  if (image->magic != INPUTS_MAGIC) return "no inputs were put into the image before it was loaded";
  if (image->bytes > 4u * INPUT_STEPS * PROGRAM_INPUT_WORDS || crc32(0, image->data, image->bytes) != image->crc) {
    return "the inputs in the image are damaged";
  }
  return 0;
}

/* The inputs of the next inference. */
static const char *next_inputs(void) {
  const struct input_image *image = (const struct input_image *)(const void *)npu_memplan_inputs;
  for (int32_t i = 0; i < PROGRAM_INPUTS; i++) {
    if (used + inputs[i].bytes > image->bytes) return "the inputs in the image are too short";
    memcpy(pools[inputs[i].pool] + inputs[i].offset, image->data + used, inputs[i].bytes);
    used += inputs[i].bytes;
  }
  return 0;
}

/* Of inference `step`; `digest`: of the outputs before. */
static uint32_t print_outputs(uint32_t step, uint32_t digest) {
  for (int32_t i = 0; i < PROGRAM_OUTPUTS; i++) {
    const uint8_t *data = pools[outputs[i].pool] + outputs[i].offset;
    uart_text("OUTPUT ");
    uart_decimal(step * PROGRAM_OUTPUTS + (uint32_t)i);
    uart_text(" bytes=");
    uart_decimal(outputs[i].bytes);
    uart_text(" crc=");
    uart_hex32(crc32(0, data, outputs[i].bytes));
    for (uint32_t byte = 0; byte < outputs[i].bytes; byte++) {
      if (byte % LINE_BYTES == 0) uart_text("\nDATA ");
      uart_hex8(data[byte]);
    }
    uart_text("\n");
    digest = crc32(digest, data, outputs[i].bytes);
  }
  return digest;
}

static void print_pools(uint32_t digest) {
  for (int32_t i = 0; i < PROGRAM_POOLS; i++) {
    uart_text("POOL ");
    uart_decimal((uint32_t)i);
    uart_text(" bytes=");
    uart_decimal(pool_bytes[i]);
    uart_text(" crc=");
    uart_hex32(crc32(0, pools[i], pool_bytes[i]));
    uart_text("\n");
  }
  uart_text("DIGEST ");
  uart_hex32(digest);
  uart_text("\n");
}

int main(void) {
  uart_init();
  uart_text("NPU_MEMPLAN 1 model=" PROGRAM_NAME " board=" BOARD_NAME "\n");
  fill_guards();
  const char *problem = fill_pools();
  if (problem) return fail(problem);
  if (PROGRAM_NPU_CONFIG) {
    const enum ethosu_result result = ethosu_init(PROGRAM_NPU_CONFIG);
    uart_text("NPU id=");
    uart_hex32(ethosu_last()->id);
    uart_text(" config=");
    uart_hex32(ethosu_last()->config);
    uart_text("\n");
    if (result != ETHOSU_OK) return fail(ethosu_text(result));
  }
#if PROGRAM_ADAPTERS
  uart_text("ADAPTERS ");
  uart_decimal(PROGRAM_ADAPTERS);
  uart_text(" set=");
  uart_decimal(adapters_set(adapters, PROGRAM_ADAPTERS));
  uart_text("\n");
#endif
  uart_text("RUN\n");
  int32_t status = 0, broken = 0;
  uint32_t digest = 0;
  for (uint32_t step = 0; step < INPUT_STEPS && status == 0 && broken == 0; step++) {
    problem = next_inputs();
    if (problem) return fail(problem);
    status = PROGRAM_RUN(pools);
    broken = print_guards();
    if (status == 0 && broken == 0) digest = print_outputs(step, digest);
  }
  uart_text("CALLS ");
  uart_decimal(launch_totals()->calls);
  uart_text("\nCYCLES ");
  uart_decimal64(launch_totals()->cycles);
  uart_text("\nBEATS");
  for (int32_t i = 0; i < ETHOSU_PORT_COUNTERS; i++) {
    uart_text(" ");
    uart_decimal64(launch_totals()->beats[i]);
  }
  uart_text("\nSTATUS ");
  uart_signed(status);
  uart_text("\n");
  if (status != 0) {
    if (launch_totals()->last != ETHOSU_OK) print_npu_error();
    return fail("the program returned an error");
  }
  if (broken != 0) return fail("bytes outside a pool were written");
  print_pools(digest);
  uart_text("STACK used=");
  uart_decimal(stack_used());
  uart_text(" bytes=");
  uart_decimal((uint32_t)((uintptr_t)__stack_top - (uintptr_t)__stack_limit));
  uart_text("\nNPU_MEMPLAN PASS\n");
  return 0;
}
