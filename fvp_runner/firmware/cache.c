#include "cache.h"

#define CCR (*(volatile uint32_t *)0xE000ED14u)
#define DCIMVAC (*(volatile uint32_t *)0xE000EF5Cu)
#define DCCMVAC (*(volatile uint32_t *)0xE000EF68u)
#define LINE_BYTES 32u

static void each_line(const void *address, uint32_t bytes, volatile uint32_t *operation) {
  if (!(CCR & 1u << 16) || bytes == 0) return; /* the data cache is off */
  uint32_t line = (uint32_t)(uintptr_t)address & ~(LINE_BYTES - 1u);
  const uint32_t end = (uint32_t)(uintptr_t)address + bytes;
  __asm__ volatile("dsb" ::: "memory");
  for (; line < end; line += LINE_BYTES) *operation = line;
  __asm__ volatile("dsb\n\tisb" ::: "memory");
}

__attribute__((weak)) void npu_memplan_cache_clean(const void *address, uint32_t bytes) {
  each_line(address, bytes, &DCCMVAC);
}

__attribute__((weak)) void npu_memplan_cache_invalidate(const void *address, uint32_t bytes) {
  each_line(address, bytes, &DCIMVAC);
}
