/* How deep the stack became: painted before anything runs, looked at when all is done. */
#ifndef NPU_MEMPLAN_STACK_H
#define NPU_MEMPLAN_STACK_H

#include <stdint.h>

#define STACK_PAINT 0xC0DEA5F0u /* no byte repeats: a compiler cannot make a memset, and its frame, of the loop */

extern uint32_t __stack_limit[], __stack_top[];

/* Of the caller's frame only what lies below it is painted; 16 words are left for what the compiler keeps there. */
__attribute__((always_inline)) static inline void stack_paint(void) {
  const uintptr_t end = (uintptr_t)__builtin_frame_address(0) - 64u;
  for (volatile uint32_t *at = __stack_limit; (uintptr_t)at < end; at++) *at = STACK_PAINT;
}

/* Bytes from the deepest word that was written to the stack's top. */
static inline uint32_t stack_used(void) {
  const uint32_t *at = __stack_limit;
  while (at < __stack_top && *at == STACK_PAINT) at++;
  return (uint32_t)((uintptr_t)__stack_top - (uintptr_t)at);
}

#endif
