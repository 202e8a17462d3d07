/* Corstone-300: what startup.c, uart.c and ethosu.c ask of a board. */
#ifndef BOARD_H
#define BOARD_H

#define BOARD_UART_BASE 0x49303000u
#define BOARD_UART_BAUD_DIVISOR 217u /* 25 MHz / 115200 */
#define BOARD_IRQ_COUNT 96
#define BOARD_NPU_BASE 0x48102000u
#define BOARD_NPU_IRQ 56

#endif
