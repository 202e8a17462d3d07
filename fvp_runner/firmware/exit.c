#include "exit.h"

#include "uart.h"

_Noreturn void firmware_exit(uint32_t code) {
  uart_text("EXIT:");
  uart_hex32(code);
  uart_text("\nEXITTHESIM\n");
  uart_char(0x04); /* end of transmission */
  for (;;) __asm__ volatile("wfi");
}
