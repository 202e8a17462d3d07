/* One inference of any compiled model: inputs are a pattern, outputs go to the console. */
#include <stdint.h>

#include "ethosu.h"
#include "launch.h"
#include "model.h"
#include "uart.h"

#include "pools.h"

static void print_bytes(const uint8_t *data, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i++) uart_hex8(data[i]);
  uart_text("\n");
}

int main(void) {
  uart_init();
#if MODEL(NPU_CONFIG) /* else nothing of the model runs on the NPU */
  uart_text(MODEL_NAME " on " MODEL(NPU_ACCELERATOR) "\n");
  const enum ethosu_result ready = ethosu_init(MODEL(NPU_CONFIG)); /* compares CONFIG, resets */
  if (ready != ETHOSU_OK) {
    uart_text(ethosu_text(ready));
    uart_text("\n");
    return 1;
  }
#else
  uart_text(MODEL_NAME " on the CPU alone\n");
#endif
#if MODEL(HAS_INIT)
  if (model(init)(pools) != 0) {
    uart_text("constants cannot be put into the pools\n");
    return 3;
  }
#endif
#if MODEL(STATE_COUNT)
  model(reset)(pools);
#endif
  uint8_t *const input = (uint8_t *)model(input_0)(pools);
  for (uint32_t i = 0; i < MODEL(INPUT_0_BYTES); i++) input[i] = (uint8_t)(7u * i + 3u);
  const int32_t status = model(run)(pools);
  if (status != 0) {
    uart_text("the run returned ");
    uart_signed(status);
    uart_text(": ");
    uart_text(ethosu_text(launch_totals()->last));
    uart_text("\n");
    return 2;
  }
  uart_text("output ");
  print_bytes((const uint8_t *)model(output_0)(pools), MODEL(OUTPUT_0_BYTES));
  return 0;
}
