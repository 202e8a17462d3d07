/* Reset and exceptions of an Armv8-M core: FPU and MVE on, data and bss in place, faults reported by name. */
#include <stdint.h>

#include "board.h"
#include "exit.h"
#include "stack.h"
#include "uart.h"

#define CPACR (*(volatile uint32_t *)0xE000ED88u)
#define CFSR (*(volatile uint32_t *)0xE000ED28u)
#define HFSR (*(volatile uint32_t *)0xE000ED2Cu)
#define BFAR (*(volatile uint32_t *)0xE000ED38u)
#define SHCSR (*(volatile uint32_t *)0xE000ED24u)

extern uint32_t __data_start[], __data_end[], __data_load[], __bss_start[], __bss_end[];

int main(void);
void Reset_Handler(void);
void npu_interrupt(void);

/* Nothing of C may run before this: it needs neither data, bss nor the FPU. */
__attribute__((used, noreturn)) void Reset_Handler(void) {
  CPACR |= 0xFu << 20; /* coprocessors 10 and 11: floating point and MVE */
  __asm__ volatile("dsb\n\tisb" ::: "memory");
  SHCSR |= 7u << 16; /* memory, bus and usage faults as themselves, not as hard faults */
  const uint32_t *from = __data_load;
  for (uint32_t *to = __data_start; to < __data_end; to++) *to = *from++;
  for (uint32_t *to = __bss_start; to < __bss_end; to++) *to = 0;
  stack_paint();
  firmware_exit((uint32_t)main());
}

static _Noreturn void fault(const char *name) {
  uart_init();
  uart_text("\nERROR cpu fault: ");
  uart_text(name);
  uart_text(" cfsr=");
  uart_hex32(CFSR);
  uart_text(" hfsr=");
  uart_hex32(HFSR);
  uart_text(" bfar=");
  uart_hex32(BFAR);
  uart_text("\nNPU_MEMPLAN FAIL\n");
  firmware_exit(0xFAu);
}

static void nmi(void) { fault("NMI"); }
static void hard_fault(void) { fault("HardFault"); }
static void memory_fault(void) { fault("MemManage"); }
static void bus_fault(void) { fault("BusFault"); }
static void usage_fault(void) { fault("UsageFault"); }
static void secure_fault(void) { fault("SecureFault"); }
static void unexpected(void) { fault("unexpected exception"); }

typedef void (*handler)(void);

struct vectors {
  const void *stack;
  handler system[15];
  handler external[BOARD_IRQ_COUNT];
};

/* GNU range designators would be shorter, but the interrupt's entry would override one of them. */
#define EXTERNAL_8(first) \
  (first) + 0 == BOARD_NPU_IRQ ? npu_interrupt : unexpected, (first) + 1 == BOARD_NPU_IRQ ? npu_interrupt : unexpected, \
  (first) + 2 == BOARD_NPU_IRQ ? npu_interrupt : unexpected, (first) + 3 == BOARD_NPU_IRQ ? npu_interrupt : unexpected, \
  (first) + 4 == BOARD_NPU_IRQ ? npu_interrupt : unexpected, (first) + 5 == BOARD_NPU_IRQ ? npu_interrupt : unexpected, \
  (first) + 6 == BOARD_NPU_IRQ ? npu_interrupt : unexpected, (first) + 7 == BOARD_NPU_IRQ ? npu_interrupt : unexpected
#define EXTERNAL_32(first) EXTERNAL_8(first), EXTERNAL_8((first) + 8), EXTERNAL_8((first) + 16), EXTERNAL_8((first) + 24)

_Static_assert(BOARD_IRQ_COUNT >= 96 && BOARD_IRQ_COUNT <= 480 && BOARD_NPU_IRQ < 96,
               "the vector table holds the NPU's interrupt in its first 96 entries");

__attribute__((used, aligned(1024), section(".vectors"))) static const struct vectors vectors = {
    __stack_top,
    {Reset_Handler, nmi, hard_fault, memory_fault, bus_fault, usage_fault, secure_fault, unexpected, unexpected,
     unexpected, unexpected, unexpected, unexpected, unexpected, unexpected},
    {EXTERNAL_32(0), EXTERNAL_32(32), EXTERNAL_32(64)},
};
