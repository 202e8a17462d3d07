/* A CMSDK UART, transmit only, polled. Every line ends in \n alone. */
#ifndef NPU_MEMPLAN_UART_H
#define NPU_MEMPLAN_UART_H

#include <stdint.h>

void uart_init(void);
void uart_char(char c);
void uart_text(const char *text);
void uart_hex32(uint32_t value);
void uart_hex8(uint8_t value);
void uart_decimal(uint32_t value);
void uart_decimal64(uint64_t value);
void uart_signed(int32_t value);

#endif
