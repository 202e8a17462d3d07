#include "adapters.h"

enum { VERSION = 0x38, VERSION_KNOWN = 0x1117 };

#define REGISTER(offset) (*(volatile uint32_t *)(uintptr_t)(offset))

static uint32_t set(const struct adapter *adapter) {
  if (REGISTER(adapter->base + VERSION) != VERSION_KNOWN) return 0; /* an emulator has none there */
  for (uint32_t i = 0; i < ADAPTER_SETTINGS; i++) REGISTER(adapter->base + 4u * i) = adapter->settings[i];
  for (uint32_t i = 0; i < ADAPTER_SETTINGS; i++) {
    if (REGISTER(adapter->base + 4u * i) != adapter->settings[i]) return 0;
  }
  return 1;
}

uint32_t adapters_set(const struct adapter *adapters, uint32_t count) {
  uint32_t done = 0;
  for (uint32_t i = 0; i < count; i++) done += set(&adapters[i]);
  return done;
}
