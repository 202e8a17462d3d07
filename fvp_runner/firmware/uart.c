#include "uart.h"

#include "board.h"

struct uart_registers {
  volatile uint32_t data;
  volatile uint32_t state; /* bit 0: transmit buffer full */
  volatile uint32_t control; /* bit 0: transmit enable */
  volatile uint32_t interrupt;
  volatile uint32_t baud_divisor; /* at least 16 */
};

#define UART ((struct uart_registers *)BOARD_UART_BASE)

void uart_init(void) {
  UART->baud_divisor = BOARD_UART_BAUD_DIVISOR;
  UART->control = 1;
}

void uart_char(char c) {
  while (UART->state & 1u) {
  }
  UART->data = (uint8_t)c;
}

void uart_text(const char *text) {
  while (*text) uart_char(*text++);
}

void uart_hex8(uint8_t value) {
  static const char digits[] = "0123456789abcdef";
  uart_char(digits[value >> 4]);
  uart_char(digits[value & 15]);
}

void uart_hex32(uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) uart_hex8((uint8_t)(value >> shift));
}

void uart_decimal64(uint64_t value) {
  char digits[20];
  int count = 0;
  do {
    digits[count++] = (char)('0' + (int)(value % 10u));
    value /= 10u;
  } while (value != 0);
  while (count > 0) uart_char(digits[--count]);
}

void uart_decimal(uint32_t value) { uart_decimal64(value); }

void uart_signed(int32_t value) {
  if (value < 0) uart_char('-');
  uart_decimal64(value < 0 ? (uint64_t)(-(int64_t)value) : (uint64_t)value);
}
